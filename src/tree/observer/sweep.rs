//! A sweep lists every directory of a mount and looks at every candidate that changed: hints only make its results
//! known earlier.

use std::collections::HashMap;
use std::time::Instant;

use crate::announce::event::Event;
use crate::tree::TreeReport;
use crate::tree::mount::SweepStep;
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;

impl Observer<'_> {
    /// Performs one step of a sweep. Returns false if there is none to perform.
    pub fn continue_sweep(&mut self) -> bool {
        let mut sweeps = self.mounts.iter_mut().enumerate();
        let next = sweeps.find_map(|(at, mount)| {
            let sweep = mount.sweep.as_mut().filter(|sweep| sweep.has_work())?;
            Some((at, mount.id, sweep.next_step(Instant::now()), sweep.met))
        });
        let Some((at, mount, step, files)) = next else {
            return false;
        };
        match step {
            SweepStep::ReportProgress => self.send(TreeReport::Sweeping { mount, files }),
            SweepStep::List(id) => self.list(id, Depth::Sweep),
            SweepStep::ReadFiles => self.read_next_of_sweep(at),
            SweepStep::ReadUnsettled(id) => self.read_if_due(id),
            SweepStep::End => self.end_sweep(at, true),
        }
        true
    }

    /// Ends the sweep of a mount; an incomplete one proves nothing about files that it did not meet.
    pub fn end_sweep(&mut self, at: usize, complete: bool) {
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
        let gives_hints = self.gives_hints(at);
        let mount = &mut self.mounts[at];
        mount.end_sweep(complete, gives_hints, &self.settings);
        let (id, candidates) = (mount.id, sweep.met);
        let report = TreeReport::Swept {
            mount: id,
            complete,
            files: candidates,
            took: sweep.started.elapsed(),
            unwatched: self.settings.watch.trusts(mount.file_system) && mount.is_polled,
        };
        self.send(report);
        self.reports.send(TreeReport::Event(Event::Swept {
            mount: id,
            complete,
            candidates,
        }));
    }

    /// Reports files of an earlier run that this sweep did not meet: they are missing, unless they are unreachable.
    fn report_unmet(&mut self, at: usize) {
        let denied = self.unreadable.below(at, &self.model).into_iter();
        let denied = denied.map(|below| (below, "its directory cannot be read"));
        let refused = self.links.refused(at, &self.model).into_iter();
        let refused = refused.map(|below| (below, "it lies behind a link that is not followed"));
        let unseen: HashMap<Vec<u8>, &str> = denied.chain(refused).collect();
        for (path, unmet) in self.mounts[at].take_unmet(&unseen) {
            match unmet {
                Ok(file) => self.reports.observe_missing(path, file),
                Err(reason) => self.report_denied(path, reason.into()),
            }
        }
    }
}
