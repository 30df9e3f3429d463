//! Reads the file as TOML, and turns what the parser says about it into a problem an operator can act on.

use serde::de::DeserializeOwned;

use crate::config::error::{Place, Problem};
use crate::config::reading::Source;
use crate::config::suggestion::nearest;

/// The file as written, or as much of it as a type has place for.
pub fn parse<T: DeserializeOwned>(source: Source<'_>) -> Result<T, Problem> {
    toml::from_str(source.text).map_err(|error| {
        let offset = error.span().map(|span| span.start);
        let place = offset.map_or(Place::Nowhere, |offset| source.place(offset));
        let key = offset
            .map(|offset| key_at(source.text, offset))
            .unwrap_or_default();
        let (message, suggestion) = reworded(error.message());
        Problem {
            place,
            key,
            message,
            suggestion,
        }
    })
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
        let left = before
            .trim_end()
            .strip_suffix('=')
            .unwrap_or_default()
            .trim_end();
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
