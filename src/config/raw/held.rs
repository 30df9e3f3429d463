//! What holds a secret or a certificate, as the file writes it.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::announce::delivery::secret::Secret;

/// What holds a text that is not written here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// A file, by its path.
    File(String),
    /// An environment variable, by its name.
    Env(String),
    /// A credential that systemd gives the service, by its name.
    Credential(String),
}

/// A secret or a certificate, by what holds it; a text is the path of a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a path, { file = \"...\" }, { env = \"...\" } or { credential = \"...\" }"
)]
pub enum Held {
    Path(String),
    By(Holder),
}

/// A header's value, or what holds it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a text, { file = \"...\" }, { env = \"...\" } or { credential = \"...\" }"
)]
pub enum HeaderValue {
    Literal(#[schemars(with = "String")] Secret),
    By(Holder),
}
