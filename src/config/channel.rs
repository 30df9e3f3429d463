//! `[[channel]]`: channels for sets that advertise none, or that override what a set advertises (R9).

use std::collections::BTreeSet;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Uri};

use crate::announce::plan::ChannelPlan;
use crate::config::check::suggested;
use crate::config::file::{ConfigError, ConfigFile};

/// Checks all channels. `prefixes` are those that a topic may lie below, without the public URL while its port is unknown.
pub fn check(
    file: &ConfigFile<'_>,
    channels: &[ChannelPlan],
    prefixes: &[Uri],
    hubs: &[Hub],
) -> Result<(), ConfigError> {
    // There may be one for each of many thousand sets.
    let (mut lists, mut topics) = (BTreeSet::new(), BTreeSet::new());
    for (at, channel) in channels.iter().enumerate() {
        let wrong = |key: &str, message| Err(file.error(&format!("channel.{at}.{key}"), message));
        let list = &channel.capability_list;
        if !lists.insert((list, channel.kind)) {
            let kind = if channel.kind == ChannelKind::Change {
                "change "
            } else {
                ""
            };
            return wrong(
                "capability_list",
                format!("{list} has a {kind}channel already"),
            );
        }
        let topic = channel.topic.as_str();
        let is_below = |uri: Uri| prefixes.iter().any(|prefix| uri.is_below(prefix));
        if !Uri::parse(topic).is_ok_and(is_below) {
            let message =
                format!("\"{topic}\" lies neither below server.public_url nor below a mount's url");
            return wrong("topic", message);
        }
        if !topics.insert(&channel.topic) {
            return wrong(
                "topic",
                format!("\"{topic}\" is another channel's topic already"),
            );
        }
        let mut unknown = channel
            .hubs
            .iter()
            .enumerate()
            .filter(|(_, hub)| !hubs.contains(hub));
        if let Some((position, hub)) = unknown.next() {
            let message = format!(
                "\"{}\" is not the url of a [[hub]], nor the embedded hub",
                hub.as_str()
            );
            let known: Vec<&str> = hubs.iter().map(Hub::as_str).collect();
            let message = suggested(&message, hub.as_str(), &known);
            return wrong(&format!("hubs.{position}"), message);
        }
    }
    Ok(())
}
