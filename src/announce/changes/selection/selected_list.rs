//! One list of a selection: what it has as it was read, and what of it was taken.

use std::ops::Range;

use jiff::Timestamp;
use resourcesync::change_list::{ListedChanges, Skipped};
use resourcesync::uri::Uri;

use crate::announce::changes::fresh::Candidate;
use crate::announce::changes::round::{LeftEntries, ListToRead, TakenList, UndatedChanges};
use crate::announce::changes::selection::effective_times::EffectiveTimes;

/// One version of a list.
#[derive(Debug)]
pub struct SelectedList {
    version: ListToRead,
    entries: ReadEntries,
    pub left: UntakenEntries,
    unreported: UnreportedEntries,
}

impl SelectedList {
    /// Returns a list of which so many entries are `left`.
    pub fn new(
        list: &ListToRead,
        listed: &ListedChanges,
        times: &EffectiveTimes,
        left: usize,
    ) -> SelectedList {
        SelectedList {
            version: list.clone(),
            entries: ReadEntries::new(listed, times),
            left: UntakenEntries {
                count: left,
                ..UntakenEntries::default()
            },
            unreported: UnreportedEntries {
                invalid: listed.undated.invalid,
                ..UnreportedEntries::default()
            },
        }
    }

    pub fn uri(&self) -> &Uri {
        &self.version.list
    }

    /// Returns the part of the file with its entries.
    pub fn span(&self) -> &Range<u64> {
        &self.entries.span
    }

    /// Returns true if a comparison with a list to read would find the same.
    pub fn is_version(&self, list: &ListToRead) -> bool {
        let version = |of: &ListToRead| (of.stat, of.fingerprint, of.waits);
        version(&self.version) == version(list)
    }

    /// Returns true if this entry has no time of its own, nor has one before it: then it has that of the comparison.
    pub fn is_head(&self, entry: &Candidate) -> bool {
        self.entries.is_head(entry.place.position)
    }

    /// Returns true if entries are left for the next round.
    pub fn has_more(&self) -> bool {
        self.left.count > self.left.waiting
    }

    /// Notes an entry that is not among those of the selection.
    pub fn note_late(&mut self, entry: &Candidate) {
        if self.version.waits && entry.is_silent {
            self.left.waiting += 1;
            return;
        }
        self.left.late.add(entry, self.is_head(entry));
    }

    /// Notes an entry that no list tells now. Returns true if it is taken nevertheless.
    pub fn note_untold(&mut self, entry: &Candidate, told_until: Option<Timestamp>) -> bool {
        if self.version.waits {
            self.left.waiting += 1;
            return false;
        }
        let is_rewriting = self.version.is_rewriting(entry.time);
        self.unreported.untold += usize::from(is_rewriting);
        let is_new = told_until.is_some_and(|until| entry.time > until);
        let has_time = !self.is_head(entry);
        let is_archived = self.version.is_archived && is_new && has_time;
        self.unreported.archived += usize::from(is_archived);
        true
    }

    /// Counts one more entry as taken.
    pub fn take(&mut self) {
        self.left.count -= 1;
    }

    /// Returns the list as it was taken now, with those of its changes that are told, and the earliest of all entries that
    /// are left of it.
    pub fn report(&mut self, changes: ToldChanges, earliest: EarliestEntry) -> TakenList {
        let (version, entries, left) = (&self.version, &self.entries, &self.left);
        let undated = self.unreported.undated(changes);
        let untold = std::mem::take(&mut self.unreported.untold);
        let has_told = changes.told > 0 && left.waiting == 0;
        let is_rewritten = version.closed_until.is_some() && (untold > 0 || has_told);
        TakenList {
            list: version.list.clone(),
            version: version.fingerprint,
            fingerprint: (left.count == 0).then_some(version.fingerprint),
            left: left.entries(earliest),
            listed: entries.count,
            taken: entries.count - left.count,
            waiting: left.waiting,
            untold: std::mem::take(&mut self.unreported.archived),
            told: changes.told,
            latest: entries.latest,
            skipped: entries.skipped,
            first_skipped: entries.first_skipped.clone(),
            undated,
            rewritten: is_rewritten.then_some(untold),
            closed_until: entries.closed_until,
        }
    }
}

/// The entries of a list as it was read.
#[derive(Debug)]
struct ReadEntries {
    /// The part of the file with them.
    span: Range<u64>,
    /// Entries that count.
    count: usize,
    /// Position of the first one with a datetime that can be true.
    dated: Option<u32>,
    latest: Option<Timestamp>,
    /// See [`TakenList::closed_until`].
    closed_until: Option<Timestamp>,
    /// Entries that do not count.
    skipped: usize,
    first_skipped: Option<Skipped>,
}

impl ReadEntries {
    fn new(listed: &ListedChanges, times: &EffectiveTimes) -> ReadEntries {
        let is_closed = listed.declared.until.is_some();
        ReadEntries {
            span: listed.span(),
            count: listed.entries.len(),
            dated: times.dated,
            latest: times.latest,
            closed_until: times.latest.filter(|_| is_closed),
            skipped: listed.skipped,
            first_skipped: listed.first_skipped.clone(),
        }
    }

    /// Returns true if no entry up to this one has a time of its own.
    fn is_head(&self, position: u32) -> bool {
        self.dated.is_none_or(|dated| position < dated)
    }
}

/// Entries of a list that were not taken.
#[derive(Debug, Default)]
pub struct UntakenEntries {
    count: usize,
    /// See [`TakenList::waiting`].
    waiting: usize,
    /// The earliest of those that are not among the entries of the selection, and do not wait.
    pub late: EarliestEntry,
}

impl UntakenEntries {
    /// Returns them, if the time of the earliest is known.
    fn entries(&self, earliest: EarliestEntry) -> Option<LeftEntries> {
        match earliest {
            EarliestEntry::At(first) if self.count > 0 => Some(LeftEntries {
                first,
                count: self.count,
            }),
            _ => None,
        }
    }
}

/// The earliest of some entries.
#[derive(Debug, Clone, Copy, Default)]
pub enum EarliestEntry {
    /// There are none.
    #[default]
    None,
    At(Timestamp),
    /// One of them has the time of the comparison, which the next comparison changes.
    Unknown,
}

impl EarliestEntry {
    /// Adds an entry, which has the time of the comparison if it `is_head`.
    pub fn add(&mut self, entry: &Candidate, is_head: bool) {
        *self = match *self {
            EarliestEntry::Unknown => EarliestEntry::Unknown,
            _ if is_head => EarliestEntry::Unknown,
            EarliestEntry::None => EarliestEntry::At(entry.time),
            EarliestEntry::At(first) => EarliestEntry::At(first.min(entry.time)),
        };
    }
}

/// Entries that no report has counted yet.
#[derive(Debug, Default)]
struct UnreportedEntries {
    /// Entries of a list that was closed for good that were taken without being told (C7).
    untold: usize,
    /// See [`TakenList::untold`].
    archived: usize,
    /// Entries with a datetime that cannot be read.
    invalid: usize,
}

impl UnreportedEntries {
    /// Counts changes without a datetime by reason.
    fn undated(&mut self, changes: ToldChanges) -> UndatedChanges {
        let unstated = changes.undated - changes.ahead;
        // The pass over the keys does not know which of them are fresh.
        let invalid = self.invalid.min(unstated);
        self.invalid -= invalid;
        UndatedChanges {
            missing: unstated - invalid,
            invalid,
            ahead: changes.ahead,
        }
    }
}

/// Numbers of changes of a list that one round tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToldChanges {
    told: usize,
    /// Of these, changes without a datetime.
    undated: usize,
    /// Of these, changes whose datetime lies ahead.
    ahead: usize,
}

impl ToldChanges {
    pub fn add(&mut self, is_undated: bool, is_ahead: bool) {
        self.told += 1;
        self.undated += usize::from(is_undated);
        self.ahead += usize::from(is_ahead);
    }
}
