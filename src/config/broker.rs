//! `[[broker]]`: message brokers that notifications are sent to.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use toml::de::DeValue;
use url::Url;

use crate::announce::plan::BrokerPlan;
use crate::config::definition::Fallback::{Default, Described, Nothing, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind, path};
use crate::config::duration;
use crate::config::effective::{Page, inline, list, quoted, word};
use crate::config::form::{self, HOLDER, POSITIVE_DURATION, TEXT, choice, text, texts, words};
use crate::config::holder::{HeaderValue, Holder};
use crate::config::http::{CERTIFICATE, Header, PRIVATE_KEY, header, holder};
use crate::config::key::{ConfigKey, Form};
use crate::config::loader::Loader;
use crate::config::origin::Given;
use crate::config::secret::{HeldSecret, pem, secret, secret_at};
use crate::config::section::Section;
use crate::config::structure::WrittenTable;
use crate::config::suggestion::nearest;
use crate::contentchange::identifier::{Identifiers, ObjectKind, Relocation};
use crate::contentchange::objects::AtomForm;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::{Hub, is_clean};

pub static BROKER: Definition = Definition::table(
    "broker",
    Kind::Tables(&[
        &NAME.definition,
        &URL.definition,
        &DESTINATION.definition,
        &CHANNELS.definition,
        &SOURCES.definition,
        &PAYLOAD.definition,
        &OBJECT.definition,
        &IDENTIFIERS.definition,
        &LOCATION,
        &VHOST.definition,
        &USERNAME.definition,
        &PASSWORD_FILE.definition,
        &CLIENT_CERT.definition,
        &CLIENT_KEY.definition,
        &CA_FILE.definition,
        &TIMEOUT.definition,
        &HEADERS.definition,
    ]),
    "Message brokers that notifications are sent to, over STOMP 1.2.",
);

pub static NAME: ConfigKey<String> = ConfigKey::new(
    "broker",
    "name",
    Form {
        kind: Kind::Text(&TextKind::matching("^[A-Za-z0-9][A-Za-z0-9._-]*$")),
        read: |loader, key, value| text(loader, key, &value, name),
    },
    Required,
    "Name of the broker in reports and commands: letters, digits, `.`, `_` and `-`.",
)
.more("Another name is another broker, which is sent later changes only.")
.example(Example::Comment("\"repository\""));

static URL: ConfigKey<Address> = ConfigKey::new(
    "broker",
    "url",
    Form {
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

static DESTINATION: ConfigKey<String> = ConfigKey::new(
    "broker",
    "destination",
    Form {
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
    Form {
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
    Form {
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

static PAYLOAD: ConfigKey<Format> = ConfigKey::new(
    "broker",
    "payload",
    Form {
        kind: Kind::Text(&TextKind {
            words: &words(&PAYLOADS),
            ..TextKind::ANY
        }),
        read: |loader, key, value| choice(loader, key, &value, &PAYLOADS),
    },
    Default("\"resourcesync\""),
    "Content of messages: the notification as hubs get it, one message each (`\"resourcesync\"`), or an Atom feed for each \
     object that changed (`\"atom\"`), which needs `channels = [\"change\"]`.",
)
.more("See [messages](messages.md).");

static OBJECT: ConfigKey<ObjectKind> = ConfigKey::new(
    "broker",
    "object",
    Form {
        kind: Kind::Text(&TextKind {
            words: &words(&OBJECTS),
            ..TextKind::ANY
        }),
        read: |loader, key, value| choice(loader, key, &value, &OBJECTS),
    },
    Default("\"resource\""),
    "With `payload = \"atom\"`, what an object is: each resource (`\"resource\"`), or the directory with its resources as \
     items (`\"directory\"`): the URI up to its last slash.",
);

static IDENTIFIERS: ConfigKey<Identifiers> = ConfigKey::new(
    "broker",
    "identifiers",
    Form {
        kind: Kind::Text(&TextKind {
            words: &words(&IDENTIFIER_FORMS),
            ..TextKind::ANY
        }),
        read: |loader, key, value| choice(loader, key, &value, &IDENTIFIER_FORMS),
    },
    Default("\"uri\""),
    "With `payload = \"atom\"`, identifiers of objects and items: their URIs (`\"uri\"`), or those of a Fedora repository \
     (`\"info:fedora\"`).",
)
.more("The latter is `info:fedora/` with what follows `/objects/` or `/rest/` in the path, or with the whole path.");

static LOCATION: Definition = Definition {
    table: "broker",
    example: Example::Comment(
        "{ from = \"http://fedora:8080/\", to = \"https://repo.example.org/\" }",
    ),
    ..Definition::table(
        "location",
        Kind::Table(&[&FROM.definition, &TO.definition]),
        "With `payload = \"atom\"`, another location of the content than the URI of the resource.",
    )
};

static FROM: ConfigKey<String> = ConfigKey::new(
    "broker.location",
    "from",
    LOCATION_PREFIX,
    Required,
    "Beginning of URIs that is replaced.",
);

static TO: ConfigKey<String> = ConfigKey::new(
    "broker.location",
    "to",
    LOCATION_PREFIX,
    Required,
    "Text that replaces it.",
);

const LOCATION_PREFIX: Form<String> = Form {
    kind: Kind::Text(&TextKind::matching(r"^[A-Za-z][A-Za-z0-9+.\-]*:\S+$")),
    read: |loader, key, value| text(loader, key, &value, location_prefix),
};

static VHOST: ConfigKey<String> = ConfigKey::new(
    "broker",
    "vhost",
    Form {
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

static CLIENT_CERT: ConfigKey<Holder> = ConfigKey::new(
    "broker",
    "client_cert",
    HOLDER,
    Nothing,
    "Holder of a TLS client certificate in PEM; needs `client_key`.",
)
.example(Example::Comment("\"/etc/rsnotify/client.pem\""));

static CLIENT_KEY: ConfigKey<Holder> = ConfigKey::new(
    "broker",
    "client_key",
    HOLDER,
    Nothing,
    "Holder of its private key in PEM.",
)
.example(Example::Comment("\"/etc/rsnotify/client.key\""));

static CA_FILE: ConfigKey<Holder> = ConfigKey::new(
    "broker",
    "ca_file",
    HOLDER,
    Nothing,
    "Holder of certificates to trust beside the system's, in PEM.",
)
.example(Example::Comment("\"/etc/rsnotify/ca.pem\""));

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
    pub address: Address,
    pub destination: String,
    pub payload: Payload,
    pub vhost: String,
    pub login: Option<Login>,
    pub client_identity: Option<ClientIdentity>,
    /// Certificates, in PEM, trusted beside the system's.
    pub ca: Option<HeldSecret>,
    pub timeout: Duration,
    /// Headers of each message, in order of name.
    pub headers: Vec<Header>,
}

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
}

/// A user name with its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub username: String,
    pub password: HeldSecret,
}

/// A TLS client certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: HeldSecret,
    pub key: HeldSecret,
}

/// The content of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// The notification as hubs get it.
    ResourceSync,
    /// A feed for each object that changed.
    Atom(AtomForm),
}

/// The words for the content of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    ResourceSync,
    Atom,
}

const PAYLOADS: [(&str, Format); 2] = [
    ("resourcesync", Format::ResourceSync),
    ("atom", Format::Atom),
];

const OBJECTS: [(&str, ObjectKind); 2] = [
    ("resource", ObjectKind::Resource),
    ("directory", ObjectKind::Directory),
];

const IDENTIFIER_FORMS: [(&str, Identifiers); 2] = [
    ("uri", Identifiers::Uri),
    ("info:fedora", Identifiers::InfoFedora),
];

const KINDS: [(&str, ChannelKind); 2] = [
    ("framework", ChannelKind::Framework),
    ("change", ChannelKind::Change),
];

const TCP_PORT: u16 = 61613;
const TLS_PORT: u16 = 61614;

/// The word for the embedded hub in commands.
const EMBEDDED: &str = "embedded";

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
    "initial",
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
    let payload = payload(section, &kinds);
    let vhost = section.value(&VHOST);
    let login = login(section);
    let is_tls = address.as_ref().is_none_or(|address| address.value.is_tls);
    let client_identity = client_identity(section, is_tls);
    let ca = section.given(&CA_FILE);
    if let Some(ca) = ca.as_ref().filter(|_| !is_tls) {
        let loader = &mut section.loader;
        loader.report(ca.origin, &CA_FILE.definition, WITHOUT_TLS);
    }
    let ca = ca.and_then(|ca| pem(section.loader, &CA_FILE.definition, ca, CERTIFICATE));
    let timeout = section.value(&TIMEOUT);
    let headers = section.value(&HEADERS);
    let headers = self::headers(section.loader, headers);
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
        client_identity,
        ca,
        timeout,
        headers,
    })
}

/// Returns the content of messages, of which feeds have changed resources only (F6).
fn payload(section: &mut Section<'_, '_, '_>, kinds: &[ChannelKind]) -> Payload {
    const ONLY_CHANGES: &str = "feeds are about changed resources: write channels = [\"change\"], and send changes of \
                                documents to another [[broker]] with payload = \"resourcesync\"";
    const WITHOUT_FEEDS: &str =
        "it has no effect without feeds: write payload = \"atom\", or remove it";
    let payload = section.given(&PAYLOAD);
    let is_atom = payload.as_ref().map(|payload| payload.value) == Some(Format::Atom);
    let object = section.given(&OBJECT);
    let identifiers = section.given(&IDENTIFIERS);
    let has_location = section.has(&LOCATION);
    let location = section.table(&LOCATION);
    let origin = location.origin;
    let loader = &mut section.loader;
    if !is_atom {
        if let Some(object) = object {
            loader.report(object.origin, &OBJECT.definition, WITHOUT_FEEDS);
        }
        if let Some(identifiers) = identifiers {
            loader.report(identifiers.origin, &IDENTIFIERS.definition, WITHOUT_FEEDS);
        }
        if has_location {
            loader.report(origin, &LOCATION, WITHOUT_FEEDS);
        }
        return Payload::ResourceSync;
    }
    if let Some(payload) = payload.filter(|_| kinds.contains(&ChannelKind::Framework)) {
        loader.report(payload.origin, &PAYLOAD.definition, ONLY_CHANGES);
    }
    let mut form = AtomForm {
        object: object.map(|object| object.value).unwrap_or_default(),
        identifiers: identifiers.map(|form| form.value).unwrap_or_default(),
        location: None,
    };
    if has_location {
        let mut section = Section::new(loader, 0, location);
        let (from, to) = (section.required(&FROM), section.required(&TO));
        form.location = from.zip(to).map(|(from, to)| Relocation {
            from: from.value,
            to: to.value,
        });
    }
    Payload::Atom(form)
}

fn location_prefix(text: &str) -> Result<String, &'static str> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    let is_absolute = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(is_scheme)
        && !rest.is_empty();
    match is_absolute && is_clean(text) {
        true => Ok(text.to_owned()),
        false => Err("write the beginning of a URI, such as \"https://repo.example.org/\""),
    }
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
    if text == EMBEDDED {
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

/// Returns the parts of an address. No message repeats it: it may hold a password.
fn address(text: &str) -> Result<Address, &'static str> {
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
    Ok(Address {
        host: host.to_owned(),
        port: url.port().unwrap_or(port),
        is_tls,
    })
}

fn login(section: &mut Section<'_, '_, '_>) -> Option<Login> {
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
            Some(Login { username, password })
        }
        (Some(username), None) => {
            lacks(section, &USERNAME.definition, &username, "password_file");
            None
        }
        (None, Some(password)) => {
            lacks(section, &PASSWORD_FILE.definition, &password, "username");
            None
        }
    }
}

fn client_identity(section: &mut Section<'_, '_, '_>, is_tls: bool) -> Option<ClientIdentity> {
    match (section.given(&CLIENT_CERT), section.given(&CLIENT_KEY)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            let loader = &mut section.loader;
            if !is_tls {
                loader.report(certificate.origin, &CLIENT_CERT.definition, WITHOUT_TLS);
            }
            let certificate = pem(loader, &CLIENT_CERT.definition, certificate, CERTIFICATE);
            let key = pem(loader, &CLIENT_KEY.definition, key, PRIVATE_KEY);
            Some(ClientIdentity {
                certificate: certificate?,
                key: key?,
            })
        }
        (Some(certificate), None) => {
            lacks(section, &CLIENT_CERT.definition, &certificate, "client_key");
            None
        }
        (None, Some(key)) => {
            lacks(section, &CLIENT_KEY.definition, &key, "client_cert");
            None
        }
    }
}

/// Reports a key without another one that it needs.
fn lacks<T>(
    section: &mut Section<'_, '_, '_>,
    key: &Definition,
    given: &Given<T>,
    lacking: &'static str,
) {
    let message = format!("it needs {lacking} too");
    let loader = &mut section.loader;
    loader.report_absence(&[lacking], given.origin, key, message);
}

fn headers(loader: &mut Loader<'_>, given: BTreeMap<String, Given<HeaderValue>>) -> Vec<Header> {
    let mut headers = Vec::new();
    for (name, Given { value, origin }) in given {
        let key = path(&HEADERS.definition.path(), &name);
        let is_reserved = RESERVED_HEADERS
            .iter()
            .any(|reserved| reserved.eq_ignore_ascii_case(&name));
        let problem = match () {
            () if name.is_empty() || name.chars().any(char::is_control) => {
                Some("a header has a name without control characters")
            }
            () if is_reserved => Some("each message has this header already"),
            () => None,
        };
        if let Some(problem) = problem {
            loader.report_path(origin, key, problem, None);
            continue;
        }
        let (value, holder) = match value {
            HeaderValue::Literal(value) => (value, None),
            HeaderValue::HeldBy(value) => {
                match secret_at(loader, key.clone(), Given { value, origin }) {
                    Some(held) => (held.content, Some(held.holder)),
                    None => continue,
                }
            }
        };
        if value.reveal().chars().any(char::is_control) {
            loader.report_path(origin, key, "the value has a control character", None);
            continue;
        }
        headers.push(Header {
            name,
            value,
            holder,
        });
    }
    headers
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
        client_identity,
        ca,
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
    let format = match payload {
        Payload::ResourceSync => Format::ResourceSync,
        Payload::Atom(_) => Format::Atom,
    };
    page.key(&PAYLOAD.definition, quoted(word(&PAYLOADS, format)));
    if let Payload::Atom(AtomForm {
        object,
        identifiers,
        location,
    }) = payload
    {
        page.key(&OBJECT.definition, quoted(word(&OBJECTS, *object)));
        let identifiers = word(&IDENTIFIER_FORMS, *identifiers);
        page.key(&IDENTIFIERS.definition, quoted(identifiers));
        if let Some(Relocation { from, to }) = location {
            let pairs = [
                format!("from = {}", quoted(from)),
                format!("to = {}", quoted(to)),
            ];
            page.key(&LOCATION, inline(&pairs));
        }
    }
    page.key(&VHOST.definition, quoted(vhost));
    if let Some(Login { username, password }) = login {
        page.key(&USERNAME.definition, quoted(username));
        page.key(&PASSWORD_FILE.definition, holder(&password.holder));
    }
    if let Some(ClientIdentity { certificate, key }) = client_identity {
        page.key(&CLIENT_CERT.definition, holder(&certificate.holder));
        page.key(&CLIENT_KEY.definition, holder(&key.holder));
    }
    if let Some(ca) = ca {
        page.key(&CA_FILE.definition, holder(&ca.holder));
    }
    page.key(&TIMEOUT.definition, quoted(duration::display(*timeout)));
    let headers: Vec<String> = headers.iter().map(header).collect();
    page.key(&HEADERS.definition, inline(&headers));
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
