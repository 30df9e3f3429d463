//! The entries that a comparison found fresh, of which each round takes the earliest (C13).
//!
//! They are kept between the rounds of a set, and only as long as nothing else happened to the set's lists and keys: then the
//! next round would find the same.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use resourcesync::change::ChangeKey;
use resourcesync::change_list::{ListedChanges, ListedKey};
use resourcesync::uri::Uri;

use crate::changes::round::{
    AHEAD, FreshChange, ListTally, ListToRead, RoundInputs, RoundRequest, TakenNow, UntakenCount,
    read_in_given_order,
};
use crate::changes::taken_keys::{
    ChannelComparison, KeyChanges, KeysRow, ListTakenKeys, UntakenEntry, appended_rows,
};
use crate::time::later;

/// Size of the entries that one round takes, as they are listed, in bytes; one entry at least.
const ROUND_BYTES: u64 = 16 << 20;
/// Fresh entries that are kept between rounds at most, of 56 bytes each, and up to a sixteenth more.
const MAX_SELECTED: usize = 1 << 18;

/// Rounds of all sets, with what each has compared and not taken yet.
#[derive(Debug)]
pub struct KeptFreshSelections {
    /// By set. Locked only to take one out or to keep it.
    selections: Mutex<BTreeMap<Uri, FreshSelection>>,
    /// Entries of all selections.
    max: usize,
}

impl Default for KeptFreshSelections {
    fn default() -> KeptFreshSelections {
        KeptFreshSelections {
            selections: Mutex::default(),
            max: MAX_SELECTED,
        }
    }
}

impl KeptFreshSelections {
    /// Takes the earliest fresh entries of the lists that a request names (C13).
    pub fn take_fresh<F: RoundInputs>(
        &self,
        request: &RoundRequest,
        files: &mut F,
    ) -> Result<TakenNow, F::Error> {
        let kept = self.selections().remove(&request.set);
        let mut selection = match kept.filter(|kept| kept.is_reusable_for(request)) {
            Some(kept) => kept,
            None => FreshSelection::compare(request, self.max, files)?,
        };
        let taken = selection.take(request, files)?;
        if !selection.fresh.are_exhausted() {
            self.keep(request.set.clone(), selection);
        }
        Ok(taken)
    }

    /// Keeps a selection, and as many others as there is room for.
    fn keep(&self, set: Uri, selection: FreshSelection) {
        let count = |kept: &FreshSelection| kept.fresh.entries.len() + kept.fresh.copies.len();
        let mut room = self.max.saturating_sub(count(&selection));
        let mut selections = self.selections();
        selections.retain(|_, other| {
            let left = room.checked_sub(count(other));
            room = left.unwrap_or(room);
            left.is_some()
        });
        selections.insert(set, selection);
    }

    fn selections(&self) -> MutexGuard<'_, BTreeMap<Uri, FreshSelection>> {
        let locked = self.selections.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The earliest fresh entries of a comparison, kept between the rounds that take them.
#[derive(Debug)]
struct FreshSelection {
    /// The last round that took of it.
    round: u64,
    /// The time of the comparison.
    at: Timestamp,
    /// True if the time of an entry is that of the comparison, or may be one later.
    depends_on_time: bool,
    /// In order of their URIs.
    lists: Vec<ListProgress>,
    fresh: FreshEntries,
    /// Rows that were changed since the last round.
    unsaved: KeyChanges,
}

impl FreshSelection {
    /// Compares the lists of a request with what was taken, and keeps so many fresh entries.
    fn compare<F: RoundInputs>(
        request: &RoundRequest,
        max: usize,
        files: &mut F,
    ) -> Result<FreshSelection, F::Error> {
        let mut selection = FreshSelection {
            round: request.round,
            at: request.at,
            depends_on_time: false,
            lists: Vec::with_capacity(request.lists.len()),
            fresh: FreshEntries::default(),
            unsaved: KeyChanges::new(),
        };
        let mut comparison = ChannelComparison::new(max);
        for list in &request.lists {
            selection.add_list(request, list, &mut comparison, files)?;
        }
        let unsaved = &mut selection.unsaved;
        let mut before: Option<Uri> = None;
        let mut number = 0;
        let compared = comparison.compare_across_lists(|pass| {
            files.each_taken(&mut |list, first, row| {
                if (row.vanished).is_some_and(|at| request.watch.is_forgotten(at)) {
                    unsaved.entry((list, first)).or_insert(None);
                    return;
                }
                if before.as_ref() != Some(&list) {
                    number += 1;
                    before = Some(list);
                }
                row.keys().for_each(|key| pass(number, key));
            })
        })?;
        let mut taken = compared.taken;
        taken.extend(compared.untold.into_iter().filter(|entry| {
            selection.lists[entry.list as usize].take_untold(entry, request.told_until)
        }));
        taken.sort_unstable_by_key(|entry| (entry.list, entry.place.position));
        for entry in taken {
            selection.lists[entry.list as usize].mark_taken(entry.place.key);
        }
        let copies = compared.copies.into_iter().map(|copy| (copy, false));
        selection.fresh = FreshEntries {
            entries: compared.fresh,
            next: 0,
            copies: copies.collect(),
        };
        selection.depends_on_time = selection.fresh.untaken().any(|entry| {
            entry.is_ahead || selection.lists[entry.list as usize].is_before_dated(entry)
        });
        Ok(selection)
    }

    /// Compares a list with what was taken from it.
    fn add_list<F: RoundInputs>(
        &mut self,
        request: &RoundRequest,
        list: &ListToRead,
        comparison: &mut ChannelComparison,
        files: &mut F,
    ) -> Result<(), F::Error> {
        let listed = files.read_keys(list)?;
        let stored = files.taken_rows(&list.list)?;
        let mut keys = ListTakenKeys::new(stored, &request.watch);
        let (mut selected, times) = ListProgress::with_times(list, &listed, request.at);
        let untaken = keys.reconcile(&listed.entries, &times, request.watch.now);
        let number = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        selected.left = if list.is_learned { 0 } else { untaken.len() };
        self.lists.push(selected);
        if list.is_learned {
            let key = |index: usize| listed.entries[index].place.key;
            for entry in &untaken {
                comparison.learn(key(entry.index), entry.copy);
            }
            keys.add(untaken.iter().map(|entry| key(entry.index)));
        } else {
            for entry in untaken {
                let of = &listed.entries[entry.index];
                let time = times[entry.index];
                let candidate = UntakenEntry {
                    place: of.place,
                    time,
                    list: number,
                    copy: entry.copy,
                    is_ahead: is_far_ahead(of, request.at),
                    is_silent: list.is_archived || list.closed_until >= Some(time),
                };
                let mut is_late = |late: &UntakenEntry| {
                    self.lists[late.list as usize].note_unselected(late);
                };
                match request.beyond {
                    Some(beyond) if candidate.time >= beyond => is_late(&candidate),
                    _ => comparison.add(candidate, is_late),
                }
            }
        }
        self.unsaved.extend(keys.into_changes(&list.list));
        Ok(())
    }

    /// Returns true if a comparison would find the same for a request: its lists are the same versions, and since the last
    /// round nothing else was done to the set.
    fn is_reusable_for(&self, request: &RoundRequest) -> bool {
        let age = request.at.duration_since(self.at).unsigned_abs();
        if request.after != Some(self.round) || (self.depends_on_time && age > AHEAD) {
            return false;
        }
        let numbers = self.list_numbers(request);
        let version = |of: &ListToRead| (of.stat, of.fingerprint, of.waits);
        let is_known = request.lists.iter().all(|list| {
            let uri = |selected: &ListProgress| selected.report.version.list.cmp(&list.list);
            let number = self.lists.binary_search_by(uri);
            let before = number.map(|number| version(&self.lists[number].report.version));
            before == Ok(version(list)) && !list.is_learned
        });
        let lists = self.lists.iter().zip(&numbers);
        let mut unfinished = lists.filter(|(list, _)| list.has_more());
        let has_all = request.beyond.is_some() || unfinished.all(|(_, number)| number.is_some());
        let next = self.fresh.next_entries(request);
        // Of a list that is read alone, an entry that another list tells at a later time is told at its own.
        let tells = request.beyond.is_none() || !next.is_empty();
        let mut entries = next.iter();
        is_known
            && has_all
            && tells
            && entries.all(|entry| {
                let is_read = |entry: &UntakenEntry| numbers[entry.list as usize].is_some();
                is_read(entry) && self.fresh.copies(entry).all(is_read)
            })
    }

    /// Returns the numbers of its lists in a request.
    fn list_numbers(&self, request: &RoundRequest) -> Vec<Option<usize>> {
        let uris = self.lists.iter().map(|list| &list.report.version.list);
        let position = |list| request.lists.binary_search_by(|of| of.list.cmp(list)).ok();
        uris.map(position).collect()
    }

    /// Takes the earliest entries, and reads them.
    fn take<F: RoundInputs>(
        &mut self,
        request: &RoundRequest,
        files: &mut F,
    ) -> Result<TakenNow, F::Error> {
        self.round = request.round;
        let numbers = self.list_numbers(request);
        let told = self.fresh.next_entries(request).to_vec();
        let entries = told.iter().map(|entry| (entry.list as usize, entry.place));
        let read = read_in_given_order(entries, |list, places| match numbers[list] {
            Some(number) => {
                files.read_changes(&request.lists[number], &self.lists[list].span, places)
            }
            None => Ok(Vec::new()),
        })?;
        let changes = read
            .into_iter()
            .zip(&told)
            .map(|(change, entry)| FreshChange {
                change,
                time: entry.time,
                list: numbers[entry.list as usize].unwrap_or_default(),
            });
        let changes: Vec<FreshChange> = changes.collect();
        self.fresh.take(told.len(), |entry| {
            self.lists[entry.list as usize].mark_taken(entry.place.key)
        });
        let mut keys = std::mem::take(&mut self.unsaved);
        for list in &mut self.lists {
            let uri = &list.report.version.list;
            if !list.added.is_empty() {
                let last = last_row(uri, &keys, files)?;
                let rows = appended_rows(last, list.added.drain(..)).into_iter();
                keys.extend(rows.map(|(number, row)| ((uri.clone(), number), Some(row))));
            }
        }
        for (entry, fresh) in told.iter().zip(&changes) {
            let is_undated = fresh.change.datetime.is_none();
            self.lists[entry.list as usize].note_told(is_undated, entry.is_ahead);
        }
        let mut earliest: Vec<_> = self.lists.iter().map(|list| list.late).collect();
        for entry in self.fresh.untaken() {
            let list = entry.list as usize;
            earliest[list] = self.lists[list].earlier_of(earliest[list], entry);
        }
        let mut lists: Vec<Option<ListTally>> = vec![None; request.lists.len()];
        for ((list, earliest), number) in self.lists.iter_mut().zip(earliest).zip(numbers) {
            if let Some(number) = number {
                lists[number] = Some(list.report_taken(earliest));
            }
        }
        Ok(TakenNow {
            has_more: request.beyond.is_some() || self.lists.iter().any(ListProgress::has_more),
            lists: lists.into_iter().flatten().collect(),
            changes,
            keys,
            ..TakenNow::default()
        })
    }
}

/// Returns the last row of keys of a list that are present, with those that are to be written.
fn last_row<F: RoundInputs>(
    list: &Uri,
    rows: &KeyChanges,
    files: &mut F,
) -> Result<Option<(u32, KeysRow)>, F::Error> {
    let all = (list.clone(), 0)..=(list.clone(), u32::MAX);
    let mut unsaved = rows.range(all).rev().filter_map(|((_, number), row)| {
        let row = row.as_ref().filter(|row| row.vanished.is_none())?;
        Some((*number, row.clone()))
    });
    let unsaved = unsaved.next();
    let saved = files.last_taken_row(list)?.map(|(number, row)| {
        let is_deleted = rows.contains_key(&(list.clone(), number));
        let none = || KeysRow::new(&[], None);
        (number, if is_deleted { none() } else { row })
    });
    let both = saved.into_iter().chain(unsaved);
    Ok(both.max_by_key(|(number, _)| *number))
}

/// Fresh entries, with the same ones in other lists.
#[derive(Debug, Default)]
struct FreshEntries {
    /// In the order in which they are told.
    entries: Vec<UntakenEntry>,
    /// Number of these that were taken.
    next: usize,
    /// Entries that are taken with the same ones in other lists, in order of their keys; and whether they were.
    copies: Vec<(UntakenEntry, bool)>,
}

impl FreshEntries {
    /// Returns true if all were taken.
    fn are_exhausted(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Returns those that were not taken, copies among them.
    fn untaken(&self) -> impl Iterator<Item = &UntakenEntry> {
        let copies = self.copies.iter().filter(|(_, is_taken)| !is_taken);
        let entries = self.entries[self.next..].iter();
        entries.chain(copies.map(|(copy, _)| copy))
    }

    /// Returns the entries that a round tells.
    fn next_entries(&self, request: &RoundRequest) -> &[UntakenEntry] {
        let left = &self.entries[self.next..];
        let is_before = |entry: &UntakenEntry| request.beyond.is_none_or(|end| entry.time < end);
        let left = &left[..left.partition_point(is_before).min(request.limit)];
        let mut bytes = 0;
        let is_beyond = |entry: &UntakenEntry| {
            bytes += u64::from(entry.place.end.saturating_sub(entry.place.offset));
            bytes > ROUND_BYTES
        };
        let fitting = left.iter().position(is_beyond);
        &left[..fitting.map_or(left.len(), |fitting| fitting.max(1))]
    }

    /// Returns the copies that are taken with an entry.
    fn copies(&self, entry: &UntakenEntry) -> impl Iterator<Item = &UntakenEntry> {
        let copies = self.copies[self.copy_range(entry)].iter();
        copies.map(|(copy, _)| copy)
    }

    /// Takes so many entries, and hands over each, followed by its copies.
    fn take(&mut self, count: usize, mut taken: impl FnMut(&UntakenEntry)) {
        for number in self.next..self.next + count {
            let entry = self.entries[number];
            taken(&entry);
            let copies = self.copy_range(&entry);
            for (copy, is_taken) in &mut self.copies[copies] {
                *is_taken = true;
                taken(copy);
            }
        }
        self.next += count;
        if self.are_exhausted() {
            *self = FreshEntries::default();
        }
    }

    /// Returns the range of an entry's copies.
    fn copy_range(&self, entry: &UntakenEntry) -> Range<usize> {
        let number = |entry: &UntakenEntry| (entry.place.key, entry.copy);
        let wanted = number(entry);
        let copies = &self.copies;
        let begin = copies.partition_point(|(copy, _)| number(copy) < wanted);
        let of_entry = self.copies[begin..].partition_point(|(copy, _)| number(copy) == wanted);
        begin..begin + of_entry
    }
}

/// One version of a list, as far as the selection has its entries.
#[derive(Debug)]
struct ListProgress {
    /// The part of the file with its entries.
    span: Range<u64>,
    /// Position of the first entry with a datetime that can be true.
    dated: Option<u32>,
    /// Entries that were not taken.
    left: usize,
    /// Keys that were taken, and that no row has yet.
    added: Vec<ChangeKey>,
    /// The time of the earliest of those that are not among the entries of the selection, and do not wait.
    late: Option<Timestamp>,
    /// Entries with a datetime that cannot be read, and that no report has counted.
    invalid: usize,
    /// Entries of a list that was closed for good that were taken without being told (C7), and that no report has counted.
    rewriting: usize,
    /// The next report of it, as far as that is known.
    report: ListTally,
}

impl ListProgress {
    /// Returns a list, and the effective times of its entries: of one without a datetime that can be true (C15), that of the
    /// last one before it that has one, or else the time of the comparison.
    fn with_times(
        list: &ListToRead,
        listed: &ListedChanges,
        at: Timestamp,
    ) -> (ListProgress, Vec<Timestamp>) {
        let mut times = Vec::with_capacity(listed.entries.len());
        let (mut dated, mut latest, mut last) = (None, None, at);
        for entry in &listed.entries {
            if let Some(time) = believed(entry, at) {
                dated.get_or_insert(entry.place.position);
                latest = latest.max(Some(time));
                last = time;
            }
            times.push(last);
        }
        let report = ListTally {
            latest,
            first_skipped: listed.first_skipped.clone(),
            closed_until: latest.filter(|_| listed.declared.until.is_some()),
            ..ListTally::new(list, listed.entries.len(), listed.skipped)
        };
        let selected = ListProgress {
            span: listed.byte_span(),
            dated,
            left: 0,
            added: Vec::new(),
            late: None,
            invalid: listed.invalid,
            rewriting: 0,
            report,
        };
        (selected, times)
    }

    /// Counts the entry with this key as taken.
    fn mark_taken(&mut self, key: ChangeKey) {
        self.left -= 1;
        self.added.push(key);
    }

    /// Returns true if this entry has no time of its own, nor has one before it: then it has that of the comparison.
    fn is_before_dated(&self, entry: &UntakenEntry) -> bool {
        self.dated.is_none_or(|dated| entry.place.position < dated)
    }

    /// Returns true if entries are left for the next round.
    fn has_more(&self) -> bool {
        self.left > self.report.waiting
    }

    /// Returns the earlier one of a time and that of an entry. One with the time of the comparison, which the next comparison
    /// changes, is the earliest of all.
    fn earlier_of(&self, time: Option<Timestamp>, entry: &UntakenEntry) -> Option<Timestamp> {
        let own = if self.is_before_dated(entry) {
            Timestamp::MIN
        } else {
            entry.time
        };
        Some(time.map_or(own, |time| time.min(own)))
    }

    /// Notes an entry that is not among those of the selection.
    fn note_unselected(&mut self, entry: &UntakenEntry) {
        if self.report.version.waits && entry.is_silent {
            self.report.waiting += 1;
        } else {
            self.late = self.earlier_of(self.late, entry);
        }
    }

    /// Notes an entry that no list tells now. Returns true if it is taken nevertheless.
    fn take_untold(&mut self, entry: &UntakenEntry, told_until: Option<Timestamp>) -> bool {
        if self.report.version.waits {
            self.report.waiting += 1;
            return false;
        }
        // It is new in a list that was closed for good.
        self.rewriting += usize::from(self.report.version.closed_until >= Some(entry.time));
        let is_new = told_until.is_some_and(|until| entry.time > until);
        let is_archived = self.report.version.is_archived && is_new && !self.is_before_dated(entry);
        self.report.untold += usize::from(is_archived);
        true
    }

    /// Notes a change that a round tells, perhaps without its datetime.
    fn note_told(&mut self, is_undated: bool, is_ahead: bool) {
        let undated = &mut self.report.undated;
        self.report.told += 1;
        if is_ahead {
            undated.ahead += 1;
        } else if is_undated && self.invalid > 0 {
            // The pass over the keys does not know which of them are fresh.
            (self.invalid, undated.invalid) = (self.invalid - 1, undated.invalid + 1);
        } else if is_undated {
            undated.missing += 1;
        }
    }

    /// Returns the list as it was taken since the last report, with the time of the earliest of all entries that are left of it.
    fn report_taken(&mut self, earliest: Option<Timestamp>) -> ListTally {
        let untold = std::mem::take(&mut self.rewriting);
        let has_told = self.report.told > 0 && self.report.waiting == 0;
        let is_rewritten = self.report.version.closed_until.is_some() && (untold > 0 || has_told);
        let first = earliest.filter(|first| *first > Timestamp::MIN && self.left > 0);
        let report = ListTally {
            is_whole: self.left == 0,
            left: first.map(|first| UntakenCount {
                first,
                count: self.left,
            }),
            taken: self.report.listed - self.left,
            rewritten: is_rewritten.then_some(untold),
            ..self.report.clone()
        };
        (self.report.told, self.report.untold) = (0, 0);
        self.report.undated = Default::default();
        report
    }
}

/// Returns true if the datetime of an entry is too far ahead to be believed.
fn is_far_ahead(entry: &ListedKey, at: Timestamp) -> bool {
    entry.datetime.is_some() && believed(entry, at).is_none()
}

/// Returns the datetime of an entry that is not too far ahead.
fn believed(entry: &ListedKey, at: Timestamp) -> Option<Timestamp> {
    let time = entry.datetime?.at();
    (time <= later(at, AHEAD)).then_some(time)
}

#[cfg(test)]
pub(super) mod tests;
