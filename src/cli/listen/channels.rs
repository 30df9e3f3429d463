//! The channels to subscribe to: topics as given, and those that Capability Lists advertise.

use std::collections::{BTreeSet, VecDeque};

use crate::cli::listen::exit::Failure;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::listing::{ListedEntry, Listing};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::discover::{DiscoverError, Discovery, discover};
use crate::websub::retrieve::{Origins, Retriever};

/// Capability Lists and Source Descriptions read at most for one URL.
const MAX_DOCUMENTS: usize = 1_000;

/// A channel to subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The URL that led to it.
    pub asked: String,
    pub topic: Topic,
    pub hub: Hub,
    /// The kind that its advertisement states; none of a topic that was given itself.
    pub kind: Option<ChannelKind>,
    /// The Capability List that advertises it, or that the topic names.
    pub capability_list: Option<String>,
}

/// Finds the channels of a URL: of a topic, a Capability List or a Source Description.
pub async fn channels(
    asked: &str,
    kind: Option<ChannelKind>,
    hub: Option<&Hub>,
) -> Result<Vec<Channel>, Failure> {
    let discovered = discover(&Topic::new(asked)).await;
    let names_hub = |found: &&Discovery| !found.hubs.is_empty();
    if let Some(found) = discovered.as_ref().ok().filter(names_hub) {
        return Ok(channel_of_topic(asked, found, hub).into_iter().collect());
    }
    if let Err(error @ (DiscoverError::Url { .. } | DiscoverError::Request { .. })) = discovered {
        return Err(error.into());
    }
    let retriever = Retriever::new(Origins::any())?;
    let listing = match retriever.get(asked).await {
        Ok(body) => Listing::parse(&body).ok().flatten(),
        Err(error) => return Err(discovered.map_or_else(Failure::from, |_| error.into())),
    };
    match listing {
        Some(listing) if is_of_source(&listing) => {
            let advertised = advertised(asked, listing, &retriever).await?;
            let is_wanted =
                |channel: &Advertised| kind.is_none_or(|kind| Some(kind) == channel.kind);
            let mut channels = Vec::new();
            let mut topics = BTreeSet::new();
            for channel in advertised.into_iter().filter(is_wanted) {
                if topics.insert(channel.topic.as_str().to_owned()) {
                    channels.push(channel.resolved(asked, hub).await?);
                }
            }
            match channels.is_empty() {
                true => Err(Failure::plain(no_channel(asked, kind))),
                false => Ok(channels),
            }
        }
        listing => match discovered {
            Ok(found) => {
                let channel = channel_of_topic(asked, &found, hub);
                let channel = channel.ok_or_else(|| Failure::plain(no_hub(asked, listing)))?;
                Ok(vec![channel])
            }
            Err(error) => Err(error.into()),
        },
    }
}

/// Returns the hub that a topic names now, if it can be asked (WebSub section 6.1: a renewal begins with discovery).
pub async fn current_hub(topic: &Topic) -> Option<Hub> {
    let found = discover(topic).await.ok()?;
    (found.self_uri == *topic)
        .then(|| found.hubs.into_iter().next())
        .flatten()
}

/// Returns the channel of a topic that was given itself; none without a hub.
fn channel_of_topic(asked: &str, found: &Discovery, hub: Option<&Hub>) -> Option<Channel> {
    let list = found.capability_list.as_ref();
    Some(Channel {
        asked: asked.to_owned(),
        topic: found.self_uri.clone(),
        hub: hub.or(found.hubs.first())?.clone(),
        kind: None,
        capability_list: list.map(|list| list.as_str().to_owned()),
    })
}

/// An entry of a Capability List that advertises a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Advertised {
    topic: Topic,
    hub: Option<Hub>,
    kind: Option<ChannelKind>,
    capability_list: String,
}

impl Advertised {
    fn of(entry: &ListedEntry, capability_list: &str) -> Option<Advertised> {
        let kind = ChannelKind::of_capability(entry.capability.as_deref()?)?;
        Some(Advertised {
            topic: Topic::new(entry.loc.as_deref()?),
            hub: entry.targets("hub").next().map(Hub::new),
            kind: Some(kind),
            capability_list: capability_list.to_owned(),
        })
    }

    /// Returns the channel, as its topic describes it itself where that can be read.
    async fn resolved(self, asked: &str, hub: Option<&Hub>) -> Result<Channel, Failure> {
        let found = discover(&self.topic).await;
        let topic = found.as_ref().map_or(&self.topic, |found| &found.self_uri);
        let of_topic = found.as_ref().ok().and_then(|found| found.hubs.first());
        let hub = hub.or(of_topic).or(self.hub.as_ref()).cloned();
        let hub = hub.ok_or_else(|| Failure::plain(no_hub(topic.as_str(), None)))?;
        Ok(Channel {
            asked: asked.to_owned(),
            topic: topic.clone(),
            hub,
            kind: self.kind,
            capability_list: Some(self.capability_list),
        })
    }
}

/// Returns true for a Source Description or Capability List, or an index of them.
fn is_of_source(listing: &Listing) -> bool {
    matches!(
        listing.capability.as_deref(),
        Some("description" | "capabilitylist")
    )
}

/// Reads the channels that a document advertises, itself or by the Capability Lists that it names.
async fn advertised(
    asked: &str,
    first: Listing,
    retriever: &Retriever,
) -> Result<Vec<Advertised>, Failure> {
    let mut channels = Vec::new();
    let mut known = BTreeSet::from([asked.to_owned()]);
    let mut waiting = VecDeque::from([(asked.to_owned(), first)]);
    while let Some((url, listing)) = waiting.pop_front() {
        if listing.is_list() && listing.capability.as_deref() == Some("capabilitylist") {
            let found = listing.entries.iter();
            channels.extend(found.filter_map(|entry| Advertised::of(entry, &url)));
            continue;
        }
        for loc in listing.entries.into_iter().filter_map(|entry| entry.loc) {
            if known.len() >= MAX_DOCUMENTS || !known.insert(loc.clone()) {
                continue;
            }
            let body = retriever.get(&loc).await?;
            match Listing::parse(&body) {
                Ok(Some(listing)) if is_of_source(&listing) => waiting.push_back((loc, listing)),
                Ok(_) => {}
                Err(error) => {
                    let error = anyhow::Error::new(error).context(format!("cannot read {loc}"));
                    return Err(Failure::plain(error));
                }
            }
        }
    }
    Ok(channels)
}

fn no_channel(asked: &str, kind: Option<ChannelKind>) -> anyhow::Error {
    match kind {
        Some(kind) => anyhow::anyhow!(
            "{asked} is no topic, and advertises no channel with capability \"{}\"",
            kind.capability()
        ),
        None => anyhow::anyhow!(
            "{asked} is a Capability List or Source Description, and no topic; it advertises none, so ask its Source \
             for the topic"
        ),
    }
}

/// Describes the document at a URI that is no topic because it names no hub.
fn no_hub(topic: &str, listing: Option<Listing>) -> anyhow::Error {
    match listing.and_then(|listing| listing.capability) {
        Some(capability) if ChannelKind::of_capability(&capability).is_none() => anyhow::anyhow!(
            "{topic} is a {capability}, and no topic; the Capability List that it belongs to advertises the topic"
        ),
        _ => anyhow::anyhow!("{topic} names no hub to subscribe at; name one with --hub"),
    }
}
