//! Reading files: decides whether a file may be read now, reads several at once, and reports their contents (R3, R4).

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tree::file::{LastReport, TrackedFile, is_racy};
use crate::tree::file_status::{self, FileStatus};
use crate::tree::model::{FileSlot, join};
use crate::tree::observer::Observer;
use crate::tree::pending_hints::NameHint;
use crate::tree::read_file::{ListKeyCache, read};
use announce::observation::{DocumentPath, Found, Incomplete, RACY, Stat};
use jiff::Timestamp;
use rustix::fs::{CWD, FileType};

/// Maximum files of a sweep that are read at once, and maximum bytes of them: their contents are in memory until all
/// are read.
pub const MAX_AT_ONCE: usize = 256;
const MAX_SIZE_AT_ONCE: u64 = 4 << 20;
/// Minimum files for each additional thread.
const MIN_SHARED: usize = 16;
const MAX_THREADS: usize = 4;

/// A file that must be read.
#[derive(Debug)]
struct FileReadJob {
    id: FileSlot,
    /// The name that it has, which no other file shares.
    name: Arc<[u8]>,
    mount: usize,
    document: DocumentPath,
    path: PathBuf,
    size: u64,
}

impl Observer<'_> {
    /// Takes note of events about a file that is there.
    pub fn apply_file_hint(&mut self, id: FileSlot, hint: NameHint) {
        let (file, now) = (self.model.file_mut(id), Instant::now());
        match file.and_then(|file| file.apply_hint(hint, now, self.settings.open_writer)) {
            None => {}
            Some(Duration::ZERO) => self.queue.push_file(id),
            Some(after) => self.queue.push_file_after(id, after),
        }
    }

    /// Looks at a file, and reads it if it must and may be read.
    pub fn read_if_due(&mut self, id: FileSlot) {
        if let Some(job) = self.read_job_if_due(id, false) {
            let found = read(&job.path, &self.settings.recent_keys);
            self.watches.read_events();
            self.report_read_file(job, found);
        }
    }

    /// Looks at the next files of a sweep, and reads several at once if they are small.
    pub fn read_next_sweep_files(&mut self, at: usize) {
        let (mut jobs, mut size) = (Vec::new(), 0_u64);
        while jobs.len() < MAX_AT_ONCE
            && size < MAX_SIZE_AT_ONCE
            && let Some(sweep) = &mut self.mounts[at].sweep
            && let Some(id) = sweep.files.pop_front()
        {
            if let Some(job) = self.read_job_if_due(id, true) {
                size = size.saturating_add(job.size);
                jobs.push(job);
            }
        }
        let found = read_all(&jobs, &self.settings.recent_keys);
        // Once for all of them: what comes later is a hint like others.
        self.watches.read_events();
        for (job, found) in jobs.into_iter().zip(found) {
            self.report_read_file(job, found);
        }
    }

    /// Looks at a file, perhaps as a part of a sweep, and decides whether it must and may be read. Returns nothing if
    /// it need not be read, or not yet.
    fn read_job_if_due(&mut self, id: FileSlot, is_in_sweep: bool) -> Option<FileReadJob> {
        let file = self.model.file(id)?;
        let (name, is_link) = (Arc::clone(&file.name), file.link.is_some());
        let (mount, below) = self.model.mount_and_path(id)?;
        self.mounts[mount].found?;
        let path = join(&self.mounts[mount].directory, &below);
        let leads_on = |kind| matches!(kind, FileType::Directory | FileType::Symlink);
        let status = match file_status::of_name_in(CWD, &path, is_link) {
            Ok(status) if status.kind == FileType::RegularFile => status,
            found => {
                match found {
                    Ok(status) if !leads_on(status.kind) => {
                        self.incomplete(id, Incomplete::NotAFile, None);
                    }
                    Err(error) if !file_status::is_absence(error) => {
                        self.incomplete(id, Incomplete::Denied(file_status::reason(error)), None);
                    }
                    _ => self.recheck_file_name(id),
                }
                return None;
            }
        };
        let is_mounted = || file_status::is_mount_point(CWD, &path);
        self.note_silent(id, status.has_other_names || is_mounted());
        let can_wait = self.can_skip_read(id, mount, &status.stat, is_in_sweep);
        (!can_wait).then_some(FileReadJob {
            id,
            name,
            mount,
            document: self.mounts[mount].document_path(&below),
            path,
            size: status.stat.size,
        })
    }

    /// Reports what was read, if that still counts by the events that were read since.
    fn report_read_file(&mut self, job: FileReadJob, (look, status): (Found, Option<FileStatus>)) {
        let is_same = |file: &&TrackedFile| Arc::ptr_eq(&file.name, &job.name);
        let is_there = self.mounts[job.mount].found.is_some();
        let Some(file) = self.model.file(job.id).filter(is_same).filter(|_| is_there) else {
            return;
        };
        match look {
            Found::Missing => self.recheck_file_name(job.id),
            Found::Incomplete(reason) => {
                self.incomplete(job.id, reason, status.map(|status| status.stat));
            }
            Found::Document { stat, .. } | Found::Other { stat, .. } => {
                if self.is_written_again(file) {
                    return;
                }
                let now = Timestamp::now();
                if let Some(file) = self.model.file_mut(job.id) {
                    file.note_whole_read(stat, now);
                }
                self.queue.clear_timer(job.id);
                if !self.model.has_sharp_times(job.id) && is_racy(&stat, now) {
                    let after = RACY + Duration::from_millis(10);
                    self.queue.push_file_after(job.id, after);
                }
                self.reports.observe(job.document, look);
            }
        }
    }

    /// Rechecks the name of a file, because it stands for something else, or for nothing.
    fn recheck_file_name(&mut self, id: FileSlot) {
        if let Some((directory, name)) = self.model.name_of(id) {
            self.check_name(directory, &name, NameHint::RENAMED);
        }
    }

    /// Returns true if a file that is there need not be read, or not yet: its next look is set, or a report has it.
    fn can_skip_read(&mut self, id: FileSlot, at: usize, stat: &Stat, is_in_sweep: bool) -> bool {
        let has_sharp_times = self.model.has_sharp_times(id);
        let Some(file) = self.model.file_mut(id) else {
            return true;
        };
        let (now, wall) = (Instant::now(), Timestamp::now());
        let (after, reason) = if let Some((after, is_long)) =
            file.writer_wait(now, self.settings.open_writer)
        {
            // Somebody waits for a report, or the baseline of the sweep does.
            let is_awaited =
                file.is_requested || is_in_sweep && file.reported == LastReport::Nothing;
            let is_reported = is_long || is_awaited;
            (after, is_reported.then_some(Incomplete::BeingWritten))
        } else if file.is_report_valid(stat, wall, has_sharp_times) {
            if !matches!(file.reported, LastReport::Incomplete(_)) {
                return true;
            }
            (file.next_retry_delay(), None)
        } else if let Some((left, has_age)) =
            file.settle_wait(stat, (now, wall), self.settings.settle)
        {
            let mount = &mut self.mounts[at];
            // A file that was written since the mount was found is no part of its baseline: nothing else waits for it.
            let is_new = !self.is_one_shot && has_age && mount.is_changed_since_mount_found(stat);
            let is_in_baseline = is_in_sweep && !mount.was_swept && !is_new;
            if let Some(sweep) = mount.sweep.as_mut().filter(|_| is_in_baseline) {
                sweep.unsettled.push_back((id, now + left));
                return true;
            }
            (left, Some(Incomplete::Unsettled))
        } else {
            return false;
        };
        if let Some(reason) = reason {
            self.report_incomplete(id, reason);
        }
        self.queue.push_file_after(id, after);
        true
    }

    fn incomplete(&mut self, id: FileSlot, reason: Incomplete, stat: Option<Stat>) {
        let Some(file) = self.model.file_mut(id) else {
            return;
        };
        let grace = file.note_incomplete_read(stat, Timestamp::now());
        let after = grace.unwrap_or_else(|| file.next_retry_delay());
        if grace.is_none() {
            self.report_incomplete(id, reason);
        }
        self.queue.push_file_after(id, after);
    }

    /// Reports why a file cannot be read, once for each reason.
    pub fn report_incomplete(&mut self, id: FileSlot, reason: Incomplete) {
        if let Some(file) = self.model.file_mut(id)
            && file.must_report_incomplete(&reason)
            && let Some((at, below)) = self.model.mount_and_path(id)
        {
            let path = self.mounts[at].document_path(&below);
            self.reports.observe(path, Found::Incomplete(reason));
        }
    }
}

/// Reads files, on as many threads as there are processors.
fn read_all(jobs: &[FileReadJob], recent_keys: &ListKeyCache) -> Vec<(Found, Option<FileStatus>)> {
    let threads = match jobs.len() {
        0..MIN_SHARED => 1,
        _ => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    let share = jobs.len().div_ceil(threads.min(MAX_THREADS)).max(1);
    let read_one = |job: &FileReadJob| read(&job.path, recent_keys);
    let read_share = |jobs: &[FileReadJob]| Vec::from_iter(jobs.iter().map(read_one));
    std::thread::scope(|scope| {
        let mut shares = jobs.chunks(share);
        let first = shares.next().unwrap_or_default();
        let others: Vec<_> = shares
            .map(|jobs| {
                let reader = std::thread::Builder::new().spawn_scoped(scope, || read_share(jobs));
                (jobs, reader)
            })
            .collect();
        let mut all = read_share(first);
        for (jobs, reader) in others {
            // There may be no thread for it, or a panic that has been printed.
            let read = reader.ok().and_then(|reader| reader.join().ok());
            all.extend(read.unwrap_or_else(|| read_share(jobs)));
        }
        all
    })
}
