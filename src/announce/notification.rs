//! The next notification, cut from what a hub is due.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::payload::{ChangeKind, Entry, Payload, entry_len};
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::state::{Presence, Record, Told};

/// The changes to announce of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub uri: Uri,
    pub changes: Vec<(ChangeKind, Capability)>,
    /// The version that counts as told once the hub has accepted it; nothing for a document that ended.
    pub becomes: Option<Told>,
}

/// The limits of one notification (R18, R21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotificationLimits {
    /// Maximum number of entries, at least 1.
    pub entries: usize,
    /// Maximum size of the rendered payload.
    pub bytes: usize,
    pub all_components: bool,
}

/// The part of what is due that goes into the next notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// In order of their datetimes.
    pub entries: Vec<Entry>,
    pub covers: Vec<(Uri, Option<Told>)>,
}

/// Returns the entries for all that is due, in order.
pub fn spoken(
    due: Vec<Announcement>,
    catalog: &Catalog,
    limits: NotificationLimits,
) -> Vec<Spoken> {
    let mut spoken: Vec<Spoken> = due
        .into_iter()
        .filter_map(|due| Spoken::new(due, catalog))
        .collect();
    spoken.sort_by(|one, other| one.key().cmp(&other.key()));
    match limits.all_components {
        true => spoken,
        false => newest_components(spoken),
    }
}

/// Takes the entries of the next notification. Those that do not fit are left; at least one always fits.
pub fn cut(prepared: &mut VecDeque<Spoken>, limits: NotificationLimits, overhead: usize) -> Cut {
    let mut cut = Cut::default();
    let mut bytes = overhead;
    while let Some(next) = prepared.front() {
        let count = cut.entries.len() + next.entries.len();
        bytes += next.entries.iter().map(entry_len).sum::<usize>();
        let fits = count <= limits.entries && bytes <= limits.bytes;
        if !fits && !cut.entries.is_empty() {
            break;
        }
        if let Some(spoken) = prepared.pop_front() {
            cut.entries.extend(spoken.entries);
            cut.covers.extend(spoken.covers);
        }
    }
    cut
}

/// The entries of one document, with all documents that they account for.
#[derive(Debug)]
pub struct Spoken {
    pub entries: Vec<Entry>,
    covers: Vec<(Uri, Option<Told>)>,
    /// The earliest change that they account for.
    pub since: Timestamp,
}

impl Spoken {
    fn new(due: Announcement, catalog: &Catalog) -> Option<Spoken> {
        let record = catalog.get(&due.uri)?;
        let entries: Vec<Entry> = due
            .changes
            .iter()
            .map(|(change, capability)| Entry {
                uri: due.uri.clone(),
                change: *change,
                capability: *capability,
                datetime: Some(datetime(record)),
                index: catalog.announced_index(record),
            })
            .collect();
        (!entries.is_empty()).then(|| Spoken {
            entries,
            covers: vec![(due.uri, due.becomes)],
            since: datetime(record),
        })
    }

    fn key(&self) -> (Option<Timestamp>, &Uri) {
        (self.entries[0].datetime, &self.entries[0].uri)
    }
}

// R19: a deletion is dated by the look that found the file gone.
fn datetime(record: &Record) -> Timestamp {
    match record.presence {
        Presence::Gone { since } => since,
        _ => record.changed,
    }
}

// R18, Framework Notification 1.0.1 section 2: of several components of one index, one is announced.
fn newest_components(spoken: Vec<Spoken>) -> Vec<Spoken> {
    let mut said = BTreeMap::new();
    let mut kept: Vec<Spoken> = Vec::with_capacity(spoken.len());
    // Newest first, so that the first of its kind is the one to keep.
    for spoken in spoken.into_iter().rev() {
        let kind = match &spoken.entries[..] {
            [entry] => entry
                .index
                .clone()
                .map(|index| (index, entry.capability, entry.change)),
            _ => None,
        };
        match kind.map(|kind| *said.entry(kind).or_insert(kept.len())) {
            Some(place) if place < kept.len() => {
                kept[place].covers.extend(spoken.covers);
                kept[place].since = kept[place].since.min(spoken.since);
            }
            _ => kept.push(spoken),
        }
    }
    kept.reverse();
    kept
}

/// Returns the most bytes that a payload of this set has besides its entries.
pub fn overhead(set: &Uri, catalog: &Catalog) -> usize {
    [Some(set.clone()), catalog.source_description(set)]
        .into_iter()
        .map(|up| {
            let entries = Vec::new();
            Payload {
                up,
                from: Some(Timestamp::UNIX_EPOCH),
                until: Some(Timestamp::UNIX_EPOCH),
                entries,
            }
            .overhead()
        })
        .max()
        .unwrap_or_default()
}

/// R20: returns the Capability List if all entries are its documents, the Source Description if all are Capability
/// Lists, else none.
pub fn up(entries: &[Entry], set: &Uri, catalog: &Catalog) -> Option<Uri> {
    let above: BTreeSet<Option<Uri>> = entries
        .iter()
        .map(|entry| match entry.capability {
            Capability::SourceDescription => None,
            Capability::CapabilityList => catalog.source_description(set),
            _ => Some(set.clone()),
        })
        .collect();
    match above.len() {
        1 => above.into_iter().next().flatten(),
        _ => None,
    }
}
