//! The publishers of a hub for many Sources as operators see them: what each has published since the daemon began.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::hub::publication::PublicationRefusal;
use crate::hub::published_topics::PublishedTopics;
use crate::hub::publisher::Publisher;

/// The counts of one publisher since the daemon began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherCounts {
    /// Accepted, repeats included.
    pub accepted: u64,
    /// Accepted and not relayed, because the body was the topic's last one, or the fetched content had not changed.
    pub repeated: u64,
    /// Refused for any other reason than their number.
    pub refused: u64,
    /// Refused because there were too many.
    pub limited: u64,
    /// Attempts to fetch a topic that failed.
    pub failed_fetches: u64,
    /// The last publication that was refused, or could not be fetched.
    pub last_refusal: Option<PublisherTrouble>,
}

/// The last publication that was refused, or could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherTrouble {
    /// The time.
    pub at: Timestamp,
    /// The reason in words.
    pub reason: String,
}

impl PublisherCounts {
    /// Counts a publication that is saved.
    pub fn accepted(&mut self, is_repeat: bool) {
        self.accepted += 1;
        self.repeated += u64::from(is_repeat);
    }

    /// Counts a publication that is refused.
    pub fn refused(&mut self, refusal: &PublicationRefusal, now: Timestamp) {
        match refusal {
            PublicationRefusal::TooMany { .. } | PublicationRefusal::Busy => self.limited += 1,
            _ => self.refused += 1,
        }
        self.failed(refusal.to_string(), now);
    }

    /// Counts a failed attempt to fetch a topic.
    pub fn failed_fetch(&mut self, reason: String, now: Timestamp) {
        self.failed_fetches += 1;
        self.failed(reason, now);
    }

    fn failed(&mut self, reason: String, at: Timestamp) {
        self.last_refusal = Some(PublisherTrouble { at, reason });
    }
}

/// A publisher with its counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherView {
    /// Name of the publisher.
    pub name: String,
    /// The prefixes below which it may publish.
    pub topics: Vec<String>,
    /// True if it authenticates by a bearer token.
    pub token: bool,
    /// True if its topics have to name this hub.
    pub verify_topic: bool,
    /// The number of topics that it has published.
    pub published_topics: usize,
    /// The time of its last publication that was no repeat.
    pub published: Option<Timestamp>,
    /// Topics that were pinged and not fetched yet.
    pub waiting_fetches: usize,
    /// Its counts.
    #[serde(flatten)]
    pub counts: PublisherCounts,
}

impl PublisherView {
    /// Returns the view of a publisher of which nothing else is known.
    pub fn new(publisher: &Publisher, counts: PublisherCounts) -> PublisherView {
        PublisherView {
            name: publisher.name.to_string(),
            topics: publisher.topics.iter().map(ToString::to_string).collect(),
            token: publisher.token.is_some(),
            verify_topic: publisher.verify_topic,
            published_topics: 0,
            published: None,
            waiting_fetches: 0,
            counts,
        }
    }
}

/// Returns the views of all publishers, with the figures of their topics.
pub fn views<'a>(
    publishers: impl Iterator<Item = (&'a Publisher, PublisherCounts)>,
    topics: &PublishedTopics,
) -> Vec<PublisherView> {
    let mut views: Vec<PublisherView> = publishers
        .map(|(publisher, counts)| PublisherView::new(publisher, counts))
        .collect();
    for published in topics.iter() {
        let view = views
            .iter_mut()
            .find(|view| view.name == published.publisher);
        if let Some(view) = view {
            view.published_topics += usize::from(published.seq > 0);
            view.waiting_fetches += usize::from(published.pinged.is_some());
            if published.seq > 0 {
                view.published = view.published.max(Some(published.published));
            }
        }
    }
    views
}
