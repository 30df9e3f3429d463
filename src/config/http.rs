//! The keys of a `[[hub]]` that say how requests to it are made: headers, credentials, certificates, proxy, timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use crate::config::definition::Fallback::{Default, Described, Nothing};
use crate::config::definition::{Example, Kind, TextKind};
use crate::config::duration;
use crate::config::effective::{Page, quoted};
use crate::config::form::{self, BOOLEAN, HOLDER, POSITIVE_DURATION, TEXT, text};
use crate::config::header::{self, Header, holder};
use crate::config::holder::{HeaderValue, Holder};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::origin::Given;
use crate::config::secret::{HeldSecret, secret};
use crate::config::section::Section;
use crate::config::tls::{TlsConfig, TlsKeys};

pub static HEADERS: ConfigKey<BTreeMap<String, Given<HeaderValue>>> = ConfigKey::new(
    "hub",
    "headers",
    form::HEADERS,
    Default("{}"),
    "Headers to add. A value is a text, or the holder of a secret.",
)
.more("See [secrets](#secrets).")
.example(Example::Comment(
    "{ X-Api-Key = { file = \"/etc/rsnotify/hub-key\" }, X-Client = \"library\" }",
));

pub static BEARER_TOKEN_FILE: ConfigKey<Holder> = ConfigKey::new(
    "hub",
    "bearer_token_file",
    HOLDER,
    Nothing,
    "Holder of a bearer token.",
)
.example(Example::Comment("{ credential = \"hub-token\" }"));

pub static USERNAME: ConfigKey<String> = ConfigKey::new(
    "hub",
    "username",
    TEXT,
    Nothing,
    "User name for basic authentication; needs `password_file`.",
)
.example(Example::Comment("\"rsnotify\""));

pub static PASSWORD_FILE: ConfigKey<Holder> = ConfigKey::new(
    "hub",
    "password_file",
    HOLDER,
    Nothing,
    "Holder of the password.",
)
.example(Example::Comment("\"/etc/rsnotify/hub-password\""));

pub static TLS: TlsKeys = TlsKeys::new("hub");

pub static DANGER_ACCEPT_INVALID_CERTS: ConfigKey<bool> = ConfigKey::new(
    "hub",
    "danger_accept_invalid_certs",
    BOOLEAN,
    Default("false"),
    "Accept any certificate: anyone on the way can then read notifications and credentials.",
);

pub static PROXY: ConfigKey<Proxy> = ConfigKey::new(
    "hub",
    "proxy",
    ValueForm {
        kind: Kind::Text(&TextKind {
            examples: &["http://proxy.example.org:3128", "none"],
            ..TextKind::matching("^(none|[Hh][Tt][Tt][Pp]://[^@/?#]+/?)$")
        }),
        read: |loader, key, value| {
            text(loader, key, &value, |text| match text {
                "none" => Ok(Proxy::None),
                text => proxy_url(text).map(Proxy::Through),
            })
        },
    },
    Described("as the environment says"),
    "Proxy for this hub, `\"http://HOST:PORT\"`, or `\"none\"`.",
)
.more("See [proxies](#proxies).")
.example(Example::Comment("\"http://proxy.example.org:3128\""));

pub static TIMEOUT: ConfigKey<Duration> = ConfigKey::new(
    "hub",
    "timeout",
    POSITIVE_DURATION,
    Default("\"30s\""),
    "Timeout of a request.",
);

/// Settings of requests to a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    pub proxy: Proxy,
    /// Extra headers, in order of name.
    pub headers: Vec<Header>,
    pub credentials: Credentials,
    pub tls: TlsConfig,
    pub danger_accept_invalid_certs: bool,
    pub timeout: Duration,
}

/// The proxy of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// The one that `HTTPS_PROXY`, `NO_PROXY` and the like name.
    Environment,
    None,
    Through(Url),
}

/// The content of the `Authorization` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    None,
    Bearer(HeldSecret),
    Basic {
        username: String,
        password: HeldSecret,
    },
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

/// Reads what a `[[hub]]` says about requests, and the files it names.
pub fn settings(section: &mut Section<'_, '_, '_>) -> HttpSettings {
    let origin = section.origin();
    let credentials = credentials(section);
    let headers = section.value(&HEADERS);
    let mut headers = header::headers(section.loader, &HEADERS.definition, headers, checked_header);
    if credentials != Credentials::None {
        headers.retain(|header| {
            let clashes = header.name.eq_ignore_ascii_case("authorization");
            if clashes {
                let message =
                    "an Authorization header beside a bearer token or a password: keep one";
                section.loader.report(origin, &HEADERS.definition, message);
            }
            !clashes
        });
    }
    HttpSettings {
        proxy: section
            .given(&PROXY)
            .map_or(Proxy::Environment, |proxy| proxy.value),
        headers,
        credentials,
        tls: TLS.read(section, None),
        danger_accept_invalid_certs: section.value(&DANGER_ACCEPT_INVALID_CERTS),
        timeout: section.value(&TIMEOUT),
    }
}

/// Returns the URL of a proxy. The message never repeats the text: it may hold a password.
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

fn credentials(section: &mut Section<'_, '_, '_>) -> Credentials {
    let token = section.given(&BEARER_TOKEN_FILE);
    let username = section.given(&USERNAME);
    let password = section.given(&PASSWORD_FILE);
    let loader = &mut section.loader;
    let credentials = match (token, username, password) {
        (None, None, None) => None,
        (Some(token), None, None) => {
            secret(loader, &BEARER_TOKEN_FILE.definition, token).map(Credentials::Bearer)
        }
        (None, Some(username), Some(password)) => {
            let Given { value, origin } = username;
            if value.contains(':') || value.chars().any(char::is_control) {
                let message = "a user name has no \":\" and no control characters";
                loader.report(origin, &USERNAME.definition, message);
            }
            let password = secret(loader, &PASSWORD_FILE.definition, password);
            password.map(|password| Credentials::Basic {
                username: value,
                password,
            })
        }
        (Some(token), _, _) => {
            let message =
                "a bearer token and a user name with a password exclude each other: keep one";
            loader.report(token.origin, &BEARER_TOKEN_FILE.definition, message);
            None
        }
        (None, Some(username), None) => {
            section.report_lack((&USERNAME, &username), &PASSWORD_FILE);
            None
        }
        (None, None, Some(password)) => {
            section.report_lack((&PASSWORD_FILE, &password), &USERNAME);
            None
        }
    };
    credentials.unwrap_or(Credentials::None)
}

/// Checks the name of a header, and that a secret is not written here.
fn checked_header(name: &str, is_literal: bool) -> Result<(), &'static str> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err("a header's name has letters, digits and \"-\" only");
    }
    let lower_case = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&lower_case.as_str()) {
        return Err("the protocol decides this header");
    }
    if is_literal && SECRET_HEADERS.contains(&lower_case.as_str()) {
        return Err(
            "its value is a secret, which does not belong into this file: write { file = \"...\" }, \
             { env = \"...\" } or { credential = \"...\" }",
        );
    }
    Ok(())
}

/// Writes the keys that say how requests are made.
pub fn effective(page: &mut Page<'_>, settings: &HttpSettings) {
    // A field that is added cannot be forgotten here.
    let HttpSettings {
        proxy,
        headers,
        credentials,
        tls,
        danger_accept_invalid_certs,
        timeout,
    } = settings;
    page.key(&HEADERS.definition, header::effective(headers));
    match credentials {
        Credentials::None => {}
        Credentials::Bearer(token) => {
            page.key(&BEARER_TOKEN_FILE.definition, holder(&token.holder));
        }
        Credentials::Basic { username, password } => {
            page.key(&USERNAME.definition, quoted(username));
            page.key(&PASSWORD_FILE.definition, holder(&password.holder));
        }
    }
    TLS.effective(page, tls);
    let key = &DANGER_ACCEPT_INVALID_CERTS.definition;
    page.key(key, danger_accept_invalid_certs);
    match proxy {
        Proxy::Environment => {}
        Proxy::None => page.key(&PROXY.definition, quoted("none")),
        Proxy::Through(proxy) => page.key(&PROXY.definition, quoted(proxy)),
    }
    page.key(&TIMEOUT.definition, quoted(duration::display(*timeout)));
}
