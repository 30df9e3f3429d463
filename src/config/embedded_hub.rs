//! Our own hub, in this process.

use std::ops::RangeInclusive;

use crate::config::raw;
use crate::config::reading::{Given, Origin, Reading, in_file};
use crate::hub::callback::CallbackPolicy;
use crate::hub::limits::Limits;
use crate::hub::network::Network;
use crate::resourcesync::uri::{Hub, Uri, is_clean};

/// The embedded hub, when it is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedHub {
    /// Its path below the public URL, without the leading `/`; never empty.
    pub path: String,
    pub callbacks: CallbackPolicy,
    pub limits: Limits,
    /// Whose `Forwarded` and `X-Forwarded-For` headers are believed.
    pub trusted_proxies: Vec<Network>,
}

impl EmbeddedHub {
    /// Its URI, as it is advertised.
    pub fn hub(&self, public_url: &Uri) -> Hub {
        Hub::new(format!("{public_url}{}", self.path))
    }
}

/// What the hub's defaults depend on.
#[derive(Debug)]
pub struct Others {
    /// Whether there are hubs outside this process.
    pub has_hubs: bool,
    /// Whether this is a trial on this machine, without a file.
    pub is_trial: bool,
}

/// Checks `[embedded_hub]`, which is enabled exactly when there is no other hub, unless it says otherwise.
pub fn embedded_hub(
    reading: &mut Reading<'_>,
    raw: raw::EmbeddedHub,
    others: &Others,
) -> Option<EmbeddedHub> {
    let enabled = raw.enabled.map(in_file);
    let path = raw.path.map(in_file).unwrap_or(Given {
        value: "/hub".to_owned(),
        origin: Origin::Absent,
    });
    let path = reading.checked("embedded_hub.path", &path, checked_path);
    let usual = match others.is_trial {
        true => CallbackPolicy::on_this_machine(),
        false => CallbackPolicy::default(),
    };
    let mut callbacks = CallbackPolicy {
        https_only: raw.https_callbacks_only.unwrap_or(usual.https_only),
        ports: ports(reading, raw.callback_ports).unwrap_or(usual.ports),
        allowed: usual.allowed,
    };
    callbacks.allowed.extend(networks(
        reading,
        "embedded_hub.allow_callback_networks",
        raw.allow_callback_networks,
    ));
    let trusted_proxies = networks(reading, "embedded_hub.trusted_proxies", raw.trusted_proxies);
    let mut limits = Limits::default();
    let subscriptions = &mut limits.subscriptions;
    for (key, written, most) in [
        (
            "max_subscriptions",
            raw.max_subscriptions,
            &mut subscriptions.in_all,
        ),
        (
            "max_subscriptions_per_host",
            raw.max_subscriptions_per_host,
            &mut subscriptions.per_host,
        ),
        (
            "max_subscriptions_per_address",
            raw.max_subscriptions_per_address,
            &mut subscriptions.per_address,
        ),
    ] {
        *most = maximum(reading, key, written).unwrap_or(*most);
    }
    let key = "max_requests_per_minute";
    if let Some(requests) = maximum(reading, key, raw.max_requests_per_minute) {
        limits.set_requests_per_minute(requests);
    }
    let is_enabled = enabled
        .as_ref()
        .map_or(!others.has_hubs, |enabled| enabled.value);
    if let (false, false, Some(enabled)) = (is_enabled, others.has_hubs, &enabled) {
        let message = "no hub is left to tell: add a [[hub]], or leave this one enabled";
        reading.report_absence(&["hub"], enabled.origin, "embedded_hub.enabled", message);
    }
    is_enabled.then_some(EmbeddedHub {
        path: path?,
        callbacks,
        limits,
        trusted_proxies,
    })
}
fn checked_path(text: &str) -> Result<String, String> {
    let path = text
        .strip_prefix('/')
        .filter(|path| {
            !path.is_empty() && is_clean(path) && path.is_ascii() && !path.contains(['?', '#', '%'])
        })
        .ok_or_else(|| format!("\"{text}\" is not a plain path such as \"/hub\""))?;
    // Topics of sets that advertise none are named below it (R9).
    if path.starts_with("topics/")
        || path
            .split('/')
            .any(|segment| matches!(segment, "" | "." | ".."))
    {
        return Err(format!(
            "\"{text}\" cannot be the hub's path: write one such as \"/hub\""
        ));
    }
    Ok(path.to_owned())
}

fn networks(
    reading: &mut Reading<'_>,
    key: &str,
    written: Vec<toml::Spanned<String>>,
) -> Vec<Network> {
    written
        .into_iter()
        .map(in_file)
        .filter_map(|given| reading.checked(key, &given, Network::parse))
        .collect()
}

fn ports(
    reading: &mut Reading<'_>,
    written: raw::Written<Vec<toml::Spanned<String>>>,
) -> Option<Vec<RangeInclusive<u16>>> {
    let key = "embedded_hub.callback_ports";
    let Given { value, origin } = in_file(written?);
    if value.is_empty() {
        reading.report(origin, key, "no callback has a port of an empty list");
    }
    let given = value.into_iter().map(in_file);
    let ports = given.filter_map(|given| reading.checked(key, &given, checked_ports));
    Some(ports.collect())
}

fn checked_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |digits: &str| {
        let port = digits.parse().ok().filter(|port: &u16| *port > 0);
        port.filter(|_| !digits.starts_with('+'))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    port(first)
        .zip(port(last))
        .map(|(first, last)| first..=last)
        .filter(|ports| !ports.is_empty())
        .ok_or_else(|| format!("\"{text}\" is no port and no range such as \"8000-9999\""))
}

fn maximum(reading: &mut Reading<'_>, key: &str, written: raw::Written<i64>) -> Option<u32> {
    let Given { value, origin } = in_file(written?);
    let maximum = u32::try_from(value).ok().filter(|maximum| *maximum > 0);
    if maximum.is_none() {
        let message = format!("{value} is not between 1 and {}", u32::MAX);
        reading.report(origin, &format!("embedded_hub.{key}"), message);
    }
    maximum
}
