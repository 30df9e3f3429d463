//! The channels to subscribe to: topics as given, and those that Capability Lists advertise, now or later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::listing::{ListedEntry, Listing};
use resourcesync::uri::{Hub, Topic};
use tokio::task::JoinSet;
use tokio::time::Instant;
use url::Url;
use websub::http::lock;
use websub::subscriber::retrieve::{AllowedOrigins, Discovery, RetrieveError, Retriever, discover};

use crate::failure::{Failure, FailureKind};
use crate::memory::Memory;
use crate::state::SavedSubscription;
use crate::{
    LOOK_AGAIN_AFTER, ListenContext, MIN_LOOK, READ_AGAIN_AFTER, SubscribeOptions, wait_after,
};

/// The place of a Source Description on its host.
const WELL_KNOWN: &str = "/.well-known/resourcesync";
/// Capability Lists and Source Descriptions read at most for one URL.
const MAX_DOCUMENTS: usize = 1_000;

/// The documents that advertise channels, or name such documents.
pub const ADVERTISING: [Capability; 2] =
    [Capability::SourceDescription, Capability::CapabilityList];

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
    pub fn advertising_list(&self) -> Option<&str> {
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
    let (advertised, mut found) = advertising_entries(asked, listing, &retriever).await;
    let mut topics = BTreeSet::new();
    for (of, entry, list) in advertised {
        let is_wanted = kind.is_none_or(|kind| kind == of);
        let is_new = |url: &String| is_wanted && topics.insert(url.clone());
        let Some(url) = entry.loc.clone().filter(is_new) else {
            continue;
        };
        // As its topic describes it itself where that can be read.
        let named = Topic::new(url.as_str());
        let (topic, hubs) = match discover(&named).await {
            Ok(topic) => (topic.self_uri, topic.hubs),
            Err(_) => (named, Vec::new()),
        };
        let advertised = entry.targets("hub").next().map(Hub::new);
        if let Some(hub) = hub.or(hubs.first()).or(advertised.as_ref()) {
            found.channels.push(ListenedChannel {
                asked: asked.to_owned(),
                topic,
                hub: hub.clone(),
                kind: Some(of),
                capability_list: Some(list),
            });
        } else {
            let failure = no_hub(topic.as_str(), None).into();
            found.unusable.push((url, failure));
        }
    }
    if found.channels.is_empty() {
        // A failure that may pass, if there is one.
        let mut unusable = found.unusable;
        unusable.sort_by_key(|(_, failure)| failure.kind != FailureKind::Temporary);
        let reason = unusable.into_iter().next();
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
    let capability = listing.known_capability();
    capability.is_some_and(|capability| ADVERTISING.contains(&capability))
}

/// Reads the entries by which a document advertises channels, itself or by the Capability Lists that it names: each with
/// the kind of its channel and its list.
async fn advertising_entries(
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
            channels.extend(listing.entries.into_iter().filter_map(|entry| {
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

/// The Capability Lists and Source Descriptions that were given, and the topics that they led to.
pub struct NewChannelWatcher {
    /// Arguments of the command line that are no topics themselves.
    documents: BTreeSet<String>,
    listening: Arc<ListenContext>,
    topics: BTreeSet<Topic>,
    /// Time of the last look.
    looked: (Timestamp, Instant),
    next_look: Instant,
    looking: JoinSet<FoundChannels>,
    /// Documents and topics that were unusable at the last look; their failures are reported.
    unusable: BTreeSet<String>,
    /// Looks in a row at which something was unusable.
    failures: u32,
}

impl NewChannelWatcher {
    /// Watches the documents that led to these channels, which were looked for just now, with what was unusable.
    pub fn new(
        listening: &Arc<ListenContext>,
        wanted: &BTreeMap<Topic, ListenedChannel>,
        unusable: BTreeSet<String>,
    ) -> NewChannelWatcher {
        let advertised = wanted.values().filter(|channel| channel.kind.is_some());
        let now = Instant::now();
        let mut watched = NewChannelWatcher {
            documents: advertised.map(|channel| channel.asked.clone()).collect(),
            listening: Arc::clone(listening),
            topics: wanted.keys().cloned().collect(),
            looked: (Timestamp::now(), now),
            next_look: now + LOOK_AGAIN_AFTER,
            looking: JoinSet::new(),
            unusable: BTreeSet::new(),
            failures: 0,
        };
        watched.note_unusable(unusable);
        watched
    }

    /// Notes what was unusable at the last look, and looks again soon if anything was.
    fn note_unusable(&mut self, unusable: BTreeSet<String>) {
        if unusable.is_empty() {
            self.failures = 0
        } else {
            self.failures = self.failures.saturating_add(1);
            self.look_within(wait_after(self.failures));
        }
        self.unusable = unusable;
    }

    fn look_within(&mut self, wait: Duration) {
        self.next_look = self.next_look.min(Instant::now() + wait);
    }

    /// Looks again as soon as it may: one of the documents has changed.
    pub fn look_soon(&mut self) {
        self.next_look = self.looked.1 + MIN_LOOK;
    }

    /// Looks when it is time, and returns the channels that are advertised since. It may be dropped and called again.
    pub async fn find_new(&mut self) -> Vec<ListenedChannel> {
        if self.documents.is_empty() {
            std::future::pending::<()>().await;
        }
        if self.looking.is_empty() {
            tokio::time::sleep_until(self.next_look).await;
            self.next_look = Instant::now() + LOOK_AGAIN_AFTER;
            let (documents, listening) = (self.documents.clone(), Arc::clone(&self.listening));
            self.looking.spawn(async move {
                let mut all = FoundChannels::default();
                for url in documents {
                    match channels(&url, &listening.options).await {
                        Ok(found) => {
                            all.channels.extend(found.channels);
                            all.unusable.extend(found.unusable);
                        }
                        Err(failure) => all.unusable.push((url, failure)),
                    }
                }
                all
            });
        }
        let found = self.looking.join_next().await;
        let found = found.and_then(Result::ok).unwrap_or_default();
        let wait = wait_after(self.failures.saturating_add(1)).as_secs();
        for (url, failure) in &found.unusable {
            // Once, and not at each look.
            if !self.unusable.contains(url) {
                let reporter = &self.listening.reporter;
                reporter.no_channel(url, &failure.reason, Some(wait));
            }
        }
        self.note_unusable(found.unusable.into_iter().map(|(url, _)| url).collect());
        self.save_new(found.channels)
    }

    /// Saves the subscriptions of the channels that are new, and returns these. Notifications on them since the last look
    /// count as missed. Channels that cannot be saved are reported, and found again at the next look.
    fn save_new(&mut self, found: Vec<ListenedChannel>) -> Vec<ListenedChannel> {
        let since = self.looked.0;
        self.looked.1 = Instant::now();
        let by_topic = |channel: ListenedChannel| (channel.topic.clone(), channel);
        let found: BTreeMap<Topic, ListenedChannel> = found.into_iter().map(by_topic).collect();
        let saved = lock(&self.listening.state.saved).clone();
        let is_saved = |channel: &ListenedChannel| saved.subscriptions.contains_key(&channel.topic);
        let opened = found
            .values()
            .filter(|channel| !self.topics.contains(&channel.topic));
        let mut opened: Vec<ListenedChannel> = opened.cloned().collect();
        let mut new = Vec::new();
        for channel in opened.iter().filter(|channel| !is_saved(channel)) {
            let memory = saved.memory_of_moved(channel, &found).unwrap_or_else(|| {
                let mut memory = Memory::new(channel.kind, channel.capability_list.as_deref());
                memory.since = Some(format!("{since:.3}"));
                memory
            });
            let subscription = SavedSubscription::new(channel, memory);
            new.push((channel.topic.clone(), subscription));
        }
        let port = self.listening.destination.address.port();
        if !new.is_empty()
            && let Err(error) = self.listening.state.add(port, new)
        {
            for channel in opened.extract_if(.., |channel| !is_saved(channel)) {
                let reporter = &self.listening.reporter;
                reporter.not_saved(channel.topic.as_str(), &error);
            }
            self.look_within(READ_AGAIN_AFTER);
        } else if self.unusable.is_empty() && !found.is_empty() {
            // A channel that an unusable list advertises was not looked for since.
            self.looked.0 = Timestamp::now();
        }
        let topics = opened.iter().map(|channel| channel.topic.clone());
        self.topics.extend(topics);
        opened
    }
}
