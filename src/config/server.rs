//! `[server]` and `[log]`, which both daemons have: the listeners, the URL under which the public one is reached, and the
//! lines on standard error.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use resourcesync::uri::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use url::{Host, Url};

use crate::config::file::{Checked, ConfigTree};
use crate::config::text::{Address, AsText, seconds, with_slash};

/// The two listeners and the times that belong to them.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Address on which topics and the hub are served: an IP address and a port (0 takes a free one), or
    /// `"unix:/path"`, which needs `public_url`.
    #[default(AsText(Address::Tcp(([127, 0, 0, 1], 8400).into())))]
    pub listen: AsText<Address>,
    /// Public URL of the listener for topics and the hub.
    ///
    /// The web server in front passes path and query on unchanged.
    #[schemars(with = "Option<String>", extend("x-form" = "prefix", "x-default" = "`http://LISTEN/`"))]
    #[schemars(example = "https://example.org/", extend("x-shown" = "run"))]
    pub public_url: Option<Uri>,
    /// Address on which health, metrics and status (`/healthz`, `/readyz`, `/metrics`, `/status.json`) are served.
    ///
    /// Keep it private.
    #[default(AsText(Address::Tcp(([127, 0, 0, 1], 8401).into())))]
    pub admin_listen: AsText<Address>,
    /// Time for which the topic of a channel that has ended is still served.
    #[schemars(extend("x-daemon" = "run"))]
    #[default(seconds(30 * 24 * 3_600))]
    pub retired_topic: AsText<Duration>,
}

impl ServerSettings {
    /// Returns the URL of the public listener: as configured, else `http://LISTEN/` with the port it got.
    pub fn public_url_at(&self, mut bound: SocketAddr) -> Uri {
        // Which interface it is means nothing elsewhere, and stands in no URI.
        if let SocketAddr::V6(address) = &mut bound {
            address.set_scope_id(0);
        }
        self.public_url.clone().unwrap_or_else(|| {
            let default = Uri::parse(&format!("http://{bound}/"));
            default.expect("a socket address is a URI's authority")
        })
    }

    /// Returns true if no other machine can reach it, as far as addresses tell: both listeners are on loopback, and so
    /// is the public URL.
    pub fn is_local_only(&self) -> bool {
        let is_here = |uri: &Uri| match Url::parse(uri.as_str()).as_ref().map(Url::host) {
            Ok(Some(Host::Ipv4(address))) => address.is_loopback(),
            Ok(Some(Host::Ipv6(address))) => address.is_loopback(),
            Ok(Some(Host::Domain(name))) => name == "localhost",
            Ok(None) | Err(_) => false,
        };
        self.listen.0.is_loopback()
            && self.admin_listen.0.is_loopback()
            && self.public_url.as_ref().is_none_or(is_here)
    }

    /// Returns the URL of the public listener, as far as it is known before the listener is bound.
    pub fn known_public_url(&self) -> Option<Uri> {
        match self.listen.0.tcp() {
            Some(tcp) if tcp.port() != 0 => Some(self.public_url_at(tcp)),
            _ => self.public_url.clone(),
        }
    }

    /// Makes paths absolute, and checks how the listeners are reached.
    pub(crate) fn check(&mut self, file: &ConfigTree<'_>) -> Checked {
        for (key, address) in [
            ("server.listen", &mut self.listen.0),
            ("server.admin_listen", &mut self.admin_listen.0),
        ] {
            if let Address::Unix(path) = address {
                *path = file.absolute(key, path)?;
            }
        }
        self.public_url = self.public_url.take().map(with_slash);
        let (listen, has_url) = (&self.listen.0, self.public_url.is_some());
        let tcp = listen.tcp();
        // Such as `[fe80::1%2]:8400`, of one link only.
        let has_scope = |tcp| matches!(tcp, SocketAddr::V6(v6) if v6.scope_id() != 0);
        let is_nowhere = tcp.is_some_and(|tcp| tcp.ip().is_unspecified() || has_scope(tcp));
        let takes_a_free_port = tcp.is_some_and(|tcp| tcp.port() == 0);
        let table = file.table("server");
        let message = "a Unix socket says nothing about how it is reached: set public_url too";
        table.refuse_if(!has_url && tcp.is_none(), "listen", message)?;
        let message = format_args!("nobody can reach {listen} under that name: set public_url too");
        table.refuse_if(!has_url && is_nowhere, "listen", message)?;
        let is_public = *listen == self.admin_listen.0 && !takes_a_free_port;
        let message = format_args!("{listen} is the public listener's address already");
        table.refuse_if(is_public, "admin_listen", message)
    }
}

/// The log on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Lowest level to log.
    pub level: LogLevel,
    /// Format of lines.
    ///
    /// A restart puts another one into effect.
    pub format: LogFormat,
}

#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

/// Returns the word for a value, as flags and keys have it.
pub fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
