//! Loads values from the flags and the file, and collects everything that is wrong with them, so that an operator sees
//! all mistakes at once.
//!
//! A value that is wrong is reported and replaced by its default; [`Loader::finish`] then refuses the whole.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::mem;
use std::path::{Component, Path, PathBuf};

use crate::config::Environment;
use crate::config::definition::Definition;
use crate::config::error::{ConfigError, Location, Problem};
use crate::config::origin::{FileText, Given, Origin, Origins};
use crate::config::structure::Slip;

/// The values that were loaded, as far as other values depend on them, and the problems.
#[derive(Debug)]
pub struct Loader<'a> {
    file: Option<FileText<'a>>,
    environment: &'a Environment,
    /// The names of keys that were left out because they are unknown or have a value of the wrong kind, and of those
    /// that they were probably meant to be.
    misspelt: BTreeSet<String>,
    problems: Vec<Problem>,
    origins: Origins,
}

impl<'a> Loader<'a> {
    pub fn new(file: Option<FileText<'a>>, environment: &'a Environment) -> Loader<'a> {
        Loader {
            file,
            environment,
            misspelt: BTreeSet::new(),
            problems: Vec::new(),
            origins: Origins::default(),
        }
    }

    /// Returns true if there is a configuration file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reports keys that are unknown, or have a value of the wrong kind.
    pub fn report_slips(&mut self, slips: Vec<Slip>) {
        for slip in slips {
            self.misspelt.insert(slip.name);
            self.misspelt.extend(slip.problem.suggestion.clone());
            self.problems.push(slip.problem);
        }
    }

    /// Remembers where a value comes from.
    pub fn note(&mut self, key: &Definition, entry: usize, origin: Origin) {
        self.origins.note(key, entry, origin);
    }

    /// Returns true if one of these keys, or the table of that name, was left out, so that its absence means nothing.
    pub fn is_misspelt(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.misspelt.contains(*name))
    }

    /// Reports what follows from the absence of some keys, unless it follows from a slip in one of them.
    pub fn report_absence(
        &mut self,
        names: &[&str],
        origin: Origin,
        key: &Definition,
        message: impl Display,
    ) {
        if !self.is_misspelt(names) {
            self.report(origin, key, message);
        }
    }

    pub fn report(&mut self, origin: Origin, key: &Definition, message: impl Display) {
        self.suggest(origin, key, message, None);
    }

    /// Reports a value with what was probably meant.
    pub fn suggest(
        &mut self,
        origin: Origin,
        key: &Definition,
        message: impl Display,
        suggestion: Option<String>,
    ) {
        self.report_path(origin, key.path(), message, suggestion);
    }

    /// Reports a value below a key.
    pub fn report_path(
        &mut self,
        origin: Origin,
        key: String,
        message: impl Display,
        suggestion: Option<String>,
    ) {
        let location = match (origin, &self.file) {
            (Origin::Flag(flag), _) => Location::Flag(flag),
            (Origin::File(offset), Some(file)) => file.location(offset),
            (Origin::File(_), None) | (Origin::Absent, _) => Location::Nowhere,
        };
        self.problems.push(Problem {
            location,
            key,
            message: message.to_string(),
            suggestion,
        });
    }

    /// Returns the value that `check` makes of a text, or reports it.
    pub fn checked<T, E: Display>(
        &mut self,
        key: &Definition,
        given: &Given<String>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        check(&given.value)
            .map_err(|message| self.report(given.origin, key, message))
            .ok()
    }

    /// Returns an absolute path, or reports that there is none.
    pub fn path(&mut self, key: &Definition, origin: Origin, path: &Path) -> Option<PathBuf> {
        self.absolute(origin, path)
            .map_err(|message| self.report(origin, key, message))
            .ok()
    }

    /// Returns an absolute path: one in a flag is relative to the current directory, one in the file to the file's
    /// directory.
    pub fn absolute(&self, origin: Origin, path: &Path) -> Result<PathBuf, &'static str> {
        if path.as_os_str().is_empty() {
            return Err("it is empty");
        }
        let current_dir = &self.environment.current_dir;
        let file_dir = self.file.as_ref().and_then(|file| file.path.parent());
        let base = match (origin, file_dir) {
            (Origin::File(_), Some(directory)) => current_dir.join(directory),
            _ => current_dir.to_owned(),
        };
        Ok(without_dots(&base.join(path)))
    }

    /// Returns an environment variable that is not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.environment.variables.get(OsStr::new(name))?;
        Some(value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// Returns what was loaded with its origins, or all problems in the order of the file.
    pub fn finish<T>(&mut self, loaded: T) -> Result<(T, Origins), ConfigError> {
        if self.problems.is_empty() {
            return Ok((loaded, mem::take(&mut self.origins)));
        }
        self.problems.sort_by(|a, b| a.location.cmp(&b.location));
        Err(ConfigError::Invalid {
            problems: mem::take(&mut self.problems),
        })
    }
}

/// Returns the path without `.` and `..`, so that two ways to write a directory compare equal. Links are not resolved:
/// a mount may appear later.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
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
