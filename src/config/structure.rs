//! Compares the file with the definitions of its keys: unknown keys and values of the wrong kind are reported in the
//! operator's terms, all of them at once, and left out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::definition::{Definition, Fallback, Kind, TextKind, path};
use crate::config::error::{ConfigError, Problem};
use crate::config::holder::{HeaderValue, Holder};
use crate::config::origin::{FileText, Given, Origin, located};
use crate::config::suggestion::nearest;

/// A table of the file, with the keys that are defined and have values of their kinds.
#[derive(Debug)]
pub struct WrittenTable<'f> {
    pub origin: Origin,
    values: BTreeMap<&'static str, Written<'f>>,
}

#[derive(Debug)]
enum Written<'f> {
    Value(Given<DeValue<'f>>),
    Table(WrittenTable<'f>),
    Tables(Given<Vec<WrittenTable<'f>>>),
}

/// A key that is unknown, or has a value of the wrong kind.
#[derive(Debug)]
pub struct Slip {
    pub problem: Problem,
    /// The key that was written.
    pub name: String,
}

/// Returns the tables of the file, or a problem for each part that is not TOML.
pub fn parse(file: FileText<'_>) -> Result<Spanned<DeTable<'_>>, ConfigError> {
    let (table, errors) = DeTable::parse_recoverable(file.text);
    if errors.is_empty() {
        return Ok(table);
    }
    let problem = |error: &toml::de::Error| Problem {
        location: file.location(error.span().map_or(0, |span| span.start)),
        key: String::new(),
        message: error.message().trim_end().replace('\n', ", "),
        suggestion: None,
    };
    let problems = errors.iter().map(problem).collect();
    Err(ConfigError::Invalid { problems })
}

impl Default for WrittenTable<'_> {
    /// A table that is not there.
    fn default() -> Self {
        WrittenTable {
            origin: Origin::Absent,
            values: BTreeMap::new(),
        }
    }
}

impl<'f> WrittenTable<'f> {
    /// Returns as much of a table as is defined; the rest goes to `slips`.
    pub fn new(
        file: FileText<'_>,
        name: &str,
        keys: &[&'static Definition],
        table: Given<DeTable<'f>>,
        slips: &mut Vec<Slip>,
    ) -> WrittenTable<'f> {
        let mut values = BTreeMap::new();
        for (key, value) in table.value {
            let Some(definition) = keys.iter().find(|known| known.name == key.get_ref()) else {
                slips.push(unknown(file, name, keys, &key));
                continue;
            };
            let path = definition.path();
            match wrong(definition, &path, &value) {
                None => {
                    let value = Written::new(file, definition, &path, located(value), slips);
                    values.insert(definition.name, value);
                }
                Some(Wrong {
                    offset,
                    path,
                    message,
                }) => slips.push(Slip {
                    problem: Problem {
                        location: file.location(offset),
                        key: path,
                        message,
                        suggestion: None,
                    },
                    name: definition.name.to_owned(),
                }),
            }
        }
        WrittenTable {
            origin: table.origin,
            values,
        }
    }

    /// Replaces a value of the file by that of a flag.
    pub fn set(&mut self, key: &Definition, text: Option<&String>) {
        if let (Some(text), Some(flag)) = (text, key.flags.first()) {
            let given = Given {
                value: DeValue::String(text.clone().into()),
                origin: Origin::Flag(flag),
            };
            self.values.insert(key.name, Written::Value(given));
        }
    }

    /// Gives a key a value, if it has none.
    pub fn set_absent(&mut self, key: &Definition, text: &str) {
        let given = Given {
            value: DeValue::String(text.to_owned().into()),
            origin: Origin::Absent,
        };
        self.values.entry(key.name).or_insert(Written::Value(given));
    }

    /// Sets a key to true, as a flag implies it.
    pub fn set_true(&mut self, key: &Definition, flag: &'static str) {
        let given = Given {
            value: DeValue::Boolean(true),
            origin: Origin::Flag(flag),
        };
        self.values.insert(key.name, Written::Value(given));
    }

    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn origin_of(&self, name: &str) -> Origin {
        match self.values.get(name) {
            Some(Written::Value(given)) => given.origin,
            Some(Written::Table(table)) => table.origin,
            Some(Written::Tables(tables)) => tables.origin,
            None => Origin::Absent,
        }
    }

    /// Returns the text of a key.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name)? {
            Written::Value(given) => given.value.as_str(),
            Written::Table(_) | Written::Tables(_) => None,
        }
    }

    pub fn take(&mut self, name: &str) -> Option<Given<DeValue<'f>>> {
        match self.values.remove(name)? {
            Written::Value(given) => Some(given),
            Written::Table(_) | Written::Tables(_) => None,
        }
    }

    pub fn take_table(&mut self, name: &str) -> WrittenTable<'f> {
        match self.values.remove(name) {
            Some(Written::Table(table)) => table,
            _ => WrittenTable::default(),
        }
    }

    pub fn take_tables(&mut self, name: &str) -> Given<Vec<WrittenTable<'f>>> {
        match self.values.remove(name) {
            Some(Written::Tables(tables)) => tables,
            _ => Given {
                value: Vec::new(),
                origin: Origin::Absent,
            },
        }
    }
}

impl<'f> Written<'f> {
    fn new(
        file: FileText<'_>,
        definition: &Definition,
        path: &str,
        Given { value, origin }: Given<DeValue<'f>>,
        slips: &mut Vec<Slip>,
    ) -> Written<'f> {
        let keys = definition.keys();
        match value {
            DeValue::Table(value) if matches!(definition.kind, Kind::Table(_)) => {
                let table = Given { value, origin };
                Written::Table(WrittenTable::new(file, path, keys, table, slips))
            }
            DeValue::Array(items) if matches!(definition.kind, Kind::Tables(_)) => {
                let tables = items.into_iter().map(located).filter_map(|item| {
                    let DeValue::Table(value) = item.value else {
                        return None;
                    };
                    let origin = item.origin;
                    let table = Given { value, origin };
                    Some(WrittenTable::new(file, path, keys, table, slips))
                });
                let value = tables.collect();
                Written::Tables(Given { value, origin })
            }
            value => Written::Value(Given { value, origin }),
        }
    }
}

fn unknown(
    file: FileText<'_>,
    table: &str,
    keys: &[&Definition],
    key: &Spanned<Cow<'_, str>>,
) -> Slip {
    let name = key.get_ref().to_string();
    let known = keys.iter().map(|key| key.name);
    let suggestion = nearest(&name, known.clone()).map(str::to_owned);
    let message = match &suggestion {
        Some(_) => "there is no such key".to_owned(),
        None => {
            let known: Vec<&str> = known.collect();
            format!("there is no such key; here it may be {}", known.join(", "))
        }
    };
    Slip {
        problem: Problem {
            location: file.location(key.span().start),
            key: path(table, &name),
            message,
            suggestion,
        },
        name,
    }
}

/// A value of the wrong kind, and what to write instead.
struct Wrong {
    offset: usize,
    path: String,
    message: String,
}

/// Finds what is of another kind than the key has.
fn wrong(key: &Definition, path: &str, value: &Spanned<DeValue<'_>>) -> Option<Wrong> {
    let mut offset = value.span().start;
    let value = value.get_ref();
    let mut path = path.to_owned();
    let message = match (key.kind, value) {
        (Kind::Text(_), DeValue::String(_))
        | (Kind::Boolean, DeValue::Boolean(_))
        | (Kind::Integer { .. }, DeValue::Integer(_))
        | (Kind::Size { .. }, DeValue::Integer(_) | DeValue::String(_))
        | (Kind::Table(_), DeValue::Table(_)) => return None,
        (Kind::Text(kind), value) => instead_of_text(kind, value),
        (Kind::List { item: kind, .. }, DeValue::Array(items)) => {
            let item = items.iter().find(|item| !item.get_ref().is_str())?;
            offset = item.span().start;
            instead_of_text(kind, item.get_ref())
        }
        (Kind::List { .. }, value) => format!("it is a list: write [\"{}\"]", shown(value)),
        (Kind::Boolean, _) => "write true or false, without quotation marks".to_owned(),
        (Kind::Integer { .. }, value) => match value.as_str().map(str::parse::<i64>) {
            Some(Ok(number)) => format!("write {number}, without quotation marks"),
            _ => "write a whole number".to_owned(),
        },
        (Kind::Size { .. }, _) => "write a number of bytes, or a text such as \"2MiB\"".to_owned(),
        (Kind::Holder, value) => match Holder::of_secret(value) {
            Some(_) => return None,
            None => holder_or("a path"),
        },
        (Kind::Headers, DeValue::Table(headers)) => {
            let is_wrong = |value: &DeValue<'_>| HeaderValue::of(value).is_none();
            let (name, value) = headers
                .iter()
                .find(|(_, value)| is_wrong(value.get_ref()))?;
            offset = value.span().start;
            path = self::path(&path, name.get_ref());
            holder_or("a text")
        }
        (Kind::Headers, _) => "write a table of names and values: { NAME = \"…\" }".to_owned(),
        (Kind::Table(_), DeValue::Array(_)) => {
            format!("this table may appear only once: write [{path}]")
        }
        (Kind::Table(_), _) => format!("it is a table: write [{path}] and its keys below"),
        (Kind::Tables(_), DeValue::Array(items)) => {
            let item = items.iter().find(|item| !item.get_ref().is_table())?;
            offset = item.span().start;
            instead_of_tables(key, item.get_ref())
        }
        (Kind::Tables(_), DeValue::Table(_)) => {
            format!("this table may be repeated: write [[{path}]], or a list [{{ … }}]")
        }
        (Kind::Tables(_), value) => instead_of_tables(key, value),
    };
    Some(Wrong {
        offset,
        path,
        message,
    })
}

fn holder_or(text: &str) -> String {
    format!(
        "expected {text}, {{ file = \"...\" }}, {{ env = \"...\" }} or {{ credential = \"...\" }}"
    )
}

fn instead_of_text(kind: &TextKind, value: &DeValue<'_>) -> String {
    let is_number = matches!(value, DeValue::Integer(_) | DeValue::Float(_));
    match (value, kind.instead_of_number) {
        (DeValue::Array(_) | DeValue::Table(_), _) => {
            "it is one text: write \"…\", without [ ]".to_owned()
        }
        (value, Some(instead)) if is_number => instead(&shown(value)),
        _ if !kind.words.is_empty() => format!("write one of \"{}\"", kind.words.join("\", \"")),
        (value, _) => format!("write \"{}\", with quotation marks", shown(value)),
    }
}

/// Tables within others are written in line.
fn instead_of_tables(key: &Definition, value: &DeValue<'_>) -> String {
    let name = key.name;
    if key.table.is_empty() {
        return format!("it is a table: write [[{name}]] and its keys below");
    }
    let required = key
        .keys()
        .iter()
        .filter(|key| matches!(key.fallback, Fallback::Required));
    let texts = value.as_str().into_iter().chain(iter::repeat("…"));
    let pairs = required
        .zip(texts)
        .map(|(key, text)| format!("{} = \"{text}\"", key.name));
    let pairs: Vec<String> = pairs.collect();
    format!("write {name} = [{{ {} }}]", pairs.join(", "))
}

/// Returns a value as the file has it, except for the quotation marks around a text.
pub fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => "…".to_owned(),
    }
}
