//! Submissions to hubs and message brokers, and the state of those that do not accept.
//!
//! [`HubQueue`] decides which of a hub's submissions may be sent (R23), [`KeptAnswer`] is the part of an answer that is
//! kept. `websub` makes requests and judges answers.
//!
//! A failing hub is tried with one submission at a time. Its first answer that is no failure ends the outage, and
//! everything that waited may go. At any other time the number of submissions under way grows with what the hub
//! accepts, so that an outage is found by a few of them and not by one for each channel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use messaging::message::{BrokerNotification, HashedPayload};
use resourcesync::capability::ChannelKind;
use resourcesync::datetime::Datetime;
use resourcesync::escape::printable;
use resourcesync::uri::{Hub, Topic, Uri};
use serde::{Deserialize, Serialize};
use websub::answer::Answer;
use websub::hub::{Relay, RelayHeaders, RelayId};
use websub::publisher::HubRequest;
use websub::publisher::reason::{Refusal, RefusalKind};
use websub::publisher::verdict::says_nothing;

use crate::plan::PublishMode;
use crate::state::{ChannelId, Columns, FromRow};
use crate::time::{elapsed, later};

/// Submissions under way before the hub has accepted any of them.
const FIRST_AT_ONCE: usize = 2;
/// Submissions that may be under way besides these right after the end of an outage.
const MORE_AFTER_OUTAGE: usize = 6;
/// Submissions that may be under way besides these at the most.
const MAX_MORE: usize = 62;

/// Wait before the first probe of an outage.
const FIRST_PROBE: Duration = Duration::from_secs(2);
/// Minimum wait between later probes: at most 15 attempts in 30 s, and in the first six minutes a hub that is back is
/// noticed within 3 s.
const PROBES_APART: Duration = Duration::from_millis(2_400);
/// Maximum wait between two probes.
const PROBES_APART_AT_MOST: Duration = Duration::from_secs(30);
/// Divisor of an outage's length that gives the maximum wait before the next probe.
const PART_OF_OUTAGE: u32 = 120;
/// Maximum wait between probes of a hub that needs an operator.
const OPERATOR_PROBES_APART: Duration = Duration::from_secs(15 * 60);

/// Number of notifications at fault whose failures, without an acceptance in between, count as the hub's.
const MAX_AT_FAULT: usize = 3;

/// The time between two log lines about the same outage or the same refusal.
const REMINDER: Duration = Duration::from_secs(3_600);
/// The time between two log lines about an outage whose reason changes.
const CHANGED_REASON: Duration = Duration::from_secs(60);
/// The time in which refusals of one kind are summed up.
const SUMMED_UP_FOR: Duration = Duration::from_secs(60);
/// Refusals of one kind in that time that are logged one by one.
const EXAMPLES: usize = 3;
/// The time for which a refused size is remembered.
pub const SIZE_REMEMBERED: Duration = Duration::from_secs(3_600);

/// The channel, hub and sequence number of a submission: unique among all that are under way at the same time.
pub type SubmissionId = (ChannelId, Hub, u64);

/// One attempt to tell one hub or broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub channel: ChannelId,
    pub hub: Hub,
    pub mode: PublishMode,
    /// Number of the notification on its channel, from 1.
    pub seq: u64,
    /// The name of the source.
    pub source: String,
    pub kind: ChannelKind,
    pub topic: Topic,
    pub capability_list: Uri,
    /// The payload; a ping sends none of it.
    pub body: Arc<[u8]>,
    /// For a broker, the datetimes of changes that lie outside the interval of a change notification, with the positions of
    /// their entries: hubs are not sent them (C15), feeds have them (F6).
    pub outside: Vec<(usize, Datetime)>,
}

impl Submission {
    /// Returns what a hub is sent over HTTP.
    pub fn http_request(&self) -> HubRequest {
        let hub = self.hub.clone();
        if self.mode == PublishMode::Ping {
            return HubRequest::ping(hub, &self.topic);
        }
        HubRequest {
            in_query: (self.mode == PublishMode::ContentQuery).then(|| self.topic.clone()),
            ..HubRequest::content(hub, &self.topic, &self.capability_list, &self.body)
        }
    }

    /// Returns what a message broker is sent.
    pub fn broker_notification(&self) -> BrokerNotification<'_> {
        BrokerNotification {
            source: &self.source,
            topic: self.topic.as_str(),
            kind: self.kind,
            seq: self.seq,
            body: HashedPayload::new(&self.body, &self.outside),
        }
    }

    /// Returns what the embedded hub relays.
    pub fn as_relay(&self) -> Relay {
        Relay {
            id: RelayId::default(),
            topic: self.topic.clone(),
            seq: self.seq,
            body: Arc::clone(&self.body),
            headers: RelayHeaders {
                capability_list: Some(self.capability_list.clone()),
                ..RelayHeaders::default()
            },
        }
    }
}

/// The last attempt at one hub on one channel, whether it accepted or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAnswer {
    pub at: Timestamp,
    /// The number of the notification that was submitted.
    pub seq: u64,
    /// Nothing where there was no answer, and for brokers.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub excerpt: String,
    /// Nothing where it was accepted.
    pub refusal: Option<Refusal>,
}

/// Reads the column of an account that has its last one.
impl FromRow for Option<KeptAnswer> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<KeptAnswer>> {
        let last: Option<String> = row.read()?;
        Ok(last.and_then(|last| serde_json::from_str(&last).ok()))
    }
}

impl KeptAnswer {
    pub fn new(seq: u64, answer: &Answer, refusal: Option<Refusal>, at: Timestamp) -> KeptAnswer {
        let (status, excerpt) = match answer {
            Answer::Status {
                status, excerpt, ..
            } => (Some(*status), printable(excerpt)),
            Answer::Failed(_) | Answer::Receipts => (None, String::new()),
            Answer::BrokerError { excerpt, .. } => (None, printable(excerpt)),
        };
        KeptAnswer {
            at,
            seq,
            status,
            excerpt,
            refusal,
        }
    }

    /// Returns it as the column of an account has it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the answer in words.
    pub fn answer(&self) -> String {
        match (self.status, &self.refusal) {
            (Some(status), _) => format!("answered {status}"),
            (None, None) => "accepted".to_owned(),
            (None, Some(refusal)) if refusal.kind == RefusalKind::NoAnswer => {
                "no answer".to_owned()
            }
            (None, Some(_)) => "refused".to_owned(),
        }
    }

    /// Returns the hub's own reason for a refusal, if the body is one: not a page for browsers.
    pub fn reason_in_body(&self) -> Option<&str> {
        let is_reason = self.status? >= 400 && !self.excerpt.starts_with('<');
        (is_reason && !self.excerpt.is_empty()).then_some(self.excerpt.as_str())
    }

    /// Returns true if it was refused because of the hub as a whole, or its address or credentials: every notification would
    /// be (R23). Other refusals are about this notification, or its topic.
    pub fn is_hub_wide_refusal(&self) -> bool {
        let kind = self.refusal.as_ref().map(|refusal| refusal.kind);
        kind.is_some_and(|kind| match kind {
            RefusalKind::NoSubscribersLikely => {
                self.status == Some(500) && says_nothing(&self.excerpt)
            }
            RefusalKind::WrongMode => self.status == Some(405),
            RefusalKind::NoAnswer
            | RefusalKind::Unavailable
            | RefusalKind::Redirected
            | RefusalKind::NotAllowed
            | RefusalKind::NotAllowedByProxy
            | RefusalKind::NotThere => true,
            RefusalKind::Denied
            | RefusalKind::DestinationRefused
            | RefusalKind::TooLarge
            | RefusalKind::Refused => false,
        })
    }
}

/// The submissions of one hub over all channels. Nothing of it is stored: a start finds what waits, and tries it (R23).
#[derive(Debug, Clone, Default)]
pub struct HubQueue {
    /// Asked for by the operator: sent whatever the state of the hub.
    asked_for: VecDeque<ChannelId>,
    /// Notifications that were never submitted.
    first: VecDeque<ChannelId>,
    /// Notifications that were.
    again: VecDeque<ChannelId>,
    /// All of the three: others only read it.
    pub waiting: BTreeSet<ChannelId>,
    sending: BTreeSet<(ChannelId, u64)>,
    /// Submissions that may be under way at the same time while the hub does not fail, besides [`FIRST_AT_ONCE`].
    more_at_once: usize,
    pub outage: Option<Outage>,
    /// Since the start.
    pub acceptances: u64,
    /// Channels with a notification at fault that failed since the last acceptance.
    at_fault: BTreeSet<ChannelId>,
    /// The size that it refused last, whose time may be over.
    pub size: Option<SizeLimit>,
    /// Refusals of single notifications.
    refusals: BTreeMap<RefusalKind, RefusalLogLimit>,
}

/// A time in which a hub accepts nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Outage {
    pub since: Timestamp,
    pub attempts: u32,
    /// The last failure.
    pub refusal: Refusal,
    pub next_probe: Timestamp,
    /// True if the hub may take other notifications than those that failed, so that new ones need not wait for long.
    is_doubtful: bool,
    /// The earliest first submission of a notification while the hub may take others.
    earliest_first: Timestamp,
    /// Failures in a row that need an operator.
    operator_failures: u32,
    probes: BTreeSet<(ChannelId, u64)>,
    probes_at_once: usize,
    /// The last log line about it.
    logged: Option<Timestamp>,
}

/// The limits of the next notifications of a hub after a 413.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    pub entries: usize,
    /// Size of the payload.
    pub bytes: usize,
    pub until: Timestamp,
}

/// Refusals of one kind, each about one notification.
#[derive(Debug, Clone, Default, PartialEq)]
struct RefusalLogLimit {
    since: Timestamp,
    logged: usize,
    more: usize,
    reason: String,
    last_logged: Option<Timestamp>,
}

/// A submission that failed for a reason of the hub's own.
#[derive(Debug, Clone, PartialEq)]
pub struct HubFault {
    pub refusal: Refusal,
    /// The time that the hub asks to be left alone.
    pub retry_after: Option<Duration>,
    /// True if the hub accepted others while this notification failed.
    pub is_doubtful: bool,
    /// Random, from 0 to 1.
    pub jitter: f64,
}

impl HubQueue {
    /// Adds the notification in flight of a channel, unless it waits already.
    pub fn push(&mut self, channel: ChannelId, is_first: bool) {
        if self.sending.is_empty() && self.waiting.is_empty() {
            self.more_at_once = 0;
        }
        if self.waiting.insert(channel) {
            if is_first {
                self.first.push_back(channel)
            } else {
                self.again.push_back(channel)
            }
        }
    }

    /// Adds one that is to be sent at once, whatever the state of the hub.
    pub fn push_asked_for(&mut self, channel: ChannelId) {
        self.remove(channel);
        self.waiting.insert(channel);
        self.asked_for.push_back(channel);
    }

    /// Removes notifications that no longer wait.
    pub fn remove(&mut self, channel: ChannelId) {
        if self.waiting.remove(&channel) {
            for queue in [&mut self.asked_for, &mut self.first, &mut self.again] {
                queue.retain(|waiting| *waiting != channel);
            }
        }
    }

    /// Takes the next one that may be submitted now.
    pub fn pop(&mut self, now: Timestamp) -> Option<ChannelId> {
        let (first_may, again_may) = match &self.outage {
            Some(outage) if outage.probes.len() >= outage.probes_at_once => (false, false),
            Some(outage) => (outage.next_first_attempt() <= now, outage.next_probe <= now),
            None => {
                let may = self.sending.len() < FIRST_AT_ONCE + self.more_at_once;
                (may, may)
            }
        };
        let next = (self.asked_for.pop_front())
            .or_else(|| first_may.then(|| self.first.pop_front())?)
            .or_else(|| again_may.then(|| self.again.pop_front())?)?;
        self.waiting.remove(&next);
        Some(next)
    }

    /// Returns when something may go that has to wait now, or refusals are summed up, whichever comes first.
    pub fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let probe = self.outage.as_ref().and_then(|outage| {
            match (self.first.is_empty(), self.again.is_empty()) {
                (true, true) => None,
                (true, false) => Some(outage.next_probe),
                (false, _) => Some(outage.next_first_attempt()),
            }
        });
        let probe = probe.filter(|at| *at > now);
        probe.into_iter().chain(self.sums_up_at()).min()
    }

    /// Returns when refusals are summed up that were not logged by themselves.
    pub fn sums_up_at(&self) -> Option<Timestamp> {
        let unlogged = self.refusals.values().filter(|alike| alike.more > 0);
        let times = unlogged.map(|alike| later(alike.since, SUMMED_UP_FOR));
        times.min()
    }

    /// Notes that a submission is under way.
    pub fn sent(&mut self, channel: ChannelId, seq: u64) {
        self.sending.insert((channel, seq));
        if let Some(outage) = &mut self.outage {
            outage.probes.insert((channel, seq));
        }
    }

    /// Notes that an answer came, whatever it was; returns whether it was awaited as a probe.
    pub fn answered(&mut self, channel: ChannelId, seq: u64) -> bool {
        self.sending.remove(&(channel, seq));
        let outage = self.outage.as_mut();
        outage.is_some_and(|outage| outage.probes.remove(&(channel, seq)))
    }

    /// Notes that the hub accepted something. Returns the outage that this ends.
    pub fn accepted(&mut self) -> Option<Outage> {
        self.acceptances += 1;
        self.at_fault.clear();
        self.more_at_once = (self.more_at_once + 1).min(MAX_MORE);
        self.end_outage()
    }

    /// Notes an answer that says nothing against the hub. Returns the outage that this ends.
    pub fn end_outage(&mut self) -> Option<Outage> {
        let ended = self.outage.take();
        ended.inspect(|_| self.more_at_once = MORE_AFTER_OUTAGE)
    }

    /// Notes the failure of a notification that was at fault when it failed before, because the hub accepted others
    /// meanwhile. Returns true if so many of these failed since the last acceptance that it is the hub after all.
    pub fn record_repeated_fault(&mut self, channel: ChannelId) -> bool {
        self.at_fault.insert(channel);
        self.at_fault.len() >= MAX_AT_FAULT
    }

    /// Notes that the hub failed. Returns true if that is news to the operator.
    pub fn failed(&mut self, failure: HubFault, was_probe: bool, now: Timestamp) -> bool {
        self.more_at_once = 0;
        let is_new = self.outage.is_none();
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: now,
            attempts: 0,
            refusal: failure.refusal.clone(),
            next_probe: now,
            is_doubtful: failure.is_doubtful,
            earliest_first: now,
            operator_failures: 0,
            probes: BTreeSet::new(),
            probes_at_once: 1,
            logged: None,
        });
        outage.attempts += 1;
        outage.is_doubtful &= failure.is_doubtful;
        outage.operator_failures = if failure.refusal.needs_operator {
            outage.operator_failures + 1
        } else {
            0
        };
        let is_other = outage.refusal.kind != failure.refusal.kind;
        outage.refusal = failure.refusal;
        if is_new || was_probe {
            outage.probes_at_once = 1;
            outage.next_probe = later(now, outage.wait(is_new, failure.jitter, now));
            outage.earliest_first = later(now, PROBES_APART);
        }
        if let Some(wait) = failure.retry_after {
            let at = later(now, wait);
            outage.next_probe = outage.next_probe.max(at);
            outage.earliest_first = outage.earliest_first.max(at);
        }
        let logged = outage.logged;
        let logged_within = |wait| logged.is_some_and(|logged| now < later(logged, wait));
        let is_news = !logged_within(REMINDER) || (is_other && !logged_within(CHANGED_REASON));
        if is_news {
            outage.logged = Some(now);
        }
        is_news
    }

    /// Continues what a queue before this one has learned of the hub. Whether it fails is found out again (R23).
    pub fn inherit_refusals(&mut self, before: &HubQueue) {
        self.size = before.size;
        self.refusals.clone_from(&before.refusals);
    }

    /// Makes the next probe of a failing hub due now, and has its outcome logged even if the outage was logged before.
    pub fn make_probe_due(&mut self, now: Timestamp) {
        if let Some(outage) = &mut self.outage {
            (outage.next_probe, outage.earliest_first) = (now, now);
            outage.probes_at_once = FIRST_AT_ONCE;
            outage.operator_failures = 0;
            outage.logged = None;
        }
    }

    /// Notes that the hub refused this size. Returns true if that is the first time within an hour.
    pub fn too_large(&mut self, entries: usize, bytes: usize, now: Timestamp) -> bool {
        let before = self.size.filter(|size| now < size.until);
        self.size = Some(SizeLimit {
            entries: before.map_or(entries, |before| before.entries.min(entries)),
            bytes: before.map_or(bytes, |before| before.bytes.min(bytes)),
            until: later(now, SIZE_REMEMBERED),
        });
        before.is_none()
    }

    /// Notes a refusal of one notification. Returns true if it is logged by itself.
    pub fn note_refusal(&mut self, refusal: &Refusal, is_repeated: bool, now: Timestamp) -> bool {
        let alike = self.refusals.entry(refusal.kind).or_default();
        alike.reason.clone_from(&refusal.reason);
        let was_logged = |at| now < later(at, REMINDER);
        if is_repeated && alike.last_logged.is_some_and(was_logged) {
            return false;
        }
        if alike.logged == 0 || later(alike.since, SUMMED_UP_FOR) <= now {
            (alike.since, alike.logged) = (now, 0);
        }
        let is_news = alike.logged < EXAMPLES;
        if is_news {
            (alike.logged, alike.last_logged) = (alike.logged + 1, Some(now))
        } else {
            alike.more += 1
        }
        is_news
    }

    /// Returns the refusals that were not logged by themselves: each kind with its reason, and their number.
    pub fn sum_up_refusals(&mut self, now: Timestamp) -> Vec<(RefusalKind, String, usize)> {
        let groups = self.refusals.iter_mut();
        let due = groups.filter(|(_, alike)| later(alike.since, SUMMED_UP_FOR) <= now);
        due.filter_map(|(kind, alike)| {
            alike.logged = 0;
            let more = std::mem::take(&mut alike.more);
            (more > 0).then(|| (*kind, alike.reason.clone(), more))
        })
        .collect()
    }
}

impl Outage {
    /// Returns the time from which notifications that were never submitted may be: no later than the next probe.
    fn next_first_attempt(&self) -> Timestamp {
        // Topics without subscribers must not keep others waiting for longer and longer.
        if self.is_doubtful || self.refusal.kind == RefusalKind::NoSubscribersLikely {
            self.earliest_first.min(self.next_probe)
        } else {
            self.next_probe
        }
    }

    /// Returns the wait before the next probe.
    fn wait(&self, is_new: bool, jitter: f64, now: Timestamp) -> Duration {
        if self.operator_failures > 0 {
            // One topic may need to be registered while others are: those are tried before long.
            let doubled = 2_u32.saturating_pow(self.operator_failures - 1);
            let wait = FIRST_PROBE.saturating_mul(doubled);
            return wait.min(OPERATOR_PROBES_APART);
        }
        if is_new {
            return FIRST_PROBE;
        }
        let longest =
            (elapsed(self.since, now) / PART_OF_OUTAGE).clamp(PROBES_APART, PROBES_APART_AT_MOST);
        PROBES_APART + (longest - PROBES_APART).mul_f64(0.8 + 0.2 * jitter)
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::escape::MAX_EXCERPT;
    use websub::answer::BrokerRefusal;

    use super::*;

    #[test]
    fn each_mode_has_its_form_over_http() {
        let payload: Arc<[u8]> = b"<urlset/>".as_slice().into();
        for (mode, is_content, is_in_query) in [
            (PublishMode::Content, true, false),
            (PublishMode::Embedded, true, false),
            (PublishMode::Broker, true, false),
            (PublishMode::ContentQuery, true, true),
            (PublishMode::Ping, false, false),
        ] {
            let submission = Submission {
                channel: ChannelId(1),
                hub: Hub::new("https://hub.example.net/websub/"),
                mode,
                seq: 1,
                source: "main".to_owned(),
                kind: ChannelKind::Framework,
                topic: Topic::new("https://e.org/set1/"),
                capability_list: Uri::parse("https://e.org/cl.xml").unwrap(),
                body: Arc::clone(&payload),
                outside: Vec::new(),
            };
            let request = submission.http_request();
            assert_eq!(request.body == payload, is_content);
            assert_eq!(request.in_query.is_some(), is_in_query);
        }
    }

    #[test]
    fn what_a_hub_says_is_kept_in_part_and_cannot_command_a_terminal() {
        let answer = Answer::Status {
            status: 403,
            content_type: None,
            retry_after: None,
            excerpt: format!("\n\u{1b}[2J{}", "ü".repeat(100_000)),
            credentials: None,
        };
        let refusal = Refusal::new(RefusalKind::NotAllowed, &"\u{7}x".repeat(100_000), true);
        let attempt = KeptAnswer::new(1, &answer, Some(refusal), Timestamp::UNIX_EPOCH);
        let reason = attempt.refusal.unwrap().reason;
        for (text, begins) in [(attempt.excerpt, " [2Jüü"), (reason, " x x x")] {
            assert_eq!(text.chars().count(), MAX_EXCERPT);
            assert!(text.starts_with(begins), "{text}");
        }
    }

    #[test]
    fn a_broker_answers_without_a_status() {
        let refused = Answer::BrokerError {
            refusal: BrokerRefusal::Destination,
            excerpt: "no such queue".to_owned(),
        };
        let failed = Answer::Failed("timed out".to_owned());
        for (answer, refusal, want) in [
            (Answer::Receipts, None, "accepted"),
            (refused, Some(RefusalKind::DestinationRefused), "refused"),
            (failed, Some(RefusalKind::NoAnswer), "no answer"),
        ] {
            let refusal = refusal.map(|kind| Refusal::new(kind, "", false));
            let attempt = KeptAnswer::new(1, &answer, refusal, Timestamp::UNIX_EPOCH);
            assert_eq!(attempt.answer(), want);
        }
    }

    #[test]
    fn a_page_for_browsers_and_an_accepting_body_are_no_reason() {
        for (status, excerpt, want) in [
            (Some(403), "no such topic", Some("no such topic")),
            (Some(403), "", None),
            (Some(404), "<html><body>Not Found", None),
            (Some(302), "Location: https://h.example/", None),
            (Some(200), "hub.mode=denied", None),
            (None, "no such queue", None),
        ] {
            let attempt = KeptAnswer {
                at: Timestamp::UNIX_EPOCH,
                seq: 1,
                status,
                excerpt: excerpt.to_owned(),
                refusal: None,
            };
            assert_eq!(attempt.reason_in_body(), want, "{excerpt}");
        }
    }
}
