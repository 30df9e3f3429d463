//! A clock that is set back while the daemon runs.

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::earlier;
use crate::announce::engine::Engine;
use crate::announce::state::{Hold, Presence};
use crate::resourcesync::uri::Uri;

impl Engine {
    /// Moves all that is waited for, and since when, by as much as the clock went back, so that it comes
    /// after as long a wait as if the clock had not moved.
    pub(super) fn set_back(&mut self, now: Timestamp) {
        let step = Duration::try_from(self.now.duration_since(now)).unwrap_or_default();
        let moved = |time: Timestamp| earlier(time, step);
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers
            .into_iter()
            .map(|(at, timer)| (moved(at), timer))
            .collect();
        for (id, channel) in &mut self.channels {
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
            self.turn.channels.insert(*id);
            for (hub, ledger) in &mut channel.ledgers {
                if let Some(flight) = &mut ledger.row.flight {
                    flight.cut = moved(flight.cut);
                    flight.next_try = moved(flight.next_try);
                }
                if let Some(ping) = &mut ledger.row.ping {
                    ping.at = moved(ping.at);
                }
                self.turn.ledgers.insert((*id, hub.clone()));
            }
        }
        for (position, source) in self.sources.iter_mut().enumerate() {
            for trouble in source.troubles.values_mut() {
                trouble.since = moved(trouble.since);
            }
            for (_, changed) in source.described.values_mut() {
                *changed = moved(*changed);
            }
            let waiting: Vec<Uri> = source
                .catalog
                .iter()
                .filter(|(_, record)| {
                    record.is_missing() || matches!(record.hold, Hold::Waiting { .. })
                })
                .map(|(uri, _)| uri.clone())
                .collect();
            for uri in waiting {
                let Some(record) = source.catalog.get_mut(&uri) else {
                    continue;
                };
                if let Hold::Waiting { since } = &mut record.hold {
                    *since = moved(*since);
                }
                if let Presence::Missing { since, .. } = &mut record.presence {
                    *since = moved(*since);
                }
                self.turn.documents.insert((position, uri));
            }
        }
    }
}
