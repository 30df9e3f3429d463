//! One round of a channel: the lists to read, and the changes that are taken from them (C7, C8, C13, C20).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::changes::fresh::{Comparison, ListedEntries};
use crate::announce::changes::interval::FreshChange;
use crate::announce::changes::inventory::{DeletionRules, InventoryRow, MissingResources};
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::state::KeyRow;
use crate::announce::time::later;
use crate::resourcesync::change::{Change, ChangeKey};
use crate::resourcesync::change_list::{ListedChanges, ResourceKey, Skipped};
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::uri::Uri;

/// Changes that one round takes at most (C13).
pub const ROUND: usize = 20_000;
/// Keys in one row of the state file.
pub const KEYS_PER_ROW: usize = 4_096;
/// The longest that a datetime may lie ahead of our clock and be believed (C15).
pub const AHEAD: Duration = Duration::from_secs(5 * 60);

/// A request to read Change Lists, and to compare them with what was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeRequest {
    pub set: Uri,
    /// Number of the request, for the answer.
    pub round: u64,
    pub at: Timestamp,
    /// In order of their URIs.
    pub lists: Vec<ListToRead>,
    /// Keys that vanished from their list before this time are forgotten (C7).
    pub vanished_before: Timestamp,
    pub limit: usize,
    /// Entries from this time on wait: lists that are not read may have earlier ones.
    pub beyond: Option<Timestamp>,
    /// Present if the lists are Resource Lists, which are compared with those before (C28).
    pub inventory: Option<DeletionRules>,
}

/// One version of a Change List.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListToRead {
    pub list: Uri,
    pub path: DocumentPath,
    pub stat: Stat,
    pub fingerprint: Fingerprint,
    /// True if its entries count as taken, because nobody could hear of them before (C10).
    pub is_learned: bool,
}

/// The answer to a [`TakeRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenRound {
    pub set: Uri,
    pub round: u64,
    pub outcome: TakeOutcome,
}

/// The outcome of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOutcome {
    /// A list is not the version that was asked for: nothing was taken (C8).
    Stale,
    /// A list or the state file cannot be read: nothing was taken.
    Failed(String),
    Taken(Box<Taken>),
}

/// The changes that were taken, and the rows of the state file that say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// In the order in which they are told.
    pub changes: Vec<FreshChange>,
    /// True if more are fresh.
    pub has_more: bool,
    pub lists: Vec<TakenList>,
    pub keys: BTreeMap<(Uri, u32), Option<KeyRow>>,
    /// Resources that are listed otherwise than before (C28).
    pub inventory: BTreeMap<ResourceKey, Option<InventoryRow>>,
    pub missing: Option<MissingResources>,
}

/// Entries of a list that are fresh and were not taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftEntries {
    /// Effective time of the earliest.
    pub first: Timestamp,
    pub count: usize,
}

/// One list of a round, and the number of its entries that were taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenList {
    pub list: Uri,
    pub version: Fingerprint,
    /// The version, if all of it was taken.
    pub fingerprint: Option<Fingerprint>,
    /// Entries that are left for a later round, if their times do not depend on it.
    pub left: Option<LeftEntries>,
    /// Entries that count (C2).
    pub listed: usize,
    /// Of these, entries that were taken.
    pub taken: usize,
    /// Changes among [`Taken::changes`].
    pub told: usize,
    /// The latest datetime that is not ahead.
    pub latest: Option<Timestamp>,
    /// Entries that do not count (C2).
    pub skipped: usize,
    pub first_skipped: Option<Skipped>,
    pub undated: UndatedChanges,
}

/// Entries that were taken and are told without a datetime, by reason (C15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndatedChanges {
    pub missing: usize,
    pub invalid: usize,
    pub ahead: usize,
}

/// The keys that were taken from one list, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StoredKeys {
    rows: BTreeMap<u32, KeyRow>,
}

impl StoredKeys {
    fn present(&self) -> impl Iterator<Item = &KeyRow> {
        self.rows.values().filter(|row| row.vanished.is_none())
    }

    fn vanished(&self) -> impl DoubleEndedIterator<Item = &KeyRow> {
        self.rows.values().filter(|row| row.vanished.is_some())
    }
}

/// Takes what is fresh in some lists. `listed` are the keys of the lists that the request names, `stored` those taken from
/// all lists of the set, list after list, and `read` returns the entries of a list at some indices of what it lists,
/// which ascend.
pub fn take<E>(
    request: &TakeRequest,
    listed: &[ListedChanges],
    stored: impl IntoIterator<Item = Result<(Uri, u32, KeyRow), E>>,
    read: impl FnMut(usize, &[usize]) -> Result<Vec<Change>, E>,
) -> Result<Taken, E> {
    let lists = request.lists.iter().zip(listed);
    let lists: Vec<ListedEntries<'_>> = lists
        .map(|(list, listed)| ListedEntries {
            list: &list.list,
            entries: &listed.entries,
            is_learned: list.is_learned,
        })
        .collect();
    let selection = select(request, &lists, stored)?;
    let changes = read_chosen(&selection, &lists, read)?;
    let undated = undated(&changes, listed, &selection);
    let lists = request.lists.iter().zip(&lists).zip(listed);
    let lists = lists.zip(&selection.lists).zip(undated);
    let lists = lists.map(
        |((((list, entries), listed), selected), undated)| TakenList {
            list: list.list.clone(),
            version: list.fingerprint,
            fingerprint: selected.is_complete.then_some(list.fingerprint),
            left: selected.left,
            listed: entries.entries.len(),
            taken: selected.taken,
            told: selected.told,
            latest: selected.latest,
            skipped: listed.skipped,
            first_skipped: listed.first_skipped.clone(),
            undated,
        },
    );
    Ok(Taken {
        lists: lists.collect(),
        changes,
        has_more: selection.has_more,
        keys: selection.keys,
        inventory: BTreeMap::new(),
        missing: None,
    })
}

/// Reads the chosen entries, and returns them in the order in which they are told.
fn read_chosen<E>(
    selection: &Selection,
    lists: &[ListedEntries<'_>],
    mut read: impl FnMut(usize, &[usize]) -> Result<Vec<Change>, E>,
) -> Result<Vec<FreshChange>, E> {
    let chosen = selection.chosen.iter();
    let chosen = chosen.map(|(list, entry, _)| (*list, *entry));
    let changes = read_in_order(chosen, lists.len(), &mut read)?;
    let changes = changes.into_iter().zip(&selection.chosen);
    let fresh = changes.map(|(mut change, (list, entry, time))| {
        if selection.lists[*list].ahead.contains(entry) {
            change.datetime = None;
        }
        FreshChange {
            change,
            time: *time,
            list: *list,
        }
    });
    Ok(fresh.collect())
}

/// Reads entries, each given by its list and its place there, and returns them in this order. `read` is called once for
/// each of the `lists`, with places that ascend.
pub(super) fn read_in_order<P: Copy + Ord, E>(
    entries: impl Iterator<Item = (usize, P)>,
    lists: usize,
    mut read: impl FnMut(usize, &[P]) -> Result<Vec<Change>, E>,
) -> Result<Vec<Change>, E> {
    let mut wanted: Vec<Vec<(P, usize)>> = vec![Vec::new(); lists];
    let mut count = 0;
    for (order, (list, place)) in entries.enumerate() {
        wanted[list].push((place, order));
        count = order + 1;
    }
    let mut changes: Vec<Option<Change>> = vec![None; count];
    for (list, mut wanted) in wanted.into_iter().enumerate() {
        if wanted.is_empty() {
            continue;
        }
        wanted.sort_unstable();
        let places: Vec<P> = wanted.iter().map(|(place, _)| *place).collect();
        for ((_, order), change) in wanted.into_iter().zip(read(list, &places)?) {
            changes[order] = Some(change);
        }
    }
    Ok(changes.into_iter().flatten().collect())
}

/// Counts the changes of each list that have no datetime, by reason.
fn undated(
    changes: &[FreshChange],
    listed: &[ListedChanges],
    selection: &Selection,
) -> Vec<UndatedChanges> {
    let mut undated = vec![0; listed.len()];
    for fresh in changes {
        undated[fresh.list] += usize::from(fresh.change.datetime.is_none());
    }
    let lists = undated.into_iter().zip(listed).zip(&selection.lists);
    let counts = lists.map(|((undated, listed), selected)| {
        let ahead = selected.ahead.len().min(undated);
        // The pass over the keys does not know which of them are fresh.
        let invalid = listed.undated.invalid.min(undated - ahead);
        UndatedChanges {
            missing: undated - ahead - invalid,
            invalid,
            ahead,
        }
    });
    counts.collect()
}

/// The entries that are to be read in full, in the order in which they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Selection {
    /// List, position of the entry in it, and effective time.
    chosen: Vec<(usize, usize, Timestamp)>,
    has_more: bool,
    /// The lists, in the order of the request.
    lists: Vec<SelectedList>,
    pub keys: BTreeMap<(Uri, u32), Option<KeyRow>>,
}

/// One list of a [`Selection`].
#[derive(Debug, Clone, PartialEq, Eq)]
struct SelectedList {
    taken: usize,
    told: usize,
    is_complete: bool,
    left: Option<LeftEntries>,
    latest: Option<Timestamp>,
    /// Chosen entries whose datetime lies ahead.
    ahead: BTreeSet<usize>,
}

/// Chooses the earliest fresh entries of some lists. `stored` are the keys taken from all lists of the set, list after
/// list, in order.
fn select<E>(
    request: &TakeRequest,
    lists: &[ListedEntries<'_>],
    stored: impl IntoIterator<Item = Result<(Uri, u32, KeyRow), E>>,
) -> Result<Selection, E> {
    let mut comparison = Comparison::new(lists);
    let mut own: BTreeMap<Uri, StoredKeys> = lists
        .iter()
        .map(|list| (list.list.clone(), StoredKeys::default()))
        .collect();
    let mut keys = BTreeMap::new();
    let mut before: Option<Uri> = None;
    for row in stored {
        let (list, first, row) = row?;
        if row.vanished.is_some_and(|at| at < request.vanished_before) {
            keys.insert((list, first), None);
            continue;
        }
        if before.as_ref() != Some(&list) {
            comparison.pass_next();
            before = Some(list.clone());
        }
        for key in row.keys() {
            comparison.pass_one(key);
        }
        if let Some(stored) = own.get_mut(&list) {
            stored.rows.insert(first, row);
        }
    }
    let fresh = comparison.fresh();
    let mut chosen: Vec<(Timestamp, usize, usize)> = Vec::new();
    for (number, (list, fresh)) in lists.iter().zip(&fresh).enumerate() {
        if !fresh.is_empty() {
            let times = times(list, request.at);
            chosen.extend(fresh.iter().map(|at| (times[*at], number, *at)));
        }
    }
    chosen.sort_unstable();
    let is_before =
        |(time, ..): &(Timestamp, usize, usize)| request.beyond.is_none_or(|beyond| *time < beyond);
    let most = chosen.partition_point(is_before).min(request.limit);
    let has_more = most < chosen.len() || request.beyond.is_some();
    for (_, list, entry) in chosen.drain(most..) {
        comparison.leave(lists[list].entries[entry].key);
    }
    let left = comparison.left();
    let mut told: Vec<Vec<usize>> = vec![Vec::new(); lists.len()];
    for (_, list, entry) in &chosen {
        told[*list].push(*entry);
    }
    let mut selected = Vec::new();
    for (number, list) in lists.iter().enumerate() {
        let left = &left[number];
        let stored = own.remove(list.list).unwrap_or_default();
        renew_rows(list, left, &stored, request.at, &mut keys);
        let told = &told[number];
        let is_ahead = |entry: &usize| is_ahead(list, *entry, request.at);
        let ahead = told.iter().copied().filter(is_ahead);
        selected.push(SelectedList {
            taken: list.entries.len() - left.len(),
            told: told.len(),
            is_complete: left.is_empty(),
            left: left_entries(list, left, request.at),
            latest: latest(list, request.at),
            ahead: ahead.collect(),
        });
    }
    let chosen = chosen.into_iter();
    Ok(Selection {
        chosen: chosen
            .map(|(time, list, entry)| (list, entry, time))
            .collect(),
        has_more,
        lists: selected,
        keys,
    })
}

/// Returns the entries that are left of a list, unless one of them has the time of the round.
fn left_entries(list: &ListedEntries<'_>, left: &[usize], at: Timestamp) -> Option<LeftEntries> {
    let dated = list.entries.iter().position(|entry| {
        let datetime = entry.datetime.map(|datetime| datetime.at());
        datetime.is_some_and(|time| time <= later(at, AHEAD))
    })?;
    if left.first().is_none_or(|first| *first < dated) {
        return None;
    }
    let times = times(list, at);
    let first = left.iter().map(|entry| times[*entry]).min()?;
    Some(LeftEntries {
        first,
        count: left.len(),
    })
}

/// Returns the effective time of each entry of a list (C13).
fn times(list: &ListedEntries<'_>, at: Timestamp) -> Vec<Timestamp> {
    let mut last = None;
    let times = list.entries.iter().map(|entry| {
        let datetime = entry.datetime.map(|datetime| datetime.at());
        last = datetime.filter(|time| *time <= later(at, AHEAD)).or(last);
        last.unwrap_or(at)
    });
    times.collect()
}

fn is_ahead(list: &ListedEntries<'_>, entry: usize, at: Timestamp) -> bool {
    let datetime = list.entries[entry].datetime;
    datetime.is_some_and(|datetime| datetime.at() > later(at, AHEAD))
}

fn latest(list: &ListedEntries<'_>, at: Timestamp) -> Option<Timestamp> {
    let datetimes = list.entries.iter().filter_map(|entry| entry.datetime);
    let times = datetimes.map(|datetime| datetime.at());
    times.filter(|time| *time <= later(at, AHEAD)).max()
}

/// Writes the rows of a list: the keys that were taken, in the order of the list, and those that vanished from it.
fn renew_rows(
    list: &ListedEntries<'_>,
    left: &[usize],
    stored: &StoredKeys,
    at: Timestamp,
    rows: &mut BTreeMap<(Uri, u32), Option<KeyRow>>,
) {
    let entries = list.entries.iter().enumerate();
    let taken = entries.filter(|(entry, _)| left.binary_search(entry).is_err());
    let taken: Vec<ChangeKey> = taken.map(|(_, entry)| entry.key).collect();
    let mut renewed = StoredKeys::default();
    for (number, keys) in (0..).zip(taken.chunks(KEYS_PER_ROW)) {
        renewed.rows.insert(number, KeyRow::new(keys, None));
    }
    let vanished = vanished(&taken, stored);
    // Rows of what vanished are numbered from the top, so that the others keep theirs.
    let mut numbers = (0..=u32::MAX).rev();
    let mut returned = returned(&taken, stored);
    for row in stored.vanished().rev() {
        let row = without(row, &mut returned);
        if !row.is_empty() {
            let number = numbers.next();
            renewed.rows.extend(number.map(|number| (number, row)));
        }
    }
    for keys in vanished.chunks(KEYS_PER_ROW) {
        let row = KeyRow::new(keys, Some(at));
        renewed
            .rows
            .extend(numbers.next().map(|number| (number, row)));
    }
    for number in stored.rows.keys() {
        if !renewed.rows.contains_key(number) {
            rows.insert((list.list.clone(), *number), None);
        }
    }
    for (number, row) in renewed.rows {
        if stored.rows.get(&number) != Some(&row) {
            rows.insert((list.list.clone(), number), Some(row));
        }
    }
}

/// Returns how often a list has keys again that vanished from it.
fn returned(taken: &[ChangeKey], stored: &StoredKeys) -> BTreeMap<ChangeKey, isize> {
    let vanished = stored.vanished().flat_map(KeyRow::keys);
    let mut counts: BTreeMap<ChangeKey, isize> = vanished.map(|key| (key, 0)).collect();
    if counts.is_empty() {
        return counts;
    }
    let present = stored.present().flat_map(KeyRow::keys);
    let changes = taken.iter().map(|key| (*key, 1));
    for (key, change) in changes.chain(present.map(|key| (key, -1))) {
        if let Some(count) = counts.get_mut(&key) {
            *count += change;
        }
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// Returns a row without the keys that returned.
fn without(row: &KeyRow, returned: &mut BTreeMap<ChangeKey, isize>) -> KeyRow {
    if !row.keys().any(|key| returned.contains_key(&key)) {
        return row.clone();
    }
    let left = row.keys().filter(|key| match returned.get_mut(key) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    let left: Vec<ChangeKey> = left.collect();
    KeyRow::new(&left, row.vanished)
}

/// Returns the stored keys that a list has no more.
fn vanished(taken: &[ChangeKey], stored: &StoredKeys) -> Vec<ChangeKey> {
    let present = || stored.present();
    let count: usize = present().map(|row| row.len()).sum();
    if count == 0 {
        return Vec::new();
    }
    // Most lists only grow: what they begin with is what was stored.
    let is_prefix = count <= taken.len()
        && present()
            .flat_map(KeyRow::keys)
            .zip(taken)
            .all(|(one, other)| one == *other);
    if is_prefix {
        return Vec::new();
    }
    let mut listed = taken.to_vec();
    listed.sort_unstable();
    let mut before: Vec<ChangeKey> = present().flat_map(KeyRow::keys).collect();
    before.sort_unstable();
    let mut listed = listed.into_iter().peekable();
    let mut vanished = Vec::new();
    for key in before {
        while listed.next_if(|listed| *listed < key).is_some() {}
        if listed.next_if_eq(&key).is_none() {
            vanished.push(key);
        }
    }
    vanished
}

impl KeyRow {
    /// Makes a row.
    pub fn new(keys: &[ChangeKey], vanished: Option<Timestamp>) -> KeyRow {
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.0).collect();
        KeyRow {
            bytes: Arc::from(bytes),
            vanished,
        }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<ChangeKey>()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn keys(&self) -> impl Iterator<Item = ChangeKey> {
        self.bytes.as_chunks().0.iter().map(|key| ChangeKey(*key))
    }
}

#[cfg(test)]
mod tests;
