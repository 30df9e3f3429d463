//! The schema of the configuration file: what its structs say of their keys. The words for editors, for the check and
//! for the reference page all come from it.
//!
//! Some words are ours, and not published: `x-form` (a form of texts, see `FORMS`), `x-number` (what to write instead of
//! a number), `x-daemon` (the daemon in whose file alone the key is), `x-default` (the default in words), `x-more` (the
//! continuation of the description), `x-shown` (the example file has the key, not only in a comment).

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::config::check::FORMS;
use crate::config::hub_config::HubConfig;

/// The daemons, each with a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonKind {
    Run,
    Hub,
}

/// Returns the schema of a file, or of a table, in the file of a daemon, with our own words.
pub fn schema_of<T: JsonSchema>(daemon: DaemonKind) -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let tables = schema.get_mut("properties").and_then(Value::as_object_mut);
    for table in tables.into_iter().flat_map(|tables| tables.values_mut()) {
        table["default"].take();
    }
    adapt_to_toml(&mut schema, daemon);
    schema.to_value()
}

/// Returns the schema of both files, in draft 7 with the words of draft 4: what editors read for TOML (Taplo, and what is
/// built on it) lies between them.
pub fn schema() -> Value {
    let mut schema = schema_of::<Config>(DaemonKind::Run);
    let mut of_hub = schema_of::<HubConfig>(DaemonKind::Hub);
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
    strip_own_keywords(&mut schema);
    schema
}

/// Removes what TOML has no use for, such as null, and adds the patterns of forms.
fn adapt_to_toml(schema: &mut Schema, daemon: DaemonKind) {
    let below = schema;
    let Some(schema) = below.as_object_mut() else {
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
    let required = schema.get("required").and_then(Value::as_array).cloned();
    let required = required.unwrap_or_default();
    if let Some(Value::Object(keys)) = schema.get_mut("properties") {
        let daemon = json!(daemon);
        keys.retain(|_, key| key.get("x-daemon").is_none_or(|only| *only == daemon));
        for name in required.iter().filter_map(Value::as_str) {
            if let Some(Value::Object(key)) = keys.get_mut(name) {
                key.remove("default");
            }
        }
    }
    transform_subschemas(
        &mut |schema: &mut Schema| adapt_to_toml(schema, daemon),
        below,
    );
}

/// Removes our own words.
fn strip_own_keywords(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|word, _| !word.starts_with("x-"));
            members.values_mut().for_each(strip_own_keywords);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_own_keywords),
        _ => {}
    }
}

/// Returns the keys of a table, or of a list of tables.
pub fn keys(schema: &Value) -> Option<&Map<String, Value>> {
    schema["properties"]
        .as_object()
        .or_else(|| schema["items"]["properties"].as_object())
}
