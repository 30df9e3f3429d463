//! The content of the messages for a broker: notifications as they are, or feeds made from them.

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::is_clean;

use crate::broker::feeds::identifier::{Identifiers, ObjectKind, Relocation};
use crate::broker::feeds::objects::{AtomForm, PayloadFormat};
use crate::config::definition::Fallback::{Default, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::effective::{Page, inline, quoted, word};
use crate::config::form::{choice, text, words};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::section::Section;

pub static PAYLOAD: ConfigKey<Format> = ConfigKey::new(
    "broker",
    "payload",
    ValueForm {
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

pub static OBJECT: ConfigKey<ObjectKind> = ConfigKey::new(
    "broker",
    "object",
    ValueForm {
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

pub static IDENTIFIERS: ConfigKey<Identifiers> = ConfigKey::new(
    "broker",
    "identifiers",
    ValueForm {
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

pub static LOCATION: Definition = Definition {
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

const LOCATION_PREFIX: ValueForm<String> = ValueForm {
    kind: Kind::Text(&TextKind::matching(r"^[A-Za-z][A-Za-z0-9+.\-]*:\S+$")),
    read: |loader, key, value| text(loader, key, &value, location_prefix),
};

/// The words for the content of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
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

/// Returns the content of messages, of which feeds have changed resources only (F6).
pub fn read(section: &mut Section<'_, '_, '_>, kinds: &[ChannelKind]) -> PayloadFormat {
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
        return PayloadFormat::ResourceSync;
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
    PayloadFormat::Atom(form)
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

/// Writes the keys about the content of messages.
pub fn effective(page: &mut Page<'_>, payload: &PayloadFormat) {
    let format = match payload {
        PayloadFormat::ResourceSync => Format::ResourceSync,
        PayloadFormat::Atom(_) => Format::Atom,
    };
    page.key(&PAYLOAD.definition, quoted(word(&PAYLOADS, format)));
    if let PayloadFormat::Atom(AtomForm {
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
}
