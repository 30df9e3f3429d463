//! Mounts that are found, replaced or lost: what is reported of each, and what is looked at again.

use std::time::Instant;

use jiff::Timestamp;

use crate::announce::event::Event;
use crate::announce::observation::Identity;
use crate::tree::file_system::file_system;
use crate::tree::mount::SWAPPED_WITHIN;
use crate::tree::observer::Observer;
use crate::tree::{TreeNotice, TreeReport};

impl Observer<'_> {
    pub fn check_mounts(&mut self) {
        for at in 0..self.mounts.len() {
            self.check_mount(at);
        }
    }

    /// Finds out whether a mount is there, and whether it is the same as before.
    pub fn check_mount(&mut self, at: usize) {
        self.watch_parent(at);
        match self.mounts[at].found_root() {
            Ok(identity) if self.mounts[at].identity() == Some(identity) => {}
            Ok(identity) => self.find_mount(at, identity),
            Err(reason) => self.lose_mount(at, &reason),
        }
    }

    /// Takes note that the root of a mount is not there, and reports why: once for each reason, and not while another root may
    /// be about to take its place.
    pub fn lose_mount(&mut self, at: usize, reason: &str) {
        let was_present = self.leave_mount(at);
        let now = Instant::now();
        if was_present {
            // A link may be removed before its replacement is there.
            self.heartbeat = self.heartbeat.min(now + SWAPPED_WITHIN);
        }
        let mount = &mut self.mounts[at];
        let reason = format!("{}: {reason}", mount.directory.display());
        let is_to_be_reported = mount.lose(&reason, was_present, now);
        self.report_unreadable();
        if !is_to_be_reported {
            return;
        }
        let mount = &mut self.mounts[at];
        let requested = std::mem::take(&mut mount.requested);
        let mount = mount.id;
        self.send(TreeReport::Event(Event::MountLost { mount, reason }));
        for path in requested {
            self.answer_request(path, true);
        }
    }

    /// Takes note that a root is gone, or another one is there. Returns true if there was one.
    fn leave_mount(&mut self, at: usize) -> bool {
        if self.mounts[at].found.take().is_none() {
            return false;
        }
        // R15: what seemed to be missing there is withdrawn, before another root is found in its place.
        self.flush();
        self.end_sweep(at, false);
        for id in self.model.beneath(self.mounts[at].root) {
            self.unwatch(id);
            self.unreadable.allow(id, at);
        }
        true
    }

    fn find_mount(&mut self, at: usize, identity: Identity) {
        if self.leave_mount(at) {
            let directory = self.mounts[at].directory.clone();
            self.reports.notice(TreeNotice::Replaced { directory });
        }
        // The exact clock: that of `ctime` may stand still for long on a busy virtual machine, and a file that was
        // written before would seem to be written since.
        let started = Timestamp::now();
        let mount = &mut self.mounts[at];
        mount.find(identity, started, file_system(&mount.directory));
        let mount = mount.id;
        self.send(TreeReport::Event(Event::MountFound {
            mount,
            identity,
            started,
        }));
        self.begin_watching(at);
        self.mounts[at].begin_sweep();
    }
}
