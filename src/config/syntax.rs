//! Reads the file as TOML, and turns what the parser says about it into a problem an operator can act on.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::{Place, Problem};
use crate::config::reading::Source;
use crate::config::suggestion::nearest;

/// The tables of the file that are no lists. Where one is, serde would take its items for the keys, in their order.
const ONCE: [&str; 3] = ["embedded_hub", "server", "window"];

/// The file as written, or as much of it as a type has place for; else every key that there is not, and every value
/// of another type than its key has.
pub fn parse<T: DeserializeOwned>(source: Source<'_>) -> Result<T, Vec<Problem>> {
    let problem = |error: &toml::de::Error| problem(source, error);
    let mut file = DeTable::parse(source.text).map_err(|error| vec![problem(&error)])?;
    let mut problems = Vec::new();
    for name in ONCE {
        let is_list = |value: &&Spanned<DeValue<'_>>| value.get_ref().is_array();
        if let Some(list) = file.get_ref().get(name).filter(is_list) {
            problems.push(Problem {
                place: source.place(list.span().start),
                key: name.to_owned(),
                message: format!("it stands once only: write [{name}]"),
                suggestion: None,
            });
            file.get_mut().remove(name);
        }
    }
    loop {
        let error = match T::deserialize(toml::Deserializer::from(file.clone())) {
            Ok(read) if problems.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(error) => error,
        };
        problems.push(problem(&error));
        // What is wrong there must not hide what is wrong behind it.
        let start = error.span().map(|span| span.start);
        if !start.is_some_and(|start| remove(file.get_mut(), start)) {
            break;
        }
    }
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    Err(problems)
}

/// Takes the key out of the table, or of one within, that begins here or has a value that does.
fn remove(table: &mut DeTable<'_>, start: usize) -> bool {
    let begins = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        let is_here = key.span().start == start || value.span().start == start;
        let is_within = value.get_ref().as_array().is_some_and(|array| {
            let mut texts = array.iter().filter(|item| !item.get_ref().is_table());
            texts.any(|item| item.span().start == start)
        });
        (is_here || is_within).then(|| key.get_ref().to_string())
    };
    if let Some(key) = table.iter().find_map(begins) {
        return table.remove(key.as_str()).is_some();
    }
    table.iter_mut().any(|(_, value)| match value.get_mut() {
        DeValue::Table(table) => remove(table, start),
        DeValue::Array(array) => array.iter_mut().any(|item| match item.get_mut() {
            DeValue::Table(table) => remove(table, start),
            _ => false,
        }),
        _ => false,
    })
}

fn problem(source: Source<'_>, error: &toml::de::Error) -> Problem {
    let offset = error.span().map(|span| span.start);
    let place = offset.map_or(Place::Nowhere, |offset| source.place(offset));
    let key = offset
        .map(|offset| key_at(source.text, offset))
        .unwrap_or_default();
    let (message, suggestion) = reworded(error.message());
    Problem {
        place,
        message: message.replace("NAME", &key),
        key,
        suggestion,
    }
}

/// serde lists the keys that would be right: name the nearest of them, or all.
fn reworded(message: &str) -> (String, Option<String>) {
    let Some(rest) = message.strip_prefix("unknown field ") else {
        let message = match message {
            "invalid type: map, expected a sequence" => {
                "it may stand several times: write [[NAME]], or a list [{ … }]"
            }
            message => message.trim_end(),
        };
        return (message.replace('\n', ", "), None);
    };
    // Odd pieces stand between backquotes: the unknown key, then those that are known.
    let mut names = rest.split('`').skip(1).step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    match nearest(unknown, known.iter().copied()) {
        Some(meant) => ("there is no such key".to_owned(), Some(meant.to_owned())),
        None => (
            format!("there is no such key; here it may be {}", known.join(", ")),
            None,
        ),
    }
}

/// The key that is written at `offset`, or before the value there, with the table above it.
fn key_at(text: &str, offset: usize) -> String {
    let (before, after) = text.split_at_checked(offset).unwrap_or((text, ""));
    let begins_line = before.is_empty() || before.ends_with('\n');
    if let Some(header) = after.strip_prefix('[').filter(|_| begins_line) {
        let name = header.trim_start_matches('[').split(']').next();
        return name.unwrap_or_default().trim().to_owned();
    }
    let table = before
        .lines()
        .rev()
        .find_map(|line| line.trim_start().strip_prefix('['))
        .map(|header| {
            header
                .trim_start_matches('[')
                .split(']')
                .next()
                .unwrap_or(header)
                .trim()
        });
    let is_key_character = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let here = after
        .split(|c| !is_key_character(c))
        .next()
        .unwrap_or_default();
    let assigned = after[here.len()..].trim_start().starts_with('=');
    let key = if assigned {
        here
    } else {
        let left = before.trim_end();
        // An item of a list, which begins in this line.
        let left = match left.strip_suffix(['[', ',']) {
            Some(left) => &left[..left.rfind(['=', '\n']).map_or(0, |at| at + 1)],
            None => left,
        };
        let left = left.strip_suffix('=').unwrap_or_default().trim_end();
        left.rsplit(|c| !is_key_character(c))
            .next()
            .unwrap_or_default()
    };
    match (table, key) {
        // The offset lies in a table's own header.
        (Some(""), _) => here.to_owned(),
        (Some(table), "") => table.to_owned(),
        (Some(table), key) => format!("{table}.{key}"),
        (None, key) => key.to_owned(),
    }
}
