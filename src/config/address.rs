//! Addresses of listeners.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A TCP address (port 0 takes a free one) or the path of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend(
    "pattern" = r"^(unix:.+|[0-9.]+:[0-9]{1,5}|\[[0-9A-Fa-f:.%]+\]:[0-9]{1,5})$",
    "x-number" = "127.0.0.1:{}"
))]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Parses `127.0.0.1:8400`, `[::1]:0` or `unix:/run/rsnotify/http.sock`.
    pub fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        text.parse().map(Address::Tcp).map_err(|_| {
            let has_host_name = text.rsplit_once(':').is_some_and(|(host, port)| {
                host.starts_with(|c: char| c.is_ascii_alphabetic())
                    && !host.contains([':', '/'])
                    && port.parse::<u16>().is_ok()
            });
            if has_host_name {
                return format!("\"{text}\" has a host name: write its IP address, such as \"127.0.0.1:8400\"");
            }
            format!(
                "\"{text}\" is not an address to listen on: write \"127.0.0.1:8400\", \"[::1]:8400\" or \"unix:/path\""
            )
        })
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        Address::parse(&text)
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_read_back() {
        for text in [
            "127.0.0.1:8400",
            "[::1]:0",
            "0.0.0.0:80",
            "unix:/run/rsnotify/http.sock",
        ] {
            assert_eq!(
                Address::parse(text).map(|address| address.to_string()),
                Ok(text.into())
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for text in [
            "",
            "8400",
            ":8400",
            "127.0.0.1",
            "::1:80:x",
            "127.0.0.1:99999",
            "unix:",
            "http://[::1]:80",
        ] {
            let message = Address::parse(text).unwrap_err();
            assert!(
                message.contains("is not an address to listen on"),
                "{message}"
            );
        }
        let message = Address::parse("localhost:8400").unwrap_err();
        assert_eq!(
            message,
            "\"localhost:8400\" has a host name: write its IP address, such as \"127.0.0.1:8400\""
        );
    }
}
