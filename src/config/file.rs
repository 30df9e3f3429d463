//! The configuration file as it is written: where each value is, and what is wrong. What counts beside it: the flags, which
//! count before it, and the environment of the process, which says what file is read. Single values are found although the rest
//! need not be right: a command reaches a running daemon while a secret is being replaced, or another key is being edited.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use clap::Args;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::config::schema::{DaemonKind, check, schema_of};
use crate::config::server::{LogFormat, LogLevel, ServerSettings, word};
use crate::config::state_dir;
use crate::config::text::{Address, TextValue};

/// The message about a duration for which zero makes no sense.
pub const NOT_ZERO: &str = "it must be longer than zero";

/// The error of loading a [`Config`](crate::config::Config).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "nothing to watch: name a configuration file with --config FILE, or a tree with --root DIR --url URI \
         ({default} does not exist)"
    )]
    Nothing { default: PathBuf },
    /// The first thing to correct, with its place if it has one: a flag, or a line and a column of the file, which count
    /// from 1.
    #[error("{0}")]
    Invalid(String),
}

/// The result of what may find the configuration wrong.
pub type Checked<T = ()> = Result<T, ConfigError>;

/// The file, and the flags. A key is given with the positions of tables, such as `source.0.name`.
pub(crate) struct ConfigFile<'a> {
    /// Nothing if there are only flags.
    pub path: Option<&'a Path>,
    text: &'a str,
    root: Spanned<DeValue<'a>>,
    /// Keys, and the flags that they are set by.
    pub flags: Vec<(&'static str, &'static str)>,
    pub environment: &'a Environment,
}

impl<'a> ConfigFile<'a> {
    /// Reads a text, which must be TOML.
    pub fn parse(
        path: Option<&'a Path>,
        text: &'a str,
        environment: &'a Environment,
    ) -> Checked<ConfigFile<'a>> {
        let (file, errors) = ConfigFile::recover(path, text, environment);
        let Some(error) = errors.first() else {
            return Ok(file);
        };
        let message = error.message().trim_end().replace('\n', ", ");
        Err(file.error_at("", error.span().map(|span| span.start), message))
    }

    /// Reads as much of a text as is TOML, and returns the errors beside it.
    pub fn recover(
        path: Option<&'a Path>,
        text: &'a str,
        environment: &'a Environment,
    ) -> (ConfigFile<'a>, Vec<toml::de::Error>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let file = ConfigFile {
            path,
            text,
            root: Spanned::new(table.span(), DeValue::Table(table.into_inner())),
            flags: Vec::new(),
            environment,
        };
        (file, errors)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Spanned<DeValue<'a>>> {
        let mut parts = key.split('.');
        parts.try_fold(&self.root, |value, part| child(value.get_ref(), part))
    }

    /// Puts what a flag says in the place of what the file says.
    pub fn set(&mut self, key: &'static str, flag: &'static str, value: DeValue<'a>) {
        self.flags.push((key, flag));
        let mut parts = key.split('.');
        if let Some(place) = parts.try_fold(self.root.get_mut(), slot) {
            *place = value;
        }
    }

    /// Leaves of a list the one table with this text, without the keys that flags replace, or begins a new table.
    pub fn select(&mut self, list: &str, (key, text): (&str, &str), replaced: &[&str]) {
        let Some(place) = slot(self.root.get_mut(), list) else {
            return;
        };
        let is_it = |table: &Spanned<DeValue<'_>>| {
            let value = child(table.get_ref(), key);
            value.and_then(|value| value.get_ref().as_str()) == Some(text)
        };
        let tables = place.as_array().into_iter();
        let written = tables
            .flat_map(|tables| tables.iter())
            .find(|table| is_it(table));
        let mut selected = written.cloned().unwrap_or_else(empty);
        if let DeValue::Table(table) = selected.get_mut() {
            for key in replaced {
                table.remove(*key);
            }
        }
        *place = DeValue::Array([selected].into_iter().collect());
    }

    /// Returns what the file and the flags say, if each key is known and has a value of its kind.
    pub fn read<T: DeserializeOwned + JsonSchema>(&self, daemon: DaemonKind) -> Checked<T> {
        check(&schema_of::<T>(daemon), "", &self.root)
            .map_err(|(key, offset, message)| self.error_at(&key, offset, message))?;
        let deserializer = ValueDeserializer::from(self.root.clone());
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let parts = error.path().iter().filter_map(|segment| match segment {
                Segment::Seq { index } => Some(index.to_string()),
                Segment::Map { key } => Some(key.clone()),
                Segment::Enum { .. } | Segment::Unknown => None,
            });
            let key = parts.collect::<Vec<_>>().join(".");
            self.error(&key, error.inner().message())
        })
    }

    /// Returns the table with a key.
    pub fn table(&self, key: impl Display) -> ConfigTable<'_> {
        let key = key.to_string();
        ConfigTable { file: self, key }
    }

    /// Returns the error about a key.
    pub fn error(&self, key: &str, message: impl Display) -> ConfigError {
        self.error_at(key, None, message)
    }

    fn error_at(&self, key: &str, offset: Option<usize>, message: impl Display) -> ConfigError {
        let is_below = |rest: &str| rest.is_empty() || rest.starts_with('.');
        let mut flags = self.flags.iter();
        if let Some((_, flag)) = flags.find(|(set, _)| key.strip_prefix(set).is_some_and(is_below))
        {
            return ConfigError::Invalid(format!("{flag}: {message}"));
        }
        // Where it is, or the table that it is missing in.
        let (mut found, mut start) = (Some(&self.root), offset);
        for part in key.split('.') {
            found = found.and_then(|value| child(value.get_ref(), part));
            start = offset.or(found.map(|value| value.span().start)).or(start);
        }
        let names = key.split('.').filter(|part| part.parse::<usize>().is_err());
        let mut words = names.collect::<Vec<_>>().join(".");
        if !words.is_empty() {
            words.push_str(": ");
        }
        let Some((path, start)) = self.path.zip(start) else {
            return ConfigError::Invalid(format!("{words}{message}"));
        };
        // As editors count.
        let before = self.text.get(..start).unwrap_or(self.text);
        let (line, last) = (before.matches('\n').count() + 1, before.rsplit('\n').next());
        let column = last.map_or(0, |last| last.chars().count()) + 1;
        ConfigError::Invalid(format!(
            "{}:{line}:{column}: {words}{message}",
            path.display()
        ))
    }

    /// Makes the path of a key absolute: one in the file is relative to the file's directory.
    pub fn absolute(&self, key: &str, path: &Path) -> Checked<PathBuf> {
        if path.as_os_str().is_empty() {
            return Err(self.error(key, "it is empty"));
        }
        Ok(self.resolve(path))
    }

    /// Returns a path that is relative to the file's directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let directory = self.path.and_then(Path::parent).unwrap_or(Path::new(""));
        self.environment.absolute(&directory.join(path))
    }

    /// Returns the flags that a key was set by, or `default`, or nothing if it is written in the file.
    pub fn origin(&self, key: &str) -> Option<&'static str> {
        // A source that is written without mounts has the short form of one.
        let is_written = || self.get(key).is_some() || key.ends_with(".mount");
        match self.flags.iter().find(|(set, _)| *set == key) {
            Some((_, flags)) => Some(flags),
            None => (!is_written()).then_some("default"),
        }
    }
}

/// A table of the file, with its key.
pub(crate) struct ConfigTable<'f> {
    pub file: &'f ConfigFile<'f>,
    pub key: String,
}

impl ConfigTable<'_> {
    /// Returns the error about a key in it.
    pub fn error(&self, key: &str, message: impl Display) -> ConfigError {
        self.file.error(&format!("{}.{key}", self.key), message)
    }

    /// Refuses a key in it if a condition holds.
    pub fn refuse(&self, is_wrong: bool, key: &str, message: impl Display) -> Checked {
        if is_wrong {
            Err(self.error(key, message))
        } else {
            Ok(())
        }
    }
}

/// Returns the part of a table or list with this name or position.
fn child<'v, 'a>(value: &'v DeValue<'a>, part: &str) -> Option<&'v Spanned<DeValue<'a>>> {
    match value {
        DeValue::Table(table) => table.get(part),
        DeValue::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Returns the place of a key in a table, which it may be the first in, or the only table of a list.
fn slot<'v, 'a>(value: &'v mut DeValue<'a>, part: &str) -> Option<&'v mut DeValue<'a>> {
    match value {
        DeValue::Table(table) => {
            let name = Spanned::new(0..0, part.to_owned().into());
            Some(table.entry(name).or_insert_with(empty).get_mut())
        }
        DeValue::Array(items) => items.first_mut().map(Spanned::get_mut),
        _ => None,
    }
}

fn empty<'a>() -> Spanned<DeValue<'a>> {
    Spanned::new(0..0, DeValue::Table(DeTable::new()))
}

/// Directory in which systemd keeps the credentials of the service while it runs.
const CREDENTIALS_OF_SERVICE: &str = "/run/credentials/rsnotify.service";

/// The environment of the process.
pub(crate) struct Environment {
    pub default_file: PathBuf,
    pub current_dir: PathBuf,
    /// All variables: the file may say that one holds a secret.
    pub variables: HashMap<OsString, OsString>,
}

impl Environment {
    /// A command about the service, such as `rsnotify status`, reads the same credentials as the service, if it may: systemd
    /// tells only the service where they are.
    pub fn of_this_process() -> Environment {
        let mut variables: HashMap<_, _> = env::vars_os().collect();
        if Path::new(CREDENTIALS_OF_SERVICE).is_dir() {
            let directory = variables.entry("CREDENTIALS_DIRECTORY".into());
            directory.or_insert_with(|| CREDENTIALS_OF_SERVICE.into());
        }
        Environment {
            default_file: PathBuf::from("/etc/rsnotify/config.toml"),
            current_dir: env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            variables,
        }
    }

    /// Returns the file to read, if there is one, and its text: the one at `path`, or the default one if nothing else says
    /// what to watch.
    pub fn read<'a>(
        &'a self,
        path: Option<&'a Path>,
        overrides: &Overrides,
    ) -> Checked<(Option<&'a Path>, String)> {
        // One that cannot be looked at is reported when it is read.
        let is_there = || self.default_file.try_exists().unwrap_or(true);
        let tree = &overrides.source.tree;
        let says_what = tree.root.is_some() || tree.url.is_some();
        let default = || (!says_what && is_there()).then_some(self.default_file.as_path());
        let Some(path) = path.or_else(default) else {
            return Ok((None, String::new()));
        };
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok((Some(path), text))
    }

    /// Returns the state directory, as the flags, the file at `path` or the default one have it. Whatever else is wrong with
    /// the file is overlooked, text that is not TOML included.
    ///
    /// # Errors
    /// The file cannot be read, or its `state_dir` is none.
    pub fn state_dir(&self, path: Option<&Path>, overrides: &Overrides) -> Checked<PathBuf> {
        if let Some(path) = &overrides.source.tree.state.state_dir
            && !path.as_os_str().is_empty()
        {
            return Ok(self.absolute(path));
        }
        let (path, text) = self.read(path, overrides)?;
        let (file, _) = ConfigFile::recover(path, &text, self);
        let written = text_of(&file, "state_dir")?.unwrap_or_default();
        state_dir(&file, written.as_ref())
    }

    /// Returns the address of the admin listener, as the flags, the file at `path` or the default one have it. A file that
    /// need not be read is not; one that is read must be TOML. Whatever else is wrong with it is overlooked.
    pub fn admin_address(&self, path: Option<&Path>, overrides: &Overrides) -> Checked<Address> {
        let (path, text) = match overrides.daemon.admin_listen {
            Some(_) => (None, String::new()),
            None => self.read(path, overrides)?,
        };
        let mut file = ConfigFile::parse(path, &text, self)?;
        overrides.apply(&mut file);
        let key = "server.admin_listen";
        let default = ServerSettings::default().admin_listen.0;
        let address = text_of(&file, key)?.map_or(Ok(default), Address::read);
        match address.map_err(|message| file.error(key, message))? {
            Address::Unix(socket) => file.absolute(key, &socket).map(Address::Unix),
            address => Ok(address),
        }
    }

    /// Returns an absolute path, unless it is empty, without `.` and `..`, so that two ways to write a directory
    /// compare equal. Links are not resolved: a mount may appear later.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        if path.as_os_str().is_empty() {
            return plain;
        }
        for component in self.current_dir.join(path).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    plain.pop();
                }
                component => plain.push(component),
            }
        }
        plain
    }

    /// Returns an environment variable that is not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        Some(value.as_os_str()).filter(|value| !value.is_empty())
    }

    pub fn default_state_dir(&self) -> Option<PathBuf> {
        // systemd separates several state directories by colons.
        let given = self.variable("STATE_DIRECTORY");
        let below = |home, path| Some(Path::new(self.variable(home)?).join(path));
        given
            .and_then(|list| env::split_paths(list).next())
            .or_else(|| below("XDG_STATE_HOME", "rsnotify"))
            .or_else(|| below("HOME", ".local/state/rsnotify"))
    }
}

/// Returns the text of a key, if there is any.
fn text_of<'f>(file: &'f ConfigFile<'_>, key: &str) -> Checked<Option<&'f str>> {
    let message = "write \"…\", with quotation marks";
    let text = |value: &'f DeValue<'_>| value.as_str().ok_or_else(|| file.error(key, message));
    file.get(key).map(|value| text(value.get_ref())).transpose()
}

/// Flags that stand for keys; one that was not given leaves the file's value, or its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Overrides {
    #[command(flatten)]
    pub source: SourceOptions,

    #[command(flatten)]
    pub daemon: DaemonOptions,
}

/// Flags that name a Source, in place of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct SourceOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    /// The hub to notify; replaces the file's hubs [default: the embedded hub]
    #[arg(long, value_name = "URI")]
    pub hub: Option<String>,

    /// The address to serve topics and the embedded hub at [default: 127.0.0.1:8400]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// The public URL of --listen [default: http://LISTEN/]
    #[arg(long, value_name = "URI")]
    pub public_url: Option<String>,
}

/// Flags that name a tree, in place of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TreeOptions {
    /// The directory that is published; replaces the file's sources by one named "main"
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// The URI that --root is published as [default: as its Capability Lists name it]
    #[arg(long, value_name = "URI")]
    pub url: Option<String>,

    #[command(flatten)]
    pub state: StateOptions,
}

/// The flag that names the state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StateOptions {
    /// The directory of the state file
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Flags of daemons alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DaemonOptions {
    /// The address to serve health, metrics and the status page at [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,

    /// The format of log lines [default: human]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// The lowest level to log, to standard error [default: info]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

impl StateOptions {
    pub fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::default();
        overrides.source.tree.state = self.clone();
        overrides
    }
}

impl TreeOptions {
    pub fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::default();
        overrides.source.tree = self.clone();
        overrides
    }
}

impl SourceOptions {
    pub fn overrides(&self) -> Overrides {
        Overrides {
            source: self.clone(),
            ..Overrides::default()
        }
    }
}

impl Overrides {
    /// Puts the flags in the place of what the file says. Paths in them are relative to the current directory.
    ///
    /// `root` and `url` together stand for all `[[source]]` entries: one source named `main`, which keeps the other settings
    /// of a source of that name in the file. `hub` stands for all `[[hub]]` entries, and keeps the settings of the one with
    /// that URL.
    pub(crate) fn apply(&self, file: &mut ConfigFile<'_>) {
        let Overrides { source, daemon } = self;
        let tree = &source.tree;
        let environment = file.environment;
        let absolute = |path: &Path| environment.absolute(path).to_string_lossy().into_owned();
        let text = |text: String| DeValue::String(text.into());
        if let Some(path) = &tree.state.state_dir {
            file.set("state_dir", "--state-dir", text(absolute(path)));
        }
        for (key, flag, given) in [
            ("server.listen", "--listen", &source.listen),
            ("server.public_url", "--public-url", &source.public_url),
            (
                "server.admin_listen",
                "--admin-listen",
                &daemon.admin_listen,
            ),
        ] {
            let Some(given) = given else { continue };
            let socket = given.strip_prefix("unix:").map(Path::new);
            let socket = socket.map(|path| format!("unix:{}", absolute(path)));
            file.set(key, flag, text(socket.unwrap_or_else(|| given.clone())));
        }
        if let Some(level) = daemon.log_level {
            file.set("log.level", "--log-level", text(word(level)));
        }
        if let Some(format) = daemon.log_format {
            file.set("log.format", "--log-format", text(word(format)));
        }
        if let (Some(root), Some(url)) = (&tree.root, &tree.url) {
            file.select("source", ("name", "main"), &["path", "url", "mount"]);
            file.set("source.0.name", "--root --url", text("main".to_owned()));
            file.set("source.0.path", "--root", text(absolute(root)));
            file.set("source.0.url", "--url", text(url.clone()));
            file.flags.push(("source.0.mount", "--root --url"));
            if file.path.is_none() {
                // C9: the hub is our own, so that nobody else gets traffic that was not asked for.
                let key = "source.0.change_notifications";
                file.set(key, "--root", DeValue::Boolean(true));
            }
        }
        if let Some(url) = &source.hub {
            file.select("hub", ("url", url), &[]);
            file.set("hub.0.url", "--hub", text(url.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for a value with this as the default file, whose directory is called DIR.
    fn found(
        file: Option<&str>,
        look: impl FnOnce(&Environment) -> Result<String, ConfigError>,
    ) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        if let Some(text) = file {
            fs::write(&path, text).unwrap();
        }
        let mut environment = Environment::of_this_process();
        environment.default_file = path;
        let variable = ("STATE_DIRECTORY".into(), "/default".into());
        environment.variables.extend([variable]);
        match look(&environment) {
            Ok(found) => Ok(found.replace(&directory.path().display().to_string(), "DIR")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn found_state_dir(file: Option<&str>, overrides: Overrides) -> Result<String, String> {
        found(file, |environment| {
            let found = environment.state_dir(None, &overrides)?;
            Ok(found.display().to_string())
        })
    }

    fn found_admin_address(file: Option<&str>, overrides: Overrides) -> Result<String, String> {
        found(file, |environment| {
            let found = environment.admin_address(None, &overrides)?;
            Ok(found.to_string())
        })
    }

    #[test]
    fn the_flag_counts_before_the_file_and_the_file_before_the_default() {
        let none = Overrides::default();
        let (mut flag, mut tree) = (none.clone(), none.clone());
        flag.daemon.admin_listen = Some("127.0.0.1:9".to_owned());
        tree.source.tree.root = Some("/srv/www".into());
        let file = "[server]\nadmin_listen = \"unix:a.sock\"\n";
        let wrong = "quite = 1\n[server]\nadmin_listen = \"127.0.0.1:9\"\nlisten = 7\n\
                     [[hub]]\nurl = \"no URI\"\nbearer_token_file = \"/nonexistent\"\n";
        for (file, overrides, want) in [
            (None, &none, "127.0.0.1:8401"),
            (Some(""), &none, "127.0.0.1:8401"),
            (Some(file), &none, "unix:DIR/a.sock"),
            (Some(file), &flag, "127.0.0.1:9"),
            (Some("no TOML"), &flag, "127.0.0.1:9"),
            // The default file is left alone, as it is by the daemon.
            (Some(file), &tree, "127.0.0.1:8401"),
            // What else is wrong with the file is no matter.
            (Some(wrong), &none, "127.0.0.1:9"),
        ] {
            let found = found_admin_address(file, overrides.clone());
            assert_eq!(found.as_deref(), Ok(want), "{file:?}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_named_with_its_place() {
        let file = "[server]\nadmin_listen = \"localhost:8401\"\n";
        let message = found_admin_address(Some(file), Overrides::default()).unwrap_err();
        let want = "config.toml:2:16: server.admin_listen: \"localhost:8401\" has a host name";
        assert!(message.contains(want), "{message}");
    }

    #[test]
    fn the_state_directory_is_found_whatever_else_is_wrong_with_the_file() {
        for (file, want) in [
            (None, "/default"),
            (Some(""), "/default"),
            (Some("state_dir = \"a\"\n"), "DIR/a"),
            (Some("state_dir = \"/a\"\nquite = 1\n[sever]\n"), "/a"),
            (Some("state_dir = \"/a\"\n[[source]]\nname = \"a\n"), "/a"),
            (Some("state_dir = \"/a\"\n[[hub]\nurl =\n= 3\n"), "/a"),
            (Some("quite = \nstate_dir = \"/a\"\n"), "/a"),
        ] {
            let found = found_state_dir(file, Overrides::default());
            assert_eq!(found.as_deref(), Ok(want), "{file:?}");
        }
        // With the flag the file is not read.
        let mut flag = Overrides::default();
        flag.source.tree.state.state_dir = Some("/flag".into());
        let found = found_state_dir(Some("state_dir = 3"), flag);
        assert_eq!(found.as_deref(), Ok("/flag"));
    }
}
