//! The dispatcher: submits notifications to hubs that may be sent more, and cuts again what is out of date by then
//! (R22, R23).

use jiff::Timestamp;
use resourcesync::uri::Hub;

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::outbox::Outbox;
use crate::announce::engine::outbox::cutter::Cutter;
use crate::announce::engine::source::Source;
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Prepared;
use crate::announce::plan::{Mode, Plan};
use crate::announce::state::Flight;

/// The outbox, while notifications are submitted.
pub struct Dispatcher<'a> {
    pub outbox: &'a mut Outbox,
    pub sources: &'a mut Sources,
    pub plan: &'a Plan,
    pub step: &'a mut Step,
}

impl Dispatcher<'_> {
    /// Submits what may go now to every hub.
    pub fn dispatch(&mut self) {
        for hub in self.outbox.hubs.names() {
            while let Some(id) = self.next(&hub) {
                self.submit_or_cut_again(id, &hub);
            }
            self.outbox.hubs.plan_probe(&hub, self.step);
        }
    }

    /// Takes the next channel with a notification that may be submitted to a hub now.
    fn next(&mut self, hub: &Hub) -> Option<ChannelId> {
        let Outbox { channels, hubs, .. } = &mut *self.outbox;
        hubs.next(channels, hub, self.step.now())
    }

    /// Submits the notification in flight of a hub on a channel, or cuts what there is to announce now, as large as the hub
    /// takes, if it was never answered and is out of date or too large.
    fn submit_or_cut_again(&mut self, id: ChannelId, hub: &Hub) {
        let now = self.step.now();
        let Outbox {
            channels,
            hubs,
            history,
        } = &mut *self.outbox;
        let Some(channel) = channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let is_stale = is_stale(channel, hub, &self.sources[position], now);
        let size = hubs.size_limit(hub, now);
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        if !is_stale && !size.is_some_and(|size| ledger.is_too_large(size)) {
            hubs.submit(channels, id, hub, self.step);
            return;
        }
        let seq = ledger.row.flight.as_ref().map(|flight| flight.seq);
        let catalog = self.sources[position].catalog();
        let withdrawn = ledger.withdraw(|uri| catalog.is_away(uri));
        ledger.prepared = Prepared::default();
        self.step.save_ledger(id, hub.clone());
        if let Some(seq) = seq {
            history.note(id, seq, hub, Fate::Withdrawn);
        }
        let source = &mut self.sources[position];
        self.outbox
            .reconciler(source, self.plan, self.step)
            .withdrawn(id, hub, &withdrawn);
        let mut cutter = Cutter {
            outbox: self.outbox,
            sources: self.sources,
            plan: self.plan,
            step: self.step,
        };
        cutter.cut(id);
    }
}

/// Returns true if the notification in flight was never answered, and no longer announces what there is to announce: its
/// documents changed while it waited for a failing hub, or while the daemon was down.
fn is_stale(channel: &Channel, hub: &Hub, source: &Source, now: Timestamp) -> bool {
    let ledger = channel.ledgers.get(hub);
    // A hub that is pinged fetches what the topic serves then.
    let ledger = ledger.filter(|ledger| ledger.mode != Mode::Ping);
    let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
    let is_old = |flight: &&Flight| flight.attempts == 0 && flight.cut < now;
    let Some(flight) = flight.filter(is_old) else {
        return false;
    };
    flight.covers.iter().any(|(uri, covered)| {
        let due = due(source.plan(), source.catalog(), channel, hub, uri);
        !matches!(due, Due::Announce(announcement) if announcement.becomes == *covered)
    })
}
