//! Subscriptions as operators see and name them: by digest, without the callback URL.

use std::cmp::Reverse;
use std::fmt;

use jiff::Timestamp;
use resourcesync::escape::printable;
use resourcesync::uri::Topic;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::counts::EmbeddedHubCounts;
use crate::hub::subscriptions::{Subscriptions, TopicState, TopicSubscriber};
use crate::hub::{Callback, RelayId, SubscriptionKey};

/// Maximum subscriptions in a list; the others are only counted.
const MAX_LISTED: usize = 1_000;
/// Maximum topics with a count of their own.
const MAX_TOPICS: usize = 100;
/// Maximum suggestions in an error about an unknown name.
const MAX_SUGGESTIONS: usize = 10;

/// Status of the embedded hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HubStatus {
    /// Number of subscriptions.
    pub subscriptions: usize,
    /// Pending deliveries over all subscriptions.
    pub owed: usize,
    /// Bytes of the notifications that are pending for some subscription.
    #[serde(skip)]
    pub backlog_bytes: u64,
    /// Subscriptions whose last delivery attempt failed.
    pub failing: usize,
    /// What came of the last attempt of one of them since the daemon started.
    #[serde(default)]
    pub failure: Option<String>,
    /// The topics with the most subscriptions, and their numbers.
    #[serde(skip)]
    pub topics: Vec<(Topic, usize)>,
    /// Counters since the daemon started.
    #[serde(skip)]
    pub counts: EmbeddedHubCounts,
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionView {
    /// The topic.
    pub topic: Topic,
    /// The callback's origin and digest, as logs show it.
    pub callback: String,
    /// The digest alone, which is the name in commands.
    pub digest: String,
    /// The end of the lease.
    pub expires: Timestamp,
    /// True if it has a secret, and its deliveries are signed.
    pub signed: bool,
    /// Pending notifications.
    pub owed: usize,
    /// The number of the first pending notification.
    pub next: Option<u64>,
    /// Failed attempts to deliver that one.
    pub attempts: u32,
    /// The time of the next attempt.
    pub next_try: Option<Timestamp>,
    /// The last attempt since the daemon started.
    pub last: Option<LastAttempt>,
}

impl SubscriptionView {
    /// Returns the state in a word.
    pub fn state(&self) -> &'static str {
        match (self.attempts, self.owed) {
            (0, 0) => "fine",
            (0, _) => "owed",
            (1.., _) => "failing",
        }
    }
}

/// The last attempt to deliver to a subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAttempt {
    /// The time of the attempt.
    pub at: Timestamp,
    /// The HTTP status of the answer, if there was one.
    pub status: Option<u16>,
    /// The error if there was no answer.
    pub failure: Option<Box<str>>,
}

impl LastAttempt {
    /// Returns the attempt with this answer.
    pub fn new(answer: &Answer, at: Timestamp) -> LastAttempt {
        let (status, failure) = match answer {
            Answer::Status { status, .. } => (Some(*status), None),
            Answer::Failed(reason) => (None, Some(printable(reason).into())),
            // No subscriber is a message broker.
            Answer::Receipts | Answer::BrokerError { .. } => (None, None),
        };
        LastAttempt {
            at,
            status,
            failure,
        }
    }
}

impl fmt::Display for LastAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "answered {status}"),
            None => f.write_str(self.failure.as_deref().unwrap_or("not answered")),
        }
    }
}

/// Some subscriptions, failing ones first, and the number of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionList {
    /// Some of them.
    pub subscriptions: Vec<SubscriptionView>,
    /// The number of the others.
    pub more: usize,
}

impl Subscriptions {
    /// Returns the status without the counters.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = HubStatus {
            backlog_bytes: self.backlog_bytes,
            ..HubStatus::default()
        };
        for (topic, on_topic) in &self.topics {
            let before = status.subscriptions;
            for live in on_topic.live_subscriptions(topic, now) {
                status.subscriptions += 1;
                status.owed += live.pending;
                if live.subscriber.progress.attempts > 0 {
                    status.failing += 1;
                    let last = || live.subscriber.last.as_ref().map(ToString::to_string);
                    status.failure = status.failure.take().or_else(last);
                }
            }
            let count = status.subscriptions - before;
            status.topics.push((topic.clone(), count));
        }
        let rank = |(topic, count): &(Topic, usize)| (Reverse(*count), topic.clone());
        status.topics.sort_by_cached_key(rank);
        status.topics.truncate(MAX_TOPICS);
        status
    }

    /// Returns the subscriptions, first those with most failed attempts, then those with most pending notifications.
    /// `seq_after` returns the number in its channel of the notification that follows one of the same topic.
    pub fn list(&self, now: Timestamp, seq_after: SeqAfter<'_>) -> SubscriptionList {
        let (listed, more) = top(self.live(now).collect(), MAX_LISTED);
        SubscriptionList {
            subscriptions: listed.iter().map(|live| live.view(seq_after)).collect(),
            more,
        }
    }

    /// Finds the subscription that an operator named: the callback by its digest, or by origin and digest as logs show
    /// it; where it subscribes to several topics, the named one.
    ///
    /// # Errors
    ///
    /// In an operator's words, if there is none, or several; with names that exist.
    pub fn find(
        &self,
        callback: &str,
        topic: Option<&str>,
        now: Timestamp,
        seq_after: SeqAfter<'_>,
    ) -> Result<(SubscriptionKey, SubscriptionView), String> {
        let has_name = |live: &LiveSubscription<'_>| {
            let digest = live.callback.digest();
            callback == digest
                || (callback.contains(&digest) && callback == live.callback.to_string())
        };
        let of_callback: Vec<LiveSubscription<'_>> = self.live(now).filter(has_name).collect();
        let is_on_topic =
            |live: &&LiveSubscription<'_>| topic.is_none_or(|topic| live.topic.as_str() == topic);
        let found: Vec<LiveSubscription<'_>> =
            of_callback.iter().filter(is_on_topic).copied().collect();
        Err(match (&found[..], topic) {
            ([live], _) => {
                let key = SubscriptionKey::new(live.topic, live.callback);
                return Ok((key, live.view(seq_after)));
            }
            _ if of_callback.is_empty() => {
                let known = suggestions(self.live(now).collect());
                format!("no subscription has the callback \"{callback}\"; {known}")
            }
            ([], Some(topic)) => {
                let known = suggestions(of_callback);
                format!("the callback \"{callback}\" does not subscribe to \"{topic}\"; {known}")
            }
            _ => format!(
                "\"{callback}\" may be one of several; name the callback as shown here, then the topic: {}",
                suggestions(found)
            ),
        })
    }

    fn live(&self, now: Timestamp) -> impl Iterator<Item = LiveSubscription<'_>> {
        let topics = self.topics.iter();
        topics.flat_map(move |(topic, on_topic)| on_topic.live_subscriptions(topic, now))
    }
}

/// Returns the number in its channel of the notification that follows one of the same topic, from the state file.
pub type SeqAfter<'a> = &'a dyn Fn(&Topic, RelayId) -> Option<u64>;

/// A subscription whose lease has not ended.
#[derive(Clone, Copy)]
struct LiveSubscription<'a> {
    topic: &'a Topic,
    callback: &'a Callback,
    subscriber: &'a TopicSubscriber,
    pending: usize,
}

impl TopicState {
    fn live_subscriptions<'a>(
        &'a self,
        topic: &'a Topic,
        now: Timestamp,
    ) -> impl Iterator<Item = LiveSubscription<'a>> {
        self.subscribers
            .iter()
            .filter(move |(_, subscriber)| now < subscriber.expires)
            .map(move |(callback, subscriber)| {
                let owed = self.backlog.owed(subscriber.progress.heard);
                LiveSubscription {
                    topic,
                    callback,
                    subscriber,
                    pending: usize::try_from(owed.count).unwrap_or(usize::MAX),
                }
            })
    }
}

impl LiveSubscription<'_> {
    fn view(&self, seq_after: SeqAfter<'_>) -> SubscriptionView {
        let progress = self.subscriber.progress;
        let next = (self.pending > 0).then(|| seq_after(self.topic, progress.heard));
        SubscriptionView {
            topic: self.topic.clone(),
            callback: self.callback.to_string(),
            digest: self.callback.digest(),
            expires: self.subscriber.expires,
            signed: self.subscriber.secret.is_some(),
            owed: self.pending,
            next: next.flatten(),
            attempts: progress.attempts,
            next_try: progress.next_try,
            last: self.subscriber.last.as_deref().cloned(),
        }
    }
}

/// Returns the first `count` by rank, in order, and the number of the others.
fn top(mut all: Vec<LiveSubscription<'_>>, count: usize) -> (Vec<LiveSubscription<'_>>, usize) {
    fn rank<'a>(live: &LiveSubscription<'a>) -> (Reverse<(u32, usize)>, &'a Topic, &'a Callback) {
        let attempts = live.subscriber.progress.attempts;
        let most = Reverse((attempts, live.pending));
        (most, live.topic, live.callback)
    }
    let more = all.len().saturating_sub(count);
    if more > 0 {
        // Of a hundred thousand, only the first are sorted.
        all.select_nth_unstable_by_key(count, rank);
        all.truncate(count);
    }
    all.sort_unstable_by_key(rank);
    (all, more)
}

/// Lists some subscriptions for an error message.
fn suggestions(all: Vec<LiveSubscription<'_>>) -> String {
    let (listed, more) = top(all, MAX_SUGGESTIONS);
    let name = |live: &LiveSubscription<'_>| format!("{} on {}", live.callback, live.topic);
    let names: Vec<String> = listed.iter().map(name).collect();
    match (&names[..], more) {
        ([], _) => "nobody has subscribed".to_owned(),
        (names, 0) => format!("there is {}", names.join(", ")),
        (names, more) => format!("there is {}, and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
