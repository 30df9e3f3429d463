//! The configuration file exactly as it is written: every key, no defaults, no judgement.
//!
//! Values are texts that keep their place in the file, so that the checks can name it; the checks are in
//! the sibling files, and `docs/configuration.md` explains each key (a test compares the two).

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::announce::delivery::secret::Secret;

/// A value that may be absent, with its place in the file.
pub type Written<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub state_dir: Written<String>,
    pub server: Server,
    pub source: Vec<Spanned<Source>>,
    pub window: Window,
    pub hub: Vec<Spanned<Hub>>,
    pub embedded_hub: EmbeddedHub,
    pub channel: Vec<Spanned<Channel>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    pub listen: Written<String>,
    pub public_url: Written<String>,
    pub admin_listen: Written<String>,
    pub topic_window: Written<String>,
    pub retired_topic: Written<String>,
    pub shutdown_grace: Written<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Source {
    pub name: Written<String>,
    pub mount: Vec<Spanned<Mount>>,
    pub include: Written<Vec<Spanned<String>>>,
    pub exclude: Option<Vec<Spanned<String>>>,
    pub watch: Written<String>,
    pub rescan_interval: Written<String>,
    pub poll_interval: Written<String>,
    pub settle: Written<String>,
    pub broken_after: Written<String>,
    pub deletion_grace: Written<String>,
    pub mass_deletion: Written<String>,
    pub announce_existing: Option<bool>,
    pub announce_all_deletions: Option<bool>,
    pub announce_all_components: Option<bool>,
    pub unadvertised_channels: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mount {
    pub path: Written<String>,
    pub url: Written<String>,
    pub aliases: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Window {
    pub quiet: Written<String>,
    pub max_wait: Written<String>,
    pub hold: Written<String>,
    pub max_entries: Written<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hub {
    pub url: Written<String>,
    pub publish_url: Written<String>,
    pub mode: Written<String>,
    pub headers: BTreeMap<String, Spanned<HeaderValue>>,
    pub bearer_token_file: Written<Held>,
    pub username: Written<String>,
    pub password_file: Written<Held>,
    pub client_cert: Written<Held>,
    pub client_key: Written<Held>,
    pub ca_file: Written<Held>,
    pub danger_accept_invalid_certs: Option<bool>,
    pub proxy: Written<String>,
    pub timeout: Written<String>,
}

/// What holds a text that is not written here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a path, { file = \"...\" }, { env = \"...\" } or { credential = \"...\" }"
)]
pub enum Held {
    Path(String),
    By(Holder),
}

/// A header's value, or what holds it.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a text, { file = \"...\" }, { env = \"...\" } or { credential = \"...\" }"
)]
pub enum HeaderValue {
    Literal(Secret),
    By(Holder),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddedHub {
    pub enabled: Written<bool>,
    pub path: Written<String>,
    pub https_callbacks_only: Option<bool>,
    pub callback_ports: Written<Vec<Spanned<String>>>,
    pub allow_callback_networks: Vec<Spanned<String>>,
    pub trusted_proxies: Vec<Spanned<String>>,
    pub max_subscriptions: Written<i64>,
    pub max_subscriptions_per_host: Written<i64>,
    pub max_subscriptions_per_address: Written<i64>,
    pub max_requests_per_minute: Written<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Channel {
    pub capability_list: Written<String>,
    pub topic: Written<String>,
    pub hubs: Vec<Spanned<String>>,
}
