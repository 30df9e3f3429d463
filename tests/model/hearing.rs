//! Notifications that the hubs receive, checked against the permitted ones.

use std::time::Duration;

use jiff::Timestamp;
use resourcesync::payload::Entry;

use crate::documents::{
    DESCRIPTION, DOCUMENTS, capability_list_of, is_capability_list, is_component, is_index, set_of,
};
use crate::model::{self, Model, Said};
use crate::running::flights;
use crate::world::{HUB, Heard, OTHER_HUB, short};

/// R17, as the made-up operator has it.
const HOLD: Duration = Duration::from_secs(60);

impl Model {
    /// Takes in what the hubs got.
    pub fn listen(&mut self) {
        for hub in [HUB, OTHER_HUB] {
            for heard in self.world.attempts_at(self.url(hub)) {
                let dropped = self.dropped.get(&(hub, heard.topic.clone()));
                assert!(dropped.is_none_or(|last| heard.seq > *last), "{heard:?}");
                let key = (heard.topic.clone(), heard.seq);
                if let Some(until) = heard.payload.until {
                    let untils = self.untils.entry(heard.topic.clone()).or_default();
                    let is_past = until <= heard.at + self.ahead;
                    let seq = *untils.entry(until).or_insert(heard.seq);
                    assert!(seq == heard.seq && is_past, "{heard:?}");
                }
                if self.cut.contains_key(&key) {
                    continue;
                }
                assert!(
                    heard
                        .payload
                        .entries
                        .is_sorted_by_key(|entry| entry.datetime)
                );
                let entries = heard.payload.entries.iter();
                let said = entries.map(|entry| self.cut(&heard.topic, entry, heard.at));
                let said = said.collect();
                self.cut.insert(key, said);
            }
        }
        // What is in flight may be submitted later, of documents that changed meanwhile.
        for flight in flights(&self.world) {
            self.note_cut(&flight);
        }
        for hub in [HUB, OTHER_HUB] {
            for heard in self.world.heard_by(self.url(hub)) {
                let key = (hub, heard.topic.clone(), heard.seq);
                if let Some(last) = self.accepted.insert(key, self.ops) {
                    assert!(last <= self.last_crash, "accepted twice: {heard:?}");
                    let span = (hub, heard.topic.clone());
                    self.spans.insert(span, heard.payload.until);
                    continue;
                }
                self.check_span(hub, &heard);
                let said = self.cut[&(heard.topic.clone(), heard.seq)].clone();
                for said in said {
                    self.hear(hub, &heard.topic, said);
                }
            }
        }
    }

    /// R20: a notification that says where it begins goes on from what the hub has, with all that came later.
    fn check_span(&mut self, hub: &'static str, heard: &Heard) {
        let Heard { topic, payload, .. } = heard;
        let before = self.spans.insert((hub, topic.clone()), payload.until);
        let Some(from) = payload.from else {
            return;
        };
        assert_eq!(before, Some(Some(from)), "{hub}: {heard:?}");
        assert!(payload.until.is_some_and(|until| until > from), "{heard:?}");
        let mut times = payload.entries.iter().filter_map(|entry| entry.datetime);
        assert!(times.all(|time| time > from), "{heard:?}");
    }

    /// No notification contradicts the tree at the time it is cut.
    pub fn cut(&self, topic: &str, entry: &Entry, at: Timestamp) -> Said {
        let (change, capability) = (entry.change.as_str(), entry.capability.as_str());
        let name = &*short(entry.uri.as_str());
        let mut said = Said {
            change: change.to_owned(),
            name: name.to_owned(),
            told: None,
            others: Vec::new(),
        };
        let set = set_of(name);
        assert!(
            set.is_none_or(|set| model::topic(set) == topic),
            "{topic}: {said:?}"
        );
        assert!(!is_index(name), "{said:?}");
        if change == "deleted" {
            let is_announced = is_capability_list(name) || name == DESCRIPTION;
            let may_go = self.settings.all_deletions || is_announced;
            assert!(may_go, "{said:?}");
            // R14: what changed its capability was an old document that ended.
            let seen = self.read.get(name);
            if seen.is_none_or(|seen| seen.capability == capability) {
                assert!(!self.there.contains(name), "it is there: {said:?}");
                let away = at.duration_since(self.left[name]);
                assert!(away.as_secs() >= 300, "it went {away} ago: {said:?}");
            }
            return said;
        }
        let seen = self.read.get(name);
        let seen = seen.unwrap_or_else(|| panic!("it was never read: {said:?}"));
        assert_eq!(seen.capability, capability, "{said:?}");
        if change == "created" && capability == "resourcelist" {
            self.check_hold(topic, name, at);
        }
        said.told = Some((seen.clone(), self.ops));
        // R18: one component speaks for the others.
        if !self.settings.all_components && is_component(name) {
            let others = DOCUMENTS.into_iter().filter(|other| {
                *other != name
                    && self.there.contains(other)
                    && is_component(other)
                    && set_of(other) == set_of(name)
            });
            let seen = others.filter_map(|other| Some((other, self.read.get(other)?.clone())));
            said.others = seen
                .map(|(other, seen)| (other, (seen, self.ops)))
                .collect();
        }
        said
    }

    /// Nothing is said that the hub knows, and in the right words.
    fn hear(&mut self, hub: &'static str, topic: &str, said: Said) {
        let Said {
            change,
            name,
            told,
            others,
        } = said;
        let (change, name) = (&*change, &*name);
        let key = (hub, topic.to_owned(), name.to_owned());
        let before = self.told.get(&key);
        let is_of_topic = |set: &str| model::topic(set) == topic;
        let disturbed = self.disturbed.get(name).copied();
        let is_unanswered = self.unanswered.remove(&key).is_some();
        let is_open = self.uncertain.remove(&key)
            || is_unanswered
            || (hub == OTHER_HUB && self.unsure.iter().any(|set| is_of_topic(set)))
            || (!self.settings.all_components && is_component(name))
            || before.is_some_and(|(_, at)| disturbed.is_some_and(|disturbed| disturbed >= *at));
        let is_right = match (&before, &told) {
            (None, Some(_)) => change == "created",
            (None, None) => false,
            (Some(_), None) => true,
            (Some((before, _)), Some((seen, _))) if before.capability == seen.capability => {
                let is_dump = seen.capability == "resourcedump";
                before != seen && (change == "created") == is_dump
            }
            (Some(_), Some(_)) => change == "created",
        };
        assert!(
            is_right || is_open,
            "{hub} {topic}: {change} {name} {told:?}, after {before:?}"
        );
        for (other, seen) in others {
            let key = (hub, topic.to_owned(), other.to_owned());
            let known = self.told.get(&key);
            let disturbed = self.disturbed.get(other).copied();
            let is_disturbed = |at: usize| disturbed.is_some_and(|disturbed| disturbed >= at);
            // It speaks for those that changed in the same way; what changed sets may have or not.
            let is_alike = known.is_some() == (change == "updated");
            if is_alike && !known.is_some_and(|(_, at)| is_disturbed(*at)) {
                self.uncertain.remove(&key);
                self.told.insert(key, seen);
            } else if known.is_none_or(|(known, _)| *known != seen.0) {
                self.uncertain.insert(key);
            }
        }
        match told {
            Some(told) => self.told.insert(key, told),
            None => self.told.remove(&key),
        };
    }

    /// R17: a document that the Capability List did not name since it came waits.
    fn check_hold(&self, topic: &str, name: &str, at: Timestamp) {
        let Some(set) = set_of(name).filter(|_| name.ends_with("/resourcelist.xml")) else {
            return;
        };
        let is_known = [HUB, OTHER_HUB].iter().any(|hub| {
            let key = (*hub, topic.to_owned(), name.to_owned());
            self.told.contains_key(&key) || self.unanswered.contains_key(&key)
        });
        let (Some(came), Some(unnamed)) = (self.came.get(name), self.unnamed.get(set)) else {
            return;
        };
        let list = self.read.get(&*capability_list_of(set));
        if !is_known && unnamed <= came && list.is_some_and(|list| list.forgets) {
            let waited = at.duration_since(*came);
            let hold = waited.as_secs() >= HOLD.as_secs() as i64;
            assert!(hold, "{name} waited for {waited} only");
        }
    }
}
