//! How requests to a hub are made: headers, credentials, certificates.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::announce::delivery::secret::Secret;
use crate::config::raw;
use crate::config::reading::{Given, Origin, Reading, in_file};

const MAX_SECRET: u64 = 64 << 10;
/// A bundle of all the authorities that a system trusts has a few hundred.
const MAX_PEM: u64 = 4 << 20;

/// How requests to a hub are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Extra headers, in order of name.
    pub headers: Vec<(String, Secret)>,
    pub credentials: Credentials,
    pub client_identity: Option<ClientIdentity>,
    /// Certificates, in PEM, trusted beside the system's.
    pub ca: Option<String>,
    pub danger_accept_invalid_certs: bool,
    pub timeout: Duration,
}

/// What the `Authorization` header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    None,
    Bearer(Secret),
    Basic { username: String, password: Secret },
}

/// A TLS client certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: String,
    pub key: Secret,
}

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
        headers.retain(|(name, _)| {
            let clashes = name.eq_ignore_ascii_case("authorization");
            if clashes {
                let message =
                    "an Authorization header beside a bearer token or a password: keep one";
                reading.report(origin, "hub.headers", message);
            }
            !clashes
        });
    }
    HttpSettings {
        headers,
        credentials,
        client_identity: client_identity(reading, raw.client_cert, raw.client_key),
        ca: raw
            .ca_file
            .map(in_file)
            .and_then(|given| pem(reading, "hub.ca_file", &given, "CERTIFICATE-----")),
        danger_accept_invalid_certs: raw.danger_accept_invalid_certs.unwrap_or(false),
        timeout: reading.positive_duration("hub.timeout", raw.timeout, Duration::from_secs(30)),
    }
}

fn credentials(
    reading: &mut Reading<'_>,
    bearer_token_file: raw::Written<String>,
    username: raw::Written<String>,
    password_file: raw::Written<String>,
) -> Credentials {
    match (
        bearer_token_file.map(in_file),
        username.map(in_file),
        password_file.map(in_file),
    ) {
        (None, None, None) => Credentials::None,
        (Some(file), None, None) => secret(reading, "hub.bearer_token_file", &file)
            .map_or(Credentials::None, Credentials::Bearer),
        (None, Some(username), Some(file)) => {
            if username.value.contains(':') || username.value.chars().any(char::is_control) {
                let message = "a user name has no \":\" and no control characters";
                reading.report(username.origin, "hub.username", message);
            }
            match secret(reading, "hub.password_file", &file) {
                Some(password) => Credentials::Basic {
                    username: username.value,
                    password,
                },
                None => Credentials::None,
            }
        }
        (Some(file), _, _) => {
            let message =
                "a bearer token and a user name with a password exclude each other: keep one";
            reading.report(file.origin, "hub.bearer_token_file", message);
            Credentials::None
        }
        (None, Some(username), None) => {
            reading.report(
                username.origin,
                "hub.username",
                "it needs password_file too",
            );
            Credentials::None
        }
        (None, None, Some(file)) => {
            reading.report(file.origin, "hub.password_file", "it needs username too");
            Credentials::None
        }
    }
}

fn client_identity(
    reading: &mut Reading<'_>,
    certificate: raw::Written<String>,
    key: raw::Written<String>,
) -> Option<ClientIdentity> {
    match (certificate.map(in_file), key.map(in_file)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let certificate = pem(reading, "hub.client_cert", &certificate, "CERTIFICATE-----");
            let key = pem(reading, "hub.client_key", &key, "PRIVATE KEY-----");
            Some(ClientIdentity {
                certificate: certificate?,
                key: Secret::new(key?),
            })
        }
        (Some(certificate), None) => {
            reading.report(
                certificate.origin,
                "hub.client_cert",
                "it needs client_key too",
            );
            None
        }
        (None, Some(key)) => {
            reading.report(key.origin, "hub.client_key", "it needs client_cert too");
            None
        }
    }
}

fn headers(
    reading: &mut Reading<'_>,
    written: BTreeMap<String, toml::Spanned<raw::HeaderValue>>,
) -> Vec<(String, Secret)> {
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
        if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            reading.report(origin, &key, "the protocol decides this header");
            continue;
        }
        let value = match value {
            raw::HeaderValue::Literal(value) => Some(value),
            raw::HeaderValue::File { file } => secret(
                reading,
                &key,
                &Given {
                    value: file,
                    origin,
                },
            ),
        };
        let Some(value) = value else { continue };
        if value.reveal().chars().any(char::is_control) {
            reading.report(origin, &key, "the value has a control character");
            continue;
        }
        headers.push((name, value));
    }
    headers
}

/// The one line of text in a file; nothing of it may appear in a message.
fn secret(reading: &mut Reading<'_>, key: &str, file: &Given<String>) -> Option<Secret> {
    let content = reading.content(key, file, MAX_SECRET)?;
    let line = content.trim_end_matches(['\r', '\n']);
    if line.is_empty() {
        reading.report(file.origin, key, format!("{} is empty", file.value));
        return None;
    }
    if line.chars().any(char::is_control) {
        let message = format!(
            "{} has more than one line, or control characters",
            file.value
        );
        reading.report(file.origin, key, message);
        return None;
    }
    Some(Secret::new(line))
}

fn pem(reading: &mut Reading<'_>, key: &str, file: &Given<String>, kind: &str) -> Option<String> {
    let content = reading.content(key, file, MAX_PEM)?;
    let begins = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(kind);
    if !content.lines().any(begins) {
        let message = format!("{} has no -----BEGIN … {kind} line", file.value);
        reading.report(file.origin, key, message);
        return None;
    }
    Some(content)
}
