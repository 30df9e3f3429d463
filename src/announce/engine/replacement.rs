//! Hubs that are added, removed, and replaced by each other in another configuration (R13).

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::uri::{Hub, Uri};

use crate::announce::engine::channels::Channels;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::plan::{HubPlan, Mode, Plan, Replaces};
use crate::announce::state::{KnownHub, LedgerRow, Told};

/// The accounts that a state file holds, by channel and hub.
pub struct Accounts {
    pub ledgers: BTreeMap<(ChannelId, Hub), LedgerRow>,
    pub told: BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>>,
}

/// The hubs that are configured otherwise than before this start.
#[derive(Debug)]
pub struct HubChanges {
    /// Hubs that were not configured, and replace no other.
    added: BTreeSet<Hub>,
    /// Hubs that go on for one that is no longer configured.
    inherited: BTreeSet<Hub>,
    /// Hubs that were configured once, and are no more.
    former: BTreeSet<Hub>,
}

impl HubChanges {
    /// Compares the hubs that were configured with those that are, and gives the accounts of hubs that were replaced to
    /// those that replace them.
    pub fn new(
        plan: &Plan,
        known: &BTreeMap<Hub, KnownHub>,
        accounts: &mut Accounts,
        step: &mut Step,
    ) -> HubChanges {
        let configured = known.iter().filter(|(_, hub)| hub.is_configured);
        let before: BTreeSet<Hub> = configured.map(|(hub, _)| hub.clone()).collect();
        let after: BTreeMap<Hub, Mode> = plan
            .destinations()
            .map(|(hub, mode)| (hub.clone(), mode))
            .collect();
        let added = after.keys().filter(|hub| !before.contains(*hub));
        let mut changes = HubChanges {
            added: added.cloned().collect(),
            inherited: BTreeSet::new(),
            former: known
                .keys()
                .filter(|hub| !after.contains_key(*hub))
                .cloned()
                .collect(),
        };
        for (old, new) in changes.replacements(plan, &before, known) {
            changes.replace(old, new, accounts, step);
        }
        save_known(known, &after, step);
        changes
    }

    /// Returns true if a hub was not configured before this start, and replaces no other.
    pub fn is_added(&self, hub: &Hub) -> bool {
        self.added.contains(hub)
    }

    /// Returns true if a hub goes on for one that is no longer configured.
    pub fn is_inherited(&self, hub: &Hub) -> bool {
        self.inherited.contains(hub)
    }

    /// Returns the hubs that were configured once, and are no more.
    pub fn former(&self) -> &BTreeSet<Hub> {
        &self.former
    }

    /// Retries at once what is in flight to hubs that replaced others, now that it is known whether the channels of
    /// this source advertise them; also what is still due on a channel that advertised neither (R11).
    pub fn try_inherited(&self, channels: &Channels, source: usize, step: &mut Step) {
        for (id, channel) in channels.of_source(source) {
            for (hub, ledger) in &channel.ledgers {
                if self.is_inherited(hub) && ledger.row.flight.is_some() {
                    step.wake_at(step.now(), Timer::Try(id, hub.clone()));
                }
            }
        }
    }

    /// Returns each hub that is no longer configured and goes on as one that is, with that one.
    fn replacements(
        &self,
        plan: &Plan,
        before: &BTreeSet<Hub>,
        known: &BTreeMap<Hub, KnownHub>,
    ) -> Vec<(Hub, Hub)> {
        let mut replacements = Vec::new();
        for hub in &plan.hubs {
            if let Replaces::Hub(old) = &hub.replaces
                && plan.mode_of(old).is_none()
            {
                replacements.push((old.clone(), hub.hub.clone()));
            }
        }
        let is_named = |hub: &Hub| replacements.iter().any(|(old, _)| old == hub);
        // A broker never replaces a hub, nor a hub a broker.
        let was_broker = |hub: &Hub| known.get(hub).is_some_and(|hub| hub.mode == Mode::Broker);
        let removed = before.iter();
        let removed = removed.filter(|hub| plan.mode_of(hub).is_none() && !was_broker(hub));
        let mut unnamed = removed.filter(|hub| !is_named(hub));
        let is_new = |hub: &&HubPlan| {
            self.added.contains(&hub.hub) && !matches!(hub.replaces, Replaces::Hub(_))
        };
        let added: Vec<&HubPlan> = plan.hubs.iter().filter(is_new).collect();
        if let (Some(old), None, [new]) = (unnamed.next(), unnamed.next(), &added[..]) {
            // Our own hub has subscribers of its own.
            let was_embedded = known.get(old).is_some_and(|hub| hub.mode == Mode::Embedded);
            let is_embedded = new.mode == Mode::Embedded;
            if new.replaces == Replaces::Automatic && was_embedded == is_embedded {
                replacements.push((old.clone(), new.hub.clone()));
            }
        }
        replacements
    }

    fn replace(&mut self, old: Hub, new: Hub, accounts: &mut Accounts, step: &mut Step) {
        let ids = accounts
            .ledgers
            .keys()
            .filter(|(id, hub)| *hub == old && !accounts.ledgers.contains_key(&(*id, new.clone())));
        let ids: Vec<ChannelId> = ids.map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return;
        }
        for id in &ids {
            accounts.hand_over(*id, &old, &new, step);
        }
        self.added.remove(&new);
        self.inherited.insert(new.clone());
        step.tell(Fact::HubReplaced {
            hub: old,
            by: new,
            channels: ids.len(),
        });
    }
}

impl Accounts {
    /// Gives the account of a hub on a channel to another one.
    fn hand_over(&mut self, id: ChannelId, old: &Hub, new: &Hub, step: &mut Step) {
        let key = (id, old.clone());
        let Some(mut row) = self.ledgers.remove(&key) else {
            return;
        };
        let told = self.told.remove(&key).unwrap_or_default();
        // The answers of the old address say nothing of the new one.
        row.limit = None;
        row.ping = None;
        row.last = None;
        if let Some(flight) = &mut row.flight {
            flight.attempts = 0;
            flight.next_try = step.now();
        }
        step.save_ledger(id, old.clone());
        step.save_ledger(id, new.clone());
        for uri in told.keys() {
            step.save_told(id, new.clone(), uri.clone());
        }
        self.told.insert((id, new.clone()), told);
        self.ledgers.insert((id, new.clone()), row);
    }
}

/// Saves which hubs are configured, as far as that changed.
fn save_known(known: &BTreeMap<Hub, KnownHub>, after: &BTreeMap<Hub, Mode>, step: &mut Step) {
    for (hub, mode) in after {
        let configured = KnownHub {
            mode: *mode,
            is_configured: true,
        };
        if known.get(hub) != Some(&configured) {
            step.rows().hubs.insert(hub.clone(), configured);
        }
    }
    let gone = known
        .iter()
        .filter(|(hub, before)| before.is_configured && !after.contains_key(*hub));
    for (hub, before) in gone {
        let gone = KnownHub {
            is_configured: false,
            ..*before
        };
        step.rows().hubs.insert(hub.clone(), gone);
    }
}
