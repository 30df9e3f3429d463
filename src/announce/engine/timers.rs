//! The points in time at which the engine acts by itself.

use std::collections::BTreeSet;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Uri};

use crate::announce::ids::ChannelId;

/// The reason for a timer. One whose reason has passed does nothing. A `usize` is the position of a source in the
/// plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The window of a channel may close (R16).
    Window(ChannelId),
    /// The next attempt at a notification.
    Try(ChannelId, Hub),
    /// The next probe of a hub that fails.
    Probe(Hub),
    /// Refusals that are summed up.
    Refusals(Hub),
    /// Minimum time between two pings of a topic (R24), and the time within which it should be fetched (R26).
    Ping(ChannelId, Hub),
    /// The end of a retired channel (R11).
    Retired(ChannelId),
    /// The end of the account of a hub that is advertised no more (R11).
    Left(ChannelId, Hub),
    /// The next round of a set with a change channel (C20).
    Changes(Uri),
    /// The end of a hold (R17).
    Hold(usize, Uri),
    /// A file that cannot be read for `broken_after` (R3).
    Broken(usize, Uri),
    /// Findings that have lasted for `broken_after` (R8).
    Finding(usize, Uri),
    /// The end of the time in which no more findings of one kind are logged.
    FindingKind(usize, &'static str),
}

/// All timers that are set, in order.
#[derive(Debug, Default)]
pub struct EngineTimers {
    set: BTreeSet<(Timestamp, Timer)>,
}

impl EngineTimers {
    pub fn set(&mut self, timers: impl IntoIterator<Item = (Timestamp, Timer)>) {
        self.set.extend(timers);
    }

    /// Takes out the first timer that has expired.
    pub fn take_expired(&mut self, now: Timestamp) -> Option<Timer> {
        let (at, _) = self.set.first()?;
        if *at > now {
            return None;
        }
        self.set.pop_first().map(|(_, timer)| timer)
    }

    /// Returns the time of the first timer.
    pub fn next(&self) -> Option<Timestamp> {
        self.set.first().map(|(at, _)| *at)
    }
}
