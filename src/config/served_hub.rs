//! A hub in this process: `[embedded_hub]` of `rsnotify run`, and `[hub]` of `rsnotify hub`.

use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use resourcesync::uri::{Hub, Uri, has_valid_chars};
use rustix::process::{Resource, getrlimit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use websub::http::server;
use websub::hub::address::LOOPBACK;
use websub::hub::admission::HubLimits;
use websub::hub::http::EmbeddedHubSettings;
use websub::hub::request::CallbackPolicy;

use crate::config::file::{Checked, ConfigTree, NOT_ZERO};
use crate::config::text::{Address, AsText, Size, check_uri, inner_values, seconds};

/// The largest notification that a key may permit.
const MAX_BODY: u32 = 64 << 20;

/// A hub in this process. Each daemon has its own keys, and the limits are common.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HubInProcess {
    /// Run a hub in this process.
    #[schemars(example = true, extend("x-daemon" = "run"))]
    #[schemars(extend("x-default" = "`true` exactly when there is no `[[hub]]`"))]
    pub enabled: Option<bool>,
    /// Path of the hub below `public_url`.
    #[schemars(extend("x-daemon" = "run", "x-form" = "path of a hub"))]
    #[default("/hub".to_owned())]
    pub path: String,
    /// URI of the hub, exactly as topics and Capability Lists advertise it. Subscriptions and publications are posted to
    /// its path.
    ///
    /// The web server in front passes the path on unchanged.
    #[schemars(with = "String", example = "https://hub.example.org/hub")]
    #[schemars(extend("x-daemon" = "hub", "x-form" = "served hub", "x-shown" = true, "x-default" = "required"))]
    #[default(Hub::new(""))]
    pub url: Hub,
    /// Maximum size of a notification that is published, or fetched for a ping: a number of bytes, or with a unit, such
    /// as `"2MiB"` or `"512KiB"`.
    #[schemars(extend("x-daemon" = "hub"))]
    #[default(Size(2 << 20))]
    pub max_body: Size,
    /// Time after which a topic that nobody publishes, and that has no subscribers, is forgotten.
    #[schemars(extend("x-daemon" = "hub"))]
    #[default(seconds(90 * 24 * 3_600))]
    pub topic_ttl: AsText<Duration>,
    /// Rate limit for the publications of one publisher. A burst may have the same number.
    #[schemars(range(min = 1, max = u32::MAX), example = 600)]
    #[schemars(extend("x-daemon" = "hub", "x-default" = "as `max_requests_per_minute`"))]
    pub max_publications_per_minute: Option<u32>,
    /// Refuse callbacks that are not `https`.
    pub https_callbacks_only: bool,
    /// Ports that callbacks may have: single ones and ranges.
    ///
    /// Unless it is set to others, callbacks in `allow_callback_networks` may have any port.
    #[schemars(length(min = 1))]
    #[default(CallbackPolicy::default().ports.into_iter().map(AsText).collect())]
    pub callback_ports: Vec<AsText<RangeInclusive<u16>>>,
    /// Networks, such as `"10.0.0.0/8"`, in which callbacks may be although they are not public.
    ///
    /// For subscribers on this host, such as `rsnotify listen`: `["127.0.0.0/8", "::1"]`.
    pub allow_callback_networks: Vec<AsText<IpNet>>,
    /// Proxies, such as `"10.0.0.7"`, whose `Forwarded` or `X-Forwarded-For` is trusted. A proxy in front that is not
    /// trusted makes all subscribers count as one address.
    ///
    /// Every client on a Unix socket is trusted.
    #[schemars(example = ["127.0.0.0/8", "::1"])]
    #[schemars(extend("x-default" = "`[\"127.0.0.0/8\", \"::1\"]` if `server.listen` is on loopback, else `[]`"))]
    pub trusted_proxies: Vec<AsText<IpNet>>,
    /// Maximum number of subscriptions.
    #[schemars(range(min = 1, max = u32::MAX))]
    #[default(HubLimits::default().subscriptions.in_all)]
    pub max_subscriptions: u32,
    /// Maximum number of subscriptions with callbacks on one host: a name, an IPv4 address, or an IPv6 /64.
    #[schemars(range(min = 1, max = u32::MAX))]
    #[default(HubLimits::default().subscriptions.per_host)]
    pub max_subscriptions_per_host: u32,
    /// Maximum number of subscriptions requested from one address, an IPv6 /64 counting as one.
    ///
    /// The address is not saved, so that this counts from the start of rsnotify.
    #[schemars(range(min = 1, max = u32::MAX))]
    #[default(HubLimits::default().subscriptions.per_address)]
    pub max_subscriptions_per_address: u32,
    /// Rate limit for requests from one address, and for verifications at one host.
    ///
    /// The burst, and the number of requests in flight, are limited to the same number. See [limits](hub.md#limits).
    #[schemars(range(min = 1, max = u32::MAX))]
    #[default(HubLimits::default().requests_per_minute)]
    pub max_requests_per_minute: u32,
    /// Maximum size of the notifications in the state file that subscribers have not received yet, of all topics
    /// together. Beyond it, the subscription that is owed most ends.
    ///
    /// See [the backlog](hub.md#the-backlog).
    #[default(Size(1 << 30))]
    pub max_backlog: Size,
}

impl HubInProcess {
    /// Checks `[hub]`, and fills in what depends on other keys.
    pub(crate) fn check_hub_table(&mut self, file: &ConfigTree<'_>) -> Checked {
        let default = self.max_requests_per_minute;
        self.max_publications_per_minute.get_or_insert(default);
        let table = file.table("hub");
        let too_large = format_args!("it is larger than {} MiB", MAX_BODY >> 20);
        table.refuse_if(self.url.as_str().is_empty(), "url", "it is missing")?;
        table.refuse_if(self.max_body.0 > MAX_BODY, "max_body", too_large)?;
        table.refuse_if(self.topic_ttl.0.is_zero(), "topic_ttl", NOT_ZERO)
    }

    /// Returns the embedded hub's URI, as it is advertised.
    pub fn hub_uri(&self, public_url: &Uri) -> Hub {
        let path = self.path.trim_start_matches('/');
        Hub::new(format!("{}{path}", public_url.as_str()))
    }

    /// Trusts proxies on loopback, if it listens there and `table` of the file names no proxies.
    pub(crate) fn trust_loopback_proxies(
        &mut self,
        file: &ConfigTree<'_>,
        table: &str,
        listen: &Address,
    ) {
        if listen.is_loopback() && file.get(&format!("{table}.trusted_proxies")).is_none() {
            self.trusted_proxies = LOOPBACK.map(AsText).to_vec();
        }
    }

    /// Returns the settings towards subscribers, with as many slots as there are file descriptors for.
    pub fn settings(&self, hub: Hub) -> EmbeddedHubSettings {
        let usual = EmbeddedHubSettings::new(hub);
        let mut limits = HubLimits::default();
        limits.subscriptions.in_all = self.max_subscriptions;
        limits.subscriptions.per_host = self.max_subscriptions_per_host;
        limits.subscriptions.per_address = self.max_subscriptions_per_address;
        limits.set_requests_per_minute(self.max_requests_per_minute);
        limits.backlog_bytes = self.max_backlog.0.into();
        let spare = server::spare_descriptors(getrlimit(Resource::Nofile).current);
        let share = |parts: usize, limit: usize| (spare / parts).clamp(1, limit);
        EmbeddedHubSettings {
            policy: CallbackPolicy {
                https_only: self.https_callbacks_only,
                ports: inner_values(&self.callback_ports),
                allowed: inner_values(&self.allow_callback_networks),
            },
            limits,
            trusted_proxies: inner_values(&self.trusted_proxies),
            // As many deliveries again may be slow ones.
            concurrent_deliveries: share(8, usual.concurrent_deliveries),
            concurrent_verifications: share(32, usual.concurrent_verifications),
            concurrent_lookups: share(32, usual.concurrent_lookups),
            ..usual
        }
    }
}

/// Checks the path of the embedded hub.
pub fn check_path(text: &str) -> Result<(), String> {
    match text.strip_prefix('/').filter(|path| is_plain(path)) {
        None => Err(format!("\"{text}\" is not a plain path such as \"/hub\"")),
        // Topics of sets that advertise none are named below it (R9).
        Some(path) if path.starts_with("topics/") || !path.split('/').all(is_segment) => Err(
            format!("\"{text}\" cannot be the hub's path: write one such as \"/hub\""),
        ),
        Some(_) => Ok(()),
    }
}

/// Checks an address, which is kept byte for byte. The path is where requests are taken.
pub fn check_url(text: &str) -> Result<(), String> {
    check_uri(text)?;
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err("credentials do not belong into the URI of a hub".to_owned());
    }
    if !is_plain(path) || !path.trim_end_matches('/').split('/').all(is_segment) {
        return Err(format!(
            "\"{text}\" has no plain path: write one such as \"https://hub.example.org/hub\""
        ));
    }
    Ok(())
}

fn is_plain(path: &str) -> bool {
    !path.is_empty() && path.is_ascii() && has_valid_chars(path) && !path.contains(['?', '#', '%'])
}

fn is_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..")
}
