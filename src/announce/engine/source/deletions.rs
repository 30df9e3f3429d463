//! Documents that are not there, until they count as deleted (R15).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::{Uri, UriMap};

use crate::announce::catalog::Catalog;
use crate::announce::catalog::census::{Census, MountCount, PresenceCount};
use crate::announce::engine::source::documents::Documents;
use crate::announce::engine::source::mounts::Mounts;
use crate::announce::engine::source::mounts::nested::tops_of;
use crate::announce::engine::source::sighting::Sighting;
use crate::announce::engine::step::Step;
use crate::announce::event::{Fact, Suspension};
use crate::announce::observation::MountId;
use crate::announce::plan::{MassDeletion, SourcePlan};
use crate::announce::state::{Presence, Record};
use crate::announce::time::later;

/// The wait for the answer to a look at a missing document, before another look.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The missing documents of one source, as far as this run saw them to be absent.
#[derive(Debug)]
pub struct Deletions {
    plan: Arc<SourcePlan>,
    absent: UriMap<Absence>,
    /// The end of each grace.
    graces: BTreeSet<(Timestamp, Uri)>,
    /// True while so much is missing that no deletion is believed.
    is_mass: bool,
    /// Documents that are missing with a file system that is not mounted: their deletions are suspended.
    away: AwayDocuments,
    /// Documents that looks of this step did not find, each with the document that was found at its path.
    vanished: BTreeMap<Uri, Option<Box<Sighting>>>,
}

/// The documents that are missing below directories whose file systems are away, accepted ones left out.
#[derive(Debug, Default)]
struct AwayDocuments {
    count: usize,
    directories: BTreeSet<String>,
    /// The version of the census that they were counted in.
    counted_in: Option<u64>,
}

/// A look that did not find a document at its path.
#[derive(Debug)]
pub struct Vanishing {
    pub at: Timestamp,
    pub found: FoundInstead,
}

/// The thing that lies at the path of a document which is not there.
#[derive(Debug)]
pub enum FoundInstead {
    Nothing,
    File,
    Document(Box<Sighting>),
}

/// A document that is absent from a tree that is there.
#[derive(Debug, Clone, Copy)]
struct Absence {
    /// Nothing while nobody can see that it is.
    since: Option<Timestamp>,
    /// True if something else lies at its path.
    is_replaced: bool,
}

impl Deletions {
    pub fn new(plan: Arc<SourcePlan>) -> Deletions {
        Deletions {
            plan,
            absent: UriMap::default(),
            graces: BTreeSet::new(),
            is_mass: false,
            away: AwayDocuments::default(),
            vanished: BTreeMap::new(),
        }
    }

    /// R15: takes a document that a look did not find to be missing, and begins its grace, unless it has begun. It is
    /// deleted later; so is one whose path holds something else.
    pub fn vanished(
        &mut self,
        uri: &Uri,
        vanishing: Vanishing,
        documents: &mut Documents,
        step: &mut Step,
    ) {
        let Some(record) = documents.catalog().get(uri) else {
            return;
        };
        match record.presence {
            Presence::Gone { .. } => return,
            Presence::Missing { .. } => {}
            Presence::Present => {
                let missing = Presence::Missing {
                    since: vanishing.at,
                    approved: false,
                };
                documents.set_presence(uri, missing, step);
            }
        }
        let is_replaced = !matches!(vanishing.found, FoundInstead::Nothing);
        let absence = self.absent.entry(uri.clone()).or_insert(Absence {
            since: None,
            is_replaced,
        });
        absence.is_replaced = is_replaced;
        if absence.since.is_none() {
            let now = step.now();
            absence.since = Some(now);
            let ends = later(now, self.plan.deletion_grace);
            self.graces.insert((ends, uri.clone()));
        }
        let successor = match vanishing.found {
            FoundInstead::Document(successor) => Some(successor),
            FoundInstead::Nothing | FoundInstead::File => None,
        };
        self.vanished.insert(uri.clone(), successor);
    }

    /// Ends the absence of a document that was found again, or counts as deleted.
    pub fn end(&mut self, uri: &Uri) {
        self.absent.remove(uri);
    }

    /// Notes that a path cannot be read. A file that cannot be reached may be there or not, so it does not count as
    /// seen absent; one that can be reached is there, unless something else was at its path. Returns true if the
    /// document is found again.
    pub fn is_found_unread(&mut self, uri: &Uri, is_reachable: bool) -> bool {
        let Some(absence) = self.absent.get_mut(uri) else {
            return false;
        };
        absence.since = None;
        let is_found = is_reachable && !absence.is_replaced;
        if is_found {
            self.absent.remove(uri);
        }
        is_found
    }

    /// Ends all absences below a mount: what is away with its mount is not seen to be absent, and its grace begins anew.
    pub fn stop_watching(&mut self, mount: MountId, catalog: &Catalog) {
        self.absent.retain(|uri, _| {
            let record = catalog.get(uri);
            record.is_some_and(|record| record.path.mount != mount)
        });
    }

    /// Ends all absences below directories of a mount at which another file system is, or was: what was absent from one
    /// may be there in the other, and its grace begins anew.
    pub fn stop_watching_below(
        &mut self,
        mount: MountId,
        tops: &BTreeSet<Arc<[u8]>>,
        catalog: &Catalog,
    ) {
        self.away.counted_in = None;
        self.absent.retain(|uri, _| {
            let path = catalog.get(uri).map(|record| &record.path);
            path.is_some_and(|path| {
                path.mount != mount || !tops_of(&path.below).any(|top| tops.contains(top))
            })
        });
    }

    /// Has the documents counted again that are missing with a file system.
    pub fn recount_away(&mut self) {
        self.away.counted_in = None;
    }

    /// Returns true if a running daemon saw a document absent for the whole grace, in one piece.
    fn is_grace_over(&self, uri: &Uri, now: Timestamp) -> bool {
        let grace = self.plan.deletion_grace;
        let since = self.since(uri);
        since.is_some_and(|since| later(since, grace) <= now)
    }

    fn since(&self, uri: &Uri) -> Option<Timestamp> {
        self.absent.get(uri).and_then(|absence| absence.since)
    }

    /// Returns the end of the first grace.
    pub fn next_end(&self) -> Option<Timestamp> {
        self.graces.first().map(|(at, _)| *at)
    }

    /// Asks for a look at each document whose grace has ended.
    pub fn end_graces(&mut self, catalog: &Catalog, mounts: &Mounts, step: &mut Step) {
        while let Some(uri) = self.take_ended(step.now()) {
            self.verify(&uri, catalog, mounts, step);
        }
    }

    /// Takes out the first document whose grace may have ended.
    fn take_ended(&mut self, now: Timestamp) -> Option<Uri> {
        let (at, _) = self.graces.first()?;
        if *at > now {
            return None;
        }
        self.graces.pop_first().map(|(_, uri)| uri)
    }

    /// Asks for a look at a document whose grace is over: a deletion counts only after a look that follows the grace.
    fn verify(&mut self, uri: &Uri, catalog: &Catalog, mounts: &Mounts, step: &mut Step) {
        let Some(record) = catalog.get(uri).filter(|record| record.is_missing()) else {
            return;
        };
        let now = step.now();
        if self.is_suspended(record, mounts) || !self.is_grace_over(uri, now) {
            return;
        }
        step.look_at(record.path.clone());
        self.graces.insert((later(now, LOOK_AGAIN), uri.clone()));
    }

    /// Asks for a look at what is missing, if its grace is over; and, below a mount that was swept just now, at what this
    /// run has not seen to be absent.
    pub fn look_at_missing(
        &mut self,
        swept: Option<MountId>,
        catalog: &Catalog,
        mounts: &Mounts,
        step: &mut Step,
    ) {
        for uri in catalog.census().missing() {
            let path = catalog.get(uri).map(|record| &record.path);
            match path {
                Some(path) if Some(path.mount) == swept && self.since(uri).is_none() => {
                    step.look_at(path.clone());
                }
                _ => self.verify(uri, catalog, mounts, step),
            }
        }
    }

    /// Takes the documents that looks of this step did not find, each with the document that was found at its path.
    pub fn take_vanished(&mut self) -> BTreeMap<Uri, Option<Box<Sighting>>> {
        std::mem::take(&mut self.vanished)
    }

    /// Takes a document to be deleted that was missing for the whole grace, unless deletions are suspended. Returns true
    /// if it is deleted.
    pub fn believe(
        &mut self,
        uri: &Uri,
        documents: &mut Documents,
        mounts: &Mounts,
        step: &mut Step,
    ) -> bool {
        let Some(record) = documents.catalog().get(uri) else {
            return false;
        };
        let Presence::Missing { since, .. } = record.presence else {
            return false;
        };
        let is_suspended = self.is_suspended(record, mounts);
        let is_believed = !is_suspended && self.is_grace_over(uri, step.now());
        if is_believed {
            self.end(uri);
            documents.delete(uri, since, step);
        }
        is_believed
    }

    /// Accepts as deleted what is missing now, except below a mount that is away, where nobody can see what is missing.
    /// The acceptance does not cover documents that go missing later, or return and go missing again.
    pub fn accept(&mut self, documents: &mut Documents, mounts: &Mounts, step: &mut Step) {
        let catalog = documents.catalog();
        let missing = catalog.census().missing().iter().filter(|uri| {
            let record = catalog.get(uri);
            record.is_some_and(|record| !mounts.is_absent(record.path.mount))
        });
        let missing: Vec<Uri> = missing.cloned().collect();
        for uri in &missing {
            documents.approve_deletion(uri, step);
        }
        if !missing.is_empty() {
            step.tell(Fact::Accepted {
                source: self.plan.name.clone(),
                documents: missing.len(),
            });
        }
        self.look_at_missing(None, documents.catalog(), mounts, step);
    }

    /// Returns true if the deletions of some documents are suspended.
    pub fn are_suspended(&self) -> bool {
        self.is_mass || self.away.count > 0
    }

    /// Returns true if the deletion of a missing document is suspended, unless it is accepted: too many are missing, or
    /// the file system that held it may not be mounted.
    pub fn is_suspended(&self, record: &Record, mounts: &Mounts) -> bool {
        !record.is_accepted() && (self.is_mass || mounts.is_away(&record.path))
    }

    /// Suspends deletions if too many documents are missing, or some are with the file system that held them, and believes
    /// them again if not.
    pub fn judge(&mut self, catalog: &Catalog, mounts: &Mounts, step: &mut Step) {
        let (were_suspended, was_mass) = (self.are_suspended(), self.is_mass);
        self.is_mass = is_mass_deletion(self.plan.mass_deletion, catalog.census(), mounts);
        let (is_more, is_less) = self.count_away(catalog, mounts);
        match self.suspension(catalog.census(), mounts) {
            Some(suspension) if !were_suspended || is_more || self.is_mass && !was_mass => {
                step.tell(Fact::Suspended(suspension));
            }
            None if were_suspended => {
                let source = self.plan.name.clone();
                step.tell(Fact::Resumed { source });
            }
            _ => {}
        }
        if was_mass && !self.is_mass || is_less {
            self.look_at_missing(None, catalog, mounts, step);
        }
    }

    /// Counts the documents that are missing with a file system, if that may have changed. Returns whether there are
    /// directories of such file systems that were not counted before, and whether some are not counted any more.
    fn count_away(&mut self, catalog: &Catalog, mounts: &Mounts) -> (bool, bool) {
        let version = catalog.census().missing_version();
        if self.away.counted_in == Some(version) {
            return (false, false);
        }
        let mut away = AwayDocuments {
            counted_in: Some(version),
            ..AwayDocuments::default()
        };
        if mounts.has_away() {
            let missing = catalog.census().missing().iter();
            let records = missing.filter_map(|uri| catalog.get(uri));
            for record in records.filter(|record| !record.is_accepted()) {
                let mount = mounts.get(record.path.mount);
                let directory = mount.and_then(|mount| mount.directory_away(&record.path.below));
                away.count += usize::from(directory.is_some());
                away.directories.extend(directory);
            }
        }
        let before = std::mem::replace(&mut self.away, away).directories;
        let is_more = !self.away.directories.is_subset(&before);
        (is_more, !before.is_subset(&self.away.directories))
    }

    /// Returns the numbers of missing documents if they suspend deletions.
    pub fn suspension(&self, census: &Census, mounts: &Mounts) -> Option<Suspension> {
        self.are_suspended().then(|| {
            let (missing, of) = missing(census, mounts, |count| count.all);
            Suspension {
                source: self.plan.name.clone(),
                missing: match self.is_mass {
                    true => missing,
                    false => self.away.count,
                },
                of,
                unmounted: self.away.directories.iter().cloned().collect(),
            }
        })
    }

    /// Continues what an engine with another plan has seen to be absent.
    pub fn inherit(&mut self, before: &Deletions, missing: &BTreeSet<Uri>) {
        for (uri, absence) in before
            .absent
            .iter()
            .filter(|(uri, _)| missing.contains(*uri))
        {
            self.absent.insert(uri.clone(), *absence);
            if let Some(since) = absence.since {
                let ends = later(since, self.plan.deletion_grace);
                self.graces.insert((ends, uri.clone()));
            }
        }
    }
}

/// Returns true if so many documents are missing that deletions are suspended. Of what lies below a mount that is
/// absent, nobody knows whether it is there.
fn is_mass_deletion(limit: MassDeletion, census: &Census, mounts: &Mounts) -> bool {
    if limit == MassDeletion::Never {
        return false;
    }
    let is_emptied = |count: &MountCount| count.all.present == 0 && count.all.missing > 0;
    if census.mounts().any(|(_, count)| is_emptied(count)) {
        return true;
    }
    let (missing_documents, documents) = missing(census, mounts, |count| count.all);
    let (missing_lists, lists) = missing(census, mounts, |count| count.lists);
    let had_several = census
        .mounts()
        .map(|(_, count)| count.lists.present + count.lists.missing)
        .sum::<usize>()
        > 1;
    let too_many = limit.is_exceeded(missing_documents, documents);
    let all_lists = missing_lists > 0 && missing_lists == lists && had_several;
    too_many || all_lists
}

/// Returns the number of documents that are missing and not yet accepted, and of how many.
fn missing(
    census: &Census,
    mounts: &Mounts,
    counted: fn(&MountCount) -> PresenceCount,
) -> (usize, usize) {
    let mut all = (0, 0);
    for (id, count) in census.mounts() {
        let count = counted(count);
        let visible = if mounts.is_absent(id) {
            0
        } else {
            count.present
        };
        all.0 += count.missing;
        all.1 += count.missing + count.accepted + visible;
    }
    all
}
