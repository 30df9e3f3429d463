//! `[server]`: the listeners, and the URL under which the public one is reached.

use std::net::SocketAddr;
use std::time::Duration;

use resourcesync::uri::Uri;
use url::{Host, Url};

use crate::config::address::Address;
use crate::config::definition::Fallback::{Default, Described};
use crate::config::definition::{Definition, Example, Kind};
use crate::config::duration;
use crate::config::effective::{Page, quoted};
use crate::config::form::{ADDRESS, DURATION, PREFIX};
use crate::config::key::ConfigKey;
use crate::config::origin::Origin;
use crate::config::overrides::Overrides;
use crate::config::section::Section;
use crate::config::structure::WrittenTable;

pub static SERVER: Definition = Definition::table(
    "server",
    Kind::Table(&[
        &LISTEN.definition,
        &PUBLIC_URL.definition,
        &ADMIN_LISTEN.definition,
        &TOPIC_WINDOW.definition,
        &RETIRED_TOPIC.definition,
        &SHUTDOWN_GRACE.definition,
    ]),
    "Listeners, and the times that belong to them.",
);

static LISTEN: ConfigKey<Address> = ConfigKey::new(
    "server",
    "listen",
    ADDRESS,
    Default("\"127.0.0.1:8400\""),
    "Address on which topics and the hub are served: an IP address and a port (0 takes a free one), or \
     `\"unix:/path\"`, which needs `public_url`.",
)
.flags(&["--listen"]);

static PUBLIC_URL: ConfigKey<Uri> = ConfigKey::new(
    "server",
    "public_url",
    PREFIX,
    Described("`http://LISTEN/`"),
    "Public URL of the listener for topics and the hub.",
)
.more("The web server in front passes path and query on unchanged.")
.example(Example::Value("\"https://example.org/\""))
.flags(&["--public-url"]);

pub static ADMIN_LISTEN: ConfigKey<Address> = ConfigKey::new(
    "server",
    "admin_listen",
    ADDRESS,
    Default("\"127.0.0.1:8401\""),
    "Address on which health, metrics and status (`/healthz`, `/readyz`, `/metrics`, `/status.json`) are served.",
)
.more("Keep it private.")
.flags(&["--admin-listen"]);

static TOPIC_WINDOW: ConfigKey<Duration> = ConfigKey::new(
    "server",
    "topic_window",
    DURATION,
    Default("\"1h\""),
    "Time for which a topic that ping hubs fetch repeats earlier notifications, because such hubs skip pings.",
);

static RETIRED_TOPIC: ConfigKey<Duration> = ConfigKey::new(
    "server",
    "retired_topic",
    DURATION,
    Default("\"30d\""),
    "Time for which the topic of a channel that has ended is still served.",
);

static SHUTDOWN_GRACE: ConfigKey<Duration> = ConfigKey::new(
    "server",
    "shutdown_grace",
    DURATION,
    Default("\"10s\""),
    "Time that requests in flight may take to finish when rsnotify stops.",
);

/// The two listeners and the times that belong to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Topics and the embedded hub.
    pub listen: Address,
    /// Health, metrics and status.
    pub admin_listen: Address,
    /// The URL of the public listener, if it was configured; ends in `/`.
    pub public_url: Option<Uri>,
    /// Time for which a topic that ping hubs read repeats earlier changes (R25).
    pub topic_window: Duration,
    /// Time for which a retired channel's topic is served (R11).
    pub retired_topic: Duration,
    /// Time that requests in flight may take to finish when the daemon stops.
    pub shutdown_grace: Duration,
}

impl ServerSettings {
    /// Returns the URL of the public listener: as configured, else `http://LISTEN/` with the port it got.
    pub fn public_url_at(&self, bound: SocketAddr) -> Uri {
        self.public_url
            .clone()
            .unwrap_or_else(|| default_public_url(bound))
    }

    /// Returns true if no other machine can reach it, as far as addresses tell: both listeners are on loopback, and so
    /// is the public URL.
    pub fn is_on_this_machine(&self) -> bool {
        let is_loopback =
            |address: &Address| matches!(address, Address::Tcp(tcp) if tcp.ip().is_loopback());
        let url = self.public_url.as_ref().map(|uri| Url::parse(uri.as_str()));
        let is_reached_here = match url {
            None => true,
            Some(Ok(url)) => match url.host() {
                Some(Host::Ipv4(address)) => address.is_loopback(),
                Some(Host::Ipv6(address)) => address.is_loopback(),
                Some(Host::Domain(name)) => name == "localhost",
                None => false,
            },
            Some(Err(_)) => false,
        };
        is_loopback(&self.listen) && is_loopback(&self.admin_listen) && is_reached_here
    }

    /// Returns the URL of the public listener, as far as it is known before the listener is bound.
    pub fn known_public_url(&self) -> Option<Uri> {
        match (&self.public_url, &self.listen) {
            (Some(configured), _) => Some(configured.clone()),
            (None, Address::Tcp(address)) if address.port() != 0 => {
                Some(default_public_url(*address))
            }
            (None, _) => None,
        }
    }
}

fn default_public_url(mut address: SocketAddr) -> Uri {
    // Which interface it is means nothing elsewhere, and stands in no URI.
    if let SocketAddr::V6(address) = &mut address {
        address.set_scope_id(0);
    }
    Uri::parse(&format!("http://{address}/")).expect("a socket address is a URI's authority")
}

/// Replaces values of `[server]` by those of the flags.
pub fn with_flags<'f>(mut written: WrittenTable<'f>, overrides: &Overrides) -> WrittenTable<'f> {
    written.set(&LISTEN.definition, overrides.listen.as_ref());
    written.set(&PUBLIC_URL.definition, overrides.public_url.as_ref());
    written.set(&ADMIN_LISTEN.definition, overrides.admin_listen.as_ref());
    written
}

/// Sets `public_url` where it is absent.
pub fn set_public_url(written: &mut WrittenTable<'_>, url: &str) {
    written.set_absent(&PUBLIC_URL.definition, url);
}

/// Reads `[server]`.
pub fn server(section: &mut Section<'_, '_, '_>) -> ServerSettings {
    let listen_origin = section.origin_of(&LISTEN);
    let admin_origin = section.origin_of(&ADMIN_LISTEN);
    let server = ServerSettings {
        listen: section.value(&LISTEN),
        public_url: section.given(&PUBLIC_URL).map(|url| url.value),
        admin_listen: section.value(&ADMIN_LISTEN),
        topic_window: section.value(&TOPIC_WINDOW),
        retired_topic: section.value(&RETIRED_TOPIC),
        shutdown_grace: section.value(&SHUTDOWN_GRACE),
    };
    let loader = &mut section.loader;
    let unreachable = match (&server.listen, &server.public_url) {
        (Address::Unix(_), None) => Some(
            "a Unix socket says nothing about how it is reached: set public_url too".to_owned(),
        ),
        (Address::Tcp(address), None) if address.ip().is_unspecified() || has_scope(address) => {
            Some(format!(
                "nobody can reach {address} under that name: set public_url too"
            ))
        }
        _ => None,
    };
    if let Some(message) = unreachable {
        let names = ["public_url", "server"];
        loader.report_absence(&names, listen_origin, &LISTEN.definition, message);
    }
    let takes_a_free_port = matches!(server.listen, Address::Tcp(address) if address.port() == 0);
    if server.listen == server.admin_listen && !takes_a_free_port {
        let message = format!(
            "{} is the public listener's address already",
            server.admin_listen
        );
        let origin = match admin_origin {
            Origin::Absent => listen_origin,
            origin => origin,
        };
        loader.report(origin, &ADMIN_LISTEN.definition, message);
    }
    server
}

/// Returns true if it is an address of one link only, such as `[fe80::1%2]:8400`.
fn has_scope(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.scope_id() != 0)
}

/// Writes `[server]`.
pub fn effective(page: &mut Page<'_>, server: &ServerSettings) {
    // A field that is added cannot be forgotten here.
    let ServerSettings {
        listen,
        admin_listen,
        public_url: _,
        topic_window,
        retired_topic,
        shutdown_grace,
    } = server;
    page.key(&LISTEN.definition, quoted(listen));
    // Where the port is any free one, only the running daemon knows.
    if let Some(public_url) = server.known_public_url() {
        page.key(&PUBLIC_URL.definition, quoted(public_url));
    }
    page.key(&ADMIN_LISTEN.definition, quoted(admin_listen));
    for (key, value) in [
        (&TOPIC_WINDOW, topic_window),
        (&RETIRED_TOPIC, retired_topic),
        (&SHUTDOWN_GRACE, shutdown_grace),
    ] {
        page.key(&key.definition, quoted(duration::display(*value)));
    }
}
