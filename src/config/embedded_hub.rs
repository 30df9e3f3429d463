//! `[embedded_hub]`: the hub in this process.

use ipnet::IpNet;
use resourcesync::uri::{Hub, Uri, is_clean};
use websub::hub::callback::CallbackPolicy;
use websub::hub::limits::HubLimits;

use crate::config::definition::Fallback::{Default, Described};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::effective::{Page, quoted};
use crate::config::form::{BOOLEAN, text};
use crate::config::hub::HUB;
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::section::Section;
use crate::config::subscribers::{SubscriberKeys, SubscriberSettings};

pub static EMBEDDED_HUB: Definition = Definition::table(
    "embedded_hub",
    Kind::Table(&[
        &ENABLED.definition,
        &PATH.definition,
        &SUBSCRIBERS.https_callbacks_only.definition,
        &SUBSCRIBERS.callback_ports.definition,
        &SUBSCRIBERS.allow_callback_networks.definition,
        &SUBSCRIBERS.trusted_proxies.definition,
        &SUBSCRIBERS.max_subscriptions.definition,
        &SUBSCRIBERS.max_subscriptions_per_host.definition,
        &SUBSCRIBERS.max_subscriptions_per_address.definition,
        &SUBSCRIBERS.max_requests_per_minute.definition,
        &SUBSCRIBERS.max_backlog.definition,
    ]),
    "Hub in this process.",
);

static ENABLED: ConfigKey<bool> = ConfigKey::new(
    "embedded_hub",
    "enabled",
    BOOLEAN,
    Described("`true` exactly when there is no `[[hub]]`"),
    "Run a hub in this process. Without this key there is one exactly when there is no `[[hub]]`.",
)
.example(Example::Comment("true"));

static PATH: ConfigKey<String> = ConfigKey::new(
    "embedded_hub",
    "path",
    ValueForm {
        kind: Kind::Text(&TextKind::matching(r"^/[^?#%\s]+$")),
        read: |loader, key, value| text(loader, key, &value, checked_path),
    },
    Default("\"/hub\""),
    "Path of the hub below `public_url`.",
);

static SUBSCRIBERS: SubscriberKeys = SubscriberKeys::of("embedded_hub");

/// The embedded hub, when it is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedHubConfig {
    /// Its path below the public URL, without the leading `/`; never empty.
    pub path: String,
    pub callbacks: CallbackPolicy,
    pub limits: HubLimits,
    /// The proxies whose `Forwarded` and `X-Forwarded-For` headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
}

impl EmbeddedHubConfig {
    /// Returns its URI, as it is advertised.
    pub fn hub(&self, public_url: &Uri) -> Hub {
        Hub::new(format!("{public_url}{}", self.path))
    }
}

/// Circumstances that the hub's defaults depend on.
#[derive(Debug)]
pub struct Circumstances {
    /// True if there are hubs outside this process.
    pub has_hubs: bool,
    /// True if this is a trial on this machine, without a file.
    pub is_trial: bool,
}

/// Reads `[embedded_hub]`, which is enabled exactly when there is no other hub, unless it says otherwise.
pub fn embedded_hub(
    section: &mut Section<'_, '_, '_>,
    circumstances: &Circumstances,
) -> Option<EmbeddedHubConfig> {
    let Circumstances { has_hubs, is_trial } = *circumstances;
    let enabled = section.given(&ENABLED);
    let is_enabled = enabled.as_ref().map_or(!has_hubs, |enabled| enabled.value);
    if let (false, false, Some(enabled)) = (is_enabled, has_hubs, &enabled) {
        let message = "no hub is left to notify: add a [[hub]], or leave this one enabled";
        let loader = &mut section.loader;
        loader.report_absence(&[HUB.name], enabled.origin, &ENABLED.definition, message);
    }
    let path = section.value(&PATH);
    let SubscriberSettings {
        callbacks,
        limits,
        trusted_proxies,
    } = SUBSCRIBERS.read(section, is_trial);
    let settings = EmbeddedHubConfig {
        path,
        callbacks,
        limits,
        trusted_proxies,
    };
    is_enabled.then_some(settings)
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

/// Writes `[embedded_hub]`.
pub fn effective(page: &mut Page<'_>, hub: Option<&EmbeddedHubConfig>) {
    page.key(&ENABLED.definition, hub.is_some());
    let Some(hub) = hub else {
        return;
    };
    // A field that is added cannot be forgotten here.
    let EmbeddedHubConfig {
        path,
        callbacks,
        limits,
        trusted_proxies,
    } = hub;
    page.key(&PATH.definition, quoted(format_args!("/{path}")));
    SUBSCRIBERS.effective(page, callbacks, limits, trusted_proxies);
}
