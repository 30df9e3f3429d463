//! The log of a change channel: its notifications, the same for each hub, and how much each hub was told (C21 to C23,
//! C26).

use std::collections::BTreeMap;

use jiff::Timestamp;

/// A notification without its body, which is in the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    pub from: Timestamp,
    pub until: Timestamp,
    pub entries: usize,
    /// Of the body.
    pub bytes: usize,
    pub cut: Timestamp,
}

/// The notifications of a channel that some hub was not told, and the last one, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeLog {
    notifications: BTreeMap<u64, Logged>,
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
    /// Entries before it.
    pub first: usize,
    pub entries: usize,
    /// True if it is the whole notification.
    pub is_whole: bool,
    /// Estimated size of the body.
    pub bytes: usize,
}

/// Notifications and entries that a hub was not told yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    pub notifications: usize,
    pub entries: usize,
}

impl ChangeLog {
    pub fn new(notifications: BTreeMap<u64, Logged>) -> ChangeLog {
        ChangeLog { notifications }
    }

    pub fn get(&self, seq: u64) -> Option<&Logged> {
        self.notifications.get(&seq)
    }

    pub fn push(&mut self, seq: u64, logged: Logged) {
        self.notifications.insert(seq, logged);
    }

    /// Returns the notifications in order, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Logged)> {
        self.notifications
            .iter()
            .map(|(seq, logged)| (*seq, logged))
    }

    /// Returns the number of the last notification.
    pub fn last(&self) -> Option<u64> {
        self.notifications.keys().next_back().copied()
    }

    /// Returns the notifications that a hub at this position was not told. The first one is in flight, or was
    /// withdrawn, where it skips others.
    pub fn after(&self, position: &LogPosition) -> impl DoubleEndedIterator<Item = (u64, &Logged)> {
        let (heard, skipped_to) = (position.heard, position.skipped_to.unwrap_or_default());
        let last = position.last.unwrap_or(u64::MAX);
        // A range that ends before it begins would panic.
        let after = (heard < last).then(|| self.notifications.range(heard + 1..=last));
        let after = after.into_iter().flatten();
        after
            .filter(move |(seq, _)| **seq == heard + 1 || **seq > skipped_to)
            .map(|(seq, logged)| (*seq, logged))
    }

    /// Returns how much a hub at this position was not told.
    pub fn backlog(&self, position: &LogPosition) -> Backlog {
        let mut backlog = Backlog::default();
        for (_, logged) in self.after(position) {
            backlog.notifications += 1;
            backlog.entries += logged.entries;
        }
        backlog.entries = backlog.entries.saturating_sub(position.entries);
        backlog
    }

    /// Returns what is sent next to a hub at this position, with the number of its notification; no more than `limit`
    /// entries.
    pub fn next(&self, position: &LogPosition, limit: usize) -> Option<(u64, LogPart)> {
        let (seq, logged) = self.after(position).next()?;
        let first = match seq == position.heard + 1 {
            true => position.entries.min(logged.entries.saturating_sub(1)),
            false => 0,
        };
        let entries = (logged.entries - first).min(limit.max(1));
        let part = LogPart {
            first,
            entries,
            is_whole: entries == logged.entries,
            bytes: logged.bytes * entries / logged.entries.max(1),
        };
        Some((seq, part))
    }

    /// Lets the oldest notifications count as told to a hub that is more than `most` entries behind, except what is in
    /// flight. Returns the number of their entries.
    pub fn fall_behind(
        &self,
        position: &mut LogPosition,
        flying: Option<u64>,
        most: usize,
    ) -> usize {
        let mut beyond = self.backlog(position).entries.saturating_sub(most);
        let mut dropped = 0;
        let mut skipped_to = None;
        for (seq, logged) in self.after(position) {
            if beyond == 0 {
                break;
            }
            if Some(seq) == flying {
                continue;
            }
            skipped_to = Some(seq);
            dropped += logged.entries;
            beyond = beyond.saturating_sub(logged.entries);
        }
        match (skipped_to, flying) {
            (None, _) => {}
            (Some(_), Some(_)) => position.skipped_to = skipped_to,
            (Some(seq), None) => position.skip(seq),
        }
        dropped
    }

    /// Forgets notifications up to this number, except the last one. Returns their numbers.
    pub fn forget(&mut self, heard: u64) -> Vec<u64> {
        let last = self.last();
        let forgotten = self
            .notifications
            .extract_if(..=heard, |seq, _| Some(*seq) != last);
        forgotten.map(|(seq, _)| seq).collect()
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

    /// Lets everything up to a notification count as told.
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
