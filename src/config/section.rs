//! A table of the file while its keys are read, one by one, by their definitions.

use crate::config::definition::Definition;
use crate::config::key::ConfigKey;
use crate::config::loader::Loader;
use crate::config::origin::{Given, Origin};
use crate::config::structure::WrittenTable;

/// A table of the file whose keys are read one by one.
#[derive(Debug)]
pub struct Section<'s, 'a, 'f> {
    pub loader: &'s mut Loader<'a>,
    /// Which of the tables of its name it is, from 0.
    entry: usize,
    written: WrittenTable<'f>,
}

impl<'s, 'a, 'f> Section<'s, 'a, 'f> {
    pub fn new(
        loader: &'s mut Loader<'a>,
        entry: usize,
        written: WrittenTable<'f>,
    ) -> Section<'s, 'a, 'f> {
        Section {
            loader,
            entry,
            written,
        }
    }

    /// Returns where the table begins.
    pub fn origin(&self) -> Origin {
        self.written.origin
    }

    /// Returns the value of a key; nothing if it is absent, or wrong, which is reported.
    pub fn given<V>(&mut self, key: &ConfigKey<V>) -> Option<Given<V>> {
        let written = self.written.take(key.definition.name)?;
        let origin = written.origin;
        self.note(&key.definition, origin);
        let value = key.read(self.loader, written)?;
        Some(Given { value, origin })
    }

    /// Returns the value of a key, or its default.
    pub fn value<V>(&mut self, key: &ConfigKey<V>) -> V {
        match self.given(key) {
            Some(given) => given.value,
            None => key.default(self.loader),
        }
    }

    /// Returns the value of a key, whose absence is reported.
    pub fn required<V>(&mut self, key: &ConfigKey<V>) -> Option<Given<V>> {
        if self.written.has(key.definition.name) {
            return self.given(key);
        }
        self.report_missing(&key.definition);
        None
    }

    /// Returns the tables of a key, of which there must be one.
    pub fn required_tables(&mut self, key: &'static Definition) -> Vec<WrittenTable<'f>> {
        let tables = self.written.take_tables(key.name);
        self.note(key, tables.origin);
        if tables.value.is_empty() {
            self.report_missing(key);
        }
        tables.value
    }

    /// Returns true if a key was given that was not read yet.
    pub fn has(&self, key: &Definition) -> bool {
        self.written.has(key.name)
    }

    /// Returns the table that a key has as its value.
    pub fn table(&mut self, key: &Definition) -> WrittenTable<'f> {
        let table = self.written.take_table(key.name);
        self.note(key, table.origin);
        table
    }

    fn report_missing(&mut self, key: &Definition) {
        let origin = self.written.origin;
        self.loader
            .report_absence(&[key.name], origin, key, "it is missing");
    }

    /// Reports a key without another one that it needs.
    pub fn report_lack<T, U>(
        &mut self,
        (key, given): (&ConfigKey<T>, &Given<T>),
        lacking: &ConfigKey<U>,
    ) {
        let name = lacking.definition.name;
        let message = format!("it needs {name} too");
        self.loader
            .report_absence(&[name], given.origin, &key.definition, message);
    }

    /// Returns where a key that was not read yet is given.
    pub fn origin_of<V>(&self, key: &ConfigKey<V>) -> Origin {
        self.written.origin_of(key.definition.name)
    }

    /// Remembers where a value comes from.
    pub fn note(&mut self, key: &Definition, origin: Origin) {
        self.loader.note(key, self.entry, origin);
    }
}
