//! Hubs that are pinged and fetch the topic: the time between two pings, and topics that are not fetched (R24, R26).

use crate::announce::engine::Engine;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN};
use crate::announce::plan::Mode;
use crate::announce::state::Ping;
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Topic};

impl Engine {
    /// Lets a ping hub's next notification be cut, and reports that the hub did not fetch its topic (R26).
    pub(super) fn ping_due(&mut self, id: ChannelId, hub: &Hub) {
        self.channels.set_ready(id);
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        // While the next one flies, `fetched` is about that one.
        if ledger.row.flight.is_none()
            && let Some(ping) = &mut ledger.row.ping
            && !ping.fetched
            && !ping.reported
            && later(ping.at, PING_FETCHED_WITHIN) <= self.step.now()
        {
            ping.reported = true;
            self.step.save_ledger(id, hub.clone());
            self.step.tell(Fact::Unfetched {
                topic: channel.row.topic.clone(),
                hub: hub.clone(),
                seq: pinged_about(ledger, channel.row.seq),
                after: PING_FETCHED_WITHIN,
            });
        }
    }

    /// Notes that a topic was fetched, as its ping hubs do that took a notification.
    pub(super) fn fetched(&mut self, topic: &Topic) {
        let Some(id) = self.channels.of_topic(topic) else {
            return;
        };
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let until = channel.page_until;
        let latest = channel.row.seq;
        let ledgers = channel.ledgers.iter_mut();
        for (hub, ledger) in ledgers.filter(|(_, ledger)| ledger.mode == Mode::Ping) {
            if ledger.row.until != until {
                ledger.row.until = until;
                self.step.save_ledger(id, hub.clone());
            }
            let before = ledger.row.ping;
            let is_awaited = ledger.sending.is_some() || before.is_some_and(|ping| !ping.fetched);
            if !is_awaited {
                continue;
            }
            let at = before.map_or(self.step.now(), |ping| ping.at);
            ledger.row.ping = Some(Ping {
                at,
                fetched: true,
                reported: false,
            });
            self.step.save_ledger(id, hub.clone());
            self.step
                .wake_at(later(at, PING_APART), Timer::Ping(id, hub.clone()));
            self.step.tell(Fact::Fetched {
                topic: topic.clone(),
                hub: hub.clone(),
                seq: pinged_about(ledger, latest),
                was_reported: before.is_some_and(|ping| ping.reported),
            });
        }
    }
}

/// Returns the number of the notification that a hub was pinged about; `latest` is the channel's.
fn pinged_about(ledger: &Ledger, latest: u64) -> u64 {
    let last = ledger.row.last.as_ref().map(|last| last.seq);
    ledger.sending.or(last).unwrap_or(latest)
}
