//! The trees that are watched under the effective plan, and the progress of their first sweeps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, sync_channel};

use jiff::Timestamp;

use crate::announce::event::Event;
use crate::announce::observation::{DocumentPath, MountId};
use crate::announce::plan::{Plan, SourcePlan};
use crate::config::Config;
use crate::daemon::announcer::{RunInput, SourceInput};
use crate::daemon::event_loop::Input;
use crate::report::figures::Hints;
use crate::state::{self, Db};
use crate::tree::{KnownFile, KnownFiles, RecentKeys, Tree, TreeReport, TreeSettings};

/// Number of a set of trees. Each reload that changes them has one of its own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

/// Maximum reports of trees that wait to be taken.
const MAX_WAITING: usize = 8;

/// Trees that are watched, and whose reports do not count yet.
pub struct NextTrees {
    generation: Generation,
    waiting: Receiver<()>,
    trees: Vec<Tree>,
}

/// One tree for each source of the plan, in the order of the plan.
pub struct WatchedTrees {
    /// One for each report that waits to be taken: a tree that is read faster than it is saved waits itself. Dropped before the
    /// trees, which end with it.
    waiting: Option<Receiver<()>>,
    trees: Vec<Tree>,
    generation: Generation,
    /// The last generation that was tried; it may have failed.
    last_generation: Generation,
    inputs: Sender<RunInput>,
    /// Keys of the Change Lists that the trees read.
    recent_keys: RecentKeys,
    /// Start of the daemon or time of the last change of plan, until each present mount was swept since.
    began: Option<Timestamp>,
    /// True if each present mount was swept under the plan before, which has the same mounts.
    was_settled: bool,
    /// Candidates met by the sweep of each mount, until all are swept.
    progress: BTreeMap<MountId, u64>,
}

impl WatchedTrees {
    /// Watches nothing yet. `began` is the start of the process.
    pub fn new(inputs: Sender<RunInput>, began: Timestamp) -> WatchedTrees {
        WatchedTrees {
            waiting: None,
            trees: Vec::new(),
            generation: Generation::default(),
            last_generation: Generation::default(),
            inputs,
            recent_keys: RecentKeys::default(),
            began: Some(began),
            was_settled: false,
            progress: BTreeMap::new(),
        }
    }

    /// Starts trees for a plan, which [`WatchedTrees::replace`] puts in use. They begin before the others end, and
    /// until then take as many watches again; if those run out, the next sweep finds them free.
    pub fn next_generation(
        &mut self,
        config: &Config,
        plan: &Plan,
        db: Db<'_>,
    ) -> anyhow::Result<NextTrees> {
        self.last_generation.0 += 1;
        let generation = self.last_generation;
        // Of trees that are given up, the receiver goes first.
        let mut trees = Vec::new();
        let (ahead, waiting) = sync_channel(MAX_WAITING);
        for source in 0..config.sources.len() {
            let tree = TreeSettings {
                recent_keys: self.recent_keys(),
                ..config.sources[source].tree(&plan.sources[source])
            };
            let known = known(db, &plan.sources[source])?;
            let (inputs, ahead) = (self.inputs.clone(), ahead.clone());
            trees.push(Tree::watch(tree, known, move |report| {
                let input = SourceInput::Tree(generation, report);
                let is_wanted = ahead.send(()).is_ok() && inputs.send(Input::Work(input)).is_ok();
                match is_wanted {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?);
        }
        Ok(NextTrees {
            generation,
            waiting,
            trees,
        })
    }

    /// Puts the first trees in use.
    pub fn begin(&mut self, next: NextTrees) {
        self.generation = next.generation;
        self.waiting = Some(next.waiting);
        self.trees = next.trees;
    }

    /// Puts the trees of another plan in use. `began` is when the change of plan began, and `was_settled` says that all
    /// of them were swept under the plan before.
    pub fn replace(&mut self, next: NextTrees, began: Timestamp, was_settled: bool) {
        let before = std::mem::take(&mut self.trees);
        self.begin(next);
        drop_elsewhere(before);
        self.was_settled = was_settled;
        self.began.get_or_insert(began);
    }

    /// Stops watching; reports that are still queued count no more.
    pub fn stop(&mut self) {
        self.last_generation.0 += 1;
        self.generation = self.last_generation;
        self.waiting = None;
        drop_elsewhere(std::mem::take(&mut self.trees));
    }

    /// Returns true if a report of this generation counts.
    pub fn is_current(&self, generation: Generation) -> bool {
        generation == self.generation
    }

    /// Takes note of a report. R13: a change made while the daemon starts is one, although no tree is watched yet, so
    /// that a mount counts as found when the daemon began.
    pub fn note(&mut self, report: &mut TreeReport) {
        let _ = self.waiting.as_ref().map(Receiver::try_recv);
        match report {
            TreeReport::Event(Event::MountFound { started, .. }) => {
                *started = self.began.map_or(*started, |began| began.min(*started));
            }
            TreeReport::Sweeping { mount, files } | TreeReport::Swept { mount, files, .. } => {
                self.progress.insert(*mount, *files);
            }
            TreeReport::Event(_) | TreeReport::Notice(_) => {}
        }
    }

    /// Takes note that each present mount was swept.
    pub fn settled(&mut self) {
        self.began = None;
        self.was_settled = false;
        self.progress.clear();
    }

    /// Returns true if each present mount was swept under the plan before.
    pub fn was_settled(&self) -> bool {
        self.was_settled
    }

    /// Returns the number of candidates met so far by the first sweeps.
    pub fn files_met(&self) -> u64 {
        self.progress.values().sum()
    }

    /// Returns the keys of the Change Lists that were read last.
    pub fn recent_keys(&self) -> RecentKeys {
        self.recent_keys.clone()
    }

    /// Asks for a fresh look at these paths.
    pub fn look(&self, paths: &[DocumentPath]) {
        for tree in &self.trees {
            tree.look(paths.to_vec());
        }
    }

    /// Asks why there is no document at these paths.
    pub fn explain(&self, paths: &[DocumentPath]) {
        for tree in &self.trees {
            tree.explain(paths.to_vec());
        }
    }

    /// Returns the hints that each source's tree got, those of earlier trees included.
    pub fn hints(&self, plan: &Plan, before: &BTreeMap<String, Hints>) -> BTreeMap<String, Hints> {
        let counted = plan.sources.iter().zip(&self.trees);
        counted
            .map(|(source, tree)| {
                let before = before.get(&source.name).copied();
                let hints = before.unwrap_or_default().and(tree.hints());
                (source.name.clone(), hints)
            })
            .collect()
    }
}

/// Returns true if `effective` looks at all that `plan` looks at.
pub fn covers(effective: &Plan, plan: &Plan) -> bool {
    let is_covered = |source: &SourcePlan| {
        let is_same = |other: &SourcePlan| {
            other.mounts == source.mounts && other.candidates == source.candidates
        };
        effective.sources.iter().any(is_same)
    };
    plan.sources.iter().all(is_covered)
}

/// Drops trees on a thread of its own: a thread of theirs on a dead mount may take long to end.
fn drop_elsewhere(trees: Vec<Tree>) {
    // If no thread can be started, they are dropped here.
    let _ = std::thread::Builder::new().spawn(move || drop(trees));
}

/// Returns the files of a source that earlier runs read, with the stat data that spares reading them again.
fn known(db: Db<'_>, source: &SourcePlan) -> state::Result<KnownFiles> {
    let mut known = KnownFiles::default();
    for mount in &source.mounts {
        // No file has a size below 0: such a one is read again, and missed if it is not there.
        let sql = "SELECT path, size, modified, changed, inode, looked FROM document WHERE mount = ?1 AND presence = 1 \
             UNION ALL SELECT path, size, modified, changed, inode, looked FROM other_file WHERE mount = ?1 \
             UNION ALL SELECT path, -1, 0, 0, 0, 0 FROM trouble WHERE mount = ?1 \
             UNION ALL SELECT path, -1, 0, 0, 0, 0 FROM document WHERE mount = ?1 AND presence IN (2, 3)";
        let mut statement = db.statement(sql, mount.id)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let (below, stat, read_at) = state::read(row)?;
            let mount = mount.id;
            known.add(KnownFile {
                path: DocumentPath { mount, below },
                stat,
                read_at,
            });
        }
    }
    Ok(known)
}
