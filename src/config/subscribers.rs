//! Keys of both hubs, the embedded one and `rsnotify hub`, about their subscribers: callbacks, proxies and limits.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use websub::hub::callback::CallbackPolicy;
use websub::hub::limits::HubLimits;
use websub::hub::network;

use crate::config::definition::Fallback::Default;
use crate::config::definition::{Kind, TextKind};
use crate::config::effective::{Page, bytes, list};
use crate::config::form::{self, BOOLEAN, integer, size};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::section::Section;

/// The keys, in the table of one hub.
#[derive(Debug)]
pub struct SubscriberKeys {
    pub https_callbacks_only: ConfigKey<bool>,
    pub callback_ports: ConfigKey<Vec<RangeInclusive<u16>>>,
    pub allow_callback_networks: ConfigKey<Vec<IpNet>>,
    pub trusted_proxies: ConfigKey<Vec<IpNet>>,
    pub max_subscriptions: ConfigKey<u32>,
    pub max_subscriptions_per_host: ConfigKey<u32>,
    pub max_subscriptions_per_address: ConfigKey<u32>,
    pub max_requests_per_minute: ConfigKey<u32>,
    pub max_backlog: ConfigKey<u32>,
}

/// The values of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberSettings {
    pub callbacks: CallbackPolicy,
    pub limits: HubLimits,
    /// The proxies whose `Forwarded` and `X-Forwarded-For` headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
}

const PORTS: ValueForm<Vec<RangeInclusive<u16>>> = ValueForm {
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
};

const NETWORKS: ValueForm<Vec<IpNet>> = ValueForm {
    kind: Kind::List {
        item: &TextKind::matching("^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"),
        may_be_empty: true,
    },
    read: |loader, key, value| Some(form::list(loader, key, value, network::parse)),
};

impl SubscriberKeys {
    /// Returns the keys of a table.
    pub const fn of(table: &'static str) -> SubscriberKeys {
        SubscriberKeys {
            https_callbacks_only: ConfigKey::new(
                table,
                "https_callbacks_only",
                BOOLEAN,
                Default("false"),
                "Refuse callbacks that are not `https`.",
            ),
            callback_ports: ConfigKey::new(
                table,
                "callback_ports",
                PORTS,
                Default("[\"80\", \"443\", \"8000-9999\"]"),
                "Ports that callbacks may have: single ones and ranges.",
            ),
            allow_callback_networks: ConfigKey::new(
                table,
                "allow_callback_networks",
                NETWORKS,
                Default("[]"),
                "Networks, such as `\"10.0.0.0/8\"`, in which callbacks may be although they are not public.",
            )
            .more(
                "For subscribers on this host, such as `rsnotify listen`: `[\"127.0.0.0/8\", \"::1\"]`, and all \
                 `callback_ports`.",
            ),
            trusted_proxies: ConfigKey::new(
                table,
                "trusted_proxies",
                NETWORKS,
                Default("[]"),
                "Proxies, such as `\"127.0.0.1\"`, whose `Forwarded` or `X-Forwarded-For` is trusted. A proxy in \
                 front must be named here, or all subscribers count as one address.",
            )
            .more("Every client on a Unix socket is trusted."),
            max_subscriptions: ConfigKey::new(
                table,
                "max_subscriptions",
                integer(u32::MAX),
                Default("100000"),
                "Maximum number of subscriptions.",
            ),
            max_subscriptions_per_host: ConfigKey::new(
                table,
                "max_subscriptions_per_host",
                integer(u32::MAX),
                Default("1000"),
                "Maximum number of subscriptions with callbacks on one host: a name, an IPv4 address, or an IPv6 /64.",
            ),
            max_subscriptions_per_address: ConfigKey::new(
                table,
                "max_subscriptions_per_address",
                integer(u32::MAX),
                Default("1000"),
                "Maximum number of subscriptions requested from one address, an IPv6 /64 counting as one.",
            )
            .more("The address is not saved, so that this counts from the start of rsnotify."),
            max_requests_per_minute: ConfigKey::new(
                table,
                "max_requests_per_minute",
                integer(u32::MAX),
                Default("300"),
                "Rate limit for requests from one address, and for verifications at one host.",
            )
            .more(
                "A host is a callback's name, and also the address that it stands for. The burst, \
                 and the number of requests in flight, are limited to the same number. An IPv6 address counts as its /64, its /56 with twice as many, and its /48 \
                 with four times as many.",
            ),
            max_backlog: ConfigKey::new(
                table,
                "max_backlog",
                size(u32::MAX),
                Default("\"1GiB\""),
                "Maximum size of the notifications in the state file that subscribers have not received yet, of all \
                 topics together. Beyond it, the subscription that is owed most ends.",
            )
            .more(
                "Its subscriber is informed (`hub.mode=denied`). A subscription that is owed only the last \
                 notification of its topic does not end.",
            ),
        }
    }

    /// Reads the keys. In a trial on this machine, callbacks may be on loopback.
    pub fn read(&self, section: &mut Section<'_, '_, '_>, is_trial: bool) -> SubscriberSettings {
        let callbacks = self.callbacks(section, is_trial);
        let limits = self.limits(section);
        SubscriberSettings {
            callbacks,
            limits,
            trusted_proxies: section.value(&self.trusted_proxies),
        }
    }

    fn callbacks(&self, section: &mut Section<'_, '_, '_>, is_trial: bool) -> CallbackPolicy {
        let trial = is_trial.then(CallbackPolicy::on_this_machine);
        let (ports, mut allowed) = match trial {
            Some(policy) => (Some(policy.ports), policy.allowed),
            None => (None, Vec::new()),
        };
        allowed.extend(section.value(&self.allow_callback_networks));
        CallbackPolicy {
            https_only: section.value(&self.https_callbacks_only),
            ports: ports.unwrap_or_else(|| section.value(&self.callback_ports)),
            allowed,
        }
    }

    fn limits(&self, section: &mut Section<'_, '_, '_>) -> HubLimits {
        let mut limits = HubLimits::default();
        limits.subscriptions.in_all = section.value(&self.max_subscriptions);
        limits.subscriptions.per_host = section.value(&self.max_subscriptions_per_host);
        limits.subscriptions.per_address = section.value(&self.max_subscriptions_per_address);
        limits.set_requests_per_minute(section.value(&self.max_requests_per_minute));
        limits.backlog_bytes = section.value(&self.max_backlog).into();
        limits
    }

    /// Writes the keys.
    pub fn effective(
        &self,
        page: &mut Page<'_>,
        callbacks: &CallbackPolicy,
        limits: &HubLimits,
        trusted_proxies: &[IpNet],
    ) {
        page.key(&self.https_callbacks_only.definition, callbacks.https_only);
        let ports = callbacks.ports.iter().map(|ports| match ports {
            ports if ports.start() == ports.end() => ports.start().to_string(),
            ports => format!("{}-{}", ports.start(), ports.end()),
        });
        page.key(&self.callback_ports.definition, list(ports));
        page.key(
            &self.allow_callback_networks.definition,
            list(&callbacks.allowed),
        );
        page.key(&self.trusted_proxies.definition, list(trusted_proxies));
        let subscriptions = limits.subscriptions;
        for (key, value) in [
            (&self.max_subscriptions, subscriptions.in_all),
            (&self.max_subscriptions_per_host, subscriptions.per_host),
            (
                &self.max_subscriptions_per_address,
                subscriptions.per_address,
            ),
            (&self.max_requests_per_minute, limits.requests_per_minute),
        ] {
            page.key(&key.definition, value);
        }
        page.key(&self.max_backlog.definition, bytes(limits.backlog_bytes));
    }
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
