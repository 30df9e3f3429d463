//! The answers of hubs, and their consequences for the notification, for the hub's account, and for the other
//! notifications that wait for the hub (R22, R23).

use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::answer::Answer;
use websub::publisher::reason::RefusalKind;
use websub::publisher::verdict::{Verdict, verdict};

use crate::announce::changes::log::LogPart;
use crate::announce::delivery::attempt::{Attempt, Refusal, RefusalScope};
use crate::announce::delivery::hub_queue::{HubFailure, HubQueue, Outage};
use crate::announce::engine::outbox::Outbox;
use crate::announce::engine::outbox::change_log::{accept, trim_log};
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::{ChannelId, SubmissionId};
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN, Prepared};
use crate::announce::notification::overhead;
use crate::announce::plan::{Mode, Plan};
use crate::announce::time::{elapsed, later};

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
    /// The moment by the wall clock, by which a hub may say when to retry.
    wall: Timestamp,
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

/// The outbox, while the answer of a hub is handled.
pub struct AnswerHandler<'a> {
    pub outbox: &'a mut Outbox,
    pub sources: &'a mut Sources,
    pub plan: &'a Plan,
    pub step: &'a mut Step,
}

impl AnswerHandler<'_> {
    /// Handles the answer to a submission. On a change channel, returns the set whose next round may begin now, as the hub
    /// may have been told everything (C20).
    pub fn handle(
        &mut self,
        (id, hub, seq): &SubmissionId,
        answer: &Answer,
        jitter: f64,
    ) -> Option<Uri> {
        let (id, seq) = (*id, *seq);
        let (now, wall) = (self.step.now(), self.step.wall());
        let Outbox { channels, hubs, .. } = &mut *self.outbox;
        let was_probe = hubs.answered(hub, id, seq);
        let size = hubs.size_limit(hub, now);
        let channel = channels.get_mut(id)?;
        let ledger = channel.ledgers.get_mut(hub)?;
        ledger.sending.take_if(|sending| *sending == seq)?;
        let Some(flight) = &mut ledger.row.flight else {
            // It was dropped meanwhile: what is due since then may be cut now.
            channels.cuts.set_ready(id);
            return None;
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
            wall,
            jitter,
        };
        let max = ledger.entry_limit(self.plan.window.max_entries, size);
        let half = ledger.half(max);
        self.step.save_ledger(id, hub.clone());
        match verdict(answer, answered.attempts, wall, jitter) {
            Verdict::Accepted => return self.accepted(&answered),
            Verdict::TooLarge => match half {
                Some(limit) => self.halve(&answered, limit),
                None => {
                    let reason = "a notification of one document is too large for it";
                    let refusal = Refusal::new(RefusalKind::TooLarge, reason, true);
                    self.refused(&answered, later(now, TOO_LARGE_WAIT), refusal);
                }
            },
            Verdict::Retry { at, reason } => {
                let refusal = Refusal::new(reason.kind(), &reason.to_string(), false);
                self.refused(&answered, later(now, elapsed(wall, at)), refusal);
            }
            Verdict::NeedsOperator { at, reason } => {
                let refusal = Refusal::new(reason.kind(), &reason.to_string(), true);
                self.refused(&answered, later(now, elapsed(wall, at)), refusal);
            }
        }
        None
    }

    /// Takes what was in flight as told. On a change channel, returns the set whose next round may begin now (C20).
    fn accepted(&mut self, answered: &Answered<'_>) -> Option<Uri> {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let ledger = self.outbox.channels.ledger_mut(id, hub)?;
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
        self.outbox.history.note(id, answered.seq, hub, fate);
        let part = ledger.row.flight.as_ref().and_then(|flight| flight.part);
        let is_pinged = ledger.mode == Mode::Ping;
        let set = match part {
            Some(part) => self.acknowledge_logged(id, hub, answered.seq, part),
            None => {
                self.acknowledge(id, hub);
                None
            }
        };
        if is_pinged {
            for wait in [PING_APART, PING_FETCHED_WITHIN] {
                self.step.wake_after(wait, Timer::Ping(id, hub.clone()));
            }
        }
        let Outbox { channels, hubs, .. } = &mut *self.outbox;
        let ended = hubs.queue(hub).accepted();
        hubs.release(channels, hub, ended, self.step);
        set
    }

    /// R22: takes what was in flight as told, and lets the next notification be cut from what is due now.
    fn acknowledge(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.outbox.channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let ledger = channel.ledgers.get_mut(hub);
        let covered = ledger.and_then(|ledger| ledger.acknowledge(self.step.now()));
        let Some(covered) = covered else {
            return;
        };
        let source = &mut self.sources[position];
        self.outbox
            .reconciler(source, self.plan, self.step)
            .told(id, hub, covered.iter());
        self.outbox.channels.cuts.set_ready(id);
    }

    /// Takes a part of the log as told (C21). Returns the set whose next round may begin now (C20).
    fn acknowledge_logged(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        seq: u64,
        part: LogPart,
    ) -> Option<Uri> {
        let channel = self.outbox.channels.get_mut(id)?;
        accept(channel, id, hub, seq, part, self.step);
        trim_log(channel, id, self.plan, self.step);
        let (position, set) = (channel.source, channel.row.set.clone());
        let source = &mut self.sources[position];
        self.outbox
            .reconciler(source, self.plan, self.step)
            .end_accounts(id);
        self.outbox.channels.cuts.set_ready(id);
        Some(set)
    }

    /// Withdraws a notification that is too large, so that half of it is cut.
    fn halve(&mut self, answered: &Answered<'_>, limit: usize) {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let Outbox {
            channels,
            hubs,
            history,
        } = &mut *self.outbox;
        let Some(channel) = channels.get_mut(id) else {
            return;
        };
        let source = &mut self.sources[channel.source];
        let catalog = source.catalog();
        let overhead = overhead(&channel.row.set, catalog);
        let is_of_changes = channel.is_of_changes();
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
        let queue = hubs.queue(hub);
        let is_news = queue.too_large(limit, overhead + content.div_ceil(2), now);
        let ended = queue.end_outage();
        if !is_of_changes {
            history.note(id, answered.seq, hub, Fate::Withdrawn);
        }
        channels.cuts.set_ready(id);
        self.step.tell(Fact::Halved {
            topic: answered.topic.clone(),
            hub: hub.clone(),
            seq: answered.seq,
            attempts: answered.attempts,
            limit,
            is_news,
        });
        self.outbox
            .reconciler(source, self.plan, self.step)
            .withdrawn(id, hub, &withdrawn);
        let Outbox { channels, hubs, .. } = &mut *self.outbox;
        hubs.release(channels, hub, ended, self.step);
    }

    /// Plans the retry of a notification that was not accepted.
    fn refused(&mut self, answered: &Answered<'_>, at: Timestamp, refusal: Refusal) {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let Outbox { channels, hubs, .. } = &mut *self.outbox;
        let queue = hubs.queue(hub);
        let Some(ledger) = channels.ledger_mut(id, hub) else {
            return;
        };
        let retry = answered.retry(ledger, queue, at, &refusal, now);
        ledger.row.last = Some(answered.attempt(Some(refusal.clone()), now));
        if let Some(flight) = &mut ledger.row.flight {
            flight.next_try = retry.at;
        }
        if let Some(at) = retry.sum_up_at {
            self.step.wake_at(at, Timer::Refusals(hub.clone()));
        }
        self.step.wake_at(retry.at, Timer::Try(id, hub.clone()));
        self.step.tell(Fact::Refused {
            topic: answered.topic.clone(),
            hub: hub.clone(),
            seq: answered.seq,
            attempts: answered.attempts,
            reason: refusal.reason,
            next_try: retry.at,
            kind: refusal.kind,
            needs_operator: refusal.needs_operator,
            is_news: retry.is_news,
        });
        hubs.release(channels, hub, retry.ended, self.step);
    }
}

impl Answered<'_> {
    fn attempt(&self, refusal: Option<Refusal>, now: Timestamp) -> Attempt {
        Attempt::new(self.seq, self.answer, refusal, now)
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
                retry_after: self.answer.retry_after(self.wall),
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
                retry.ended = queue.end_outage();
            }
            let before = self.before.as_ref().and_then(|last| last.refusal.as_ref());
            let is_repeated = before.is_some_and(|before| before.kind == refusal.kind);
            (retry.is_news, retry.sum_up_at) = queue.refused(refusal, is_repeated, now);
        }
        retry
    }
}
