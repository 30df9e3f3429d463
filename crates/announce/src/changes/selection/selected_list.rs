//! One list of a selection: what it has as it was read, with the times by which its entries are ordered (C13), and what of it
//! was taken.

use std::ops::Range;

use jiff::Timestamp;
use resourcesync::change::ChangeKey;
use resourcesync::change_list::{ListedChange, ListedChanges};

use crate::changes::fresh::UntakenEntry;
use crate::changes::round::{AHEAD, LeftEntries, ListToRead, TakenList};
use crate::time::later;

/// One version of a list, as far as the selection has its entries.
#[derive(Debug)]
pub struct SelectedList {
    /// The part of the file with its entries.
    pub span: Range<u64>,
    /// Position of the first entry with a datetime that can be true.
    dated: Option<u32>,
    /// Entries that were not taken.
    pub left: usize,
    /// Keys that were taken, and that no row has yet.
    pub added: Vec<ChangeKey>,
    /// The time of the earliest of those that are not among the entries of the selection, and do not wait.
    pub late: Option<Timestamp>,
    /// Entries with a datetime that cannot be read, and that no report has counted.
    invalid: usize,
    /// Entries of a list that was closed for good that were taken without being told (C7), and that no report has counted.
    rewriting: usize,
    /// The next report of it, as far as that is known.
    pub report: TakenList,
}

impl SelectedList {
    /// Returns a list, and the effective times of its entries: of one without a datetime that can be true (C15), that of the
    /// last one before it that has one, or else the time of the comparison.
    pub fn new(
        list: &ListToRead,
        listed: &ListedChanges,
        at: Timestamp,
    ) -> (SelectedList, Vec<Timestamp>) {
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
        let report = TakenList {
            latest,
            first_skipped: listed.first_skipped.clone(),
            closed_until: latest.filter(|_| listed.declared.until.is_some()),
            ..TakenList::new(list, listed.entries.len(), listed.skipped)
        };
        let selected = SelectedList {
            span: listed.span(),
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
    pub fn take(&mut self, key: ChangeKey) {
        self.left -= 1;
        self.added.push(key);
    }

    /// Returns true if a comparison with a list to read would find the same.
    pub fn is_version(&self, list: &ListToRead) -> bool {
        let version = |of: &ListToRead| (of.stat, of.fingerprint, of.waits);
        version(&self.report.version) == version(list)
    }

    /// Returns true if this entry has no time of its own, nor has one before it: then it has that of the comparison.
    pub fn is_before_dated(&self, entry: &UntakenEntry) -> bool {
        self.dated.is_none_or(|dated| entry.place.position < dated)
    }

    /// Returns true if entries are left for the next round.
    pub fn has_more(&self) -> bool {
        self.left > self.report.waiting
    }

    /// Returns the earlier one of a time and that of an entry. One with the time of the comparison, which the next comparison
    /// changes, is the earliest of all.
    pub fn earlier(&self, time: Option<Timestamp>, entry: &UntakenEntry) -> Option<Timestamp> {
        let own = if self.is_before_dated(entry) {
            Timestamp::MIN
        } else {
            entry.time
        };
        Some(time.map_or(own, |time| time.min(own)))
    }

    /// Notes an entry that is not among those of the selection.
    pub fn note_unselected(&mut self, entry: &UntakenEntry) {
        if self.report.version.waits && entry.is_silent {
            self.report.waiting += 1;
        } else {
            self.late = self.earlier(self.late, entry);
        }
    }

    /// Notes an entry that no list tells now. Returns true if it is taken nevertheless.
    pub fn take_untold(&mut self, entry: &UntakenEntry, told_until: Option<Timestamp>) -> bool {
        if self.report.version.waits {
            self.report.waiting += 1;
            return false;
        }
        self.rewriting += usize::from(self.report.version.is_closed_at(entry.time));
        let is_new = told_until.is_some_and(|until| entry.time > until);
        let is_archived = self.report.version.is_archived && is_new && !self.is_before_dated(entry);
        self.report.untold += usize::from(is_archived);
        true
    }

    /// Notes a change that a round tells, perhaps without its datetime.
    pub fn note_told(&mut self, is_undated: bool, is_ahead: bool) {
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
    pub fn report(&mut self, earliest: Option<Timestamp>) -> TakenList {
        let untold = std::mem::take(&mut self.rewriting);
        let has_told = self.report.told > 0 && self.report.waiting == 0;
        let is_rewritten = self.report.version.closed_until.is_some() && (untold > 0 || has_told);
        let first = earliest.filter(|first| *first > Timestamp::MIN && self.left > 0);
        let report = TakenList {
            is_whole: self.left == 0,
            left: first.map(|first| LeftEntries {
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
pub fn is_far_ahead(entry: &ListedChange, at: Timestamp) -> bool {
    entry.datetime.is_some() && believed(entry, at).is_none()
}

/// Returns the datetime of an entry that is not too far ahead.
fn believed(entry: &ListedChange, at: Timestamp) -> Option<Timestamp> {
    let time = entry.datetime?.at();
    (time <= later(at, AHEAD)).then_some(time)
}
