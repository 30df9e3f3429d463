//! Submits what was cut, and hears what hubs answered (R22, R23).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::later;
use crate::announce::delivery::attempt::{Attempt, Kind, Refusal};
use crate::announce::delivery::verdict::{Verdict, verdict};
use crate::announce::delivery::{Answer, ChannelId, Submission, SubmissionId};
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::history::Fate;
use crate::announce::ledger::{PING_APART, PING_FETCHED_WITHIN, Prepared};
use crate::announce::plan::Mode;
use crate::announce::state::{Ping, Told};
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
            }
        }
    }

    pub(super) fn submit(&mut self, id: ChannelId, hub: &Hub) {
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
        let is_due = flight.is_some_and(|flight| flight.next_try <= now);
        if is_due && ledger.sending.is_none() {
            self.submit(id, hub);
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
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let topic = channel.row.topic.clone();
        let source = channel.source;
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return;
        };
        if ledger.sending.take_if(|sending| *sending == seq).is_none() {
            return;
        }
        let Some(flight) = &mut ledger.row.flight else {
            // It was dropped meanwhile: what is due since then may be cut now.
            self.turn.ripe.insert(id);
            return;
        };
        ledger.in_doubt |= answer.leaves_doubt();
        flight.attempts += 1;
        let attempts = flight.attempts;
        let entries = flight.entries;
        let took = Duration::try_from(now.duration_since(flight.cut)).unwrap_or_default();
        let limit_in_force = ledger.row.limit.unwrap_or(self.plan.window.max_entries);
        self.turn.ledgers.insert((id, hub.clone()));
        let attempt = |refusal| Some(Attempt::new(seq, answer, refusal, now));
        let (at, refusal) = match verdict(answer, attempts, now, jitter) {
            Verdict::Accepted => {
                ledger.row.last = attempt(None);
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
                return;
            }
            // One document may have two entries, which no limit parts.
            Verdict::TooLarge if entries > 1 && entries / 2 < limit_in_force => {
                let limit = entries / 2;
                let refusal = Refusal::new(Kind::TooLarge, "it is too large for it", false);
                ledger.row.last = attempt(Some(refusal));
                let doubtful = ledger.withdraw();
                ledger.prepared = Prepared::default();
                ledger.row.limit = Some(limit);
                self.history.note(id, seq, hub, Fate::Withdrawn);
                self.turn.ripe.insert(id);
                self.tell(Fact::Halved {
                    topic,
                    hub: hub.clone(),
                    seq,
                    attempts,
                    limit,
                });
                for uri in doubtful {
                    self.turn.told.insert((id, hub.clone(), uri.clone()));
                    self.look_for_more(source, id, hub, &uri, now);
                }
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
            Verdict::NeedsPerson { at, reason } => {
                (at, Refusal::new(reason.kind(), &reason.to_string(), true))
            }
        };
        let at = match std::mem::take(&mut ledger.is_answer_old) {
            true => now,
            false => at,
        };
        flight.next_try = at;
        ledger.row.last = attempt(Some(refusal.clone()));
        self.wake_at(at, Timer::Try(id, hub.clone()));
        self.tell(Fact::Refused {
            topic,
            hub: hub.clone(),
            seq,
            attempts,
            reason: refusal.reason,
            next_try: at,
            kind: refusal.kind,
            needs_person: refusal.needs_person,
        });
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
        self.turn.ripe.insert(id);
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
