//! `[embedded_hub]`: the hub in this process.

use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::config::definition::Fallback::{Default, Described};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::effective::{Page, list, quoted};
use crate::config::form::{self, BOOLEAN, integer, text};
use crate::config::hub::HUB;
use crate::config::key::{ConfigKey, Form};
use crate::config::section::Section;
use crate::hub::callback::CallbackPolicy;
use crate::hub::limits::HubLimits;
use crate::hub::network;
use crate::resourcesync::uri::{Hub, Uri, is_clean};

pub static EMBEDDED_HUB: Definition = Definition::table(
    "embedded_hub",
    Kind::Table(&[
        &ENABLED.definition,
        &PATH.definition,
        &HTTPS_CALLBACKS_ONLY.definition,
        &CALLBACK_PORTS.definition,
        &ALLOW_CALLBACK_NETWORKS.definition,
        &TRUSTED_PROXIES.definition,
        &MAX_SUBSCRIPTIONS.definition,
        &MAX_SUBSCRIPTIONS_PER_HOST.definition,
        &MAX_SUBSCRIPTIONS_PER_ADDRESS.definition,
        &MAX_REQUESTS_PER_MINUTE.definition,
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
    Form {
        kind: Kind::Text(&TextKind::matching(r"^/[^?#%\s]+$")),
        read: |loader, key, value| text(loader, key, &value, checked_path),
    },
    Default("\"/hub\""),
    "Path of the hub below `public_url`.",
);

static HTTPS_CALLBACKS_ONLY: ConfigKey<bool> = ConfigKey::new(
    "embedded_hub",
    "https_callbacks_only",
    BOOLEAN,
    Default("false"),
    "Refuse callbacks that are not `https`.",
);

static CALLBACK_PORTS: ConfigKey<Vec<RangeInclusive<u16>>> = ConfigKey::new(
    "embedded_hub",
    "callback_ports",
    Form {
        kind: Kind::List {
            item: &TextKind::matching("^[0-9]+(-[0-9]+)?$"),
            may_be_empty: false,
        },
        read: |loader, key, value| {
            let is_empty = value.value.as_array().is_some_and(|items| items.is_empty());
            if is_empty {
                let message = "no callback has a port of an empty list";
                loader.report(value.origin, key, message);
            }
            Some(form::list(loader, key, value, checked_ports))
        },
    },
    Default("[\"80\", \"443\", \"8000-9999\"]"),
    "Ports that callbacks may have: single ones and ranges.",
);

const NETWORKS: Form<Vec<IpNet>> = Form {
    kind: Kind::List {
        item: &TextKind::matching("^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"),
        may_be_empty: true,
    },
    read: |loader, key, value| Some(form::list(loader, key, value, network::parse)),
};

static ALLOW_CALLBACK_NETWORKS: ConfigKey<Vec<IpNet>> = ConfigKey::new(
    "embedded_hub",
    "allow_callback_networks",
    NETWORKS,
    Default("[]"),
    "Networks, such as `\"10.0.0.0/8\"`, in which callbacks may be although they are not public.",
)
.more(
    "For subscribers on this host, such as `rsnotify listen`: `[\"127.0.0.0/8\", \"::1\"]`, and all `callback_ports`.",
);

static TRUSTED_PROXIES: ConfigKey<Vec<IpNet>> = ConfigKey::new(
    "embedded_hub",
    "trusted_proxies",
    NETWORKS,
    Default("[]"),
    "Proxies, such as `\"127.0.0.1\"`, whose `Forwarded` or `X-Forwarded-For` is believed. A proxy in front must be \
     named here, or all subscribers count as one address.",
)
.more("Every client on a Unix socket is believed.");

static MAX_SUBSCRIPTIONS: ConfigKey<u32> = ConfigKey::new(
    "embedded_hub",
    "max_subscriptions",
    integer(u32::MAX),
    Default("100000"),
    "Maximum number of subscriptions.",
);

static MAX_SUBSCRIPTIONS_PER_HOST: ConfigKey<u32> = ConfigKey::new(
    "embedded_hub",
    "max_subscriptions_per_host",
    integer(u32::MAX),
    Default("1000"),
    "Maximum number of subscriptions with callbacks on one host: a name, an IPv4 address, or an IPv6 /64.",
);

static MAX_SUBSCRIPTIONS_PER_ADDRESS: ConfigKey<u32> = ConfigKey::new(
    "embedded_hub",
    "max_subscriptions_per_address",
    integer(u32::MAX),
    Default("1000"),
    "Maximum number of subscriptions requested from one address, an IPv6 /64 counting as one.",
)
.more("The address is not saved, so that this counts from the start of rsnotify.");

static MAX_REQUESTS_PER_MINUTE: ConfigKey<u32> = ConfigKey::new(
    "embedded_hub",
    "max_requests_per_minute",
    integer(u32::MAX),
    Default("300"),
    "Rate limit for requests from one address, and for verifications at one host.",
)
.more(
    "A host is a callback's name, and also the address that it stands for. As many requests may come at once, and be in \
     flight. An IPv6 address counts as its /64, its /56 with twice as many, and its /48 with four times as many.",
);

/// The embedded hub, when it is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedHubSettings {
    /// Its path below the public URL, without the leading `/`; never empty.
    pub path: String,
    pub callbacks: CallbackPolicy,
    pub limits: HubLimits,
    /// The proxies whose `Forwarded` and `X-Forwarded-For` headers are believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl EmbeddedHubSettings {
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
) -> Option<EmbeddedHubSettings> {
    let Circumstances { has_hubs, is_trial } = *circumstances;
    let enabled = section.given(&ENABLED);
    let is_enabled = enabled.as_ref().map_or(!has_hubs, |enabled| enabled.value);
    if let (false, false, Some(enabled)) = (is_enabled, has_hubs, &enabled) {
        let message = "no hub is left to tell: add a [[hub]], or leave this one enabled";
        let loader = &mut section.loader;
        loader.report_absence(&[HUB.name], enabled.origin, &ENABLED.definition, message);
    }
    let settings = EmbeddedHubSettings {
        path: section.value(&PATH),
        callbacks: callbacks(section, is_trial),
        limits: limits(section),
        trusted_proxies: section.value(&TRUSTED_PROXIES),
    };
    is_enabled.then_some(settings)
}

fn callbacks(section: &mut Section<'_, '_, '_>, is_trial: bool) -> CallbackPolicy {
    let trial = is_trial.then(CallbackPolicy::on_this_machine);
    let (ports, mut allowed) = match trial {
        Some(policy) => (Some(policy.ports), policy.allowed),
        None => (None, Vec::new()),
    };
    allowed.extend(section.value(&ALLOW_CALLBACK_NETWORKS));
    CallbackPolicy {
        https_only: section.value(&HTTPS_CALLBACKS_ONLY),
        ports: ports.unwrap_or_else(|| section.value(&CALLBACK_PORTS)),
        allowed,
    }
}

fn limits(section: &mut Section<'_, '_, '_>) -> HubLimits {
    let mut limits = HubLimits::default();
    limits.subscriptions.in_all = section.value(&MAX_SUBSCRIPTIONS);
    limits.subscriptions.per_host = section.value(&MAX_SUBSCRIPTIONS_PER_HOST);
    limits.subscriptions.per_address = section.value(&MAX_SUBSCRIPTIONS_PER_ADDRESS);
    limits.set_requests_per_minute(section.value(&MAX_REQUESTS_PER_MINUTE));
    limits
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

/// Writes `[embedded_hub]`.
pub fn effective(page: &mut Page<'_>, hub: Option<&EmbeddedHubSettings>) {
    page.key(&ENABLED.definition, hub.is_some());
    let Some(hub) = hub else {
        return;
    };
    // A field that is added cannot be forgotten here.
    let EmbeddedHubSettings {
        path,
        callbacks,
        limits,
        trusted_proxies,
    } = hub;
    page.key(&PATH.definition, quoted(format_args!("/{path}")));
    page.key(&HTTPS_CALLBACKS_ONLY.definition, callbacks.https_only);
    let ports = callbacks.ports.iter().map(|ports| match ports {
        ports if ports.start() == ports.end() => ports.start().to_string(),
        ports => format!("{}-{}", ports.start(), ports.end()),
    });
    page.key(&CALLBACK_PORTS.definition, list(ports));
    page.key(
        &ALLOW_CALLBACK_NETWORKS.definition,
        list(&callbacks.allowed),
    );
    page.key(&TRUSTED_PROXIES.definition, list(trusted_proxies));
    let subscriptions = limits.subscriptions;
    for (key, value) in [
        (&MAX_SUBSCRIPTIONS, subscriptions.in_all),
        (&MAX_SUBSCRIPTIONS_PER_HOST, subscriptions.per_host),
        (&MAX_SUBSCRIPTIONS_PER_ADDRESS, subscriptions.per_address),
        (&MAX_REQUESTS_PER_MINUTE, limits.requests_per_minute),
    ] {
        page.key(&key.definition, value);
    }
}
