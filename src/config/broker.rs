//! `[[broker]]`: message brokers that notifications are sent to.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use messaging::message::INITIAL;
use messaging::objects::{
    AtomRules, IdentifierForm, LocationRewrite, ObjectGranularity, TypeRule, object_glob,
};
use messaging::settings::{
    BadCertificates, BrokerAddress, BrokerHeader, BrokerSettings, HEART_BEAT,
};
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, has_valid_chars};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use url::{Position, Url};

use crate::config::file::{Checked, ConfigTree, NOT_ZERO, TablePlace};
use crate::config::schema::with_suggestion;
use crate::config::secret::{ConfiguredSecret, content_of, read_credentials, read_headers};
use crate::config::text::{AsText, NO_CREDENTIALS, TextValue, seconds};
use announce::plan::EMBEDDED_NAME;

/// A message broker.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "url", "destination"]))]
pub struct Broker {
    /// Name of the broker in reports and commands: letters, digits, `.`, `_` and `-`.
    ///
    /// Another name is another broker, which is sent later changes only.
    #[schemars(with = "String", example = &"repository", extend("x-form" = "broker"))]
    #[default(Hub::new(""))]
    pub name: Hub,
    /// Address of the broker, `stomp://HOST:PORT`, or `stomp+tls://HOST:PORT` for TLS.
    ///
    /// The ports are 61613 and 61614 unless another is given.
    #[serde(rename = "url")]
    #[schemars(example = "stomp+tls://mq.example.org:61614")]
    #[default(AsText(BrokerAddress::default()))]
    pub address: AsText<BrokerAddress>,
    /// Destination to send to: a topic, queue or exchange, as the broker writes it. `{source}` stands for the name of the
    /// source.
    #[schemars(example = "/topic/content.change", extend("x-form" = "destination"))]
    pub destination: String,
    /// Kinds of channels to send: changes of resources (`change`), changes of documents (`framework`).
    ///
    /// Whether Capability Lists advertise them makes no difference to a broker.
    #[schemars(with = "Vec<String>", length(min = 1))]
    #[schemars(extend("items" = { "type": "string", "enum": ["framework", "change"] }))]
    #[default(vec![ChannelKind::Change])]
    pub channels: Vec<ChannelKind>,
    /// Names of the sources to send notifications of.
    #[schemars(length(min = 1), extend("x-default" = "all", "examples" = [["main"]]))]
    pub sources: Option<Vec<String>>,
    /// Content of messages: the notification as hubs get it, one message each (`"resourcesync"`), or an Atom feed for
    /// each object that changed (`"atom"`), which needs `channels = ["change"]`.
    ///
    /// See [messages](brokers.md#content-change-messages).
    #[default(BrokerPayload::ResourceSync)]
    pub payload: BrokerPayload,
    /// With `payload = "atom"`, what an object is: each resource (`"resource"`), or the directory with its resources as
    /// items (`"directory"`): the URI up to its last slash.
    #[schemars(with = "String", example = &"resource")]
    #[schemars(extend("enum" = ["resource", "directory"], "x-default" = "`\"resource\"`"))]
    pub object: Option<ObjectGranularity>,
    /// With `payload = "atom"`, identifiers of objects and items: their URIs (`"uri"`), or those of a Fedora repository
    /// (`"info:fedora"`).
    ///
    /// The latter is `info:fedora/` with what follows `/objects/` or `/rest/` in the path, or with the whole path.
    #[schemars(with = "String", example = &"uri")]
    #[schemars(extend("enum" = ["uri", "info:fedora"], "x-default" = "`\"uri\"`"))]
    pub identifiers: Option<IdentifierForm>,
    /// With `payload = "atom"`, another location of the content than the URI of the resource.
    ///
    /// See below.
    #[schemars(extend("examples" = [{ "from": "http://fedora:8080/", "to": "https://repo.example.org/" }]))]
    pub location: Option<LocationRewrite>,
    /// With `payload = "atom"`, the types of objects: each object has those of all globs that its URI matches.
    ///
    /// See below.
    #[schemars(extend("examples" = [[{ "objects": "https://repo.example.org/theses/**", "type": "Thesis" }]]))]
    pub types: Vec<TypeRule>,
    /// Virtual host, for brokers that have several.
    #[schemars(extend("x-form" = "virtual host"))]
    #[default("/".to_owned())]
    pub vhost: String,
    /// User name; needs `password_file`.
    #[schemars(example = &"rsnotify")]
    pub username: Option<String>,
    /// Holder of the password.
    ///
    /// See [secrets](#secrets).
    #[schemars(example = "/etc/rsnotify/broker-password")]
    pub password_file: Option<ConfiguredSecret>,
    /// Holder of a TLS client certificate in PEM; needs `client_key`.
    #[schemars(example = "/etc/rsnotify/client.pem")]
    pub client_cert: Option<ConfiguredSecret>,
    /// Holder of the private key of `client_cert`, in PEM.
    #[schemars(example = "/etc/rsnotify/client.key")]
    pub client_key: Option<ConfiguredSecret>,
    /// Holder of certificates to trust beside the system's, in PEM.
    #[schemars(example = "/etc/rsnotify/ca.pem")]
    pub ca_file: Option<ConfiguredSecret>,
    /// Timeout of connecting, and of silence while receipts are pending.
    #[default(seconds(30))]
    pub timeout: AsText<Duration>,
    /// Headers to add to each message. A value is a text, or the holder of a secret.
    #[schemars(extend("examples" = [{ "priority": "5" }]))]
    pub headers: BTreeMap<String, ConfiguredSecret>,
}

/// The content of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BrokerPayload {
    ResourceSync,
    Atom,
}

/// Headers that the protocol decides, or that each message has (F3), beside [`INITIAL`].
const RESERVED_HEADERS: &str = "content-length content-type destination receipt transaction type correlation-id \
     JMSXGroupID _AMQ_DUPL_ID persistent amq-msg-type message-id messageId format kind source topic seq changeTypes \
     objectUri parentUri objectTypes itemCount user ack";

/// Checks all brokers, and reads the files that they name. `sources` are the names of all sources, if these are known.
pub fn check(file: &ConfigTree<'_>, brokers: &mut [Broker], sources: Option<&[&str]>) -> Checked {
    let mut seen = HashSet::new();
    for (at, broker) in brokers.iter_mut().enumerate() {
        let table = file.table(format_args!("broker.{at}"));
        broker.check(&table, sources)?;
        let message = format_args!("there is a broker {} already", broker.name);
        table.refuse_if(!seen.insert(&broker.name), "name", message)?;
    }
    Ok(())
}

impl Broker {
    /// Returns the settings of its connection. An error in them is an error of the configuration.
    pub fn settings(&self) -> Result<BrokerSettings, BadCertificates> {
        let headers = self.headers.iter().map(|(name, held)| BrokerHeader {
            name: name.clone(),
            value: held.content.clone(),
            is_public: held.holder.is_none(),
        });
        let settings = BrokerSettings {
            name: self.name.clone(),
            address: self.address.0.clone(),
            ca_pem: content_of(&self.ca_file),
            identity: content_of(&self.client_cert).zip(content_of(&self.client_key)),
            vhost: self.vhost.clone(),
            login: self.username.clone().zip(content_of(&self.password_file)),
            destination: self.destination.clone(),
            form: (self.payload == BrokerPayload::Atom).then(|| AtomRules {
                object: self.object.unwrap_or_default(),
                identifiers: self.identifiers.unwrap_or_default(),
                location: self.location.clone(),
                types: self.types.clone(),
            }),
            headers: headers.collect(),
            timeout: self.timeout.0,
            heart_beat: HEART_BEAT,
        };
        settings.check_certificates()?;
        Ok(settings)
    }

    fn check(&mut self, table: &TablePlace<'_>, known: Option<&[&str]>) -> Checked {
        let mut named = self.sources.iter().flatten().enumerate();
        if let Some(known) = known
            && let Some((at, source)) = named.find(|(_, name)| !known.contains(&name.as_str()))
        {
            let message = with_suggestion(&format!("\"{source}\" is no source"), source, known);
            return Err(table.error(&format!("sources.{at}"), message));
        }
        self.channels.sort_unstable();
        self.channels.dedup();
        let is_atom = self.payload == BrokerPayload::Atom;
        // F6.
        let has_documents = self.channels.contains(&ChannelKind::Framework);
        let message = "feeds are about changed resources: write channels = [\"change\"], and send changes of documents to \
                       another [[broker]] with payload = \"resourcesync\"";
        table.refuse_if(is_atom && has_documents, "payload", message)?;
        table.refuse_if(self.timeout.0.is_zero(), "timeout", NOT_ZERO)?;
        let no_feeds = "it has no effect without feeds: write payload = \"atom\", or remove it";
        for (key, is_given) in [
            ("object", self.object.is_some()),
            ("identifiers", self.identifiers.is_some()),
            ("location", self.location.is_some()),
            ("types", !self.types.is_empty()),
        ] {
            table.refuse_if(is_given && !is_atom, key, no_feeds)?;
        }
        let is_wrong = |name: &String| name.is_empty() || name.chars().any(char::is_control);
        let is_wrong = self.username.as_ref().is_some_and(is_wrong);
        let message = "a user name is not empty and has no control characters";
        table.refuse_if(is_wrong, "username", message)?;
        if is_atom {
            self.object.get_or_insert_default();
            self.identifiers.get_or_insert_default();
        }
        let held = [
            &mut self.password_file,
            &mut self.client_cert,
            &mut self.client_key,
            &mut self.ca_file,
        ];
        read_credentials(table, &self.username, held)?;
        let no_tls = "it has no effect without TLS: write stomp+tls:// in url, or remove it";
        for (key, held) in [
            ("client_cert", &self.client_cert),
            ("client_key", &self.client_key),
            ("ca_file", &self.ca_file),
        ] {
            table.refuse_if(held.is_some() && !self.address.0.is_tls, key, no_tls)?;
        }
        read_headers(table, &mut self.headers, check_header_name)
    }
}

/// Checks a broker's name.
pub fn check_name(text: &str) -> Result<(), String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(is_known) {
        Err("a name has letters, digits, \".\", \"_\" and \"-\" only, and begins with one of the first two".to_owned())
    } else if text == EMBEDDED_NAME {
        Err("it means the embedded hub in commands: choose another name".to_owned())
    } else {
        Ok(())
    }
}

/// Checks a virtual host.
pub fn check_vhost(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty: leave it out for \"/\"".to_owned());
    }
    refuse_controls(text)
}

/// Checks a destination.
pub fn check_destination(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("write a destination such as \"/topic/content.change\"".to_owned());
    }
    if text.replace("{source}", "").contains(['{', '}']) {
        return Err("it can have {source} only".to_owned());
    }
    refuse_controls(text)
}

fn refuse_controls(text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err("it has a control character".to_owned());
    }
    Ok(())
}

/// Checks the beginning of a URI.
pub fn check_uri_prefix(text: &str) -> Result<(), String> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    let is_absolute = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(is_scheme)
        && !rest.is_empty();
    if is_absolute && has_valid_chars(text) {
        return Ok(());
    }
    Err("write the beginning of a URI, such as \"https://repo.example.org/\"".to_owned())
}

/// Checks a glob of the URIs of objects.
pub fn check_object_glob(text: &str) -> Result<(), String> {
    object_glob(text).map_or_else(|error| Err(error.to_string()), |_| Ok(()))
}

/// Checks a type of objects. Commas separate several in a property.
pub fn check_object_type(text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains(',') {
        return Err("a type is a URI or a word, without commas".to_owned());
    }
    refuse_controls(text)
}

/// Checks the name of a header of messages.
fn check_header_name(name: &str, _: bool) -> Result<(), &'static str> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("a header has a name without control characters");
    }
    let mut reserved = RESERVED_HEADERS.split(' ').chain([INITIAL]);
    if reserved.any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err("each message has this header already");
    }
    Ok(())
}

const TCP_PORT: u16 = 61613;
const TLS_PORT: u16 = 61614;

impl TextValue for BrokerAddress {
    const PATTERN: &'static str = r"^[Ss][Tt][Oo][Mm][Pp](\+[Tt][Ll][Ss])?://[^@/?#\s]+/?$";

    /// No message repeats the address: it may hold a password.
    fn read(text: &str) -> Result<BrokerAddress, String> {
        if text.contains('@') {
            return Err(NO_CREDENTIALS.to_owned());
        }
        let address = Url::parse(text).ok().and_then(|url| {
            let (is_tls, port) = match url.scheme() {
                "stomp" => (false, TCP_PORT),
                "stomp+tls" => (true, TLS_PORT),
                _ => return None,
            };
            let host = url.host_str()?.trim_matches(['[', ']']);
            let is_bare = matches!(&url[Position::BeforePath..], "" | "/");
            let is_one = !host.is_empty() && is_bare && url.port() != Some(0);
            is_one.then(|| BrokerAddress {
                host: host.to_owned(),
                port: url.port().unwrap_or(port),
                is_tls,
            })
        });
        let wanted = "write \"stomp://HOST:PORT\", or \"stomp+tls://HOST:PORT\" for TLS";
        address.ok_or_else(|| wanted.to_owned())
    }

    fn write(&self) -> String {
        let scheme = if self.is_tls { "stomp+tls" } else { "stomp" };
        format!("{scheme}://{self}")
    }
}
