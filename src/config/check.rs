//! Compares the file with the schema of its keys, so that an unknown key and a value of another kind are refused in
//! the operator's terms.

use std::fmt::Display;

use serde_json::Value;
use strsim::osa_distance;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{address, broker, hub, publisher, served_hub, source};

/// A key that is wrong, given with positions, such as `source.0.name`; the offset, if it is not that of the key's value; the
/// message.
pub type WrongKey = (String, Option<usize>, String);

/// A form of texts: its name (`x-form` in a schema), its pattern, and its check.
pub type TextForm = (&'static str, &'static str, fn(&str) -> Result<(), String>);

const URI: &str = r#"^[Hh][Tt][Tt][Pp][Ss]?://[^#\s<>"]+$"#;

/// The forms of texts. The patterns refuse nothing that the checks accept.
pub const FORMS: [TextForm; 14] = [
    ("uri", URI, address::check_uri),
    (
        "prefix",
        r#"^[Hh][Tt][Tt][Pp][Ss]?://[^\s<>"?#]+$"#,
        address::check_prefix,
    ),
    ("hub", URI, hub::check_address),
    (
        "served hub",
        r#"^[Hh][Tt][Tt][Pp][Ss]?://[^?#\s<>"]+$"#,
        served_hub::check_url,
    ),
    ("path of a hub", r"^/[^?#%\s]+$", served_hub::check_path),
    ("glob", "^[^/]", source::check_glob),
    (
        "source",
        "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
        source::check_name,
    ),
    ("broker", "^[A-Za-z0-9][A-Za-z0-9._-]*$", broker::check_name),
    ("destination", ".", broker::check_destination),
    ("virtual host", ".", broker::check_vhost),
    (
        "location",
        r"^[A-Za-z][A-Za-z0-9+.\-]*:\S+$",
        broker::check_uri_prefix,
    ),
    ("glob of uris", "", broker::check_object_glob),
    ("object type", "^[^,]+$", broker::check_object_type),
    ("publisher", ".", publisher::check_name),
];

/// Checks a value and what is below it, in the order of the file.
pub fn check(schema: &Value, key: &str, value: &Spanned<DeValue<'_>>) -> Result<(), WrongKey> {
    let outcome = match (schema["type"].as_str(), value.get_ref()) {
        (Some("object"), DeValue::Table(table)) => return check_table(schema, key, table),
        (Some("array"), DeValue::Array(items)) if items.is_empty() && schema["minItems"] == 1 => {
            Err("the list is empty: name at least one".to_owned())
        }
        (Some("array"), DeValue::Array(items)) => {
            let mut items = items.iter().enumerate();
            return items.try_for_each(|(at, item)| check(&schema["items"], &below(key, at), item));
        }
        (Some("string"), DeValue::String(text)) => check_text(schema, text),
        (Some("integer"), DeValue::Integer(number)) => {
            let read = i64::from_str_radix(number.as_str(), number.radix());
            match schema["minimum"].as_i64().zip(schema["maximum"].as_i64()) {
                Some((min, max)) if !read.is_ok_and(|read| (min..=max).contains(&read)) => {
                    Err(format!("{number} is not between {min} and {max}"))
                }
                _ => Ok(()),
            }
        }
        (Some("boolean"), DeValue::Boolean(_)) | (None, _) => Ok(()),
        (Some(kind), written) => Err(instead(kind, schema, key, written)),
    };
    outcome.map_err(|message| (key.to_owned(), None, message))
}

fn check_table(schema: &Value, key: &str, table: &DeTable<'_>) -> Result<(), WrongKey> {
    let Some(keys) = schema["properties"].as_object() else {
        return Ok(());
    };
    let mut written: Vec<_> = table.iter().collect();
    written.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in written {
        let key = below(key, name.get_ref());
        let Some(schema) = keys.get(name.get_ref().as_ref()) else {
            let known: Vec<&str> = keys.keys().map(String::as_str).collect();
            let message = suggested("there is no such key", name.get_ref(), &known);
            return Err((key, Some(name.span().start), message));
        };
        check(schema, &key, value)?;
    }
    match required(schema).find(|name| !table.contains_key(*name)) {
        Some(name) => Err((below(key, name), None, "it is missing".to_owned())),
        None => Ok(()),
    }
}

fn check_text(schema: &Value, text: &str) -> Result<(), String> {
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(&text.into())
    {
        let meant = nearest(text, choices.iter().filter_map(Value::as_str));
        let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
        let meant = meant.unwrap_or_default();
        return Err(format!(
            "\"{text}\" is none of {}{meant}",
            enum_values(schema)
        ));
    }
    let form = FORMS.iter().find(|(name, ..)| schema["x-form"] == *name);
    form.map_or(Ok(()), |(.., check)| check(text))
}

/// Returns what to write instead of a value of another kind.
fn instead(kind: &str, schema: &Value, key: &str, written: &DeValue<'_>) -> String {
    let (shown, items) = (shown(written), &schema["items"]);
    let last = key.rsplit('.').next().unwrap_or_default();
    let is_item = last.parse::<usize>().is_ok();
    match (kind, written) {
        ("object", _) if !schema["properties"].is_object() => {
            "write a table of names and values: { NAME = \"…\" }".to_owned()
        }
        ("object", _) if is_item => instead_of_tables(key, schema, written),
        ("object", DeValue::Array(_)) => format!("this table may appear only once: write [{key}]"),
        ("object", _) => format!("it is a table: write [{key}] and its keys below"),
        ("array", DeValue::Table(_)) if items["type"] == "object" => {
            format!("this table may be repeated: write [[{key}]], or a list [{{ … }}]")
        }
        ("array", _) if items["type"] == "object" => instead_of_tables(key, items, written),
        ("array", _) => format!("it is a list: write [\"{shown}\"]"),
        ("boolean", _) => "write true or false, without quotation marks".to_owned(),
        ("integer", _) if shown.parse::<i64>().is_ok() => {
            format!("write {shown}, without quotation marks")
        }
        ("integer", _) => "write a whole number".to_owned(),
        (_, DeValue::Array(_) | DeValue::Table(_)) => {
            "it is one text: write \"…\", without [ ]".to_owned()
        }
        _ if schema["enum"].is_array() => format!("write one of {}", enum_values(schema)),
        _ => match schema["x-number"].as_str() {
            Some(form) if form != "{}" && !matches!(written, DeValue::Boolean(_)) => {
                format!("write \"{}\"", form.replace("{}", &shown))
            }
            _ => format!("write \"{shown}\", with quotation marks"),
        },
    }
}

fn below(key: &str, part: impl Display) -> String {
    if key.is_empty() {
        part.to_string()
    } else {
        format!("{key}.{part}")
    }
}

/// Returns the keys that a table must have.
pub fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema["required"].as_array();
    names.into_iter().flatten().filter_map(Value::as_str)
}

/// Returns a message with the word that was probably meant, or else with all that there are.
pub fn suggested(message: &str, text: &str, words: &[&str]) -> String {
    match nearest(text, words.iter().copied()) {
        Some(meant) => format!("{message}; did you mean \"{meant}\"?"),
        None => format!("{message}; here it may be {}", words.join(", ")),
    }
}

/// Returns the candidate nearest to `word`, if it is near enough to be a spelling mistake.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let candidates = candidates.into_iter();
    let near = candidates
        .map(|candidate| (osa_distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1));
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn enum_values(schema: &Value) -> String {
    let words = schema["enum"].as_array().into_iter().flatten();
    words.map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// Tables within others are written in line.
fn instead_of_tables(key: &str, schema: &Value, value: &DeValue<'_>) -> String {
    let name = key
        .rsplit('.')
        .find(|part| part.parse::<usize>().is_err())
        .unwrap_or(key);
    if !key.contains(&format!(".{name}")) {
        return format!("it is a table: write [[{name}]] and its keys below");
    }
    let texts = value.as_str().into_iter().chain(std::iter::repeat("…"));
    let pairs = required(schema).zip(texts);
    let pairs: Vec<String> = pairs
        .map(|(key, text)| format!("{key} = \"{text}\""))
        .collect();
    format!("write {name} = [{{ {} }}]", pairs.join(", "))
}

/// Returns a value as the file has it, except for the quotation marks around a text.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_what_is_near_is_suggested() {
        let keys = ["quiet", "max_wait", "hold", "url"];
        for (word, meant) in [
            ("quite", Some("quiet")),
            ("qiet", Some("quiet")),
            ("hodl", Some("hold")),
            ("", None),
            ("max-wait", Some("max_wait")),
            ("Hold", Some("hold")),
            ("uri", Some("url")),
            ("retries", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, keys), meant, "{word}");
        }
    }
}
