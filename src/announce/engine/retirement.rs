//! The ends of channels and of hubs' accounts: what could not be announced until then is dropped (R11).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::time::{elapsed, later};
use crate::resourcesync::uri::{Hub, Uri};

/// Least time for which a run keeps what an earlier one retired: a clock that is wrong at the start may be set meanwhile.
const CLOCK_DOUBTED: Duration = Duration::from_secs(60 * 60);

/// Returns how long something is still kept that retired at `since`; zero if it is over by both clocks.
///
/// The wall clock may be wrong for a while, so it ends nothing before `kept_until` by the monotonic one. If that is not
/// set, an earlier run retired it, and it is set now.
fn still_kept(
    since: Timestamp,
    kept: Duration,
    kept_until: &mut Option<Duration>,
    step: &Step,
) -> Duration {
    let left = elapsed(step.now(), later(since, kept));
    let least = left.max(kept.min(CLOCK_DOUBTED));
    let kept_until = kept_until.get_or_insert(step.monotonic().saturating_add(least));
    left.max(kept_until.saturating_sub(step.monotonic()))
}

impl Engine {
    /// Drops what a hub that left could not be told for so long.
    pub(super) fn leaving_ends(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let (source, topic) = (channel.source, channel.row.topic.clone());
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(left) = ledger.row.left else {
            return;
        };
        let kept = self.plan.retired_topic;
        let wait = still_kept(left, kept, &mut ledger.kept_until, &self.step);
        if !wait.is_zero() {
            let timer = Timer::Left(id, hub.clone());
            self.step.wake_after(wait, timer);
            return;
        }
        ledger.row.last_words.clear();
        self.step.save_ledger(id, hub.clone());
        let changes = match channel.is_of_changes() {
            true => self.drop_logged(id, hub),
            false => self.drop_last_words(id, hub),
        };
        if changes > 0 {
            self.hubs.forget(&self.channels, id, hub);
            self.step.tell(Fact::Dropped {
                topic,
                hub: hub.clone(),
                changes,
            });
        }
        self.reconciler(source).end_accounts(id);
    }

    /// Drops what a hub that left is still owed of documents. Returns their number.
    fn drop_last_words(&mut self, id: ChannelId, hub: &Hub) -> usize {
        let Some(channel) = self.channels.get_mut(id) else {
            return 0;
        };
        let source = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return 0;
        };
        let owed: Vec<Uri> = ledger.owed().cloned().collect();
        let changes = owed.len();
        let catalog = self.sources[source].catalog();
        let withdrawn = ledger.withdraw(|uri| catalog.is_away(uri));
        ledger.due.clear();
        ledger.prepared = Default::default();
        for uri in withdrawn.doubtful {
            self.step.save_told(id, hub.clone(), uri);
        }
        if let Some(mut accounts) = self.channels.accounts(id) {
            accounts.strike_last_words(hub, &owed, &mut self.step);
        }
        self.sources[source].documents_mut().reconsider(owed);
        changes
    }

    /// Removes a retired channel that was kept for long enough.
    pub(super) fn retirement_ends(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let Some(retired) = channel.row.retired else {
            return;
        };
        let kept = self.plan.retired_topic;
        let wait = still_kept(retired, kept, &mut channel.kept_until, &self.step);
        if !wait.is_zero() {
            self.step.wake_after(wait, Timer::Retired(id));
            return;
        }
        self.remove_channel(id);
    }
}
