//! The consequences of the changes of a source: relations of documents, what each hub is due, channels, and findings.

use std::collections::BTreeSet;

use crate::announce::engine::Engine;
use crate::announce::engine::source::changes::Changes;
use crate::announce::ids::ChannelId;
use crate::announce::state::Record;
use crate::resourcesync::uri::{Hub, Uri};

impl Engine {
    /// Settles what changed in a source, in the order in which one follows from the other.
    pub(super) fn settle_source(&mut self, position: usize) {
        let Some(mut changes) = self.sources[position].documents_mut().take_changes() else {
            return;
        };
        let is_first = self.sources[position].documents().times_settled() == 1;
        if is_first {
            let channels = self.channels.of_source(position);
            changes
                .sets
                .extend(channels.map(|(_, channel)| channel.row.set.clone()));
        }
        let documents = self.sources[position].documents_mut();
        let mut affected = documents.relate(&mut changes, &mut self.step);
        self.compare_all(position, &affected, &changes);
        let (quiet, now) = (self.plan.window.quiet, self.step.now());
        self.sources[position].remember_descriptions(&changes, quiet, now);

        let mut rerouted = self.route(position, &changes, is_first);
        self.compare_all(position, &rerouted, &changes);
        self.note_change_lists(position, &affected, &changes, is_first);

        // Sets are joined by `append`, which merges: they may hold every document of the source.
        affected.append(&mut rerouted);
        affected.append(&mut changes.sets);
        self.sources[position].find(&mut affected, &changes, &mut self.step);
        for uri in &affected {
            self.forget_if_done(position, uri);
        }
    }

    fn compare_all(&mut self, position: usize, uris: &BTreeSet<Uri>, changes: &Changes) {
        for uri in uris {
            self.compare(position, uri, changes.changed.contains(uri));
        }
    }

    /// Compares what is seen of a document with what every hub was told of it, on every channel that must
    /// hear of it or did (R10, R22).
    pub(super) fn compare(&mut self, position: usize, uri: &Uri, is_new: bool) {
        let Some(record) = self.sources[position].catalog().get(uri) else {
            return;
        };
        let mut is_held = false;
        for id in self.channels.concerned(position, uri, record) {
            for hub in self.channels.hubs(id) {
                is_held |= self.compare_account(position, id, &hub, uri, is_new);
            }
        }
        let hold = self.plan.window.hold;
        let documents = self.sources[position].documents_mut();
        documents.set_held(uri, is_held, hold, &mut self.step);
    }

    /// Brings one hub's account up to date. Returns true if the change is held.
    fn compare_account(
        &mut self,
        position: usize,
        id: ChannelId,
        hub: &Hub,
        uri: &Uri,
        is_new: bool,
    ) -> bool {
        let plan = &self.plan.sources[position];
        let catalog = self.sources[position].catalog();
        let compared = self
            .channels
            .compare(id, hub, uri, catalog, plan, &mut self.step);
        if compared.is_newly_due || (compared.is_due && is_new) {
            self.channels.touch(id, &self.plan.window, &mut self.step);
        }
        compared.is_held
    }

    /// Compares again after what a hub knows of a document changed. If that makes the document wait, it does from now on
    /// (R17).
    pub(super) fn compare_again(&mut self, position: usize, id: ChannelId, hub: &Hub, uri: &Uri) {
        if self.compare_account(position, id, hub, uri, false) {
            self.compare(position, uri, false);
        }
    }

    /// Forgets a deleted document once every hub knows.
    pub(super) fn forget_if_done(&mut self, position: usize, uri: &Uri) {
        let source = &mut self.sources[position];
        let is_gone = source.catalog().get(uri).is_some_and(Record::is_gone);
        if is_gone && !self.channels.owes(uri) {
            self.channels.forget(uri);
            source.documents_mut().forget(uri, &mut self.step);
        }
    }
}
