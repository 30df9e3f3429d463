//! Reads the file as TOML, and turns what the parser says about it into a problem an operator can act on.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::{Place, Problem};
use crate::config::hub::MODES;
use crate::config::reading::Source;
use crate::config::source::WATCHES;
use crate::config::suggestion::nearest;

/// The tables of the file that are no lists. Where one is, serde would take its items for the keys, in their order.
const ONCE: [&str; 3] = ["embedded_hub", "server", "window"];

/// The keys that hold a duration.
const DURATIONS: [&str; 13] = [
    "broken_after",
    "deletion_grace",
    "hold",
    "max_wait",
    "open_writer",
    "poll_interval",
    "quiet",
    "rescan_interval",
    "retired_topic",
    "settle",
    "shutdown_grace",
    "timeout",
    "topic_window",
];

/// The file as written, as much of it as a type has place for, with a problem for every unknown key and every value
/// of the wrong type; what is wrong is left out. Fails where the text is not TOML, or nothing can be left out.
pub fn parse<T: DeserializeOwned>(source: Source<'_>) -> Result<(T, Vec<Problem>), Vec<Problem>> {
    let (mut file, errors) = DeTable::parse_recoverable(source.text);
    let mut problems = Vec::new();
    if !errors.is_empty() {
        return Err(errors
            .iter()
            .map(|error| problem(source, error, None))
            .collect());
    }
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
            Ok(read) => return Ok((read, problems)),
            Err(error) => error,
        };
        // What is wrong there must not hide what is wrong behind it.
        let start = error.span().map(|span| span.start);
        let removed = start.and_then(|start| remove(file.get_mut(), start));
        problems.push(problem(source, &error, removed.as_ref()));
        if removed.is_none() {
            problems.sort_by(|a, b| a.place.cmp(&b.place));
            return Err(problems);
        }
    }
}

/// The text that a key of the file has; nothing where it is absent or no text. As much as can be read of a file that
/// is no TOML counts.
pub fn text_of(source: Source<'_>, key: &str) -> Option<Spanned<String>> {
    let (file, _) = DeTable::parse_recoverable(source.text);
    let value = file.get_ref().get(key)?;
    let text = value.get_ref().as_str()?;
    Some(Spanned::new(value.span(), text.to_owned()))
}

/// Removes the key from the table, or from one within, that begins at `start` or has a value that does, and returns
/// its value.
fn remove<'a>(table: &mut DeTable<'a>, start: usize) -> Option<DeValue<'a>> {
    let begins = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        let is_here = key.span().start == start || value.span().start == start;
        let is_within = value.get_ref().as_array().is_some_and(|array| {
            let mut texts = array.iter().filter(|item| !item.get_ref().is_table());
            texts.any(|item| item.span().start == start)
        });
        (is_here || is_within).then(|| key.get_ref().to_string())
    };
    if let Some(key) = table.iter().find_map(begins) {
        return table.remove(key.as_str()).map(Spanned::into_inner);
    }
    table
        .iter_mut()
        .find_map(|(_, value)| match value.get_mut() {
            DeValue::Table(table) => remove(table, start),
            DeValue::Array(array) => array.iter_mut().find_map(|item| match item.get_mut() {
                DeValue::Table(table) => remove(table, start),
                _ => None,
            }),
            _ => None,
        })
}

fn problem(source: Source<'_>, error: &toml::de::Error, value: Option<&DeValue<'_>>) -> Problem {
    let offset = error.span().map(|span| span.start);
    let place = offset.map_or(Place::Nowhere, |offset| source.place(offset));
    let key = offset
        .map(|offset| key_at(source.text, offset))
        .unwrap_or_default();
    let instead = value.and_then(|value| instead(&key, value, error.message()));
    let (message, suggestion) = match instead {
        Some(instead) => (instead, None),
        None => reworded(error.message()),
    };
    Problem {
        place,
        message,
        key,
        suggestion,
    }
}

/// What to write instead of a value of the wrong type, in the terms of the file.
fn instead(key: &str, value: &DeValue<'_>, message: &str) -> Option<String> {
    let (found, expected) = message
        .strip_prefix("invalid type: ")?
        .rsplit_once(", expected ")?;
    let name = key.rsplit('.').next().unwrap_or(key);
    let item = match value {
        DeValue::Array(_) if found == "sequence" && name != "mount" => {
            return Some("it is one text: write \"…\", without [ ]".to_owned());
        }
        DeValue::Array(items) => {
            let mut items = items.iter().map(Spanned::get_ref);
            items.find(|item| name == "mount" || !item.is_str())
        }
        value => Some(value),
    };
    let text = match item? {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::Table(_) if expected == "a sequence" => {
            return Some(format!(
                "it may stand several times: write [[{key}]], or a list [{{ … }}]"
            ));
        }
        DeValue::Array(_) | DeValue::Table(_) => return None,
    };
    let is_number = matches!(item?, DeValue::Integer(_) | DeValue::Float(_));
    Some(match (expected, name) {
        (_, "mount") => {
            let path = if is_number { "…" } else { &text };
            format!("write mount = [{{ path = \"{path}\", url = \"https://…/\" }}]")
        }
        ("a string", "mass_deletion") if is_number => format!("write \"{text}%\" or \"never\""),
        ("a string", _) if is_number && DURATIONS.contains(&name) => format!("write \"{text}s\""),
        ("a string", "mode") => one_of(MODES.map(|(word, _)| word)),
        ("a string", "watch") => one_of(WATCHES.map(|(word, _)| word)),
        ("a string", "listen" | "admin_listen") if is_number => {
            format!("write an address with the port, such as \"127.0.0.1:{text}\"")
        }
        ("a string", _) => format!("write \"{text}\", with quotation marks"),
        ("a sequence", "source" | "hub" | "channel") => {
            format!("it is a table: write [[{name}]] and its keys below")
        }
        ("a sequence", _) => format!("it is a list: write [\"{text}\"]"),
        ("a boolean", _) => "write true or false, without quotation marks".to_owned(),
        ("i64", _) if text.parse::<i64>().is_ok() => {
            format!("write {text}, without quotation marks")
        }
        ("i64", _) => "write a whole number".to_owned(),
        (expected, _) if expected.starts_with("struct ") => {
            format!("it is a table: write [{name}] and its keys below")
        }
        _ => return None,
    })
}

fn one_of<const N: usize>(words: [&str; N]) -> String {
    format!("write one of \"{}\"", words.join("\", \""))
}

/// serde lists the keys that would be right: name the nearest of them, or all.
fn reworded(message: &str) -> (String, Option<String>) {
    let Some(rest) = message.strip_prefix("unknown field ") else {
        return (message.trim_end().replace('\n', ", "), None);
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
