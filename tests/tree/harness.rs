//! A watched temporary directory with the reports about it so far.

use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use announce::candidates::CandidateGlobs;
use announce::event::Event;
use announce::observation::{
    DocumentPath, FileId, Found, MountId, Stat, UnreadableDirectory, WhyAbsent,
};
use announce::plan::{DEFAULT_INCLUDE, MountPlan};
use jiff::Timestamp;
use resourcesync::uri::Uri;
use rsnotify::tree::{
    KnownFiles, ListKeyCache, TreeHandle, TreeNotice, TreeReport, TreeSettings, WatchMode,
};
use tempfile::TempDir;

/// Generous: builds without optimisation on a busy machine must not fail.
pub const DEADLINE: Duration = Duration::from_secs(60);
pub const SETTLE: Duration = Duration::from_millis(200);

pub struct Watched {
    /// Holds `root`, the mount.
    pub place: TempDir,
    pub root: PathBuf,
    tree: Option<TreeHandle>,
    reports: Receiver<TreeReport>,
    /// Every look at a path, in order.
    pub looks: HashMap<Vec<u8>, Vec<Found>>,
    pub explained: HashMap<Vec<u8>, WhyAbsent>,
    pub sweeps: usize,
    /// True if the last sweep reported that watches are lacking.
    pub is_unwatched: bool,
    pub found: Vec<FileId>,
    pub lost: Vec<String>,
    pub notices: Vec<TreeNotice>,
    /// The last report of directories that may not be read.
    pub unreadable: Vec<UnreadableDirectory>,
    /// The reports of file systems below the root, by their paths.
    pub nested: Vec<Vec<String>>,
    /// The last of these reports before a path was reported as missing.
    pub nested_when_missing: HashMap<Vec<u8>, Option<Vec<String>>>,
}

pub fn settings(root: &Path, watch: WatchMode) -> TreeSettings {
    TreeSettings {
        mounts: vec![MountPlan {
            id: MountId(0),
            directory: root.to_owned(),
            prefix: Uri::parse("https://example.org/").unwrap(),
            aliases: Vec::new(),
        }],
        candidates: excluding(&[]),
        watch,
        rescan_interval: Duration::from_secs(3600),
        poll_interval: Duration::from_millis(100),
        settle: SETTLE,
        open_writer: Duration::from_secs(30),
        recent_keys: ListKeyCache::default(),
    }
}

/// The usual candidates but for these.
pub fn excluding(exclude: &[&str]) -> CandidateGlobs {
    let exclude = exclude.iter().map(|glob| (*glob).to_owned()).collect();
    CandidateGlobs::new(DEFAULT_INCLUDE.map(str::to_owned).into(), exclude).unwrap()
}

/// A Change List; another `version` is another fingerprint.
pub fn document(version: usize) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         <rs:md capability=\"changelist\" from=\"{version}\"/>\n\
         <url><loc>https://example.org/r</loc></url>\n</urlset>\n"
    )
}

/// Writes a document in place, and the directories that lead to it.
pub fn put(path: impl AsRef<Path>, version: usize) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, document(version)).unwrap();
}

/// A directory, and an empty `root` in it.
pub fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    (place, root)
}

pub fn version_of(look: &Found) -> Option<usize> {
    match look {
        Found::Document { parsed, .. } => parsed.span.from.as_ref()?.parse().ok(),
        _ => None,
    }
}

pub fn path(below: impl AsRef<[u8]>) -> DocumentPath {
    DocumentPath {
        mount: MountId(0),
        below: below.as_ref().into(),
    }
}

impl Watched {
    /// An empty tree, swept once.
    pub fn start(watch: WatchMode) -> Watched {
        Watched::start_on(watch, |_| {})
    }

    /// A tree prepared by `prepare`, swept once.
    pub fn start_on(watch: WatchMode, prepare: impl FnOnce(&Path)) -> Watched {
        let (place, root) = place();
        prepare(&root);
        let mut watched = Watched::start_in(place, watch, KnownFiles::default());
        watched.wait("the first sweep", |it| it.sweeps > 0);
        watched
    }

    /// Watches `root` in `place`, whether it is there or not.
    pub fn start_in(place: TempDir, watch: WatchMode, known: KnownFiles) -> Watched {
        let root = place.path().join("root");
        Watched::start_knowing(place, settings(&root, watch), known)
    }

    pub fn start_with(place: TempDir, settings: TreeSettings) -> Watched {
        Watched::start_knowing(place, settings, KnownFiles::default())
    }

    pub fn start_knowing(place: TempDir, settings: TreeSettings, known: KnownFiles) -> Watched {
        let root = settings.mounts[0].directory.clone();
        let (sender, reports) = channel();
        let tree = TreeHandle::watch(settings, known, move |report| match sender.send(report) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
        Watched {
            place,
            root,
            tree: Some(tree.unwrap()),
            reports,
            looks: HashMap::new(),
            explained: HashMap::new(),
            sweeps: 0,
            is_unwatched: false,
            found: Vec::new(),
            lost: Vec::new(),
            notices: Vec::new(),
            unreadable: Vec::new(),
            nested: Vec::new(),
            nested_when_missing: HashMap::new(),
        }
    }

    pub fn tree(&self) -> &TreeHandle {
        self.tree.as_ref().unwrap()
    }

    /// Stops watching and gives the place back.
    pub fn stop(mut self) -> TempDir {
        self.tree = None;
        self.place
    }

    /// These documents, once their first version was seen, as a later run knows them: read at this time.
    #[track_caller]
    pub fn known(&mut self, names: &[&str], read_at: impl Fn(&Stat) -> Timestamp) -> KnownFiles {
        let mut known = KnownFiles::default();
        for name in names {
            self.wait_for(name, 1);
            if let Some(Found::Document { stat, .. }) = self.last(name) {
                known.add(path(name), stat, read_at(stat));
            }
        }
        known
    }

    pub fn write(&self, below: &str, version: usize) {
        put(self.root.join(below), version);
    }

    #[track_caller]
    pub fn write_and_wait(&mut self, below: &str, version: usize) {
        self.write(below, version);
        self.wait_for(below, version);
    }

    /// Waits until something holds.
    #[track_caller]
    pub fn wait(&mut self, what: &str, holds: impl Fn(&Watched) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.reports.recv_timeout(left) {
                Ok(report) => {
                    self.take(report);
                    while let Ok(report) = self.reports.try_recv() {
                        self.take(report);
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!(
                    "waited in vain for {what}; {} files; last looks: {:?}; lost: {:?}; notices: {:?}",
                    self.looks.len(),
                    self.looks
                        .iter()
                        .filter(|(path, _)| self.looks.len() < 20 || self.version(path).is_none())
                        .map(|(path, looks)| (path.escape_ascii().to_string(), brief(looks)))
                        .take(20)
                        .collect::<Vec<_>>(),
                    self.lost,
                    self.notices
                ),
                Err(RecvTimeoutError::Disconnected) => panic!("the tree ended before {what}"),
            }
        }
    }

    /// Waits until the last that was seen of a document is this version.
    #[track_caller]
    pub fn wait_for(&mut self, below: impl AsRef<[u8]>, version: usize) {
        let below = below.as_ref();
        let what = format!("version {version} of {}", below.escape_ascii());
        self.wait(&what, |it| it.version(below) == Some(version));
    }

    #[track_caller]
    pub fn wait_for_missing(&mut self, below: impl AsRef<[u8]>) {
        let below = below.as_ref();
        let what = format!("{} to be missing", below.escape_ascii());
        self.wait(&what, |it| it.last(below) == Some(&Found::Missing));
    }

    /// Waits until a path was looked at last with this outcome.
    #[track_caller]
    pub fn wait_for_look(&mut self, below: &str, is_it: impl Fn(&Found) -> bool) {
        let what = format!("a look at {below}");
        self.wait(&what, |it| it.last(below).is_some_and(&is_it));
    }

    /// Counts the notices that there were of a kind.
    #[track_caller]
    pub fn noticed(&self, is_it: impl Fn(&TreeNotice) -> bool) -> usize {
        let notices = self.notices.iter().inspect(|notice| println!("{notice}"));
        notices.filter(|notice| is_it(notice)).count()
    }

    /// Waits until all that was done before has been seen: a fresh look at a file is answered after.
    #[track_caller]
    pub fn wait_for_quiet(&mut self) {
        let before = self.looks_at("sentinel.xml").len();
        let sweeps = self.sweeps;
        self.tree().request_looks(vec![path("sentinel.xml")]);
        self.wait("the sentinel", |it| {
            it.looks_at("sentinel.xml").len() > before
        });
        self.tree().request_sweep();
        self.wait("a sweep", |it| it.sweeps > sweeps);
    }

    pub fn last(&self, below: impl AsRef<[u8]>) -> Option<&Found> {
        self.looks.get(below.as_ref())?.last()
    }

    /// The paths that were looked at, but for the sentinel's.
    pub fn paths(&self) -> Vec<String> {
        let paths = self
            .looks
            .keys()
            .map(|path| path.escape_ascii().to_string());
        let mut paths: Vec<String> = paths.filter(|path| path != "sentinel.xml").collect();
        paths.sort();
        paths
    }

    pub fn version(&self, below: impl AsRef<[u8]>) -> Option<usize> {
        self.last(below).and_then(version_of)
    }

    pub fn looks_at(&self, below: impl AsRef<[u8]>) -> &[Found] {
        self.looks.get(below.as_ref()).map_or(&[], Vec::as_slice)
    }

    /// The versions seen of a document, repetitions left out.
    pub fn versions(&self, below: impl AsRef<[u8]>) -> Vec<usize> {
        let mut versions: Vec<usize> = self.looks_at(below).iter().filter_map(version_of).collect();
        versions.dedup();
        versions
    }

    pub fn is_missing_ever(&self) -> bool {
        let mut looks = self.looks.values().flatten();
        looks.any(|look| *look == Found::Missing)
    }

    fn take(&mut self, report: TreeReport) {
        match report {
            TreeReport::Event(Event::Observed(batch)) => {
                for it in batch {
                    let below = it.path.below.to_vec();
                    if it.look == Found::Missing {
                        let nested = self.nested.last().cloned();
                        self.nested_when_missing.insert(below.clone(), nested);
                    }
                    self.looks.entry(below).or_default().push(it.look);
                }
            }
            TreeReport::Event(Event::Explained(explained)) => {
                let explained = explained.into_iter();
                let explained = explained.map(|(path, why)| (path.below.to_vec(), why));
                self.explained.extend(explained);
            }
            TreeReport::Event(Event::MountFound { identity, .. }) => self.found.push(identity),
            TreeReport::Event(Event::MountLost { reason, .. }) => self.lost.push(reason),
            TreeReport::Swept {
                complete,
                unwatched,
                ..
            } => {
                self.sweeps += usize::from(complete);
                self.is_unwatched = unwatched;
            }
            TreeReport::Event(Event::Unreadable { directories, .. }) => {
                self.unreadable = directories
            }
            TreeReport::Event(Event::Nested { nested, .. }) => {
                let found = nested.iter().filter(|it| !it.is_gone);
                let found = found.map(|it| String::from_utf8_lossy(&it.below).into_owned());
                self.nested.push(found.collect());
            }
            TreeReport::Notice(notice) => self.notices.push(notice),
            TreeReport::Sweeping { .. } | TreeReport::Event(_) => {}
        }
    }
}

fn brief(looks: &[Found]) -> Vec<String> {
    let brief = |look: &Found| match look {
        Found::Document { .. } => format!("version {:?}", version_of(look)),
        look => format!("{look:?}"),
    };
    looks.iter().map(brief).collect()
}
