//! The documents that advertise channels, watched for those that they advertise later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::listen::channels::{Channel, channels};
use crate::cli::listen::memory::Memory;
use crate::cli::listen::state::State;
use crate::cli::listen::{LOOK_AGAIN_AFTER, MIN_LOOK, kind, moved, unverified};
use crate::cli::options::ListenOptions;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::Hub;

/// The Capability Lists and Source Descriptions that were given, and the topics that they led to.
pub struct Watched {
    /// Those of the command line that are no topics themselves.
    documents: Vec<String>,
    kind: Option<ChannelKind>,
    hub: Option<Hub>,
    state: Arc<State>,
    topics: BTreeSet<String>,
    /// Time of the last look.
    looked: (Timestamp, Instant),
    next_look: Instant,
    looking: JoinSet<Vec<Channel>>,
}

impl Watched {
    /// Watches the documents that led to these channels, which were looked for just now.
    pub fn new(
        options: &ListenOptions,
        hub: Option<&Hub>,
        state: &Arc<State>,
        wanted: &BTreeMap<String, Channel>,
    ) -> Watched {
        let advertised = wanted.values().filter(|channel| channel.kind.is_some());
        let documents: BTreeSet<String> = advertised.map(|channel| channel.asked.clone()).collect();
        let now = Instant::now();
        Watched {
            documents: documents.into_iter().collect(),
            kind: kind(options),
            hub: hub.cloned(),
            state: Arc::clone(state),
            topics: wanted.keys().cloned().collect(),
            looked: (Timestamp::now(), now),
            next_look: now + LOOK_AGAIN_AFTER,
            looking: JoinSet::new(),
        }
    }

    /// Looks again as soon as it may: one of the documents has changed.
    pub fn look_soon(&mut self) {
        self.next_look = self.looked.1 + MIN_LOOK;
    }

    /// Looks when it is time, and returns the channels that are advertised then. It may be dropped and called again.
    pub async fn found(&mut self) -> Vec<Channel> {
        if self.documents.is_empty() {
            std::future::pending::<()>().await;
        }
        if self.looking.is_empty() {
            tokio::time::sleep_until(self.next_look).await;
            self.next_look = Instant::now() + LOOK_AGAIN_AFTER;
            let (documents, kind, hub) = (self.documents.clone(), self.kind, self.hub.clone());
            self.looking.spawn(async move {
                let mut found = Vec::new();
                for document in documents {
                    // A document that cannot be read now is read the next time.
                    let channels = channels(&document, kind, hub.as_ref()).await;
                    found.extend(channels.unwrap_or_default());
                }
                found
            });
        }
        let found = self.looking.join_next().await;
        found.and_then(Result::ok).unwrap_or_default()
    }

    /// Saves the subscriptions of the channels that are new, and returns these. Notifications on them since the last look
    /// count as missed.
    pub fn save(&mut self, found: Vec<Channel>, port: u16) -> anyhow::Result<Vec<Channel>> {
        let since = self.looked.0;
        self.looked.1 = Instant::now();
        if !found.is_empty() {
            self.looked.0 = Timestamp::now();
        }
        let by_topic = |channel: Channel| (channel.topic.as_str().to_owned(), channel);
        let found: BTreeMap<String, Channel> = found.into_iter().map(by_topic).collect();
        let saved = self.state.saved();
        let mut new = Vec::new();
        let mut opened = Vec::new();
        for (topic, channel) in &found {
            if !self.topics.insert(topic.clone()) {
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
        if !new.is_empty() {
            self.state.change(|saved| {
                saved.port = Some(port);
                saved.subscriptions.extend(new);
            })?;
        }
        Ok(opened)
    }
}
