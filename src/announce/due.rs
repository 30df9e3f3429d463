//! The changes that one hub is due of one document on one channel: the difference *seen − told*, and whether it may be
//! announced now. [`HeardDocument::due`] has the decision table.

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{Hub, Uri};

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::difference::{Difference, Permission, difference};
use crate::announce::ledger::{Hearing, Ledger};
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
    /// True if the hub was due something of it before.
    pub is_due: bool,
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
        is_due: ledger.due.contains(uri),
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
    let ledger = channel.ledgers.get(hub);
    let is_description = catalog.get(uri).is_some_and(Record::is_source_description);
    let hears_more = |hearing| match hearing {
        Hearing::All => true,
        Hearing::LastWordsAndDescriptions => is_description,
        Hearing::LastWords => false,
    };
    let Some(ledger) = ledger.filter(|ledger| hears_more(ledger.hearing(channel.is_live()))) else {
        return false;
    };
    match due {
        Due::Held | Due::Missing => true,
        // R15: it may be deleted.
        Due::Acknowledged | Due::Absorbed(_) | Due::Announce(_) => {
            let record = catalog.get(uri).filter(|record| record.is_missing());
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
    /// | any | left the channel, and was not due it then (R11) | nothing is due: `Acknowledged` |
    /// | was deleted, and the hub knows it as no Source Description | is on a retired channel, and was not due it then | nothing is due: `Absorbed` |
    /// | was deleted | any | nothing: its end |
    /// | is an index of Source Descriptions | was told of a Source Description there (R14) | nothing is due: `Acknowledged` |
    /// | is of the set, or a Source Description (R10) | hears of it | its version |
    /// | any other | is due last words of it (R11): since the channel retired, also if it revived, or another set took its topic over | its version, if it is still the same document, else its end |
    /// | any other | was not told of it | nothing is due: `Acknowledged` |
    /// | any other | was told of it, on a retired channel or before it left | nothing is due: `Acknowledged` |
    /// | left the set, and is still the same document (R14) | was told of it | nothing is due: `Absorbed` |
    /// | any other: another document took its place | was told of it | nothing: its end |
    ///
    /// Then, the consequence of the difference between that and what was told:
    ///
    /// | difference | document | due |
    /// |---|---|---|
    /// | none | any | `Acknowledged` |
    /// | one that may not be announced (R6, R7, R12) | any | `Absorbed` |
    /// | a change | must be listed first, on a live channel, and is no last word (R17) | `Held` |
    /// | a change that is not its end | is missing, on a live channel, and is no last word (R15) | `Missing` |
    /// | a change that is not its end | is a Source Description that the hub hears of, and missing (R15) | `Missing` |
    /// | a change | any other | `Announce` |
    pub fn due(&self) -> Due {
        let hearing = self.ledger.hearing(self.channel.is_live());
        let seen = match self.seen(hearing) {
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
        let is_heard = |record: &Record| match hearing {
            Hearing::All => !self.is_last_word(),
            Hearing::LastWordsAndDescriptions => record.is_source_description(),
            Hearing::LastWords => false,
        };
        let present = record.filter(|record| !record.is_gone() && is_heard(record));
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

    fn seen(&self, hearing: Hearing) -> Seen<'a> {
        let HeardDocument { told, is_due, .. } = *self;
        let is_live = hearing == Hearing::All;
        let Some(record) = self.record() else {
            let forgotten = told.map_or(Due::Acknowledged, |_| Due::Absorbed(None));
            return Seen::NothingDue(forgotten);
        };
        // The versions that a hub was told before it left are kept for the next hub.
        if hearing == Hearing::LastWords && !is_due {
            return Seen::NothingDue(Due::Acknowledged);
        }
        if record.is_gone() {
            let is_over = !is_live && !is_due;
            return match told {
                Some(told) if is_over && !told.is_source_description() => {
                    Seen::NothingDue(Due::Absorbed(None))
                }
                _ => Seen::End,
            };
        }
        let is_index_of_descriptions = record.version.capability == Capability::SourceDescription
            && record.version.form == Form::Index;
        if is_index_of_descriptions && told.is_some_and(Told::is_source_description) {
            return Seen::NothingDue(Due::Acknowledged);
        }
        let is_heard = record.is_source_description() && hearing != Hearing::LastWords;
        if is_heard || (is_live && record.relations.sets.contains(&self.channel.row.set)) {
            return Seen::Version(&record.version);
        }
        let is_same = told.is_none_or(|told| told.is_same_document(&record.version));
        // A set that ends keeps its channel as it is, to announce what is still due; once it is retired, that is what was
        // due then.
        let has_last_words = match is_live {
            true if self.is_last_word() => true,
            true => !self.catalog.is_set(&self.channel.row.set) && (told.is_some() || is_due),
            false => is_due,
        };
        match told {
            _ if has_last_words && is_same => Seen::Version(&record.version),
            _ if has_last_words => Seen::End,
            None => Seen::NothingDue(Due::Acknowledged),
            Some(_) if !is_live => Seen::NothingDue(Due::Acknowledged),
            Some(_) if is_same => Seen::NothingDue(Due::Absorbed(None)),
            Some(_) => Seen::End,
        }
    }

    // R11: a set that takes a topic over, or has it again, announces what was due on it of documents that are not its
    // own. A Source Description is no set's, and heard on every channel.
    fn is_last_word(&self) -> bool {
        let is_own = |record: &Record| {
            record.is_source_description() || record.relations.sets.contains(&self.channel.row.set)
        };
        let is_last_word = self.is_due && self.ledger.row.last_words.contains(self.uri);
        is_last_word && !self.record().is_some_and(is_own)
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
