//! Definitions of keys: what a key of the configuration file is called, which values it takes, what holds where it is
//! absent, and what it is for.
//!
//! Reading, defaults, the JSON schema, the reference page, the example file and the effective configuration all come
//! from these. They are in the files of their tables, such as `window`.

/// A key, whatever its values are.
#[derive(Debug)]
pub struct Definition {
    /// The table with the tables around it, such as `source.mount`; empty for the top level.
    pub table: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    pub fallback: Fallback,
    /// The description, in Markdown without links: editors show it, the example file and the reference page have it.
    pub help: &'static str,
    /// The continuation of the description on the reference page.
    pub more: &'static str,
    pub example: Example,
    /// The flags that count before the file, such as `--listen`.
    pub flags: &'static [&'static str],
}

/// The kind of a key's values in TOML.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text(&'static TextKind),
    List {
        item: &'static TextKind,
        may_be_empty: bool,
    },
    Boolean,
    /// An integer from 1.
    Integer {
        max: u32,
    },
    /// A number of bytes: an integer, or a text with a unit.
    Size {
        max: u32,
    },
    /// The holder of a secret or of certificates.
    Holder,
    /// Names with texts, or holders of them.
    Headers,
    /// A table that may appear once.
    Table(&'static [&'static Definition]),
    /// A table that may appear several times.
    Tables(&'static [&'static Definition]),
}

/// Texts of one form. The schema refuses nothing that the checks accept.
#[derive(Debug)]
pub struct TextKind {
    pub pattern: Option<&'static str>,
    /// All texts that there are; none if there are any number.
    pub words: &'static [&'static str],
    pub examples: &'static [&'static str],
    pub may_be_empty: bool,
    /// Returns what to write instead of a number, if not that number with quotation marks.
    pub instead_of_number: Option<fn(&str) -> String>,
}

impl TextKind {
    /// Any text.
    pub const ANY: TextKind = TextKind {
        pattern: None,
        words: &[],
        examples: &[],
        may_be_empty: true,
        instead_of_number: None,
    };
    pub const NOT_EMPTY: TextKind = TextKind {
        may_be_empty: false,
        ..TextKind::ANY
    };

    /// Texts that match a pattern.
    pub const fn matching(pattern: &'static str) -> TextKind {
        TextKind {
            pattern: Some(pattern),
            ..TextKind::ANY
        }
    }
}

/// The value of an absent key.
#[derive(Debug, Clone, Copy)]
pub enum Fallback {
    /// This value, in TOML.
    Default(&'static str),
    /// A value that depends on others: these words of the reference page describe it.
    Described(&'static str),
    Nothing,
    /// The key must be there.
    Required,
}

/// The form of a key in the example file.
#[derive(Debug, Clone, Copy)]
pub enum Example {
    /// Its default, in a comment.
    Default,
    /// This value, in a comment.
    Comment(&'static str),
    /// This value.
    Value(&'static str),
}

impl Definition {
    /// Returns the name with the tables around it, such as `window.quiet`.
    pub fn path(&self) -> String {
        path(self.table, self.name)
    }

    /// Makes a key whose values are tables.
    pub const fn table(name: &'static str, kind: Kind, help: &'static str) -> Definition {
        Definition {
            table: "",
            name,
            kind,
            fallback: Fallback::Nothing,
            help,
            more: "See below.",
            example: Example::Default,
            flags: &[],
        }
    }

    /// Returns the keys of the tables that are this key's values.
    pub fn keys(&self) -> &'static [&'static Definition] {
        match self.kind {
            Kind::Table(keys) | Kind::Tables(keys) => keys,
            _ => &[],
        }
    }
}

/// Returns the name of a key with its table.
pub fn path(table: &str, name: &str) -> String {
    match table {
        "" => name.to_owned(),
        table => format!("{table}.{name}"),
    }
}
