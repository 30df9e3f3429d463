//! A daemon's view of the tree, and its consequences for the sets.

use jiff::Timestamp;

use crate::documents::{
    Content, DESCRIPTION, DOCUMENTS, SETS, SHARED, capability_list_of, doc, is_capability_list,
    is_index, set_of,
};
use crate::model::{File, Model, topic};
use crate::world::{HUB, OTHER_HUB};

impl Model {
    /// The daemon sees the tree as it is, after it saw nothing for a while.
    pub fn see_all(&mut self) {
        let before = self.read.get(DESCRIPTION).cloned();
        for name in DOCUMENTS {
            if let Some(File::Good(content)) = self.files.get(name) {
                self.read.insert(name, content.clone());
                self.there.insert(name);
            }
        }
        let files = &self.files;
        self.there.retain(|name| files.contains_key(name));
        self.describe(before);
        for set in SETS {
            self.open(set);
        }
        // What came, went or changed sets meanwhile does so now.
        if let Some(since) = self.blind_since.take() {
            for disturbed in self.disturbed.values_mut().filter(|at| **at >= since) {
                *disturbed = self.ops;
            }
        }
    }

    /// Takes note of what the Source Description was, if it is that no more.
    pub fn describe(&mut self, before: Option<Content>) {
        let now = self.world.now;
        let age = |changed: Timestamp| now.duration_since(changed).unsigned_abs();
        self.described
            .take_if(|(_, at)| age(*at) > self.settings.quiet);
        if self.read.get(DESCRIPTION) == before.as_ref() {
            return;
        }
        let before = self.described.take().map_or(before, |(before, _)| before);
        self.described = Some((before, now));
    }

    /// A new channel starts from the Source Description as it was before a change that is not said yet.
    pub fn open(&mut self, set: &'static str) {
        let is_there = self.read.contains_key(&*capability_list_of(set));
        if !is_there || !self.opened.insert(set) {
            return;
        }
        let described = self.described.as_ref().map(|(before, _)| before.clone());
        let known = described.unwrap_or_else(|| self.read.get(DESCRIPTION).cloned());
        if let Some(description) = known {
            self.tell_all(set, DESCRIPTION, &description);
            if self.left.contains_key(DESCRIPTION) {
                // Whether it was believed to be gone by then, the model does not know.
                let keys = [HUB, OTHER_HUB].map(|hub| (hub, topic(set), DESCRIPTION.to_owned()));
                self.uncertain.extend(keys);
            }
        }
    }

    pub fn write(&mut self, name: &'static str, content: Content) {
        let is_new = !self.files.contains_key(name);
        if is_new || is_capability_list(name) || is_index(name) {
            self.disturb(name);
        }
        let before = self.read.get(name);
        if before.is_some_and(|before| before.capability != content.capability) {
            self.turned.insert(name);
        }
        self.files.insert(name, File::Good(content.clone()));
        if self.is_seeing() {
            let now = self.world.now;
            if !self.read.contains_key(name) {
                self.came.insert(name, now);
            }
            self.there.insert(name);
            if let Some(set) = set_of(name).filter(|_| is_capability_list(name)) {
                if content.forgets {
                    self.unnamed.entry(set).or_insert(now);
                } else {
                    self.unnamed.remove(set);
                }
            }
            let before = self.read.get(DESCRIPTION).cloned();
            self.read.insert(name, content.clone());
            self.describe(before);
            if let Some(set) = set_of(name).filter(|_| is_capability_list(name)) {
                self.open(set);
            }
        }
        self.world.write(name, doc(name, &content));
    }

    pub fn delete(&mut self, name: &'static str) {
        if self.files.remove(name).is_some() {
            self.disturb(name);
            if let Some(set) = set_of(name).filter(|_| is_capability_list(name)) {
                self.unnamed.remove(set);
            }
            // Nobody can know of a document that came and went while nothing ran.
            if self.there.contains(name) {
                self.left.insert(name, self.world.now);
            }
            if self.is_seeing() {
                self.there.remove(name);
            }
            self.world.delete(name);
        }
    }

    /// A document came or went, or changed what it lists: it and those that depend on it may change sets.
    pub fn disturb(&mut self, name: &'static str) {
        let is_structural = is_capability_list(name) || is_index(name);
        for other in DOCUMENTS {
            let depends = is_structural && (set_of(other) == set_of(name) || other == SHARED);
            let is_told_itself =
                other != name && (is_capability_list(other) || other == DESCRIPTION);
            if other == name || (depends && !is_told_itself) {
                self.disturbed.insert(other, self.ops);
            }
        }
    }
}
