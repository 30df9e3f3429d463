//! The relations of documents: indexes, sets of resources, archives (R5, R7).

use std::collections::BTreeSet;

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::small_set::SmallSet;
use crate::announce::state::{Record, Relations};

impl Catalog {
    /// Resolves the relations of `touched` and of all that follow from them, and returns the documents
    /// whose relations changed.
    pub fn resolve(&mut self, touched: &BTreeSet<Uri>) -> BTreeSet<Uri> {
        let mut changed = Vec::new();
        let mut next = self.resolve_once(touched, &mut changed);
        // Index links may form a circle; a document's relations settle after a few rounds or never.
        for _ in 0..3 {
            next = self.resolve_once(&next, &mut changed);
        }
        changed.into_iter().collect()
    }

    /// Resolves the relations of `touched`, and returns the documents that depend on those that changed.
    fn resolve_once(&mut self, touched: &BTreeSet<Uri>, changed: &mut Vec<Uri>) -> BTreeSet<Uri> {
        let mut next = BTreeSet::new();
        for uri in touched {
            let Some(record) = self.records.get(uri) else {
                continue;
            };
            let relations = self.relations(uri, record);
            if relations == record.relations {
                continue;
            }
            let is_index = record.version.form == Form::Index;
            if let Some(record) = self.get_mut(uri) {
                record.relations = relations;
            }
            changed.push(uri.clone());
            if is_index {
                next.extend(self.dependents(uri));
            }
        }
        next
    }

    fn relations(&self, uri: &Uri, record: &Record) -> Relations {
        // A deleted document's relations say where its deletion is told.
        if record.is_gone() {
            return record.relations.clone();
        }
        let index = self.index_of(uri, record);
        let sets = self.sets_of(uri, record, index.as_ref());
        Relations {
            archived: self.is_archived(uri, record),
            index,
            sets,
        }
    }

    // R5.
    fn index_of(&self, uri: &Uri, record: &Record) -> Option<Uri> {
        if record.version.form == Form::Index {
            return None;
        }
        let mut listing = self
            .listers(uri)
            .filter(|(lister, structure)| {
                *lister != uri
                    && structure.form == Form::Index
                    && (!structure.capability.is_archive()
                        || record.version.capability.is_archive())
            })
            .map(|(lister, _)| lister)
            .peekable();
        if listing.peek().is_some() {
            let listing: Vec<&Uri> = listing.collect();
            let named = record.named_index.as_ref();
            return listing
                .iter()
                .find(|lister| Some(**lister) == named)
                .or(listing.first())
                .map(|lister| (*lister).clone());
        }
        if let Some(before) = &record.relations.index
            && self.unread.contains(before)
        {
            return Some(before.clone());
        }
        let named = record.named_index.as_ref()?;
        match self.records.get(named) {
            Some(target) if !target.is_gone() && target.version.form != Form::Index => None,
            _ => Some(named.clone()),
        }
    }

    /// R5: returns the index that is announced with a document. One that is missing still counts for the document's sets
    /// (R15), but is announced only if the document names it.
    pub fn announced_index(&self, record: &Record) -> Option<Uri> {
        let index = record.relations.index.as_ref();
        let index = index
            .filter(|index| record.named_index.as_ref() == Some(*index) || !self.is_away(index));
        index.cloned()
    }

    // R7.
    fn sets_of(&self, uri: &Uri, record: &Record, index: Option<&Uri>) -> SmallSet<Uri> {
        if record.is_capability_list() {
            return SmallSet::from_iter([uri.clone()]);
        }
        if record.version.capability == Capability::SourceDescription {
            return SmallSet::default();
        }
        let mut sets: SmallSet<Uri> = self
            .listers(uri)
            .filter(|(_, structure)| structure.capability == Capability::CapabilityList)
            .map(|(lister, _)| lister)
            .chain(&record.up)
            .filter(|set| self.is_set(set))
            .cloned()
            .collect();
        if let Some(index) = index.and_then(|index| self.records.get(index)) {
            sets.extend(
                index
                    .relations
                    .sets
                    .iter()
                    .filter(|set| self.is_set(set))
                    .cloned(),
            );
        }
        let unread_index = index.is_some_and(|index| self.unread.contains(index));
        sets.extend(
            record
                .relations
                .sets
                .iter()
                .filter(|set| self.unread.contains(*set) || (unread_index && self.is_set(set)))
                .cloned(),
        );
        sets
    }

    // R7: listed by an archive, and by no Capability List or other index.
    fn is_archived(&self, uri: &Uri, record: &Record) -> bool {
        if record.version.capability.is_archive() {
            return false;
        }
        let mut by_archive = record.relations.archived
            && self
                .unread
                .iter()
                .filter_map(|unread| self.records.get(unread))
                .any(|unread| unread.version.capability.is_archive());
        for (_, structure) in self.listers(uri) {
            let is_index = structure.form == Form::Index;
            match structure.capability {
                capability if capability.is_archive() => by_archive = true,
                Capability::CapabilityList => return false,
                _ if is_index => return false,
                _ => {}
            }
        }
        by_archive
    }
}
