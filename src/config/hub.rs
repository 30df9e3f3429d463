//! `[[hub]]`: the hubs outside this process.

use std::collections::HashSet;

use resourcesync::uri::Hub;
use url::{Position, Url};
use websub::secret::{MASKED, Secret};

use crate::announce::plan::{Mode, Replaces};
use crate::config::definition::Fallback::{Default, Described, Nothing, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::effective::{Page, quoted, word};
use crate::config::form::{HOLDER, WEB_URI_TEXT, choice, text, words};
use crate::config::header;
use crate::config::holder::Holder;
use crate::config::http::{self, HttpSettings};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::loader::Loader;
use crate::config::origin::Given;
use crate::config::overrides::Overrides;
use crate::config::secret::secret;
use crate::config::section::Section;
use crate::config::structure::WrittenTable;
use crate::config::web_uri;

pub static HUB: Definition = Definition {
    more: "See below. Without any, the embedded hub.",
    ..Definition::table(
        "hub",
        Kind::Tables(&[
            &URL.definition,
            &PUBLISH_URL.definition,
            &PUBLISH_URL_FILE.definition,
            &MODE.definition,
            &REPLACES.definition,
            &http::HEADERS.definition,
            &http::BEARER_TOKEN_FILE.definition,
            &http::USERNAME.definition,
            &http::PASSWORD_FILE.definition,
            &http::TLS.client_cert.definition,
            &http::TLS.client_key.definition,
            &http::TLS.ca_file.definition,
            &http::DANGER_ACCEPT_INVALID_CERTS.definition,
            &http::PROXY.definition,
            &http::TIMEOUT.definition,
        ]),
        "Hubs outside this process that are notified.",
    )
};

/// An address, byte for byte.
const ADDRESS: ValueForm<String> = ValueForm {
    kind: Kind::Text(&WEB_URI_TEXT),
    read: |loader, key, value| text(loader, key, &value, address),
};

pub static URL: ConfigKey<String> = ConfigKey::new(
    "hub",
    "url",
    ADDRESS,
    Required,
    "URI of the hub, exactly as Capability Lists advertise it.",
)
.example(Example::Comment("\"https://hub.example.net/websub/\""))
.flags(&["--hub"]);

static PUBLISH_URL: ConfigKey<String> = ConfigKey::new(
    "hub",
    "publish_url",
    ADDRESS,
    Described("as `url`"),
    "URI to submit notifications to, if it is another one. It is never advertised.",
)
.example(Example::Comment(
    "\"https://hub.example.net/websub/publish\"",
));

static PUBLISH_URL_FILE: ConfigKey<Holder> = ConfigKey::new(
    "hub",
    "publish_url_file",
    HOLDER,
    Nothing,
    "Holder of `publish_url`, if it contains a key.",
)
.example(Example::Comment("\"/etc/rsnotify/hub-url\""));

static MODE: ConfigKey<Mode> = ConfigKey::new(
    "hub",
    "mode",
    ValueForm {
        kind: Kind::Text(&TextKind {
            words: &words(&MODES),
            ..TextKind::ANY
        }),
        read: |loader, key, value| choice(loader, key, &value, &MODES),
    },
    Default("\"content\""),
    "Form of a submission. `\"content\"`: the notification as the body, as ResourceSync hubs take it. `\"ping\"`: a form \
     that names the topic, which the hub then fetches. `\"content-query\"`: the notification as the body, the topic in \
     the query.",
);

static REPLACES: ConfigKey<Replaces> = ConfigKey::new(
    "hub",
    "replaces",
    ValueForm {
        kind: Kind::Text(&TextKind::NOT_EMPTY),
        read: |loader, key, value| text(loader, key, &value, replaced),
    },
    Default("\"auto\""),
    "Hub that this one replaces, whose pending changes it takes over: the URI of one that is no longer configured, \
     `\"nothing\"`, or `\"auto\"`: the only one that was removed when this was the only one added.",
);

/// A hub outside this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalHub {
    /// As advertised, byte for byte.
    pub hub: Hub,
    /// The address to POST to: the same, unless the hub publishes elsewhere. Never advertised.
    pub publish_url: Secret,
    /// The holder of that address; nothing where it is written in the configuration.
    pub publish_url_holder: Option<Holder>,
    pub mode: Mode,
    pub replaces: Replaces,
    pub http: HttpSettings,
}

/// The modes as they are written.
const MODES: [(&str, Mode); 3] = [
    ("content", Mode::Content),
    ("ping", Mode::Ping),
    ("content-query", Mode::ContentQuery),
];

/// Reads every `[[hub]]`, or the one that `--hub` names.
pub fn hubs(
    loader: &mut Loader<'_>,
    written: Vec<WrittenTable<'_>>,
    overrides: &Overrides,
) -> Vec<ExternalHub> {
    let mut seen = HashSet::new();
    let mut hubs = Vec::new();
    for written in chosen(written, overrides) {
        let mut section = Section::new(loader, hubs.len(), written);
        let origin = section.origin_of(&URL);
        let Some(external) = external_hub(&mut section) else {
            continue;
        };
        if !seen.insert(external.hub.clone()) {
            let message = format!("{} is listed already", external.hub);
            loader.report(origin, &URL.definition, message);
            continue;
        }
        hubs.push(external);
    }
    hubs
}

fn chosen<'f>(written: Vec<WrittenTable<'f>>, overrides: &Overrides) -> Vec<WrittenTable<'f>> {
    let Some(wanted) = &overrides.hub else {
        return written;
    };
    let mut written = written.into_iter();
    let mut written = written
        .find(|table| table.text(URL.definition.name) == Some(wanted))
        .unwrap_or_default();
    written.set(&URL.definition, Some(wanted));
    vec![written]
}

fn external_hub(section: &mut Section<'_, '_, '_>) -> Option<ExternalHub> {
    let url = section.required(&URL);
    let publish_url = section.given(&PUBLISH_URL);
    let holder = section.given(&PUBLISH_URL_FILE);
    let held =
        holder.and_then(|holder| held_address(section.loader, holder, publish_url.is_some()));
    let (held, publish_url_holder) = held.unzip();
    let mode = section.value(&MODE);
    let replaces = section.value(&REPLACES);
    let http = http::settings(section);
    let url = url?.value;
    let publish_url = publish_url.map(|url| url.value);
    Some(ExternalHub {
        publish_url: Secret::new(held.or(publish_url).unwrap_or_else(|| url.clone())),
        publish_url_holder,
        hub: Hub::new(url),
        mode,
        replaces,
        http,
    })
}

/// The words for a hub that is replaced, other than its address.
const AUTOMATIC: &str = "auto";
const NOTHING: &str = "nothing";

fn replaced(text: &str) -> Result<Replaces, String> {
    match text {
        AUTOMATIC => Ok(Replaces::Automatic),
        NOTHING => Ok(Replaces::Nothing),
        text => address(text).map(|url| Replaces::Hub(Hub::new(url))),
    }
}

/// Returns the address that is held, and its holder. No message repeats it.
fn held_address(
    loader: &mut Loader<'_>,
    holder: Given<Holder>,
    is_written: bool,
) -> Option<(String, Holder)> {
    let key = &PUBLISH_URL_FILE.definition;
    let origin = holder.origin;
    if is_written {
        let message = "publish_url and publish_url_file exclude each other: keep one";
        loader.report(origin, key, message);
        return None;
    }
    let held = secret(loader, key, holder)?;
    if address(held.reveal()).is_err() {
        let message = "it holds no absolute URI such as https://hub.example.net/publish?key=…, \
                       without user name and password";
        loader.report(origin, key, message);
        return None;
    }
    Some((held.reveal().to_owned(), held.holder))
}

/// Returns an address, byte for byte. The message repeats none that holds a password.
fn address(text: &str) -> Result<String, String> {
    let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    if after_scheme
        .split(['/', '?', '#'])
        .next()
        .is_some_and(|authority| authority.contains('@'))
    {
        let message = "credentials do not belong into an address: use username and password_file";
        return Err(message.to_owned());
    }
    match web_uri::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes a `[[hub]]`.
pub fn effective(page: &mut Page<'_>, external: &ExternalHub) {
    // A field that is added cannot be forgotten here.
    let ExternalHub {
        hub,
        publish_url,
        publish_url_holder,
        mode,
        replaces,
        http,
    } = external;
    page.key(&URL.definition, quoted(hub));
    match publish_url_holder {
        Some(holder) => page.key(&PUBLISH_URL_FILE.definition, header::holder(holder)),
        None => {
            let shown = match publish_url.reveal() {
                same if same == hub.as_str() => same.to_owned(),
                other => unadvertised(other),
            };
            page.key(&PUBLISH_URL.definition, quoted(shown));
        }
    }
    page.key(&MODE.definition, quoted(word(&MODES, *mode)));
    let replaces = match replaces {
        Replaces::Automatic => AUTOMATIC,
        Replaces::Nothing => NOTHING,
        Replaces::Hub(hub) => hub.as_str(),
    };
    page.key(&REPLACES.definition, quoted(replaces));
    http::effective(page, http);
}

/// Returns the part of an address that is not advertised which is no secret: the rest may hold a key.
fn unadvertised(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if &url[Position::BeforePath..] == "/" => address.to_owned(),
        Ok(url) => format!("{}/{}", &url[..Position::BeforePath], MASKED),
        Err(_) => MASKED.to_owned(),
    }
}
