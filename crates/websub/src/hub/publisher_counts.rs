//! The publishers of a hub for many Sources as operators see them: what each has published since the daemon began.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::hub::publication::PublicationRefusal;
use crate::hub::published_topics::PublishedTopics;
use crate::hub::publisher::Publisher;

/// Maximum unknown tokens that are counted each: strangers can send any number.
const MAX_TOKENS: usize = 10;
/// The time after which one that is not sent any more gives its place to another.
const TOKEN_AGE: SignedDuration = SignedDuration::from_hours(24);
/// Maximum characters that are shown of a token.
const TOKEN_CHARS: usize = 6;
/// Stands for the tokens beyond the maximum.
const OTHER_TOKENS: &str = "others";

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
    pub last_refusal: Option<FailedPublication>,
}

/// The last publication that was refused, or could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPublication {
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

    /// Counts a publication that is refused, with the reason for the hub's operator.
    pub fn refused(&mut self, refusal: &PublicationRefusal, reason: String, now: Timestamp) {
        match refusal {
            PublicationRefusal::TooMany { .. } | PublicationRefusal::Busy => self.limited += 1,
            _ => self.refused += 1,
        }
        self.set_last_refusal(reason, now);
    }

    /// Counts a failed attempt to fetch a topic.
    pub fn failed_fetch(&mut self, reason: String, now: Timestamp) {
        self.failed_fetches += 1;
        self.set_last_refusal(reason, now);
    }

    fn set_last_refusal(&mut self, reason: String, at: Timestamp) {
        self.last_refusal = Some(FailedPublication { at, reason });
    }
}

/// Requests with a token that no publisher has, since the daemon began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownTokenRequests {
    /// The beginning of the token, at most a quarter of it.
    pub token: String,
    /// Number of these requests.
    pub times: u64,
    /// Time of the last one.
    pub last: Timestamp,
    /// The publisher whose topic the last one named.
    pub publisher: Option<String>,
}

/// Counts a request with a token that no publisher has.
pub fn count_unknown(
    tokens: &mut Vec<UnknownTokenRequests>,
    token: &str,
    publisher: Option<&Publisher>,
    now: Timestamp,
) {
    let length = TOKEN_CHARS.min(token.chars().count() / 4);
    let mut shown: String = token.chars().take(length).collect();
    shown.push('…');
    if tokens.len() >= MAX_TOKENS && tokens.iter().all(|it| it.token != shown) {
        let is_old = |it: &UnknownTokenRequests| {
            it.token != OTHER_TOKENS && now.duration_since(it.last) > TOKEN_AGE
        };
        match tokens.iter().position(is_old) {
            Some(at) => drop(tokens.remove(at)),
            None => OTHER_TOKENS.clone_into(&mut shown),
        }
    }
    let before = tokens.iter().position(|it| it.token == shown);
    let before = before.map_or(0, |at| tokens.remove(at).times);
    tokens.push(UnknownTokenRequests {
        token: shown,
        times: before + 1,
        last: now,
        publisher: publisher.map(|publisher| publisher.name.to_string()),
    });
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

/// Returns the views of all publishers, with the figures of their topics.
pub fn views<'a>(
    publishers: impl Iterator<Item = (&'a Publisher, PublisherCounts)>,
    topics: &PublishedTopics,
) -> Vec<PublisherView> {
    let views = publishers.map(|(publisher, counts)| PublisherView {
        name: publisher.name.to_string(),
        topics: publisher.topics.iter().map(ToString::to_string).collect(),
        token: publisher.token.is_some(),
        verify_topic: publisher.verify_topic,
        published_topics: 0,
        published: None,
        waiting_fetches: 0,
        counts,
    });
    let mut views: Vec<PublisherView> = views.collect();
    for published in topics.topics().values() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tokens_are_counted_by_their_beginnings_and_are_few() {
        let mut tokens = Vec::new();
        let mut count = |token: &str, seconds| {
            count_unknown(
                &mut tokens,
                token,
                None,
                Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds),
            );
            let last = tokens.last().unwrap();
            (last.token.clone(), last.times, tokens.len())
        };
        let counted = |token: &str, times, tokens| (token.to_owned(), times, tokens);
        let long = "0123456789abcdef0123456789abcdef";
        for (token, want) in [
            (long, counted("012345…", 1, 1)),
            (long, counted("012345…", 2, 1)),
            ("books", counted("b…", 1, 2)),
            ("", counted("…", 1, 3)),
        ] {
            assert_eq!(count(token, 0), want, "{token}");
        }
        for number in 3..10 {
            count(&format!("{number}{long}"), 1);
        }
        assert_eq!(count("xxxx", 2), counted("others", 1, 11));
        assert_eq!(count("yyyy", 3), counted("others", 2, 11));
        // The first of them was not sent for a day.
        assert_eq!(count("zzzz", 24 * 3_600 + 1), counted("z…", 1, 11));
    }
}
