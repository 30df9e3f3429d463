//! The thread that observes a tree: it takes hints, keeps the timers, works and reports, round after round. A round works
//! for a few milliseconds at most, so that a sweep of a large tree does not delay what happens meanwhile. Observations are
//! collected, and sent before any other report but notices.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tree::lock;
use announce::event::Event;
use announce::observation::{DocumentPath, Found, Incomplete, Observation, WhyAbsent};
use jiff::Timestamp;
use rustix::fs::FileType;

use crate::tree::model::{DirectorySlot, FileSlot, Model, Name, TreeEntry, join};
use crate::tree::mount::{TreeMount, UnmetFile};
use crate::tree::nested_directories::MOUNT_TABLE;
use crate::tree::pending_hints::{DirectoryHints, HintBatch, NameHint};
use crate::tree::read_file::explain;
use crate::tree::sweep::{Depth, Sweep, UrgentWorkQueue};
use crate::tree::watches::{NameWatchReason, SystemLimit, WatchId, Watches};
use crate::tree::{KnownFiles, TreeNotice, TreeReport, TreeSettings, WatchMode, file_status};

/// Maximum duration of one round, before the next hints are taken.
const TIME_SLICE: Duration = Duration::from_millis(5);

/// Time between two checks of mounts and links without a hint.
const HEARTBEAT: Duration = Duration::from_secs(1);

pub struct Observer<'a> {
    pub settings: TreeSettings,
    /// True if no file is looked at a second time.
    pub is_one_shot: bool,
    pub watches: Watches,
    pub model: Model,
    /// The link that was rechecked last.
    pub rechecked_link: Option<Name>,
    /// Files that may be written without an event, a bounded number.
    pub silent: HashSet<FileSlot>,
    /// The mounts, by their position in the settings.
    pub mounts: Vec<TreeMount>,
    /// Time of the next check of mounts and links.
    pub heartbeat: Instant,
    pub queue: UrgentWorkQueue,
    pub mount_table: Option<File>,
    pub reports: ReportSender<'a>,
}

impl<'a> Observer<'a> {
    pub fn new(
        settings: TreeSettings,
        mut known: KnownFiles,
        watches: Watches,
        report: impl FnMut(TreeReport) -> ControlFlow<()> + 'a,
    ) -> Observer<'a> {
        let mut model = Model::default();
        let mounts = settings.mounts.iter().enumerate().map(|(at, plan)| {
            let mut unmet = known.0.remove(&plan.id).unwrap_or_default();
            // A file that was excluded since is there nevertheless: it is forgotten, not missing.
            let published = plan.url_path();
            unmet.retain(|below, _| settings.candidates.accepts(&published, below));
            TreeMount::new(plan, model.add_root(at), unmet)
        });
        let mounts = mounts.collect();
        Observer {
            is_one_shot: false,
            watches,
            settings,
            model,
            rechecked_link: None,
            silent: HashSet::new(),
            mounts,
            heartbeat: Instant::now(),
            queue: UrgentWorkQueue::default(),
            mount_table: File::open(MOUNT_TABLE).ok(),
            reports: ReportSender {
                receiver: Box::new(report),
                is_stopped: false,
                observations: Vec::new(),
                explained: Vec::new(),
                missing: HashMap::new(),
            },
        }
    }

    /// Observes until it is told to stop.
    pub fn run(&mut self) {
        // Only `auto` goes on without a backend.
        if self.settings.watch != WatchMode::Poll && self.watches.backend_name().is_none() {
            self.reports.notice(TreeNotice::WatchesRanOut {
                limit: SystemLimit::instances(),
                interval: self.settings.poll_interval,
            });
        }
        while !self.reports.is_stopped {
            // Without work, it waits until a check, a sweep, a part of a sweep or a file is due.
            let deadline = (!self.has_work()).then(|| {
                let present = self.mounts.iter().filter(|mount| mount.found.is_some());
                let sweeps = present.filter_map(|mount| match &mount.sweep {
                    Some(sweep) => sweep.goes_on_at(),
                    None => mount.next_sweep,
                });
                let timer = self.queue.times.first().map(|(at, _)| *at);
                sweeps.chain(timer).fold(self.heartbeat, Instant::min)
            });
            let batch = self.watches.take(deadline);
            if batch.stop {
                return;
            }
            self.take_hints(batch);
            self.queue_due_work();
            self.run_time_slice();
            self.flush();
        }
    }

    /// Sweeps each mount once.
    pub fn sweep_once(&mut self) {
        self.is_one_shot = true;
        self.check_mounts();
        while !self.reports.is_stopped {
            self.run_time_slice();
            self.flush();
            let sweeps = self.mounts.iter().filter_map(|mount| mount.sweep.as_ref());
            match sweeps.filter_map(Sweep::goes_on_at).min() {
                _ if self.has_work() => {}
                Some(at) => std::thread::sleep(at.saturating_duration_since(Instant::now())),
                None => return,
            }
        }
    }

    /// Returns the number of directories that the kernel is asked to watch, where its events are relied on.
    pub fn count_directories_to_watch(&self) -> usize {
        let mounts = self.mounts.iter();
        let watched =
            mounts.filter(|it| it.found.is_some() && self.settings.watch.trusts(it.file_system));
        watched.map(|it| self.model.subtree(it.root).len()).sum()
    }

    fn has_work(&self) -> bool {
        let mut sweeps = self.mounts.iter().filter_map(|mount| mount.sweep.as_ref());
        let UrgentWorkQueue {
            directories,
            files,
            questions,
            ..
        } = &self.queue;
        let is_idle = directories.is_empty() && files.is_empty() && questions.is_empty();
        !is_idle || sweeps.any(Sweep::can_go_on)
    }

    /// Turns hints into work.
    fn take_hints(&mut self, batch: HintBatch) {
        for (key, hints) in batch.directories {
            self.take_directory_hints(key, &hints);
        }
        if batch.overflow {
            self.reports.notice(TreeNotice::Overflow);
            // The events that were lost may have closed files.
            self.model.forget_writers();
        }
        let has_ended = batch.ended.is_some();
        if let Some(reason) = batch.ended {
            self.watches.drop_backend();
            let interval = self.settings.poll_interval;
            self.reports
                .notice(TreeNotice::EventsEnded { reason, interval });
            self.model.forget_writers();
        }
        if batch.overflow || batch.sweep || has_ended {
            self.mounts.iter_mut().for_each(TreeMount::begin_sweep);
        }
        for path in batch.requested {
            self.answer_look_request(path, false);
        }
        self.queue.questions.extend(batch.questions);
    }

    fn take_directory_hints(&mut self, key: WatchId, hints: &DirectoryHints) {
        let (directories, named) = match lock(&self.watches.hints.pending).watched.get(&key) {
            Some(watched) => (watched.directories.clone(), watched.hints_of_names(hints)),
            None => return,
        };
        for id in directories {
            if hints.itself {
                self.recheck_directory(id);
            }
            if hints.everything || hints.touched {
                self.queue.push_directory(id, Depth::Directory);
            }
            for (name, hint) in &hints.names {
                self.check_name(id, name, *hint);
            }
            // Any of these may be what a link leads through.
            if hints.other || hints.names.values().any(|hint| hint.renamed) {
                for link in self.model.links_in(id) {
                    self.recheck_link(link, true);
                }
            }
        }
        for (named, hint) in named {
            match named {
                NameWatchReason::Mount(mount) => self.check_mount(mount),
                NameWatchReason::Link(file) if hint.renamed => {
                    // The name where it ended stands for something else.
                    if let Some((directory, name)) = self.model.name_of(file)
                        && let Some(TreeEntry::File(file)) =
                            self.update_link(directory, &name, None)
                    {
                        self.apply_file_hint(file, hint);
                    }
                }
                NameWatchReason::Link(file) => self.apply_file_hint(file, hint),
            }
        }
    }

    /// Queues the work that is due by time.
    fn queue_due_work(&mut self) {
        let now = Instant::now();
        if now >= self.heartbeat {
            self.heartbeat = now + HEARTBEAT;
            self.check_mounts();
            self.recheck_some_links();
            self.recheck_silent_files();
            self.recheck_mount_table();
            for id in self.mounts.iter().flat_map(|it| it.unreadable.due(now)) {
                self.queue.push_directory(id, Depth::Subtree);
            }
            self.report_unreadable();
        }
        self.queue.push_due_files(now);
        let idle = self.mounts.iter_mut().filter(|it| it.sweep.is_none());
        // One that is not found begins none.
        let due = idle.filter(|it| it.next_sweep <= Some(now));
        due.for_each(TreeMount::begin_sweep);
    }

    /// Works for one time slice: tasks that hints and timers asked for, then sweeps, then questions.
    fn run_time_slice(&mut self) {
        let end = Instant::now() + TIME_SLICE;
        let mut has_swept = false;
        while !self.reports.is_stopped && !self.reports.is_full() && Instant::now() < end {
            // Directories before files, because a listing may make a read needless.
            if let Some((id, depth)) = self.queue.pop_directory() {
                self.list_directory(id, depth);
            } else if let Some(id) = self.queue.pop_file() {
                self.read_if_due(id);
            } else if self.continue_sweep() {
                has_swept = true;
            } else if let Some(path) = self.queue.questions.pop_front() {
                let explanation = explain(&self.settings, &path);
                (self.reports.explained).extend(explanation.map(|it| (path, it)));
            } else {
                return;
            }
        }
        // Files that are written all the time do not keep a sweep from its end: it has a time slice of its own.
        let end = Instant::now() + TIME_SLICE;
        while !has_swept
            && !self.reports.is_stopped
            && !self.reports.is_full()
            && self.continue_sweep()
            && Instant::now() < end
        {}
    }

    /// Rechecks a directory to which something happened itself, or which cannot be opened any more.
    pub fn recheck_directory(&mut self, id: DirectorySlot) {
        self.unwatch(id);
        let Some(directory) = self.model.directory(id) else {
            return;
        };
        match directory.parent {
            None => {
                self.check_mount(directory.mount);
                self.queue.push_directory(id, Depth::Subtree);
            }
            Some(parent) => {
                let name = Arc::clone(&directory.name);
                self.check_name(parent, &name, NameHint::RENAMED);
            }
        }
    }

    /// Sends a report, after all that was observed before.
    pub fn send(&mut self, report: TreeReport) {
        self.flush();
        self.reports.send(report);
    }

    /// Sends what was observed. R15: files are missing only from a tree that is there, and what may only be away with
    /// another file system is reported after that is.
    pub fn flush(&mut self) {
        self.recheck_above_missing();
        if self.reports.withdraw_missing(&mut self.mounts) {
            self.heartbeat = self.heartbeat.min(Instant::now());
        }
        self.report_nested();
        let explained = std::mem::take(&mut self.reports.explained);
        if !explained.is_empty() {
            self.reports
                .send(TreeReport::Event(Event::Explained(explained)));
        }
        let mut batch = std::mem::take(&mut self.reports.observations);
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(BATCH));
            let observed = Event::Observed(std::mem::replace(&mut batch, rest));
            self.reports.send(TreeReport::Event(observed));
        }
    }

    // Requests for a report on a path, whatever is known of it: each is answered.

    /// Answers from a fresh look. A file that exists and has not been met yet is left to the next sweep, unless
    /// `is_last` says that this has been tried. Nothing is reported of a path that is no candidate: it is not missing.
    pub fn answer_look_request(&mut self, path: DocumentPath, is_last: bool) {
        let candidates = &self.settings.candidates;
        let is_candidate = |mount: &TreeMount| {
            mount.id == path.mount && candidates.accepts(&mount.published, &path.below)
        };
        let Some(at) = self.mounts.iter().position(is_candidate) else {
            return;
        };
        let mount = &mut self.mounts[at];
        if mount.found.is_none() {
            if mount.awaits_new_root(Instant::now()) {
                mount.requested.insert(path);
                return;
            }
            let reason = mount.absence.reason.clone();
            return self.report_denied_file(path, reason);
        }
        if let Some(id) = self.file_at(at, &path.below) {
            if let Some(file) = self.model.file_mut(id) {
                file.request_report();
            }
            return self.queue.push_file(id);
        }
        match file_status::of_path(&join(&self.mounts[at].directory, &path.below)) {
            Ok(_) if !is_last => {
                self.mounts[at].requested.insert(path);
                if self.mounts[at].sweep.is_none() {
                    self.mounts[at].begin_sweep();
                }
            }
            Err(error) if !file_status::is_absence(error) => {
                self.report_denied_file(path, file_status::reason(error));
            }
            // The sweep did not reach it, as behind a link that is not followed.
            Ok(status) if status.kind == FileType::RegularFile => {
                self.report_denied_file(path, "it lies behind a link that is not followed".into());
            }
            // It is gone, or no file.
            Ok(_) | Err(_) => {
                let known = self.mounts[at].unmet.remove(&*path.below);
                let unmet = known.unwrap_or_default();
                self.reports.observe_missing(path, unmet);
            }
        }
    }

    pub fn report_denied_file(&mut self, path: DocumentPath, reason: String) {
        let reason = Incomplete::Denied(reason);
        self.reports.observe(path, Found::Incomplete(reason));
    }

    /// Returns the candidate at a path, looked up by name if it is not known yet.
    fn file_at(&mut self, at: usize, below: &[u8]) -> Option<FileSlot> {
        let mut names = below.split(|&byte| byte == b'/');
        let last = names.next_back()?;
        let below = |id, name: &[u8]| self.model.entry(id, name)?.directory();
        let directory = names.try_fold(self.mounts[at].root, below)?;
        self.check_name(directory, last, NameHint::UNCLEAR);
        self.model.entry(directory, last)?.file()
    }
}

/// Maximum observations in one report.
const BATCH: usize = 512;

pub struct ReportSender<'a> {
    receiver: Box<dyn FnMut(TreeReport) -> ControlFlow<()> + 'a>,
    /// True once the receiver wants no more.
    pub is_stopped: bool,
    observations: Vec<Observation>,
    pub explained: Vec<(DocumentPath, WhyAbsent)>,
    /// The files that `observations` call missing, in case their mount is.
    pub missing: HashMap<DocumentPath, UnmetFile>,
}

impl ReportSender<'_> {
    /// Returns true if there is enough to send.
    pub fn is_full(&self) -> bool {
        self.observations.len().max(self.explained.len()) >= BATCH
    }

    pub fn observe(&mut self, path: DocumentPath, look: Found) {
        self.missing.remove(&path);
        self.observations.push(Observation {
            path,
            at: Timestamp::now(),
            look,
        });
    }

    pub fn observe_missing(&mut self, path: DocumentPath, unmet: UnmetFile) {
        self.observe(path.clone(), Found::Missing);
        self.missing.insert(path, unmet);
    }

    /// Withdraws what was observed to be missing from mounts that are not there (R15): their files are unmet again.
    /// Returns true if there is such a mount.
    pub fn withdraw_missing(&mut self, mounts: &mut [TreeMount]) -> bool {
        let missing = std::mem::take(&mut self.missing);
        let mut is_mount_missing = false;
        for mount in mounts.iter_mut() {
            let in_mount = |path: &DocumentPath| path.mount == mount.id;
            let is_at = |root| file_status::has_identity(&mount.directory, root);
            if !missing.keys().any(in_mount) || mount.found.is_some_and(is_at) {
                continue;
            }
            for (path, unmet) in missing.iter().filter(|(path, _)| path.mount == mount.id) {
                mount.unmet.insert(Arc::clone(&path.below), *unmet);
            }
            self.observations
                .retain(|it| it.path.mount != mount.id || it.look != Found::Missing);
            is_mount_missing = true;
        }
        is_mount_missing
    }

    /// Sends a notice at once: it says nothing about documents, so that it need not follow what was collected before.
    pub fn notice(&mut self, notice: TreeNotice) {
        self.send(TreeReport::Notice(notice));
    }

    /// Sends a report, without what was collected before.
    pub fn send(&mut self, report: TreeReport) {
        if !self.is_stopped && (self.receiver)(report).is_break() {
            self.is_stopped = true;
        }
    }
}
