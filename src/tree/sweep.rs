//! A sweep lists every directory of a mount and looks at every candidate that changed: it is the truth that
//! hints only anticipate.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::announce::observation::{Incomplete, Look};
use crate::tree::TreeReport;
use crate::tree::model::{DirectoryId, Entry, push_name};
use crate::tree::mount::Sweep;
use crate::tree::observer::Observer;

/// How often a sweep says that it goes on: often enough for somebody who watches a terminal.
const PROGRESS: Duration = Duration::from_millis(250);

impl Observer<'_> {
    /// Sweeps a mount, or does so from the beginning if it is being swept.
    pub(super) fn start_sweep(&mut self, mount: usize) {
        let mount = &mut self.mounts[mount];
        if mount.identity.is_none() {
            return;
        }
        mount.has_unwatched = false;
        let started = mount.sweep.as_ref().map(|sweep| sweep.started);
        let begun = mount
            .sweep
            .take()
            .map(|sweep| (sweep.files, sweep.unsettled));
        let (files, unsettled) = begun.unwrap_or_default();
        mount.sweep = Some(Sweep {
            directories: VecDeque::from([mount.root]),
            files,
            unsettled,
            met: 0,
            started: started.unwrap_or_else(Instant::now),
            told: Instant::now(),
        });
    }

    /// Does one step of a sweep; false if there is none.
    pub(super) fn go_on_sweeping(&mut self) -> bool {
        let has_work = |sweep: &Sweep| sweep.has_work();
        let Some(at) = self
            .mounts
            .iter()
            .position(|it| it.sweep.as_ref().is_some_and(has_work))
        else {
            return false;
        };
        let mount = &mut self.mounts[at];
        let Some(sweep) = &mut mount.sweep else {
            return false;
        };
        if sweep.told.elapsed() >= PROGRESS {
            sweep.told = Instant::now();
            let report = TreeReport::Sweeping {
                mount: mount.id,
                files: sweep.met,
            };
            self.send(report);
        } else if let Some(id) = sweep.directories.pop_front() {
            // All are listed first: what changes in a watched directory need not settle.
            self.list(id, true, true);
        } else if !sweep.files.is_empty() {
            self.look_at_next(at);
        } else if let Some((id, _)) = sweep.unsettled.pop_front() {
            self.look_at(id, false);
        } else {
            self.end_sweep(at, true);
        }
        true
    }

    /// Ends the sweep of a mount; an incomplete one proves nothing about what it did not meet.
    pub(super) fn end_sweep(&mut self, at: usize, complete: bool) {
        let Some(sweep) = self.mounts[at].sweep.take() else {
            return;
        };
        if complete {
            self.report_unmet(at);
            // What was asked of a root that went is answered once another is swept, or none is there.
            for path in std::mem::take(&mut self.mounts[at].asked) {
                self.ask(path, true);
            }
        }
        self.tell_unreadable();
        let (hints, wanted) = (self.gives_hints(at), self.trusts_hints(at));
        let mount = &mut self.mounts[at];
        mount.was_swept |= complete;
        mount.is_polled = !hints || mount.has_unwatched;
        let interval = if mount.is_polled {
            self.settings.poll_interval
        } else {
            self.settings.rescan_interval
        };
        mount.next_sweep = Instant::now() + interval;
        let report = TreeReport::Swept {
            mount: mount.id,
            complete,
            files: sweep.met,
            took: sweep.started.elapsed(),
            unwatched: wanted && mount.is_polled,
        };
        self.send(report);
    }

    /// Files of an earlier run that this sweep did not meet are missing, unless they lie where we cannot see.
    fn report_unmet(&mut self, at: usize) {
        let unseen = self.unseen(at);
        let unmet = std::mem::take(&mut self.mounts[at].known);
        for (below, mut unmet) in unmet {
            let ends = (0..below.len()).filter(|&end| below[end] == b'/');
            let reason = ends.filter_map(|end| unseen.get(&below[..end])).next();
            let path = self.mounts[at].path(&below);
            let Some(reason) = reason else {
                self.observe_missing(path, unmet);
                continue;
            };
            if !std::mem::replace(&mut unmet.is_told_denied, true) {
                let reason = Incomplete::Denied((*reason).into());
                self.observe(path, Look::Incomplete(reason));
            }
            self.mounts[at].known.insert(below, unmet);
        }
    }

    /// The paths in a mount beneath which we cannot see, and why.
    fn unseen(&self, at: usize) -> HashMap<Vec<u8>, &'static str> {
        let in_mount = |id: &DirectoryId| {
            let directory = self.model.directory(*id)?;
            (directory.mount == at).then_some((*id, directory))
        };
        let denied = self.denied.keys().filter_map(in_mount);
        let denied = denied.map(|(id, _)| (self.model.below(id), "its directory cannot be read"));
        let refused = self.linked.iter().filter_map(in_mount);
        let refused = refused.flat_map(|(id, directory)| {
            let is_refused =
                |name: &&Arc<[u8]>| directory.entries.get(&***name) == Some(&Entry::Refused);
            directory.links.iter().filter(is_refused).map(move |name| {
                let mut below = self.model.below(id);
                push_name(&mut below, name);
                (below, "it lies behind a link that is not followed")
            })
        });
        denied.chain(refused).collect()
    }
}
