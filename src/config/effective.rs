//! The effective configuration as a file: every key that has a value, and no secret.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use toml::ser::ValueSerializer;

use crate::config::schema::{DaemonKind, keys, schema_of};

/// A comment on the value of a key, which is given with positions, such as `source.0.name`.
pub type Comment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns a configuration as TOML, with comments behind values.
pub fn page<T: Serialize + JsonSchema>(
    config: &T,
    daemon: DaemonKind,
    comment: Comment<'_>,
) -> String {
    let values = serde_json::to_value(config).unwrap_or_default();
    let schema = schema_of::<T>(daemon);
    let line = |name: &str, key: &str, value: &Value| {
        let comment = comment(key).map(|comment| format!("  # {comment}"));
        let comment = comment.unwrap_or_default();
        let line = format!("{name} = {}{comment}\n", toml(value));
        if value.is_null() { String::new() } else { line }
    };
    let table = |header: String, schema: &Value, key: &str, values: &Value| {
        let names = keys(schema).into_iter().flat_map(Map::keys);
        let lines = names.map(|name| line(name, &format!("{key}.{name}"), &values[name]));
        format!("\n{header}\n{}", lines.collect::<String>())
    };
    let parts = keys(&schema)
        .into_iter()
        .flatten()
        .map(|(name, schema)| match &values[name] {
            Value::Object(_) => table(format!("[{name}]"), schema, name, &values[name]),
            Value::Array(tables) => {
                let tables = tables.iter().enumerate().map(|(at, values)| {
                    table(
                        format!("[[{name}]]"),
                        schema,
                        &format!("{name}.{at}"),
                        values,
                    )
                });
                tables.collect()
            }
            value => line(name, name, value),
        });
    parts.collect()
}

/// Returns a value in one line of TOML.
pub fn toml(value: &Value) -> String {
    let mut line = String::new();
    // Only null has no form, and no value below another one is null.
    let _ = value.serialize(ValueSerializer::new(&mut line));
    line
}
