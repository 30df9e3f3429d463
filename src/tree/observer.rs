//! The thread that looks: it owns what we believe of the tree, takes hints, keeps the timers, and sends the
//! reports. Between two looks at hints it works for a few milliseconds at most, so that a sweep of a large
//! tree does not delay what happens meanwhile.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::announce::candidates::Candidates;
use crate::announce::observation::{DocumentPath, Look, NoDocument, Observation};
use crate::tree::explanation::explain;
use crate::tree::file_status;
use crate::tree::model::{DirectoryId, FileId, Model, Queued};
use crate::tree::mount::{Mount, Sweep, UnmetFile};
use crate::tree::pending_hints::{DirectoryHints, Hint, HintBatch, PendingHints};
use crate::tree::watch_policy::Denial;
use crate::tree::watches::{WatchKey, WatchedName, Watches};
use crate::tree::{KnownFile, TreeNotice, TreeReport, TreeSettings};

/// How often mounts and links are looked at without a hint.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long it may work before it takes the next hints, and how much it may find.
const TIME_SLICE: Duration = Duration::from_millis(5);
const BATCH: usize = 512;

pub(super) struct Observer<'a> {
    pub(super) report: Box<dyn FnMut(TreeReport) -> ControlFlow<()> + 'a>,
    pub(super) is_stopped: bool,
    /// Whether nothing is looked at a second time.
    pub(super) is_one_shot: bool,
    pub(super) settings: TreeSettings,
    pub(super) names: Arc<Candidates>,
    pub(super) hints: Arc<PendingHints>,
    pub(super) watches: Watches,
    pub(super) model: Model,
    pub(super) mounts: Vec<Mount>,
    /// To be listed, and to be looked at, because of a hint or a timer: before any sweep goes on.
    pub(super) directories: VecDeque<DirectoryId>,
    pub(super) files: VecDeque<FileId>,
    /// To be explained, when there is nothing else to do.
    questions: VecDeque<DocumentPath>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, FileId)>>,
    /// Directories that could not be read.
    pub(super) denied: HashMap<DirectoryId, Denial>,
    /// Directories that hold links, and the one whose links were rechecked last.
    pub(super) linked: BTreeSet<DirectoryId>,
    pub(super) last_linked: Option<DirectoryId>,
    /// Tells one listing from another.
    pub(super) listing: u32,
    pub(super) buffer: Vec<u8>,
    pub(super) has_said_ran_out: bool,
    /// When mounts and links are looked at next.
    pub(super) heartbeat: Instant,
    batch: Vec<Observation>,
    explained: Vec<(DocumentPath, NoDocument)>,
    /// What is remembered of files in `batch` that are missing, in case their mount is.
    gone: HashMap<DocumentPath, UnmetFile>,
}

impl<'a> Observer<'a> {
    pub(super) fn new(
        settings: TreeSettings,
        names: Arc<Candidates>,
        known: Vec<KnownFile>,
        hints: Arc<PendingHints>,
        watches: Watches,
        report: impl FnMut(TreeReport) -> ControlFlow<()> + 'a,
    ) -> Observer<'a> {
        let mut model = Model::default();
        let published = settings.mounts.iter().map(|it| (it.id, it.published()));
        let published: HashMap<_, _> = published.collect();
        let mut known_of: HashMap<_, HashMap<Box<[u8]>, UnmetFile>> = HashMap::new();
        for KnownFile {
            path,
            stat,
            read_at,
        } in known
        {
            // What was excluded since is there nevertheless: it is forgotten, not missing.
            let published = published.get(&path.mount);
            if !published.is_some_and(|it| names.accepts(it, &path.below)) {
                continue;
            }
            let unmet = UnmetFile {
                read: Some((stat, read_at)),
                is_told_denied: false,
            };
            let of_mount = known_of.entry(path.mount).or_default();
            of_mount.insert((*path.below).into(), unmet);
        }
        let mounts = settings.mounts.iter().enumerate().map(|(at, plan)| {
            let root = model.add_directory(at, None, b"", true);
            let known = known_of.remove(&plan.id).unwrap_or_default();
            Mount::new(plan, root, known)
        });
        let mounts = mounts.collect();
        Observer {
            report: Box::new(report),
            is_stopped: false,
            is_one_shot: false,
            settings,
            names,
            hints,
            watches,
            model,
            mounts,
            directories: VecDeque::new(),
            files: VecDeque::new(),
            questions: VecDeque::new(),
            timers: BinaryHeap::new(),
            denied: HashMap::new(),
            linked: BTreeSet::new(),
            last_linked: None,
            listing: 0,
            buffer: Vec::with_capacity(256 << 10),
            has_said_ran_out: false,
            heartbeat: Instant::now(),
            batch: Vec::new(),
            explained: Vec::new(),
            gone: HashMap::new(),
        }
    }

    /// Watches until it is told to stop.
    pub(super) fn run(&mut self) {
        while !self.is_stopped {
            let is_busy = self.has_work();
            let deadline = (!is_busy).then(|| self.next_deadline());
            let taken = self.watches.take(&self.hints, is_busy, deadline);
            if taken.stop {
                return;
            }
            self.apply(taken);
            self.keep_time();
            self.work();
            self.flush();
        }
    }

    /// Sweeps each mount once.
    pub(super) fn scan_once(&mut self) {
        self.is_one_shot = true;
        self.check_mounts();
        while !self.is_stopped {
            self.work();
            self.flush();
            let waits = self
                .mounts
                .iter()
                .filter_map(|it| it.sweep.as_ref()?.goes_on_at());
            match waits.min() {
                _ if self.has_work() => {}
                Some(at) => std::thread::sleep(at.saturating_duration_since(Instant::now())),
                None => return,
            }
        }
    }

    fn has_work(&self) -> bool {
        !self.directories.is_empty()
            || !self.files.is_empty()
            || !self.questions.is_empty()
            || self
                .mounts
                .iter()
                .filter_map(|mount| mount.sweep.as_ref())
                .any(Sweep::has_work)
    }

    fn next_deadline(&self) -> Instant {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let sweeps = self.mounts.iter().filter(|mount| mount.identity.is_some());
        let sweep = sweeps
            .map(|mount| match &mount.sweep {
                Some(sweep) => sweep.goes_on_at().unwrap_or(self.heartbeat),
                None => mount.next_sweep,
            })
            .min();
        [timer, sweep]
            .into_iter()
            .flatten()
            .fold(self.heartbeat, Instant::min)
    }

    fn apply(&mut self, taken: HintBatch) {
        for (key, directory_hints) in taken.directories {
            self.apply_place(key, directory_hints);
        }
        if taken.overflow {
            self.notice(TreeNotice::Overflow);
            // Whether a writer is done may have been said among what was lost.
            self.model.forget_writers();
        }
        let has_ended = taken.ended.is_some();
        if let Some(reason) = taken.ended {
            self.watches.end();
            let interval = self.settings.poll_interval;
            self.notice(TreeNotice::EventsEnded { reason, interval });
            self.model.forget_writers();
        }
        if taken.overflow || taken.sweep || has_ended {
            for mount in 0..self.mounts.len() {
                self.start_sweep(mount);
            }
        }
        for path in taken.asked {
            self.ask(path, false);
        }
        self.questions.extend(taken.questions);
    }

    fn apply_place(&mut self, key: WatchKey, directory_hints: DirectoryHints) {
        let Some(watched) = self.watches.watched(key) else {
            return;
        };
        let directories = watched.directories.clone();
        let named: Vec<(WatchedName, Hint)> = watched
            .named
            .iter()
            .filter_map(|(name, all)| {
                let itself = Hint {
                    renamed: true,
                    ..Hint::default()
                };
                let lost =
                    (directory_hints.itself || directory_hints.everything).then_some(&itself);
                let hint = *directory_hints.names.get(name).or(lost)?;
                Some(all.iter().map(move |named| (*named, hint)))
            })
            .flatten()
            .collect();
        for id in directories {
            if directory_hints.itself {
                self.recheck_directory(id);
            }
            if directory_hints.everything || directory_hints.touched {
                self.queue_directory(id, Queued::Alone);
            }
            for (name, hint) in &directory_hints.names {
                self.examine(id, name, *hint);
            }
            // Any of these may be what a link leads through.
            if directory_hints.other || directory_hints.names.values().any(|hint| hint.renamed) {
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

    fn keep_time(&mut self) {
        let now = Instant::now();
        if now >= self.heartbeat {
            self.heartbeat = now + HEARTBEAT;
            self.check_mounts();
            self.recheck_some_links();
            let due = self.denied.iter().filter(|(_, denied)| denied.again <= now);
            let due: Vec<_> = due.map(|(id, _)| *id).collect();
            for id in due {
                self.queue_directory(id, Queued::WithAllBeneath);
            }
            self.tell_unreadable();
        }
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            // A timer that was set again is not the one that rang.
            if self.model.file(id).is_some_and(|file| file.due == Some(at)) {
                self.queue_file(id);
            }
        }
        for mount in 0..self.mounts.len() {
            let it = &self.mounts[mount];
            if it.identity.is_some() && it.sweep.is_none() && it.next_sweep <= now {
                self.start_sweep(mount);
            }
        }
    }

    fn work(&mut self) {
        let end = Instant::now() + TIME_SLICE;
        let is_full = |own: &Self| own.batch.len().max(own.explained.len()) >= BATCH;
        while !self.is_stopped && !is_full(self) && Instant::now() < end {
            if let Some(id) = self.directories.pop_front() {
                self.list_queued(id);
            } else if let Some(id) = self.files.pop_front() {
                self.look_at_queued(id);
            } else if !self.go_on_sweeping() && !self.explain_next() {
                return;
            }
        }
    }

    /// Answers the next question. Returns whether there was one.
    fn explain_next(&mut self) -> bool {
        let Some(path) = self.questions.pop_front() else {
            return false;
        };
        let explained = explain(&self.settings, &path);
        self.explained
            .extend(explained.map(|explained| (path, explained)));
        true
    }

    pub(super) fn queue_directory(&mut self, id: DirectoryId, queued: Queued) {
        if let Some(directory) = self.model.directory_mut(id) {
            if directory.queued == Queued::No {
                self.directories.push_back(id);
            }
            directory.queued = directory.queued.max(queued);
        }
    }

    pub(super) fn queue_file(&mut self, id: FileId) {
        if let Some(file) = self.model.file_mut(id)
            && !file.is_queued
        {
            file.is_queued = true;
            self.files.push_back(id);
        }
    }

    /// Looks at a file again at some time, and forgets any other time set for it.
    pub(super) fn set_timer(&mut self, id: FileId, after: Duration) {
        if let Some(file) = self.model.file_mut(id) {
            let at = Instant::now() + after;
            file.due = Some(at);
            self.timers.push(Reverse((at, id)));
        }
    }

    pub(super) fn observe(&mut self, path: DocumentPath, look: Look) {
        self.gone.remove(&path);
        self.batch.push(Observation {
            path,
            at: jiff::Timestamp::now(),
            look,
        });
    }

    pub(super) fn observe_missing(&mut self, path: DocumentPath, unmet: UnmetFile) {
        self.observe(path.clone(), Look::Missing);
        self.gone.insert(path, unmet);
    }

    pub(super) fn notice(&mut self, notice: TreeNotice) {
        self.send(TreeReport::Notice(notice));
    }

    /// Reports something, after all that was found before.
    pub(super) fn send(&mut self, report: TreeReport) {
        self.flush();
        self.send_now(report);
    }

    fn send_now(&mut self, report: TreeReport) {
        if !self.is_stopped && (self.report)(report).is_break() {
            self.is_stopped = true;
        }
    }

    fn flush(&mut self) {
        if !self.explained.is_empty() {
            let explained = std::mem::take(&mut self.explained);
            self.send_now(TreeReport::Explained(explained));
        }
        if self.batch.is_empty() {
            return;
        }
        self.believe_missing();
        let mut batch = std::mem::take(&mut self.batch);
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(BATCH));
            self.send_now(TreeReport::Observed(std::mem::replace(&mut batch, rest)));
        }
    }

    /// R15: files are missing only from a tree that is there. Where it is not, they are remembered.
    fn believe_missing(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        if gone.is_empty() {
            return;
        }
        for mount in &mut self.mounts {
            if !gone.keys().any(|path| path.mount == mount.id) {
                continue;
            }
            let found = file_status::follow(&mount.directory).map(|status| status.identity);
            if mount.identity.is_some() && found.ok() == mount.identity {
                continue;
            }
            for (path, unmet) in gone.iter().filter(|(path, _)| path.mount == mount.id) {
                mount.known.insert((*path.below).into(), *unmet);
            }
            let id = mount.id;
            self.batch
                .retain(|it| it.path.mount != id || it.look != Look::Missing);
            self.heartbeat = Instant::now();
        }
    }
}
