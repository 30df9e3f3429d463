//! The thread that observes a tree: it takes hints, keeps the timers, works and reports, round after round. A round works
//! for a few milliseconds at most, so that a sweep of a large tree does not delay what happens meanwhile.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::announce::candidates::Candidates;
use crate::tree::explanation::explain;
use crate::tree::file::{HintOutcome, LastRead};
use crate::tree::linked_directories::LinkedDirectories;
use crate::tree::model::{FileId, Model};
use crate::tree::mount::{Sweep, TreeMount, UnmetFile};
use crate::tree::mount_table::MountTable;
use crate::tree::nested_file_systems::NestedDirectories;
use crate::tree::pending_hints::{DirectoryHints, Hint, HintBatch, PendingHints};
use crate::tree::reports::Reports;
use crate::tree::timers::FileTimers;
use crate::tree::unreadable_directories::DeniedDirectories;
use crate::tree::watches::{WatchKey, WatchedName, Watches};
use crate::tree::work_queue::{Depth, Task, WorkQueue};
use crate::tree::{KnownFile, TreeNotice, TreeReport, TreeSettings};

/// Time between two checks of mounts and links without a hint.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Maximum duration of one round, before the next hints are taken.
const TIME_SLICE: Duration = Duration::from_millis(5);

pub(super) struct Observer<'a> {
    pub(super) settings: TreeSettings,
    pub(super) candidates: Arc<Candidates>,
    /// True if no file is looked at a second time.
    pub(super) is_one_shot: bool,
    pub(super) hints: Arc<PendingHints>,
    pub(super) watches: Watches,
    pub(super) model: Model,
    pub(super) mounts: Vec<TreeMount>,
    pub(super) queue: WorkQueue,
    pub(super) timers: FileTimers,
    pub(super) unreadable: DeniedDirectories,
    pub(super) links: LinkedDirectories,
    pub(super) nested: NestedDirectories,
    pub(super) mount_table: MountTable,
    pub(super) reports: Reports<'a>,
    /// Time of the next check of mounts and links.
    pub(super) heartbeat: Instant,
    /// Room for the names in a directory.
    pub(super) buffer: Vec<u8>,
}

impl<'a> Observer<'a> {
    pub(super) fn new(
        settings: TreeSettings,
        candidates: Arc<Candidates>,
        known: Vec<KnownFile>,
        hints: Arc<PendingHints>,
        watches: Watches,
        report: impl FnMut(TreeReport) -> ControlFlow<()> + 'a,
    ) -> Observer<'a> {
        let mut model = Model::default();
        let published = settings.mounts.iter().map(|it| (it.id, it.published()));
        let published: HashMap<_, _> = published.collect();
        let mut unmet: HashMap<_, HashMap<Box<[u8]>, UnmetFile>> = HashMap::new();
        for KnownFile {
            path,
            stat,
            read_at,
        } in known
        {
            // A file that was excluded since is there nevertheless: it is forgotten, not missing.
            let published = published.get(&path.mount);
            if published.is_some_and(|it| candidates.accepts(it, &path.below)) {
                let in_mount = unmet.entry(path.mount).or_default();
                in_mount.insert(
                    (*path.below).into(),
                    UnmetFile::new(Some(LastRead { stat, at: read_at })),
                );
            }
        }
        let mounts = settings.mounts.iter().enumerate().map(|(at, plan)| {
            let root = model.add_directory(at, None, b"", true);
            TreeMount::new(plan, root, unmet.remove(&plan.id).unwrap_or_default())
        });
        let mounts = mounts.collect();
        Observer {
            settings,
            candidates,
            is_one_shot: false,
            hints,
            watches,
            model,
            mounts,
            queue: WorkQueue::default(),
            timers: FileTimers::default(),
            unreadable: DeniedDirectories::default(),
            links: LinkedDirectories::default(),
            nested: NestedDirectories::default(),
            mount_table: MountTable::open(),
            reports: Reports::new(report),
            heartbeat: Instant::now(),
            buffer: Vec::with_capacity(256 << 10),
        }
    }

    /// Observes until it is told to stop.
    pub(super) fn run(&mut self) {
        while !self.reports.is_stopped() {
            let is_busy = self.has_work();
            let deadline = (!is_busy).then(|| self.next_deadline());
            let batch = self.watches.take(&self.hints, is_busy, deadline);
            if batch.stop {
                return;
            }
            self.take_hints(batch);
            self.keep_time();
            self.work();
            self.flush();
        }
    }

    /// Sweeps each mount once.
    pub(super) fn scan_once(&mut self) {
        self.is_one_shot = true;
        self.check_mounts();
        while !self.reports.is_stopped() {
            self.work();
            self.flush();
            let sweeps = self.mounts.iter().filter_map(|mount| mount.sweep.as_ref());
            match sweeps.filter_map(Sweep::goes_on_at).min() {
                _ if self.has_work() => {}
                Some(at) => std::thread::sleep(at.saturating_duration_since(Instant::now())),
                None => return,
            }
        }
    }

    fn has_work(&self) -> bool {
        let mut sweeps = self.mounts.iter().filter_map(|mount| mount.sweep.as_ref());
        !self.queue.is_empty() || sweeps.any(Sweep::has_work)
    }

    fn next_deadline(&self) -> Instant {
        let present = self.mounts.iter().filter(|mount| mount.is_present());
        let wakes = present
            .filter_map(TreeMount::wake)
            .chain(self.timers.next());
        wakes.fold(self.heartbeat, Instant::min)
    }

    /// Turns hints into work.
    fn take_hints(&mut self, batch: HintBatch) {
        for (key, hints) in batch.directories {
            self.take_directory_hints(key, &hints);
        }
        if batch.overflow {
            self.notice(TreeNotice::Overflow);
            // The events that were lost may have closed files.
            self.model.forget_writers();
        }
        let has_ended = batch.ended.is_some();
        if let Some(reason) = batch.ended {
            self.watches.end();
            let interval = self.settings.poll_interval;
            self.notice(TreeNotice::EventsEnded { reason, interval });
            self.model.forget_writers();
        }
        if batch.overflow || batch.sweep || has_ended {
            for at in 0..self.mounts.len() {
                self.start_sweep(at);
            }
        }
        for path in batch.requested {
            self.answer_request(path, false);
        }
        self.queue.push_questions(batch.questions);
    }

    fn take_directory_hints(&mut self, key: WatchKey, hints: &DirectoryHints) {
        let Some(watched) = self.watches.watched(key) else {
            return;
        };
        let directories = watched.directories.clone();
        let named: Vec<(WatchedName, Hint)> = watched
            .named
            .iter()
            .filter_map(|(name, all)| {
                let lost = (hints.itself || hints.everything).then_some(&Hint::RENAMED);
                let hint = *hints.names.get(name).or(lost)?;
                Some(all.iter().map(move |named| (*named, hint)))
            })
            .flatten()
            .collect();
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
                self.recheck_links(id, true);
            }
        }
        for (named, hint) in named {
            match named {
                WatchedName::Mount(mount) => self.check_mount(mount),
                WatchedName::Link(file) if hint.renamed => self.recheck_link_to_file(file, hint),
                WatchedName::Link(file) => self.hint_file(file, hint),
            }
        }
    }

    /// Queues the work that is due by time.
    fn keep_time(&mut self) {
        let now = Instant::now();
        if now >= self.heartbeat {
            self.heartbeat = now + HEARTBEAT;
            self.check_mounts();
            self.recheck_some_links();
            self.recheck_mount_table();
            for id in self.unreadable.due(now) {
                self.queue.push_directory(id, Depth::Subtree);
            }
            self.report_unreadable();
        }
        while let Some(id) = self.timers.pop_due(now) {
            self.queue.push_file(id);
        }
        for at in 0..self.mounts.len() {
            let mount = &self.mounts[at];
            if mount.is_present() && mount.sweep.is_none() && mount.next_sweep <= now {
                self.start_sweep(at);
            }
        }
    }

    /// Works for one time slice: tasks that hints and timers asked for, then sweeps, then questions.
    fn work(&mut self) {
        let end = Instant::now() + TIME_SLICE;
        let mut has_swept = false;
        while !self.reports.is_stopped() && !self.reports.is_full() && Instant::now() < end {
            match self.queue.pop() {
                Some(Task::List(id, depth)) => self.list(id, depth, false),
                Some(Task::Read(id)) => self.read_if_due(id, false),
                None if self.continue_sweep() => has_swept = true,
                None => match self.queue.pop_question() {
                    Some(path) => {
                        if let Some(explanation) = explain(&self.settings, &path) {
                            self.reports.explain(path, explanation);
                        }
                    }
                    None => return,
                },
            }
        }
        // Files that are written all the time do not keep a sweep from its end.
        if !has_swept {
            self.sweep_on();
        }
    }

    /// Sweeps for one time slice.
    fn sweep_on(&mut self) {
        let end = Instant::now() + TIME_SLICE;
        while !self.reports.is_stopped()
            && !self.reports.is_full()
            && self.continue_sweep()
            && Instant::now() < end
        {}
    }

    /// Takes note of events about a file that is there.
    pub(super) fn hint_file(&mut self, id: FileId, hint: Hint) {
        let Some(file) = self.model.file_mut(id) else {
            return;
        };
        match file.hint(hint, Instant::now(), self.settings.open_writer) {
            HintOutcome::Nothing => {}
            HintOutcome::Read => self.queue.push_file(id),
            HintOutcome::ReadAfter(after) => self.set_timer(id, after),
        }
    }

    /// Looks at a file again at some time, and forgets any other time set for it.
    pub(super) fn set_timer(&mut self, id: FileId, after: Duration) {
        self.timers.set(id, Instant::now() + after);
    }

    /// Reports which directories may not be read, where the last report is outdated.
    pub(super) fn report_unreadable(&mut self) {
        while let Some(at) = self.unreadable.pop_outdated() {
            let mount = &self.mounts[at];
            let (directories, more) = self.unreadable.in_mount(at, &mount.directory, &self.model);
            let report = TreeReport::Unreadable {
                mount: mount.id,
                directories,
                more,
            };
            self.send(report);
        }
    }

    pub(super) fn notice(&mut self, notice: TreeNotice) {
        self.send(TreeReport::Notice(notice));
    }

    /// Sends a report, after all that was observed before.
    pub(super) fn send(&mut self, report: TreeReport) {
        self.flush();
        self.reports.send(report);
    }

    /// Sends what was observed. R15: files are missing only from a tree that is there.
    fn flush(&mut self) {
        self.recheck_nested();
        if self.reports.withdraw_missing(&mut self.mounts) {
            self.heartbeat = Instant::now();
        }
        self.report_nested();
        self.reports.flush();
    }
}
