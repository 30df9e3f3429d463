//! The schema of the configuration file: what its structs say of their keys. The words for editors, for the reference page
//! and for the effective configuration all come from it, and the file is compared with it, so that an unknown key and a value
//! of another kind are refused in the operator's terms.
//!
//! Some words are ours, and not published: `x-form` (a form of texts, see `FORMS`), `x-number` (what to write instead of
//! a number), `x-daemon` (the daemon in whose file alone the key is), `x-default` (the default in words), `x-more` (the
//! continuation of the description), `x-shown` (the example file has the key, not only in a comment).

use std::fmt::Display;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde::Serialize;
use serde_json::{Map, Value, json};
use strsim::osa_distance;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::ser::ValueSerializer;

use crate::config::hub_config::HubConfig;
use crate::config::{Config, ReloadableConfig, broker, hub, hub_config, served_hub, source, text};

/// The daemons, each with a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonKind {
    Run,
    Hub,
}

/// Returns the schema of the file of a daemon, with our own words.
pub fn schema_of<T: ReloadableConfig>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let tables = schema.get_mut("properties").and_then(Value::as_object_mut);
    for table in tables.into_iter().flat_map(|tables| tables.values_mut()) {
        table["default"].take();
    }
    let adapt = |schema: &mut Schema| adapt_to_toml(schema, T::DAEMON);
    RecursiveTransform(adapt).transform(&mut schema);
    schema.to_value()
}

/// Returns the schema of both files, in draft 7 with the words of draft 4: what editors read for TOML (Taplo, and what is
/// built on it) lies between them.
pub fn schema() -> Value {
    let mut schema = schema_of::<Config>();
    let mut of_hub = schema_of::<HubConfig>();
    for (name, of_hub) in of_hub["properties"].as_object_mut().into_iter().flatten() {
        let (of_run, of_hub) = (schema["properties"][name].take(), of_hub.take());
        // A table of both daemons has more keys in the file of `rsnotify run`.
        schema["properties"][name] = if of_run.is_null() {
            of_hub
        } else if of_run["type"] == of_hub["type"] {
            of_run
        } else {
            json!({ "oneOf": [of_run, of_hub] })
        };
    }
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    // A file with sources is one of `rsnotify run`, and has hubs in an array.
    schema["dependencies"] = json!({
        "source": { "properties": { "hub": { "type": "array" } }, "not": { "required": ["publisher"] } },
    });
    schema["title"] = json!("Configuration of rsnotify");
    schema["description"] = json!("The file that `--config` names.");
    // Our own words.
    let mut strip = RecursiveTransform(|schema: &mut Schema| {
        if let Some(words) = schema.as_object_mut() {
            words.retain(|word, _| !word.starts_with("x-"));
        }
    });
    if let Ok(schema) = <&mut Schema>::try_from(&mut schema) {
        strip.transform(schema);
    }
    schema
}

/// Removes what TOML has no use for, such as null, and adds the patterns of forms.
fn adapt_to_toml(schema: &mut Schema, daemon: DaemonKind) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for word in ["$schema", "title", "format"] {
        schema.remove(word);
    }
    if let Some(Value::Array(types)) = schema.get("type") {
        schema["type"] = types[0].clone();
    }
    if let Some(Value::Array(choices)) = schema.get_mut("enum") {
        choices.retain(|choice| !choice.is_null());
    }
    if let Some(Value::Array(mut choices)) = schema.remove("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        match &mut choices[..] {
            [Value::Object(only)] => {
                for (word, value) in only {
                    schema.entry(word.clone()).or_insert(value.take());
                }
            }
            _ => drop(schema.insert("anyOf".to_owned(), choices.into())),
        }
    }
    if schema.contains_key("x-default") || schema.get("default") == Some(&Value::Null) {
        schema.remove("default");
    }
    if let Some(Value::String(text)) = schema.remove("description") {
        let text = text.replace("\n\n", "\0").replace('\n', " ");
        let (first, more) = text.split_once('\0').unwrap_or((&text, ""));
        schema.insert("description".to_owned(), json!(first));
        schema.insert("x-more".to_owned(), json!(more.replace('\0', " ")));
    }
    let mut forms = FORMS.iter();
    if let Some((name, pattern, _)) =
        forms.find(|(name, ..)| schema.get("x-form") == Some(&json!(name)))
    {
        let texts = match schema.get_mut("items") {
            Some(Value::Object(items)) => items,
            _ => schema,
        };
        texts.insert("x-form".to_owned(), json!(name));
        texts.insert("pattern".to_owned(), json!(pattern));
    }
    let listed = schema.get("required").and_then(Value::as_array).cloned();
    let required = listed.unwrap_or_default();
    if let Some(Value::Object(keys)) = schema.get_mut("properties") {
        let daemon = json!(daemon);
        keys.retain(|_, key| key.get("x-daemon").is_none_or(|only| *only == daemon));
        for name in required.iter().filter_map(Value::as_str) {
            if let Some(Value::Object(key)) = keys.get_mut(name) {
                key.remove("default");
            }
        }
    }
}

/// Returns the keys of a table, or of a list of tables.
pub fn keys(schema: &Value) -> Option<&Map<String, Value>> {
    let of_items = || schema["items"]["properties"].as_object();
    schema["properties"].as_object().or_else(of_items)
}

/// A comment on the value of a key, which is given with positions, such as `source.0.name`.
pub type Comment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns a configuration as TOML, with comments behind values.
pub fn to_toml<T: ReloadableConfig>(config: &T, comment: Comment<'_>) -> String {
    let values = serde_json::to_value(config).unwrap_or_default();
    let schema = schema_of::<T>();
    let line = |name: &str, key: &str, value: &Value| {
        let comment = comment(key)
            .map(|comment| format!("  # {comment}"))
            .unwrap_or_default();
        let line = format!("{name} = {}{comment}\n", inline_toml(value));
        if value.is_null() { String::new() } else { line }
    };
    let table = |header: String, schema: &Value, key: &str, values: &Value| {
        let names = keys(schema).into_iter().flat_map(Map::keys);
        let lines = names.map(|name| line(name, &format!("{key}.{name}"), &values[name]));
        format!("\n{header}\n{}", lines.collect::<String>())
    };
    let mut page = String::new();
    for (name, schema) in keys(&schema).into_iter().flatten() {
        match &values[name] {
            Value::Object(_) => {
                page += &table(format!("[{name}]"), schema, name, &values[name]);
            }
            Value::Array(tables) => {
                for (at, values) in tables.iter().enumerate() {
                    let key = format!("{name}.{at}");
                    page += &table(format!("[[{name}]]"), schema, &key, values);
                }
            }
            value => page += &line(name, name, value),
        }
    }
    page
}

/// Returns a value in one line of TOML.
pub fn inline_toml(value: &Value) -> String {
    let mut line = String::new();
    // Only null has no form, and no value below another one is null.
    let _ = value.serialize(ValueSerializer::new(&mut line));
    line
}

/// A key that is wrong, given with positions, such as `source.0.name`; the offset, if it is not that of the key's value; the
/// message.
pub type WrongKey = (String, Option<usize>, String);

const URI: &str = r#"^[Hh][Tt][Tt][Pp][Ss]?://[^#\s<>"]+$"#;
const PREFIX: &str = r#"^[Hh][Tt][Tt][Pp][Ss]?://[^\s<>"?#]+$"#;
const SERVED_HUB: &str = r#"^[Hh][Tt][Tt][Pp][Ss]?://[^?#\s<>"]+$"#;
const SOURCE: &str = "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$";
const LOCATION: &str = r"^[A-Za-z][A-Za-z0-9+.\-]*:\S+$";

/// A form of texts: its name (`x-form` in a schema), its pattern, and its check.
pub type TextForm = (&'static str, &'static str, fn(&str) -> Result<(), String>);

/// The forms of texts. The patterns refuse nothing that the checks accept.
pub const FORMS: [TextForm; 14] = [
    ("uri", URI, text::check_uri),
    ("prefix", PREFIX, text::check_prefix),
    ("hub", URI, hub::check_address),
    ("served hub", SERVED_HUB, served_hub::check_url),
    ("path of a hub", r"^/[^?#%\s]+$", served_hub::check_path),
    ("glob", "^[^/]", source::check_glob),
    ("source", SOURCE, source::check_name),
    ("broker", "^[A-Za-z0-9][A-Za-z0-9._-]*$", broker::check_name),
    ("destination", ".", broker::check_destination),
    ("virtual host", ".", broker::check_vhost),
    ("location", LOCATION, broker::check_uri_prefix),
    ("glob of uris", "", broker::check_object_glob),
    ("object type", "^[^,]+$", broker::check_object_type),
    ("publisher", ".", hub_config::check_name),
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
            return items
                .try_for_each(|(at, item)| check(&schema["items"], &key_below(key, at), item));
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
        (Some(kind), written) => Err(expected_form(kind, schema, key, written)),
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
        let key = key_below(key, name.get_ref());
        let Some(schema) = keys.get(name.get_ref().as_ref()) else {
            let known: Vec<&str> = keys.keys().map(String::as_str).collect();
            let message = with_suggestion("there is no such key", name.get_ref(), &known);
            return Err((key, Some(name.span().start), message));
        };
        check(schema, &key, value)?;
    }
    match required(schema).find(|name| !table.contains_key(*name)) {
        Some(name) => Err((key_below(key, name), None, "it is missing".to_owned())),
        None => Ok(()),
    }
}

fn check_text(schema: &Value, text: &str) -> Result<(), String> {
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(&text.into())
    {
        let meant = nearest(text, choices.iter().filter_map(Value::as_str))
            .map(|meant| format!("; did you mean \"{meant}\"?"));
        let (known, meant) = (enum_values(schema), meant.unwrap_or_default());
        return Err(format!("\"{text}\" is none of {known}{meant}"));
    }
    let form = FORMS.iter().find(|(name, ..)| schema["x-form"] == *name);
    form.map_or(Ok(()), |(.., check)| check(text))
}

/// Returns what to write instead of a value of another kind.
fn expected_form(kind: &str, schema: &Value, key: &str, written: &DeValue<'_>) -> String {
    let (shown, items) = (shown(written), &schema["items"]);
    let last = key.rsplit('.').next().unwrap_or_default();
    let is_item = last.parse::<usize>().is_ok();
    match (kind, written) {
        ("object", _) if !schema["properties"].is_object() => {
            "write a table of names and values: { NAME = \"…\" }".to_owned()
        }
        ("object", _) if is_item => expected_table(key, schema, written),
        ("object", DeValue::Array(_)) => format!("this table may appear only once: write [{key}]"),
        ("object", _) => format!("it is a table: write [{key}] and its keys below"),
        ("array", DeValue::Table(_)) if items["type"] == "object" => {
            format!("this table may be repeated: write [[{key}]], or a list [{{ … }}]")
        }
        ("array", _) if items["type"] == "object" => expected_table(key, items, written),
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

fn key_below(key: &str, part: impl Display) -> String {
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
pub fn with_suggestion(message: &str, text: &str, words: &[&str]) -> String {
    match nearest(text, words.iter().copied()) {
        Some(meant) => format!("{message}; did you mean \"{meant}\"?"),
        None => format!("{message}; here it may be {}", words.join(", ")),
    }
}

/// Returns the candidate nearest to `word`, if it is near enough to be a spelling mistake.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let candidates = candidates.into_iter();
    let all = candidates.map(|candidate| (osa_distance(&word, candidate), candidate));
    let is_near = |of: &(usize, &str)| of.0 <= (of.1.chars().count() / 3).max(1);
    let near = all.filter(is_near);
    Some(near.min_by_key(|(distance, _)| *distance)?.1)
}

fn enum_values(schema: &Value) -> String {
    let words = schema["enum"].as_array().into_iter().flatten();
    words.map(Value::to_string).collect::<Vec<_>>().join(", ")
}

/// Tables within others are written in line.
fn expected_table(key: &str, schema: &Value, value: &DeValue<'_>) -> String {
    let is_name = |part: &&str| part.parse::<usize>().is_err();
    let name = key.rsplit('.').find(is_name).unwrap_or(key);
    if !key.contains(&format!(".{name}")) {
        return format!("it is a table: write [[{name}]] and its keys below");
    }
    let texts = value.as_str().into_iter().chain(std::iter::repeat("…"));
    let pair = |(key, text)| format!("{key} = \"{text}\"");
    let pairs: Vec<String> = required(schema).zip(texts).map(pair).collect();
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
