//! The answers of hubs, and their consequences for the notification, for the hub's account, and for the other
//! notifications that wait for the hub (R22, R23).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::delivery::attempt::{Attempt, Refusal, RefusalKind, RefusalScope};
use crate::announce::delivery::hub_queue::{Failure, HubQueue, Outage};
use crate::announce::delivery::verdict::{Verdict, verdict};
use crate::announce::engine::Engine;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, PING_APART, PING_FETCHED_WITHIN, Prepared};
use crate::announce::notification::overhead;
use crate::announce::plan::Mode;
use crate::announce::state::{Ping, Told};
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
struct Retry {
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
        let queue = self.hubs.get_mut(hub);
        let was_probe = queue.is_some_and(|queue| queue.ended(id, seq));
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
        self.step.save_ledger(id, hub.clone());
        let now = self.step.now();
        match verdict(answer, answered.attempts, now, jitter) {
            Verdict::Accepted => self.accepted(&answered),
            Verdict::TooLarge => match self.smaller(&answered) {
                Some(limit) => self.halve(&answered, limit),
                None => {
                    let reason = "a notification of one document is too large for it";
                    let refusal = Refusal::new(RefusalKind::TooLarge, reason, true);
                    self.refused(&answered, later(now, TOO_LARGE_WAIT), refusal);
                }
            },
            Verdict::Retry { at, reason } => {
                let refusal = Refusal::new(reason.kind(), &reason.to_string(), false);
                self.refused(&answered, at, refusal);
            }
            Verdict::NeedsOperator { at, reason } => {
                let refusal = Refusal::new(reason.kind(), &reason.to_string(), true);
                self.refused(&answered, at, refusal);
            }
        }
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
        self.release(hub, ended);
    }

    /// R22: takes what was in flight as told, and lets the next notification be cut from what is due now.
    fn acknowledge(&mut self, id: ChannelId, hub: &Hub) {
        let now = self.step.now();
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = ledger.row.flight.take() else {
            return;
        };
        ledger.row.limit = None;
        ledger.row.accepted = Some(now);
        ledger.is_answer_old = false;
        match ledger.mode {
            Mode::Ping => ledger.row.ping = Some(Ping::accepted(ledger.row.ping, now)),
            // Of a hub that is pinged, what it fetches counts.
            _ => ledger.row.until = flight.until,
        }
        // R11: what was cut before the channel retired, or the hub left, is not its last word.
        let ended = ledger.row.left.as_ref().or(channel.row.retired.as_ref());
        let covers: BTreeMap<Uri, Option<Told>> = flight.covers.into_iter().collect();
        let mut still_due = Vec::new();
        if let Some(retirement) = ended {
            let is_last = flight.cut > retirement.since;
            let is_still_due = |uri: &&Uri| !is_last && retirement.last_words.contains(*uri);
            still_due.extend(covers.keys().map(|uri| (uri, is_still_due(&uri))));
        }
        for (uri, is_due) in still_due {
            match is_due {
                true => ledger.due.insert(uri.clone()),
                false => ledger.due.remove(uri),
            };
        }
        for (uri, told) in &covers {
            ledger.set_told(uri, *told);
        }
        for uri in covers.keys() {
            self.channels.hears(id, uri);
            self.step.save_told(id, hub.clone(), uri.clone());
        }
        for uri in covers.keys() {
            self.compare_again(position, id, hub, uri);
            self.forget_if_done(position, uri);
        }
        self.channels
            .strike_last_words(id, covers.keys(), &mut self.step);
        self.end_accounts(id);
        self.channels.set_ready(id);
    }

    /// Returns half the number of entries of a notification that is too large, unless it cannot be made smaller.
    fn smaller(&self, answered: &Answered<'_>) -> Option<usize> {
        let ledger = self.channels.ledger(answered.id, answered.hub)?;
        let entries = ledger.row.flight.as_ref()?.entries;
        let size = self.hubs.size_limit(answered.hub, self.step.now());
        let size = size.map(|size| size.entries);
        let limits = ledger.row.limit.into_iter().chain(size);
        let limit = limits.fold(self.plan.window.max_entries, usize::min);
        // One document may have two entries, which no limit parts.
        let is_logged = ledger.row.flight.as_ref()?.part.is_some();
        let is_divisible = entries > 2 || (entries == 2 && (limit > 1 || is_logged));
        is_divisible.then(|| limit.min(entries / 2))
    }

    /// Withdraws a notification that is too large, so that half of it is cut.
    fn halve(&mut self, answered: &Answered<'_>, limit: usize) {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let position = channel.source;
        let overhead = overhead(&channel.row.set, self.sources[position].catalog());
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let bytes = ledger.row.flight.as_ref().map_or(0, |flight| {
            let part = flight.part.map(|part| part.bytes);
            part.unwrap_or(flight.body.len())
        });
        let refusal = Refusal::new(RefusalKind::TooLarge, "it is too large for it", false);
        ledger.row.last = Some(answered.attempt(Some(refusal), now));
        let doubtful = ledger.withdraw();
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
        for uri in doubtful {
            self.step.save_told(id, hub.clone(), uri.clone());
            self.compare_again(position, id, hub, &uri);
        }
        self.release(hub, ended);
    }

    /// Plans the retry of a notification that was not accepted.
    fn refused(&mut self, answered: &Answered<'_>, at: Timestamp, refusal: Refusal) {
        let now = self.step.now();
        let (id, hub) = (answered.id, answered.hub);
        let queue = self.hubs.queue(hub);
        let Some(ledger) = self.channels.ledger_mut(id, hub) else {
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
        self.release(hub, retry.ended);
    }

    /// Lets everything go that waited for a failing hub, now that it answers (R23).
    fn release(&mut self, hub: &Hub, ended: Option<Outage>) {
        let Some(outage) = ended else {
            return;
        };
        let channels = self.channels.iter();
        let waiting = channels.filter(|(_, channel)| {
            let ledger = channel.ledgers.get(hub);
            ledger.is_some_and(|ledger| ledger.waits_for_hub())
        });
        let waiting: Vec<ChannelId> = waiting.map(|(id, _)| id).collect();
        for id in &waiting {
            self.enqueue(*id, hub);
        }
        self.step.tell(Fact::Recovered {
            hub: hub.clone(),
            attempts: outage.attempts,
            took: elapsed(outage.since, self.step.now()),
            notifications: waiting.len(),
        });
    }

    /// Tells how many refusals were like those that were told.
    pub(super) fn sum_up_refusals(&mut self, hub: &Hub) {
        let Some(queue) = self.hubs.get_mut(hub) else {
            return;
        };
        for (kind, reason, notifications) in queue.sum_up(self.step.now()) {
            self.step.tell(Fact::RefusedAlike {
                hub: hub.clone(),
                kind,
                reason,
                notifications,
            });
        }
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
    ) -> Retry {
        let mut retry = Retry {
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
            // It says nothing of the hub as it is reached now.
            retry.at = now;
            queue.push(self.id, false);
            queue.hurry(now);
        } else if is_of_hub {
            let failure = Failure {
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
