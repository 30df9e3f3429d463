//! Mounts that are found, replaced or lost: what is reported of each, and what is looked at again.

use jiff::Timestamp;

use crate::announce::event::Event;
use crate::announce::observation::Identity;
use crate::tree::file_system::file_system;
use crate::tree::observer::Observer;
use crate::tree::tree_mounts::RootChange;
use crate::tree::work_queue::Depth;
use crate::tree::{TreeNotice, TreeReport};

impl Observer<'_> {
    pub(super) fn check_mounts(&mut self) {
        for at in 0..self.mounts.len() {
            self.check_mount(at);
        }
    }

    /// Finds out whether a mount is there, and whether it is the same as before.
    pub(in crate::tree) fn check_mount(&mut self, at: usize) {
        self.watch_parent(at);
        if let Some(change) = self.mounts.root_change(at) {
            self.change_root(at, change);
        }
    }

    /// Checks a mount after an event that may have ended the watch of its root, and lists all of it.
    pub(super) fn relist_mount(&mut self, at: usize) {
        self.check_mount(at);
        self.queue
            .push_directory(self.mounts[at].root, Depth::Subtree);
    }

    pub(in crate::tree) fn change_root(&mut self, at: usize, change: RootChange) {
        match change {
            RootChange::Found(identity) => self.find_mount(at, identity),
            RootChange::Lost(reason) => self.lose_mount(at, &reason),
        }
    }

    fn lose_mount(&mut self, at: usize, reason: &str) {
        let was_present = self.leave_mount(at);
        let reported = self.mounts.lose(at, reason, was_present);
        self.report_unreadable();
        let Some(reason) = reported else {
            return;
        };
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
        if !self.mounts[at].leave() {
            return false;
        }
        // R15: what seemed to be missing there is withdrawn, before another root is found in its place.
        self.flush();
        self.end_sweep(at, false);
        for id in self.model.directories.beneath(self.mounts[at].root) {
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
