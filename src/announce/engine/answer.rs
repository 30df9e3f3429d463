//! The answers of hubs, and their consequences for the notification, for the hub's account, and for the other
//! notifications that wait for the hub (R22, R23).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::delivery::attempt::{Attempt, Refusal, RefusalKind, RefusalScope};
use crate::announce::delivery::hub_queue::{HubFailure, HubQueue, Outage};
use crate::announce::delivery::verdict::{Verdict, verdict};
use crate::announce::engine::Engine;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::hubs::Hubs;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN, Prepared};
use crate::announce::notification::overhead;
use crate::announce::plan::Mode;
use crate::announce::time::{elapsed, later};
use crate::http::answer::Answer;
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// The wait of a notification that cannot be made smaller (R23).
const TOO_LARGE_WAIT: Duration = Duration::from_secs(15 * 60);

/// The answer to the notification in flight of a hub on a channel.
struct Answered<'a> {
    id: ChannelId,
    hub: &'a Hub,
    topic: Topic,
    seq: u64,
    answer: &'a Answer,
    /// The number of attempts at the notification, this one included.
    attempts: u32,
    /// The attempt before at the same notification.
    before: Option<Attempt>,
    /// True if this was a probe of a failing hub.
    was_probe: bool,
    jitter: f64,
}

/// The retry of a refused notification.
struct PlannedRetry {
    at: Timestamp,
    /// True if it tells the operator something new.
    is_news: bool,
    /// The time to sum up refusals like this one.
    sum_up_at: Option<Timestamp>,
    /// The outage that the answer ends.
    ended: Option<Outage>,
}

impl Engine {
    /// Takes the answer to a submission.
    pub(super) fn answered(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        seq: u64,
        answer: &Answer,
        jitter: f64,
    ) {
        let now = self.step.now();
        let was_probe = self.hubs.ended(hub, id, seq);
        let size = self.hubs.size_limit(hub, now);
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        if ledger.sending.take_if(|sending| *sending == seq).is_none() {
            return;
        }
        let Some(flight) = &mut ledger.row.flight else {
            // It was dropped meanwhile: what is due since then may be cut now.
            self.channels.set_ready(id);
            return;
        };
        flight.attempts += 1;
        ledger.in_doubt |= answer.leaves_doubt();
        let answered = Answered {
            id,
            hub,
            topic: channel.row.topic.clone(),
            seq,
            answer,
            attempts: flight.attempts,
            before: ledger.row.last.take().filter(|last| last.seq == seq),
            was_probe,
            jitter,
        };
        let most = ledger.entry_limit(self.plan.window.max_entries, size);
        let half = ledger.half(most);
        self.step.save_ledger(id, hub.clone());
        let (at, refusal) = match verdict(answer, answered.attempts, now, jitter) {
            Verdict::Accepted => return self.accepted(&answered),
            Verdict::TooLarge => match half {
                Some(limit) => return self.halve(&answered, limit),
                None => {
                    let reason = "a notification of one document is too large for it";
                    let refusal = Refusal::new(RefusalKind::TooLarge, reason, true);
                    (later(now, TOO_LARGE_WAIT), refusal)
                }
            },
            Verdict::Retry { at, reason } => {
                (at, Refusal::new(reason.kind(), &reason.to_string(), false))
            }
            Verdict::NeedsOperator { at, reason } => {
                (at, Refusal::new(reason.kind(), &reason.to_string(), true))
            }
        };
        let step = &mut self.step;
        answered.refused(&mut self.channels, &mut self.hubs, at, refusal, step);
    }

    fn accepted(&mut self, answered: &Answered<'_>) {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let Some(ledger) = self.channels.ledger_mut(id, hub) else {
            return;
        };
        ledger.row.last = Some(answered.attempt(None, now));
        if let Some(flight) = &ledger.row.flight {
            self.step.tell(Fact::Delivered {
                topic: answered.topic.clone(),
                hub: hub.clone(),
                seq: answered.seq,
                changes: flight.entries,
                attempts: answered.attempts,
                took: elapsed(flight.cut, now),
            });
        }
        let fate = Fate::Accepted {
            at: now,
            attempts: Some(answered.attempts),
        };
        self.history.note(id, answered.seq, hub, fate);
        let part = ledger.row.flight.as_ref().and_then(|flight| flight.part);
        let is_pinged = ledger.mode == Mode::Ping;
        match part {
            Some(part) => self.heard(id, hub, answered.seq, part),
            None => self.acknowledge(id, hub),
        }
        if is_pinged {
            for wait in [PING_APART, PING_FETCHED_WITHIN] {
                self.step.wake_after(wait, Timer::Ping(id, hub.clone()));
            }
        }
        let ended = self.hubs.queue(hub).accepted(now);
        self.hubs
            .release(&mut self.channels, hub, ended, &mut self.step);
    }

    /// R22: takes what was in flight as told, and lets the next notification be cut from what is due now.
    fn acknowledge(&mut self, id: ChannelId, hub: &Hub) {
        let now = self.step.now();
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let retired = channel.row.retired;
        let ledger = channel.ledgers.get_mut(hub);
        if let Some(covered) = ledger.and_then(|ledger| ledger.acknowledge(retired, now)) {
            self.reconciler(position).told(id, hub, covered.iter());
            self.forget_of_former_source(position, &covered);
            self.channels.set_ready(id);
        }
    }

    /// Forgets the deleted ones of documents that were in flight on a topic which another source had before (R11).
    pub(super) fn forget_of_former_source(&mut self, position: usize, covered: &[Uri]) {
        let catalog = self.sources[position].catalog();
        let foreign = covered.iter().filter(|uri| catalog.get(uri).is_none());
        let foreign: Vec<&Uri> = foreign.collect();
        for other in (0..self.sources.len()).filter(|other| *other != position) {
            for uri in &foreign {
                self.reconciler(other).forget_if_done(uri);
            }
        }
    }

    /// Withdraws a notification that is too large, so that half of it is cut.
    fn halve(&mut self, answered: &Answered<'_>, limit: usize) {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let catalog = self.sources[position].catalog();
        let overhead = overhead(&channel.row.set, catalog);
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let bytes = ledger.row.flight.as_ref().map_or(0, |flight| {
            let part = flight.part.map(|part| part.bytes);
            part.unwrap_or(flight.body.len())
        });
        let refusal = Refusal::new(RefusalKind::TooLarge, "it is too large for it", false);
        ledger.row.last = Some(answered.attempt(Some(refusal), now));
        let withdrawn = ledger.withdraw(|uri| catalog.is_away(uri));
        ledger.prepared = Prepared::default();
        ledger.row.limit = Some(limit);
        let content = bytes.saturating_sub(overhead);
        let queue = self.hubs.queue(hub);
        let is_news = queue.too_large(limit, overhead + content.div_ceil(2), now);
        let ended = queue.answers();
        if !self.channels.get(id).is_some_and(Channel::is_of_changes) {
            self.history.note(id, answered.seq, hub, Fate::Withdrawn);
        }
        self.channels.set_ready(id);
        self.step.tell(Fact::Halved {
            topic: answered.topic.clone(),
            hub: hub.clone(),
            seq: answered.seq,
            attempts: answered.attempts,
            limit,
            is_news,
        });
        self.reconciler(position).withdrawn(id, hub, &withdrawn);
        self.hubs
            .release(&mut self.channels, hub, ended, &mut self.step);
    }
}

impl Answered<'_> {
    fn attempt(&self, refusal: Option<Refusal>, now: Timestamp) -> Attempt {
        Attempt::new(self.seq, self.answer, refusal, now)
    }

    /// Plans the retry of a notification that was not accepted.
    fn refused(
        &self,
        channels: &mut Channels,
        hubs: &mut Hubs,
        at: Timestamp,
        refusal: Refusal,
        step: &mut Step,
    ) {
        let now = step.now();
        let (id, hub) = (self.id, self.hub);
        let queue = hubs.queue(hub);
        let Some(ledger) = channels.ledger_mut(id, hub) else {
            return;
        };
        let retry = self.retry(ledger, queue, at, &refusal, now);
        ledger.row.last = Some(self.attempt(Some(refusal.clone()), now));
        if let Some(flight) = &mut ledger.row.flight {
            flight.next_try = retry.at;
        }
        if let Some(at) = retry.sum_up_at {
            step.wake_at(at, Timer::Refusals(hub.clone()));
        }
        step.wake_at(retry.at, Timer::Try(id, hub.clone()));
        step.tell(Fact::Refused {
            topic: self.topic.clone(),
            hub: hub.clone(),
            seq: self.seq,
            attempts: self.attempts,
            reason: refusal.reason,
            next_try: retry.at,
            kind: refusal.kind,
            needs_operator: refusal.needs_operator,
            is_news: retry.is_news,
        });
        hubs.release(channels, hub, retry.ended, step);
    }

    /// Decides when a notification is retried, by whether the hub fails as a whole or the notification does. `at` is what
    /// the answer alone says.
    fn retry(
        &self,
        ledger: &mut Ledger,
        queue: &mut HubQueue,
        at: Timestamp,
        refusal: &Refusal,
        now: Timestamp,
    ) -> PlannedRetry {
        let mut retry = PlannedRetry {
            at,
            is_news: true,
            sum_up_at: None,
            ended: None,
        };
        ledger.blame(self.before.as_ref(), queue);
        let scope = self.attempt(Some(refusal.clone()), now).scope();
        let is_of_hub = scope == Some(RefusalScope::Hub)
            && (!ledger.is_at_fault || queue.fails_at_fault(self.id));
        if std::mem::take(&mut ledger.is_answer_old) {
            // The hub was reached in another way then.
            retry.at = now;
            queue.push(self.id, false);
            queue.hurry(now);
        } else if is_of_hub {
            let failure = HubFailure {
                refusal: refusal.clone(),
                retry_after: self.answer.retry_after(now),
                is_doubtful: ledger.is_at_fault,
                jitter: self.jitter,
            };
            retry.is_news = queue.failed(failure, self.was_probe, now);
            // Others may find out whether an operator is needed for this topic or for all.
            if !refusal.needs_operator {
                queue.push(self.id, false);
                retry.at = queue.outage().map_or(at, |outage| outage.next_probe);
            }
        } else {
            if scope == Some(RefusalScope::Notification) {
                retry.ended = queue.answers();
            }
            let before = self.before.as_ref().and_then(|last| last.refusal.as_ref());
            let is_repeated = before.is_some_and(|before| before.kind == refusal.kind);
            (retry.is_news, retry.sum_up_at) = queue.refused(refusal, is_repeated, now);
        }
        retry
    }
}
