//! The changes that one hub is due of one document on one channel: the difference *seen − told*, and whether it may be
//! announced now. [`HeardDocument::due`] has the decision table.

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{Hub, Uri};

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::difference::{Difference, Permission, difference};
use crate::announce::ledger::Ledger;
use crate::announce::notification::Announcement;
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Record, Told, Version};

/// The change that a hub is due of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Nothing: the hub has acknowledged all that there is to announce.
    Acknowledged,
    /// Nothing, and this counts as told from now on: no change may be announced, or the document left the set
    /// (R14, R22).
    Absorbed(Option<Told>),
    /// A change that is not announced before the document is listed (R17).
    Held,
    /// A change of a document that is missing: it is announced once the document is found again, or counts as deleted
    /// (R15).
    Missing,
    /// A change to announce now.
    Announce(Announcement),
}

/// A document, as one hub was told of it on one channel.
#[derive(Debug)]
pub struct HeardDocument<'a> {
    pub source: &'a SourcePlan,
    pub catalog: &'a Catalog,
    pub channel: &'a Channel,
    pub ledger: &'a Ledger,
    pub uri: &'a Uri,
    pub told: Option<&'a Told>,
}

/// Returns what a hub is due of a document on a channel.
pub fn due(source: &SourcePlan, catalog: &Catalog, channel: &Channel, hub: &Hub, uri: &Uri) -> Due {
    let Some(ledger) = channel.ledgers.get(hub) else {
        return Due::Acknowledged;
    };
    let document = HeardDocument {
        source,
        catalog,
        channel,
        ledger,
        uri,
        told: ledger.told.get(uri),
    };
    document.due()
}

/// Returns true if a change may have to be announced later that is not announced now.
pub fn may_become_due(
    source: &SourcePlan,
    catalog: &Catalog,
    channel: &Channel,
    hub: &Hub,
    uri: &Uri,
    due: &Due,
) -> bool {
    let record = catalog.get(uri);
    let Some(ledger) = channel.ledgers.get(hub) else {
        return false;
    };
    match due {
        Due::Held | Due::Missing => true,
        // R15: it may be deleted.
        Due::Acknowledged | Due::Absorbed(_) | Due::Announce(_) => {
            let record = record.filter(|it| it.is_missing() && ledger.is_open_for(it));
            let permission = record.map(|record| Permission {
                archived: record.relations.archived,
                all_deletions: source.announce_all_deletions,
            });
            let ends = |permission| difference(ledger.told.get(uri), None, permission);
            permission.is_some_and(|permission| matches!(ends(permission), Difference::Say(_)))
        }
    }
}

/// The version that counts as seen of a document on a channel: the first table of [`HeardDocument::due`].
enum Seen<'a> {
    /// The document does not concern the hub.
    NothingDue(Due),
    /// The end of the document, as far as the channel is concerned.
    End,
    Version(&'a Version),
}

impl<'a> HeardDocument<'a> {
    /// Returns what the hub is due of it.
    ///
    /// First, what counts as seen on this channel. The first row that applies decides:
    ///
    /// | the document | the hub | seen |
    /// |---|---|---|
    /// | has no record: it is no longer configured (R13) | was told of it, or not | nothing is due: `Absorbed`, or `Acknowledged` |
    /// | any | left, and was not due it then (R11) | nothing is due: `Acknowledged` |
    /// | any but a Source Description (R10) | is on a retired channel, and was not due it then (R11) | nothing is due: `Absorbed` if it was deleted, else `Acknowledged` |
    /// | was deleted | any | nothing: its end |
    /// | is an index of Source Descriptions | was told of a Source Description there (R14) | nothing is due: `Acknowledged` |
    /// | is of the set, or a Source Description (R10) | any | its version |
    /// | any other: another document took its place | was told of the one before | nothing: its end |
    /// | was of the set, which has ended | was told of it, or is due it | its version |
    /// | any other | was not told of it | nothing is due: `Acknowledged` |
    /// | any other: it left the set (R14) | was told of it | nothing is due: `Absorbed` |
    ///
    /// Then, the consequence of the difference between that and what was told:
    ///
    /// | difference | document | due |
    /// |---|---|---|
    /// | none | any | `Acknowledged` |
    /// | one that may not be announced (R6, R7, R12) | any | `Absorbed` |
    /// | a change | must be listed first (R17) | `Held` |
    /// | a change that is not its end | is missing (R15) | `Missing` |
    /// | a change | any other | `Announce` |
    pub fn due(&self) -> Due {
        let seen = match self.seen() {
            Seen::NothingDue(due) => return due,
            Seen::Version(seen) => Some(seen),
            Seen::End => None,
        };
        let record = self.record();
        let permission = Permission {
            archived: record.is_some_and(|record| record.relations.archived),
            all_deletions: self.source.announce_all_deletions,
        };
        let changes = match difference(self.told, seen, permission) {
            Difference::None => return Due::Acknowledged,
            Difference::Silent => return Due::Absorbed(seen.copied().map(Told::from)),
            Difference::Say(changes) => changes,
        };
        let present = record.filter(|record| !record.is_gone());
        let must_wait = present.is_some_and(|record| {
            let mut kinds = changes.iter().map(|(kind, _)| *kind);
            kinds.any(|kind| self.must_be_listed(record, kind))
        });
        if must_wait {
            return Due::Held;
        }
        if seen.is_some() && present.is_some_and(Record::is_missing) {
            return Due::Missing;
        }
        Due::Announce(Announcement {
            uri: self.uri.clone(),
            changes,
            becomes: seen.copied().map(Told::from),
        })
    }

    fn record(&self) -> Option<&'a Record> {
        self.catalog.get(self.uri)
    }

    fn seen(&self) -> Seen<'a> {
        let HeardDocument { told, ledger, .. } = *self;
        let set = &self.channel.row.set;
        let Some(record) = self.record() else {
            let forgotten = told.map_or(Due::Acknowledged, |_| Due::Absorbed(None));
            return Seen::NothingDue(forgotten);
        };
        let is_still_due = ledger.is_still_due(self.uri);
        if !(ledger.is_open_for(record) || is_still_due) {
            // The versions that a hub was told before it left are kept for the next hub.
            let is_over = record.is_gone() && told.is_some() && ledger.row.left.is_none();
            return Seen::NothingDue(match is_over {
                true => Due::Absorbed(None),
                false => Due::Acknowledged,
            });
        }
        if record.is_gone() {
            return Seen::End;
        }
        let is_index_of_descriptions = record.version.capability == Capability::SourceDescription
            && record.version.form == Form::Index;
        if is_index_of_descriptions && told.is_some_and(Told::is_source_description) {
            return Seen::NothingDue(Due::Acknowledged);
        }
        let is_of_set = record.is_source_description() || record.relations.sets.contains(set);
        // A set that ends keeps its channel as it is until that retires, with what is due then.
        let is_of_ended_set = !self.catalog.is_set(set)
            && (told.is_some() || is_still_due || ledger.due.contains(self.uri));
        let is_same = told.is_none_or(|told| told.is_same_document(&record.version));
        match told {
            _ if is_of_set => Seen::Version(&record.version),
            _ if !is_same => Seen::End,
            _ if is_of_ended_set => Seen::Version(&record.version),
            None => Seen::NothingDue(Due::Acknowledged),
            Some(_) => Seen::NothingDue(Due::Absorbed(None)),
        }
    }

    // R17: a created document waits for its Capability List, an index or an archive to list it, an updated one
    // only if the index that it names is new to it.
    fn must_be_listed(&self, record: &Record, kind: ChangeKind) -> bool {
        let HeardDocument {
            catalog,
            channel,
            uri,
            ..
        } = self;
        let stands_alone = record.is_capability_list() || record.is_source_description();
        if stands_alone || record.hold == Hold::Expired || catalog.is_listed(uri) {
            return false;
        }
        match kind {
            ChangeKind::Created if self.told.is_none() => {
                catalog.has_capability_list(&channel.row.set)
            }
            ChangeKind::Created | ChangeKind::Updated => record.newly_indexed,
            ChangeKind::Deleted => false,
        }
    }
}
