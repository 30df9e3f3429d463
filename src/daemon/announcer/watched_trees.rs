//! The trees that are watched under the effective plan, and the progress of their first sweeps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, sync_channel};

use jiff::Timestamp;

use crate::config::Config;
use crate::daemon::announcer::{AnnouncerInput, RunInput};
use crate::daemon::event_loop::Input;
use crate::report::figures::HintCounts;
use crate::tree::{KnownFiles, ListKeyCache, TreeHandle};
use announce::observation::{DocumentPath, MountId};
use announce::plan::{Plan, SourcePlan};
use announce::state::{self, Db};
use websub::http::lock;

/// Maximum reports of trees that wait to be taken.
const MAX_WAITING: usize = 8;

/// Trees that are watched, one for each source of a plan, in the order of the plan.
pub struct RunningTrees {
    /// Each reload that changes the trees has a number of its own.
    pub number: u64,
    /// One for each report that waits to be taken: a tree that is read faster than it is saved waits itself. Dropped before the
    /// trees, which end with it.
    pub waiting: Receiver<()>,
    pub trees: Vec<TreeHandle>,
}

/// The trees that are in use.
pub struct WatchedTrees {
    /// Reports of others do not count: not yet, or no more.
    pub current: Option<RunningTrees>,
    /// Number of the last generation that was tried; it may have failed.
    last_number: u64,
    inputs: Sender<RunInput>,
    /// Keys of the Change Lists that the trees read.
    pub recent_keys: ListKeyCache,
    /// Start of the daemon or time of the last change of plan, until each present mount was swept since.
    pub began: Option<Timestamp>,
    /// True if each present mount was swept under the plan before, which has the same mounts.
    pub was_settled: bool,
    /// Candidates met by the sweep of each mount, until all are swept.
    pub progress: BTreeMap<MountId, u64>,
}

impl WatchedTrees {
    /// Watches nothing yet. `began` is the start of the process.
    pub fn new(inputs: Sender<RunInput>, began: Timestamp) -> WatchedTrees {
        WatchedTrees {
            current: None,
            last_number: 0,
            inputs,
            recent_keys: ListKeyCache::default(),
            began: Some(began),
            was_settled: false,
            progress: BTreeMap::new(),
        }
    }

    /// Starts trees for a plan, which are not in use yet. They begin before the others end, and
    /// until then take as many watches again; if those run out, the next sweep finds them free.
    pub fn start_generation(
        &mut self,
        config: &Config,
        plan: &Plan,
        db: Db<'_>,
    ) -> anyhow::Result<RunningTrees> {
        self.last_number += 1;
        let number = self.last_number;
        // Of trees that are given up, the receiver goes first.
        let mut trees = Vec::new();
        let (ahead, waiting) = sync_channel(MAX_WAITING);
        for (source, plan) in config.sources.iter().zip(&plan.sources) {
            let mut tree = source.tree_settings(plan);
            tree.recent_keys = self.recent_keys.clone();
            let known = known_files(db, plan)?;
            let (inputs, ahead) = (self.inputs.clone(), ahead.clone());
            trees.push(TreeHandle::watch(tree, known, move |report| {
                let input = AnnouncerInput::Tree(number, report);
                let is_wanted = ahead.send(()).is_ok() && inputs.send(Input::Work(input)).is_ok();
                if is_wanted {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?);
        }
        Ok(RunningTrees {
            number,
            waiting,
            trees,
        })
    }

    /// Puts the trees of another plan in use. `began` is when the change of plan began, and `was_settled` says that all
    /// of them were swept under the plan before.
    pub fn replace(&mut self, next: RunningTrees, began: Timestamp, was_settled: bool) {
        drop_elsewhere(self.current.replace(next));
        self.was_settled = was_settled;
        self.began.get_or_insert(began);
    }

    /// Returns the hints that each source's tree got, those of earlier trees included.
    pub fn hint_counts(
        &self,
        plan: &Plan,
        before: &BTreeMap<String, HintCounts>,
    ) -> BTreeMap<String, HintCounts> {
        let counted = plan
            .sources
            .iter()
            .zip(self.current.iter().flat_map(|it| &it.trees));
        let hints = counted.map(|(source, tree)| {
            let mut hints = lock(&tree.hints.pending).counted;
            if let Some(before) = before.get(&source.name) {
                hints.taken += before.taken;
                hints.overflows += before.overflows;
            }
            (source.name.clone(), hints)
        });
        hints.collect()
    }
}

/// Returns true if `effective` looks at all that `plan` looks at.
pub fn covers_plan(effective: &Plan, plan: &Plan) -> bool {
    let is_covered = |source: &SourcePlan| {
        let is_same = |other: &SourcePlan| {
            other.mounts == source.mounts && other.candidates == source.candidates
        };
        effective.sources.iter().any(is_same)
    };
    plan.sources.iter().all(is_covered)
}

/// Drops trees on a thread of its own: a thread of theirs on a dead mount may take long to end.
pub fn drop_elsewhere(trees: Option<RunningTrees>) {
    // If no thread can be started, they are dropped here.
    let _ = std::thread::Builder::new().spawn(move || drop(trees));
}

/// Returns the files of a source that earlier runs read, with the stat data that spares reading them again.
fn known_files(db: Db<'_>, source: &SourcePlan) -> state::Result<KnownFiles> {
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
            known.add(DocumentPath { mount, below }, &stat, read_at);
        }
    }
    Ok(known)
}
