//! Mounts that are found, swept and lost (R13), and roots that hold nothing where documents were (R15).

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::engine::source::MountState;
use crate::announce::event::Fact;
use crate::announce::observation::{Identity, MountId, Unreadable};
use crate::announce::state::Record;
use crate::resourcesync::uri::Uri;

impl Engine {
    pub(super) fn mount_found(&mut self, id: MountId, identity: Identity, started: Timestamp) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        let status = self.sources[source]
            .mounts
            .get(&id)
            .map(|mount| mount.status);
        if status != Some(MountState::Unknown) {
            self.lose_sight(source, id);
        }
        let Some(mount) = self.sources[source].mounts.get_mut(&id) else {
            return;
        };
        // R13: another directory at this place is another tree, unless the first one held documents. If it did, this one
        // is taken for the mount once it holds something (R15).
        if !mount.row.held_document {
            if mount.row.identity != Some(identity) {
                mount.row.baselined = false;
            }
            mount.row.identity = Some(identity);
        }
        mount.found = Some(identity);
        mount.unfound.clear();
        mount.fresh.clear();
        mount.has_other_clock = false;
        mount.status = MountState::Sweeping;
        mount.started = started;
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
    }

    pub(super) fn swept(&mut self, id: MountId, complete: bool, candidates: u64, now: Timestamp) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        if !complete {
            return self.leave_mount(source, id);
        }
        let Some(mount) = self.sources[source].mounts.get(&id) else {
            return;
        };
        if mount.is_doubtful() {
            if candidates == 0 {
                return self.disbelieve(source, id);
            }
            self.believe(source, id, now);
        }
        let name = self.plan.sources[source].name.clone();
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        mount.status = MountState::Ready;
        mount.reason = None;
        mount.row.swept = Some(mount.started);
        mount.row.candidates = Some(self.plan.sources[source].candidates.clone());
        mount.looked_at = None;
        // No later sweep begins earlier than this, and not every one says when.
        mount.started = now;
        if !mount.row.baselined {
            mount.row.baselined = true;
            let documents = state.catalog.census().of(id).all.present;
            self.turn.facts.push(Fact::Baselined {
                source: name,
                mount: id,
                documents,
            });
        }
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
        self.end_baseline(source, id);
        self.look_at_missing(source, Some(id));
    }

    /// R15: a root that holds no candidate, and is not the one that held documents, is a mount that is away.
    fn disbelieve(&mut self, source: usize, id: MountId) {
        let Some(mount) = self.sources[source].mounts.get_mut(&id) else {
            return;
        };
        mount.unfound.clear();
        if mount.status == MountState::Absent {
            return;
        }
        mount.status = MountState::Absent;
        let reason = format!(
            "{}: it is empty, and not the directory that held documents: is its file system mounted?",
            mount.row.directory.display()
        );
        mount.reason = Some(reason.clone());
        let source = self.plan.sources[source].name.clone();
        self.tell(Fact::MountLost {
            source,
            mount: id,
            reason,
        });
    }

    /// R15: another root than the one that held documents holds something: it took its place.
    fn believe(&mut self, source: usize, id: MountId, at: Timestamp) {
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        let was_absent = mount.status == MountState::Absent;
        mount.row.identity = mount.found;
        mount.status = MountState::Ready;
        mount.reason = None;
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
        for uri in std::mem::take(&mut mount.unfound) {
            self.vanished(source, &uri, at, false, None);
        }
        if was_absent {
            // What was not found while it was empty was not told.
            let state = &self.sources[source];
            let of_mount = |(_, record): &(&Uri, &Record)| record.path.mount == id;
            let there = state.catalog.iter().filter(of_mount);
            let there = there.filter(|(_, record)| !record.is_gone());
            let paths = there.map(|(_, record)| record.path.clone());
            self.turn.look.extend(paths);
        }
    }

    /// Something lies below a root that was empty.
    pub(super) fn occupied(&mut self, source: usize, id: MountId, at: Timestamp) {
        let mount = self.sources[source].mounts.get(&id);
        let is_empty =
            mount.is_some_and(|mount| mount.status == MountState::Absent && mount.is_doubtful());
        if is_empty {
            self.believe(source, id, at);
        }
    }

    pub(super) fn unreadable(&mut self, id: MountId, directories: Vec<Unreadable>, more: usize) {
        let mut mounts = self.sources.iter_mut().map(|source| &mut source.mounts);
        if let Some(mount) = mounts.find_map(|mounts| mounts.get_mut(&id)) {
            mount.unreadable = (directories, more);
        }
    }

    pub(super) fn mount_lost(&mut self, id: MountId, reason: String) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        self.leave_mount(source, id);
        if let Some(mount) = self.sources[source].mounts.get_mut(&id) {
            mount.reason = Some(reason.clone());
        }
        let source = self.plan.sources[source].name.clone();
        self.tell(Fact::MountLost {
            source,
            mount: id,
            reason,
        });
    }

    /// R13: a baseline that was not finished is taken again, so nothing of it is kept.
    fn leave_mount(&mut self, source: usize, id: MountId) {
        self.lose_sight(source, id);
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        mount.status = MountState::Absent;
        mount.found = None;
        mount.unfound.clear();
        mount.fresh.clear();
        if mount.row.baselined {
            return;
        }
        let own = |(_, record): &(&Uri, &Record)| record.path.mount == id;
        let half_read: Vec<Uri> = state
            .catalog
            .iter()
            .filter(own)
            .map(|(uri, _)| uri.clone())
            .collect();
        for uri in half_read {
            state.catalog.remove(&uri);
            state.stale.baseline.remove(&uri);
            self.turn.documents.insert((source, uri));
        }
        let broken: Vec<Uri> = state
            .troubles
            .iter()
            .filter(|(_, trouble)| trouble.path.mount == id)
            .map(|(uri, _)| uri.clone())
            .collect();
        for uri in broken {
            self.forget_trouble(source, &uri);
        }
    }
}
