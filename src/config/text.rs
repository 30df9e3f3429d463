//! Values that the file writes as texts, such as `"30s"`, `"50%"` and `"10.0.0.0/8"`; addresses of listeners, and URIs, which
//! are http or https and free of what would break a header.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use announce::finding::AcknowledgedPattern;
use announce::plan::{MassDeletionLimit, ReplacedHub};
use ipnet::IpNet;
use resourcesync::datetime::{format_duration, parse_duration};
use resourcesync::uri::{Hub, Uri, has_valid_chars};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::{Position, Url};
use websub::hub::address::parse_network;
use websub::publisher::settings::HubProxy;

use crate::config::hub;

/// A value with its form as a text.
pub trait TextValue: Sized {
    /// A regular expression that every text of this form matches, for the schema.
    const PATTERN: &'static str = ".*";
    /// What to write instead of a bare number, which is `{}` here.
    const NUMBER: &'static str = "{}";

    fn read(text: &str) -> Result<Self, String>;

    fn write(&self) -> String;
}

/// A value that the file writes as a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AsText<T>(pub T);

/// Returns the values of a list.
pub fn inner_values<T: Clone>(list: &[AsText<T>]) -> Vec<T> {
    list.iter().map(|value| value.0.clone()).collect()
}

impl<'de, T: TextValue> Deserialize<'de> for AsText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AsText<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        T::read(&text).map(AsText).map_err(D::Error::custom)
    }
}

impl<T: TextValue> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.write())
    }
}

impl<T: TextValue> JsonSchema for AsText<T> {
    fn schema_name() -> Cow<'static, str> {
        "Written".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": T::PATTERN, "x-number": T::NUMBER })
    }
}

impl TextValue for Duration {
    const PATTERN: &'static str = "^[0-9]+(ms|s|m|h|d)$";
    const NUMBER: &'static str = "{}s";

    fn read(text: &str) -> Result<Duration, String> {
        parse_duration(text)
    }

    fn write(&self) -> String {
        format_duration(*self)
    }
}

/// Returns a number of seconds as a value of a key.
pub const fn seconds(seconds: u64) -> AsText<Duration> {
    AsText(Duration::from_secs(seconds))
}

impl TextValue for MassDeletionLimit {
    const PATTERN: &'static str = "^(never|0*([0-9]{1,2}|100)%)$";
    const NUMBER: &'static str = "{}%\" or \"never";

    fn read(text: &str) -> Result<MassDeletionLimit, String> {
        if text == "never" {
            return Ok(MassDeletionLimit::Never);
        }
        let digits = text.strip_suffix('%').filter(|it| !it.starts_with('+'));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(percent) if percent <= 100 => Ok(MassDeletionLimit::Percent(percent)),
            _ => Err(format!(
                "\"{text}\" is neither \"0%\" to \"100%\" nor \"never\""
            )),
        }
    }

    fn write(&self) -> String {
        match self {
            MassDeletionLimit::Percent(percent) => format!("{percent}%"),
            MassDeletionLimit::Never => "never".to_owned(),
        }
    }
}

impl TextValue for AcknowledgedPattern {
    fn read(text: &str) -> Result<AcknowledgedPattern, String> {
        AcknowledgedPattern::parse(text)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// A hub that another one replaces.
impl TextValue for ReplacedHub {
    const PATTERN: &'static str = ".";

    fn read(text: &str) -> Result<ReplacedHub, String> {
        match text {
            "auto" => Ok(ReplacedHub::Automatic),
            "nothing" => Ok(ReplacedHub::Nothing),
            text => hub::check_address(text).map(|()| ReplacedHub::Hub(Hub::new(text))),
        }
    }

    fn write(&self) -> String {
        match self {
            ReplacedHub::Automatic => "auto".to_owned(),
            ReplacedHub::Nothing => "nothing".to_owned(),
            ReplacedHub::Hub(hub) => hub.as_str().to_owned(),
        }
    }
}

/// Ports that callbacks may have.
impl TextValue for RangeInclusive<u16> {
    const PATTERN: &'static str = "^[0-9]+(-[0-9]+)?$";

    fn read(text: &str) -> Result<RangeInclusive<u16>, String> {
        let port = |digits: &str| digits.parse().ok().filter(|_| !digits.starts_with('+'));
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if 0 < first && first <= last => Ok(first..=last),
            _ => Err(format!(
                "\"{text}\" is no port and no range such as \"8000-9999\""
            )),
        }
    }

    fn write(&self) -> String {
        match (self.start(), self.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        }
    }
}

impl TextValue for IpNet {
    const PATTERN: &'static str = "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$";

    fn read(text: &str) -> Result<IpNet, String> {
        parse_network(text)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for HubProxy {
    const PATTERN: &'static str = "^(none|[Hh][Tt][Tt][Pp]://[^@/?#]+/?)$";

    /// The message never repeats the text: it may hold a password.
    fn read(text: &str) -> Result<HubProxy, String> {
        if text == "none" {
            return Ok(HubProxy::Direct);
        }
        if text.contains('@') {
            return Err("a proxy is written without user name and password: leave the key out, and put them into the \
                        HTTPS_PROXY or HTTP_PROXY variable of the service"
                .to_owned());
        }
        // Nothing behind the slash.
        let is_bare = |url: &Url| url.scheme() == "http" && &url[Position::BeforePath..] == "/";
        match Url::parse(text) {
            Ok(url) if url.has_host() && is_bare(&url) => Ok(HubProxy::Through(url)),
            _ => Err("write \"http://HOST:PORT\", or \"none\" to go without a proxy".to_owned()),
        }
    }

    fn write(&self) -> String {
        match self {
            HubProxy::Through(url) => url.to_string(),
            // That of the environment is taken where the key is left out.
            HubProxy::Direct | HubProxy::Environment => "none".to_owned(),
        }
    }
}

/// A number of bytes: an integer, or a text with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "RawSize")]
pub struct Size(pub u32);

/// A size as it may be written.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "write a number of bytes, or a text such as \"2MiB\""
)]
enum RawSize {
    Bytes(#[schemars(range(min = 1, max = u32::MAX))] i64),
    Text(#[schemars(regex(pattern = "^[0-9]+ *(B|KiB|MiB|GiB)?$"))] String),
}

/// The units with their bits, the largest first.
const UNITS: [(&str, u32); 5] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0), ("", 0)];

impl TryFrom<RawSize> for Size {
    type Error = String;

    fn try_from(number: RawSize) -> Result<Size, String> {
        let text = match number {
            RawSize::Bytes(bytes) => bytes.to_string(),
            RawSize::Text(text) => text,
        };
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &text[..text.len() - unit.len()];
        let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
        let size = unit.and_then(|(_, bits)| digits.parse::<u32>().ok()?.checked_mul(1 << bits));
        size.filter(|size| *size > 0).map(Size).ok_or_else(|| {
            let max = u32::MAX;
            format!(
                "{text} is no size such as \"2MiB\", \"64KiB\" or 1000 (bytes), from 1 to {max}"
            )
        })
    }
}

/// Writes a size with the largest unit that divides it.
impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let divides = |(_, bits): &&(&str, u32)| self.0.is_multiple_of(1 << bits);
        let (unit, bits) = UNITS.iter().find(divides).unwrap_or(&("B", 0));
        serializer.serialize_str(&format!("{}{unit}", self.0 >> bits))
    }
}

/// The message about an address with a user name or password.
pub const NO_CREDENTIALS: &str =
    "credentials do not belong into an address: use username and password_file";

/// A TCP address (port 0 takes a free one) or the path of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
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

impl TextValue for Address {
    const PATTERN: &'static str = r"^(unix:.+|[0-9.]+:[0-9]{1,5}|\[[0-9A-Fa-f:.%]+\]:[0-9]{1,5})$";
    const NUMBER: &'static str = "127.0.0.1:{}";

    fn read(text: &str) -> Result<Address, String> {
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

    fn write(&self) -> String {
        self.to_string()
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
    if !has_valid_chars(text) {
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

    use super::{Address, TextValue, check_prefix, check_uri, with_slash};

    #[test]
    fn addresses_read_back() {
        for text in [
            "127.0.0.1:8400",
            "[::1]:0",
            "0.0.0.0:80",
            "unix:/run/a.sock",
        ] {
            let read = Address::read(text).map(|address| address.to_string());
            assert_eq!(read, Ok(text.into()));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        let others = "|8400|:8400|127.0.0.1|::1:80:x|127.0.0.1:99999|unix:|http://[::1]:80";
        for text in others.split('|') {
            let message = Address::read(text).unwrap_err();
            let is_told = message.contains("is not an address to listen on");
            assert!(is_told, "{message}");
        }
        let message = Address::read("localhost:8400").unwrap_err();
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
