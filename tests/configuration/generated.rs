//! The files that are made of the definitions of the keys: the tables of `docs/configuration.md`, and the example files.

use rsnotify::config::Config;
use rsnotify::config::hub_config::HubConfig;
use rsnotify::config::schema::{inline_toml, keys, required, schema_of};
use serde_json::Value;

/// The longest line of the example file.
const LINE: usize = 118;

/// The beginning of each example file, after its first sentences.
const PREAMBLE: [&str; 2] = [
    "A line that begins with \"#\" and a key shows that key's default, or an example where it has none. Durations are a \
     whole number and a unit: \"100ms\", \"2s\", \"5m\", \"12h\", \"30d\". Relative paths are relative to the directory of this \
     file. Unknown keys are errors. docs/configuration.md says more about each key.",
    "A secret or a certificate is named by its holder: a file by its path or as { file = \"/path\" }, an environment \
     variable as { env = \"NAME\" }, a credential that LoadCredential=name:/path in the systemd unit gives as \
     { credential = \"name\" }.",
];

const PURPOSE: &str = "The configuration of rsnotify. This file is valid as it stands: change the mount and the public URL.";
const PURPOSE_OF_HUB: &str = "The configuration of rsnotify hub, which relays the notifications of many Sources. This file is valid as it stands: \
     change the URL of the hub, and the publishers.";

/// A table of the reference page.
#[derive(Debug)]
pub struct ReferenceTable {
    /// The heading that it is below.
    pub heading: String,
    /// A line for each key.
    pub rows: Vec<String>,
}

/// Returns the tables of the reference page, in the order of the keys.
pub fn tables() -> Vec<ReferenceTable> {
    let run = schema_of::<Config>();
    let hub = schema_of::<HubConfig>();
    let of_run = keys(&run).into_iter().flatten();
    let of_hub = keys(&hub).into_iter().flatten();
    let of_hub = of_hub.filter(|(name, _)| ["hub", "publisher"].contains(&name.as_str()));
    let mut tables = Vec::new();
    // Keys of the embedded hub that `rsnotify hub` has too are said once.
    let embedded = keys(&run).map(|tables| rows(&tables["embedded_hub"]));
    let embedded = embedded.unwrap_or_default();
    let mut add = |heading: String, table| {
        let mut rows = rows(table);
        if heading == "## `[hub]`" {
            rows.retain(|row| !embedded.contains(row));
        }
        if !rows.is_empty() {
            tables.push(ReferenceTable { heading, rows });
        }
    };
    let mut top = run.clone();
    if let Some(properties) = top["properties"].as_object_mut() {
        // Tables have a heading each.
        properties.retain(|_, key| keys(key).is_none());
    }
    add("## Top level".to_owned(), &top);
    for (name, table) in of_run.chain(of_hub) {
        add(format!("## `{}`", header(name, table)), table);
        for (name, table) in keys(table).into_iter().flatten() {
            add(format!("### `{name}`"), table);
        }
    }
    tables
}

/// Returns the line that begins a table.
fn header(name: &str, schema: &Value) -> String {
    if schema["type"] == "array" {
        format!("[[{name}]]")
    } else {
        format!("[{name}]")
    }
}

fn rows(table: &Value) -> Vec<String> {
    let is_repeated = table["type"] == "array";
    let required = required(if is_repeated { &table["items"] } else { table });
    let required: Vec<&str> = required.collect();
    let rows = keys(table).into_iter().flatten().map(|(name, key)| {
        let default = match (&key["x-default"], &key["default"]) {
            (Value::String(words), _) => format!(" {words}"),
            (_, Value::Null) if required.contains(&name.as_str()) => " required".to_owned(),
            (_, Value::Null) => String::new(),
            (_, value) => format!(" `{}`", inline_toml(value)),
        };
        let help =
            [&key["description"], &key["x-more"]].map(|text| text.as_str().unwrap_or_default());
        format!("| `{name}` |{default} | {} |", help.join(" ").trim_end())
    });
    rows.collect()
}

/// Returns the example file.
pub fn example() -> String {
    file(PURPOSE, &schema_of::<Config>(), "run")
}

/// Returns the example file of `rsnotify hub`.
pub fn hub_example() -> String {
    file(PURPOSE_OF_HUB, &schema_of::<HubConfig>(), "hub")
}

fn file(purpose: &str, schema: &Value, daemon: &str) -> String {
    let is_shown = |key: &Value| key["x-shown"] == true || key["x-shown"] == daemon;
    let show = |name: &str, key| show(name, key, is_shown(key));
    let mut file = [purpose, PREAMBLE[0], PREAMBLE[1]].map(comment).join("#\n") + "\n";
    for (name, key) in keys(schema).into_iter().flatten() {
        let Some(keys) = keys(key) else {
            file += &show(name, key);
            continue;
        };
        let is_repeated = key["type"] == "array";
        let help = key["description"].as_str().unwrap_or_default();
        let repeat = if is_repeated {
            " Repeat the section for each."
        } else {
            ""
        };
        let help = comment(&format!("{help}{repeat}"));
        let is_comment = is_repeated && !keys.values().any(is_shown);
        let sign = if is_comment { "#" } else { "" };
        file += &format!("\n{help}{sign}{}\n", header(name, key));
        file.extend(keys.iter().map(|(name, key)| show(name, key)));
    }
    file
}

/// Returns a key with its description: its default in a comment, or an example if it has none, or an empty one.
fn show(name: &str, key: &Value, is_shown: bool) -> String {
    let (default, example) = (&key["default"], &key["examples"][0]);
    let is_empty = ["null", "[]", "{}"].contains(&default.to_string().as_str());
    let has_example = is_empty && !example.is_null();
    let value = inline_toml(if has_example { example } else { default });
    let help = comment(key["description"].as_str().unwrap_or_default());
    let sign = if is_shown { "" } else { "#" };
    format!("{help}{sign}{name} = {value}\n")
}

/// Returns a comment of several lines.
fn comment(text: &str) -> String {
    let (mut lines, mut length) = ("#".to_owned(), 1);
    for word in text.replace('`', "").split(' ') {
        length += 1 + word.len();
        if length > LINE {
            lines += "\n#";
            length = 2 + word.len();
        }
        lines = lines + " " + word;
    }
    lines + "\n"
}
