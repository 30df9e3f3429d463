//! The memory of what was handed over of one topic, and the decisions taken from it: repeats, gaps, overlaps. Pure.

use std::collections::{HashSet, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::receive::{ReceivedChange, time_span};

/// Digests of notifications kept to recognise repeats: more than a hub has in flight.
const DIGESTS: usize = 32;
/// Keys kept of changes whose time reaches beyond the last `until`.
const EDGE_KEYS: usize = 1_000;

/// Notifications of one topic that were handed over, as the state file keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ChannelKind>,
    /// The last `until`, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Time of the first subscription, by our clock; it counts until there is a last `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// URI of the Capability List of the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<String>,
    /// Digests of the last notifications, the newest last.
    #[serde(default)]
    digests: VecDeque<String>,
    /// Changes that were handed over and whose time, such as a whole second, reaches beyond `until`: others of the same
    /// time may come.
    #[serde(default)]
    edge: VecDeque<EdgeKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EdgeKey {
    key: String,
    ends: Timestamp,
}

/// The relation of a notification to those that were handed over before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relation {
    /// The next one, or the first.
    Next,
    /// It was handed over before.
    Repeat,
    /// It begins before the last `until`: some of it may have been handed over.
    Overlap,
    /// It begins later than the last `until`, so that notifications between them are missing.
    Gap { since: String },
}

/// The parts of a notification that decide on its [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub kind: ChannelKind,
    pub from: Option<String>,
    pub until: Option<String>,
    pub up: Option<String>,
    pub digest: String,
}

impl Memory {
    /// Returns the memory of a topic of which nothing was handed over.
    pub fn new(kind: Option<ChannelKind>, up: Option<&str>) -> Memory {
        Memory {
            kind,
            up: up.map(str::to_owned),
            ..Memory::default()
        }
    }

    /// Returns the relation of a notification to those before it (Change Notification 1.0.1 section 3: intervals are
    /// consecutive and do not overlap).
    pub fn relation(&self, new: &Identity) -> Relation {
        if self.digests.contains(&new.digest) {
            return Relation::Repeat;
        }
        let instant = |text: &Option<String>| Some(time_span(text.as_ref()?)?.0);
        let Some(known) = self.known_until() else {
            return Relation::Next;
        };
        let Some((last, _)) = time_span(known) else {
            return Relation::Next;
        };
        // The interval of a framework notification ends at a time of the Source's own, and may be left out.
        let is_change = new.kind == ChannelKind::Change;
        if is_change && self.until.is_some() && instant(&new.until) == Some(last) {
            return Relation::Repeat;
        }
        match instant(&new.from) {
            Some(from) if from > last => Relation::Gap {
                since: known.to_owned(),
            },
            Some(from) if from < last && self.until.is_some() => Relation::Overlap,
            Some(_) | None => Relation::Next,
        }
    }

    /// Returns the time up to which nothing is missed: the last `until`, or the first subscription.
    pub fn known_until(&self) -> Option<&str> {
        self.until.as_deref().or(self.since.as_deref())
    }

    /// Returns the memory after a notification with these changes was handed over.
    pub fn after(&self, new: &Identity, changes: &[ReceivedChange]) -> Memory {
        let mut memory = self.clone();
        memory.kind = Some(new.kind);
        memory.up = new.up.clone().or(memory.up);
        memory.digests.push_back(new.digest.clone());
        while memory.digests.len() > DIGESTS {
            memory.digests.pop_front();
        }
        memory.advance(new.until.as_deref(), changes);
        memory
    }

    /// Returns the memory after missed changes up to `until` were handed over.
    pub fn after_missed(&self, until: &str, changes: &[ReceivedChange]) -> Memory {
        let mut memory = self.clone();
        memory.advance(Some(until), changes);
        memory
    }

    /// Returns true if a listed change is later than what was handed over. One without a time is: nothing proves that it
    /// was.
    pub fn is_missed(&self, change: &ReceivedChange, effective: Option<Timestamp>) -> bool {
        let Some((last, _)) = self.known_until().and_then(time_span) else {
            return true;
        };
        let span = change.datetime.as_deref().and_then(time_span);
        match span {
            Some((_, end)) if end <= last => false,
            Some(_) => {
                let key = key(change);
                !self.edge.iter().any(|edge| edge.key == key)
            }
            None => effective.is_none_or(|effective| effective > last),
        }
    }

    /// Returns true if a notification reaches beyond the last `until`: one that overlaps is then the content of a topic
    /// that has the notifications before it too, and not one of these that comes late.
    pub fn is_exceeded_by(&self, new: &Identity) -> bool {
        let instant = |text: Option<&str>| Some(time_span(text?)?.0);
        instant(new.until.as_deref()) > instant(self.until.as_deref())
    }

    /// Returns true if a change of a notification that overlaps has a time, up to which everything was handed over.
    pub fn has_had(&self, change: &ReceivedChange) -> bool {
        change.datetime.is_some() && !self.is_missed(change, None)
    }

    /// Moves `until` forward, never back.
    fn advance(&mut self, until: Option<&str>, changes: &[ReceivedChange]) {
        let start = |text: &str| Some(time_span(text)?.0);
        let last = self.until.as_deref().and_then(start);
        if let Some(new) = until.filter(|new| start(new).is_some_and(|new| Some(new) > last)) {
            self.until = Some(new.to_owned());
        }
        let Some(last) = self.until.as_deref().and_then(start) else {
            return;
        };
        self.edge.extend(changes.iter().filter_map(|change| {
            let (_, ends) = time_span(change.datetime.as_deref()?)?;
            let key = key(change);
            Some(EdgeKey { key, ends })
        }));
        self.edge.retain(|edge| edge.ends > last);
        while self.edge.len() > EDGE_KEYS {
            self.edge.pop_front();
        }
    }
}

/// The keys of changes handed over since the start, to leave out what overlapping notifications repeat.
#[derive(Debug, Default)]
pub struct Heard {
    keys: HashSet<String>,
    order: VecDeque<String>,
}

impl Heard {
    /// Keys kept at most.
    const MAX: usize = 100_000;

    pub fn add(&mut self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            if self.keys.insert(key.clone()) {
                self.order.push_back(key);
            }
        }
        while self.order.len() > Heard::MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }

    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }
}

/// Returns the digest of a notification as received.
pub fn digest(body: &[u8]) -> String {
    shortened(blake3::hash(body))
}

/// Returns the key of a change: its resource, kind and time, or without a time the version of the resource.
pub fn key(change: &ReceivedChange) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: Option<&str>| {
        hasher.update(text.unwrap_or_default().as_bytes());
        hasher.update(&[0]);
    };
    part(Some(&change.loc));
    part(Some(change.change.as_str()));
    match change.datetime.as_deref() {
        Some(datetime) => {
            let instant = time_span(datetime).map(|(start, _)| start.to_string());
            part(Some(instant.as_deref().unwrap_or(datetime)));
        }
        None => {
            part(change.lastmod.as_deref());
            part(change.hash.as_deref());
            part(change.length.as_deref());
        }
    }
    shortened(hasher.finalize())
}

fn shortened(hash: blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{ChannelKind, Heard, Identity, Memory, Relation, digest, key};
    use crate::resourcesync::payload::ChangeKind;
    use crate::resourcesync::receive::ReceivedChange;

    fn change(loc: &str, datetime: Option<&str>) -> ReceivedChange {
        ReceivedChange {
            loc: loc.to_owned(),
            change: ChangeKind::Updated,
            datetime: datetime.map(str::to_owned),
            lastmod: None,
            hash: None,
            length: None,
            media_type: None,
            encoding: None,
            links: Vec::new(),
        }
    }

    fn identity(from: &str, until: &str, body: &str) -> Identity {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Identity {
            kind: ChannelKind::Change,
            from: text(from),
            until: text(until),
            up: None,
            digest: digest(body.as_bytes()),
        }
    }

    /// A memory of one notification, up to 10:00:00.
    fn memory() -> Memory {
        let first = identity("2026-11-20T09:00:00Z", "2026-11-20T10:00:00Z", "first");
        assert_eq!(Memory::default().relation(&first), Relation::Next);
        Memory::default().after(&first, &[change("a", Some("2026-11-20T10:00:00Z"))])
    }

    fn gap() -> Relation {
        Relation::Gap {
            since: "2026-11-20T10:00:00Z".to_owned(),
        }
    }

    #[rstest]
    #[case::the_next("2026-11-20T10:00:00Z", "2026-11-20T10:05:00Z", Relation::Next)]
    #[case::as_an_equal_time("2026-11-20T11:00:00+01:00", "2026-11-20T10:05:00Z", Relation::Next)]
    #[case::later("2026-11-20T10:00:00.000001Z", "2026-11-20T10:05:00Z", gap())]
    #[case::overlapping("2026-11-20T09:00:00Z", "2026-11-20T10:05:00Z", Relation::Overlap)]
    #[case::before("2026-11-20T08:00:00Z", "2026-11-20T09:00:00Z", Relation::Overlap)]
    #[case::the_same_end("2026-11-20T09:30:00Z", "2026-11-20T10:00:00Z", Relation::Repeat)]
    #[case::without_times("", "", Relation::Next)]
    #[case::no_time("soon", "later", Relation::Next)]
    fn an_interval_has_a_relation_to_the_last(
        #[case] from: &str,
        #[case] until: &str,
        #[case] want: Relation,
    ) {
        assert_eq!(memory().relation(&identity(from, until, "new")), want);
    }

    #[test]
    fn the_same_bytes_are_a_repeat_whatever_came_since() {
        let first = identity("", "", "first");
        let mut memory = memory();
        for number in 0..31 {
            assert_eq!(memory.relation(&first), Relation::Repeat, "{number}");
            memory = memory.after(&identity("", "", &number.to_string()), &[]);
        }
        assert_eq!(memory.relation(&first), Relation::Repeat);
        memory = memory.after(&identity("", "", "last"), &[]);
        assert_eq!(memory.relation(&first), Relation::Next);
    }

    #[test]
    fn the_first_subscription_counts_until_there_is_a_notification() {
        let mut memory = Memory::new(None, None);
        memory.since = Some("2026-11-20T10:00:00Z".to_owned());
        let before = identity("2026-11-20T08:00:00Z", "2026-11-20T09:00:00Z", "before");
        assert_eq!(memory.relation(&before), Relation::Next);
        let later = identity("2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z", "later");
        assert_eq!(memory.relation(&later), gap());
        let at = |time| change("b", Some(time));
        assert!(!memory.is_missed(&at("2026-11-20T09:00:00Z"), None));
        assert!(memory.is_missed(&at("2026-11-20T10:00:00Z"), None));
        // The Source's time may be behind ours.
        let memory = memory.after(&before, &[]);
        assert_eq!(memory.until.as_deref(), Some("2026-11-20T09:00:00Z"));
    }

    #[test]
    fn an_earlier_notification_does_not_move_the_last_until_back() {
        let late = identity("2026-11-20T08:00:00Z", "2026-11-20T09:00:00Z", "late");
        let after = memory().after(&late, &[]);
        assert_eq!(after.until.as_deref(), Some("2026-11-20T10:00:00Z"));
    }

    #[rstest]
    #[case::of_that_second_and_handed_over("a", "2026-11-20T10:00:00Z", false)]
    #[case::of_that_second_and_new("b", "2026-11-20T10:00:00Z", true)]
    #[case::a_second_before("b", "2026-11-20T09:59:59Z", false)]
    #[case::later("a", "2026-11-20T10:00:01Z", true)]
    #[case::on_that_day("b", "2026-11-20", true)]
    #[case::on_the_day_before("b", "2026-11-19", false)]
    fn a_listed_change_is_missed_if_it_is_later(
        #[case] loc: &str,
        #[case] datetime: &str,
        #[case] want: bool,
    ) {
        assert_eq!(memory().is_missed(&change(loc, Some(datetime)), None), want);
    }

    #[test]
    fn a_change_without_a_time_counts_as_that_before_it() {
        let memory = memory();
        let undated = change("b", None);
        assert!(memory.is_missed(&undated, None));
        let at = |time: &str| Some(time.parse().unwrap());
        assert!(memory.is_missed(&undated, at("2026-11-20T10:00:01Z")));
        assert!(!memory.is_missed(&undated, at("2026-11-20T09:00:00Z")));
        assert!(Memory::default().is_missed(&change("a", Some("2026-11-20")), None));
    }

    #[test]
    fn a_key_is_that_of_the_instant_or_of_the_version() {
        let at = |datetime| key(&change("a", Some(datetime)));
        assert_eq!(at("2026-11-20T10:00:00Z"), at("2026-11-20T11:00:00+01:00"));
        assert_ne!(at("2026-11-20T10:00:00Z"), at("2026-11-20T10:00:01Z"));
        let mut versions = change("a", None);
        let without = key(&versions);
        versions.lastmod = Some("2026".to_owned());
        assert_ne!(without, key(&versions));
        assert_ne!(without, key(&change("b", None)));
    }

    #[test]
    fn as_many_keys_are_kept_as_there_is_room() {
        let mut heard = Heard::default();
        heard.add((0..=Heard::MAX).map(|number| number.to_string()));
        assert!(!heard.contains("0"));
        assert!(heard.contains("1"));
    }

    #[test]
    fn a_memory_is_saved_and_loaded() {
        let text = serde_json::to_string(&memory()).unwrap();
        assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), memory());
        assert_eq!(
            serde_json::from_str::<Memory>("{}").unwrap(),
            Memory::default()
        );
    }
}
