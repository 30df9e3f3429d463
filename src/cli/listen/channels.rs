//! The channels to subscribe to: topics as given, and those that Capability Lists advertise.

use std::collections::{BTreeSet, VecDeque};

use anyhow::Context;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::listing::{ListedEntry, Listing};
use resourcesync::uri::{Hub, Topic};
use url::Url;
use websub::subscriber::discover::{Discovery, discover};
use websub::subscriber::retrieve::{AllowedOrigins, RetrieveError, Retriever};

use crate::cli::listen::exit::Failure;

/// The place of a Source Description on its host.
const WELL_KNOWN: &str = "/.well-known/resourcesync";
/// Capability Lists and Source Descriptions read at most for one URL.
const MAX_DOCUMENTS: usize = 1_000;

/// A channel to subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenedChannel {
    /// The URL that led to it.
    pub asked: String,
    pub topic: Topic,
    pub hub: Hub,
    /// The kind that its advertisement states; none of a topic that was given itself.
    pub kind: Option<ChannelKind>,
    /// The Capability List that advertises it, or that the topic names.
    pub capability_list: Option<String>,
}

impl ListenedChannel {
    /// Returns the Capability List that advertises it; none for a topic that was given itself.
    pub fn advertised_by(&self) -> Option<&str> {
        self.kind.and(self.capability_list.as_deref())
    }
}

/// The channels that a URL led to.
#[derive(Debug, Default)]
pub struct FoundChannels {
    pub channels: Vec<ListenedChannel>,
    /// The Capability Lists that were read.
    pub lists: BTreeSet<String>,
    /// Documents that could not be read, and topics without a hub, beside others, with the failures.
    pub unusable: Vec<(String, Failure)>,
}

impl From<ListenedChannel> for FoundChannels {
    fn from(channel: ListenedChannel) -> FoundChannels {
        FoundChannels {
            channels: vec![channel],
            ..FoundChannels::default()
        }
    }
}

/// Finds the channels of a URL: of a topic, a Capability List or a Source Description; of a host alone, those of its Source
/// Description at the well-known place (ResourceSync 1.1 section 6.3.2).
///
/// # Errors
///
/// If there is none. Capability Lists that cannot be read are among the unusable if others could be.
pub async fn channels(
    asked: &str,
    kind: Option<ChannelKind>,
    hub: Option<&Hub>,
) -> Result<FoundChannels, Failure> {
    let found = channels_at(asked, kind, hub).await;
    let url = Url::parse(asked).ok();
    let host = url.filter(|url| url.path() == "/" && url.query().is_none());
    let well_known = host.and_then(|url| url.join(WELL_KNOWN).ok());
    let Some(well_known) = well_known.filter(|_| found.is_err()) else {
        return found;
    };
    let mut found = channels_at(well_known.as_str(), kind, hub).await?;
    for channel in &mut found.channels {
        asked.clone_into(&mut channel.asked);
    }
    Ok(found)
}

async fn channels_at(
    asked: &str,
    kind: Option<ChannelKind>,
    hub: Option<&Hub>,
) -> Result<FoundChannels, Failure> {
    let discovered = discover(&Topic::new(asked)).await;
    let names_hub = |found: &&Discovery| !found.hubs.is_empty();
    let topic = discovered.as_ref().ok().filter(names_hub);
    if let Some(channel) = topic.and_then(|found| channel_of_topic(asked, found, hub)) {
        return Ok(channel.into());
    }
    if let Err(error @ (RetrieveError::Url { .. } | RetrieveError::Request { .. })) = discovered {
        return Err(error.into());
    }
    let retriever = Retriever::new(AllowedOrigins::any())?;
    let listing = match retriever.get(asked).await {
        Ok(body) => Listing::parse(&body).ok().flatten(),
        Err(error) => return Err(discovered.map_or_else(Failure::from, |_| error.into())),
    };
    match listing {
        Some(listing) if is_of_source(&listing) => {
            let (advertised, mut found) = advertised(asked, listing, &retriever).await;
            let mut topics = BTreeSet::new();
            for (of, entry, list) in advertised {
                let is_wanted = kind.is_none_or(|kind| kind == of);
                let Some(url) = entry.loc.clone().filter(|_| is_wanted) else {
                    continue;
                };
                if !topics.insert(url.clone()) {
                    continue;
                }
                // As its topic describes it itself where that can be read.
                let discovered = discover(&Topic::new(url.as_str())).await.ok();
                let advertised = entry.targets("hub").next().map(Hub::new);
                let of_topic = discovered.as_ref().and_then(|found| found.hubs.first());
                let hub = hub.or(of_topic).or(advertised.as_ref()).cloned();
                let topic =
                    discovered.map_or_else(|| Topic::new(url.as_str()), |found| found.self_uri);
                match hub {
                    Some(hub) => found.channels.push(ListenedChannel {
                        asked: asked.to_owned(),
                        topic,
                        hub,
                        kind: Some(of),
                        capability_list: Some(list),
                    }),
                    None => {
                        let failure = no_hub(topic.as_str(), None).into();
                        found.unusable.push((url, failure));
                    }
                }
            }
            if found.channels.is_empty() {
                Err(reason(found.unusable).unwrap_or_else(|| no_channel(asked, kind).into()))
            } else {
                Ok(found)
            }
        }
        listing => match discovered {
            Ok(found) => {
                let channel = channel_of_topic(asked, &found, hub);
                let channel = channel.ok_or_else(|| no_hub(asked, listing))?;
                Ok(channel.into())
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
fn channel_of_topic(asked: &str, found: &Discovery, hub: Option<&Hub>) -> Option<ListenedChannel> {
    let list = found.capability_list.as_ref();
    Some(ListenedChannel {
        asked: asked.to_owned(),
        topic: found.self_uri.clone(),
        hub: hub.or(found.hubs.first())?.clone(),
        kind: None,
        capability_list: list.map(|list| list.as_str().to_owned()),
    })
}

/// Returns true for a Source Description or Capability List, or an index of them.
fn is_of_source(listing: &Listing) -> bool {
    matches!(
        listing.known_capability(),
        Some(Capability::SourceDescription | Capability::CapabilityList)
    )
}

/// Reads the entries by which a document advertises channels, itself or by the Capability Lists that it names: each with
/// the kind of its channel and its list.
async fn advertised(
    asked: &str,
    first: Listing,
    retriever: &Retriever,
) -> (Vec<(ChannelKind, ListedEntry, String)>, FoundChannels) {
    let mut channels = Vec::new();
    let mut found = FoundChannels::default();
    let mut known = BTreeSet::from([asked.to_owned()]);
    let mut waiting = VecDeque::from([(asked.to_owned(), first)]);
    while let Some((url, listing)) = waiting.pop_front() {
        if listing.is_list() && listing.known_capability() == Some(Capability::CapabilityList) {
            let entries = listing.entries.into_iter();
            channels.extend(entries.filter_map(|entry| {
                let kind = ChannelKind::of_capability(entry.capability.as_deref()?)?;
                Some((kind, entry, url.clone()))
            }));
            found.lists.insert(url);
            continue;
        }
        for loc in listing.entries.into_iter().filter_map(|entry| entry.loc) {
            if known.len() >= MAX_DOCUMENTS || !known.insert(loc.clone()) {
                continue;
            }
            match read(&loc, retriever).await {
                Ok(Some(listing)) if is_of_source(&listing) => waiting.push_back((loc, listing)),
                Ok(_) => {}
                Err(failure) => found.unusable.push((loc, failure)),
            }
        }
    }
    (channels, found)
}

async fn read(url: &str, retriever: &Retriever) -> Result<Option<Listing>, Failure> {
    let body = retriever.get(url).await?;
    Ok(Listing::parse(&body).with_context(|| format!("cannot read {url}"))?)
}

/// Returns the reason why there is no channel: a failure that may pass, if there is one.
fn reason(mut unusable: Vec<(String, Failure)>) -> Option<Failure> {
    let is_temporary = |(_, failure): &(String, Failure)| failure.is_temporary();
    let temporary = unusable.iter().position(is_temporary);
    let first = temporary.or((!unusable.is_empty()).then_some(0))?;
    Some(unusable.swap_remove(first).1)
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
