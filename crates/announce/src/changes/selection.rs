//! The entries that a comparison found fresh, of which each round takes the earliest (C13).
//!
//! It is kept between the rounds of a set, and only as long as nothing else happened to the set's lists and keys: then the
//! next round would find the same.

mod fresh_entries;
mod selected_list;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::changes::fresh::{Comparison, UntakenEntry};
use crate::changes::interval::FreshChange;
use crate::changes::round::{
    AHEAD, ListToRead, RoundFiles, RoundRequest, Taken, TakenList, read_in_order,
};
use crate::changes::selection::fresh_entries::FreshEntries;
use crate::changes::selection::selected_list::{SelectedList, is_far_ahead};
use crate::changes::taken_keys::{KeyChanges, KeyRow, TakenKeys, appended};

/// The earliest fresh entries of a comparison, kept between the rounds that take them.
#[derive(Debug)]
pub struct Selection {
    /// The last round that took of it.
    round: u64,
    /// The time of the comparison.
    at: Timestamp,
    /// True if the time of an entry is that of the comparison, or may be one later.
    depends_on_time: bool,
    /// In order of their URIs.
    lists: Vec<SelectedList>,
    pub fresh: FreshEntries,
    /// Rows that were changed since the last round.
    unsaved: KeyChanges,
}

impl Selection {
    /// Compares the lists of a request with what was taken, and keeps so many fresh entries.
    pub fn compare<F: RoundFiles>(
        request: &RoundRequest,
        max: usize,
        files: &mut F,
    ) -> Result<Selection, F::Error> {
        let mut selection = Selection {
            round: request.round,
            at: request.at,
            depends_on_time: false,
            lists: Vec::with_capacity(request.lists.len()),
            fresh: FreshEntries::default(),
            unsaved: KeyChanges::new(),
        };
        let mut comparison = Comparison::new(max);
        for list in &request.lists {
            selection.add_list(request, list, &mut comparison, files)?;
        }
        let unsaved = &mut selection.unsaved;
        let mut before: Option<Uri> = None;
        let mut number = 0;
        let compared = comparison.conclude(|pass| {
            files.each_taken(&mut |list, first, row| {
                if row
                    .vanished
                    .is_some_and(|at| request.watch.is_forgotten(at))
                {
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
            selection.lists[entry.list as usize].take(entry.place.key);
        }
        selection.fresh = FreshEntries::new(compared.fresh, compared.copies);
        selection.depends_on_time = selection.fresh.left().any(|entry| {
            entry.is_ahead || selection.lists[entry.list as usize].is_before_dated(entry)
        });
        Ok(selection)
    }

    /// Compares a list with what was taken from it.
    fn add_list<F: RoundFiles>(
        &mut self,
        request: &RoundRequest,
        list: &ListToRead,
        comparison: &mut Comparison,
        files: &mut F,
    ) -> Result<(), F::Error> {
        let listed = files.keys(list)?;
        let stored = files.taken(&list.list)?;
        let mut keys = TakenKeys::new(stored, &request.watch);
        let (mut selected, times) = SelectedList::new(list, &listed, request.at);
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
                    is_silent: list.is_silent(time),
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
    pub fn is_reusable_for(&self, request: &RoundRequest) -> bool {
        let age = request.at.duration_since(self.at).unsigned_abs();
        if request.after != Some(self.round) || (self.depends_on_time && age > AHEAD) {
            return false;
        }
        let numbers = self.numbers(request);
        let is_known = request.lists.iter().all(|list| {
            let number = self
                .lists
                .binary_search_by(|of| of.report.version.list.cmp(&list.list));
            let selected = number.ok().and_then(|number| self.lists.get(number));
            selected.is_some_and(|selected| selected.is_version(list) && !list.is_learned)
        });
        let lists = self.lists.iter().zip(&numbers);
        let has_all = request.beyond.is_some()
            || lists
                .filter(|(list, _)| list.has_more())
                .all(|(_, number)| number.is_some());
        let next = self.fresh.next(request);
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
    fn numbers(&self, request: &RoundRequest) -> Vec<Option<usize>> {
        let lists = self.lists.iter();
        lists
            .map(|list| request.number(&list.report.version.list))
            .collect()
    }

    /// Takes the earliest entries, and reads them.
    pub fn take<F: RoundFiles>(
        &mut self,
        request: &RoundRequest,
        files: &mut F,
    ) -> Result<Taken, F::Error> {
        self.round = request.round;
        let numbers = self.numbers(request);
        let told = self.fresh.next(request).to_vec();
        let entries = told.iter();
        let entries = entries.map(|entry| (entry.list as usize, entry.place));
        let changes = read_in_order(entries, |list, places| match numbers[list] {
            Some(number) => files.changes(&request.lists[number], &self.lists[list].span, places),
            None => Ok(Vec::new()),
        })?;
        let changes = changes.into_iter().zip(&told);
        let changes = changes.map(|(change, entry)| FreshChange {
            change,
            time: entry.time,
            list: numbers[entry.list as usize].unwrap_or_default(),
        });
        let changes: Vec<FreshChange> = changes.collect();
        self.fresh.take(told.len(), |entry| {
            self.lists[entry.list as usize].take(entry.place.key)
        });
        let mut keys = std::mem::take(&mut self.unsaved);
        for list in &mut self.lists {
            let uri = &list.report.version.list;
            if !list.added.is_empty() {
                let last = last_row(uri, &keys, files)?;
                let rows = appended(last, list.added.drain(..)).into_iter();
                keys.extend(rows.map(|(number, row)| ((uri.clone(), number), Some(row))));
            }
        }
        for (entry, fresh) in told.iter().zip(&changes) {
            let is_undated = fresh.change.datetime.is_none();
            self.lists[entry.list as usize].note_told(is_undated, entry.is_ahead);
        }
        let mut earliest: Vec<_> = self.lists.iter().map(|list| list.late).collect();
        for entry in self.fresh.left() {
            let list = entry.list as usize;
            earliest[list] = self.lists[list].earlier(earliest[list], entry);
        }
        let mut lists: Vec<Option<TakenList>> = vec![None; request.lists.len()];
        for ((list, earliest), number) in self.lists.iter_mut().zip(earliest).zip(numbers) {
            if let Some(number) = number {
                lists[number] = Some(list.report(earliest));
            }
        }
        Ok(Taken {
            has_more: request.beyond.is_some() || self.lists.iter().any(SelectedList::has_more),
            lists: lists.into_iter().flatten().collect(),
            changes,
            keys,
            ..Taken::default()
        })
    }
}

/// Returns the last row of keys of a list that are present, with those that are to be written.
fn last_row<F: RoundFiles>(
    list: &Uri,
    rows: &KeyChanges,
    files: &mut F,
) -> Result<Option<(u32, KeyRow)>, F::Error> {
    let all = (list.clone(), 0)..=(list.clone(), u32::MAX);
    let is_present = |row: &KeyRow| row.vanished.is_none();
    let mut unsaved = rows.range(all).rev().filter_map(|((_, number), row)| {
        let row = row.as_ref().filter(|row| is_present(row))?;
        Some((*number, row.clone()))
    });
    let unsaved = unsaved.next();
    let saved = files.last_taken(list)?.map(|(number, row)| {
        let is_deleted = rows.contains_key(&(list.clone(), number));
        if is_deleted {
            (number, KeyRow::new(&[], None))
        } else {
            (number, row)
        }
    });
    Ok(match (unsaved, saved) {
        (Some(unsaved), Some(saved)) if saved.0 > unsaved.0 => Some(saved),
        (unsaved, saved) => unsaved.or(saved),
    })
}
