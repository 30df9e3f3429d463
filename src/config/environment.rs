//! Flags, which count before the file, and the environment of the process, which says what file is read. Single values
//! are found although the rest need not be right: a command reaches a running daemon while a secret is being replaced,
//! or another key is being edited.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use clap::Args;
use toml::de::DeValue;

use crate::config::file::{Checked, ConfigError, ConfigTree};
use crate::config::server::{LogFormat, LogLevel, ServerSettings, word};
use crate::config::state_dir;
use crate::config::text::{Address, TextValue};

/// Directory in which systemd keeps the credentials of the service while it runs.
const CREDENTIALS_OF_SERVICE: &str = "/run/credentials/rsnotify.service";

/// The environment of the process.
pub(crate) struct ProcessEnvironment {
    pub default_file: PathBuf,
    pub current_dir: PathBuf,
    /// All variables: the file may say that one holds a secret.
    pub variables: HashMap<OsString, OsString>,
}

impl ProcessEnvironment {
    /// A command about the service, such as `rsnotify status`, reads the same credentials as the service, if it may: systemd
    /// tells only the service where they are.
    pub fn of_this_process() -> ProcessEnvironment {
        let mut variables: HashMap<_, _> = env::vars_os().collect();
        if Path::new(CREDENTIALS_OF_SERVICE).is_dir() {
            let directory = variables.entry("CREDENTIALS_DIRECTORY".into());
            directory.or_insert_with(|| CREDENTIALS_OF_SERVICE.into());
        }
        ProcessEnvironment {
            default_file: PathBuf::from("/etc/rsnotify/config.toml"),
            current_dir: env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            variables,
        }
    }

    /// Returns the file to read, if there is one, and its text: the one at `path`, or the default one if nothing else says
    /// what to watch.
    pub fn read_config<'a>(
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
        let (path, text) = self.read_config(path, overrides)?;
        let (file, _) = ConfigTree::recover(path, &text, self);
        let written = text_of_key(&file, "state_dir")?.unwrap_or_default();
        state_dir(&file, written.as_ref())
    }

    /// Returns the address of the admin listener, as the flags, the file at `path` or the default one have it. A file that
    /// need not be read is not; one that is read must be TOML. Whatever else is wrong with it is overlooked.
    pub fn admin_address(&self, path: Option<&Path>, overrides: &Overrides) -> Checked<Address> {
        let (path, text) = match overrides.daemon.admin_listen {
            Some(_) => (None, String::new()),
            None => self.read_config(path, overrides)?,
        };
        let mut file = ConfigTree::parse(path, &text, self)?;
        overrides.apply(&mut file);
        let key = "server.admin_listen";
        let default = ServerSettings::default().admin_listen.0;
        let address = text_of_key(&file, key)?.map_or(Ok(default), Address::read);
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
fn text_of_key<'f>(file: &'f ConfigTree<'_>, key: &str) -> Checked<Option<&'f str>> {
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
    pub state: StateDirOption,
}

/// The flag that names the state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct StateDirOption {
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

impl StateDirOption {
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
    pub(crate) fn apply(&self, file: &mut ConfigTree<'_>) {
        let Overrides { source, daemon } = self;
        let tree = &source.tree;
        let environment = file.environment;
        let absolute = |path: &Path| environment.absolute(path).to_string_lossy().into_owned();
        let text = |text: String| DeValue::String(text.into());
        let address = |given: &String| match given.strip_prefix("unix:") {
            Some(path) => format!("unix:{}", absolute(path.as_ref())),
            None => given.clone(),
        };
        let state_dir = tree.state.state_dir.as_deref().map(absolute);
        let addresses = [&source.listen, &source.public_url, &daemon.admin_listen];
        let [listen, public_url, admin_listen] = addresses.map(|given| given.as_ref().map(address));
        for (key, flag, given) in [
            ("state_dir", "--state-dir", state_dir),
            ("server.listen", "--listen", listen),
            ("server.public_url", "--public-url", public_url),
            ("server.admin_listen", "--admin-listen", admin_listen),
            ("log.level", "--log-level", daemon.log_level.map(word)),
            ("log.format", "--log-format", daemon.log_format.map(word)),
        ] {
            if let Some(given) = given {
                file.set(key, flag, text(given));
            }
        }
        if let (Some(root), Some(url)) = (&tree.root, &tree.url) {
            file.keep_one_table("source", ("name", "main"), &["path", "url", "mount"]);
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
            file.keep_one_table("hub", ("url", url), &[]);
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
        look: impl FnOnce(&ProcessEnvironment) -> Result<String, ConfigError>,
    ) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        if let Some(text) = file {
            fs::write(&path, text).unwrap();
        }
        let mut environment = ProcessEnvironment::of_this_process();
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
