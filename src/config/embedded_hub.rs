//! Our own hub, in this process.

use crate::config::network::Network;
use crate::config::raw;
use crate::config::reading::{Given, Origin, Reading, in_file};
use crate::resourcesync::uri::{Hub, Uri, is_clean};

/// The embedded hub, when it is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedHub {
    /// Its path below the public URL, without the leading `/`; never empty.
    pub path: String,
    /// Where callbacks may lie besides public addresses.
    pub allow_callback_networks: Vec<Network>,
    /// Whose `Forwarded` and `X-Forwarded-For` headers are believed.
    pub trusted_proxies: Vec<Network>,
}

impl EmbeddedHub {
    /// Its URI, as it is advertised.
    pub fn hub(&self, public_url: &Uri) -> Hub {
        Hub::new(format!("{public_url}{}", self.path))
    }
}

/// Checks `[embedded_hub]`, which is enabled exactly when there is no other hub, unless it says otherwise.
pub fn embedded_hub(
    reading: &mut Reading<'_>,
    raw: raw::EmbeddedHub,
    has_hubs: bool,
) -> Option<EmbeddedHub> {
    let enabled = raw.enabled.map(in_file);
    let path = raw.path.map(in_file).unwrap_or(Given {
        value: "/hub".to_owned(),
        origin: Origin::Absent,
    });
    let path = reading.checked("embedded_hub.path", &path, checked_path);
    for (key, list) in [
        (
            "embedded_hub.allow_callback_networks",
            &raw.allow_callback_networks,
        ),
        ("embedded_hub.trusted_proxies", &raw.trusted_proxies),
    ] {
        if let Some(first) = list.first() {
            let message =
                "it has no effect yet: this hub takes callbacks on loopback only; leave it out";
            reading.report(Origin::File(first.span().start), key, message);
        }
    }
    let allow_callback_networks = networks(
        reading,
        "embedded_hub.allow_callback_networks",
        raw.allow_callback_networks,
    );
    let trusted_proxies = networks(reading, "embedded_hub.trusted_proxies", raw.trusted_proxies);
    let is_enabled = enabled.as_ref().map_or(!has_hubs, |enabled| enabled.value);
    if let (false, false, Some(enabled)) = (is_enabled, has_hubs, &enabled) {
        let message = "no hub is left to tell: add a [[hub]], or leave this one enabled";
        reading.report(enabled.origin, "embedded_hub.enabled", message);
    }
    is_enabled.then_some(EmbeddedHub {
        path: path?,
        allow_callback_networks,
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
