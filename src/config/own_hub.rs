//! `[hub]`: the hub of `rsnotify hub`, which serves many Sources.

use std::time::Duration;

use resourcesync::uri::{Hub, Uri, is_clean};
use url::Url;

use crate::config::definition::Fallback::{Default, Described, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::duration;
use crate::config::effective::{Page, bytes, quoted};
use crate::config::form::{POSITIVE_DURATION, integer, size, text};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::section::Section;
use crate::config::subscribers::{SubscriberKeys, SubscriberSettings};
use crate::config::web_uri;

pub static OWN_HUB: Definition = Definition::table(
    "hub",
    Kind::Table(&[
        &URL.definition,
        &MAX_BODY.definition,
        &TOPIC_TTL.definition,
        &MAX_PUBLICATIONS_PER_MINUTE.definition,
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
    "The hub of `rsnotify hub`.",
);

static URL: ConfigKey<String> = ConfigKey::new(
    "hub",
    "url",
    ValueForm {
        kind: Kind::Text(&TextKind::matching(r#"^[Hh][Tt][Tt][Pp][Ss]?://[^?#\s<>"]+$"#)),
        read: |loader, key, value| text(loader, key, &value, address),
    },
    Required,
    "URI of the hub, exactly as topics and Capability Lists advertise it. Subscriptions and publications are posted to \
     its path.",
)
.more("The web server in front passes the path on unchanged.")
.example(Example::Value("\"https://hub.example.org/hub\""));

static MAX_BODY: ConfigKey<u32> = ConfigKey::new(
    "hub",
    "max_body",
    size(64 << 20),
    Default("\"2MiB\""),
    "Maximum size of a notification that is published, or fetched for a ping: a number of bytes, or with a unit, such as \
     `\"2MiB\"` or `\"512KiB\"`.",
);

static TOPIC_TTL: ConfigKey<Duration> = ConfigKey::new(
    "hub",
    "topic_ttl",
    POSITIVE_DURATION,
    Default("\"90d\""),
    "Time after which a topic that nobody publishes, and that has no subscribers, is forgotten.",
);

static MAX_PUBLICATIONS_PER_MINUTE: ConfigKey<u32> = ConfigKey::new(
    "hub",
    "max_publications_per_minute",
    integer(u32::MAX),
    Described("as `max_requests_per_minute`"),
    "Rate limit for the publications of one publisher. A burst may have the same number.",
)
.example(Example::Comment("600"));

static SUBSCRIBERS: SubscriberKeys = SubscriberKeys::of("hub");

/// The hub of `rsnotify hub`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnHubSettings {
    /// As advertised, byte for byte.
    pub url: Hub,
    /// Maximum size of a notification, in bytes.
    pub max_body: usize,
    pub topic_ttl: Duration,
    pub max_publications_per_minute: u32,
    pub subscribers: SubscriberSettings,
}

impl OwnHubSettings {
    /// Returns the URL of the server that the hub's URL names, which ends in `/`.
    pub fn origin(&self) -> Option<Uri> {
        origin(self.url.as_str())
    }
}

/// Returns the origin of a URL, as a prefix.
pub fn origin(url: &str) -> Option<Uri> {
    let url = Url::parse(url).ok()?;
    Uri::parse(&format!("{}/", url.origin().ascii_serialization())).ok()
}

/// Reads `[hub]`; nothing without a valid URL, which is reported.
pub fn own_hub(section: &mut Section<'_, '_, '_>) -> Option<OwnHubSettings> {
    let url = section.required(&URL);
    let max_body = section.value(&MAX_BODY);
    let topic_ttl = section.value(&TOPIC_TTL);
    let publications = section.given(&MAX_PUBLICATIONS_PER_MINUTE);
    let subscribers = SUBSCRIBERS.read(section, false);
    let usual = subscribers.limits.requests_per_minute;
    Some(OwnHubSettings {
        url: Hub::new(url?.value),
        max_body: usize::try_from(max_body).unwrap_or(usize::MAX),
        topic_ttl,
        max_publications_per_minute: publications.map_or(usual, |given| given.value),
        subscribers,
    })
}

/// Returns an address, byte for byte. The path is where requests are taken.
fn address(text: &str) -> Result<String, String> {
    web_uri::parse(text).map_err(|error| error.to_string())?;
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err("credentials do not belong into the URI of a hub".to_owned());
    }
    let is_segment = |segment: &str| !matches!(segment, "" | "." | "..");
    let is_plain = path.is_ascii() && is_clean(path) && !path.contains(['?', '#', '%']);
    if path.is_empty() || !is_plain || !path.trim_end_matches('/').split('/').all(is_segment) {
        return Err(format!(
            "\"{text}\" has no plain path: write one such as \"https://hub.example.org/hub\""
        ));
    }
    Ok(text.to_owned())
}

/// Writes `[hub]`.
pub fn effective(page: &mut Page<'_>, hub: &OwnHubSettings) {
    // A field that is added cannot be forgotten here.
    let OwnHubSettings {
        url,
        max_body,
        topic_ttl,
        max_publications_per_minute,
        subscribers:
            SubscriberSettings {
                callbacks,
                limits,
                trusted_proxies,
            },
    } = hub;
    page.key(&URL.definition, quoted(url));
    page.key(&MAX_BODY.definition, bytes(*max_body as u64));
    page.key(&TOPIC_TTL.definition, quoted(duration::display(*topic_ttl)));
    page.key(
        &MAX_PUBLICATIONS_PER_MINUTE.definition,
        max_publications_per_minute,
    );
    SUBSCRIBERS.effective(page, callbacks, limits, trusted_proxies);
}
