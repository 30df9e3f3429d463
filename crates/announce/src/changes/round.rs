//! One round of a channel: the lists to read, the changes that are taken from them (C7, C8, C13, C20), and their
//! notifications: consecutive intervals of the Source's time, which hold their entries' datetimes (C14, C15, C18; Change
//! Notification 1.0.1 section 3, core 1.1 section 7).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use resourcesync::change::Change;
use resourcesync::change_list::{EntryPlace, ListedChanges, SkippedEntry};
use resourcesync::change_payload::{ChangePayload, ceil_to_microsecond, entry_len};
use resourcesync::datetime::Datetime;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::resource_list::ResourceKey;
use resourcesync::uri::Uri;
use websub::publisher::reason::error_chain;

use crate::changes::inventory::{DeletionRules, InventoryRow, MissingResourceCounts};
use crate::changes::taken_keys::{KeyChanges, KeysRow};
use crate::observation::{DocumentPath, Stat};
use crate::state::{DocId, StatementError};
use crate::time::later;

/// Changes that one round takes at most (C13).
pub const ROUND: usize = 10_000;
/// Maximum time that a datetime may lie ahead of our clock and be believed (C15).
pub const AHEAD: Duration = Duration::from_secs(5 * 60);

/// A request to read Change Lists, and to compare them with what was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundRequest {
    pub set: Uri,
    /// Number of the request, for the answer.
    pub round: u64,
    /// The round before, if what it took was saved and nothing else was done to the set since.
    pub after: Option<u64>,
    pub at: Timestamp,
    /// In order of their URIs.
    pub lists: Vec<ListToRead>,
    pub watch: WatchTime,
    pub limit: usize,
    /// Entries from this time on wait: lists that are not read may have earlier ones.
    pub beyond: Option<Timestamp>,
    /// The `until` of the channel's last notification.
    pub told_until: Option<Timestamp>,
    /// Present if the lists are Resource Lists, which are compared with those before (C28).
    pub inventory: Option<DeletionRules>,
}

/// The time for which this run has watched the lists of a set, by a clock that nobody sets while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchTime {
    pub since: Timestamp,
    pub now: Timestamp,
    /// Time after which what is absent is forgotten, or believed to be deleted (C7, C29).
    pub grace: Duration,
}

impl WatchTime {
    /// Returns the end of the grace of an entry or resource that was noted as absent at a time. If an earlier run noted
    /// it, or this one before it could not see the lists, the grace counts from when they were watched again (R15).
    pub fn grace_end(&self, noted: Timestamp) -> Timestamp {
        let absent_since = if (self.since..=self.now).contains(&noted) {
            noted
        } else {
            self.since
        };
        later(absent_since, self.grace)
    }

    /// Returns true if what was noted as absent at a time is forgotten (C7).
    pub fn is_forgotten(&self, noted: Timestamp) -> bool {
        self.grace_end(noted) < self.now
    }
}

/// One version of a Change List.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListToRead {
    pub id: DocId,
    pub list: Uri,
    pub path: DocumentPath,
    pub stat: Stat,
    pub fingerprint: Fingerprint,
    /// True if its entries count as taken, because nobody could hear of them before (C10).
    pub is_learned: bool,
    /// True if it is archived: its entries count as taken, unless another list tells them now (C1).
    pub is_archived: bool,
    /// Time of the last entry that it had when it was closed for good: those that are not later are not told, unless
    /// another list tells them now (C7).
    pub closed_until: Option<Timestamp>,
    /// True if entries that it does not tell itself are not taken yet: a list that does may be written a moment later.
    pub waits: bool,
    /// Entries that earlier rounds left of this version.
    pub left: Option<UntakenCount>,
}

impl RoundRequest {
    /// Returns the answer with this outcome.
    pub fn answer_with(&self, outcome: RoundOutcome) -> RoundAnswer {
        let (set, round) = (self.set.clone(), self.round);
        RoundAnswer {
            set,
            round,
            outcome,
        }
    }
}

/// The answer to a [`RoundRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundAnswer {
    pub set: Uri,
    pub round: u64,
    pub outcome: RoundOutcome,
}

/// The outcome of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoundOutcome {
    /// These lists are not the versions that were asked for, which have this stat data: nothing was taken (C8).
    Stale(BTreeMap<Uri, Stat>),
    /// These lists, in the versions with this stat data, cannot be read for this reason: nothing was taken.
    Unreadable(BTreeMap<Uri, Stat>, String),
    /// The state file cannot be read, or reading failed otherwise: nothing was taken.
    Failed(String),
    Taken(Arc<TakenNow>),
}

impl From<StatementError> for RoundOutcome {
    fn from(error: StatementError) -> RoundOutcome {
        RoundOutcome::Failed(error_chain(&error))
    }
}

/// The changes that were taken, and the rows of the state file that say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenNow {
    /// In the order in which they are told.
    pub changes: Vec<FreshChange>,
    /// True if more are fresh.
    pub has_more: bool,
    pub lists: Vec<ListTally>,
    pub keys: KeyChanges,
    /// Resources that are listed otherwise than before (C28).
    pub inventory: BTreeMap<ResourceKey, Option<InventoryRow>>,
    pub missing: Option<MissingResourceCounts>,
}

/// Entries of a list that are fresh and were not taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UntakenCount {
    /// Effective time of the earliest.
    pub first: Timestamp,
    pub count: usize,
}

/// One list of a round, and the number of its entries that were taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListTally {
    pub version: ListToRead,
    /// True if all of it was taken.
    pub is_whole: bool,
    /// Entries that are left for a later round, if their times do not depend on it.
    pub left: Option<UntakenCount>,
    /// Entries that count (C2).
    pub listed: usize,
    /// Of these, entries that were taken.
    pub taken: usize,
    /// Of these, entries that are not taken yet because another list may tell them.
    pub waiting: usize,
    /// Entries of an archived list that were taken although they are later than all that was told.
    pub untold: usize,
    /// Changes among [`TakenNow::changes`].
    pub told: usize,
    /// The latest datetime that is not ahead.
    pub latest: Option<Timestamp>,
    /// Entries that do not count (C2).
    pub skipped: usize,
    pub first_skipped: Option<SkippedEntry>,
    pub undated: UndatedByReason,
    /// Present if it was closed for good and has other entries now: the number of those that are not told (C7).
    pub rewritten: Option<usize>,
    /// Time of its last entry, if it is closed.
    pub closed_until: Option<Timestamp>,
}

impl ListTally {
    /// Returns a list of which all entries were taken, and none is told.
    pub fn new(list: &ListToRead, listed: usize, skipped: usize) -> ListTally {
        ListTally {
            version: list.clone(),
            is_whole: true,
            left: None,
            listed,
            taken: listed,
            waiting: 0,
            untold: 0,
            told: 0,
            latest: None,
            skipped,
            first_skipped: None,
            undated: UndatedByReason::default(),
            rewritten: None,
            closed_until: None,
        }
    }
}

/// Entries that were taken and are told without a datetime, by reason (C15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndatedByReason {
    pub missing: usize,
    pub invalid: usize,
    pub ahead: usize,
    /// Those before the interval.
    pub back_dated: usize,
}

/// The files that a round reads: Change Lists, and the keys in the state file, as they were saved last.
pub trait RoundInputs {
    type Error;

    /// Reads the keys of a list of the request.
    fn read_keys(&mut self, list: &ListToRead) -> Result<ListedChanges, Self::Error>;

    /// Reads the entries of a list of the request at some places, which ascend. `span` is that of all its entries.
    fn read_changes(
        &mut self,
        list: &ListToRead,
        span: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, Self::Error>;

    /// Returns the rows of keys that were taken from a list of the set.
    fn taken_rows(&mut self, list: &Uri) -> Result<BTreeMap<u32, KeysRow>, Self::Error>;

    /// Returns the last of these rows whose keys have not vanished.
    fn last_taken_row(&mut self, list: &Uri) -> Result<Option<(u32, KeysRow)>, Self::Error>;

    /// Hands over the rows of all lists of the set, list after list.
    fn each_taken(&mut self, pass: &mut dyn FnMut(Uri, u32, KeysRow)) -> Result<(), Self::Error>;
}

/// Reads entries, each given by its list and its place there, and returns them in this order. `read` is called once for
/// each list, with places that ascend.
pub(super) fn read_in_given_order<P: Copy + Ord, E>(
    entries: impl Iterator<Item = (usize, P)>,
    mut read: impl FnMut(usize, &[P]) -> Result<Vec<Change>, E>,
) -> Result<Vec<Change>, E> {
    let mut entries: Vec<((usize, P), usize)> = entries.zip(0..).collect();
    entries.sort_unstable();
    let mut changes: Vec<Option<Change>> = vec![None; entries.len()];
    for of_list in entries.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
        let places: Vec<P> = of_list.iter().map(|((_, place), _)| *place).collect();
        let ((list, _), _) = of_list[0];
        for ((_, order), change) in of_list.iter().zip(read(list, &places)?) {
            changes[*order] = Some(change);
        }
    }
    Ok(changes.into_iter().flatten().collect())
}

/// A change that is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreshChange {
    pub change: Change,
    /// Effective time: its datetime, or where it has none that can be true, what stands in for it (C13).
    pub time: Timestamp,
    /// Position of its list among those of the round.
    pub list: usize,
}

/// Limits of one notification (R21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotificationLimits {
    pub entries: usize,
    /// Size of all entries together.
    pub bytes: usize,
}

/// The changes of one notification, which are all of this interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntervalChanges {
    pub payload: ChangePayload,
    /// The datetimes that were left out because they lie outside, with the positions of their entries (C15).
    pub outside: Vec<(usize, Datetime)>,
    /// Entries whose datetime was left out because it lies before `from`, by list (C15).
    pub back_dated: BTreeMap<usize, usize>,
}

/// Cuts changes, in order of their times, into consecutive intervals. `empty` is a notification without entries
/// that begins where the first does; its `until` does not count.
///
/// A cut falls between two times, unless the changes of one time are too many for one notification (C18).
pub fn intervals(
    mut fresh: &[FreshChange],
    mut empty: ChangePayload,
    limits: NotificationLimits,
) -> impl Iterator<Item = IntervalChanges> {
    lengths(fresh, limits).into_iter().map(move |length| {
        let (part, rest) = fresh.split_at(length);
        fresh = rest;
        let interval = make_interval(part, &empty);
        empty.from = interval.payload.until;
        interval
    })
}

/// Returns the numbers of changes of each notification.
fn lengths(fresh: &[FreshChange], limits: NotificationLimits) -> Vec<usize> {
    let mut lengths = Vec::new();
    let (mut open, mut bytes) = (0, 0);
    for group in fresh.chunk_by(|one, other| one.time == other.time) {
        let sizes = group.iter().map(|fresh| entry_len(&fresh.change));
        let whole = (group.len(), sizes.clone().sum());
        for (number, size) in sizes.enumerate() {
            let (entries, needed) = if number == 0 { whole } else { (1, size) };
            if open + entries > limits.entries || bytes + needed > limits.bytes {
                lengths.push(open);
                (open, bytes) = (0, 0);
            }
            // One that is too large by itself is told by itself.
            (open, bytes) = (open + 1, bytes + size);
        }
    }
    lengths.push(open);
    lengths.retain(|length| *length > 0);
    lengths
}

fn make_interval(part: &[FreshChange], empty: &ChangePayload) -> IntervalChanges {
    let from = empty.from;
    let last = part.last().map(|fresh| ceil_to_microsecond(fresh.time));
    // A microsecond for each entry: what is divided at one time still lies in consecutive intervals.
    let entries = i64::try_from(part.len()).unwrap_or(i64::MAX / 2);
    let after = from.checked_add(entries.microseconds());
    let until = last.unwrap_or(from).max(after.unwrap_or(Timestamp::MAX));
    let (mut outside, mut back_dated) = (Vec::new(), BTreeMap::new());
    let entries = part.iter().enumerate().map(|(position, fresh)| {
        let mut change = fresh.change.clone();
        if let Some(datetime) = change.datetime {
            let is_before = datetime.end() <= from;
            // One that is too far ahead has another effective time.
            if is_before || datetime.at() > fresh.time {
                change.datetime = None;
                outside.push((position, datetime));
            }
            if is_before {
                *back_dated.entry(fresh.list).or_insert(0) += 1;
            }
        }
        change
    });
    IntervalChanges {
        payload: ChangePayload {
            until,
            entries: entries.collect(),
            ..empty.clone()
        },
        outside,
        back_dated,
    }
}

#[cfg(test)]
mod tests;
