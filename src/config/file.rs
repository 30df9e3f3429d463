//! The configuration file as it is written: where each value is, and what is wrong.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_path_to_error::Segment;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::config::ReloadableConfig;
use crate::config::environment::ProcessEnvironment;
use crate::config::schema::{check, schema_of};

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
pub(crate) struct ConfigTree<'a> {
    /// Nothing if there are only flags.
    pub path: Option<&'a Path>,
    text: &'a str,
    root: Spanned<DeValue<'a>>,
    /// Keys, and the flags that they are set by.
    pub flags: Vec<(&'static str, &'static str)>,
    pub environment: &'a ProcessEnvironment,
}

impl<'a> ConfigTree<'a> {
    /// Reads a text, which must be TOML.
    pub fn parse(
        path: Option<&'a Path>,
        text: &'a str,
        environment: &'a ProcessEnvironment,
    ) -> Checked<ConfigTree<'a>> {
        let (file, errors) = ConfigTree::recover(path, text, environment);
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
        environment: &'a ProcessEnvironment,
    ) -> (ConfigTree<'a>, Vec<toml::de::Error>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let file = ConfigTree {
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
        if let Some(place) = parts.try_fold(self.root.get_mut(), child_or_new) {
            *place = value;
        }
    }

    /// Leaves of a list the one table with this text, without the keys that flags replace, or begins a new table.
    pub fn keep_one_table(&mut self, list: &str, (key, text): (&str, &str), replaced: &[&str]) {
        let is_it = |table: &&Spanned<DeValue<'_>>| {
            let value = child(table.get_ref(), key);
            value.and_then(|value| value.get_ref().as_str()) == Some(text)
        };
        let tables = self.get(list).and_then(|list| list.get_ref().as_array());
        let written = tables.and_then(|tables| tables.iter().find(is_it));
        let mut selected = written.cloned().unwrap_or_else(empty_table);
        if let DeValue::Table(table) = selected.get_mut() {
            for key in replaced {
                table.remove(*key);
            }
        }
        if let Some(place) = child_or_new(self.root.get_mut(), list) {
            *place = DeValue::Array([selected].into_iter().collect());
        }
    }

    /// Returns what the file and the flags say, if each key is known and has a value of its kind.
    pub fn to_config<T: ReloadableConfig>(&self) -> Checked<T> {
        check(&schema_of::<T>(), "", &self.root)
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
    pub fn table(&self, key: impl Display) -> TablePlace<'_> {
        let key = key.to_string();
        TablePlace { file: self, key }
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
        let path = path.display();
        ConfigError::Invalid(format!("{path}:{line}:{column}: {words}{message}"))
    }

    /// Makes the path of a key absolute: one in the file is relative to the file's directory.
    pub fn absolute(&self, key: &str, path: &Path) -> Checked<PathBuf> {
        if path.as_os_str().is_empty() {
            return Err(self.error(key, "it is empty"));
        }
        Ok(self.resolve_path(path))
    }

    /// Returns a path that is relative to the file's directory.
    pub fn resolve_path(&self, path: &Path) -> PathBuf {
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
pub(crate) struct TablePlace<'f> {
    pub file: &'f ConfigTree<'f>,
    pub key: String,
}

impl TablePlace<'_> {
    /// Returns the error about a key in it.
    pub fn error(&self, key: &str, message: impl Display) -> ConfigError {
        self.file.error(&format!("{}.{key}", self.key), message)
    }

    /// Refuses a key in it if a condition holds.
    pub fn refuse_if(&self, is_wrong: bool, key: &str, message: impl Display) -> Checked {
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
fn child_or_new<'v, 'a>(value: &'v mut DeValue<'a>, part: &str) -> Option<&'v mut DeValue<'a>> {
    match value {
        DeValue::Table(table) => {
            let name = Spanned::new(0..0, part.to_owned().into());
            Some(table.entry(name).or_insert_with(empty_table).get_mut())
        }
        DeValue::Array(items) => items.first_mut().map(Spanned::get_mut),
        _ => None,
    }
}

fn empty_table<'a>() -> Spanned<DeValue<'a>> {
    Spanned::new(0..0, DeValue::Table(DeTable::new()))
}
