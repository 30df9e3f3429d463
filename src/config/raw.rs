//! The configuration file exactly as it is written: every key, no defaults, no judgement.
//!
//! Values are texts that keep their place in the file, so that the checks can name it; the checks are in
//! the sibling files. What is said of a key here is what editors show of it, by the schema, and what
//! `docs/configuration.md` begins with (a test compares the two).

mod form;
pub mod held;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use crate::config::raw::form::{
    Address, Duration, Entries, Glob, HubPath, MassDeletion, Maximum, ModeWord, Name, NetworkText,
    Ports, Prefix, ProxyText, WatchWord, WebUri,
};
use crate::config::raw::held::{HeaderValue, Held};

/// A value that may be absent, with its place in the file.
pub type Written<T> = Option<Spanned<T>>;

/// What rsnotify reads from the file that `--config` names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Configuration of rsnotify")]
pub struct File {
    /// Where rsnotify keeps what it has seen and told.
    #[schemars(with = "String")]
    pub state_dir: Written<String>,
    /// What is listened on.
    pub server: Server,
    /// The Sources to watch, at least one.
    #[schemars(with = "Vec<Source>")]
    pub source: Vec<Spanned<Source>>,
    /// When channels speak.
    pub window: Window,
    /// The hubs to tell.
    #[schemars(with = "Vec<Hub>")]
    pub hub: Vec<Spanned<Hub>>,
    /// The hub in this process.
    pub embedded_hub: EmbeddedHub,
    /// Channels that Capability Lists do not advertise.
    #[schemars(with = "Vec<Channel>")]
    pub channel: Vec<Spanned<Channel>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Where topics and the embedded hub listen. An IP address and a port (0 takes a free one), or `"unix:/path"`,
    /// which needs `public_url`.
    #[schemars(with = "Address")]
    pub listen: Written<String>,
    /// What that is reached as.
    #[schemars(with = "Prefix")]
    pub public_url: Written<String>,
    /// Where health, metrics and status (`/healthz`, `/readyz`, `/metrics`, `/status.json`) listen.
    #[schemars(with = "Address")]
    pub admin_listen: Written<String>,
    /// How long a topic that ping hubs fetch repeats what was said on it: they skip pings.
    #[schemars(with = "Duration")]
    pub topic_window: Written<String>,
    /// How long the topic of a channel that has ended is still served.
    #[schemars(with = "Duration")]
    pub retired_topic: Written<String>,
    /// How long requests in flight may take to end when rsnotify stops.
    #[schemars(with = "Duration")]
    pub shutdown_grace: Written<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["name", "mount"]))]
pub struct Source {
    /// Letters, digits, `-`, `_` and `.`.
    #[schemars(with = "Name")]
    pub name: Written<String>,
    /// The directories to watch and what they are published as.
    #[schemars(with = "Vec<Mount>", length(min = 1))]
    pub mount: Vec<Spanned<Mount>>,
    /// Which files may be capability documents: globs, in which `*` stops at `/` and `**` does not. They see the path
    /// below the mount and the path of the URI.
    #[schemars(with = "Vec<Glob>", length(min = 1))]
    pub include: Written<Vec<Spanned<String>>>,
    /// Which of those are left alone.
    #[schemars(with = "Vec<Glob>")]
    pub exclude: Option<Vec<Spanned<String>>>,
    /// Where hints come from: `"inotify"` (Linux), `"notify"` (the interface of other systems), `"poll"` (none:
    /// sweep every `poll_interval`), or `"auto"`, which is inotify where the file system is known to be local, else
    /// a poll.
    #[schemars(with = "WatchWord")]
    pub watch: Written<String>,
    /// How often everything is looked at although nothing hinted at a change.
    #[schemars(with = "Duration")]
    pub rescan_interval: Written<String>,
    /// How often everything is looked at when there are no hints.
    #[schemars(with = "Duration")]
    pub poll_interval: Written<String>,
    /// How long a file that was found without a hint must have been left alone before it is believed complete.
    #[schemars(with = "Duration")]
    pub settle: Written<String>,
    /// How long a writer that keeps a file open must not have written to it before the file is believed complete.
    #[schemars(with = "Duration")]
    pub open_writer: Written<String>,
    /// How long a document may be incomplete before it is reported as broken.
    #[schemars(with = "Duration")]
    pub broken_after: Written<String>,
    /// How long a running rsnotify must see a document absent, in one run, before it counts as deleted.
    #[schemars(with = "Duration")]
    pub deletion_grace: Written<String>,
    /// Deletions wait when more than this part of the source (and at least 10 documents) is missing, or all its
    /// Capability Lists if it had several, or all documents of one mount, whatever their number, until enough come back
    /// or `rsnotify accept SOURCE` lets them pass.
    #[schemars(with = "MassDeletion")]
    pub mass_deletion: Written<String>,
    /// Announce what the first look at a tree finds as created, instead of taking it as known.
    #[schemars(with = "bool")]
    pub announce_existing: Option<bool>,
    /// Announce also the deletions that the specification does not foresee, such as a Resource List's.
    #[schemars(with = "bool")]
    pub announce_all_deletions: Option<bool>,
    /// Announce each changed component of an index, instead of the newest for all.
    #[schemars(with = "bool")]
    pub announce_all_components: Option<bool>,
    /// Give a set that advertises no channel a topic of its own below `public_url`.
    #[schemars(with = "bool")]
    pub unadvertised_channels: Option<bool>,
    /// Findings that are known and need nobody: a kind such as `unrouted`, a URI (one that ends in `*` means all that
    /// begin so), or a kind and a URI.
    #[schemars(with = "Vec<String>")]
    pub acknowledged: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["path", "url"]))]
pub struct Mount {
    /// The directory.
    #[schemars(with = "String", length(min = 1))]
    pub path: Written<String>,
    /// The URI that it is published as.
    #[schemars(with = "Prefix")]
    pub url: Written<String>,
    /// Other prefixes under which the same documents are referred to, such as `http://` beside `https://`.
    #[schemars(with = "Vec<Prefix>")]
    pub aliases: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Window {
    /// A channel speaks when nothing more has changed for this long; `"0s"` at once.
    #[schemars(with = "Duration")]
    pub quiet: Written<String>,
    /// It speaks no later than this after the first change.
    #[schemars(with = "Duration")]
    pub max_wait: Written<String>,
    /// How long a new document waits to be listed by its Capability List, index or archive.
    #[schemars(with = "Duration")]
    pub hold: Written<String>,
    /// How many changes one notification may hold, 1 to 50000; the rest waits for the next.
    #[schemars(with = "Entries")]
    pub max_entries: Written<i64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["url"]))]
pub struct Hub {
    /// Its URI exactly as Capability Lists advertise it.
    #[schemars(with = "WebUri")]
    pub url: Written<String>,
    /// Where to submit notifications, if elsewhere. It is never advertised.
    #[schemars(with = "WebUri")]
    pub publish_url: Written<String>,
    /// What holds that address, if it has a key in it.
    #[schemars(with = "Held")]
    pub publish_url_file: Written<Held>,
    /// `"content"`: the notification as the body, as ResourceSync hubs take it. `"ping"`: a form that names the
    /// topic, which the hub then fetches. `"content-query"`: the notification as the body and the topic in the query.
    #[schemars(with = "ModeWord")]
    pub mode: Written<String>,
    /// The hub that this one goes on for, with all that it was due: the URI of one that is no longer configured,
    /// `"nothing"`, or `"auto"`, which is the one that it took the place of, if it was one for one.
    #[schemars(with = "String", length(min = 1))]
    pub replaces: Written<String>,
    /// Headers to add. A value is a text, or, where it is a secret, what holds it.
    #[schemars(with = "BTreeMap<String, HeaderValue>")]
    pub headers: BTreeMap<String, Spanned<HeaderValue>>,
    /// What holds a bearer token.
    #[schemars(with = "Held")]
    pub bearer_token_file: Written<Held>,
    /// A user name for basic authentication; needs `password_file`.
    #[schemars(with = "String")]
    pub username: Written<String>,
    /// What holds the password.
    #[schemars(with = "Held")]
    pub password_file: Written<Held>,
    /// What holds a TLS client certificate in PEM; needs `client_key`.
    #[schemars(with = "Held")]
    pub client_cert: Written<Held>,
    /// What holds its private key in PEM.
    #[schemars(with = "Held")]
    pub client_key: Written<Held>,
    /// What holds certificates to trust beside the system's, in PEM.
    #[schemars(with = "Held")]
    pub ca_file: Written<Held>,
    /// Accept any certificate: anyone on the way can then read notifications and credentials.
    #[schemars(with = "bool")]
    pub danger_accept_invalid_certs: Option<bool>,
    /// The proxy for this hub, `"http://HOST:PORT"`, or `"none"`.
    #[schemars(with = "ProxyText")]
    pub proxy: Written<String>,
    /// How long a request may take.
    #[schemars(with = "Duration")]
    pub timeout: Written<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddedHub {
    /// Whether there is a hub in this process.
    #[schemars(with = "bool")]
    pub enabled: Written<bool>,
    /// Its path below `public_url`.
    #[schemars(with = "HubPath")]
    pub path: Written<String>,
    /// Refuse callbacks that are not `https`.
    #[schemars(with = "bool")]
    pub https_callbacks_only: Option<bool>,
    /// The ports that callbacks may have: single ones and ranges.
    #[schemars(with = "Vec<Ports>", length(min = 1))]
    pub callback_ports: Written<Vec<Spanned<String>>>,
    /// Networks, such as `"10.0.0.0/8"`, in which callbacks may lie although they are not public.
    #[schemars(with = "Vec<NetworkText>")]
    pub allow_callback_networks: Vec<Spanned<String>>,
    /// Proxies, such as `"127.0.0.1"`, whose `Forwarded` or `X-Forwarded-For` is believed: behind one, it must be
    /// named, or all subscribers count as one address.
    #[schemars(with = "Vec<NetworkText>")]
    pub trusted_proxies: Vec<Spanned<String>>,
    /// How many subscriptions there may be.
    #[schemars(with = "Maximum")]
    pub max_subscriptions: Written<i64>,
    /// How many with callbacks on one host, by its name or IPv4 address, or IPv6 /64.
    #[schemars(with = "Maximum")]
    pub max_subscriptions_per_host: Written<i64>,
    /// How many asked for from one address, an IPv6 /64 counting as one.
    #[schemars(with = "Maximum")]
    pub max_subscriptions_per_address: Written<i64>,
    /// How many requests from one address, and verifications at one host.
    #[schemars(with = "Maximum")]
    pub max_requests_per_minute: Written<i64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["capability_list", "topic"]))]
pub struct Channel {
    /// The set's Capability List.
    #[schemars(with = "WebUri")]
    pub capability_list: Written<String>,
    /// The channel's topic, below `public_url` or a mount's `url`.
    #[schemars(with = "WebUri")]
    pub topic: Written<String>,
    /// The hubs to tell, each the `url` of a `[[hub]]` or the embedded hub's URI.
    #[schemars(with = "Vec<WebUri>")]
    pub hubs: Vec<Spanned<String>>,
}
