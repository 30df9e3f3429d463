//! The topics of a hub for many Sources: which publications are relayed, which are repeats, and which topics are forgotten.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Topic;
use sha2::{Digest, Sha256};

use crate::hub::RelayHeaders;
use crate::hub::admission::decrement;
use crate::hub::publication::PublicationRefusal;
use crate::topics::normalized;

#[cfg(feature = "hub")]
pub mod http;

/// The age from which a repeat renews the time of its topic: no repeat needs a write of its own otherwise.
const RENEWAL: Duration = Duration::from_secs(24 * 3_600);

/// Maximum topics of one publisher.
pub const MAX_TOPICS: usize = 100_000;

/// A topic that was published, with its last notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTopic {
    /// The topic.
    pub topic: Topic,
    /// The name of the publisher.
    pub publisher: String,
    /// The number of its notifications.
    pub seq: u64,
    /// The last body; none before the first.
    pub digest: Option<BodyDigest>,
    /// The time of the last publication that was no repeat.
    pub published: Timestamp,
    /// The `ETag` of the topic when it was last fetched.
    pub etag: Option<String>,
    /// The time of a ping whose fetch has not succeeded.
    pub pinged: Option<Timestamp>,
}

impl PublishedTopic {
    /// Ends the wait for a fetch, unless the topic was pinged after the fetch began. Returns true if it ended.
    pub fn end_ping_wait(&mut self, began: Timestamp) -> bool {
        let is_ended = self.pinged.is_some_and(|pinged| pinged <= began);
        if is_ended {
            self.pinged = None;
        }
        is_ended
    }
}

/// The digest of a notification's body, by which a repeat is recognised: `until` differs in each notification, so a
/// topic's last body is never its next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyDigest(pub [u8; 32]);

impl BodyDigest {
    /// Returns the digest of a body.
    pub fn of(body: &[u8]) -> BodyDigest {
        BodyDigest(Sha256::digest(body).into())
    }
}

/// A notification that was accepted from a publisher, or fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The topic.
    pub topic: Topic,
    /// The name of the publisher.
    pub publisher: Arc<str>,
    /// Content of the topic.
    pub body: Arc<[u8]>,
    /// Header values to deliver with it.
    pub headers: RelayHeaders,
    /// The `ETag` with which it was fetched.
    pub etag: Option<String>,
    /// The time at which the fetch began that gave it; nothing for one that was sent.
    pub fetched: Option<Timestamp>,
}

/// The meaning of a publication for its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewOrRepeat {
    /// To be relayed, with the number of this entry, once it is saved.
    New(PublishedTopic),
    /// The body is the topic's last one: to be accepted and not relayed. The entry, if any, is to be saved.
    Repeat(Option<PublishedTopic>),
}

/// All topics that were published.
#[derive(Debug, Default)]
pub struct PublishedTopics {
    topics: HashMap<Topic, PublishedTopic>,
    by_normal_form: HashMap<String, Topic>,
    /// The number of topics of each publisher.
    counts: BTreeMap<String, u32>,
}

impl PublishedTopics {
    /// Restores the topics of earlier runs.
    pub fn restore(saved: Vec<PublishedTopic>) -> PublishedTopics {
        let mut restored = PublishedTopics::default();
        for published in saved {
            restored.insert(published);
        }
        restored
    }

    /// Returns the topics.
    pub fn topics(&self) -> &HashMap<Topic, PublishedTopic> {
        &self.topics
    }

    /// Finds the topic that a subscriber named: compared byte for byte, else in normal form.
    pub fn find(&self, name: &str) -> Option<&Topic> {
        let exact = self.topics.get_key_value(&Topic::new(name));
        let exact = exact.map(|(topic, _)| topic);
        exact.or_else(|| self.by_normal_form.get(&normalized(name)))
    }

    /// Verifies that a publisher would have at most `max` topics with these. It keeps those that it has beyond that.
    ///
    /// # Errors
    /// 403 if it would have more.
    pub fn check_quota(
        &self,
        publisher: &str,
        topics: &[Topic],
        max: usize,
    ) -> Result<(), PublicationRefusal> {
        let is_new = |topic: &&Topic| {
            let known = self.topics.get(*topic);
            known.is_none_or(|known| known.publisher != publisher)
        };
        let new = topics.iter().filter(is_new).count();
        let count = self.counts.get(publisher).copied().unwrap_or(0);
        if new == 0 || count as usize + new <= max {
            Ok(())
        } else {
            Err(PublicationRefusal::TooManyTopics(max))
        }
    }

    /// Takes a publication.
    pub fn publish(&mut self, publication: &Publication, now: Timestamp) -> NewOrRepeat {
        let etag = &publication.etag;
        let digest = Some(BodyDigest::of(&publication.body));
        let entry = self.entry(&publication.topic, &publication.publisher, now);
        let fetched = publication.fetched;
        let was_pinged = fetched.is_some_and(|began| entry.end_ping_wait(began));
        let before = entry.etag.clone();
        if etag.is_some() {
            entry.etag.clone_from(etag);
        }
        if entry.digest == digest {
            let age = Duration::try_from(now.duration_since(entry.published));
            let is_old = age.is_ok_and(|age| age > RENEWAL);
            if is_old {
                entry.published = now;
            }
            let is_changed = is_old || was_pinged || entry.etag != before;
            return NewOrRepeat::Repeat(is_changed.then(|| entry.clone()));
        }
        // The content that was fetched earlier is not the last any more.
        entry.etag.clone_from(etag);
        entry.digest = digest;
        entry.seq += 1;
        entry.published = now;
        NewOrRepeat::New(entry.clone())
    }

    /// Takes note of a ping, whose fetch follows. Returns the entry to save.
    pub fn take_ping(&mut self, topic: &Topic, publisher: &str, now: Timestamp) -> PublishedTopic {
        let entry = self.entry(topic, publisher, now);
        entry.pinged = Some(now);
        entry.clone()
    }

    /// Takes note that the content of a pinged topic had not changed, or could not be fetched, by a fetch that began at a
    /// time. Returns the entry to save.
    pub fn end_ping(&mut self, topic: &Topic, began: Timestamp) -> Option<PublishedTopic> {
        let entry = self.topics.get_mut(topic)?;
        entry.end_ping_wait(began).then(|| entry.clone())
    }

    /// Forgets the topics that nobody has published for `ttl` and that have no subscribers (S3). Returns them.
    pub fn forget_unused(
        &mut self,
        ttl: Duration,
        now: Timestamp,
        has_subscribers: impl Fn(&Topic) -> bool,
    ) -> Vec<Topic> {
        let is_over = |published: &&PublishedTopic| {
            let age = Duration::try_from(now.duration_since(published.published));
            let is_old = published.pinged.is_none() && age.is_ok_and(|age| age > ttl);
            is_old && !has_subscribers(&published.topic)
        };
        let over = self.topics.values().filter(is_over);
        let over: Vec<Topic> = over.map(|published| published.topic.clone()).collect();
        for topic in &over {
            if let Some(forgotten) = self.topics.remove(topic) {
                decrement(&mut self.counts, &forgotten.publisher);
            }
        }
        if !over.is_empty() {
            // Other spellings of a topic that remain take its place.
            let by_normal_form = &mut self.by_normal_form;
            by_normal_form.retain(|_, topic| self.topics.contains_key(topic));
            for topic in self.topics.keys() {
                let form = by_normal_form.entry(normalized(topic.as_str()));
                form.or_insert_with(|| topic.clone());
            }
        }
        over
    }

    fn entry(&mut self, topic: &Topic, publisher: &str, now: Timestamp) -> &mut PublishedTopic {
        if !self.topics.contains_key(topic) {
            self.insert(PublishedTopic {
                topic: topic.clone(),
                publisher: publisher.to_owned(),
                seq: 0,
                digest: None,
                published: now,
                etag: None,
                pinged: None,
            });
        }
        let is_others = |entry: &PublishedTopic| entry.publisher != publisher;
        if let Some(entry) = self.topics.get_mut(topic).filter(|entry| is_others(entry)) {
            let before = mem::replace(&mut entry.publisher, publisher.to_owned());
            decrement(&mut self.counts, &before);
            self.count_topic(publisher);
        }
        self.topics
            .get_mut(topic)
            .expect("a topic that was missing has been inserted")
    }

    fn count_topic(&mut self, publisher: &str) {
        *self.counts.entry(publisher.to_owned()).or_default() += 1;
    }

    fn insert(&mut self, published: PublishedTopic) {
        let topic = published.topic.clone();
        self.by_normal_form
            .insert(normalized(topic.as_str()), topic.clone());
        self.count_topic(&published.publisher);
        if let Some(before) = self.topics.insert(topic, published) {
            decrement(&mut self.counts, &before.publisher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn publication(body: &str) -> Publication {
        Publication {
            topic: Topic::new("https://e.org/t"),
            publisher: "library".into(),
            body: body.as_bytes().into(),
            headers: RelayHeaders::default(),
            etag: None,
            fetched: None,
        }
    }

    fn seq(published: &NewOrRepeat) -> Option<u64> {
        match published {
            NewOrRepeat::New(saved) => Some(saved.seq),
            NewOrRepeat::Repeat(_) => None,
        }
    }

    #[test]
    fn only_the_last_body_is_a_repeat() {
        let mut topics = PublishedTopics::default();
        let now = at("2026-01-01T00:00:00Z");
        for (body, want) in [
            ("a", Some(1)),
            ("a", None),
            ("b", Some(2)),
            ("b", None),
            ("a", Some(3)),
        ] {
            let published = topics.publish(&publication(body), now);
            assert_eq!(seq(&published), want, "{body}");
        }
    }

    #[test]
    fn a_repeat_is_recognised_after_a_restart_and_saved_once_a_day() {
        let mut topics = PublishedTopics::default();
        let published = topics.publish(&publication("a"), at("2026-01-01T00:00:00Z"));
        let NewOrRepeat::New(saved) = published else {
            panic!("{published:?}")
        };
        let mut topics = PublishedTopics::restore(vec![saved]);
        let repeat = topics.publish(&publication("a"), at("2026-01-01T23:00:00Z"));
        assert_eq!(repeat, NewOrRepeat::Repeat(None));
        let repeat = topics.publish(&publication("a"), at("2026-01-02T00:00:01Z"));
        let NewOrRepeat::Repeat(Some(saved)) = repeat else {
            panic!("{repeat:?}")
        };
        assert_eq!(saved.published, at("2026-01-02T00:00:01Z"));
    }

    #[test]
    fn a_topic_is_found_however_it_is_escaped() {
        let mut topics = PublishedTopics::default();
        let escaped = Topic::new("https://e.org/%C3%A9");
        topics.take_ping(&escaped, "library", at("2026-01-01T00:00:00Z"));
        for (name, is_found) in [
            ("https://e.org/%C3%A9", true),
            ("https://e.org/%c3%a9", true),
            ("https://%65.org/%c3%A9", true),
            ("https://e.org/e", false),
            ("https://e.org%2F%C3%A9", false),
        ] {
            assert_eq!(topics.find(name).is_some(), is_found, "{name}");
        }
    }

    #[test]
    fn of_two_spellings_one_is_found_after_the_other_was_forgotten() {
        for forgotten in ["https://e.org/a-b", "https://e.org/a%2Db"] {
            let mut topics = PublishedTopics::default();
            for name in ["https://e.org/a%2Db", "https://e.org/a-b"] {
                let topic = Topic::new(name);
                topics.take_ping(&topic, "library", at("2026-01-01T00:00:00Z"));
                topics.end_ping(&topic, at("2026-01-01T00:00:01Z"));
            }
            let is_other = |topic: &Topic| topic.as_str() != forgotten;
            let ttl = Duration::from_secs(3_600);
            let over = topics.forget_unused(ttl, at("2026-01-01T01:30:00Z"), is_other);
            assert_eq!(over, [Topic::new(forgotten)]);
            assert!(topics.find("https://e.org/%61-b").is_some(), "{forgotten}");
        }
    }

    // S3.
    #[test]
    fn topics_without_publications_and_subscribers_are_forgotten() {
        let mut topics = PublishedTopics::default();
        let other = Topic::new("https://e.org/other");
        topics.publish(&publication("a"), at("2026-01-01T00:00:00Z"));
        topics.take_ping(&other, "library", at("2026-01-01T00:00:00Z"));
        let ttl = Duration::from_secs(3_600);
        let (early, late) = (at("2026-01-01T00:30:00Z"), at("2026-01-01T01:30:00Z"));
        assert!(topics.forget_unused(ttl, early, |_| false).is_empty());
        assert!(topics.forget_unused(ttl, late, |_| true).is_empty());
        let forgotten = topics.forget_unused(ttl, late, |_| false);
        assert_eq!(forgotten, [Topic::new("https://e.org/t")]);
        assert_eq!(topics.find("https://e.org/t"), None);
        // It still waits for its fetch.
        assert_eq!(topics.find(other.as_str()), Some(&other));
        topics.end_ping(&other, late);
        assert_eq!(topics.forget_unused(ttl, late, |_| false), [other]);
    }

    #[test]
    fn a_publisher_has_a_bounded_number_of_topics() {
        let now = at("2026-01-01T00:00:00Z");
        let topic = |number: u32| Topic::new(format!("https://e.org/{number}"));
        let mut topics = PublishedTopics::default();
        for number in 0..3 {
            let room = topics.check_quota("library", &[topic(number)], 3);
            assert_eq!(room, Ok(()));
            topics.take_ping(&topic(number), "library", now);
        }
        let status = |topics: &PublishedTopics, publisher: &str, wanted: &[Topic]| {
            let room = topics.check_quota(publisher, wanted, 3);
            room.map_err(|refusal| refusal.status())
        };
        let (known, new) = ([topic(0), topic(2)], [topic(1), topic(3)]);
        assert_eq!(status(&topics, "library", &known), Ok(()));
        assert_eq!(status(&topics, "library", &new), Err(403));
        assert_eq!(status(&topics, "archive", &new), Ok(()));
        // A topic that another publishes later counts for that one.
        topics.take_ping(&topic(1), "archive", now);
        assert_eq!(status(&topics, "library", &[topic(3)]), Ok(()));
        let restored = topics.topics().values().cloned().collect();
        let mut topics = PublishedTopics::restore(restored);
        topics.take_ping(&topic(3), "library", now);
        assert_eq!(status(&topics, "library", &[topic(4)]), Err(403));
        topics.end_ping(&topic(3), now);
        let late = at("2026-01-02T00:00:00Z");
        topics.forget_unused(Duration::from_secs(60), late, |_| false);
        assert_eq!(status(&topics, "library", &[topic(4)]), Ok(()));
    }

    #[test]
    fn what_was_fetched_is_asked_for_by_its_tag_until_something_else_is_published() {
        let mut topics = PublishedTopics::default();
        let now = at("2026-01-01T00:00:00Z");
        let fetched = Publication {
            etag: Some("\"1\"".to_owned()),
            ..publication("a")
        };
        topics.publish(&fetched, now);
        let tag = |topics: &PublishedTopics| topics.topics()[&fetched.topic].etag.clone();
        assert_eq!(tag(&topics).as_deref(), Some("\"1\""));
        topics.publish(&publication("a"), now);
        assert_eq!(tag(&topics).as_deref(), Some("\"1\""));
        topics.publish(&publication("b"), now);
        assert_eq!(tag(&topics), None);
    }

    #[test]
    fn a_topic_ages_unless_it_waits_for_a_fetch() {
        let mut topics = PublishedTopics::default();
        let name = Topic::new("https://e.org/t");
        let mut topic = topics.take_ping(&name, "p", at("2026-01-01T00:00:00Z"));
        let ttl = Duration::from_secs(24 * 3_600);
        let is_over = |topic: &PublishedTopic, now: &str| {
            let mut topics = PublishedTopics::restore(vec![topic.clone()]);
            !topics.forget_unused(ttl, at(now), |_| false).is_empty()
        };
        assert!(!is_over(&topic, "2027-01-02T00:00:01Z"));
        topic.pinged = None;
        assert!(!is_over(&topic, "2026-01-02T00:00:00Z"));
        assert!(is_over(&topic, "2026-01-02T00:00:01Z"));
        assert!(!is_over(&topic, "2025-01-02T00:00:01Z"));
    }
}
