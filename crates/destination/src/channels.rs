//! The channels to subscribe to: topics as given, and those that Capability Lists advertise.

use std::collections::{BTreeSet, VecDeque};

use anyhow::Context;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::listing::{ListedEntry, Listing};
use resourcesync::uri::{Hub, Topic};
use url::Url;
use websub::subscriber::retrieve::{AllowedOrigins, Discovery, RetrieveError, Retriever, discover};

use crate::SubscribeOptions;
use crate::failure::{Failure, FailureKind};

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

/// Finds the channels of a URL: of a topic, a Capability List or a Source Description; of a host alone, those of its Source
/// Description at the well-known place (ResourceSync 1.1 section 6.3.2).
///
/// # Errors
///
/// If there is none. Capability Lists that cannot be read are among the unusable if others could be.
pub async fn channels(asked: &str, options: &SubscribeOptions) -> Result<FoundChannels, Failure> {
    let found = channels_at(asked, options).await;
    let url = Url::parse(asked).ok();
    let host = url.filter(|url| url.path() == "/" && url.query().is_none());
    let well_known = host.and_then(|url| url.join(WELL_KNOWN).ok());
    let Some(well_known) = well_known.filter(|_| found.is_err()) else {
        return found;
    };
    let mut found = channels_at(well_known.as_str(), options).await?;
    for channel in &mut found.channels {
        asked.clone_into(&mut channel.asked);
    }
    Ok(found)
}

async fn channels_at(asked: &str, options: &SubscribeOptions) -> Result<FoundChannels, Failure> {
    let (kind, hub) = (options.kind, options.hub.as_ref());
    // The channel of a topic that was given itself; none without a hub.
    let of_topic = |topic: &Discovery| {
        let list = topic.capability_list.as_ref();
        let channel = ListenedChannel {
            asked: asked.to_owned(),
            topic: topic.self_uri.clone(),
            hub: hub.or(topic.hubs.first())?.clone(),
            kind: None,
            capability_list: list.map(|list| list.as_str().to_owned()),
        };
        Some(FoundChannels {
            channels: vec![channel],
            ..FoundChannels::default()
        })
    };
    let discovered = discover(&Topic::new(asked)).await;
    let topic = discovered.as_ref().ok();
    let topic = topic.filter(|topic| !topic.hubs.is_empty());
    if let Some(found) = topic.and_then(of_topic) {
        return Ok(found);
    }
    if let Err(error @ (RetrieveError::Url { .. } | RetrieveError::Request { .. })) = discovered {
        return Err(error.into());
    }
    let retriever = Retriever::new(AllowedOrigins::any())?;
    let listing = match retriever.get(asked).await {
        Ok(body) => Listing::parse(&body).ok().flatten(),
        Err(error) => return Err(discovered.err().unwrap_or(error).into()),
    };
    let listing = match listing {
        Some(listing) if may_advertise(&listing) => listing,
        listing => {
            let found = of_topic(&discovered?);
            return Ok(found.ok_or_else(|| no_hub(asked, listing))?);
        }
    };
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
        let named = Topic::new(url.as_str());
        let (topic, hubs) = match discover(&named).await {
            Ok(topic) => (topic.self_uri, topic.hubs),
            Err(_) => (named, Vec::new()),
        };
        let advertised = entry.targets("hub").next().map(Hub::new);
        match hub.or(hubs.first()).or(advertised.as_ref()) {
            Some(hub) => found.channels.push(ListenedChannel {
                asked: asked.to_owned(),
                topic,
                hub: hub.clone(),
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
        // A failure that may pass, if there is one.
        found
            .unusable
            .sort_by_key(|(_, failure)| failure.kind != FailureKind::Temporary);
        let reason = found.unusable.into_iter().next();
        return Err(reason.map_or_else(|| no_channel(asked, kind).into(), |(_, failure)| failure));
    }
    Ok(found)
}

/// Returns the hub that a topic names now, if it can be asked (WebSub section 6.1: a renewal begins with discovery).
pub async fn current_hub(topic: &Topic) -> Option<Hub> {
    let found = discover(topic).await.ok();
    let found = found.filter(|found| found.self_uri == *topic)?;
    found.hubs.into_iter().next()
}

/// Returns true for a Source Description or Capability List, or an index of them.
fn may_advertise(listing: &Listing) -> bool {
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
        if listing.is_urlset() && listing.known_capability() == Some(Capability::CapabilityList) {
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
                Ok(Some(listing)) if may_advertise(&listing) => waiting.push_back((loc, listing)),
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
