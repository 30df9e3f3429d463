//! The log of a change channel: its notifications, the same for each hub, and how much each hub was told (C21 to C23,
//! C26).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jiff::Timestamp;

/// A notification without its body, which is in the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    pub from: Timestamp,
    pub until: Timestamp,
    pub entries: usize,
    /// Size of the body.
    pub bytes: usize,
    pub cut: Timestamp,
}

/// The notifications of a channel that some hub was not told, and the last one, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeLog {
    notifications: BTreeMap<u64, Counted>,
}

/// A notification with running totals, from which a backlog is known without a walk over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    logged: Logged,
    /// All that was logged before it, forgotten notifications included.
    before: Backlog,
}

/// The part of the log that a hub was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of the last notification that the hub accepted in full, or that counts as told.
    pub heard: u64,
    /// Entries of the next one that it accepted, where it takes it in parts (C23).
    pub entries: usize,
    /// Number up to which all counts as told once what is in flight is answered: the hub fell behind (C22).
    pub skipped_to: Option<u64>,
    /// Number of the last notification for it, if the hub is advertised no more (R11).
    pub last: Option<u64>,
}

/// The entries of one logged notification that are sent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPart {
    pub range: LogRange,
    /// Estimated size of the body.
    pub bytes: usize,
}

/// A range of the entries of one logged notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRange {
    Whole { entries: usize },
    Part { start: usize, end: usize },
}

/// Notifications and entries that a hub was not told yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    pub notifications: usize,
    pub entries: usize,
}

impl LogRange {
    /// Returns the number of entries before it.
    pub fn start(self) -> usize {
        match self {
            LogRange::Whole { .. } => 0,
            LogRange::Part { start, .. } => start,
        }
    }

    /// Returns the number of its entries.
    pub fn entries(self) -> usize {
        match self {
            LogRange::Whole { entries } => entries,
            LogRange::Part { start, end } => end.saturating_sub(start),
        }
    }

    pub fn is_whole(self) -> bool {
        matches!(self, LogRange::Whole { .. })
    }
}

impl ChangeLog {
    pub fn new(notifications: BTreeMap<u64, Logged>) -> ChangeLog {
        let mut log = ChangeLog::default();
        for (seq, logged) in notifications {
            log.push(seq, logged);
        }
        log
    }

    pub fn get(&self, seq: u64) -> Option<&Logged> {
        self.notifications.get(&seq).map(|counted| &counted.logged)
    }

    pub fn push(&mut self, seq: u64, logged: Logged) {
        let before = self.total();
        self.notifications.insert(seq, Counted { logged, before });
    }

    /// Returns the notifications in order, with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Logged)> {
        let notifications = self.notifications.iter();
        notifications.map(|(seq, counted)| (*seq, &counted.logged))
    }

    /// Returns the number of the last notification.
    pub fn last(&self) -> Option<u64> {
        self.notifications.keys().next_back().copied()
    }

    /// Returns the notifications that a hub at this position was not told. The first one is in flight, or was
    /// withdrawn, where it skips others.
    pub fn after(&self, position: &LogPosition) -> impl DoubleEndedIterator<Item = (u64, &Logged)> {
        let after = self.next_after(position).into_iter();
        let after = after.chain(self.later_after(position));
        after.map(|(seq, counted)| (*seq, &counted.logged))
    }

    /// Returns the notification that follows the last one that a hub at this position was told.
    fn next_after(&self, position: &LogPosition) -> Option<(&u64, &Counted)> {
        let next = position.next();
        let is_for_it = position.last.is_none_or(|last| next <= last);
        self.notifications
            .get_key_value(&next)
            .filter(|_| is_for_it)
    }

    /// Returns the notifications after that one which a hub at this position was not told.
    fn later_after(
        &self,
        position: &LogPosition,
    ) -> impl DoubleEndedIterator<Item = (&u64, &Counted)> {
        let (first, last) = (position.first_later(), position.last.unwrap_or(u64::MAX));
        // A range that ends before it begins would panic.
        let later = (first <= last).then(|| self.notifications.range(first..=last));
        later.into_iter().flatten()
    }

    /// Returns how much a hub at this position was not told.
    pub fn backlog(&self, position: &LogPosition) -> Backlog {
        let mut backlog = Backlog::default();
        if let Some((_, next)) = self.next_after(position) {
            backlog = Backlog::of(&next.logged);
        }
        let mut later = self.later_after(position);
        if let Some((_, first)) = later.next() {
            let (_, last) = later.next_back().unwrap_or((&0, first));
            let total = last.total();
            backlog.notifications += total.notifications - first.before.notifications;
            backlog.entries += total.entries - first.before.entries;
        }
        backlog.entries = backlog.entries.saturating_sub(position.entries);
        backlog
    }

    /// Returns the number of entries that were logged after a notification.
    fn entries_after(&self, seq: u64) -> usize {
        let first = self.notifications.range(seq.saturating_add(1)..).next();
        first.map_or(0, |(_, first)| self.total().entries - first.before.entries)
    }

    /// Returns all that was logged so far.
    fn total(&self) -> Backlog {
        let last = self.notifications.values().next_back();
        last.map(Counted::total).unwrap_or_default()
    }

    /// Returns what is sent next to a hub at this position, with the number of its notification; no more than `limit`
    /// entries.
    pub fn next(&self, position: &LogPosition, limit: usize) -> Option<(u64, LogPart)> {
        let (seq, logged) = self.after(position).next()?;
        let first = match seq == position.next() {
            true => position.entries.min(logged.entries.saturating_sub(1)),
            false => 0,
        };
        let entries = (logged.entries - first).min(limit.max(1));
        let range = match entries == logged.entries {
            true => LogRange::Whole { entries },
            false => LogRange::Part {
                start: first,
                end: first + entries,
            },
        };
        let part = LogPart {
            range,
            bytes: logged.bytes * entries / logged.entries.max(1),
        };
        Some((seq, part))
    }

    /// Counts the oldest notifications as told to a hub that is more than `max` entries behind, except the next one if
    /// it is in flight. Returns the number of their entries.
    pub fn fall_behind(
        &self,
        position: &mut LogPosition,
        flying: Option<u64>,
        max: usize,
    ) -> usize {
        if self.backlog(position).entries <= max {
            return 0;
        }
        let before = *position;
        let next = self.next_after(&before);
        let next =
            next.map(|(seq, next)| (*seq, next.logged.entries.saturating_sub(before.entries)));
        let (mut kept, mut dropped, mut skipped_to) = (0, 0, None);
        match next {
            Some((seq, entries)) if Some(seq) == flying => kept = entries,
            Some((seq, entries)) => (dropped, skipped_to) = (entries, Some(seq)),
            None => {}
        }
        let end = self.later_after(&before).next_back();
        let end = end.map_or(0, |(_, last)| last.total().entries);
        for (seq, counted) in self.later_after(&before) {
            if kept + end - counted.before.entries <= max {
                break;
            }
            dropped += counted.logged.entries;
            skipped_to = Some(*seq);
        }
        match (skipped_to, flying) {
            (None, _) => {}
            (Some(_), Some(_)) => position.skipped_to = skipped_to,
            (Some(seq), None) => position.skip(before.skipped_to.map_or(seq, |to| to.max(seq))),
        }
        dropped
    }

    /// Returns the numbers of the notifications that a hub at this position may still be sent, of which one may be in
    /// flight. For a hub that left, later notifications are included while they have at most `max` entries, because it
    /// continues there if it returns (R11, C22).
    pub fn wanted(
        &self,
        position: &LogPosition,
        flying: Option<u64>,
        max: usize,
    ) -> [RangeInclusive<u64>; 3] {
        let next = position.next();
        let flying = flying.unwrap_or(next);
        let is_far = |last: &u64| self.entries_after(*last) > max;
        let last = position.last.filter(is_far).unwrap_or(u64::MAX);
        [next..=next, flying..=flying, position.first_later()..=last]
    }

    /// Forgets all notifications but those with a number in one of these ranges, and the last one. Returns their numbers.
    pub fn forget(&mut self, wanted: impl IntoIterator<Item = RangeInclusive<u64>>) -> Vec<u64> {
        let wanted = wanted.into_iter().filter(|range| !range.is_empty());
        let mut wanted: Vec<(u64, u64)> = wanted.map(RangeInclusive::into_inner).collect();
        wanted.extend(self.last().map(|last| (last, u64::MAX)));
        wanted.sort_unstable();
        let mut forgotten = Vec::new();
        let mut begin = 0;
        for (first, last) in wanted {
            if begin < first {
                let between = self.notifications.extract_if(begin..first, |_, _| true);
                forgotten.extend(between.map(|(seq, _)| seq));
            }
            begin = begin.max(last.saturating_add(1));
        }
        forgotten
    }
}

impl Counted {
    /// Returns all that was logged up to this one.
    fn total(&self) -> Backlog {
        Backlog {
            notifications: self.before.notifications + 1,
            entries: self.before.entries + self.logged.entries,
        }
    }
}

impl Backlog {
    fn of(logged: &Logged) -> Backlog {
        Backlog {
            notifications: 1,
            entries: logged.entries,
        }
    }
}

impl LogPosition {
    /// Returns the position of a hub that is sent all from the next notification on (C26).
    pub fn at(seq: u64) -> LogPosition {
        LogPosition {
            heard: seq,
            ..LogPosition::default()
        }
    }

    /// Returns the number of the notification after the last one that was told.
    fn next(&self) -> u64 {
        self.heard.saturating_add(1)
    }

    /// Returns the number of the first notification after that one which does not count as told.
    fn first_later(&self) -> u64 {
        let skipped_to = self.skipped_to.unwrap_or_default();
        self.next().max(skipped_to).saturating_add(1)
    }

    /// Counts everything up to a notification as told.
    pub fn skip(&mut self, seq: u64) {
        if seq > self.heard {
            (self.heard, self.entries) = (seq, 0);
        }
        self.skipped_to = self.skipped_to.filter(|to| *to > self.heard);
    }

    /// Notes that the hub accepted entries of a notification that has so many. Returns true if it has the whole now.
    pub fn accept(&mut self, seq: u64, part: usize, of: usize) -> bool {
        if seq > self.heard + 1 {
            (self.heard, self.entries) = (seq - 1, 0);
        }
        if seq == self.heard + 1 {
            self.entries += part;
        }
        let is_whole = seq <= self.heard || self.entries >= of;
        if is_whole {
            self.skip(seq);
            if let Some(to) = self.skipped_to {
                self.skip(to);
            }
        }
        is_whole
    }

    /// Returns true if the hub has left, and was told its last notification.
    pub fn has_ended(&self) -> bool {
        self.last.is_some_and(|last| self.heard >= last)
    }
}

#[cfg(test)]
mod tests;
