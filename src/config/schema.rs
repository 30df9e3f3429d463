//! The JSON Schema of the configuration file, for editors.

use serde_json::{Map, Value, json};

use crate::config::KEYS;
use crate::config::definition::{Definition, Fallback, Kind, TextKind};
use crate::config::holder::Holder;
use crate::config::hub_config::HUB_KEYS;
use crate::config::publisher::PUBLISHER;

/// Returns the schema, in draft 7 with the words of draft 4: what editors read for TOML (Taplo, and what is built on it)
/// lies between them.
pub fn schema() -> Value {
    let mut schema = table(&KEYS);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for key in HUB_KEYS {
            let of_hub = Value::Object(described(key));
            let of_both = match properties.remove(key.name) {
                Some(of_run) if of_run != of_hub => json!({ "oneOf": [of_run, of_hub] }),
                _ => of_hub,
            };
            properties.insert(key.name.to_owned(), of_both);
        }
    }
    schema.insert(
        "$schema".to_owned(),
        json!("http://json-schema.org/draft-07/schema#"),
    );
    // A file with sources is one of `rsnotify run`, and has hubs in an array.
    schema.insert(
        "dependencies".to_owned(),
        json!({
            "source": {
                "properties": { "hub": { "type": "array" } },
                "not": { "required": [PUBLISHER.name] },
            },
        }),
    );
    schema.insert("title".to_owned(), json!("Configuration of rsnotify"));
    let description = "The file that `--config` names.";
    schema.insert("description".to_owned(), json!(description));
    Value::Object(schema)
}

fn table(keys: &[&Definition]) -> Map<String, Value> {
    let properties: Map<String, Value> = keys
        .iter()
        .map(|key| (key.name.to_owned(), Value::Object(described(key))))
        .collect();
    let required = keys
        .iter()
        .filter(|key| matches!(key.fallback, Fallback::Required));
    let required: Vec<&str> = required.map(|key| key.name).collect();
    let mut schema = object(json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    }));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

/// Returns the schema of a key's values, with its description and its default.
fn described(key: &Definition) -> Map<String, Value> {
    let mut schema = values(key);
    schema.insert("description".to_owned(), json!(key.help));
    if let Fallback::Default(text) = key.fallback {
        let default = text.parse::<toml::Value>();
        let default = default.expect("a default is TOML");
        schema.insert("default".to_owned(), json!(default));
    }
    schema
}

fn values(key: &Definition) -> Map<String, Value> {
    match key.kind {
        Kind::Text(kind) => text(kind),
        Kind::List { item, may_be_empty } => list(text(item), may_be_empty),
        Kind::Boolean => object(json!({ "type": "boolean" })),
        Kind::Integer { max } => object(json!({ "type": "integer", "minimum": 1, "maximum": max })),
        Kind::Size { max } => object(json!({
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": max },
                { "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB)?$" },
            ],
        })),
        Kind::Holder => text_or_holder(),
        Kind::Headers => object(json!({
            "type": "object",
            "additionalProperties": text_or_holder(),
        })),
        Kind::Table(keys) => table(keys),
        Kind::Tables(keys) => {
            let may_be_empty = !matches!(key.fallback, Fallback::Required);
            list(table(keys), may_be_empty)
        }
    }
}

fn list(items: Map<String, Value>, may_be_empty: bool) -> Map<String, Value> {
    let mut schema = object(json!({ "type": "array", "items": items }));
    if !may_be_empty {
        schema.insert("minItems".to_owned(), json!(1));
    }
    schema
}

fn text(kind: &TextKind) -> Map<String, Value> {
    let mut schema = object(json!({ "type": "string" }));
    if let Some(pattern) = kind.pattern {
        schema.insert("pattern".to_owned(), json!(pattern));
    }
    if !kind.words.is_empty() {
        schema.insert("enum".to_owned(), json!(kind.words));
    }
    if !kind.examples.is_empty() {
        schema.insert("examples".to_owned(), json!(kind.examples));
    }
    if !kind.may_be_empty {
        schema.insert("minLength".to_owned(), json!(1));
    }
    schema
}

fn text_or_holder() -> Map<String, Value> {
    let holders = Holder::KINDS.map(|(kind, description)| {
        json!({
            "type": "object",
            "description": description,
            "additionalProperties": false,
            "properties": { kind: { "type": "string" } },
            "required": [kind],
        })
    });
    object(json!({ "anyOf": [{ "type": "string" }, { "oneOf": holders }] }))
}

/// Returns the members of a JSON object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
