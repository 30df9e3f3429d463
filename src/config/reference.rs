//! The reference of all keys: the tables of `docs/configuration.md`, and the example file. A test compares them with
//! what is checked in, and writes them anew where it is told to.

use crate::config::KEYS;
use crate::config::definition::{Definition, Example, Fallback, Kind};
use crate::config::effective::header;
use crate::config::hub_config::HUB_KEYS;
use crate::config::own_hub::OWN_HUB;
use crate::config::publisher::PUBLISHER;

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
    let mut tables = vec![ReferenceTable {
        heading: "## Top level".to_owned(),
        rows: KEYS.iter().map(|key| row(key)).collect(),
    }];
    for key in KEYS.into_iter().chain([&OWN_HUB, &PUBLISHER]) {
        collect(key, &mut tables);
    }
    tables
}

fn collect(key: &Definition, tables: &mut Vec<ReferenceTable>) {
    let keys = key.keys();
    if keys.is_empty() {
        return;
    }
    tables.push(ReferenceTable {
        heading: match key.table {
            "" => format!("## `{}`", header(key)),
            _ => format!("### `{}`", key.name),
        },
        rows: keys.iter().map(|key| row(key)).collect(),
    });
    for key in keys {
        collect(key, tables);
    }
}

fn row(key: &Definition) -> String {
    let Definition {
        name, help, more, ..
    } = key;
    let default = match key.fallback {
        Fallback::Default(text) => format!(" `{text}`"),
        Fallback::Described(words) => format!(" {words}"),
        Fallback::Required => " required".to_owned(),
        Fallback::Nothing => String::new(),
    };
    let more = match more {
        &"" => String::new(),
        more => format!(" {more}"),
    };
    format!("| `{name}` |{default} | {help}{more} |")
}

/// An example file.
struct ExampleFile {
    purpose: &'static str,
    keys: &'static [&'static Definition],
    /// The keys that differ from those of the same name in another file.
    overrides: &'static [ExampleOverride],
}

/// A key that other files have too.
struct ExampleOverride {
    table: &'static str,
    name: &'static str,
    /// Nothing if it has no effect here.
    example: Option<Example>,
}

static EXAMPLE: ExampleFile = ExampleFile {
    purpose: "The configuration of rsnotify. This file is valid as it stands: change the mount and the public URL.",
    keys: &KEYS,
    overrides: &[],
};

static HUB_EXAMPLE: ExampleFile = ExampleFile {
    purpose: "The configuration of rsnotify hub, which relays the notifications of many Sources. This file is valid as it \
              stands: change the URL of the hub, and the publishers.",
    keys: &HUB_KEYS,
    overrides: &[
        // As the unit of the service has it: two processes cannot share one.
        ExampleOverride {
            table: "",
            name: "state_dir",
            example: Some(Example::Value("\"/var/lib/rsnotify-hub\"")),
        },
        ExampleOverride {
            table: "server",
            name: "public_url",
            example: Some(Example::Comment("\"https://hub.example.org/\"")),
        },
        ExampleOverride {
            table: "server",
            name: "topic_window",
            example: None,
        },
        ExampleOverride {
            table: "server",
            name: "retired_topic",
            example: None,
        },
    ],
};

/// Returns the example file.
pub fn example() -> String {
    EXAMPLE.text()
}

/// Returns the example file of `rsnotify hub`.
pub fn hub_example() -> String {
    HUB_EXAMPLE.text()
}

impl ExampleFile {
    fn text(&self) -> String {
        let mut file = String::new();
        comment(&mut file, self.purpose);
        for paragraph in PREAMBLE {
            file.push_str("#\n");
            comment(&mut file, paragraph);
        }
        file.push('\n');
        for key in self.keys {
            if key.keys().is_empty() {
                self.show(&mut file, key);
            } else {
                self.table(&mut file, key);
            }
        }
        file
    }

    fn table(&self, file: &mut String, key: &Definition) {
        let keys = key.keys();
        file.push('\n');
        match key.kind {
            Kind::Tables(_) => comment(file, &format!("{} Repeat the section for each.", key.help)),
            _ => comment(file, key.help),
        }
        let is_shown = |key: &&'static Definition| matches!(key.example, Example::Value(_));
        let is_optional = matches!(key.kind, Kind::Tables(_)) && !keys.iter().any(is_shown);
        let sign = if is_optional { "#" } else { "" };
        file.push_str(&format!("{sign}{}\n", header(key)));
        for key in keys {
            self.show(file, key);
        }
    }

    /// Writes a key with its description.
    fn show(&self, file: &mut String, key: &Definition) {
        let mut overrides = self.overrides.iter();
        let instead = overrides.find(|it| (it.table, it.name) == (key.table, key.name));
        let Some(example) = instead.map_or(Some(key.example), |it| it.example) else {
            return;
        };
        comment(file, key.help);
        let (sign, value) = match (example, key.fallback) {
            (Example::Value(value), _) => ("", value),
            (Example::Comment(value), _) => ("#", value),
            (Example::Default, Fallback::Default(value)) => ("#", value),
            (Example::Default, _) => return,
        };
        file.push_str(&format!("{sign}{} = {value}\n", key.name));
    }
}

/// Writes a comment of several lines.
fn comment(file: &mut String, text: &str) {
    let mut line = "#".to_owned();
    for word in text.replace('`', "").split(' ') {
        if line.len() + 1 + word.len() > LINE {
            file.push_str(&line);
            file.push('\n');
            line.replace_range(1.., "");
        }
        line.push(' ');
        line.push_str(word);
    }
    file.push_str(&line);
    file.push('\n');
}
