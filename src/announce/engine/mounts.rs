//! Mounts that are found, swept and lost (R13).

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::engine::source::MountStatus;
use crate::announce::event::Fact;
use crate::announce::observation::{Identity, MountId, Unreadable};
use crate::announce::state::Record;
use crate::resourcesync::uri::Uri;

impl Engine {
    pub(super) fn mount_found(&mut self, id: MountId, identity: Identity, started: Timestamp) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        let Some(mount) = self.sources[source].mounts.get_mut(&id) else {
            return;
        };
        // R13: another directory at this place is another tree, unless the first one held documents.
        if mount.row.identity != Some(identity) && !mount.row.held_document {
            mount.row.baselined = false;
        }
        mount.row.identity = Some(identity);
        mount.status = MountStatus::Sweeping;
        mount.started = started;
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
    }

    pub(super) fn swept(&mut self, id: MountId, complete: bool, now: Timestamp) {
        let Some(source) = self.source_of(id) else {
            return;
        };
        let name = self.plan.sources[source].name.clone();
        let state = &mut self.sources[source];
        let documents = state
            .catalog
            .iter()
            .filter(|(_, record)| record.path.mount == id)
            .count();
        if !complete {
            return self.leave_mount(source, id);
        }
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        mount.status = MountStatus::Ready;
        mount.row.swept = Some(mount.started);
        mount.row.candidates = Some(self.plan.sources[source].candidates.clone());
        mount.looked_at = None;
        // No later sweep begins earlier than this, and not every one says when.
        mount.started = now;
        if !mount.row.baselined {
            mount.row.baselined = true;
            self.turn.facts.push(Fact::Baselined {
                source: name,
                mount: id,
                documents,
            });
        }
        self.turn.save.mounts.insert(id, Some(mount.row.clone()));
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
        let source = self.plan.sources[source].name.clone();
        self.tell(Fact::MountLost {
            source,
            mount: id,
            reason,
        });
    }

    /// R13: a baseline that was not finished is taken again, so nothing of it is kept.
    fn leave_mount(&mut self, source: usize, id: MountId) {
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        mount.status = MountStatus::Absent;
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
