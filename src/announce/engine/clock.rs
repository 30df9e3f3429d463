//! A clock that is set back while the daemon runs.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::{Engine, Timer};
use crate::announce::state::Hold;
use crate::announce::time::earlier;
use crate::resourcesync::uri::Uri;

impl Engine {
    /// Moves all that is waited for, and since when, by as much as the clock went back, so that it comes
    /// after as long a wait as if the clock had not moved. Nothing is saved for that: what is restored and lies in the
    /// future counts from then on.
    pub(super) fn set_back(&mut self, now: Timestamp) {
        let step = Duration::try_from(self.now.duration_since(now)).unwrap_or_default();
        let moved = |time: Timestamp| earlier(time, step);
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers
            .into_iter()
            .map(|(at, timer)| (moved(at), timer))
            .collect();
        for queue in self.queues.values_mut() {
            queue.set_back(step);
        }
        for channel in self.channels.values_mut() {
            if let Some(window) = &mut channel.window {
                window.first = moved(window.first);
                window.last = moved(window.last);
            }
            if let Some(retirement) = &mut channel.row.retired {
                retirement.since = moved(retirement.since);
            }
            for said in &mut channel.row.said {
                said.at = moved(said.at);
            }
            for ledger in channel.ledgers.values_mut() {
                if let Some(flight) = &mut ledger.row.flight {
                    flight.cut = moved(flight.cut);
                    flight.next_try = moved(flight.next_try);
                }
                if let Some(ping) = &mut ledger.row.ping {
                    ping.at = moved(ping.at);
                }
                if let Some(left) = &mut ledger.row.left {
                    left.since = moved(left.since);
                }
            }
        }
        for source in &mut self.sources {
            for trouble in source.troubles.values_mut() {
                trouble.since = moved(trouble.since);
            }
            for (_, changed) in source.described.values_mut() {
                *changed = moved(*changed);
            }
        }
        // One document may have several timers.
        let held: BTreeSet<(usize, &Uri)> = self
            .timers
            .iter()
            .filter_map(|(_, timer)| match timer {
                Timer::Hold(source, uri) => Some((*source, uri)),
                _ => None,
            })
            .collect();
        for (source, uri) in held {
            if let Some(record) = self.sources[source].catalog.get_mut(uri)
                && let Hold::Waiting { since } = &mut record.hold
            {
                *since = moved(*since);
            }
        }
    }
}
