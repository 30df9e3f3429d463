//! The forms that values in the file have, for its schema: they refuse nothing that the checks accept, and what they
//! can say of the rest.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::config::hub::MODES;
use crate::config::source::WATCHES;

macro_rules! form {
    ($($name:ident: $schema:tt),+ $(,)?) => {$(
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )+};
}

form! {
    Address: {
        "type": "string",
        "pattern": r"^(unix:.+|[0-9.]+:[0-9]{1,5}|\[[0-9A-Fa-f:.%]+\]:[0-9]{1,5})$",
        "examples": ["127.0.0.1:8400", "[::1]:8400", "unix:/run/rsnotify/http.sock"],
    },
    Duration: {
        "type": "string",
        "pattern": "^[0-9]+(ms|s|m|h|d)$",
        "examples": ["100ms", "2s", "5m", "12h", "30d"],
    },
    Entries: { "type": "integer", "minimum": 1, "maximum": 50_000 },
    Glob: { "type": "string", "pattern": "^[^/]" },
    HubPath: { "type": "string", "pattern": r"^/[^?#%\s]+$" },
    MassDeletion: {
        "type": "string",
        "pattern": "^(never|0*([0-9]{1,2}|100)%)$",
        "examples": ["50%", "never"],
    },
    Maximum: { "type": "integer", "minimum": 1, "maximum": u32::MAX },
    ModeWord: { "type": "string", "enum": MODES.map(|(word, _)| word) },
    Name: { "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$" },
    NetworkText: { "type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$" },
    Ports: { "type": "string", "pattern": "^[0-9]+(-[0-9]+)?$" },
    Prefix: { "type": "string", "pattern": r#"^[Hh][Tt][Tt][Pp][Ss]?://[^\s<>"?#]+$"# },
    ProxyText: {
        "type": "string",
        "pattern": "^(none|[Hh][Tt][Tt][Pp]://[^@/?#]+/?)$",
        "examples": ["http://proxy.example.org:3128", "none"],
    },
    WatchWord: { "type": "string", "enum": WATCHES.map(|(word, _)| word) },
    WebUri: { "type": "string", "pattern": r#"^[Hh][Tt][Tt][Pp][Ss]?://[^#\s<>"]+$"# },
}
