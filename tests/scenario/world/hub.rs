//! Hubs that accept, refuse, hang and lie.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use announce::delivery::Submission;
use announce::state::ChannelId;
use jiff::Timestamp;
use resourcesync::change_payload::ChangePayload;
use resourcesync::payload::Payload;
use websub::answer::{Answer, BrokerRefusal};

use crate::world::changes::HeardChanges;
use crate::world::plan::SITE;

/// The behaviour of a hub on a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Accept,
    /// Answers with this status.
    Status(u16),
    /// Answers with this status, and wants to be left alone for so many seconds.
    Busy(u16, u64),
    /// Answers with this status to notifications of this topic, and accepts all others.
    RefuseTopic(&'static str, u16),
    /// Accepts notifications of this topic, and answers all others with this status and nothing else.
    AcceptOnly(&'static str, u16),
    /// Accepts so many notifications, and answers all others with this status.
    FirstOf(usize, u16),
    /// Answers with this status and these words.
    Say(u16, &'static str),
    /// Takes the notification, and answers only after so many seconds, well.
    Slow(u64),
    /// Never answers.
    Hang,
    /// Answers 200, and says `hub.mode=denied` in a form.
    Deny,
    /// Cannot be reached, or does not answer in the time it is given: as many seconds.
    Fail(u64),
    /// Answers, as a message broker, with an `ERROR`.
    Error(BrokerRefusal),
    /// Answers 413 to notifications of more than so many changes.
    AtMost(usize),
}

/// A notification as a hub got it.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Without the site's address.
    pub topic: String,
    pub seq: u64,
    pub at: Timestamp,
    pub body: Arc<[u8]>,
    pub payload: Payload,
}

impl Heard {
    pub fn changes(&self) -> Vec<String> {
        changes(&self.payload)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Returns the entries as `u /a/changelist.xml`, or as `u changedump /a/b.xml` if their names do not say their
/// capability.
pub fn changes(payload: &Payload) -> Vec<String> {
    let changes = payload.entries.iter().map(|entry| {
        let (change, capability) = (entry.change.as_str(), entry.capability.as_str());
        change_of(change, capability, &short(entry.uri.as_str()))
    });
    changes.collect()
}

pub fn change_of(change: &str, capability: &str, name: &str) -> String {
    let (kind, (_, file)) = (&change[..1], name.rsplit_once('/').unwrap());
    match file.strip_suffix(".xml") == Some(capability) {
        true => format!("{kind} {name}"),
        false => format!("{kind} {capability} {name}"),
    }
}

pub fn short(uri: &str) -> String {
    uri.strip_prefix(SITE).unwrap_or(uri).to_owned()
}

#[derive(Debug)]
pub struct FakeHub {
    pub reply: Reply,
    pub accepted: Vec<Heard>,
    pub attempts: Vec<Heard>,
    /// The change notifications.
    pub accepted_changes: Vec<HeardChanges>,
    pub attempted_changes: Vec<HeardChanges>,
    /// Each notification as it first came.
    first: BTreeMap<(ChannelId, u64), Heard>,
}

impl Default for FakeHub {
    fn default() -> FakeHub {
        FakeHub {
            reply: Reply::Accept,
            accepted: Vec::new(),
            attempts: Vec::new(),
            accepted_changes: Vec::new(),
            attempted_changes: Vec::new(),
            first: BTreeMap::new(),
        }
    }
}

impl FakeHub {
    /// Takes a notification; says what it answers, and after how long.
    pub fn take(&mut self, submission: &Submission, now: Timestamp) -> Option<(Duration, Answer)> {
        let key = (submission.channel, submission.seq);
        let first = self.first.entry(key).or_insert_with(|| Heard {
            topic: short(submission.topic.as_str()),
            seq: submission.seq,
            at: now,
            body: Arc::clone(&submission.body),
            payload: Payload::parse(&submission.body).unwrap(),
        });
        assert_eq!(
            first.body, submission.body,
            "a retry is byte for byte the same"
        );
        let heard = Heard {
            at: now,
            ..first.clone()
        };
        self.attempts.push(heard.clone());
        let entries = heard.payload.entries.len();
        let (after, answer) = self.answer(&heard.topic, entries)?;
        if self.accepts(&answer) {
            self.accepted.push(heard);
        }
        Some((after, answer))
    }

    /// Takes a change notification; says what it answers, and after how long.
    pub fn take_changes(&mut self, submission: &Submission) -> Option<(Duration, Answer)> {
        let heard = HeardChanges {
            topic: short(submission.topic.as_str()),
            seq: submission.seq,
            body: Arc::clone(&submission.body),
            payload: ChangePayload::parse(&submission.body).unwrap(),
        };
        self.attempted_changes.push(heard.clone());
        let (after, answer) = self.answer(&heard.topic, heard.payload.entries.len())?;
        if self.accepts(&answer) {
            self.accepted_changes.push(heard);
        }
        Some((after, answer))
    }

    fn taken(&self) -> usize {
        self.accepted.len() + self.accepted_changes.len()
    }

    fn accepts(&self, answer: &Answer) -> bool {
        let is_success = |status: u16| (200..300).contains(&status);
        self.reply != Reply::Deny
            && matches!(answer, Answer::Status { status, .. } if is_success(*status))
    }

    fn answer(&self, topic: &str, entries: usize) -> Option<(Duration, Answer)> {
        let (seconds, status, excerpt) = match self.reply {
            Reply::Accept => (0, 202, ""),
            Reply::Slow(seconds) => (seconds, 202, ""),
            Reply::Status(status) | Reply::Busy(status, _) => (0, status, "words"),
            Reply::RefuseTopic(refused, status) if topic == refused => (0, status, "words"),
            Reply::RefuseTopic(..) => (0, 202, ""),
            Reply::AcceptOnly(accepted, status) if topic != accepted => (0, status, ""),
            Reply::AcceptOnly(..) => (0, 202, ""),
            Reply::FirstOf(most, status) if self.taken() >= most => (0, status, "words"),
            Reply::FirstOf(..) => (0, 202, ""),
            Reply::Say(status, words) => (0, status, words),
            Reply::Deny => (0, 200, "hub.mode=denied&hub.reason=no"),
            Reply::AtMost(most) if entries > most => (0, 413, "too large"),
            Reply::AtMost(_) => (0, 202, ""),
            Reply::Hang => return None,
            Reply::Error(refusal) => {
                let excerpt = "words".to_owned();
                let answer = Answer::BrokerError { refusal, excerpt };
                return Some((Duration::ZERO, answer));
            }
            Reply::Fail(seconds) => {
                let answer = Answer::Failed("no answer".to_owned());
                return Some((Duration::from_secs(seconds), answer));
            }
        };
        let answer = Answer::Status {
            status,
            content_type: Some("application/x-www-form-urlencoded".to_owned()),
            retry_after: match self.reply {
                Reply::Busy(_, seconds) => Some(seconds.to_string()),
                _ => None,
            },
            excerpt: excerpt.to_owned(),
            credentials: None,
        };
        Some((Duration::from_secs(seconds), answer))
    }
}
