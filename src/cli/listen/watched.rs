//! The documents that advertise channels, watched for those that they advertise later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::listen::channels::{FoundChannels, ListenedChannel, channels};
use crate::cli::listen::memory::Memory;
use crate::cli::listen::report::ListenEvent;
use crate::cli::listen::{
    LOOK_AGAIN_AFTER, Listening, MIN_LOOK, READ_AGAIN_AFTER, moved, report_unusable, unverified,
    wait_after,
};
use crate::daemon::log::error_chain;

/// The Capability Lists and Source Descriptions that were given, and the topics that they led to.
pub struct WatchedDocuments {
    /// Arguments of the command line that are no topics themselves.
    documents: Vec<String>,
    listening: Arc<Listening>,
    topics: BTreeSet<String>,
    /// Time of the last look.
    looked: (Timestamp, Instant),
    next_look: Instant,
    looking: JoinSet<FoundChannels>,
    /// Documents and topics that were unusable at the last look; their failures are reported.
    unusable: BTreeSet<String>,
    /// Looks in a row at which something was unusable.
    failures: u32,
}

impl WatchedDocuments {
    /// Watches the documents that led to these channels, which were looked for just now.
    pub fn new(
        listening: &Arc<Listening>,
        wanted: &BTreeMap<String, ListenedChannel>,
    ) -> WatchedDocuments {
        let advertised = wanted.values().filter(|channel| channel.kind.is_some());
        let documents: BTreeSet<String> = advertised.map(|channel| channel.asked.clone()).collect();
        let now = Instant::now();
        WatchedDocuments {
            documents: documents.into_iter().collect(),
            listening: Arc::clone(listening),
            topics: wanted.keys().cloned().collect(),
            looked: (Timestamp::now(), now),
            next_look: now + LOOK_AGAIN_AFTER,
            looking: JoinSet::new(),
            unusable: BTreeSet::new(),
            failures: 0,
        }
    }

    /// Notes what was unusable at the last look, and looks again soon if anything was.
    pub fn note_unusable(&mut self, unusable: BTreeSet<String>) {
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

    /// Looks when it is time, and returns the channels that are advertised then. It may be dropped and called again.
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
                    match channels(&url, listening.kind, listening.hub.as_ref()).await {
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
        let FoundChannels {
            channels, unusable, ..
        } = found.and_then(Result::ok).unwrap_or_default();
        let wait = wait_after(self.failures.saturating_add(1));
        for (url, failure) in &unusable {
            // Once, and not at each look.
            if !self.unusable.contains(url) {
                report_unusable(&self.listening.reporter, url, failure, Some(wait));
            }
        }
        self.note_unusable(unusable.into_iter().map(|(url, _)| url).collect());
        channels
    }

    /// Saves the subscriptions of the channels that are new, and returns these. Notifications on them since the last look
    /// count as missed. Channels that cannot be saved are reported, and found again at the next look.
    pub fn save(&mut self, found: Vec<ListenedChannel>, port: u16) -> Vec<ListenedChannel> {
        let since = self.looked.0;
        self.looked.1 = Instant::now();
        let by_topic = |channel: ListenedChannel| (channel.topic.as_str().to_owned(), channel);
        let found: BTreeMap<String, ListenedChannel> = found.into_iter().map(by_topic).collect();
        let saved = self.listening.state.saved();
        let mut new = Vec::new();
        let mut opened = Vec::new();
        for (topic, channel) in &found {
            if self.topics.contains(topic) {
                continue;
            }
            opened.push(channel.clone());
            if saved.subscriptions.contains_key(topic) {
                continue;
            }
            let memory = moved(&saved, channel, &found).unwrap_or_else(|| {
                let up = channel.capability_list.as_deref();
                let mut memory = Memory::new(channel.kind, up);
                memory.since = Some(format!("{since:.3}"));
                memory
            });
            new.push((topic.clone(), unverified(channel, memory)));
        }
        if !new.is_empty()
            && let Err(error) = self.listening.state.add(port, new.clone())
        {
            let reason = &error_chain(error.as_ref());
            for (topic, _) in &new {
                self.listening
                    .reporter
                    .report(&ListenEvent::NotSaved { topic, reason });
            }
            opened.retain(|channel| saved.subscriptions.contains_key(channel.topic.as_str()));
            self.look_within(READ_AGAIN_AFTER);
        } else if self.unusable.is_empty() && !found.is_empty() {
            // A channel that an unusable list advertises was not looked for since.
            self.looked.0 = Timestamp::now();
        }
        let topics = opened
            .iter()
            .map(|channel| channel.topic.as_str().to_owned());
        self.topics.extend(topics);
        opened
    }
}
