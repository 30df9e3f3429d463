//! One file over time: when it is read, when it is looked at again, and what is reported (R3, R4).

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::announce::observation::{Incomplete, Look, Stat};
use crate::resourcesync::document::Content;
use crate::tree::file_status::{self, FileKind, FileStatus};
use crate::tree::model::{DirectoryId, File, FileId, Reported, Writing, join, push_name};
use crate::tree::mount::Mount;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;
use crate::tree::read_file::{ReadOutcome, read};

/// A file made without being written (a hard link, `O_TMPFILE`) is told from one about to be written by
/// waiting this long for the first write.
const CREATED_GRACE: Duration = Duration::from_millis(2);
/// An empty file that is new is more likely to be filled soon than to be broken.
const EMPTY_GRACE: Duration = Duration::from_millis(50);
/// A file that is being written for longer than this is reported so.
const WRITING_TOLD: Duration = Duration::from_secs(2);
/// R4: stat data this close to the read may not tell the next version apart.
const RACY: Duration = Duration::from_secs(2);
/// A page that is mapped and written changes a file's times once, and not again until the kernel has saved it.
const MAPPED: SignedDuration = SignedDuration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// How many files of a sweep are read at once, and of how many bytes they are: what was read of them is in memory until
/// all are.
const MAX_AT_ONCE: usize = 64;
const MAX_SIZE_AT_ONCE: u64 = 4 << 20;
/// Fewer than this are not worth another thread.
const MIN_SHARED: usize = 16;
const MAX_THREADS: usize = 4;

/// A file that must be read.
struct ReadJob {
    id: FileId,
    directory: DirectoryId,
    name: Arc<[u8]>,
    mount: usize,
    below: Vec<u8>,
    path: PathBuf,
    size: u64,
}

impl Observer<'_> {
    /// Takes in what events said about a file that is there.
    pub(super) fn hint_file(&mut self, id: FileId, hint: Hint) {
        let Some(file) = self.model.file_mut(id) else {
            return;
        };
        if hint.renamed {
            file.writing = None;
        }
        if hint.writing {
            let now = Instant::now();
            match &mut file.writing {
                Some(writing) => writing.last = now,
                None => {
                    file.writing = Some(Writing {
                        since: now,
                        last: now,
                    });
                    let after = WRITING_TOLD.min(self.settings.open_writer);
                    self.set_timer(id, after);
                }
            }
            return;
        }
        if hint.ended {
            file.writing = None;
        }
        let is_done = hint.ended || hint.touched && !hint.renamed && file.writing.is_none();
        if !(is_done || hint.renamed || hint.unclear) {
            return;
        }
        file.must_read = true;
        file.is_trusted |= is_done || hint.renamed;
        if is_done || hint.unclear {
            self.queue_file(id);
        } else {
            self.set_timer(id, CREATED_GRACE);
        }
    }

    pub(super) fn look_at_queued(&mut self, id: FileId) {
        if let Some(file) = self.model.file_mut(id)
            && file.is_queued
        {
            file.is_queued = false;
            self.look_at(id, false);
        }
    }

    /// Looks at a file; `in_sweep` if the baseline may depend on what is said about it now (R13).
    pub(super) fn look_at(&mut self, id: FileId, in_sweep: bool) {
        if let Some(wanted) = self.wanted(id, in_sweep) {
            let reading = read(&wanted.path);
            self.take_in(wanted, reading);
        }
    }

    /// Looks at the next files of a sweep: several at once, if they are small.
    pub(super) fn look_at_next(&mut self, at: usize) {
        let mut all = Vec::new();
        let mut size = 0;
        while all.len() < MAX_AT_ONCE
            && size < MAX_SIZE_AT_ONCE
            && let Some(sweep) = &mut self.mounts[at].sweep
            && let Some(id) = sweep.files.pop_front()
        {
            if let Some(wanted) = self.wanted(id, true) {
                size = size.saturating_add(wanted.size);
                all.push(wanted);
            }
        }
        let readings = read_all(&all);
        for (wanted, reading) in all.into_iter().zip(readings) {
            self.take_in(wanted, reading);
        }
    }

    /// The file, if it must be read.
    fn wanted(&mut self, id: FileId, in_sweep: bool) -> Option<ReadJob> {
        let file = self.model.file(id)?;
        let (directory, is_link) = (file.directory, file.link.is_some());
        let mount = self.model.directory(directory)?.mount;
        self.mounts[mount].identity?;
        let name = Arc::clone(&file.name);
        let mut below = self.model.below(directory);
        push_name(&mut below, &name);
        let path = join(&self.mounts[mount].directory, &below);
        let found = if is_link {
            file_status::follow(&path)
        } else {
            file_status::not_follow(&path)
        };
        let status = match found {
            Ok(status) => status,
            Err(error) if file_status::is_absence(error) => {
                self.look_again_by_name(id);
                return None;
            }
            Err(error) => {
                self.incomplete(
                    id,
                    &below,
                    Incomplete::Denied(file_status::reason(error)),
                    None,
                );
                return None;
            }
        };
        match status.kind {
            FileKind::File => {}
            FileKind::Directory | FileKind::Link => {
                self.look_again_by_name(id);
                return None;
            }
            FileKind::Special => {
                self.incomplete(id, &below, Incomplete::NotAFile, None);
                return None;
            }
        }
        let can_wait = self.is_being_written(id, &below, in_sweep)
            || self.is_known(id, &status.stat)
            || self.is_unsettled(id, &below, &status, in_sweep);
        (!can_wait).then_some(ReadJob {
            id,
            directory,
            name,
            mount,
            below,
            path,
            size: status.stat.size,
        })
    }

    fn take_in(&mut self, wanted: ReadJob, reading: ReadOutcome) {
        let ReadJob {
            id, mount, below, ..
        } = &wanted;
        let is_same = |file: &File| {
            file.directory == wanted.directory && Arc::ptr_eq(&file.name, &wanted.name)
        };
        if !self.model.file(*id).is_some_and(is_same) || self.mounts[*mount].identity.is_none() {
            return;
        }
        match reading {
            ReadOutcome::Gone => self.look_again_by_name(*id),
            ReadOutcome::Incomplete(reason, status) => {
                self.incomplete(*id, below, reason, status.map(|status| status.stat));
            }
            ReadOutcome::Whole(content, status) => {
                if !self.is_written_again(*id) {
                    self.whole(*mount, *id, below, content, status.stat);
                }
            }
        }
    }

    /// The name stands for something else than a file, or for nothing.
    fn look_again_by_name(&mut self, id: FileId) {
        if let Some((directory, name)) = self.name_of(id) {
            let renamed = Hint {
                renamed: true,
                ..Hint::default()
            };
            self.examine(directory, &name, renamed);
        }
    }

    /// R3: a writer that has the file open is waited for until it has not written for `open_writer`: it may keep
    /// the file open for ever, and `truncate` by path has no closing event at all.
    fn is_being_written(&mut self, id: FileId, below: &[u8], in_sweep: bool) -> bool {
        let open_writer = self.settings.open_writer;
        let Some(file) = self.model.file_mut(id) else {
            return true;
        };
        let Some(writing) = file.writing else {
            return false;
        };
        let left = open_writer.saturating_sub(writing.last.elapsed());
        if left.is_zero() {
            file.writing = None;
            (file.is_trusted, file.must_read) = (true, true);
            return false;
        }
        let is_to_tell = file.is_asked || in_sweep && file.told == Reported::Nothing;
        let untold = WRITING_TOLD.saturating_sub(writing.since.elapsed());
        if untold.is_zero() || is_to_tell {
            self.tell_incomplete(id, below, Incomplete::BeingWritten);
        }
        self.set_timer(
            id,
            if untold.is_zero() {
                left
            } else {
                left.min(untold)
            },
        );
        true
    }

    /// Whether what we know of it still holds, so that it need not be read.
    fn is_known(&mut self, id: FileId, stat: &Stat) -> bool {
        let Some(file) = self.model.file(id) else {
            return true;
        };
        let was_read = match &file.told {
            Reported::Whole => true,
            Reported::Incomplete(reason) => {
                matches!(**reason, Incomplete::Malformed(_)) && !may_be_mapped(stat, file.read_at)
            }
            Reported::Nothing => false,
        };
        let is_known = !file.must_read
            && was_read
            && file.stat.as_ref() == Some(stat)
            && (!is_racy(stat, file.read_at) || self.model.has_sharp_times(file));
        if is_known && matches!(file.told, Reported::Incomplete(_)) {
            self.retry(id);
        }
        is_known
    }

    /// R3: a file found without an event must have been left alone for a while. Times in the future, by a
    /// wrong clock, count from the first look.
    fn is_unsettled(
        &mut self,
        id: FileId,
        below: &[u8],
        status: &FileStatus,
        in_sweep: bool,
    ) -> bool {
        let settle = self.settings.settle;
        let Some(file) = self.model.file_mut(id) else {
            return true;
        };
        // What was believed before is not doubted for being looked at again.
        let is_believed = file.told == Reported::Whole && file.stat == Some(status.stat);
        if file.is_trusted || is_believed {
            return false;
        }
        let age = age(&status.stat);
        let seen_for = match &file.unsettled {
            Some(unsettled) if unsettled.0 == status.stat => unsettled.1.elapsed(),
            _ => Duration::ZERO,
        };
        if age.is_some_and(|age| age >= settle) || seen_for >= settle {
            file.unsettled = None;
            return false;
        }
        if seen_for.is_zero() {
            file.unsettled = Some(Box::new((status.stat, Instant::now())));
        }
        let left = settle - age.unwrap_or(seen_for).max(seen_for) + Duration::from_millis(1);
        let directory = file.directory;
        let mount = self.model.directory(directory).map(|it| it.mount);
        let mount = mount.map(|mount| &mut self.mounts[mount]);
        // What was written since the mount was found is no part of its baseline: nothing else waits for it.
        let is_one_shot = self.is_one_shot;
        let is_new = |mount: &&mut Mount| {
            !is_one_shot && age.is_some() && mount.is_changed_since_found(&status.stat)
        };
        if in_sweep
            && let Some(mount) = mount.filter(|mount| !mount.was_swept && !is_new(mount))
            && let Some(sweep) = &mut mount.sweep
        {
            sweep.unsettled.push_back((id, Instant::now() + left));
            return true;
        }
        self.tell_incomplete(id, below, Incomplete::Unsettled);
        self.set_timer(id, left);
        true
    }

    /// Whether an event came during the read: then the read is worth nothing, whatever the times say.
    fn is_written_again(&mut self, id: FileId) -> bool {
        let Some(file) = self.model.file(id) else {
            return true;
        };
        let watch = match &file.link {
            Some(target) => target.watch.as_ref().map(|(key, name)| (*key, &**name)),
            None => self
                .model
                .directory(file.directory)
                .and_then(|directory| Some((directory.watch?, &*file.name))),
        };
        watch.is_some_and(|(key, name)| {
            self.watches.read();
            self.hints.is_being_written(key, name)
        })
    }

    fn whole(&mut self, mount: usize, id: FileId, below: &[u8], content: Content, stat: Stat) {
        let file = self.model.file(id);
        let has_sharp_times = file.is_some_and(|file| self.model.has_sharp_times(file));
        let now = Timestamp::now();
        if let Some(file) = self.model.file_mut(id) {
            file.stat = Some(stat);
            file.read_at = now;
            file.told = Reported::Whole;
            file.tries = 0;
            file.due = None;
            (file.is_trusted, file.must_read, file.is_asked) = (false, false, false);
        }
        if !has_sharp_times && is_racy(&stat, now) {
            self.set_timer(id, RACY + Duration::from_millis(10));
        }
        let look = match content {
            Content::Document(parsed) => Look::Document { parsed, stat },
            Content::Other(reason) => Look::Other { reason, stat },
        };
        let path = self.mounts[mount].path(below);
        self.observe(path, look);
    }

    fn incomplete(&mut self, id: FileId, below: &[u8], reason: Incomplete, stat: Option<Stat>) {
        if let Some(file) = self.model.file_mut(id) {
            let is_new_and_empty = file.told == Reported::Nothing
                && file.is_trusted
                && file.tries == 0
                && !file.is_asked
                && stat.is_some_and(|stat| stat.size == 0);
            if file.stat != stat {
                file.tries = 0;
            }
            file.stat = stat;
            file.read_at = Timestamp::now();
            (file.is_trusted, file.must_read) = (false, false);
            if is_new_and_empty {
                file.tries = 1;
                self.set_timer(id, EMPTY_GRACE);
                return;
            }
        }
        self.tell_incomplete(id, below, reason);
        self.retry(id);
    }

    fn retry(&mut self, id: FileId) {
        if let Some(file) = self.model.file_mut(id) {
            let after = FIRST_RETRY.saturating_mul(1 << file.tries.min(10));
            file.tries = file.tries.saturating_add(1);
            self.set_timer(id, after.min(LAST_RETRY));
        }
    }

    /// Reports why a file tells nothing, once for each reason.
    pub(super) fn tell_incomplete(&mut self, id: FileId, below: &[u8], reason: Incomplete) {
        let Some(file) = self.model.file_mut(id) else {
            return;
        };
        let is_told = matches!(&file.told, Reported::Incomplete(told) if **told == reason);
        if is_told && !file.is_asked {
            return;
        }
        file.is_asked = false;
        file.told = Reported::Incomplete(Box::new(reason.clone()));
        let directory = file.directory;
        if let Some(mount) = self.model.directory(directory).map(|it| it.mount) {
            let path = self.mounts[mount].path(below);
            self.observe(path, Look::Incomplete(reason));
        }
    }

    /// Whether a listing that met a file with this stat data must have it looked at.
    pub(super) fn needs_look(&self, id: FileId, stat: &Stat) -> bool {
        self.model.file(id).is_some_and(|file| {
            file.told != Reported::Whole
                || file.stat.as_ref() != Some(stat)
                || is_racy(stat, file.read_at) && !self.model.has_sharp_times(file)
        })
    }
}

/// Reads files, on as many threads as there are processors.
fn read_all(all: &[ReadJob]) -> Vec<ReadOutcome> {
    let threads = match all.len() {
        0..MIN_SHARED => 1,
        _ => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    let threads = threads.min(MAX_THREADS);
    let part = all.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let mut parts = all.chunks(part);
        let first = parts.next().unwrap_or_default();
        let others: Vec<_> = parts
            .map(|part| {
                let read_part = move || part.iter().map(|it| read(&it.path)).collect::<Vec<_>>();
                let reader = std::thread::Builder::new().spawn_scoped(scope, read_part);
                (part, reader)
            })
            .collect();
        let mut readings: Vec<ReadOutcome> = first.iter().map(|it| read(&it.path)).collect();
        for (part, reader) in others {
            match reader.map(|reader| reader.join()) {
                Ok(Ok(read)) => readings.extend(read),
                // Without a thread for it, or after a panic that has been printed.
                _ => readings.extend(part.iter().map(|it| read(&it.path))),
            }
        }
        readings
    })
}

/// How long ago a file changed last; nothing if that lies in the future.
fn age(stat: &Stat) -> Option<Duration> {
    let changed = stat.modified.max(stat.changed);
    Duration::try_from(Timestamp::now().duration_since(changed)).ok()
}

/// Whether a file may have changed after it was read without its stat data showing it (R4).
fn is_racy(stat: &Stat, read_at: Timestamp) -> bool {
    [stat.modified, stat.changed]
        .into_iter()
        .any(|changed| read_at.duration_since(changed).unsigned_abs() < RACY)
}

/// Whether a file that was broken when it was read may have been mended through a map since, without its stat
/// data showing it. It is read again ever less often.
fn may_be_mapped(stat: &Stat, read_at: Timestamp) -> bool {
    let age_then = read_at
        .duration_since(stat.changed)
        .max(SignedDuration::ZERO);
    let age_now = Timestamp::now().duration_since(stat.changed);
    age_then < MAPPED && age_now >= age_then * 2
}
