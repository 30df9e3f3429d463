//! One candidate file over time: what was read and reported of it last, and whether it may be read now (R3, R4). Pure.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::tree::model::DirectorySlot;
use crate::tree::pending_hints::NameHint;
use crate::tree::watches::NameWatch;
use announce::observation::{FileId, Incomplete, RACY, Stat};

/// Wait for the first write to a new file, which tells it from one that is made without being written (a hard link,
/// `O_TMPFILE`).
const CREATED_GRACE: Duration = Duration::from_millis(2);
/// Time for a new empty file to be filled before it is reported as broken.
pub const EMPTY_GRACE: Duration = Duration::from_millis(50);
/// Duration from which a write is reported as long.
pub const LONG_WRITE: Duration = Duration::from_secs(2);
/// Age of a change until which a broken file may be mended through a map without new times: a write to a mapped page
/// changes them once, and not again until the kernel has saved the page.
const MAPPED: SignedDuration = SignedDuration::from_secs(60);
/// Delay of the first retry of an incomplete file, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// One path that is a candidate file, possibly by a link.
#[derive(Debug, Default)]
pub struct TrackedFile {
    pub directory: DirectorySlot,
    pub name: Arc<[u8]>,
    pub link: Option<Box<LinkedFile>>,
    pub last_read: Option<LastRead>,
    pub reported: LastReport,
    activity: Activity,
    /// True if somebody waits for a report.
    pub is_requested: bool,
    /// Reads in a row that found it incomplete.
    failures: u8,
}

/// The last read of a file to its end. A large tree has many: of the stat data, which is compared only, it keeps the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRead {
    stat: u64,
    at: Timestamp,
}

impl LastRead {
    pub fn new(stat: &Stat, at: Timestamp) -> LastRead {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(stat);
        LastRead { stat: hash, at }
    }
}

/// The file that a link leads to.
#[derive(Debug)]
pub struct LinkedFile {
    pub identity: FileId,
    pub watch: Option<NameWatch>,
}

/// The last report about a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum LastReport {
    #[default]
    Nothing,
    Whole,
    Incomplete(Box<Incomplete>),
}

/// Activity of a file's writers since it was read last, as far as it is known. It decides when the file is read next.
#[derive(Debug, Default)]
enum Activity {
    /// No event: it is read if its stat data has changed, once it has settled.
    #[default]
    None,
    /// It is read even if its stat data is the same, once it has settled.
    Stale,
    /// Found changed without an event, with this stat data since then: it must be left alone for `settle` (R3).
    Unsettled(Box<(Stat, Instant)>),
    /// An event said that a writer has it open, and none that it is closed.
    Writing(Box<Writing>),
    /// An event said that its writer is done: it is read at once.
    Closed,
}

/// A writer that has a file open, as far as events tell.
#[derive(Debug, Clone, Copy)]
struct Writing {
    since: Instant,
    /// Time of the last event.
    last: Instant,
}

impl TrackedFile {
    pub fn new(directory: DirectorySlot, name: Arc<[u8]>) -> TrackedFile {
        TrackedFile {
            directory,
            name,
            ..TrackedFile::default()
        }
    }

    /// Adopts the read of an earlier run: unchanged, the file is not read again.
    pub fn adopt_read(&mut self, last_read: LastRead) {
        self.last_read = Some(last_read);
        self.reported = LastReport::Whole;
    }

    /// Takes note of events about this file, and returns after how long it is read; nothing if they do not tell. R3: until
    /// its writer is done, it is not read.
    pub fn apply_hint(
        &mut self,
        hint: NameHint,
        now: Instant,
        open_writer: Duration,
    ) -> Option<Duration> {
        if hint.is_complete == Some(false) {
            return match &mut self.activity {
                Activity::Writing(writing) if !hint.renamed => {
                    writing.last = now;
                    None
                }
                activity => {
                    *activity = Activity::Writing(Box::new(Writing {
                        since: now,
                        last: now,
                    }));
                    Some(LONG_WRITE.min(open_writer))
                }
            };
        }
        let is_writing = matches!(self.activity, Activity::Writing(_));
        let is_done =
            hint.is_complete == Some(true) || hint.touched && !hint.renamed && !is_writing;
        if is_done || hint.renamed {
            self.activity = Activity::Closed;
        } else if hint.unclear {
            self.mark_stale();
        } else {
            return None;
        }
        let is_at_once = is_done || hint.unclear;
        Some(if is_at_once {
            Duration::ZERO
        } else {
            CREATED_GRACE
        })
    }

    /// Takes note that somebody waits for a report.
    pub fn request_report(&mut self) {
        self.is_requested = true;
        self.mark_stale();
    }

    /// Takes note that a writer is done, by an event elsewhere.
    pub fn writer_closed(&mut self) {
        if !matches!(self.activity, Activity::Writing(_)) {
            self.activity = Activity::Closed;
        }
    }

    /// Forgets a writer whose closing event may have been lost.
    pub fn forget_writer(&mut self) {
        if matches!(self.activity, Activity::Writing(_)) {
            self.activity = Activity::Stale;
        }
    }

    fn mark_stale(&mut self) {
        if matches!(self.activity, Activity::None) {
            self.activity = Activity::Stale;
        }
    }

    /// Returns true if this is the stat data of the last read.
    pub fn was_read_with(&self, stat: &Stat) -> bool {
        self.last_read
            .is_some_and(|last_read| last_read == LastRead::new(stat, last_read.at))
    }

    /// Returns true if this stat data says that the file is as it was read last.
    pub fn is_unchanged(&self, stat: &Stat, has_sharp_times: bool) -> bool {
        let was_racy = |last_read: LastRead| is_racy(stat, last_read.at);
        self.was_read_with(stat) && (has_sharp_times || !self.last_read.is_some_and(was_racy))
    }

    /// Returns how long to wait for a writer that has the file open, and whether that has taken so long that it is to be
    /// reported; nothing if there is none. R3: it is waited for until it has
    /// not written for `open_writer`: it may keep the file open for ever, and `truncate` by path has no closing event.
    pub fn writer_wait(&mut self, now: Instant, open_writer: Duration) -> Option<(Duration, bool)> {
        let Activity::Writing(writing) = &self.activity else {
            return None;
        };
        let left = open_writer.saturating_sub(now.duration_since(writing.last));
        if left.is_zero() {
            self.activity = Activity::Closed;
            return None;
        }
        let until_long = LONG_WRITE.saturating_sub(now.duration_since(writing.since));
        let is_long = until_long.is_zero();
        let again_after = if is_long { left } else { left.min(until_long) };
        Some((again_after, is_long))
    }

    /// Returns true if the last report still holds, so that the file need not be read.
    pub fn is_report_valid(&self, stat: &Stat, now: Timestamp, has_sharp_times: bool) -> bool {
        let may_be_mapped = |last_read: LastRead| may_be_mended_by_map(stat, last_read.at, now);
        let was_read = match &self.reported {
            LastReport::Whole => true,
            LastReport::Incomplete(reason) => {
                matches!(**reason, Incomplete::Malformed(_))
                    && !self.last_read.is_some_and(may_be_mapped)
            }
            LastReport::Nothing => false,
        };
        was_read
            && matches!(self.activity, Activity::None | Activity::Writing(_))
            && self.is_unchanged(stat, has_sharp_times)
    }

    /// Returns how long the file must still be left alone, and whether its times lie in the past, as they do by a clock that
    /// is right; nothing if it has settled. R3: a file found without an event
    /// must have been left alone for `settle`. Times in the future, by a wrong clock, count from the first look.
    pub fn settle_wait(
        &mut self,
        stat: &Stat,
        now: (Instant, Timestamp),
        settle: Duration,
    ) -> Option<(Duration, bool)> {
        // A file that was read as it is now is not doubted for being looked at again.
        let is_believed = self.reported == LastReport::Whole && self.was_read_with(stat);
        if is_believed || matches!(self.activity, Activity::Closed) {
            return None;
        }
        let changed = stat.modified.max(stat.changed);
        let age = Duration::try_from(now.1.duration_since(changed)).ok();
        let seen_for = match &self.activity {
            Activity::Unsettled(seen) if seen.0 == *stat => now.0.duration_since(seen.1),
            _ => Duration::ZERO,
        };
        if age.is_some_and(|age| age >= settle) || seen_for >= settle {
            if matches!(self.activity, Activity::Unsettled(_)) {
                self.activity = Activity::Stale;
            }
            return None;
        }
        if seen_for.is_zero() {
            self.activity = Activity::Unsettled(Box::new((*stat, now.0)));
        }
        let left = settle - age.unwrap_or(seen_for).max(seen_for) + Duration::from_millis(1);
        Some((left, age.is_some()))
    }

    /// Takes note of a read that found the file complete.
    pub fn note_whole_read(&mut self, stat: Stat, now: Timestamp) {
        self.last_read = Some(LastRead::new(&stat, now));
        self.reported = LastReport::Whole;
        self.activity = Activity::None;
        self.is_requested = false;
        self.failures = 0;
    }

    /// Takes note of a read that found the file incomplete, with its stat data if it was read to an end. Returns how long to
    /// wait before that is reported, if it is new and empty, and likely to be filled soon.
    pub fn note_incomplete_read(&mut self, stat: Option<Stat>, now: Timestamp) -> Option<Duration> {
        let is_new_and_empty = self.reported == LastReport::Nothing
            && matches!(self.activity, Activity::Closed)
            && self.failures == 0
            && !self.is_requested
            && stat.is_some_and(|stat| stat.size == 0);
        let last_read = stat.map(|stat| LastRead::new(&stat, now));
        if self.last_read.map(|read| read.stat) != last_read.map(|read| read.stat) {
            self.failures = 0;
        }
        self.last_read = last_read;
        if !matches!(self.activity, Activity::Writing(_)) {
            self.activity = Activity::None;
        }
        if is_new_and_empty {
            self.failures = 1;
            return Some(EMPTY_GRACE);
        }
        None
    }

    /// Returns how long to wait for the next retry, longer each time.
    pub fn next_retry_delay(&mut self) -> Duration {
        let after = FIRST_RETRY.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        after.min(LAST_RETRY)
    }

    /// Takes note that the file is incomplete for this reason. Returns true if that is to be reported: once for each
    /// reason, and whenever somebody waits.
    pub fn must_report_incomplete(&mut self, reason: &Incomplete) -> bool {
        let is_reported =
            matches!(&self.reported, LastReport::Incomplete(before) if **before == *reason);
        if is_reported && !self.is_requested {
            return false;
        }
        self.is_requested = false;
        self.reported = LastReport::Incomplete(Box::new(reason.clone()));
        true
    }
}

/// Returns true if a file may have changed after it was read without its stat data showing it (R4).
pub fn is_racy(stat: &Stat, read_at: Timestamp) -> bool {
    let is_near = |changed| read_at.duration_since(changed).unsigned_abs() < RACY;
    is_near(stat.modified) || is_near(stat.changed)
}

/// Returns true if a file that was broken when it was read may have been mended through a map since, without its stat
/// data showing it. It is read again ever less often.
fn may_be_mended_by_map(stat: &Stat, read_at: Timestamp, now: Timestamp) -> bool {
    let [age_then, age_now] = [read_at, now].map(|at| at.duration_since(stat.changed));
    let age_then = age_then.max(SignedDuration::ZERO);
    age_then < MAPPED && age_now >= age_then * 2
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::Timestamp;

    use crate::tree::file::{EMPTY_GRACE, TrackedFile};
    use crate::tree::model::Model;
    use crate::tree::pending_hints::NameHint;
    use announce::observation::{Incomplete, Stat};

    const OPEN_WRITER: Duration = Duration::from_secs(30);
    const SETTLE: Duration = Duration::from_secs(1);

    fn file() -> TrackedFile {
        let root = Model::default().add_root(0);
        TrackedFile::new(root, b"a.xml".as_slice().into())
    }

    fn hint(events: &[NameHint]) -> NameHint {
        let mut hint = NameHint::default();
        events.iter().for_each(|event| hint.merge(*event));
        hint
    }

    /// Stat data of a file that changed this long before `now`.
    fn stat(now: Timestamp, age: Duration) -> Stat {
        let changed = now - age;
        Stat {
            size: 1,
            modified: changed,
            changed,
            inode: 1,
        }
    }

    #[test]
    fn a_hint_says_whether_the_file_is_read_now_or_later() {
        let (renamed, written) = (NameHint::RENAMED, NameHint::WRITTEN);
        for (events, want) in [
            (&[written, NameHint::CLOSED][..], Some(Duration::ZERO)),
            (&[NameHint::MOVED_IN], Some(Duration::ZERO)),
            (&[NameHint::TOUCHED], Some(Duration::ZERO)),
            (&[NameHint::UNCLEAR], Some(Duration::ZERO)),
            (&[renamed], Some(Duration::from_millis(2))),
            (&[renamed, written], Some(Duration::from_secs(2))),
            (&[], None),
        ] {
            let next = file().apply_hint(hint(events), Instant::now(), OPEN_WRITER);
            assert_eq!(next, want, "{events:?}");
        }
    }

    #[test]
    fn a_writer_is_waited_for_until_it_closes_or_falls_silent() {
        let (mut file, now) = (file(), Instant::now());
        let second = Duration::from_secs(1);
        file.apply_hint(NameHint::WRITTEN, now, OPEN_WRITER);
        for (after, want) in [
            (second, Some((second, false))),
            (5 * second, Some((25 * second, true))),
            (OPEN_WRITER, None),
        ] {
            // Its times changing meanwhile says nothing about its end.
            let next = file.apply_hint(NameHint::TOUCHED, now, OPEN_WRITER);
            assert_eq!(next, None);
            assert_eq!(file.writer_wait(now + after, OPEN_WRITER), want);
        }
        let wall = Timestamp::now();
        let settled = file.settle_wait(&stat(wall, Duration::ZERO), (now, wall), SETTLE);
        assert_eq!(settled, None);
    }

    #[test]
    fn a_file_found_without_an_event_must_settle_by_its_age_or_as_long_as_it_is_seen() {
        let (now, wall) = (Instant::now(), Timestamp::now());
        let millisecond = Duration::from_millis(1);
        let mut file = file();
        // The last one lies in the future, by a wrong clock.
        let future = stat(wall + 60 * SETTLE, Duration::ZERO);
        for (stat, now, want) in [
            (
                stat(wall, SETTLE / 4),
                now,
                Some((SETTLE * 3 / 4 + millisecond, true)),
            ),
            (stat(wall, SETTLE), now, None),
            (future, now, Some((SETTLE + millisecond, false))),
            (future, now + SETTLE, None),
        ] {
            assert_eq!(file.settle_wait(&stat, (now, wall), SETTLE), want);
        }
    }

    #[test]
    fn a_file_that_was_read_is_known_until_its_stat_data_or_an_event_says_otherwise() {
        let wall = Timestamp::now();
        let old = stat(wall, Duration::from_secs(60));
        let mut file = file();
        assert!(!file.is_report_valid(&old, wall, true) && !file.is_unchanged(&old, true));
        file.note_whole_read(old, wall);
        assert!(file.is_report_valid(&old, wall, false) && file.is_unchanged(&old, false));
        assert!(!file.is_report_valid(&stat(wall, SETTLE), wall, true));
        // R4: read too soon after it changed, unless the file system's times are sharp.
        let young = stat(wall, SETTLE);
        file.note_whole_read(young, wall);
        assert!(
            file.is_report_valid(&young, wall, true) && !file.is_report_valid(&young, wall, false)
        );
        file.request_report();
        assert!(!file.is_report_valid(&young, wall, true));
    }

    #[test]
    fn a_new_empty_file_is_given_time_once() {
        let wall = Timestamp::now();
        let empty = Stat {
            size: 0,
            ..stat(wall, SETTLE)
        };
        let mut file = file();
        for want in [Some(EMPTY_GRACE), None] {
            file.apply_hint(NameHint::CLOSED, Instant::now(), OPEN_WRITER);
            assert_eq!(file.note_incomplete_read(Some(empty), wall), want);
        }
    }

    #[test]
    fn a_reason_is_reported_once_and_when_it_is_asked_for() {
        let mut file = file();
        let reason = Incomplete::NotAFile;
        assert!(file.must_report_incomplete(&reason));
        assert!(!file.must_report_incomplete(&reason));
        file.request_report();
        assert!(file.must_report_incomplete(&reason));
        assert!(file.must_report_incomplete(&Incomplete::BeingWritten));
    }

    #[test]
    fn a_writer_whose_end_may_be_lost_is_not_waited_for() {
        let (mut file, now, wall) = (file(), Instant::now(), Timestamp::now());
        file.note_whole_read(stat(wall, OPEN_WRITER), wall);
        file.apply_hint(NameHint::WRITTEN, now, OPEN_WRITER);
        file.forget_writer();
        assert_eq!(file.writer_wait(now, OPEN_WRITER), None);
        assert!(!file.is_report_valid(&stat(wall, OPEN_WRITER), wall, true));
    }
}
