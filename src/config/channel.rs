//! `[[channel]]`: channels for sets that advertise none, or that override what a set advertises (R9).

use std::collections::BTreeSet;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Uri};

use crate::announce::plan::ChannelPlan;
use crate::config::check::suggested;
use crate::config::file::{Checked, ConfigFile};

/// Checks all channels. `prefixes` are those that a topic may lie below, without the public URL while its port is unknown.
pub fn check(
    file: &ConfigFile<'_>,
    channels: &[ChannelPlan],
    prefixes: &[Uri],
    hubs: &[Hub],
) -> Checked {
    // There may be one for each of many thousand sets.
    let (mut lists, mut topics) = (BTreeSet::new(), BTreeSet::new());
    for (at, channel) in channels.iter().enumerate() {
        let (list, topic) = (&channel.capability_list, channel.topic.as_str());
        let is_below = |uri: Uri| prefixes.iter().any(|prefix| uri.is_below(prefix));
        let mut named = channel.hubs.iter().enumerate();
        let (key, message) = if !lists.insert((list, channel.kind)) {
            let kind = match channel.kind {
                ChannelKind::Change => "change ",
                ChannelKind::Framework => "",
            };
            let message = format!("{list} has a {kind}channel already");
            ("capability_list".to_owned(), message)
        } else if !Uri::parse(topic).is_ok_and(is_below) {
            let message =
                format!("\"{topic}\" lies neither below server.public_url nor below a mount's url");
            ("topic".to_owned(), message)
        } else if !topics.insert(topic) {
            let message = format!("\"{topic}\" is another channel's topic already");
            ("topic".to_owned(), message)
        } else if let Some((position, hub)) = named.find(|(_, hub)| !hubs.contains(hub)) {
            let hub = hub.as_str();
            let message = format!("\"{hub}\" is not the url of a [[hub]], nor the embedded hub");
            let known: Vec<&str> = hubs.iter().map(Hub::as_str).collect();
            let message = suggested(&message, hub, &known);
            (format!("hubs.{position}"), message)
        } else {
            continue;
        };
        return Err(file.error(&format!("channel.{at}.{key}"), message));
    }
    Ok(())
}
