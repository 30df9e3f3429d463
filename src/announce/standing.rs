//! How a document stands with one hub on one channel: the difference seen − told, and whether it may be said.

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::difference::{Difference, Permission, difference};
use crate::announce::ledger::Ledger;
use crate::announce::notification::Due;
use crate::announce::plan::SourcePlan;
use crate::announce::state::{Hold, Record, Told};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::Form;
use crate::resourcesync::payload::ChangeKind;
use crate::resourcesync::uri::{Hub, Uri};

/// How a document stands on one hub's account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The hub knows all there is to know.
    Told,
    /// It counts as told from now on: nothing may be said of it, or it left the set (R14, R22).
    Absorbed(Option<Told>),
    /// There is something to say, once the document is listed (R17).
    Held,
    /// There is something to say, once the document is found again; if it is not, it was deleted (R15).
    Away,
    /// There is something to say.
    Due(Due),
}

/// How a document stands on a hub's account: seen less told, as far as it may be said, and unless it waits.
pub fn standing(
    source: &SourcePlan,
    catalog: &Catalog,
    channel: &Channel,
    hub: &Hub,
    uri: &Uri,
) -> Standing {
    let Some(ledger) = channel.ledgers.get(hub) else {
        return Standing::Told;
    };
    let is_due = ledger.due.contains(uri);
    let told = ledger.told.get(uri);
    standing_after(source, catalog, channel, ledger, uri, told, is_due)
}

/// Whether there may be something to say of a document later, that is not to be said yet.
pub fn waits(
    source: &SourcePlan,
    catalog: &Catalog,
    channel: &Channel,
    hub: &Hub,
    uri: &Uri,
    standing: &Standing,
) -> bool {
    let ledger = channel.ledgers.get(hub);
    let Some(ledger) = ledger.filter(|own| own.hearing(channel.is_live()) == Hearing::All) else {
        return false;
    };
    match standing {
        Standing::Held | Standing::Away => true,
        // R15: it may turn out to be deleted.
        Standing::Told | Standing::Absorbed(_) | Standing::Due(_) => {
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

/// What a hub still hears of on a channel (R11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    All,
    /// The channel retired: what was due then, and Source Descriptions.
    LastWordsAndDescriptions,
    /// The hub is advertised no more: what it was due then.
    LastWords,
}

/// How a document stands with a hub that was told this of it, and `is_due` to be told more or not.
pub fn standing_after(
    source: &SourcePlan,
    catalog: &Catalog,
    channel: &Channel,
    ledger: &Ledger,
    uri: &Uri,
    told: Option<&Told>,
    is_due: bool,
) -> Standing {
    let hearing = ledger.hearing(channel.is_live());
    let is_live = hearing == Hearing::All;
    let record = catalog.get(uri).filter(|record| !record.is_gone());
    let is_member = record.is_some_and(|record| {
        (record.is_source_description() && hearing != Hearing::LastWords)
            || (is_live && record.relations.sets.contains(&channel.row.set))
    });
    // R11: a set that ends keeps its channel as it is, to say what it still has to say; once it is retired,
    // that is what it was due then.
    let has_last_word = match is_live {
        true => !catalog.is_set(&channel.row.set) && (told.is_some() || is_due),
        false => is_due,
    };
    let forgotten = match told {
        Some(_) => Standing::Absorbed(None),
        None => Standing::Told,
    };
    let seen = match (record, told) {
        // A deleted document has a record until everybody knows; one without was never deleted, it is no
        // longer configured (R13).
        (None, _) if catalog.get(uri).is_none() => return forgotten,
        // What a hub that left was told is kept for the next one.
        _ if hearing == Hearing::LastWords && !is_due => return Standing::Told,
        (None, Some(told)) if !is_live && !is_due && !told.is_source_description() => {
            return forgotten;
        }
        (None, _) => None,
        // R14: a Source Description whose path holds an index of several has not ended.
        (Some(record), Some(told))
            if told.is_source_description()
                && record.version.capability == Capability::SourceDescription
                && record.version.form == Form::Index =>
        {
            return Standing::Told;
        }
        (Some(record), _) if is_member => Some(&record.version),
        (Some(record), told) if has_last_word => {
            Some(&record.version).filter(|seen| told.is_none_or(|told| told.is_same_document(seen)))
        }
        (Some(_), None) => return Standing::Told,
        // A retired channel hears of nothing else, and keeps what it has told.
        (Some(_), Some(_)) if !is_live => return Standing::Told,
        // R14: leaving a set announces nothing.
        (Some(record), Some(told)) if told.is_same_document(&record.version) => {
            return Standing::Absorbed(None);
        }
        (Some(_), Some(_)) => None,
    };
    let relations = catalog.get(uri).map(|record| &record.relations);
    let permission = Permission {
        archived: relations.is_some_and(|relations| relations.archived),
        all_deletions: source.announce_all_deletions,
    };
    match difference(told, seen, permission) {
        Difference::None => Standing::Told,
        Difference::Silent => Standing::Absorbed(seen.copied().map(Told::from)),
        Difference::Say(changes) => {
            let waits = is_live
                && record.is_some_and(|record| {
                    changes.iter().any(|(kind, _)| {
                        must_wait(uri, record, *kind, told.is_some(), channel, catalog)
                    })
                });
            if waits {
                return Standing::Held;
            }
            if is_live && seen.is_some() && record.is_some_and(Record::is_missing) {
                return Standing::Away;
            }
            Standing::Due(Due {
                uri: uri.clone(),
                changes,
                becomes: seen.copied().map(Told::from),
            })
        }
    }
}

// R17: a created document waits for its Capability List, an index or an archive to list it, an updated one
// only if the index that it names is new to it.
fn must_wait(
    uri: &Uri,
    record: &Record,
    kind: ChangeKind,
    is_known: bool,
    channel: &Channel,
    catalog: &Catalog,
) -> bool {
    let stands_alone = record.is_capability_list() || record.is_source_description();
    if stands_alone || record.hold == Hold::Expired || catalog.is_listed(uri) {
        return false;
    }
    match kind {
        ChangeKind::Created if !is_known => catalog.has_capability_list(&channel.row.set),
        ChangeKind::Created | ChangeKind::Updated => record.newly_indexed,
        ChangeKind::Deleted => false,
    }
}
