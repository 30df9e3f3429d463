//! Fetches of topics by the hubs that are pinged, and fetches that do not come (R24, R26).

use resourcesync::uri::Hub;

use crate::announce::channel::Channel;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN};
use crate::announce::plan::Mode;
use crate::announce::state::Ping;
use crate::announce::time::later;

/// Reports that a hub did not fetch its topic (R26).
pub fn report_unfetched(channel: &mut Channel, id: ChannelId, hub: &Hub, step: &mut Step) {
    let Some(ledger) = channel.ledgers.get_mut(hub) else {
        return;
    };
    if !ledger.awaits_fetch(step.now()) {
        ledger.unfetched.clear();
    }
    // While the next one flies, `fetched` is about that one.
    if ledger.row.flight.is_none()
        && let Some(ping) = &mut ledger.row.ping
        && !ping.fetched
        && !ping.reported
        && later(ping.at, PING_FETCHED_WITHIN) <= step.now()
    {
        ping.reported = true;
        step.save_ledger(id, hub.clone());
        step.tell(Fact::Unfetched {
            topic: channel.row.topic.clone(),
            hub: hub.clone(),
            seq: pinged_about(ledger, channel.row.seq),
            after: PING_FETCHED_WITHIN,
        });
    }
}

/// Records a fetch of a topic. It counts for all ping hubs of the channel, since a fetch does not tell which one made
/// it.
pub fn fetched(channel: &mut Channel, id: ChannelId, step: &mut Step) {
    let until = channel.page_until;
    let latest = channel.row.seq;
    let ledgers = channel.ledgers.iter_mut();
    for (hub, ledger) in ledgers.filter(|(_, ledger)| ledger.mode == Mode::Ping) {
        if ledger.row.until != until {
            ledger.row.until = until;
            step.save_ledger(id, hub.clone());
        }
        ledger.unfetched.clear();
        let before = ledger.row.ping;
        let is_awaited = ledger.sending.is_some() || before.is_some_and(|ping| !ping.fetched);
        if !is_awaited {
            continue;
        }
        let at = before.map_or(step.now(), |ping| ping.at);
        ledger.row.ping = Some(Ping {
            at,
            fetched: true,
            reported: false,
        });
        step.save_ledger(id, hub.clone());
        step.wake_at(later(at, PING_APART), Timer::Ping(id, hub.clone()));
        step.tell(Fact::Fetched {
            topic: channel.row.topic.clone(),
            hub: hub.clone(),
            seq: pinged_about(ledger, latest),
            was_reported: before.is_some_and(|ping| ping.reported),
        });
    }
}

/// Returns the number of the notification that a hub was pinged about; `latest` is the channel's.
fn pinged_about(ledger: &Ledger, latest: u64) -> u64 {
    let last = ledger.row.last.as_ref().map(|last| last.seq);
    ledger.sending.or(last).unwrap_or(latest)
}
