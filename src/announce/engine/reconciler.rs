//! The reconciler: compares what is seen of the documents of a source with what every hub was told of them (R10, R22).

use std::collections::BTreeSet;

use resourcesync::uri::{Hub, Uri, UriSet};

use crate::announce::engine::channels::Channels;
use crate::announce::engine::source::Source;
use crate::announce::engine::step::Step;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Withdrawn;
use crate::announce::plan::WindowPlan;
use crate::announce::state::Record;

/// One source and the channels, while the accounts of hubs are brought up to date with it.
///
/// A comparison tells what a hub is due and what is held; one follows each change of what the hub was told.
#[derive(Debug)]
pub struct Reconciler<'a> {
    source: &'a mut Source,
    channels: &'a mut Channels,
    window: &'a WindowPlan,
    step: &'a mut Step,
}

impl<'a> Reconciler<'a> {
    pub fn new(
        source: &'a mut Source,
        channels: &'a mut Channels,
        window: &'a WindowPlan,
        step: &'a mut Step,
    ) -> Reconciler<'a> {
        Reconciler {
            source,
            channels,
            window,
            step,
        }
    }

    /// Compares some documents, of which the `changed` ones have a new version.
    pub fn documents(&mut self, uris: &BTreeSet<Uri>, changed: &UriSet) {
        for uri in uris {
            self.document(uri, changed.contains(uri));
        }
    }

    /// Compares all documents, of which none has a new version.
    pub fn all_documents(&mut self) {
        let known = self.source.catalog().iter();
        let known: Vec<Uri> = known.map(|(uri, _)| uri.clone()).collect();
        for uri in known {
            self.document(&uri, false);
        }
    }

    /// Compares a document on every channel that must hear of it or did.
    fn document(&mut self, uri: &Uri, is_new: bool) {
        let Some(record) = self.source.catalog().get(uri) else {
            return;
        };
        let mut is_held = false;
        let position = self.source.documents().source();
        for id in self.channels.concerned(position, uri, record) {
            for hub in self.channels.hubs(id) {
                is_held |= self.account(id, &hub, uri, is_new);
            }
        }
        let documents = self.source.documents_mut();
        documents.set_held(uri, is_held, self.window.hold, self.step);
    }

    /// Brings one hub's account up to date. Returns true if the change is held.
    fn account(&mut self, id: ChannelId, hub: &Hub, uri: &Uri, is_new: bool) -> bool {
        let (plan, catalog) = (self.source.plan(), self.source.catalog());
        let Some(mut accounts) = self.channels.accounts(id) else {
            return false;
        };
        let compared = accounts.compare(hub, uri, catalog, plan, self.step);
        if compared.is_newly_due || (compared.is_due && is_new) {
            self.channels.cuts.touch(id, self.window, self.step);
        }
        compared.is_held
    }

    /// Compares a document again for one hub, after what that hub was told of it changed; and for all hubs if the
    /// change is held now (R17).
    fn again(&mut self, id: ChannelId, hub: &Hub, uri: &Uri) {
        if self.account(id, hub, uri, false) {
            self.document(uri, false);
        }
    }

    /// Follows up on a notification that was withdrawn, and on documents of which it is not known any more what the hub was
    /// told.
    pub fn withdrawn(&mut self, id: ChannelId, hub: &Hub, withdrawn: &Withdrawn) {
        for uri in &withdrawn.doubtful {
            self.step.save_told(id, hub.clone(), uri.clone());
            self.channels.hears(id, uri);
        }
        for uri in &withdrawn.covered {
            self.again(id, hub, uri);
        }
    }

    /// Follows up on documents of which a hub was told, or that count as told.
    pub fn told<'u>(&mut self, id: ChannelId, hub: &Hub, uris: impl Iterator<Item = &'u Uri>) {
        for uri in uris {
            self.step.save_told(id, hub.clone(), uri.clone());
            self.channels.hears(id, uri);
            self.again(id, hub, uri);
            self.forget_if_done(uri);
        }
        self.end_accounts(id);
    }

    /// Forgets a deleted document once every hub was told.
    pub fn forget_if_done(&mut self, uri: &Uri) {
        let is_gone = self.source.catalog().get(uri).is_some_and(Record::is_gone);
        if is_gone && !self.channels.owes(uri) {
            self.channels.forget(uri);
            self.source.documents_mut().forget(uri, self.step);
        }
    }

    /// Ends the accounts of hubs that have left and were told all that was due to them, if another one goes on (R11).
    pub fn end_accounts(&mut self, id: ChannelId) {
        let accounts = self.channels.accounts(id);
        let ended = accounts.map(|mut accounts| accounts.end(self.step));
        for ledger in ended.unwrap_or_default() {
            self.source.documents_mut().account_ended(&ledger);
        }
    }
}
