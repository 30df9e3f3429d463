//! What an operator may see of subscriptions, and how one is named: callbacks by what reports show of them.

use std::cmp::Reverse;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::announce::delivery::Answer;
use crate::announce::delivery::attempt::printable;
use crate::hub::audience::{Assignment, Audience, Crowd, Subscriber};
use crate::hub::counts::Counts;
use crate::hub::{Callback, Key, RelayId};
use crate::resourcesync::uri::Topic;

/// So many subscriptions are listed; of others it is told how many they are.
const MOST_LISTED: usize = 1_000;
/// So many topics are counted apart.
const MOST_TOPICS: usize = 100;
/// So many subscriptions are offered instead of one that is not known.
const MOST_NAMES: usize = 10;

/// How the embedded hub stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HubStatus {
    pub subscriptions: usize,
    /// Deliveries that are still to be made, over all subscriptions.
    pub owed: usize,
    /// Subscriptions that did not take what was last tried.
    pub failing: usize,
    /// The topics that have the most subscriptions, with how many they have.
    #[serde(skip)]
    pub topics: Vec<(Topic, usize)>,
    /// What was done since the daemon began.
    #[serde(skip)]
    pub counts: Counts,
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionView {
    pub topic: Topic,
    /// Its origin and digest, as logs show them.
    pub callback: String,
    /// The digest alone, which names it.
    pub digest: String,
    /// When its lease ends.
    pub expires: Timestamp,
    /// Whether it has a secret, and its deliveries a signature.
    pub signed: bool,
    /// How many notifications it is owed, and the number of the next.
    pub owed: usize,
    pub next: Option<u64>,
    /// How often that one was tried.
    pub attempts: u32,
    pub next_try: Option<Timestamp>,
    /// What came of the last try since the daemon began.
    pub last: Option<LastTry>,
}

/// What came of a try to deliver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTry {
    pub at: Timestamp,
    /// What was answered, else why nothing was.
    pub status: Option<u16>,
    pub failure: Option<Box<str>>,
}

impl LastTry {
    pub fn new(answer: &Answer, at: Timestamp) -> LastTry {
        let (status, failure) = match answer {
            Answer::Status { status, .. } => (Some(*status), None),
            Answer::Failed(reason) => (None, Some(printable(reason).into())),
        };
        LastTry {
            at,
            status,
            failure,
        }
    }
}

impl fmt::Display for LastTry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "answered {status}"),
            None => f.write_str(self.failure.as_deref().unwrap_or("not answered")),
        }
    }
}

/// Some subscriptions, those in trouble first, and how many there are besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionList {
    pub subscriptions: Vec<SubscriptionView>,
    pub more: usize,
}

/// Why a name means no subscription.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unnamed {
    #[error("no subscription has the callback \"{name}\"; {known}")]
    Callback { name: String, known: String },
    #[error("the callback \"{name}\" does not subscribe to \"{topic}\"; {known}")]
    Topic {
        name: String,
        topic: String,
        known: String,
    },
    #[error(
        "\"{name}\" may be one of several; name the callback as shown here, then the topic: {known}"
    )]
    Ambiguous { name: String, known: String },
}

impl Audience {
    /// Remembers what came of a try, for who looks; to be told before what became of the delivery.
    pub fn tried(&mut self, assignment: &Assignment, last: LastTry) {
        if let Some((crowd, callback)) = self.assigned(assignment)
            && let Some(subscriber) = crowd.subscribers.get_mut(callback)
        {
            subscriber.last = Some(last);
        }
    }

    /// How all of them stand, without what was done.
    pub fn status(&self, now: Timestamp) -> HubStatus {
        let mut status = HubStatus::default();
        for (topic, crowd) in &self.topics {
            let before = status.subscriptions;
            for live in crowd.live(topic, now) {
                status.subscriptions += 1;
                status.owed += live.owed;
                status.failing += usize::from(live.own.progress.attempts > 0);
            }
            let count = status.subscriptions - before;
            status.topics.push((topic.clone(), count));
        }
        let rank = |(topic, count): &(Topic, usize)| (Reverse(*count), topic.clone());
        status.topics.sort_by_cached_key(rank);
        status.topics.truncate(MOST_TOPICS);
        status
    }

    /// The subscriptions: first those that were tried in vain most often, then those that are owed most.
    pub fn list(&self, now: Timestamp) -> SubscriptionList {
        let (listed, more) = first(self.live(now).collect(), MOST_LISTED);
        SubscriptionList {
            subscriptions: listed.iter().map(Live::view).collect(),
            more,
        }
    }

    /// The subscription that an operator means: the callback by its digest, or by origin and digest as logs show them;
    /// of several topics, the one that is named.
    pub fn named(
        &self,
        callback: &str,
        topic: Option<&str>,
        now: Timestamp,
    ) -> Result<(Key, SubscriptionView), Unnamed> {
        let name = callback.to_owned();
        let called = self.live(now).filter(|live| live.is_called(callback));
        let called: Vec<Live<'_>> = called.collect();
        if called.is_empty() {
            let known = offer(self.live(now).collect());
            return Err(Unnamed::Callback { name, known });
        }
        let is_meant = |live: &&Live<'_>| topic.is_none_or(|topic| live.topic.as_str() == topic);
        let meant: Vec<Live<'_>> = called.iter().filter(is_meant).copied().collect();
        match (&meant[..], topic) {
            ([live], _) => Ok((live.key(), live.view())),
            ([], Some(topic)) => Err(Unnamed::Topic {
                name,
                topic: topic.to_owned(),
                known: offer(called),
            }),
            _ => Err(Unnamed::Ambiguous {
                name,
                known: offer(meant),
            }),
        }
    }

    fn live(&self, now: Timestamp) -> impl Iterator<Item = Live<'_>> {
        let crowds = self.topics.iter();
        crowds.flat_map(move |(topic, crowd)| crowd.live(topic, now))
    }
}

/// A subscription whose lease lasts.
#[derive(Clone, Copy)]
struct Live<'a> {
    topic: &'a Topic,
    callback: &'a Callback,
    own: &'a Subscriber,
    owed: usize,
    next: Option<u64>,
}

impl Crowd {
    fn live<'a>(&'a self, topic: &'a Topic, now: Timestamp) -> impl Iterator<Item = Live<'a>> {
        let relays = self.owed.values().map(|owed| &owed.relay);
        // In order of their numbers: a hundred thousand subscribers may each be owed a thousand of them.
        let relays: Vec<(RelayId, u64)> = relays.map(|relay| (relay.id, relay.seq)).collect();
        let live = self
            .subscribers
            .iter()
            .filter(move |(_, own)| now < own.expires);
        live.map(move |(callback, own)| {
            let heard = relays.partition_point(|(id, _)| *id <= own.progress.heard);
            Live {
                topic,
                callback,
                own,
                owed: relays.len() - heard,
                next: relays.get(heard).map(|(_, seq)| *seq),
            }
        })
    }
}

impl<'a> Live<'a> {
    fn rank(&self) -> (Reverse<u32>, Reverse<usize>, &'a Topic, &'a Callback) {
        let attempts = self.own.progress.attempts;
        (
            Reverse(attempts),
            Reverse(self.owed),
            self.topic,
            self.callback,
        )
    }

    fn is_called(&self, name: &str) -> bool {
        let digest = self.callback.digest();
        name == digest || (name.contains(&digest) && name == self.callback.to_string())
    }

    fn key(&self) -> Key {
        Key {
            topic: self.topic.clone(),
            callback: self.callback.clone(),
        }
    }

    fn view(&self) -> SubscriptionView {
        let progress = self.own.progress;
        SubscriptionView {
            topic: self.topic.clone(),
            callback: self.callback.to_string(),
            digest: self.callback.digest(),
            expires: self.own.expires,
            signed: self.own.secret.is_some(),
            owed: self.owed,
            next: self.next,
            attempts: progress.attempts,
            next_try: progress.next_try,
            last: self.own.last.clone(),
        }
    }
}

/// The first by rank, in order, and how many there are besides.
fn first(mut all: Vec<Live<'_>>, most: usize) -> (Vec<Live<'_>>, usize) {
    let by_rank = |one: &Live<'_>, other: &Live<'_>| one.rank().cmp(&other.rank());
    let more = all.len().saturating_sub(most);
    if more > 0 {
        // Of a hundred thousand, most differ in nothing but their names: only the first are sorted.
        all.select_nth_unstable_by(most, by_rank);
        all.truncate(most);
    }
    all.sort_unstable_by(by_rank);
    (all, more)
}

/// What there is, for who named something else.
fn offer(all: Vec<Live<'_>>) -> String {
    let (named, more) = first(all, MOST_NAMES);
    let names = named
        .iter()
        .map(|live| format!("{} on {}", live.callback, live.topic));
    let names: Vec<String> = names.collect();
    match (&names[..], more) {
        ([], _) => "nobody has subscribed".to_owned(),
        (names, 0) => format!("there is {}", names.join(", ")),
        (names, more) => format!("there is {}, and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
