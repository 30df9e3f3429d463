//! Takes single values from the flags and the file, and gathers everything that is wrong with them, so that
//! an operator sees all mistakes at once.
//!
//! A value that is wrong is reported and replaced by its default; [`Reading::finish`] then refuses the whole.

use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::config::Environment;
use crate::config::duration;
use crate::config::error::{ConfigError, Place, Problem};
use crate::config::raw::Written;
use crate::config::suggestion::nearest;

/// Where a value was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    /// In the file, at this byte.
    File(usize),
    /// Nowhere: it is a default, or absent.
    Absent,
}

/// A value with where it was given.
#[derive(Debug, Clone)]
pub struct Given<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Given<T> {
    pub fn map<U>(self, read: impl FnOnce(T) -> U) -> Given<U> {
        Given {
            value: read(self.value),
            origin: self.origin,
        }
    }
}

/// The value of a key in the file.
pub fn in_file<T>(written: toml::Spanned<T>) -> Given<T> {
    Given {
        origin: Origin::File(written.span().start),
        value: written.into_inner(),
    }
}

/// The value of a flag, else that of its key in the file.
pub fn flag_or_file<T: Clone>(
    flag: &'static str,
    given: Option<&T>,
    written: Written<T>,
) -> Option<Given<T>> {
    match given {
        Some(value) => Some(Given {
            value: value.clone(),
            origin: Origin::Flag(flag),
        }),
        None => written.map(in_file),
    }
}

/// The file being read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// Where the byte at `offset` is, as editors count.
    pub fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place::File {
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// What has been found wrong so far.
#[derive(Debug)]
pub struct Reading<'a> {
    file: Option<Source<'a>>,
    environment: &'a Environment,
    /// Unknown keys and values of the wrong type, which were left out of what is read.
    slips: Vec<Problem>,
    problems: Vec<Problem>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        file: Option<Source<'a>>,
        environment: &'a Environment,
        slips: Vec<Problem>,
    ) -> Reading<'a> {
        Reading {
            file,
            environment,
            slips,
            problems: Vec::new(),
        }
    }

    /// Whether one of these keys, or the table of that name, is there with a slip in it, so that its absence means
    /// nothing. Keys are named by their last part.
    pub fn is_misspelt(&self, keys: &[&str]) -> bool {
        self.slips.iter().any(|slip| {
            let written = slip.key.rsplit('.').next();
            [written, slip.suggestion.as_deref()]
                .into_iter()
                .flatten()
                .any(|name| keys.contains(&name))
        })
    }

    /// Reports what follows from the absence of some keys, unless it follows from a slip in one of them.
    pub fn report_absence(
        &mut self,
        keys: &[&str],
        origin: Origin,
        key: &str,
        message: impl Display,
    ) {
        if !self.is_misspelt(keys) {
            self.report(origin, key, message);
        }
    }

    pub fn report(&mut self, origin: Origin, key: &str, message: impl Display) {
        self.problems.push(self.problem(origin, key, message));
    }

    fn problem(&self, origin: Origin, key: &str, message: impl Display) -> Problem {
        let place = match (origin, &self.file) {
            (Origin::Flag(flag), _) => Place::Flag(flag),
            (Origin::File(offset), Some(file)) => file.place(offset),
            (Origin::File(_), None) | (Origin::Absent, _) => Place::Nowhere,
        };
        Problem {
            place,
            key: key.to_owned(),
            message: message.to_string(),
            suggestion: None,
        }
    }

    /// The value that `check` makes of a text, or a problem.
    pub fn checked<T, E: Display>(
        &mut self,
        key: &str,
        given: &Given<String>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        check(&given.value)
            .map_err(|message| self.report(given.origin, key, message))
            .ok()
    }

    /// As [`Reading::checked`], for a key that must be there: `table` is where it is missed.
    pub fn required<T, E: Display>(
        &mut self,
        key: &str,
        table: Origin,
        given: Option<&Given<String>>,
        check: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match given {
            Some(given) => self.checked(key, given, check),
            None => {
                let name = key.rsplit('.').next().unwrap_or(key);
                self.report_absence(&[name], table, key, "it is missing");
                None
            }
        }
    }

    /// The value that one of a few words stands for.
    pub fn choice<T: Copy>(
        &mut self,
        key: &str,
        written: Written<String>,
        choices: &[(&str, T)],
        default: T,
    ) -> T {
        let Some(Given { value, origin }) = written.map(in_file) else {
            return default;
        };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == value) {
            return *choice;
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let message = format!("\"{value}\" is none of \"{}\"", words.join("\", \""));
        let suggestion = nearest(&value, words).map(str::to_owned);
        self.problems.push(Problem {
            suggestion,
            ..self.problem(origin, key, message)
        });
        default
    }

    pub fn duration(&mut self, key: &str, written: Written<String>, default: Duration) -> Duration {
        written
            .map(in_file)
            .and_then(|given| self.checked(key, &given, duration::parse))
            .unwrap_or(default)
    }

    /// A duration for which zero makes no sense.
    pub fn positive_duration(
        &mut self,
        key: &str,
        written: Written<String>,
        default: Duration,
    ) -> Duration {
        let origin = written
            .as_ref()
            .map_or(Origin::Absent, |written| Origin::File(written.span().start));
        let duration = self.duration(key, written, default);
        if duration.is_zero() {
            self.report(origin, key, "it must be longer than zero");
            return default;
        }
        duration
    }

    /// An absolute path: one in a flag is relative to the current directory, one in the file to the file's
    /// directory.
    pub fn path(&mut self, key: &str, origin: Origin, path: &Path) -> Option<PathBuf> {
        if path.as_os_str().is_empty() {
            self.report(origin, key, "it is empty");
            return None;
        }
        let current_dir = &self.environment.current_dir;
        let file_dir = self.file.as_ref().and_then(|file| file.path.parent());
        let base = match (origin, file_dir) {
            (Origin::File(_), Some(directory)) => current_dir.join(directory),
            _ => current_dir.to_owned(),
        };
        Some(without_dots(&base.join(path)))
    }

    /// An environment variable that is not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.environment.variables.get(OsStr::new(name))?;
        Some(value.as_os_str()).filter(|value| !value.is_empty())
    }

    pub fn finish<T>(&mut self, config: T) -> Result<T, ConfigError> {
        self.problems.append(&mut self.slips);
        if self.problems.is_empty() {
            return Ok(config);
        }
        self.problems.sort_by(|a, b| a.place.cmp(&b.place));
        Err(ConfigError::Invalid {
            problems: std::mem::take(&mut self.problems),
        })
    }
}

/// The path without `.` and `..`, so that two ways to write a directory compare equal. Links are not
/// resolved: a mount may appear later.
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
