//! Submits what was cut, and hears what hubs answered (R22, R23).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::delivery::attempt::{Attempt, Kind, Refusal, Scope};
use crate::announce::delivery::hub_queue::{Failure, HubQueue, Outage};
use crate::announce::delivery::verdict::{Verdict, verdict};
use crate::announce::delivery::{Answer, Submission};
use crate::announce::due::{Due, due};
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ids::ChannelId;
use crate::announce::ids::SubmissionId;
use crate::announce::ledger::{PING_APART, PING_FETCHED_WITHIN, Prepared};
use crate::announce::notification::overhead;
use crate::announce::plan::Mode;
use crate::announce::state::{Ping, Told};
use crate::announce::time::later;
use crate::resourcesync::uri::{Hub, Uri};

/// How long a notification waits that cannot be made smaller (R23).
const TOO_LARGE_WAIT: Duration = Duration::from_secs(15 * 60);

impl Engine {
    /// An engine before this one made these submissions, and their answers are to come to this one: until then nothing
    /// else is submitted in their place.
    pub fn await_answers(&mut self, under_way: impl IntoIterator<Item = SubmissionId>) {
        for (id, hub, seq) in under_way {
            // A new channel must not hear the answer to one that is gone.
            self.next_channel = self.next_channel.max(ChannelId(id.0 + 1));
            if let Some(ledger) = self.ledger_mut(id, &hub) {
                ledger.sending = Some(seq);
                if let Some(queue) = self.queues.get_mut(&hub) {
                    queue.remove(id);
                    queue.sent(id, seq);
                }
            }
        }
    }

    /// Lets the notification in flight of a hub on a channel be submitted as soon as the hub may be sent more.
    pub(super) fn enqueue(&mut self, id: ChannelId, hub: &Hub) {
        let Some(ledger) = self.ledger_mut(id, hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        let is_first = flight.attempts == 0;
        // It takes everything at once, in this process.
        if ledger.mode == Mode::Embedded {
            self.submit(id, hub);
        } else if ledger.sending.is_none() {
            let queue = self.queues.entry(hub.clone()).or_default();
            queue.push(id, is_first);
        }
    }

    /// Submits what may go now (R23): of a hub that fails one at a time, of others what waits.
    pub(super) fn dispatch(&mut self, now: Timestamp) {
        let hubs: Vec<Hub> = self.queues.keys().cloned().collect();
        for hub in hubs {
            while let Some(id) = self.queues.get_mut(&hub).and_then(|queue| queue.pop(now)) {
                let is_waiting = self
                    .ledger_mut(id, &hub)
                    .is_some_and(|ledger| ledger.row.flight.is_some() && ledger.sending.is_none());
                if !is_waiting {
                    continue;
                }
                match self.is_stale(id, &hub, now) || self.is_too_large(id, &hub, now) {
                    true => self.cut_again(id, &hub, now),
                    false => self.submit(id, &hub),
                }
            }
            self.plan_probe(&hub, now);
        }
    }

    /// Wakes when a failing hub is to be asked again.
    fn plan_probe(&mut self, hub: &Hub, now: Timestamp) {
        let wake = self.queues.get(hub).and_then(HubQueue::wake);
        if let Some(at) = wake.filter(|at| *at > now) {
            self.timers.insert((at, Timer::Probe(hub.clone())));
        }
    }

    /// Returns true if the notification in flight was never answered, and no longer announces what there is to announce:
    /// its documents changed while it waited for a failing hub, or while the daemon was down.
    fn is_stale(&self, id: ChannelId, hub: &Hub, now: Timestamp) -> bool {
        let Some(channel) = self.channels.get(&id) else {
            return false;
        };
        let ledger = channel.ledgers.get(hub);
        // A hub that is pinged fetches what the topic serves then.
        let ledger = ledger.filter(|ledger| ledger.mode != Mode::Ping);
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        let Some(flight) = flight.filter(|flight| flight.attempts == 0 && flight.cut < now) else {
            return false;
        };
        let (plan, catalog) = (
            &self.plan.sources[channel.source],
            &self.sources[channel.source].catalog,
        );
        flight.covers.iter().any(|(uri, covered)| {
            let due = due(plan, catalog, channel, hub, uri);
            !matches!(due, Due::Announce(announcement) if announcement.becomes == *covered)
        })
    }

    /// Whether the notification in flight, which was never sent, has a size that its hub refused since it was cut.
    fn is_too_large(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) -> bool {
        let Some(size) = self.queues.get(hub).and_then(|queue| queue.size_limit(now)) else {
            return false;
        };
        let ledger = self.ledger_mut(id, hub);
        let ledger = ledger.filter(|ledger| !ledger.in_doubt && ledger.cut_for != Some(size));
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        flight.is_some_and(|flight| {
            let is_unsent = flight.attempts == 0 && flight.covers.len() > 1;
            is_unsent && (flight.entries > size.entries || flight.body.len() > size.bytes)
        })
    }

    /// Takes back a notification that was never answered, and cuts what there is to announce now, as large as its hub takes.
    fn cut_again(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let source = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let seq = ledger.row.flight.as_ref().map(|flight| flight.seq);
        let doubtful = ledger.withdraw();
        ledger.prepared = Prepared::default();
        self.turn.ledgers.insert((id, hub.clone()));
        if let Some(seq) = seq {
            self.history.note(id, seq, hub, Fate::Withdrawn);
        }
        for uri in doubtful {
            self.turn.told.insert((id, hub.clone(), uri.clone()));
            self.look_for_more(source, id, hub, &uri, now);
        }
        self.cut_channel(id, now);
    }

    fn submit(&mut self, id: ChannelId, hub: &Hub) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = &ledger.row.flight else {
            return;
        };
        ledger.sending = Some(flight.seq);
        if let Some(queue) = self.queues.get_mut(hub) {
            queue.sent(id, flight.seq);
        }
        self.turn.submit.push(Submission {
            channel: id,
            hub: hub.clone(),
            mode: ledger.mode,
            seq: flight.seq,
            topic: channel.row.topic.clone(),
            capability_list: channel.row.set.clone(),
            body: flight.body.clone(),
        });
    }

    pub(super) fn try_again(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        let Some(ledger) = self.ledger_mut(id, hub) else {
            return;
        };
        let flight = ledger.row.flight.as_ref();
        if flight.is_some_and(|flight| flight.next_try <= now) {
            self.enqueue(id, hub);
        }
    }

    pub(super) fn answered(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        seq: u64,
        answer: &Answer,
        jitter: f64,
        now: Timestamp,
    ) {
        let queue = self.queues.get_mut(hub);
        let was_probe = queue.is_some_and(|queue| queue.ended(id, seq));
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let topic = channel.row.topic.clone();
        let source = channel.source;
        let overhead = overhead(&channel.row.set, &self.sources[source].catalog);
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        if ledger.sending.take_if(|sending| *sending == seq).is_none() {
            return;
        }
        let Some(flight) = &mut ledger.row.flight else {
            // It was dropped meanwhile: what is due since then may be cut now.
            self.turn.ready.insert(id);
            return;
        };
        ledger.in_doubt |= answer.leaves_doubt();
        flight.attempts += 1;
        let attempts = flight.attempts;
        let entries = flight.entries;
        let bytes = flight.body.len();
        let took = Duration::try_from(now.duration_since(flight.cut)).unwrap_or_default();
        let queue = self.queues.entry(hub.clone()).or_default();
        let size = queue.size_limit(now).map(|size| size.entries);
        let limits = ledger.row.limit.into_iter().chain(size);
        let limit_in_force = limits.fold(self.plan.window.max_entries, usize::min);
        self.turn.ledgers.insert((id, hub.clone()));
        let before = ledger.row.last.take().filter(|last| last.seq == seq);
        let attempt = |refusal| Attempt::new(seq, answer, refusal, now);
        let (mut at, refusal) = match verdict(answer, attempts, now, jitter) {
            Verdict::Accepted => {
                ledger.row.last = Some(attempt(None));
                let fact = Fact::Delivered {
                    topic,
                    hub: hub.clone(),
                    seq,
                    changes: entries,
                    attempts,
                    took,
                };
                self.tell(fact);
                let fate = Fate::Accepted {
                    at: now,
                    attempts: Some(attempts),
                };
                self.history.note(id, seq, hub, fate);
                self.accepted(id, hub, now);
                let queue = self.queues.entry(hub.clone()).or_default();
                let ended = queue.accepted(now);
                self.release(hub, ended, now);
                return;
            }
            // One document may have two entries, which no limit parts.
            Verdict::TooLarge if entries > 2 || (entries == 2 && limit_in_force > 1) => {
                let limit = limit_in_force.min(entries / 2);
                let refusal = Refusal::new(Kind::TooLarge, "it is too large for it", false);
                ledger.row.last = Some(attempt(Some(refusal)));
                let doubtful = ledger.withdraw();
                ledger.prepared = Prepared::default();
                ledger.row.limit = Some(limit);
                let content = bytes.saturating_sub(overhead);
                let is_news = queue.too_large(limit, overhead + content.div_ceil(2), now);
                let ended = queue.answers();
                self.history.note(id, seq, hub, Fate::Withdrawn);
                self.turn.ready.insert(id);
                self.tell(Fact::Halved {
                    topic,
                    hub: hub.clone(),
                    seq,
                    attempts,
                    limit,
                    is_news,
                });
                for uri in doubtful {
                    self.turn.told.insert((id, hub.clone(), uri.clone()));
                    self.look_for_more(source, id, hub, &uri, now);
                }
                self.release(hub, ended, now);
                return;
            }
            Verdict::TooLarge => {
                let reason = "a notification of one document is too large for it";
                let refusal = Refusal::new(Kind::TooLarge, reason, true);
                (later(now, TOO_LARGE_WAIT), refusal)
            }
            Verdict::Retry { at, reason } => {
                (at, Refusal::new(reason.kind(), &reason.to_string(), false))
            }
            Verdict::NeedsOperator { at, reason } => {
                (at, Refusal::new(reason.kind(), &reason.to_string(), true))
            }
        };
        let own = attempt(Some(refusal.clone()));
        // What failed before the hub accepted something else, and fails still, is at fault itself.
        let accepted_since = before
            .as_ref()
            .is_some_and(|before| match ledger.acceptances {
                Some(acceptances) => queue.acceptances() > acceptances,
                None => queue.last_accepted() > Some(before.at),
            });
        ledger.is_at_fault = before.is_some() && (ledger.is_at_fault || accepted_since);
        ledger.acceptances = Some(queue.acceptances());
        let is_of_hub =
            own.scope() == Some(Scope::Hub) && (!ledger.is_at_fault || queue.fails_at_fault(id));
        let same_as_before =
            |before: Attempt| before.refusal.map(|refusal| refusal.kind) == Some(refusal.kind);
        let is_repeated = before.is_some_and(same_as_before);
        let mut sum_up_at = None;
        let mut ended = None;
        let is_news = if std::mem::take(&mut ledger.is_answer_old) {
            // It says nothing of the hub as it is reached now.
            at = now;
            queue.push(id, false);
            queue.hurry(now);
            true
        } else if is_of_hub {
            let failure = Failure {
                refusal: refusal.clone(),
                retry_after: answer.retry_after(now),
                is_doubtful: ledger.is_at_fault,
                jitter,
            };
            let is_news = queue.failed(failure, was_probe, now);
            // Others may find out whether an operator is needed for this topic or for all.
            if !refusal.needs_operator {
                queue.push(id, false);
                at = queue.outage().map_or(at, |outage| outage.next_probe);
            }
            is_news
        } else {
            if own.scope() == Some(Scope::Notification) {
                ended = queue.answers();
            }
            let (is_news, at) = queue.refused(&refusal, is_repeated, now);
            sum_up_at = at;
            is_news
        };
        ledger.row.last = Some(own);
        flight.next_try = at;
        if let Some(at) = sum_up_at {
            self.wake_at(at, Timer::Refusals(hub.clone()));
        }
        self.wake_at(at, Timer::Try(id, hub.clone()));
        self.tell(Fact::Refused {
            topic,
            hub: hub.clone(),
            seq,
            attempts,
            reason: refusal.reason,
            next_try: at,
            kind: refusal.kind,
            needs_operator: refusal.needs_operator,
            is_news,
        });
        self.release(hub, ended, now);
    }

    /// Everything that waited for a failing hub may go, now that it answers (R23).
    fn release(&mut self, hub: &Hub, ended: Option<Outage>, now: Timestamp) {
        let Some(outage) = ended else {
            return;
        };
        let mut waiting = Vec::new();
        for (id, channel) in &self.channels {
            let Some(ledger) = channel.ledgers.get(hub) else {
                continue;
            };
            let last = ledger.row.last.as_ref();
            let waits_for_hub = ledger.sending.is_none()
                && ledger.row.flight.as_ref().is_some_and(|flight| {
                    let own = last.filter(|last| last.seq == flight.seq);
                    own.is_none_or(|last| last.scope() == Some(Scope::Hub))
                });
            if waits_for_hub {
                waiting.push(*id);
            }
        }
        for id in &waiting {
            self.enqueue(*id, hub);
        }
        self.tell(Fact::Recovered {
            hub: hub.clone(),
            attempts: outage.attempts,
            took: Duration::try_from(now.duration_since(outage.since)).unwrap_or_default(),
            notifications: waiting.len(),
        });
    }

    /// Tells how many refusals were like those that were told.
    pub(super) fn sum_up_refusals(&mut self, hub: &Hub, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(hub) else {
            return;
        };
        for (kind, reason, notifications) in queue.sum_up(now) {
            self.tell(Fact::RefusedAlike {
                hub: hub.clone(),
                kind,
                reason,
                notifications,
            });
        }
    }

    /// R22: what was in flight is told, and the next notification is cut from what is due now.
    fn accepted(&mut self, id: ChannelId, hub: &Hub, now: Timestamp) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let source = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        let Some(flight) = ledger.row.flight.take() else {
            return;
        };
        ledger.row.limit = None;
        ledger.row.accepted = Some(now);
        ledger.is_answer_old = false;
        // Of a hub that is pinged, what it fetches counts.
        if ledger.mode != Mode::Ping {
            ledger.row.until = flight.until;
        }
        if ledger.mode == Mode::Ping {
            // A hub may fetch the topic before it answers the ping.
            let before = ledger.row.ping;
            ledger.row.ping = Some(Ping {
                at: now,
                fetched: before.is_some_and(|ping| ping.fetched),
                reported: before.is_some_and(|ping| ping.reported),
            });
            self.timers
                .insert((later(now, PING_APART), Timer::Ping(id, hub.clone())));
            let silent_at = later(now, PING_FETCHED_WITHIN);
            self.timers
                .insert((silent_at, Timer::Ping(id, hub.clone())));
        }
        let covers: BTreeMap<Uri, Option<Told>> = flight.covers.into_iter().collect();
        for (uri, told) in &covers {
            match told {
                Some(told) => ledger.told.insert(uri.clone(), *told),
                None => ledger.told.remove(uri),
            };
            self.turn.told.insert((id, hub.clone(), uri.clone()));
            self.heard.entry(uri.clone()).or_default().insert(id);
            // R11: what was cut before the channel retired, or the hub left, is not its last word.
            let ended = ledger.row.left.as_ref().or(channel.row.retired.as_ref());
            if let Some(retirement) = ended {
                let is_last = flight.cut > retirement.since;
                if !is_last && retirement.last_words.contains(uri) {
                    ledger.due.insert(uri.clone());
                } else {
                    ledger.due.remove(uri);
                }
            }
        }
        for uri in covers.keys() {
            self.look_for_more(source, id, hub, uri, now);
            self.forget_if_done(source, uri);
        }
        self.last_words_said(id, covers.keys());
        self.end_accounts(id);
        self.turn.ready.insert(id);
    }

    /// What the hub knows of a document changed, and so may what there is to say of it; if that has to wait, it
    /// does from now on (R17).
    pub(super) fn look_for_more(
        &mut self,
        source: usize,
        id: ChannelId,
        hub: &Hub,
        uri: &Uri,
        now: Timestamp,
    ) {
        let is_held = self.reassess(source, id, hub, uri, false, now);
        if is_held {
            self.refresh(source, uri, false, now);
        }
    }
}
