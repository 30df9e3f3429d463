//! `[[broker]]`: message brokers that notifications are sent to.

mod address;
mod payload;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use resourcesync::uri::Hub;
use toml::de::DeValue;

use crate::announce::plan::{BrokerPlan, EMBEDDED_NAME};
use crate::broker::feeds::message::INITIAL;
use crate::broker::feeds::objects::PayloadFormat;
use crate::config::broker::address::URL;
use crate::config::channel::KINDS;
use crate::config::definition::Fallback::{Default, Described, Nothing, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::duration;
use crate::config::effective::{Page, list, quoted, word};
use crate::config::form::{self, HOLDER, POSITIVE_DURATION, TEXT, text, texts, words};
use crate::config::header::{self, Header, holder};
use crate::config::holder::{HeaderValue, Holder};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::loader::Loader;
use crate::config::origin::Given;
use crate::config::secret::{HeldSecret, secret};
use crate::config::section::Section;
use crate::config::structure::WrittenTable;
use crate::config::suggestion::nearest;
use crate::config::tls::{TlsConfig, TlsKeys};

pub use crate::config::broker::address::BrokerAddress;

pub static BROKER: Definition = Definition::table(
    "broker",
    Kind::Tables(&[
        &NAME.definition,
        &URL.definition,
        &DESTINATION.definition,
        &CHANNELS.definition,
        &SOURCES.definition,
        &payload::PAYLOAD.definition,
        &payload::OBJECT.definition,
        &payload::IDENTIFIERS.definition,
        &payload::LOCATION,
        &VHOST.definition,
        &USERNAME.definition,
        &PASSWORD_FILE.definition,
        &TLS.client_cert.definition,
        &TLS.client_key.definition,
        &TLS.ca_file.definition,
        &TIMEOUT.definition,
        &HEADERS.definition,
    ]),
    "Message brokers that notifications are sent to, over STOMP 1.2.",
);

pub static NAME: ConfigKey<String> = ConfigKey::new(
    "broker",
    "name",
    ValueForm {
        kind: Kind::Text(&TextKind::matching("^[A-Za-z0-9][A-Za-z0-9._-]*$")),
        read: |loader, key, value| text(loader, key, &value, name),
    },
    Required,
    "Name of the broker in reports and commands: letters, digits, `.`, `_` and `-`.",
)
.more("Another name is another broker, which is sent later changes only.")
.example(Example::Comment("\"repository\""));

static DESTINATION: ConfigKey<String> = ConfigKey::new(
    "broker",
    "destination",
    ValueForm {
        kind: Kind::Text(&TextKind::NOT_EMPTY),
        read: |loader, key, value| text(loader, key, &value, destination),
    },
    Required,
    "Destination to send to: a topic, queue or exchange, as the broker writes it. `{source}` stands for the name of the \
     source.",
)
.example(Example::Comment("\"/topic/content.change\""));

static CHANNELS: ConfigKey<Vec<Given<String>>> = ConfigKey::new(
    "broker",
    "channels",
    ValueForm {
        kind: Kind::List {
            item: &TextKind {
                words: &words(&KINDS),
                ..TextKind::ANY
            },
            may_be_empty: false,
        },
        read: |loader, key, value| some(loader, key, value, "name at least one kind"),
    },
    Default("[\"change\"]"),
    "Kinds of channels to send: changes of resources (`change`), changes of documents (`framework`).",
)
.more("Whether Capability Lists advertise them makes no difference to a broker.");

static SOURCES: ConfigKey<Vec<Given<String>>> = ConfigKey::new(
    "broker",
    "sources",
    ValueForm {
        kind: Kind::List {
            item: &TextKind::NOT_EMPTY,
            may_be_empty: false,
        },
        read: |loader, key, value| {
            let message = "name at least one source, or leave it out";
            some(loader, key, value, message)
        },
    },
    Described("all"),
    "Names of the sources to send notifications of.",
)
.example(Example::Comment("[\"main\"]"));

static VHOST: ConfigKey<String> = ConfigKey::new(
    "broker",
    "vhost",
    ValueForm {
        kind: Kind::Text(&TextKind::NOT_EMPTY),
        read: |loader, key, value| {
            text(loader, key, &value, |text| match text {
                "" => Err("it is empty: leave it out for \"/\""),
                text => one_line(text),
            })
        },
    },
    Default("\"/\""),
    "Virtual host, for brokers that have several.",
);

static USERNAME: ConfigKey<String> = ConfigKey::new(
    "broker",
    "username",
    TEXT,
    Nothing,
    "User name; needs `password_file`.",
)
.example(Example::Comment("\"rsnotify\""));

static PASSWORD_FILE: ConfigKey<Holder> = ConfigKey::new(
    "broker",
    "password_file",
    HOLDER,
    Nothing,
    "Holder of the password.",
)
.more("See [secrets](#secrets).")
.example(Example::Comment("\"/etc/rsnotify/broker-password\""));

static TLS: TlsKeys = TlsKeys::new("broker");

static TIMEOUT: ConfigKey<Duration> = ConfigKey::new(
    "broker",
    "timeout",
    POSITIVE_DURATION,
    Default("\"30s\""),
    "Timeout of connecting, and of the receipts of a notification.",
);

static HEADERS: ConfigKey<BTreeMap<String, Given<HeaderValue>>> = ConfigKey::new(
    "broker",
    "headers",
    form::HEADERS,
    Default("{}"),
    "Headers to add to each message. A value is a text, or the holder of a secret.",
)
.example(Example::Comment("{ priority = \"5\" }"));

/// A message broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    pub plan: BrokerPlan,
    pub address: BrokerAddress,
    pub destination: String,
    pub payload: PayloadFormat,
    pub vhost: String,
    pub login: Option<LoginConfig>,
    pub tls: TlsConfig,
    pub timeout: Duration,
    /// Headers of each message, in order of name.
    pub headers: Vec<Header>,
}

/// A user name with its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginConfig {
    pub username: String,
    pub password: HeldSecret,
}

/// Headers that the protocol decides, or that each message has (F3).
const RESERVED_HEADERS: [&str; 26] = [
    "content-length",
    "content-type",
    "destination",
    "receipt",
    "transaction",
    "type",
    "correlation-id",
    "JMSXGroupID",
    "_AMQ_DUPL_ID",
    "persistent",
    "amq-msg-type",
    "message-id",
    "messageId",
    "format",
    "kind",
    "source",
    "topic",
    "seq",
    "changeTypes",
    "objectUri",
    "parentUri",
    "objectTypes",
    "itemCount",
    INITIAL,
    "user",
    "ack",
];

/// Returns the texts of a list that is not empty.
fn some(
    loader: &mut Loader<'_>,
    key: &Definition,
    value: Given<DeValue<'_>>,
    message: &str,
) -> Option<Vec<Given<String>>> {
    let origin = value.origin;
    let texts = texts(value);
    if texts.is_empty() {
        loader.report(origin, key, message);
        return None;
    }
    Some(texts)
}

/// Reads every `[[broker]]`. `sources` are the names of all sources.
pub fn brokers(
    loader: &mut Loader<'_>,
    written: Vec<WrittenTable<'_>>,
    sources: &[&str],
) -> Vec<Broker> {
    let mut seen = HashSet::new();
    let mut brokers = Vec::new();
    for (position, written) in written.into_iter().enumerate() {
        let mut section = Section::new(loader, position, written);
        let origin = section.origin_of(&NAME);
        let Some(broker) = broker(&mut section, sources) else {
            continue;
        };
        if !seen.insert(broker.plan.name.clone()) {
            let message = format!("there is a broker {} already", broker.plan.name);
            loader.report(origin, &NAME.definition, message);
            continue;
        }
        brokers.push(broker);
    }
    brokers
}

fn broker(section: &mut Section<'_, '_, '_>, known: &[&str]) -> Option<Broker> {
    let name = section.required(&NAME);
    let address = section.required(&URL);
    let destination = section.required(&DESTINATION);
    let channels = section.value(&CHANNELS);
    let mut kinds = Vec::new();
    for channel in channels {
        let words: Vec<&str> = KINDS.iter().map(|(word, _)| *word).collect();
        let is_read = |text: &str| match KINDS.iter().find(|(word, _)| *word == text) {
            Some((_, kind)) => Ok(*kind),
            None => Err(format!(
                "\"{text}\" is none of \"{}\"",
                words.join("\", \"")
            )),
        };
        kinds.extend(
            section
                .loader
                .checked(&CHANNELS.definition, &channel, is_read),
        );
    }
    kinds.sort_unstable();
    kinds.dedup();
    let sources = section.given(&SOURCES).map(|sources| {
        let sources = sources.value.into_iter();
        let named = sources.filter_map(|source| {
            let is_known = |text: &str| match known.contains(&text) {
                true => Ok(text.to_owned()),
                false => Err(unknown_source(text, known)),
            };
            section
                .loader
                .checked(&SOURCES.definition, &source, is_known)
        });
        named.collect()
    });
    let payload = payload::read(section, &kinds);
    let vhost = section.value(&VHOST);
    let login = login(section);
    let is_tls = address.as_ref().is_none_or(|address| address.value.is_tls);
    let tls = TLS.read(section, (!is_tls).then_some(WITHOUT_TLS));
    let timeout = section.value(&TIMEOUT);
    let headers = section.value(&HEADERS);
    let headers = header::headers(section.loader, &HEADERS.definition, headers, checked_header);
    Some(Broker {
        plan: BrokerPlan {
            name: Hub::new(name?.value),
            channels: kinds,
            sources,
        },
        address: address?.value,
        destination: destination?.value,
        payload,
        vhost,
        login,
        tls,
        timeout,
        headers,
    })
}

/// The message about certificates that nothing would use.
const WITHOUT_TLS: &str = "it has no effect without TLS: write stomp+tls:// in url, or remove it";

fn unknown_source(text: &str, known: &[&str]) -> String {
    let message = format!("\"{text}\" is no source");
    match nearest(text, known.iter().copied()) {
        Some(near) => format!("{message}; did you mean \"{near}\"?"),
        None => format!("{message}; there is \"{}\"", known.join("\", \"")),
    }
}

fn name(text: &str) -> Result<String, &'static str> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(is_known) {
        return Err(
            "a name has letters, digits, \".\", \"_\" and \"-\" only, and begins with one of the first two",
        );
    }
    if text == EMBEDDED_NAME {
        return Err("it means the embedded hub in commands: choose another name");
    }
    Ok(text.to_owned())
}

fn one_line(text: &str) -> Result<String, &'static str> {
    match text.chars().any(char::is_control) {
        true => Err("it has a control character"),
        false => Ok(text.to_owned()),
    }
}

fn destination(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("write a destination such as \"/topic/content.change\"");
    }
    let rest = text.replace("{source}", "");
    if rest.contains(['{', '}']) {
        return Err("it can have {source} only");
    }
    one_line(text)
}

fn login(section: &mut Section<'_, '_, '_>) -> Option<LoginConfig> {
    match (section.given(&USERNAME), section.given(&PASSWORD_FILE)) {
        (None, None) => None,
        (Some(Given { value, origin }), Some(password)) => {
            let loader = &mut section.loader;
            if value.is_empty() || value.chars().any(char::is_control) {
                let message = "a user name is not empty and has no control characters";
                loader.report(origin, &USERNAME.definition, message);
            }
            let password = secret(loader, &PASSWORD_FILE.definition, password)?;
            let username = value;
            Some(LoginConfig { username, password })
        }
        (Some(username), None) => {
            section.report_lack((&USERNAME, &username), &PASSWORD_FILE);
            None
        }
        (None, Some(password)) => {
            section.report_lack((&PASSWORD_FILE, &password), &USERNAME);
            None
        }
    }
}

/// Checks the name of a header of messages.
fn checked_header(name: &str, _: bool) -> Result<(), &'static str> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("a header has a name without control characters");
    }
    let mut reserved = RESERVED_HEADERS.iter();
    match reserved.any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        true => Err("each message has this header already"),
        false => Ok(()),
    }
}

/// Writes a `[[broker]]`.
pub fn effective(page: &mut Page<'_>, broker: &Broker) {
    // A field that is added cannot be forgotten here.
    let Broker {
        plan: BrokerPlan {
            name,
            channels,
            sources,
        },
        address,
        destination,
        payload,
        vhost,
        login,
        tls,
        timeout,
        headers,
    } = broker;
    page.key(&NAME.definition, quoted(name));
    page.key(&URL.definition, quoted(address));
    page.key(&DESTINATION.definition, quoted(destination));
    let kinds = channels.iter().map(|kind| word(&KINDS, *kind));
    page.key(&CHANNELS.definition, list(kinds));
    if let Some(sources) = sources {
        page.key(&SOURCES.definition, list(sources));
    }
    payload::effective(page, payload);
    page.key(&VHOST.definition, quoted(vhost));
    if let Some(LoginConfig { username, password }) = login {
        page.key(&USERNAME.definition, quoted(username));
        page.key(&PASSWORD_FILE.definition, holder(&password.holder));
    }
    TLS.effective(page, tls);
    page.key(&TIMEOUT.definition, quoted(duration::display(*timeout)));
    page.key(&HEADERS.definition, header::effective(headers));
}
