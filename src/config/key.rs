//! Keys with the type of their values: a definition, and how a value of it is read.

use toml::de::DeValue;

use crate::config::definition::{Definition, Example, Fallback, Kind};
use crate::config::loader::Loader;
use crate::config::origin::{Given, Origin};

/// A key with values of type `V`.
#[derive(Debug)]
pub struct ConfigKey<V: 'static> {
    pub definition: Definition,
    read: Read<V>,
}

/// Reads a value of the key's kind, or reports it.
pub type Read<V> = fn(&mut Loader<'_>, &Definition, Given<DeValue<'_>>) -> Option<V>;

/// Values that several keys may have.
#[derive(Debug)]
pub struct ValueForm<V> {
    pub kind: Kind,
    pub read: Read<V>,
}

impl<V> ConfigKey<V> {
    pub const fn new(
        table: &'static str,
        name: &'static str,
        form: ValueForm<V>,
        fallback: Fallback,
        help: &'static str,
    ) -> ConfigKey<V> {
        ConfigKey {
            definition: Definition {
                table,
                name,
                kind: form.kind,
                fallback,
                help,
                more: "",
                example: Example::Default,
                flags: &[],
            },
            read: form.read,
        }
    }

    pub const fn more(mut self, more: &'static str) -> ConfigKey<V> {
        self.definition.more = more;
        self
    }

    pub const fn example(mut self, example: Example) -> ConfigKey<V> {
        self.definition.example = example;
        self
    }

    pub const fn flags(mut self, flags: &'static [&'static str]) -> ConfigKey<V> {
        self.definition.flags = flags;
        self
    }

    /// Reads a value, or reports it.
    pub fn read(&self, loader: &mut Loader<'_>, value: Given<DeValue<'_>>) -> Option<V> {
        (self.read)(loader, &self.definition, value)
    }

    /// Returns the value that holds where the key is absent.
    pub fn default(&self, loader: &mut Loader<'_>) -> V {
        let Fallback::Default(text) = self.definition.fallback else {
            panic!("{} has no default", self.definition.path());
        };
        let value = DeValue::parse(text).expect("a default is TOML");
        let value = Given {
            value: value.into_inner(),
            origin: Origin::Absent,
        };
        self.read(loader, value)
            .expect("a default is a value of its key")
    }
}
