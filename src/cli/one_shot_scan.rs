//! One-shot scan of the trees, compared with the state, for `scan`, `check` and dry runs: nothing is saved or sent. Its
//! progress is shown on a terminal only.

use std::collections::HashSet;
use std::ops::ControlFlow;

use announce::event::{Effect, Event};
use announce::observation::{DocumentPath, Found, Incomplete, Observation};
use announce::plan::Plan;
use announce::state::open::{copy_to_memory, in_memory};
use announce::state::{self, last_time_saved};
use announce::steps::engine::Engine;
use announce::steps::mounts;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use jiff::Timestamp;
use rusqlite::Connection;
use websub::http::Clock;

use crate::config::Config;
use crate::config::text::Address;
use crate::report::status::alerts::describe_missing;
use crate::report::{self, limited, sources};
use crate::tree::{self, TreeNotice, TreeReport, TreeSettings};

/// The maximum number of directories of missing documents that are named.
const MAX_DIRECTORIES: usize = 20;
/// Template if an earlier run knew the approximate number of files.
const OF_KNOWN: &str = "reading the tree [{bar:24}] {human_pos} of about {human_len} files";
/// Template if the number of files is unknown.
const OF_FOUND: &str = "reading the tree: {human_pos} of {human_len} files found so far";
/// Selects the documents that the state knows, and the candidates that could not be read.
const KNOWN_PATHS: &str = "SELECT mount, path FROM document WHERE presence BETWEEN 1 AND 3 UNION SELECT mount, path FROM trouble";

/// A one-shot scan, and what it found.
pub struct OneShotScan {
    pub engine: Engine,
    clock: Clock,
    /// The end of the scan.
    pub now: Timestamp,
    /// True if there was a state to compare with.
    pub has_state: bool,
    /// Notices: unreadable directories, links in circles, mounts that are not there.
    pub notices: Vec<String>,
    /// Submissions and further looks that a daemon would have begun by now.
    pub begun: Vec<Effect>,
    /// Paths of which the engine asks why there is no document.
    questions: Vec<DocumentPath>,
    seen: HashSet<DocumentPath>,
    /// Number of files and directories that may not be read.
    pub unreadable: usize,
    /// Number of directories of each source that the kernel is asked to watch.
    pub watches: Vec<usize>,
    /// The document that was changed last, and when, by the clock of its file system.
    pub latest: Option<(Timestamp, DocumentPath)>,
}

impl OneShotScan {
    /// Returns what was read instead, if there is no document, with the reason why the first file is none.
    pub fn nothing_found_reason(&self, config: &Config) -> state::Result<Option<String>> {
        let trees = self.tree_settings(config);
        let explain = |path: &DocumentPath| trees.iter().find_map(|tree| tree::explain(tree, path));
        let db = self.engine.db();
        for live in &self.engine.live.sources {
            let nothing = mounts::no_document_reason(db, live, explain)?;
            if nothing.is_some() {
                return Ok(nothing);
            }
        }
        let sql = "SELECT 1 FROM document WHERE presence > 0 UNION ALL SELECT 1 FROM trouble \
                   UNION ALL SELECT 1 FROM other_file";
        let words = "no file is read: no name in the tree is one that `include` matches";
        Ok((!db.exists(sql, ())?).then(|| words.to_owned()))
    }

    /// Returns the sources whose deletions are suspended, with the remedy (R15) and the directories of the missing
    /// documents.
    pub fn suspensions(&self) -> state::Result<Vec<(String, String)>> {
        let reader = &self.engine.reader(self.now);
        let mut suspensions = Vec::new();
        let sources = report::outline(reader)?.sources;
        for (source, live) in sources.iter().zip(&reader.live.sources) {
            if let Some(suspension) = &source.suspension {
                let directories = sources::suspending_directories(reader, live)?;
                let (named, more) = limited(directories, MAX_DIRECTORIES);
                suspensions.push((suspension.to_string(), describe_missing(&named, more)));
            }
        }
        Ok(suspensions)
    }
}

/// Returns the plan of a configuration.
pub fn plan(config: &Config) -> anyhow::Result<Plan> {
    let public_url = match (config.server.known_public_url(), &config.server.listen.0) {
        (Some(url), _) => url,
        (None, Address::Tcp(address)) => config.server.public_url_at(*address),
        (None, Address::Unix(_)) => {
            anyhow::bail!("a Unix socket says nothing about how it is reached: set public_url")
        }
    };
    Ok(config.plan(&public_url))
}

/// Sweeps every mount once, with the saved state.
pub fn scan_once(config: &Config) -> anyhow::Result<OneShotScan> {
    scan_with_state(config, copy_to_memory(&config.state_dir)?, false)
}

/// Sweeps every mount once, with a copy of a state or as if there were none. As many findings are kept as a daemon keeps, or
/// all.
pub fn scan_with_state(
    config: &Config,
    copy: Option<Connection>,
    find_each: bool,
) -> anyhow::Result<OneShotScan> {
    let has_state = copy.is_some();
    let state = copy.map_or_else(in_memory, Ok)?;
    let clock = Clock::start(last_time_saved(&state)?);
    // Its effects are left to the daemon.
    let (engine, _) = Engine::start(state, plan(config)?, clock.now().into())?;
    let mut scan = OneShotScan {
        engine,
        now: clock.now(),
        clock,
        has_state,
        notices: Vec::new(),
        begun: Vec::new(),
        questions: Vec::new(),
        seen: HashSet::new(),
        unreadable: 0,
        watches: Vec::new(),
        latest: None,
    };
    scan.engine.live.find_each = find_each;
    let mut progress = SweepProgressBar {
        known: (scan.engine.db())
            .all::<Vec<DocumentPath>>(KNOWN_PATHS, ())?
            .len() as u64,
        ..SweepProgressBar::default()
    };
    for tree in scan.tree_settings(config) {
        let mut observed = Ok(());
        let directories = tree::sweep_once(tree, |reported| {
            progress.note_report(&reported);
            observed = scan.handle_report(reported);
            match observed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        observed?;
        scan.watches.push(directories);
    }
    // A mount whose directory is there may be absent nevertheless.
    let sources = report::outline(&scan.engine.reader(scan.clock.now()))?.sources;
    let mounts = sources.into_iter().flat_map(|source| source.mounts);
    scan.notices.extend(mounts.filter_map(|mount| mount.reason));
    scan.step_engine(Event::Tick)?;
    // The questions that the steps left are answered; those that this leaves are not.
    let trees = scan.tree_settings(config);
    let questions = std::mem::take(&mut scan.questions).into_iter();
    let explained = questions.filter_map(|path| {
        let explained = trees.iter().find_map(|tree| tree::explain(tree, &path))?;
        Some((path, explained))
    });
    scan.step_engine(Event::Explained(explained.collect()))?;
    scan.now = scan.clock.now();
    Ok(scan)
}

impl OneShotScan {
    fn step_engine(&mut self, event: Event) -> state::Result<()> {
        let now = self.clock.now().into();
        for effect in self.engine.step(vec![event], now, |_, _| Ok(()))? {
            match effect {
                Effect::Explain(paths) => self.questions.extend(paths),
                Effect::Submit(_) | Effect::Take(_) | Effect::Look(_) => self.begun.push(effect),
                _ => {}
            }
        }
        Ok(())
    }

    fn handle_report(&mut self, reported: TreeReport) -> state::Result<()> {
        match reported {
            TreeReport::Event(event) => {
                if let Event::Observed(observations) = &event {
                    observations
                        .iter()
                        .for_each(|observed| self.note_observed(observed));
                }
                self.step_engine(event)?;
            }
            TreeReport::Notice(notice) if notice.is_warning() => {
                self.unreadable += usize::from(matches!(notice, TreeNotice::Unreadable { .. }));
                self.notices.push(notice.to_string());
            }
            TreeReport::Swept {
                mount,
                complete: true,
                ..
            } => {
                // What the state knows, and the sweep did not meet.
                let mut missing: Vec<DocumentPath> = self.engine.db().all(KNOWN_PATHS, ())?;
                missing.retain(|path| path.mount == mount && !self.seen.contains(path));
                let missing = missing.into_iter().map(|path| Observation {
                    path,
                    at: Timestamp::now(),
                    look: Found::Missing,
                });
                self.step_engine(Event::Observed(missing.collect()))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn note_observed(&mut self, observation: &Observation) {
        let path = &observation.path;
        self.seen.insert(path.clone());
        match &observation.look {
            Found::Incomplete(Incomplete::Denied(_)) => self.unreadable += 1,
            Found::Document { stat, .. } | Found::Other { stat, .. }
                if (self.latest.as_ref()).is_none_or(|(latest, _)| stat.changed > *latest) =>
            {
                self.latest = Some((stat.changed, path.clone()));
            }
            _ => {}
        }
    }

    fn tree_settings(&self, config: &Config) -> Vec<TreeSettings> {
        let sources = config.sources.iter().zip(&self.engine.plan.sources);
        sources
            .map(|(source, plan)| source.tree_settings(plan))
            .collect()
    }
}

/// Number of files that sweeps found and read, and the progress bar of a sweep that takes long.
#[derive(Default)]
struct SweepProgressBar {
    /// Number of files that an earlier run knew.
    known: u64,
    read: u64,
    /// Number of files found by sweeps that have ended.
    swept: u64,
    bar: Option<ProgressBar>,
}

impl SweepProgressBar {
    fn note_report(&mut self, report: &TreeReport) {
        match report {
            TreeReport::Event(Event::Observed(observations)) => {
                self.read += observations.len() as u64
            }
            TreeReport::Sweeping { files, .. } => {
                let bar = self.bar.get_or_insert_with(|| {
                    let template = if self.known > 0 { OF_KNOWN } else { OF_FOUND };
                    let style = ProgressStyle::with_template(template)
                        .unwrap_or_else(|_| ProgressStyle::default_bar());
                    // It draws itself on standard error if that is a terminal, and clears itself when it is dropped.
                    let bar = ProgressBar::no_length().with_finish(ProgressFinish::AndClear);
                    bar.with_style(style.progress_chars("=> "))
                });
                bar.update(|state| {
                    state.set_len(self.known.max(self.swept + files));
                    state.set_pos(self.read);
                });
            }
            TreeReport::Swept { files, .. } => self.swept += files,
            TreeReport::Event(_) | TreeReport::Notice(_) => {}
        }
    }
}
