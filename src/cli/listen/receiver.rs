//! The notifications of one topic, in order: each is judged, handed over, remembered, and only then acknowledged.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::receive::{Notification, time_span};
use resourcesync::uri::Topic;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use websub::retry::backoff;
use websub::subscriber::retrieve::{AllowedOrigins, RetrieveError, Retriever};
use websub::subscriber::{CallbackRequest, ReceivedNotification};

use crate::cli::listen::change_key::{Key, KeySet};
use crate::cli::listen::change_lists::{Patience, ReadChanges, Unreadable, missed};
use crate::cli::listen::command::Run;
use crate::cli::listen::memory::{Memory, Relation};
use crate::cli::listen::missed::{Following, Missed};
use crate::cli::listen::notification::{Entries, Handed};
use crate::cli::listen::printer::Text;
use crate::cli::listen::report::ListenEvent;
use crate::cli::listen::{Listening, stopped};
use crate::daemon::log::error_chain;

/// Missed changes handed over at a time.
const CHANGES_AT_A_TIME: usize = 1_000;
/// Notifications handed over together at most.
const BATCH: usize = 64;
/// Waits before Change Lists are tried again for a notification. The hub is waiting for its answer meanwhile.
const READ_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Longest wait that a server may ask for meanwhile. After a longer one the hub delivers again.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The way in which notifications are handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    Text,
    Json,
    /// The notifications as they were received.
    Xml,
    /// A command, which runs once for each notification, or for all that are waiting.
    Command {
        command: String,
        is_batch: bool,
        /// Time after which a run of the command is ended.
        timeout: Duration,
    },
}

/// The receiver of one topic.
#[derive(Debug)]
pub struct Receiver {
    pub listening: Arc<Listening>,
    pub topic: Topic,
    pub received: mpsc::Receiver<CallbackRequest>,
    /// Signal that notifications may have been missed: at the start, and when a subscription had lapsed.
    pub check: Arc<Notify>,
    pub memory: Memory,
    /// The changes handed over since the start, to leave out what overlapping notifications repeat.
    pub heard: KeySet,
    pub retry: Retry,
}

/// The next attempt to catch up.
#[derive(Debug, Default)]
pub struct Retry {
    at: Option<Instant>,
    attempts: u32,
    patience: Patience,
    /// The last reason that was reported.
    reason: Option<String>,
    /// True if missed notifications are known that could not be handed over. Later ones wait for them.
    has_pending: bool,
}

/// One notification to hand over.
#[derive(Debug)]
struct HandOver {
    /// None if all of it was handed over before.
    handed: Option<Handed>,
    /// The notification as received; empty for missed changes from Change Lists.
    body: Vec<u8>,
    /// The memory once it is handed over; none in the middle of missed changes.
    after: Option<Memory>,
}

impl Receiver {
    /// Receives until it is stopped. Ends with an error if the output is closed.
    pub async fn run(mut self) -> io::Result<()> {
        let listening = Arc::clone(&self.listening);
        let check = Arc::clone(&self.check);
        loop {
            let retry_at = self.retry.at;
            tokio::select! {
                biased;
                () = stopped(&listening.stop) => return Ok(()),
                () = check.notified() => self.catch_up().await?,
                () = until(retry_at) => self.catch_up().await?,
                received = self.received.recv() => match received {
                    Some(received) => self.take(received).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Takes a received notification, and with a batch all that are waiting. The hub is answered 200 once they were
    /// handed over.
    async fn take(&mut self, first: CallbackRequest) -> io::Result<()> {
        let mut received = vec![first];
        if let Recipient::Command { is_batch: true, .. } = self.listening.recipient {
            while received.len() < BATCH
                && let Ok(more) = self.received.try_recv()
            {
                received.push(more);
            }
        }
        let mut notifications: Vec<ReceivedNotification> = Vec::new();
        for received in received {
            match received {
                // The hub delivers it again, after those that it has delivered before.
                CallbackRequest::Notification(notification) if notification.is_abandoned() => {}
                CallbackRequest::Notification(notification) => notifications.push(notification),
                CallbackRequest::BadSignature { signature } => {
                    self.report(&ListenEvent::BadSignature {
                        topic: self.topic.as_str(),
                        signature: signature.as_deref(),
                    })
                }
            }
        }
        if self.retry.has_pending && !notifications.is_empty() {
            self.catch_up().await?;
            if self.retry.has_pending {
                return Ok(());
            }
        }
        let mut hand_overs = Vec::new();
        let mut memory = self.memory.clone();
        let mut judged = Vec::new();
        for notification in notifications {
            let body = &notification.body;
            match self.judge(&mut memory, body, false, &mut hand_overs).await {
                Ok(()) => judged.push(notification),
                // The hub delivers it again, and what comes after it.
                Err(error) => {
                    self.retry.has_pending = true;
                    self.retry(error.retry_after());
                    break;
                }
            }
        }
        if self.hand_over(hand_overs).await? {
            judged
                .into_iter()
                .for_each(ReceivedNotification::acknowledge);
            if !self.retry.has_pending && self.retry.at.is_none() {
                (self.retry.patience, self.retry.reason) = (Patience::default(), None);
            }
        }
        Ok(())
    }

    /// Reads missed notifications: the content of the topic, and for changes the Change Lists.
    async fn catch_up(&mut self) -> io::Result<()> {
        self.retry.at = None;
        if !self.listening.state.is_kept() {
            return Ok(());
        }
        let mut hand_overs = Vec::new();
        let mut memory = self.memory.clone();
        let body = match content(&self.topic).await {
            Ok(body) => Some(body),
            Err(error) => {
                self.report(&ListenEvent::NotCaughtUp {
                    topic: self.topic.as_str(),
                    reason: &error_chain(&error),
                });
                if error.is_temporary() {
                    self.retry(error.retry_after());
                    return Ok(());
                }
                None
            }
        };
        let body = body.filter(|body| Notification::parse(body).is_ok());
        // Without a notification that follows a gap, no later one has to wait: it begins where the last one ended, or there
        // is a gap, which is read then.
        let is_awaited = body.is_some();
        let read = match body {
            Some(body) => self.judge(&mut memory, &body, true, &mut hand_overs).await,
            // The topic has nothing, or nobody may read it.
            _ if memory.kind == Some(ChannelKind::Change) => {
                self.add_missed(&mut memory, None, &mut hand_overs).await
            }
            _ => Ok(()),
        };
        let is_handed_over = self.hand_over(hand_overs).await?;
        self.retry.has_pending = !is_handed_over || (is_awaited && read.is_err());
        match read {
            Err(error) => self.retry(error.retry_after()),
            Ok(()) if !is_handed_over => self.retry(None),
            Ok(()) => self.retry = Retry::default(),
        }
        Ok(())
    }

    /// Sets the time of the next attempt, which a server may ask for.
    fn retry(&mut self, asked_for: Option<Duration>) {
        self.retry.attempts += 1;
        let backoff = || backoff(self.retry.attempts, fastrand::f64());
        let wait = asked_for.unwrap_or_else(backoff);
        self.retry.at = Some(Instant::now() + wait);
    }

    /// Adds the hand-overs of a notification, given the memory after those before it. It was delivered, or else read from
    /// the topic.
    ///
    /// # Errors
    ///
    /// If changes before it were missed and cannot be read now: handing it over would lose them for good.
    async fn judge(
        &mut self,
        memory: &mut Memory,
        body: &[u8],
        caught_up: bool,
        hand_overs: &mut Vec<HandOver>,
    ) -> Result<(), Unreadable> {
        let Some(notification) = self.notification(body) else {
            return Ok(());
        };
        let mut handed = Handed {
            caught_up,
            ..Handed::new(self.topic.as_str(), notification, body)
        };
        memory.up = handed.up.clone().or(memory.up.take());
        let had_entries = !handed.changes().is_empty();
        let relation = memory.relation(&handed);
        if let Relation::Gap { since } = &relation {
            self.report(&ListenEvent::Gap {
                topic: self.topic.as_str(),
                until: since,
                from: handed.from.as_deref().unwrap_or_default(),
            });
            if self.listening.state.is_kept() && handed.kind == ChannelKind::Change {
                self.add_missed(memory, Some(&handed), hand_overs).await?;
            }
        }
        let is_page = memory.is_exceeded_by(&handed);
        if let Entries::Change(changes) = &mut handed.entries
            && relation != Relation::Repeat
        {
            memory.remove_caught_up(changes);
            if relation == Relation::Overlap {
                let handed_over = memory.handed_over();
                changes.retain(|change| {
                    let is_known = is_page && memory.has_had(change, &handed_over);
                    !is_known && !self.heard.contains(Key::of(change))
                });
            }
        }
        let is_repeat =
            relation == Relation::Repeat || (had_entries && handed.changes().is_empty());
        // One that was read is no repeat: the topic often has the notification that was delivered last.
        if is_repeat && !caught_up {
            self.report(&ListenEvent::Repeat {
                topic: self.topic.as_str(),
                until: handed.until.as_deref(),
            });
        }
        if relation == Relation::Repeat {
            return Ok(());
        }
        *memory = memory.after(&handed);
        hand_overs.push(HandOver {
            handed: (!is_repeat).then_some(handed),
            body: body.to_vec(),
            after: Some(memory.clone()),
        });
        Ok(())
    }

    /// Parses a notification, and reports what of it cannot be read.
    fn notification(&self, body: &[u8]) -> Option<Notification> {
        let topic = self.topic.as_str();
        let notification = match Notification::parse(body) {
            Ok(notification) => notification,
            Err(error) => {
                let reason = &error_chain(&error);
                self.report(&ListenEvent::Invalid { topic, reason });
                return None;
            }
        };
        if let Notification::Change(notification) = &notification
            && notification.skipped > 0
        {
            let entries = notification.skipped;
            self.report(&ListenEvent::Skipped { topic, entries });
        }
        Some(notification)
    }

    /// Adds the hand-overs of missed changes, up to the start of the notification that follows, if one does.
    ///
    /// # Errors
    ///
    /// If they cannot be read now. Documents that can never be read, or are given up, are reported, and what the others
    /// have is added.
    async fn add_missed(
        &mut self,
        memory: &mut Memory,
        following: Option<&Handed>,
        hand_overs: &mut Vec<HandOver>,
    ) -> Result<(), Unreadable> {
        let topic = self.topic.clone();
        let topic = topic.as_str();
        let Some(since) = memory.known_until().map(str::to_owned) else {
            return Ok(());
        };
        let before = following.and_then(|following| following.from.clone());
        let from = before.as_deref().and_then(time_span);
        let following = following.zip(from).map(|(following, (from, _))| Following {
            from,
            keys: following.changes().iter().map(Key::of).collect(),
        });
        let read = self.read_missed(memory, following.as_ref()).await;
        let ReadChanges { missed, unreadable } = match read {
            Ok(read) => read,
            Err(error) => {
                let reason = error_chain(&error);
                // Once, however often it is tried again.
                if self.retry.reason.as_ref() != Some(&reason) {
                    self.report(&ListenEvent::NotCaughtUp {
                        topic,
                        reason: &reason,
                    });
                    self.retry.reason = Some(reason);
                }
                return Err(error);
            }
        };
        for error in &unreadable {
            let reason = &error_chain(error);
            self.report(&ListenEvent::NotCaughtUp { topic, reason });
        }
        let changes = missed.len();
        if changes > 0 || (before.is_some() && unreadable.is_empty()) {
            self.report(&ListenEvent::CaughtUp { topic, changes });
        }
        let until = before.or_else(|| effective(&missed));
        let after = memory.after_missed(&missed);
        hand_overs.extend(in_parts(topic, memory, &missed, (since, until), &after));
        *memory = after;
        Ok(())
    }

    async fn read_missed(
        &mut self,
        memory: &Memory,
        following: Option<&Following>,
    ) -> Result<ReadChanges, Unreadable> {
        let topic = self.topic.as_str();
        let mut waits = READ_AGAIN_AFTER.into_iter();
        loop {
            let error = match missed(topic, memory, following, &mut self.retry.patience).await {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            let asked_for = error.retry_after();
            let wait = waits.next().filter(|_| following.is_some());
            let wait = wait.map(|wait| asked_for.unwrap_or(wait));
            match wait.filter(|wait| *wait <= LONGEST_WAIT) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    /// Hands notifications over, each remembered when it is. Returns false if the command failed, or if it is to stop
    /// before the last one, and an error if the output is closed.
    async fn hand_over(&mut self, hand_overs: Vec<HandOver>) -> io::Result<bool> {
        if let Recipient::Command {
            command,
            is_batch: true,
            timeout,
        } = &self.listening.recipient
        {
            let handed = hand_overs
                .iter()
                .filter_map(|hand_over| hand_over.handed.clone());
            let handed: Vec<Handed> = handed.collect();
            if !handed.is_empty() && !self.execute(command, *timeout, &handed).await {
                return Ok(false);
            }
            hand_overs
                .into_iter()
                .for_each(|hand_over| self.remember(hand_over));
            return Ok(true);
        }
        for hand_over in hand_overs {
            if *self.listening.stop.borrow() {
                return Ok(false);
            }
            if let Some(handed) = &hand_over.handed {
                let is_handed_over = match &self.listening.recipient {
                    Recipient::Command {
                        command, timeout, ..
                    } => {
                        let handed = std::slice::from_ref(handed);
                        self.execute(command, *timeout, handed).await
                    }
                    Recipient::Json => self.print(Text::Line(handed.json()?)).await?,
                    Recipient::Text => self.print(Text::Lines(handed.to_string())).await?,
                    Recipient::Xml => self.print(Text::Document(hand_over.body.clone())).await?,
                };
                if !is_handed_over {
                    return Ok(false);
                }
            }
            self.remember(hand_over);
        }
        Ok(true)
    }

    async fn print(&self, text: Text) -> io::Result<bool> {
        let Listening { reporter, stop, .. } = &*self.listening;
        reporter.print(text, stopped(stop)).await
    }

    async fn execute(&self, command: &str, timeout: Duration, handed: &[Handed]) -> bool {
        let stop = &self.listening.stop;
        if *stop.borrow() {
            return false;
        }
        let outcome = match Run::of(handed) {
            Ok(run) => run.execute(command, timeout, stopped(stop)).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = &outcome {
            self.report(&ListenEvent::CommandFailed {
                topic: self.topic.as_str(),
                reason,
            });
        }
        outcome.is_ok()
    }

    /// Records that a notification was handed over, and saves the memory.
    fn remember(&mut self, hand_over: HandOver) {
        if let Some(handed) = &hand_over.handed {
            self.heard.add(handed.changes().iter().map(Key::of));
            if handed.may_advertise() {
                self.listening.look.notify_one();
            }
        }
        let Some(after) = hand_over.after else { return };
        self.memory = after.clone();
        let topic = self.topic.as_str();
        let saved = self
            .listening
            .state
            .change_subscription(topic, |subscription| subscription.memory = after);
        // It was handed over all the same; after a restart it may be once more.
        if let Err(error) = saved {
            let reason = &error_chain(error.as_ref());
            self.report(&ListenEvent::NotSaved { topic, reason });
        }
    }

    fn report(&self, event: &ListenEvent<'_>) {
        self.listening.reporter.report(event);
    }
}

/// Returns the hand-overs of changes that were missed between two times, a limited number in each; the last one has the
/// memory after all of them.
fn in_parts(
    topic: &str,
    memory: &Memory,
    missed: &[Missed],
    (since, until): (String, Option<String>),
    after: &Memory,
) -> Vec<HandOver> {
    let mut hand_overs = Vec::new();
    let mut from = since;
    let mut parts = missed.chunks(CHANGES_AT_A_TIME).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let end = if is_last {
            until.clone()
        } else {
            effective(part)
        };
        // Our own time, at the first subscription, is no `until`.
        let end = end.or_else(|| memory.until.clone());
        let handed = Handed {
            topic: topic.to_owned(),
            kind: ChannelKind::Change,
            from: Some(from.clone()),
            until: end.clone(),
            up: memory.up.clone(),
            caught_up: true,
            entries: Entries::Change(part.iter().map(|missed| missed.change.clone()).collect()),
            digest: String::new(),
        };
        hand_overs.push(HandOver {
            handed: Some(handed),
            body: Vec::new(),
            after: is_last.then(|| after.clone()),
        });
        from = end.unwrap_or(from);
    }
    hand_overs
}

/// Returns the last time at which one of some changes took effect, if any has one.
fn effective(changes: &[Missed]) -> Option<String> {
    let last = changes.iter().rev().find_map(|missed| missed.effective);
    last.map(|last| last.to_string())
}

/// Returns the memory of a topic to which nobody has subscribed yet: neither its current content was missed, nor what the
/// Change Lists have. If these cannot be read, changes in them without a time may be handed over.
pub async fn baseline(topic: &Topic, kind: Option<ChannelKind>, up: Option<&str>) -> Memory {
    let now = Timestamp::now();
    let mut memory = Memory::new(kind, up);
    let content = content(topic).await.unwrap_or_default();
    if let Ok(notification) = Notification::parse(&content) {
        memory = memory.after(&Handed::new(topic.as_str(), notification, &content));
    }
    if memory.until.is_none() {
        memory.since = Some(format!("{now:.3}"));
    }
    if memory.kind == Some(ChannelKind::Framework) {
        return memory;
    }
    let mut patience = Patience::default();
    match missed(topic.as_str(), &memory, None, &mut patience).await {
        Ok(read) => memory.after_listed(&read.missed),
        Err(_) => memory,
    }
}

/// Retrieves the content of a topic: the last notification, or nothing.
async fn content(topic: &Topic) -> Result<Vec<u8>, RetrieveError> {
    let retriever = Retriever::new(AllowedOrigins::of([topic.as_str()]))?;
    retriever.get(topic.as_str()).await
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
