//! What rsnotify listens on, and what that is reached as.

use std::net::SocketAddr;
use std::time::Duration;

use url::{Host, Url};

use crate::config::address::Address;
use crate::config::overrides::Overrides;
use crate::config::raw;
use crate::config::reading::{Given, Origin, Reading, flag_or_file};
use crate::config::web_uri;
use crate::resourcesync::uri::Uri;

/// The two listeners and the times that belong to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Topics and the embedded hub.
    pub listen: Address,
    /// Health, metrics and status.
    pub admin_listen: Address,
    /// What the public listener is reached as, if that was configured; ends in `/`.
    pub public_url: Option<Uri>,
    /// How long a topic read by ping hubs repeats what was said on it (R25).
    pub topic_window: Duration,
    /// How long a retired channel's topic is served (R11).
    pub retired_topic: Duration,
    /// How long requests in flight may take to end when the daemon stops.
    pub shutdown_grace: Duration,
}

impl Server {
    /// What the public listener is reached as: as configured, else `http://LISTEN/` with the port it got.
    pub fn public_url_at(&self, bound: SocketAddr) -> Uri {
        self.public_url
            .clone()
            .unwrap_or_else(|| default_public_url(bound))
    }

    /// Whether nobody else can reach it, as far as addresses tell: both listeners are on loopback, and so is what the
    /// public one is reached as.
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

    /// What the public listener is reached as, as far as that is known before it is bound.
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

/// Checks `[server]`.
pub fn server(reading: &mut Reading<'_>, raw: raw::Server, overrides: &Overrides) -> Server {
    let listen = flag_or_file("--listen", overrides.listen.as_ref(), raw.listen);
    let admin_listen = given_admin_listen(raw.admin_listen, overrides);
    let public_url = flag_or_file(
        "--public-url",
        overrides.public_url.as_ref(),
        raw.public_url,
    );
    let origin =
        |given: &Option<Given<String>>| given.as_ref().map_or(Origin::Absent, |given| given.origin);
    let listen_origin = origin(&listen);
    let admin_origin = origin(&admin_listen);

    let server = Server {
        listen: address(reading, "server.listen", listen, 8400),
        admin_listen: admin_address(reading, admin_listen),
        public_url: public_url
            .and_then(|given| reading.checked("server.public_url", &given, web_uri::prefix)),
        topic_window: reading.duration(
            "server.topic_window",
            raw.topic_window,
            Duration::from_secs(3_600),
        ),
        retired_topic: reading.duration(
            "server.retired_topic",
            raw.retired_topic,
            Duration::from_secs(30 * 86_400),
        ),
        shutdown_grace: reading.duration(
            "server.shutdown_grace",
            raw.shutdown_grace,
            Duration::from_secs(10),
        ),
    };
    if let (Address::Unix(_), None) = (&server.listen, &server.public_url) {
        let message = "a Unix socket says nothing about how it is reached: set public_url too";
        reading.report_absence(
            &["public_url", "server"],
            listen_origin,
            "server.listen",
            message,
        );
    }
    if let (Address::Tcp(address), None) = (&server.listen, &server.public_url)
        && (address.ip().is_unspecified() || has_scope(address))
    {
        let message = format!("nobody can reach {address} under that name: set public_url too");
        reading.report_absence(
            &["public_url", "server"],
            listen_origin,
            "server.listen",
            message,
        );
    }
    let takes_a_free_port = matches!(server.listen, Address::Tcp(address) if address.port() == 0);
    if server.listen == server.admin_listen && !takes_a_free_port {
        let message = format!(
            "{} is the public listener's address already",
            server.admin_listen
        );
        let origin = if admin_origin == Origin::Absent {
            listen_origin
        } else {
            admin_origin
        };
        reading.report(origin, "server.admin_listen", message);
    }
    server
}

/// What flag or file say of where the admin listener listens.
pub fn given_admin_listen(
    written: raw::Written<String>,
    overrides: &Overrides,
) -> Option<Given<String>> {
    flag_or_file("--admin-listen", overrides.admin_listen.as_ref(), written)
}

/// Where that is.
pub fn admin_address(reading: &mut Reading<'_>, given: Option<Given<String>>) -> Address {
    address(reading, "server.admin_listen", given, 8401)
}

/// Whether it is an address of one link only, such as `[fe80::1%2]:8400`.
fn has_scope(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.scope_id() != 0)
}

fn address(
    reading: &mut Reading<'_>,
    key: &str,
    given: Option<Given<String>>,
    default_port: u16,
) -> Address {
    let default = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], default_port)));
    let Some(given) = given else {
        return default;
    };
    match reading.checked(key, &given, Address::parse) {
        Some(Address::Unix(path)) => reading
            .path(key, given.origin, &path)
            .map_or(default, Address::Unix),
        Some(address) => address,
        None => default,
    }
}
