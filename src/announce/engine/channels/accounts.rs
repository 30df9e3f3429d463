//! The accounts of hubs on one channel: hubs that come and go, and what each is due and was told (R11, R13, R22).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use resourcesync::uri::{Hub, Uri};

use crate::announce::catalog::Catalog;
use crate::announce::changes::log::LogPosition;
use crate::announce::channel::Channel;
use crate::announce::due::{Due, due, may_become_due};
use crate::announce::engine::channels::hearers::Hearers;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::{Mode, SourcePlan};
use crate::announce::state::Told;

/// A channel while the accounts of its hubs change. Each change is saved, and each document that a hub hears of is noted.
#[derive(Debug)]
pub struct ChannelAccounts<'a> {
    id: ChannelId,
    channel: &'a mut Channel,
    hearers: &'a mut Hearers,
}

/// The result of comparing what is seen of a document with what one hub was told of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Compared {
    /// True if the change is held (R17).
    pub is_held: bool,
    pub is_due: bool,
    /// True if it was not due before.
    pub is_newly_due: bool,
}

impl<'a> ChannelAccounts<'a> {
    pub fn new(id: ChannelId, channel: &'a mut Channel, hearers: &'a mut Hearers) -> Self {
        ChannelAccounts {
            id,
            channel,
            hearers,
        }
    }

    pub fn channel(&self) -> &Channel {
        self.channel
    }

    // Hubs that come and go.

    /// Adds a hub, which hears of all that changes from now on, unless it is not configured and so has no mode. A new
    /// account begins with what was told on the channel.
    pub fn join(
        &mut self,
        hub: &Hub,
        mode: Option<Mode>,
        told: Option<&BTreeMap<Uri, Told>>,
        step: &mut Step,
    ) {
        if self.channel.ledgers.contains_key(hub) {
            self.resume(hub, step);
        } else if let Some(mode) = mode {
            self.add(hub, mode, told, step);
        }
    }

    fn add(&mut self, hub: &Hub, mode: Mode, told: Option<&BTreeMap<Uri, Told>>, step: &mut Step) {
        let mut ledger = Ledger::new(mode);
        // C26: on a change channel it is sent the notifications that are cut from now on.
        if let Some(seq) = self.logged() {
            ledger.row.position = LogPosition::at(seq);
        }
        ledger.told = told.cloned().unwrap_or_default();
        for uri in ledger.told.keys() {
            self.hearers.insert(self.id, uri);
            step.save_told(self.id, hub.clone(), uri.clone());
        }
        self.channel.ledgers.insert(hub.clone(), Box::new(ledger));
        step.save_ledger(self.id, hub.clone());
    }

    /// Resumes the account of a hub that had left: it is told everything again.
    fn resume(&mut self, hub: &Hub, step: &mut Step) {
        if let Some(ledger) = self.channel.ledgers.get_mut(hub)
            && ledger.row.left.take().is_some()
        {
            ledger.row.still_due = None;
            ledger.row.position.last = None;
            step.save_ledger(self.id, hub.clone());
        }
    }

    /// Returns the number of the last notification in the log of a change channel.
    fn logged(&self) -> Option<u64> {
        let channel = &self.channel;
        channel.is_of_changes().then_some(channel.row.seq)
    }

    /// Takes versions of documents as told to a hub that was told nothing of them.
    pub fn fill(
        &mut self,
        hub: &Hub,
        told: impl IntoIterator<Item = (Uri, Told)>,
        step: &mut Step,
    ) {
        let Some(ledger) = self.channel.ledgers.get_mut(hub) else {
            return;
        };
        for (uri, told) in told {
            if ledger.told.contains_key(&uri) {
                continue;
            }
            ledger.told.insert(uri.clone(), told);
            self.hearers.insert(self.id, &uri);
            step.save_told(self.id, hub.clone(), uri);
        }
    }

    /// Takes a version as told to every hub that was told nothing of the document.
    pub fn fill_all(&mut self, uri: &Uri, told: Told, step: &mut Step) {
        for (hub, ledger) in &mut self.channel.ledgers {
            if !ledger.told.contains_key(uri) {
                ledger.told.insert(uri.clone(), told);
                step.save_told(self.id, hub.clone(), uri.clone());
            }
        }
        self.hearers.insert(self.id, uri);
    }

    /// Begins to remove the hubs that are not among these. Returns true if there were any.
    pub fn keep_only(
        &mut self,
        hubs: &BTreeSet<Hub>,
        is_told: impl Fn(&Hub) -> bool,
        retention: Duration,
        catalog: &Catalog,
        step: &mut Step,
    ) -> bool {
        let listening = self.channel.listening().map(|(hub, _)| hub);
        let leaving = listening.filter(|hub| !hubs.contains(*hub));
        let leaving: Vec<Hub> = leaving.cloned().collect();
        for hub in &leaving {
            self.leave(hub, is_told(hub), retention, catalog, step);
        }
        !leaving.is_empty()
    }

    /// R11: begins to remove a hub that is advertised no more. It is sent the changes due until now, if it `is_told`;
    /// what it was told is kept for the next one.
    fn leave(
        &mut self,
        hub: &Hub,
        is_told: bool,
        retention: Duration,
        catalog: &Catalog,
        step: &mut Step,
    ) {
        let logged = self.logged();
        let Some(ledger) = self.channel.ledgers.get_mut(hub) else {
            return;
        };
        if let Some(seq) = logged {
            let position = &mut ledger.row.position;
            position.last = Some(if is_told { seq } else { position.heard });
        }
        let doubtful = match is_told {
            true => Vec::new(),
            false => {
                ledger.due.clear();
                ledger.withdraw(|_| false).doubtful
            }
        };
        ledger.close(catalog);
        ledger.row.left = Some(step.now());
        ledger.waiting.clear();
        for uri in doubtful {
            step.save_told(self.id, hub.clone(), uri);
        }
        step.save_ledger(self.id, hub.clone());
        step.wake_after(retention, Timer::Left(self.id, hub.clone()));
    }

    /// Ends the accounts of hubs that have left and were told all that was due to them, if another one goes on. Returns them.
    pub fn end(&mut self, step: &mut Step) -> Vec<Ledger> {
        if self.channel.listening().next().is_none() {
            return Vec::new();
        }
        let ledgers = &mut self.channel.ledgers;
        let ended = ledgers.extract_if(.., |_, ledger| ledger.has_ended());
        let ended = ended.map(|(hub, ledger)| {
            step.end_account(self.id, hub);
            step.serve(self.id);
            *ledger
        });
        ended.collect()
    }

    // Due documents.

    /// Compares what is seen of a document with what one hub was told of it, and brings the hub's account up to date.
    pub fn compare(
        &mut self,
        hub: &Hub,
        uri: &Uri,
        catalog: &Catalog,
        plan: &SourcePlan,
        step: &mut Step,
    ) -> Compared {
        let due = due(plan, catalog, self.channel, hub, uri);
        let may_follow = may_become_due(plan, catalog, self.channel, hub, uri, &due);
        let Some(ledger) = self.channel.ledgers.get_mut(hub) else {
            return Compared::default();
        };
        match may_follow {
            true => ledger.waiting.insert(uri.clone()),
            false => ledger.waiting.remove(uri),
        };
        let is_held = due == Due::Held;
        let is_due = matches!(due, Due::Announce(_));
        let is_newly_due = is_due && ledger.due.insert(uri.clone());
        if !is_due {
            ledger.due.remove(uri);
        }
        if matches!(due, Due::Acknowledged | Due::Absorbed(_)) && ledger.is_done_with(uri) {
            step.save_ledger(self.id, hub.clone());
        }
        if let Due::Absorbed(told) = due {
            ledger.set_told(uri, told);
            step.save_told(self.id, hub.clone(), uri.clone());
            self.hearers.insert(self.id, uri);
        }
        if is_due {
            self.hearers.insert(self.id, uri);
        }
        Compared {
            is_held,
            is_due,
            is_newly_due,
        }
    }
}
