//! The JSON Schema of the configuration file, for editors: made of the types that mirror it, and of what is in force
//! where it says nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::config::error::ConfigError;
use crate::config::overrides::Overrides;
use crate::config::reading::Source;
use crate::config::{Environment, checked, raw};

/// What has no default, and what has one that depends on the rest; with this, all other keys have their defaults.
const WITHOUT_DEFAULTS: &str = r#"
state_dir = "/"
[server]
public_url = "https://example.org/"
[[source]]
name = "main"
mount = [{ path = "/srv/www", url = "https://example.org/" }]
[[hub]]
url = "https://hub.example.org/"
publish_url = "https://hub.example.org/"
[embedded_hub]
enabled = true
[[channel]]
capability_list = "https://example.org/capabilitylist.xml"
topic = "https://example.org/notifications/"
"#;

/// Draft 7 with the words of draft 4: what editors read for TOML (Taplo, and what is built on it) lies between them.
pub fn schema() -> Result<Value, ConfigError> {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<raw::File>();
    let written = toml::from_str(WITHOUT_DEFAULTS).unwrap_or_default();
    if let Some(file) = schema.as_object_mut() {
        complete(file, &in_force()?, &written);
    }
    Ok(schema.to_value())
}

/// What is in force where no more is written than has to be.
fn in_force() -> Result<Value, ConfigError> {
    let environment = Environment {
        default_file: PathBuf::new(),
        current_dir: PathBuf::from("/"),
        state_directory: None,
        xdg_state_home: None,
        home: None,
        variables: HashMap::new(),
    };
    let file = Source {
        path: Path::new("/"),
        text: WITHOUT_DEFAULTS,
    };
    let config = checked(&environment, Some(file), &Overrides::default())?;
    Ok(toml::from_str(&config.in_force()).unwrap_or_default())
}

/// Gives each key of a table its default, which is in force although it is not written, and its description as one
/// line.
fn complete(table: &mut Map<String, Value>, in_force: &Value, written: &Value) {
    let Some(keys) = table.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, key) in keys {
        let (in_force, written) = (&in_force[name], &written[name]);
        let Some(key) = key.as_object_mut() else {
            continue;
        };
        if let Some(Value::String(description)) = key.get_mut("description") {
            *description = description.replace('\n', " ");
        }
        // Where the types have one, it is that nothing is written.
        key.remove("default");
        if key.contains_key("properties") {
            complete(key, in_force, written);
        } else if in_force[0].is_object() {
            if let Some(table) = key.get_mut("items").and_then(Value::as_object_mut) {
                complete(table, &in_force[0], &written[0]);
            }
        } else if written.is_null() && !in_force.is_null() {
            key.insert("default".to_owned(), in_force.clone());
        }
    }
}
