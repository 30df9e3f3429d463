//! Hubs that come, go, and take each other's place under another configuration (R13).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::plan::{Mode, Replaces};
use crate::announce::state::{KnownHub, LedgerRow, Told};
use crate::resourcesync::uri::{Hub, Uri};

/// What a state file holds of accounts, by channel and hub.
pub struct Accounts {
    pub ledgers: BTreeMap<(ChannelId, Hub), LedgerRow>,
    pub told: BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>>,
}

impl Engine {
    /// R13: gives the accounts of hubs that others have replaced to those, and takes note of which are configured.
    pub(super) fn hand_over(
        &mut self,
        accounts: &mut Accounts,
        known: &BTreeMap<Hub, KnownHub>,
        now: Timestamp,
    ) {
        let before: BTreeSet<Hub> = match known.is_empty() {
            // An earlier version kept no list.
            true => accounts
                .ledgers
                .keys()
                .map(|(_, hub)| hub.clone())
                .collect(),
            false => {
                let configured = known.iter().filter(|(_, own)| own.is_configured);
                configured.map(|(hub, _)| hub.clone()).collect()
            }
        };
        let after: BTreeMap<Hub, Mode> = self
            .plan
            .hubs
            .iter()
            .map(|own| (own.hub.clone(), own.mode))
            .collect();
        self.added = after
            .keys()
            .filter(|hub| !before.contains(*hub))
            .cloned()
            .collect();
        let removed: BTreeSet<&Hub> = before
            .iter()
            .filter(|hub| !after.contains_key(*hub))
            .collect();
        for (old, new) in self.replacements(&removed, known) {
            let ids: Vec<ChannelId> = accounts
                .ledgers
                .keys()
                .filter(|(id, hub)| {
                    *hub == old && !accounts.ledgers.contains_key(&(*id, new.clone()))
                })
                .map(|(id, _)| *id)
                .collect();
            if ids.is_empty() {
                continue;
            }
            for id in &ids {
                self.hand_over_account(accounts, *id, &old, &new, now);
            }
            self.added.remove(&new);
            self.inherited.insert(new.clone());
            self.tell(Fact::HubReplaced {
                hub: old,
                by: new,
                channels: ids.len(),
            });
        }
        for (hub, mode) in &after {
            let now_known = KnownHub {
                mode: *mode,
                is_configured: true,
            };
            if known.get(hub) != Some(&now_known) {
                self.turn.save.hubs.insert(hub.clone(), now_known);
            }
        }
        for (hub, own) in known
            .iter()
            .filter(|(hub, own)| own.is_configured && !after.contains_key(*hub))
        {
            let gone = KnownHub {
                is_configured: false,
                ..*own
            };
            self.turn.save.hubs.insert(hub.clone(), gone);
        }
        let known = known.keys().chain(&before).cloned();
        self.former = known.filter(|hub| !after.contains_key(hub)).collect();
    }

    /// What was on its way to a hub that was replaced goes to the one that took its place, now that it is known
    /// whether that is advertised.
    pub(super) fn try_inherited(&mut self, source: usize, now: Timestamp) {
        let channels = self.channels.iter().filter(|(_, own)| own.source == source);
        let accounts = channels.flat_map(|(id, channel)| {
            let inherited = channel.listening().filter(|(hub, ledger)| {
                self.inherited.contains(*hub) && ledger.row.flight.is_some()
            });
            inherited.map(|(hub, _)| (now, Timer::Try(*id, hub.clone())))
        });
        let accounts: Vec<(Timestamp, Timer)> = accounts.collect();
        self.timers.extend(accounts);
    }

    /// Hubs that were configured once, and are no more.
    pub fn former_hubs(&self) -> &BTreeSet<Hub> {
        &self.former
    }

    /// Which hub that is no longer configured goes on as which one that is.
    fn replacements(
        &self,
        removed: &BTreeSet<&Hub>,
        known: &BTreeMap<Hub, KnownHub>,
    ) -> Vec<(Hub, Hub)> {
        let mut replacements = Vec::new();
        for own in &self.plan.hubs {
            if let Replaces::Hub(old) = &own.replaces
                && self.mode_of(old).is_none()
            {
                replacements.push((old.clone(), own.hub.clone()));
            }
        }
        let is_named = |hub: &Hub| replacements.iter().any(|(old, _)| old == hub);
        let mut unnamed = removed.iter().filter(|hub| !is_named(hub));
        let added = self.plan.hubs.iter().filter(|own| {
            self.added.contains(&own.hub) && !matches!(own.replaces, Replaces::Hub(_))
        });
        let added: Vec<_> = added.collect();
        if let (Some(old), None, [new]) = (unnamed.next(), unnamed.next(), &added[..]) {
            // Our own hub has subscribers of its own.
            let was_embedded = known.get(*old).map(|own| own.mode == Mode::Embedded);
            let is_embedded = new.mode == Mode::Embedded;
            if new.replaces == Replaces::Automatic
                && was_embedded.is_none_or(|was| was == is_embedded)
            {
                replacements.push(((*old).clone(), new.hub.clone()));
            }
        }
        replacements
    }

    fn hand_over_account(
        &mut self,
        accounts: &mut Accounts,
        id: ChannelId,
        old: &Hub,
        new: &Hub,
        now: Timestamp,
    ) {
        let key = (id, old.clone());
        let Some(mut row) = accounts.ledgers.remove(&key) else {
            return;
        };
        let told = accounts.told.remove(&key).unwrap_or_default();
        // What the old address answered says nothing of the new one.
        row.limit = None;
        row.ping = None;
        row.last = None;
        if let Some(flight) = &mut row.flight {
            flight.attempts = 0;
            flight.next_try = now;
        }
        self.turn.ledgers.extend([key, (id, new.clone())]);
        let rows = told.keys().map(|uri| (id, new.clone(), uri.clone()));
        self.turn.told.extend(rows);
        accounts.told.insert((id, new.clone()), told);
        accounts.ledgers.insert((id, new.clone()), row);
    }
}
