//! A sweep lists every directory of a mount and looks at every candidate that changed: hints only make its results
//! known earlier.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::announce::observation::{Incomplete, Look};
use crate::tree::TreeReport;
use crate::tree::model::{DirectoryId, TreeEntry};
use crate::tree::mount::{Sweep, SweepStep};
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;

impl Observer<'_> {
    /// Sweeps a mount, or does so from the beginning if it is being swept.
    pub(super) fn start_sweep(&mut self, at: usize) {
        let mount = &mut self.mounts[at];
        if mount.is_present() {
            mount.has_unwatched = false;
            mount.sweep = Some(Sweep::begin(mount.root, mount.sweep.take()));
        }
    }

    /// Performs one step of a sweep. Returns false if there is none to perform.
    pub(super) fn continue_sweep(&mut self) -> bool {
        let mut mounts = self.mounts.iter_mut().enumerate();
        let step = mounts.find_map(|(at, mount)| {
            let sweep = mount.sweep.as_mut().filter(|sweep| sweep.has_work())?;
            Some((at, sweep.next_step()))
        });
        let Some((at, step)) = step else { return false };
        match step {
            SweepStep::ReportProgress => self.report_progress(at),
            SweepStep::List(id) => self.list(id, Depth::Subtree, true),
            SweepStep::ReadFiles => self.read_next_of_sweep(at),
            SweepStep::ReadUnsettled(id) => self.read_if_due(id, false),
            SweepStep::End => self.end_sweep(at, true),
        }
        true
    }

    fn report_progress(&mut self, at: usize) {
        let mount = &self.mounts[at];
        let report = TreeReport::Sweeping {
            mount: mount.id,
            files: mount.sweep.as_ref().map_or(0, |sweep| sweep.met),
        };
        self.send(report);
    }

    /// Ends the sweep of a mount; an incomplete one proves nothing about files that it did not meet.
    pub(super) fn end_sweep(&mut self, at: usize, complete: bool) {
        let Some(sweep) = self.mounts[at].sweep.take() else {
            return;
        };
        if complete {
            if !self.mounts[at].was_swept() {
                self.nested.announce(at);
            }
            self.report_unmet(at);
            // Requests about a root that went are answered once another is swept, or none is there.
            for path in std::mem::take(&mut self.mounts[at].requested) {
                self.answer_request(path, true);
            }
        }
        self.report_unreadable();
        let (gives_hints, trusts_hints) = (self.gives_hints(at), self.trusts_hints(at));
        let mount = &mut self.mounts[at];
        if complete {
            mount.set_swept();
        }
        mount.is_polled = !gives_hints || mount.has_unwatched;
        let interval = match mount.is_polled {
            true => self.settings.poll_interval,
            false => self.settings.rescan_interval,
        };
        mount.next_sweep = Instant::now() + interval;
        let report = TreeReport::Swept {
            mount: mount.id,
            complete,
            files: sweep.met,
            took: sweep.started.elapsed(),
            unwatched: trusts_hints && mount.is_polled,
        };
        self.send(report);
    }

    /// Reports files of an earlier run that this sweep did not meet: they are missing, unless they are unreachable.
    fn report_unmet(&mut self, at: usize) {
        let unseen = self.out_of_sight(at);
        let unmet = std::mem::take(&mut self.mounts[at].unmet);
        for (below, mut file) in unmet {
            let ends = (0..below.len()).filter(|&end| below[end] == b'/');
            let reason = ends.filter_map(|end| unseen.get(&below[..end])).next();
            let path = self.mounts[at].path(&below);
            let Some(reason) = reason else {
                self.reports.observe_missing(path, file);
                continue;
            };
            if !std::mem::replace(&mut file.is_reported_denied, true) {
                let reason = Incomplete::Denied((*reason).into());
                self.reports.observe(path, Look::Incomplete(reason));
            }
            self.mounts[at].unmet.insert(below, file);
        }
    }

    /// Returns the paths in a mount beneath which nothing can be read, with the reasons.
    fn out_of_sight(&self, at: usize) -> HashMap<Vec<u8>, &'static str> {
        let in_mount = |id: &DirectoryId| self.model.mount_of(*id) == Some(at);
        let denied = self.unreadable.ids().filter(in_mount);
        let denied = denied.map(|id| (self.model.below(id), "its directory cannot be read"));
        let refused = self.links.iter().filter(in_mount).flat_map(|id| {
            let directory = self.model.directory(id).into_iter();
            directory.flat_map(move |directory| {
                let is_refused = |name: &&Arc<[u8]>| {
                    directory.entries.get(&***name) == Some(&TreeEntry::Refused)
                };
                let refused = directory.links.iter().filter(is_refused);
                refused.map(move |name| {
                    let below = self.model.below_name(id, name);
                    (below, "it lies behind a link that is not followed")
                })
            })
        });
        denied.chain(refused).collect()
    }
}
