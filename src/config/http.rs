//! How requests to a hub are made: headers, credentials, certificates, proxy.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use crate::announce::delivery::secret::Secret;
use crate::config::raw::held::{HeaderValue, Held, Holder};
use crate::config::raw::{self, Written};
use crate::config::reading::{Given, Origin, Reading, in_file};
use crate::config::secret::{Kept, pem, secret};

/// How requests to a hub are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    pub proxy: Proxy,
    /// Extra headers, in order of name.
    pub headers: Vec<Header>,
    pub credentials: Credentials,
    pub client_identity: Option<ClientIdentity>,
    /// Certificates, in PEM, trusted beside the system's.
    pub ca: Option<Kept>,
    pub danger_accept_invalid_certs: bool,
    pub timeout: Duration,
}

/// Which way requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// As `HTTPS_PROXY`, `NO_PROXY` and their kin say.
    Environment,
    None,
    Through(Url),
}

/// A header that goes along with each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Secret,
    /// What holds the value; nothing if it is written in the configuration, so that it is no secret.
    pub by: Option<Holder>,
}

/// What the `Authorization` header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    None,
    Bearer(Kept),
    Basic { username: String, password: Kept },
}

/// A TLS client certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: Kept,
    pub key: Kept,
}

/// Headers whose values are secrets.
const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
/// Headers that the protocol decides (R24).
const RESERVED_HEADERS: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "link",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Checks what a `[[hub]]` says about requests, and reads the files it names.
pub fn settings(reading: &mut Reading<'_>, origin: Origin, raw: raw::Hub) -> HttpSettings {
    let credentials = credentials(
        reading,
        raw.bearer_token_file,
        raw.username,
        raw.password_file,
    );
    let mut headers = headers(reading, raw.headers);
    if credentials != Credentials::None {
        headers.retain(|header| {
            let clashes = header.name.eq_ignore_ascii_case("authorization");
            if clashes {
                let message =
                    "an Authorization header beside a bearer token or a password: keep one";
                reading.report(origin, "hub.headers", message);
            }
            !clashes
        });
    }
    HttpSettings {
        proxy: proxy(reading, raw.proxy),
        headers,
        credentials,
        client_identity: client_identity(reading, raw.client_cert, raw.client_key),
        ca: raw
            .ca_file
            .map(in_file)
            .and_then(|held| pem(reading, "hub.ca_file", held, "CERTIFICATE-----")),
        danger_accept_invalid_certs: raw.danger_accept_invalid_certs.unwrap_or(false),
        timeout: reading.positive_duration("hub.timeout", raw.timeout, Duration::from_secs(30)),
    }
}

fn proxy(reading: &mut Reading<'_>, written: Written<String>) -> Proxy {
    let Some(given) = written.map(in_file) else {
        return Proxy::Environment;
    };
    if given.value == "none" {
        return Proxy::None;
    }
    reading
        .checked("hub.proxy", &given, proxy_url)
        .map_or(Proxy::Environment, Proxy::Through)
}

/// The message never repeats the text: it may hold a password.
fn proxy_url(text: &str) -> Result<Url, &'static str> {
    if text.contains('@') {
        return Err(
            "a proxy is written without user name and password: leave the key out, and put them into \
                    the HTTPS_PROXY or HTTP_PROXY variable of the service",
        );
    }
    let wanted = "write \"http://HOST:PORT\", or \"none\" to go without a proxy";
    let url = Url::parse(text).map_err(|_| wanted)?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    match url.scheme() == "http" && url.has_host() && is_bare {
        true => Ok(url),
        false => Err(wanted),
    }
}

fn credentials(
    reading: &mut Reading<'_>,
    bearer_token: Written<Held>,
    username: Written<String>,
    password: Written<Held>,
) -> Credentials {
    match (
        bearer_token.map(in_file),
        username.map(in_file),
        password.map(in_file),
    ) {
        (None, None, None) => Credentials::None,
        (Some(token), None, None) => {
            secret(reading, "hub.bearer_token_file", token.map(Holder::from))
                .map_or(Credentials::None, Credentials::Bearer)
        }
        (None, Some(username), Some(password)) => {
            if username.value.contains(':') || username.value.chars().any(char::is_control) {
                let message = "a user name has no \":\" and no control characters";
                reading.report(username.origin, "hub.username", message);
            }
            match secret(reading, "hub.password_file", password.map(Holder::from)) {
                Some(password) => Credentials::Basic {
                    username: username.value,
                    password,
                },
                None => Credentials::None,
            }
        }
        (Some(token), _, _) => {
            let message =
                "a bearer token and a user name with a password exclude each other: keep one";
            reading.report(token.origin, "hub.bearer_token_file", message);
            Credentials::None
        }
        (None, Some(username), None) => {
            reading.report_absence(
                &["password_file"],
                username.origin,
                "hub.username",
                "it needs password_file too",
            );
            Credentials::None
        }
        (None, None, Some(password)) => {
            reading.report_absence(
                &["username"],
                password.origin,
                "hub.password_file",
                "it needs username too",
            );
            Credentials::None
        }
    }
}

fn client_identity(
    reading: &mut Reading<'_>,
    certificate: Written<Held>,
    key: Written<Held>,
) -> Option<ClientIdentity> {
    match (certificate.map(in_file), key.map(in_file)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let certificate = pem(reading, "hub.client_cert", certificate, "CERTIFICATE-----");
            let key = pem(reading, "hub.client_key", key, "PRIVATE KEY-----");
            Some(ClientIdentity {
                certificate: certificate?,
                key: key?,
            })
        }
        (Some(certificate), None) => {
            reading.report_absence(
                &["client_key"],
                certificate.origin,
                "hub.client_cert",
                "it needs client_key too",
            );
            None
        }
        (None, Some(key)) => {
            reading.report_absence(
                &["client_cert"],
                key.origin,
                "hub.client_key",
                "it needs client_cert too",
            );
            None
        }
    }
}

fn headers(
    reading: &mut Reading<'_>,
    written: BTreeMap<String, toml::Spanned<HeaderValue>>,
) -> Vec<Header> {
    let mut headers = Vec::new();
    for (name, value) in written {
        let Given { value, origin } = in_file(value);
        let key = format!("hub.headers.{name}");
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            reading.report(
                origin,
                &key,
                "a header's name has letters, digits and \"-\" only",
            );
            continue;
        }
        let lower_case = name.to_ascii_lowercase();
        if RESERVED_HEADERS.contains(&lower_case.as_str()) {
            reading.report(origin, &key, "the protocol decides this header");
            continue;
        }
        let is_literal = matches!(value, HeaderValue::Literal(_));
        if is_literal && SECRET_HEADERS.contains(&lower_case.as_str()) {
            let message = "its value is a secret, which does not belong into this file: write { file = \"...\" }, \
                           { env = \"...\" } or { credential = \"...\" }";
            reading.report(origin, &key, message);
            continue;
        }
        let (value, by) = match value {
            HeaderValue::Literal(value) => (value, None),
            HeaderValue::By(value) => match secret(reading, &key, Given { value, origin }) {
                Some(kept) => (kept.content, Some(kept.by)),
                None => continue,
            },
        };
        if value.reveal().chars().any(char::is_control) {
            reading.report(origin, &key, "the value has a control character");
            continue;
        }
        headers.push(Header { name, value, by });
    }
    headers
}
