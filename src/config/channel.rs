//! The `[[channel]]` entries: for a set that advertises no channel, or to override what it advertises (R9).

use std::collections::BTreeSet;

use crate::announce::plan::ChannelPlan;
use crate::config::raw;
use crate::config::reading::{Given, Reading, in_file};
use crate::config::suggestion::nearest;
use crate::config::web_uri;
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// What channels are checked against.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// Every prefix that a topic may lie below; without the public URL while its port is unknown.
    pub prefixes: &'a [Uri],
    pub hubs: &'a [Hub],
    /// Whether all prefixes are known: none was left out because of a slip.
    pub are_prefixes_known: bool,
    /// Whether all hubs are known.
    pub are_hubs_known: bool,
}

/// Checks every `[[channel]]`.
pub fn channels(
    reading: &mut Reading<'_>,
    written: Vec<toml::Spanned<raw::Channel>>,
    surroundings: &Surroundings<'_>,
) -> Vec<ChannelPlan> {
    let mut channels: Vec<ChannelPlan> = Vec::new();
    // There may be one for each of many thousand sets.
    let (mut lists, mut topics) = (BTreeSet::new(), BTreeSet::new());
    for Given { value: raw, origin } in written.into_iter().map(in_file) {
        let list = raw.capability_list.map(in_file);
        let topic = raw.topic.map(in_file);
        let capability_list =
            reading.required("channel.capability_list", origin, list.as_ref(), |text| {
                let uri = web_uri::parse(text).map_err(|error| error.to_string())?;
                match lists.contains(&uri) {
                    true => Err(format!("{uri} has a channel already")),
                    false => Ok(uri),
                }
            });
        let topic = reading.required("channel.topic", origin, topic.as_ref(), |text| {
            checked_topic(text, &topics, surroundings)
        });
        let hubs = raw
            .hubs
            .into_iter()
            .map(in_file)
            .filter_map(|given| {
                reading.checked("channel.hubs", &given, |text| known_hub(text, surroundings))
            })
            .collect();
        if let (Some(capability_list), Some(topic)) = (capability_list, topic) {
            lists.insert(capability_list.clone());
            topics.insert(topic.clone());
            channels.push(ChannelPlan {
                capability_list,
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
