//! Origins of values: a flag, a location in the file, or a default.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::definition::Definition;
use crate::config::error::Location;

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    /// In the file, at this byte.
    File(usize),
    /// Nowhere: it is a default, or absent.
    Absent,
}

impl Origin {
    /// Returns the origin, if there is one.
    pub fn given(self) -> Option<Origin> {
        (self != Origin::Absent).then_some(self)
    }
}

/// A value with its origin.
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

/// Returns a value of the file with its location.
pub fn located<T>(written: toml::Spanned<T>) -> Given<T> {
    Given {
        origin: Origin::File(written.span().start),
        value: written.into_inner(),
    }
}

/// The file being read.
#[derive(Debug, Clone, Copy)]
pub struct FileText<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl FileText<'_> {
    /// Returns where the byte at `offset` is, as editors count.
    pub fn location(&self, offset: usize) -> Location {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Location::File {
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// The origins of the values of a configuration.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<(&'static str, usize, &'static str), Origin>);

impl Origins {
    /// Returns the origin of a key's value. `entry` says in which of the tables of that name, from 0.
    pub fn of(&self, key: &Definition, entry: usize) -> Origin {
        let origin = self.0.get(&(key.table, entry, key.name));
        origin.copied().unwrap_or(Origin::Absent)
    }

    pub fn note(&mut self, key: &Definition, entry: usize, origin: Origin) {
        self.0.insert((key.table, entry, key.name), origin);
    }
}
