//! `[[channel]]`: channels for sets that advertise none, or that override what a set advertises (R9).

use std::collections::BTreeSet;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::plan::ChannelPlan;
use crate::config::definition::Fallback::{Default, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::effective::{Page, list, quoted};
use crate::config::form::{TEXT, WEB_URI, WEB_URI_TEXT, choice, texts, words};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::loader::Loader;
use crate::config::origin::Given;
use crate::config::section::Section;
use crate::config::structure::WrittenTable;
use crate::config::suggestion::nearest;
use crate::config::web_uri;

pub static CHANNEL: Definition = Definition::table(
    "channel",
    Kind::Tables(&[
        &CAPABILITY_LIST.definition,
        &KIND.definition,
        &TOPIC.definition,
        &HUBS.definition,
    ]),
    "Channels that Capability Lists do not advertise, or that override what one advertises.",
);

static CAPABILITY_LIST: ConfigKey<Uri> = ConfigKey::new(
    "channel",
    "capability_list",
    WEB_URI,
    Required,
    "URI of the set's Capability List.",
)
.more("It need not be in the tree: software may generate it.")
.example(Example::Comment(
    "\"https://example.org/dataset1/capabilitylist.xml\"",
));

static KIND: ConfigKey<ChannelKind> = ConfigKey::new(
    "channel",
    "kind",
    ValueForm {
        kind: Kind::Text(&TextKind {
            words: &words(&KINDS),
            ..TextKind::ANY
        }),
        read: |loader, key, value| choice(loader, key, &value, &KINDS),
    },
    Default("\"framework\""),
    "Notifications of the channel: of changed documents (`framework`), or of changed resources (`change`).",
)
.more("A set may have one channel of each kind.");

/// The kinds as they are written.
pub const KINDS: [(&str, ChannelKind); 2] = [
    ("framework", ChannelKind::Framework),
    ("change", ChannelKind::Change),
];

static TOPIC: ConfigKey<String> = ConfigKey::new(
    "channel",
    "topic",
    ValueForm {
        kind: Kind::Text(&WEB_URI_TEXT),
        read: TEXT.read,
    },
    Required,
    "Topic of the channel, below `public_url` or a mount's `url`.",
)
.example(Example::Comment(
    "\"https://example.org/dataset1/notifications/\"",
));

static HUBS: ConfigKey<Vec<Given<String>>> = ConfigKey::new(
    "channel",
    "hubs",
    ValueForm {
        kind: Kind::List {
            item: &WEB_URI_TEXT,
            may_be_empty: true,
        },
        read: |_, _, value| Some(texts(value)),
    },
    Default("[]"),
    "Hubs to notify, each the `url` of a `[[hub]]` or the URI of the embedded hub. An empty list means all.",
)
.example(Example::Comment("[\"https://hub.example.net/websub/\"]"));

/// The prefixes and hubs that channels are checked against.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// Every prefix that a topic may lie below; without the public URL while its port is unknown.
    pub prefixes: &'a [Uri],
    pub hubs: &'a [Hub],
    /// True if no prefix was left out because of a slip.
    pub are_prefixes_known: bool,
    /// True if no hub was left out because of a slip.
    pub are_hubs_known: bool,
}

/// Reads every `[[channel]]`.
pub fn channels(
    loader: &mut Loader<'_>,
    written: Vec<WrittenTable<'_>>,
    surroundings: &Surroundings<'_>,
) -> Vec<ChannelPlan> {
    let mut channels: Vec<ChannelPlan> = Vec::new();
    // There may be one for each of many thousand sets.
    let (mut lists, mut topics) = (BTreeSet::new(), BTreeSet::new());
    for (position, table) in written.into_iter().enumerate() {
        let mut section = Section::new(loader, position, table);
        let list = section.required(&CAPABILITY_LIST);
        let kind = section.value(&KIND);
        let topic = section.required(&TOPIC);
        let hubs = section.value(&HUBS);
        let list = list.and_then(|list| {
            if lists.contains(&(list.value.clone(), kind)) {
                let message = match kind {
                    ChannelKind::Framework => format!("{} has a channel already", list.value),
                    ChannelKind::Change => format!("{} has a change channel already", list.value),
                };
                loader.report(list.origin, &CAPABILITY_LIST.definition, message);
                return None;
            }
            Some(list.value)
        });
        let topic = topic.and_then(|topic| {
            loader.checked(&TOPIC.definition, &topic, |text| {
                checked_topic(text, &topics, surroundings)
            })
        });
        let hubs = hubs
            .iter()
            .filter_map(|hub| {
                loader.checked(&HUBS.definition, hub, |text| known_hub(text, surroundings))
            })
            .collect();
        if let (Some(capability_list), Some(topic)) = (list, topic) {
            lists.insert((capability_list.clone(), kind));
            topics.insert(topic.clone());
            channels.push(ChannelPlan {
                capability_list,
                kind,
                topic,
                hubs,
            });
        }
    }
    channels
}

fn checked_topic(
    text: &str,
    topics: &BTreeSet<Topic>,
    surroundings: &Surroundings<'_>,
) -> Result<Topic, String> {
    let uri = web_uri::parse(text).map_err(|error| error.to_string())?;
    let mut prefixes = surroundings.prefixes.iter();
    if surroundings.are_prefixes_known && !prefixes.any(|prefix| uri.is_below(prefix)) {
        return Err(format!(
            "\"{text}\" lies neither below server.public_url nor below a mount's url"
        ));
    }
    let topic = Topic::new(text);
    if topics.contains(&topic) {
        return Err(format!("\"{text}\" is another channel's topic already"));
    }
    Ok(topic)
}

fn known_hub(text: &str, surroundings: &Surroundings<'_>) -> Result<Hub, String> {
    if let Some(hub) = surroundings.hubs.iter().find(|hub| hub.as_str() == text) {
        return Ok(hub.clone());
    }
    if !surroundings.are_hubs_known {
        return Ok(Hub::new(text));
    }
    let message = format!("\"{text}\" is not the url of a [[hub]], nor the embedded hub");
    match nearest(text, surroundings.hubs.iter().map(Hub::as_str)) {
        Some(meant) => Err(format!("{message}; did you mean \"{meant}\"?")),
        None => Err(message),
    }
}

/// Writes a `[[channel]]`.
pub fn effective(page: &mut Page<'_>, channel: &ChannelPlan) {
    let ChannelPlan {
        capability_list,
        kind,
        topic,
        hubs,
    } = channel;
    page.key(&CAPABILITY_LIST.definition, quoted(capability_list));
    page.key(&KIND.definition, quoted(kind));
    page.key(&TOPIC.definition, quoted(topic));
    page.key(&HUBS.definition, list(hubs));
}
