//! The address of a message broker.

use std::fmt;

use url::Url;

use crate::config::definition::Fallback::Required;
use crate::config::definition::{Example, Kind, TextKind};
use crate::config::form::text;
use crate::config::key::{ConfigKey, ValueForm};

pub static URL: ConfigKey<BrokerAddress> = ConfigKey::new(
    "broker",
    "url",
    ValueForm {
        kind: Kind::Text(&TextKind {
            examples: &[
                "stomp://127.0.0.1:61613",
                "stomp+tls://mq.example.org:61614",
            ],
            ..TextKind::matching(r"^[Ss][Tt][Oo][Mm][Pp](\+[Tt][Ll][Ss])?://[^@/?#\s]+/?$")
        }),
        read: |loader, key, value| text(loader, key, &value, address),
    },
    Required,
    "Address of the broker, `stomp://HOST:PORT`, or `stomp+tls://HOST:PORT` for TLS.",
)
.more("The ports are 61613 and 61614 unless another is given.")
.example(Example::Comment("\"stomp+tls://mq.example.org:61614\""));

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
}

const TCP_PORT: u16 = 61613;
const TLS_PORT: u16 = 61614;

/// Returns the parts of an address. No message repeats it: it may hold a password.
fn address(text: &str) -> Result<BrokerAddress, &'static str> {
    const WANTED: &str = "write \"stomp://HOST:PORT\", or \"stomp+tls://HOST:PORT\" for TLS";
    if text.contains('@') {
        return Err("credentials do not belong into an address: use username and password_file");
    }
    let url = Url::parse(text).map_err(|_| WANTED)?;
    let (is_tls, port) = match url.scheme() {
        "stomp" => (false, TCP_PORT),
        "stomp+tls" => (true, TLS_PORT),
        _ => return Err(WANTED),
    };
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_bare =
        matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    if host.is_empty() || !is_bare || url.port() == Some(0) {
        return Err(WANTED);
    }
    Ok(BrokerAddress {
        host: host.to_owned(),
        port: url.port().unwrap_or(port),
        is_tls,
    })
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.is_tls {
            true => "stomp+tls",
            false => "stomp",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}
