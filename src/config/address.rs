//! Addresses that an operator may configure: those of listeners, and URIs, which are http or https and free of what would
//! break a header.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use resourcesync::uri::{Uri, is_clean};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// The message about an address with a user name or password.
pub const NO_CREDENTIALS: &str =
    "credentials do not belong into an address: use username and password_file";

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
            let (host, port) = text.rsplit_once(':').unwrap_or_default();
            let is_name =
                host.starts_with(|c: char| c.is_ascii_alphabetic()) && !host.contains([':', '/']);
            let wrong = if is_name && port.parse::<u16>().is_ok() {
                "has a host name: write its IP address, such as \"127.0.0.1:8400\""
            } else {
                "is not an address to listen on: write \"127.0.0.1:8400\", \"[::1]:8400\" or \"unix:/path\""
            };
            format!("\"{text}\" {wrong}")
        })
    }

    /// Returns the TCP address, if it is one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    pub fn is_loopback(&self) -> bool {
        self.tcp().is_some_and(|tcp| tcp.ip().is_loopback())
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

/// Checks a document's address.
pub fn check_uri(text: &str) -> Result<(), String> {
    if !is_clean(text) {
        let shown = text.escape_debug();
        return Err(format!(
            "\"{shown}\" has a space, a control character, or one of < > \""
        ));
    }
    let wrong = |reason: &str| Err(format!("\"{text}\" {reason}"));
    if text.contains('#') {
        return wrong("has a fragment (#), which is never sent");
    }
    let uri = Uri::parse(text).map_err(|error| error.to_string())?;
    if !uri.as_str().starts_with("http://") && !uri.as_str().starts_with("https://") {
        return wrong("is neither http nor https");
    }
    match Url::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => wrong(&format!("has no valid host or port: {error}")),
    }
}

/// Checks a prefix of documents' addresses.
pub fn check_prefix(text: &str) -> Result<(), String> {
    check_uri(text)?;
    if text.contains('?') {
        return Err(format!(
            "\"{text}\" has a query (?), which a prefix cannot have"
        ));
    }
    Ok(())
}

/// Returns a prefix with `/` at its end, where it is missing.
pub fn with_slash(uri: Uri) -> Uri {
    if uri.as_str().ends_with('/') {
        return uri;
    }
    Uri::parse(&format!("{uri}/", uri = uri.as_str())).unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Uri;

    use super::{Address, check_prefix, check_uri, with_slash};

    #[test]
    fn addresses_read_back() {
        for text in [
            "127.0.0.1:8400",
            "[::1]:0",
            "0.0.0.0:80",
            "unix:/run/a.sock",
        ] {
            let read = Address::parse(text).map(|address| address.to_string());
            assert_eq!(read, Ok(text.into()));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        let others = "|8400|:8400|127.0.0.1|::1:80:x|127.0.0.1:99999|unix:|http://[::1]:80";
        for text in others.split('|') {
            let message = Address::parse(text).unwrap_err();
            let is_told = message.contains("is not an address to listen on");
            assert!(is_told, "{message}");
        }
        let message = Address::parse("localhost:8400").unwrap_err();
        assert_eq!(
            message,
            "\"localhost:8400\" has a host name: write its IP address, such as \"127.0.0.1:8400\""
        );
    }

    #[test]
    fn a_prefix_ends_in_a_slash() {
        for (written, read) in [
            ("https://example.org", "https://example.org/"),
            ("https://example.org/a", "https://example.org/a/"),
            ("HTTP://Example.org:80/a/", "http://example.org/a/"),
        ] {
            assert_eq!(check_prefix(written), Ok(()));
            assert_eq!(with_slash(Uri::parse(written).unwrap()).as_str(), read);
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_reason() {
        let unclean = "has a space, a control character, or one of < > \"";
        let relative = "is not an absolute URI such as https://example.org/";
        let fragment = "has a fragment (#), which is never sent";
        let port = "has no valid host or port: invalid port number";
        for (text, reason) in [
            ("", relative),
            ("example.org/a", relative),
            ("ftp://example.org/", "is neither http nor https"),
            ("https://example.org/a b", unclean),
            ("https://example.org/a\n", unclean),
            ("https://example.org/#a", fragment),
            ("https://example.org:99999/", port),
        ] {
            let message = format!("\"{}\" {reason}", text.escape_debug());
            assert_eq!(check_uri(text).unwrap_err(), message);
        }
        assert_eq!(
            check_prefix("https://example.org/?a").unwrap_err(),
            "\"https://example.org/?a\" has a query (?), which a prefix cannot have"
        );
    }
}
