//! The documents of one source, with their links and the lists that name them.

pub mod census;
mod relations;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::{Advertisement, Form};
use resourcesync::uri::{Uri, UriMap};

use crate::announce::catalog::census::Census;
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::small_set::SmallSet;
use crate::announce::state::{Presence, Record, Told};

/// Every document of a source as last seen complete, deleted ones included until every hub was told.
///
/// `listed_by`, `linked_by` and `census` are derived from `structures` and `records`, and change only with them.
#[derive(Debug, Default)]
pub struct Catalog {
    records: UriMap<Arc<Record>>,
    structures: UriMap<Structure>,
    /// Structural documents not yet read in this run; their stored relations hold.
    unread: BTreeSet<Uri>,
    listed_by: UriMap<SmallSet<Uri>>,
    linked_by: UriMap<BTreeSet<Uri>>,
    /// Capability Lists that the configuration names (R7).
    configured_sets: BTreeSet<Uri>,
    census: Census,
    /// The Source Descriptions among the records; derived.
    descriptions: BTreeSet<Uri>,
}

/// The entries of a document that gives the framework its structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    pub capability: Capability,
    pub form: Form,
    /// Sorted, each once, aliases resolved.
    pub members: Vec<Uri>,
    pub channels: Vec<Advertisement>,
}

impl Catalog {
    pub fn new(configured_sets: BTreeSet<Uri>) -> Catalog {
        Catalog {
            configured_sets,
            ..Catalog::default()
        }
    }

    /// Returns the same URI, as the catalog has it: one that is kept many times takes memory once.
    pub fn interned(&self, uri: Uri) -> Uri {
        let known = self.records.get_key_value(&uri).map(|(known, _)| known);
        let known = known.or_else(|| Some(self.listed_by.get_key_value(&uri)?.0));
        let known = known.or_else(|| Some(self.linked_by.get_key_value(&uri)?.0));
        match known {
            Some(known) => known.clone(),
            None => uri,
        }
    }

    /// Puts a stored record back. If it is structural, its relations stand until it is read.
    pub fn restore(&mut self, uri: Uri, record: Arc<Record>) {
        if record.is_structural() && !record.is_gone() {
            self.unread.insert(uri.clone());
        }
        self.insert(uri, record);
    }

    pub fn get(&self, uri: &Uri) -> Option<&Record> {
        self.records.get(uri).map(Arc::as_ref)
    }

    /// Returns the record of [`Catalog::get`], to be kept.
    pub fn shared(&self, uri: &Uri) -> Option<Arc<Record>> {
        self.records.get(uri).cloned()
    }

    /// Returns the version of a document that counts as told once it is announced; nothing for one that was deleted.
    pub fn seen(&self, uri: &Uri) -> Option<Told> {
        let record = self.get(uri).filter(|record| !record.is_gone())?;
        Some(record.version.into())
    }

    /// Returns true if a document was seen, and is missing or deleted.
    pub fn is_away(&self, uri: &Uri) -> bool {
        let record = self.get(uri);
        record.is_some_and(|record| record.is_gone() || record.is_missing())
    }

    /// Returns true if `uri` is a document in the tree, or missing within the grace.
    pub fn is_there(&self, uri: &Uri) -> bool {
        self.records
            .get(uri)
            .is_some_and(|record| !record.is_gone())
    }

    /// Returns a record for changes that leave `path`, `presence`, `up`, `named_index` and the version's kind as they are.
    pub fn get_mut(&mut self, uri: &Uri) -> Option<&mut Record> {
        self.records.get_mut(uri).map(Arc::make_mut)
    }

    /// Notes that a look found a document as it was.
    pub fn meet(&mut self, uri: &Uri, path: DocumentPath, stat: Stat, looked: Timestamp) {
        if let Some(record) = self.records.get_mut(uri).map(Arc::make_mut) {
            self.census.remove(uri, record);
            (record.path, record.stat, record.looked) = (path, stat, looked);
            record.presence = Presence::Present;
            self.census.add(uri, record);
        }
    }

    /// Changes whether a document is there.
    pub fn set_presence(&mut self, uri: &Uri, presence: Presence) {
        if let Some(record) = self.records.get_mut(uri).map(Arc::make_mut) {
            self.census.remove(uri, record);
            record.presence = presence;
            self.census.add(uri, record);
        }
    }

    /// Returns the numbers of documents that are there and that are missing.
    pub fn census(&self) -> &Census {
        &self.census
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Uri, &Record)> {
        self.records.iter().map(|(uri, record)| (uri, &**record))
    }

    pub fn structure(&self, uri: &Uri) -> Option<&Structure> {
        self.structures.get(uri)
    }

    pub fn structures(&self) -> impl Iterator<Item = (&Uri, &Structure)> {
        self.structures.iter()
    }

    pub fn is_unread(&self, uri: &Uri) -> bool {
        self.unread.contains(uri)
    }

    /// Returns true if any structural document was not read yet since the start.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns the Source Descriptions, deleted ones included until every hub was told.
    pub fn descriptions(&self) -> &BTreeSet<Uri> {
        &self.descriptions
    }

    /// Returns the documents of a set, as far as they follow from what was read.
    pub fn members(&self, set: &Uri) -> BTreeSet<Uri> {
        let mut members = BTreeSet::from([set.clone()]);
        members.extend(self.dependents(set));
        let is_index = |uri: &&Uri| {
            let record = self.records.get(*uri);
            record.is_some_and(|record| record.version.form == Form::Index)
        };
        let indexes: Vec<Uri> = members.iter().filter(is_index).cloned().collect();
        for index in indexes {
            members.extend(self.dependents(&index));
        }
        members.retain(|uri| self.is_of_set(uri, set));
        members
    }

    /// R7: returns true if a document is of this set, and maybe of others.
    pub fn is_of_set(&self, uri: &Uri, set: &Uri) -> bool {
        let record = self.records.get(uri);
        record.is_some_and(|record| record.relations.sets.contains(set))
    }

    /// Returns true if a document of the tree, missing ones included, lists `uri`: a Capability List, an index or
    /// an archive (R17).
    pub fn is_listed(&self, uri: &Uri) -> bool {
        self.listers(uri)
            .any(|(_, structure)| structure.capability != Capability::SourceDescription)
    }

    /// Returns the documents that list `uri`, in order of their URIs.
    pub fn listers(&self, uri: &Uri) -> impl Iterator<Item = (&Uri, &Structure)> {
        self.listed_by
            .get(uri)
            .into_iter()
            .flatten()
            .filter_map(|lister| Some((lister, self.structures.get(lister)?)))
    }

    /// R7: returns true for a set, which exists when its Capability List is in the tree, or when the configuration
    /// names that list.
    pub fn is_set(&self, uri: &Uri) -> bool {
        self.configured_sets.contains(uri) || self.has_capability_list(uri)
    }

    /// Returns true if `uri` is a Capability List in the tree, or missing within the grace.
    pub fn has_capability_list(&self, uri: &Uri) -> bool {
        self.records
            .get(uri)
            .is_some_and(|record| record.is_capability_list() && !record.is_gone())
    }

    /// Returns all sets, in order.
    pub fn sets(&self) -> BTreeSet<Uri> {
        let mut sets = self.configured_sets.clone();
        sets.extend(
            self.records
                .iter()
                .filter(|(_, record)| record.is_capability_list() && !record.is_gone())
                .map(|(uri, _)| uri.clone()),
        );
        sets
    }

    /// Returns the Source Description above a set: the one that lists it, else the one that its list names.
    pub fn source_description(&self, set: &Uri) -> Option<Uri> {
        self.listers(set)
            .find(|(_, structure)| {
                structure.capability == Capability::SourceDescription
                    && structure.form == Form::List
            })
            .map(|(uri, _)| uri.clone())
            .or_else(|| self.records.get(set)?.up.clone())
    }

    /// Puts a new or changed record in, with its entries if it is structural, and returns every document
    /// whose relations may have changed with it.
    pub fn put(
        &mut self,
        uri: &Uri,
        record: Record,
        mut structure: Option<Structure>,
    ) -> BTreeSet<Uri> {
        let record = Arc::new(record);
        for member in structure
            .iter_mut()
            .flat_map(|structure| &mut structure.members)
        {
            *member = self.interned(member.clone());
        }
        let mut touched = BTreeSet::from([uri.clone()]);
        let kind = |record: &Record| {
            (
                record.version.capability,
                record.version.form,
                record.is_gone(),
            )
        };
        let is_same_kind = self
            .records
            .get(uri)
            .is_some_and(|before| kind(before) == kind(&record));
        let was_unread = self.unread.remove(uri);
        if !is_same_kind || was_unread {
            touched.extend(self.dependents(uri));
        }
        self.insert(uri.clone(), record);
        touched.extend(self.set_structure(uri, structure));
        if !is_same_kind || was_unread {
            touched.extend(self.dependents(uri));
        }
        touched
    }

    /// Forgets a record altogether.
    pub fn remove(&mut self, uri: &Uri) {
        if let Some(record) = self.records.remove(uri) {
            self.census.remove(uri, &record);
            self.unlink(uri, &record);
        }
        self.unread.remove(uri);
        self.descriptions.remove(uri);
        self.set_structure(uri, None);
    }

    /// Returns the documents that `uri` lists, and those that link to it.
    fn dependents(&self, uri: &Uri) -> BTreeSet<Uri> {
        let members = self
            .structures
            .get(uri)
            .map_or(&[][..], |structure| &structure.members);
        let mut dependents: BTreeSet<Uri> = members.iter().cloned().collect();
        dependents.extend(self.linked_by.get(uri).into_iter().flatten().cloned());
        dependents
    }

    fn insert(&mut self, uri: Uri, record: Arc<Record>) {
        match record.is_source_description() {
            true => self.descriptions.insert(uri.clone()),
            false => self.descriptions.remove(&uri),
        };
        let links = |record: &Record| (record.up.clone(), record.named_index.clone());
        if let Some(before) = self.records.get(&uri) {
            self.census.remove(&uri, before);
        }
        self.census.add(&uri, &record);
        let before = self.get(&uri).map(links);
        if before.as_ref() == Some(&links(&record)) {
            self.records.insert(uri, record);
            return;
        }
        if let Some(before) = self.records.remove(&uri) {
            self.unlink(&uri, &before);
        }
        for target in record.up.iter().chain(&record.named_index) {
            self.linked_by
                .entry(target.clone())
                .or_default()
                .insert(uri.clone());
        }
        self.records.insert(uri, record);
    }

    fn unlink(&mut self, uri: &Uri, record: &Record) {
        for target in record.up.iter().chain(&record.named_index) {
            remove_from(&mut self.linked_by, target, uri);
        }
    }

    /// Returns the documents that only one of the old and the new entries name.
    fn set_structure(&mut self, uri: &Uri, structure: Option<Structure>) -> BTreeSet<Uri> {
        let before = self.structures.remove(uri);
        let members = |structure: &Option<Structure>| -> BTreeSet<Uri> {
            structure
                .iter()
                .flat_map(|structure| structure.members.iter().cloned())
                .collect()
        };
        let (old, new) = (members(&before), members(&structure));
        for member in old.difference(&new) {
            if let Some(listers) = self.listed_by.get_mut(member) {
                listers.remove(uri);
                if listers.is_empty() {
                    self.listed_by.remove(member);
                }
            }
        }
        for member in new.difference(&old) {
            self.listed_by
                .entry(member.clone())
                .or_default()
                .insert(uri.clone());
        }
        if let Some(structure) = structure {
            self.structures.insert(uri.clone(), structure);
        }
        old.symmetric_difference(&new).cloned().collect()
    }
}

fn remove_from(map: &mut UriMap<BTreeSet<Uri>>, key: &Uri, value: &Uri) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}
