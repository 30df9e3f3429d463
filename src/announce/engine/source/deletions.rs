//! Documents that are not there, until they count as deleted (R15).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::catalog::census::{Census, MountCount, PresenceCount};
use crate::announce::engine::source::documents::Documents;
use crate::announce::engine::source::mounts::Mounts;
use crate::announce::engine::source::sighting::Sighting;
use crate::announce::engine::step::Step;
use crate::announce::event::{Fact, Suspension};
use crate::announce::observation::MountId;
use crate::announce::plan::{MassDeletion, SourcePlan};
use crate::announce::state::Presence;
use crate::resourcesync::uri::{Uri, UriMap};

/// The wait for the answer to a look at a missing document, before another look.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The missing documents of one source, as far as this run saw them to be absent.
#[derive(Debug, Default)]
pub struct Deletions {
    absent: UriMap<Absence>,
    /// The end of each grace, by the monotonic clock.
    graces: BTreeSet<(Duration, Uri)>,
    /// True while deletions are suspended.
    suspended: bool,
    /// Documents that looks of this step did not find, each with the document that was found at its path.
    vanished: BTreeMap<Uri, Option<Box<Sighting>>>,
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
    /// By the monotonic clock; nothing while nobody can see that it is.
    since: Option<Duration>,
    /// True if something else lies at its path.
    is_replaced: bool,
}

impl Deletions {
    /// R15: takes a document that a look did not find to be missing, and begins its grace, unless it has begun. It is
    /// deleted later; so is one whose path holds something else.
    pub fn vanished(
        &mut self,
        uri: &Uri,
        vanishing: Vanishing,
        documents: &mut Documents,
        grace: Duration,
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
            let now = step.monotonic();
            absence.since = Some(now);
            self.graces.insert((now.saturating_add(grace), uri.clone()));
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

    /// Notes that a path cannot be read. What cannot be reached may be there or not, so that nobody sees it absent;
    /// what can be reached is there, unless something else was at its path. Returns true if the document is found
    /// again.
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
    pub fn lose_sight(&mut self, mount: MountId, catalog: &Catalog) {
        self.absent.retain(|uri, _| {
            let record = catalog.get(uri);
            record.is_some_and(|record| record.path.mount != mount)
        });
    }

    /// Returns true if a running daemon saw a document absent for the whole grace, in one piece.
    fn is_grace_over(&self, uri: &Uri, grace: Duration, now: Duration) -> bool {
        let since = self.since(uri);
        since.is_some_and(|since| since.saturating_add(grace) <= now)
    }

    fn since(&self, uri: &Uri) -> Option<Duration> {
        self.absent.get(uri).and_then(|absence| absence.since)
    }

    /// Returns the end of the first grace, by the monotonic clock.
    pub fn next_end(&self) -> Option<Duration> {
        self.graces.first().map(|(at, _)| *at)
    }

    /// Asks for a look at each document whose grace has ended.
    pub fn end_graces(&mut self, catalog: &Catalog, grace: Duration, step: &mut Step) {
        while let Some(uri) = self.take_ended(step.monotonic()) {
            self.verify(&uri, catalog, grace, step);
        }
    }

    /// Takes out the first document whose grace may have ended.
    fn take_ended(&mut self, now: Duration) -> Option<Uri> {
        let (at, _) = self.graces.first()?;
        if *at > now {
            return None;
        }
        self.graces.pop_first().map(|(_, uri)| uri)
    }

    /// Asks for a look at a document whose grace is over: a deletion counts only after a look that follows the grace.
    fn verify(&mut self, uri: &Uri, catalog: &Catalog, grace: Duration, step: &mut Step) {
        let Some(record) = catalog.get(uri) else {
            return;
        };
        let Presence::Missing { approved, .. } = record.presence else {
            return;
        };
        let now = step.monotonic();
        if (self.suspended && !approved) || !self.is_grace_over(uri, grace, now) {
            return;
        }
        step.look_at(record.path.clone());
        self.graces
            .insert((now.saturating_add(LOOK_AGAIN), uri.clone()));
    }

    /// Asks for a look at what is missing, if its grace is over; and, below a mount that was swept just now, at what this
    /// run has not seen to be absent.
    pub fn look_at_missing(
        &mut self,
        swept: Option<MountId>,
        catalog: &Catalog,
        grace: Duration,
        step: &mut Step,
    ) {
        for uri in catalog.census().missing() {
            let path = catalog.get(uri).map(|record| &record.path);
            match path {
                Some(path) if Some(path.mount) == swept && self.since(uri).is_none() => {
                    step.look_at(path.clone());
                }
                _ => self.verify(uri, catalog, grace, step),
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
        grace: Duration,
        step: &mut Step,
    ) -> bool {
        let Some(record) = documents.catalog().get(uri) else {
            return false;
        };
        let Presence::Missing { since, approved } = record.presence else {
            return false;
        };
        let is_suspended = self.suspended && !approved;
        let is_believed = !is_suspended && self.is_grace_over(uri, grace, step.monotonic());
        if is_believed {
            self.end(uri);
            documents.delete(uri, since, step);
        }
        is_believed
    }

    /// Accepts as deleted what is missing now, except below a mount that is away, where nobody can see what is missing.
    /// What goes missing later, or returns and goes missing again, is not accepted.
    pub fn accept(
        &mut self,
        plan: &SourcePlan,
        documents: &mut Documents,
        mounts: &Mounts,
        step: &mut Step,
    ) {
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
                source: plan.name.clone(),
                documents: missing.len(),
            });
        }
        self.look_at_missing(None, documents.catalog(), plan.deletion_grace, step);
    }

    pub fn are_suspended(&self) -> bool {
        self.suspended
    }

    /// Suspends deletions if too many documents are missing, and believes them again if not.
    pub fn judge(
        &mut self,
        plan: &SourcePlan,
        catalog: &Catalog,
        mounts: &Mounts,
        step: &mut Step,
    ) {
        let were_suspended = self.suspended;
        self.suspended = is_mass_deletion(plan.mass_deletion, catalog.census(), mounts);
        if were_suspended == self.suspended {
            return;
        }
        match self.suspension(&plan.name, catalog.census(), mounts) {
            Some(suspension) => step.tell(Fact::Suspended(suspension)),
            None => {
                let source = plan.name.clone();
                step.tell(Fact::Resumed { source });
                self.look_at_missing(None, catalog, plan.deletion_grace, step);
            }
        }
    }

    /// Returns the numbers of missing documents if they suspend deletions. `name` is the source's.
    pub fn suspension(&self, name: &str, census: &Census, mounts: &Mounts) -> Option<Suspension> {
        self.suspended.then(|| {
            let (missing, of) = missing(census, mounts, |count| count.all);
            Suspension {
                source: name.to_owned(),
                missing,
                of,
            }
        })
    }

    /// Continues what an engine with another plan has seen to be absent.
    pub fn inherit(&mut self, before: &Deletions, missing: &BTreeSet<Uri>, grace: Duration) {
        for (uri, absence) in before
            .absent
            .iter()
            .filter(|(uri, _)| missing.contains(*uri))
        {
            self.absent.insert(uri.clone(), *absence);
            if let Some(since) = absence.since {
                self.graces
                    .insert((since.saturating_add(grace), uri.clone()));
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
