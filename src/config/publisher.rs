//! `[[publisher]]`: the publishers of `rsnotify hub`, with the prefixes of their topics.

use std::collections::HashSet;

use resourcesync::uri::Uri;
use websub::hub::publisher::{Publisher, Publishers};

use crate::config::definition::Fallback::{Nothing, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::effective::{Page, list, quoted, word};
use crate::config::form::{HOLDER, PREFIXES, TEXT, choice, words};
use crate::config::header;
use crate::config::holder::Holder;
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::loader::Loader;
use crate::config::origin::{Given, Origin};
use crate::config::secret::{HeldSecret, secret};
use crate::config::section::Section;
use crate::config::structure::WrittenTable;

pub static PUBLISHER: Definition = Definition {
    more: "See below. At least one.",
    fallback: Required,
    ..Definition::table(
        "publisher",
        Kind::Tables(&[
            &NAME.definition,
            &TOPICS.definition,
            &BEARER_TOKEN_FILE.definition,
            &VERIFY.definition,
        ]),
        "Publishers whose notifications `rsnotify hub` takes.",
    )
};

static NAME: ConfigKey<String> = ConfigKey::new(
    "publisher",
    "name",
    TEXT,
    Required,
    "Name of the publisher in reports and metrics.",
)
.example(Example::Value("\"library\""));

static TOPICS: ConfigKey<Vec<Uri>> = ConfigKey::new(
    "publisher",
    "topics",
    PREFIXES,
    Required,
    "Prefixes of the topics that it may publish, and others may subscribe to. Those of two publishers never overlap.",
)
.example(Example::Value("[\"https://repo.example.org/\"]"));

static BEARER_TOKEN_FILE: ConfigKey<Holder> = ConfigKey::new(
    "publisher",
    "bearer_token_file",
    HOLDER,
    Nothing,
    "Holder of the bearer token that it sends. With `verify` as well, both are demanded.",
)
.example(Example::Comment("\"/etc/rsnotify/library\""));

/// Ways to verify a publication besides the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verify {
    Topic,
}

const VERIFICATIONS: [(&str, Verify); 1] = [("topic", Verify::Topic)];

static VERIFY: ConfigKey<Verify> = ConfigKey::new(
    "publisher",
    "verify",
    ValueForm {
        kind: Kind::Text(&TextKind {
            words: &words(&VERIFICATIONS),
            ..TextKind::ANY
        }),
        read: |loader, key, value| choice(loader, key, &value, &VERIFICATIONS),
    },
    Nothing,
    "`\"topic\"`: a publication is accepted if the `Link` of its topic names this hub.",
)
.more(
    "Without a token, anybody may then publish on such a topic: prefer a token, or pings, whose content comes from the \
     topic itself.",
)
.example(Example::Value("\"topic\""));

/// A publisher with the holder of its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherSettings {
    pub publisher: Publisher,
    pub token_holder: Option<Holder>,
}

/// Returns what the hub needs of the publishers.
pub fn plan(publishers: &[PublisherSettings]) -> Publishers {
    let publishers = publishers.iter();
    Publishers::new(
        publishers
            .map(|settings| settings.publisher.clone())
            .collect(),
    )
}

/// Reads every `[[publisher]]`.
pub fn publishers(
    loader: &mut Loader<'_>,
    written: Vec<WrittenTable<'_>>,
) -> Vec<PublisherSettings> {
    if written.is_empty() {
        let message = "it is missing: without one nobody may publish here";
        loader.report_absence(&["publisher"], Origin::Absent, &PUBLISHER, message);
    }
    let mut names = HashSet::new();
    let mut read: Vec<PublisherSettings> = Vec::new();
    for (entry, written) in written.into_iter().enumerate() {
        let mut section = Section::new(loader, entry, written);
        let topics_origin = section.origin_of(&TOPICS);
        let name_origin = section.origin_of(&NAME);
        let token_origin = section.origin_of(&BEARER_TOKEN_FILE);
        let Some(settings) = publisher(&mut section) else {
            continue;
        };
        let Publisher {
            name,
            topics,
            token,
            ..
        } = &settings.publisher;
        if !names.insert(name.clone()) {
            let message = format!("another publisher is named \"{name}\" already");
            loader.report(name_origin, &NAME.definition, message);
        }
        for other in read.iter().map(|other| &other.publisher) {
            if let Some((ours, theirs)) = overlap(topics, &other.topics) {
                let message = format!(
                    "{ours} and {theirs} of the publisher \"{}\" overlap, so a topic could be of either: separate \
                     them, or make them one publisher",
                    other.name
                );
                loader.report(topics_origin, &TOPICS.definition, message);
            }
            if token.is_some() && *token == other.token {
                let message = format!(
                    "the publisher \"{}\" has the same token, so they cannot be told apart: give each its own",
                    other.name
                );
                loader.report(token_origin, &BEARER_TOKEN_FILE.definition, message);
            }
        }
        read.push(settings);
    }
    read
}

fn publisher(section: &mut Section<'_, '_, '_>) -> Option<PublisherSettings> {
    let origin = section.origin();
    let name = section.required(&NAME);
    let topics = section.required(&TOPICS);
    let has_token = section.origin_of(&BEARER_TOKEN_FILE).given().is_some();
    let has_verify = section.origin_of(&VERIFY).given().is_some();
    let token = section.given(&BEARER_TOKEN_FILE);
    let token =
        token.and_then(|holder| secret(section.loader, &BEARER_TOKEN_FILE.definition, holder));
    let verify = section.given(&VERIFY);
    if !has_token && !has_verify {
        let message = "neither bearer_token_file nor verify = \"topic\" is set, so anybody could publish in its name: set \
                       one, or both";
        let names = ["bearer_token_file", "verify"];
        section
            .loader
            .report_absence(&names, origin, &PUBLISHER, message);
    }
    let (name, topics) = (name?, topics?);
    check_name(section.loader, &name);
    if topics.value.is_empty() {
        let message =
            "an empty list permits nothing: name a prefix such as \"https://repo.example.org/\"";
        let loader = &mut section.loader;
        loader.report_absence(&["topics"], topics.origin, &TOPICS.definition, message);
    }
    let (token, token_holder) = token
        .map(|HeldSecret { holder, content }| (content, holder))
        .unzip();
    Some(PublisherSettings {
        publisher: Publisher {
            name: name.value.into(),
            topics: topics.value,
            token,
            verify_topic: verify.is_some(),
        },
        token_holder,
    })
}

fn check_name(loader: &mut Loader<'_>, name: &Given<String>) {
    if name.value.trim().is_empty() || name.value.chars().any(char::is_control) {
        let message = "a name has at least one letter, and no control characters";
        loader.report(name.origin, &NAME.definition, message);
    }
}

/// Returns two prefixes of which one lies below the other.
fn overlap<'a>(ours: &'a [Uri], theirs: &'a [Uri]) -> Option<(&'a Uri, &'a Uri)> {
    ours.iter().find_map(|prefix| {
        let other = theirs
            .iter()
            .find(|other| prefix.is_below(other) || other.is_below(prefix))?;
        Some((prefix, other))
    })
}

/// Writes a `[[publisher]]`.
pub fn effective(page: &mut Page<'_>, settings: &PublisherSettings) {
    // A field that is added cannot be forgotten here.
    let PublisherSettings {
        publisher:
            Publisher {
                name,
                topics,
                token: _,
                verify_topic,
            },
        token_holder,
    } = settings;
    page.key(&NAME.definition, quoted(name));
    page.key(&TOPICS.definition, list(topics));
    if let Some(holder) = token_holder {
        page.key(&BEARER_TOKEN_FILE.definition, header::holder(holder));
    }
    if *verify_topic {
        page.key(
            &VERIFY.definition,
            quoted(word(&VERIFICATIONS, Verify::Topic)),
        );
    }
}
