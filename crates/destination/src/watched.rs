//! The documents that advertise channels, watched for those that they advertise later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Topic;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::channels::{FoundChannels, ListenedChannel, channels};
use crate::memory::Memory;
use crate::state::SavedSubscription;
use crate::{LOOK_AGAIN_AFTER, ListenContext, MIN_LOOK, READ_AGAIN_AFTER, wait_after};

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
    pub async fn found(&mut self) -> Vec<ListenedChannel> {
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
        self.save(found.channels)
    }

    /// Saves the subscriptions of the channels that are new, and returns these. Notifications on them since the last look
    /// count as missed. Channels that cannot be saved are reported, and found again at the next look.
    fn save(&mut self, found: Vec<ListenedChannel>) -> Vec<ListenedChannel> {
        let since = self.looked.0;
        self.looked.1 = Instant::now();
        let by_topic = |channel: ListenedChannel| (channel.topic.clone(), channel);
        let found: BTreeMap<Topic, ListenedChannel> = found.into_iter().map(by_topic).collect();
        let saved = self.listening.state.saved().clone();
        let is_saved = |channel: &ListenedChannel| saved.subscriptions.contains_key(&channel.topic);
        let opened = found.values();
        let opened = opened.filter(|channel| !self.topics.contains(&channel.topic));
        let mut opened: Vec<ListenedChannel> = opened.cloned().collect();
        let new = opened.iter().filter(|channel| !is_saved(channel));
        let new: Vec<_> = new
            .map(|channel| {
                let memory = saved.memory_of_moved(channel, &found).unwrap_or_else(|| {
                    let up = channel.capability_list.as_deref();
                    let mut memory = Memory::new(channel.kind, up);
                    memory.since = Some(format!("{since:.3}"));
                    memory
                });
                let subscription = SavedSubscription::new(channel, memory);
                (channel.topic.clone(), subscription)
            })
            .collect();
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
