//! Hubs that are pinged and fetch the topic: their pace, and their silence (R24, R26).

use jiff::Timestamp;

use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN};
use crate::announce::plan::Mode;
use crate::announce::state::Ping;
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Topic};

impl Engine {
    /// A ping hub's next notification may be due, or its silence to be reported (R26).
    pub(super) fn ping_due(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        self.turn.ready.insert(id);
        let Some(channel) = self.channels.get_mut(&id) else {
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
            && later(ping.at, PING_FETCHED_WITHIN) <= now
        {
            ping.reported = true;
            let topic = channel.row.topic.clone();
            let seq = pinged_about(ledger, channel.row.seq);
            self.turn.ledgers.insert((id, hub.clone()));
            let after = PING_FETCHED_WITHIN;
            self.tell(Fact::Unfetched {
                topic,
                hub: hub.clone(),
                seq,
                after,
            });
        }
    }

    pub(super) fn fetched(&mut self, topic: &Topic, now: Timestamp) {
        if let Some(id) = self.by_topic.get(topic).copied() {
            let Some(channel) = self.channels.get_mut(&id) else {
                return;
            };
            let until = channel.page_until;
            for (hub, ledger) in &mut channel.ledgers {
                if ledger.mode == Mode::Ping && ledger.row.until != until {
                    ledger.row.until = until;
                    self.turn.ledgers.insert((id, hub.clone()));
                }
                let before = ledger.row.ping;
                let is_awaited =
                    ledger.sending.is_some() || before.is_some_and(|ping| !ping.fetched);
                if ledger.mode != Mode::Ping || !is_awaited {
                    continue;
                }
                let at = before.map_or(now, |ping| ping.at);
                ledger.row.ping = Some(Ping {
                    at,
                    fetched: true,
                    reported: false,
                });
                self.turn.ledgers.insert((id, hub.clone()));
                self.timers
                    .insert((later(at, PING_APART), Timer::Ping(id, hub.clone())));
                self.turn.facts.push(Fact::Fetched {
                    topic: topic.clone(),
                    hub: hub.clone(),
                    seq: pinged_about(ledger, channel.row.seq),
                    was_reported: before.is_some_and(|ping| ping.reported),
                });
            }
        }
    }
}

/// The number of the notification that a hub was pinged about; `latest` is the channel's.
fn pinged_about(ledger: &Ledger, latest: u64) -> u64 {
    let last = ledger.row.last.as_ref().map(|last| last.seq);
    ledger.sending.or(last).unwrap_or(latest)
}
