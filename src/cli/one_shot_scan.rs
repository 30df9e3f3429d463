//! One-shot scan of the trees, compared with the state, for `scan`, `check` and dry runs: nothing is saved or sent.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jiff::Timestamp;
use resourcesync::uri::Uri;
use websub::http::clock::Clock;

use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event};
use crate::announce::observation::{DocumentPath, Incomplete, Look, MountId, Observation};
use crate::cli::progress::Progress;
use crate::config::Config;
use crate::config::address::Address;
use crate::daemon::{log, settings};
use crate::report::status::alerts::more_directories;
use crate::report::{missing, sources};
use crate::store::Store;
use crate::tree::{self, TreeNotice, TreeReport};

/// The result of a one-shot scan.
pub struct OneShotScan {
    pub engine: Engine,
    /// True if there was a state to compare with.
    pub has_state: bool,
    /// Notices: unreadable directories, links in circles, mounts that are not there.
    pub notices: Vec<String>,
    /// Submissions and further looks that a daemon would have begun by now.
    pub begun: Vec<Effect>,
    /// Number of files and directories that may not be read.
    pub unreadable: usize,
    /// Number of directories of each source that the kernel is asked to watch.
    pub watches: Vec<usize>,
    /// The document that was changed last, and when, by the clock of its file system.
    pub latest: Option<(String, Timestamp)>,
}

/// The maximum number of directories of missing documents that are named.
const MAX_DIRECTORIES: usize = 20;

impl OneShotScan {
    /// Returns the sources whose deletions are suspended, with the remedy (R15) and the directories of the missing
    /// documents.
    pub fn suspensions(&self) -> Vec<(String, String)> {
        let sources = sources::all(&self.engine).into_iter().enumerate();
        let suspensions = sources.filter_map(|(position, source)| {
            let directories = missing::suspended(&self.engine, position);
            let names = directories.iter().take(MAX_DIRECTORIES);
            let mut missing: Vec<String> = names.map(ToString::to_string).collect();
            if directories.len() > MAX_DIRECTORIES {
                let more = more_directories(directories.len() - MAX_DIRECTORIES);
                missing.push(format!("and {more}"));
            }
            let missing = format!("missing: {}", missing.join(", "));
            Some((source.suspension?.to_string(), missing))
        });
        suspensions.collect()
    }
}

/// Returns the engine as the state leaves it. Its effects are left to the daemon.
pub fn restored_engine(config: &Config, store: Option<&Store>) -> anyhow::Result<Engine> {
    let state = store.map(Store::load).transpose()?.unwrap_or_default();
    let mut plan = config.plan(&public_url(config)?);
    state.number_mounts(&mut plan);
    let clock = Clock::start(state.clock);
    let (engine, _) = Engine::new(plan, state, clock.now().into());
    Ok(engine)
}

/// Number of findings that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingLimit {
    /// As many as a daemon keeps.
    Bounded,
    /// All.
    Everything,
}

/// Sweeps every mount once.
pub fn scan_once(config: &Config) -> anyhow::Result<OneShotScan> {
    scan_in_detail(config, FindingLimit::Bounded)
}

/// Sweeps every mount once, with a maximum number of findings.
pub fn scan_in_detail(config: &Config, detail: FindingLimit) -> anyhow::Result<OneShotScan> {
    let store = Store::open_to_read(&config.state_dir)?;
    scan_beside(config, store.as_ref(), detail)
}

/// Sweeps every mount once, as if there were no state.
pub fn scan_without_state(config: &Config, detail: FindingLimit) -> anyhow::Result<OneShotScan> {
    scan_beside(config, None, detail)
}

fn scan_beside(
    config: &Config,
    store: Option<&Store>,
    detail: FindingLimit,
) -> anyhow::Result<OneShotScan> {
    let engine = restored_engine(config, store)?;
    let mut stepped = SteppedEngine {
        clock: Clock::start(Some(engine.now())),
        engine,
        begun: Vec::new(),
        questions: Vec::new(),
    };
    if detail == FindingLimit::Everything {
        stepped.engine.find_each();
    }
    let mut notices = Vec::new();
    let mut unreadable = 0;
    let mut watches = Vec::new();
    let mut latest = None;
    let mut progress = Progress::new(remembered(&stepped.engine).count());
    for source in 0..config.sources.len() {
        let tree = settings::tree(config, source, stepped.engine.plan());
        let mut seen = SourceScan::default();
        let directories = tree::scan_once(tree, |reported| {
            progress.note(&reported);
            stepped.observe(reported, &mut seen);
            ControlFlow::Continue(())
        })?;
        notices.extend(seen.notices);
        unreadable += seen.unreadable;
        watches.push(directories);
        latest = latest.max(seen.latest);
    }
    // A mount whose directory is there may be absent nevertheless.
    let sources = sources::all(&stepped.engine).into_iter();
    let mounts = sources.flat_map(|source| source.mounts);
    notices.extend(mounts.filter_map(|mount| mount.reason));
    stepped.step(Event::Tick);
    stepped.explain(config);
    Ok(OneShotScan {
        engine: stepped.engine,
        has_state: store.is_some(),
        notices,
        begun: stepped.begun,
        unreadable,
        watches,
        latest: latest.map(|(changed, path)| (path.to_string(), changed)),
    })
}

/// An engine, and what is left of the effects of its steps.
struct SteppedEngine {
    engine: Engine,
    clock: Clock,
    /// Submissions and further looks.
    begun: Vec<Effect>,
    /// Paths of which it asks why there is no document.
    questions: Vec<DocumentPath>,
}

impl SteppedEngine {
    fn step(&mut self, event: Event) {
        for effect in self.engine.step(event, self.clock.now().into()) {
            match effect {
                Effect::Explain(paths) => self.questions.extend(paths),
                Effect::Submit(_)
                | Effect::SubmitLogged(..)
                | Effect::Take(_)
                | Effect::Look(_) => self.begun.push(effect),
                _ => {}
            }
        }
    }

    fn observe(&mut self, reported: TreeReport, seen: &mut SourceScan) {
        seen.note(&reported);
        if let TreeReport::Swept {
            mount,
            complete: true,
            ..
        } = &reported
        {
            let missing = seen.missing(&self.engine, *mount);
            self.step(Event::Observed(missing));
        }
        if let Some(event) = log::engine_event(reported) {
            self.step(event);
        }
    }

    /// Answers the questions that the steps left. The effects of this step are not performed.
    fn explain(&mut self, config: &Config) {
        let plan = self.engine.plan();
        let trees = (0..config.sources.len()).map(|source| settings::tree(config, source, plan));
        let trees: Vec<_> = trees.collect();
        let questions = std::mem::take(&mut self.questions).into_iter();
        let explained = questions.filter_map(|path| {
            let explained = trees.iter().find_map(|tree| tree::explain(tree, &path))?;
            Some((path, explained))
        });
        let event = Event::Explained(explained.collect());
        self.engine.step(event, self.clock.now().into());
    }
}

/// The result of one source's sweep.
#[derive(Default)]
struct SourceScan {
    seen: HashSet<DocumentPath>,
    notices: Vec<String>,
    unreadable: usize,
    latest: Option<(Timestamp, DocumentPath)>,
}

impl SourceScan {
    fn note(&mut self, report: &TreeReport) {
        match report {
            TreeReport::Observed(observations) => observations
                .iter()
                .for_each(|observation| self.see(observation)),
            TreeReport::Notice(notice) if notice.is_warning() => {
                self.unreadable += usize::from(matches!(notice, TreeNotice::Unreadable { .. }));
                self.notices.push(notice.to_string());
            }
            _ => {}
        }
    }

    fn see(&mut self, observation: &Observation) {
        let path = &observation.path;
        self.seen.insert(path.clone());
        match &observation.look {
            Look::Incomplete(Incomplete::Denied(_)) => self.unreadable += 1,
            Look::Document { stat, .. } | Look::Other { stat, .. } => {
                let is_later = |(latest, _): &(Timestamp, _)| stat.changed > *latest;
                if self.latest.as_ref().is_none_or(is_later) {
                    self.latest = Some((stat.changed, path.clone()));
                }
            }
            Look::Incomplete(_) | Look::Missing => {}
        }
    }

    /// Returns observations of the documents of a mount that the state knows and the sweep did not meet.
    fn missing(&self, engine: &Engine, mount: MountId) -> Vec<Observation> {
        remembered(engine)
            .filter(|path| path.mount == mount && !self.seen.contains(*path))
            .map(|path| Observation {
                path: path.clone(),
                at: Timestamp::now(),
                look: Look::Missing,
            })
            .collect()
    }
}

/// Returns the documents that the state knows, and the candidates that could not be read.
fn remembered(engine: &Engine) -> impl Iterator<Item = &DocumentPath> {
    let read = engine.sources().known().map(|(path, _, _)| path);
    read.chain(engine.sources().reread())
}

/// Returns the public URL.
fn public_url(config: &Config) -> anyhow::Result<Uri> {
    if let Some(url) = config.server.known_public_url() {
        return Ok(url);
    }
    match &config.server.listen {
        Address::Tcp(address) => Ok(config.server.public_url_at(*address)),
        Address::Unix(_) => {
            anyhow::bail!("a Unix socket says nothing about how it is reached: set public_url")
        }
    }
}
