//! Holders of secrets and certificates, as the file writes them.

use toml::de::DeValue;
use websub::secret::Secret;

/// The holder of a secret or of certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A file, by its path.
    File(String),
    /// An environment variable, by its name.
    Env(String),
    /// A credential that systemd gives the service, by its name.
    Credential(String),
}

/// A header's value, or its holder.
#[derive(Debug)]
pub enum HeaderValue {
    Literal(Secret),
    HeldBy(Holder),
}

impl Holder {
    /// The kinds of holders, as the file and its schema name them.
    pub const KINDS: [(&'static str, &'static str); 3] = [
        ("file", "A file, by its path."),
        ("env", "An environment variable, by its name."),
        (
            "credential",
            "A credential that systemd gives the service, by its name.",
        ),
    ];

    /// Returns the kind, and the path or name.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Holder::File(path) => ("file", path),
            Holder::Env(name) => ("env", name),
            Holder::Credential(name) => ("credential", name),
        }
    }

    /// Reads the holder of a secret: a text is the path of a file.
    pub fn of_secret(value: &DeValue<'_>) -> Option<Holder> {
        match value.as_str() {
            Some(path) => Some(Holder::File(path.to_owned())),
            None => Holder::in_table(value),
        }
    }

    fn in_table(value: &DeValue<'_>) -> Option<Holder> {
        let DeValue::Table(table) = value else {
            return None;
        };
        let mut keys = table.iter();
        let (Some((key, value)), None) = (keys.next(), keys.next()) else {
            return None;
        };
        let name = value.get_ref().as_str()?.to_owned();
        match key.get_ref().as_ref() {
            "file" => Some(Holder::File(name)),
            "env" => Some(Holder::Env(name)),
            "credential" => Some(Holder::Credential(name)),
            _ => None,
        }
    }
}

impl HeaderValue {
    pub fn of(value: &DeValue<'_>) -> Option<HeaderValue> {
        match value.as_str() {
            Some(text) => Some(HeaderValue::Literal(Secret::new(text))),
            None => Holder::in_table(value).map(HeaderValue::HeldBy),
        }
    }
}
