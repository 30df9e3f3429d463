//! A sweep lists every directory of a mount and looks at every candidate that changed: it is the truth that
//! hints only anticipate.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::announce::observation::{Incomplete, Look};
use crate::tree::Report;
use crate::tree::looker::Looker;
use crate::tree::mount::Sweep;

/// How often a sweep says that it goes on.
const PROGRESS: Duration = Duration::from_secs(1);

impl Looker<'_> {
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
            let report = Report::Sweeping {
                mount: mount.id,
                files: sweep.met,
            };
            self.send(report);
        } else if let Some(id) = sweep.files.pop_front() {
            self.look_at(id, true);
        } else if let Some(id) = sweep.directories.pop_front() {
            self.list(id, true, true);
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
        let asked = std::mem::take(&mut self.mounts[at].asked);
        if complete {
            self.report_unmet(at);
        }
        for path in asked {
            self.ask(path, true);
        }
        let hints = self.gives_hints(at);
        let mount = &mut self.mounts[at];
        mount.was_swept |= complete;
        mount.is_polled = !hints || mount.has_unwatched;
        let interval = if mount.is_polled {
            self.settings.poll_interval
        } else {
            self.settings.rescan_interval
        };
        mount.next_sweep = Instant::now() + interval;
        let report = Report::Swept {
            mount: mount.id,
            complete,
            files: sweep.met,
            took: sweep.started.elapsed(),
        };
        self.send(report);
    }

    /// Files of an earlier run that this sweep did not meet are missing, unless they lie where we cannot see.
    fn report_unmet(&mut self, at: usize) {
        let denied: Vec<Vec<u8>> = self
            .denied
            .keys()
            .filter(|id| self.model.directory(**id).is_some_and(|it| it.mount == at))
            .map(|id| self.model.below(*id))
            .collect();
        let unmet = std::mem::take(&mut self.mounts[at].known);
        for (below, mut ghost) in unmet {
            let is_denied = denied.iter().any(|above| {
                below
                    .strip_prefix(&**above)
                    .is_some_and(|rest| rest.starts_with(b"/"))
            });
            let path = self.mounts[at].path(&below);
            if !is_denied {
                self.observe_missing(path, ghost);
                continue;
            }
            if !std::mem::replace(&mut ghost.is_told_denied, true) {
                let reason = Incomplete::Denied("its directory cannot be read".into());
                self.observe(path, Look::Incomplete(reason));
            }
            self.mounts[at].known.insert(below, ghost);
        }
    }
}
