//! The notifications of one topic, in order: each is judged, handed over, remembered, and only then acknowledged.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::receive::{Notification, time_span};
use resourcesync::uri::Topic;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use websub::http::lock;
use websub::publisher::reason::error_chain;
use websub::retry::backoff;
use websub::subscriber::SignatureCheck;
use websub::subscriber::retrieve::{AllowedOrigins, RetrieveError, Retriever};

use crate::change_lists::{CatchUpError, FailedAttempts, MissedChanges, missed};
use crate::channels::ListenedChannel;
use crate::command::CommandInput;
use crate::memory::{
    Continuity, KeySet, Memory, MissedChange, NotificationAfterMissed, ReceivedKey,
};
use crate::notification::{HandedEntries, HandedMessage};
use crate::reporter::OutputText;
use crate::{ListenContext, wait_for_stop};

/// Missed changes handed over at a time.
const CHANGES_AT_A_TIME: usize = 1_000;
/// Notifications handed over together at most.
const BATCH: usize = 64;
/// Waits before Change Lists are tried again for a notification. The hub is waiting for its answer meanwhile.
const READ_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Longest wait that a server may ask for meanwhile. After a longer one the hub delivers again.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The receiver of one topic.
#[derive(Debug)]
pub struct TopicReceiver {
    pub listening: Arc<ListenContext>,
    pub topic: Topic,
    pub received: mpsc::Receiver<SignatureCheck>,
    /// Signal that notifications may have been missed: at the start, and when a subscription had lapsed.
    pub check: Arc<Notify>,
    /// The changes handed over since the start, to leave out what overlapping notifications repeat.
    pub heard: KeySet,
    pub retry: CatchUpRetry,
}

/// The next attempt to catch up.
#[derive(Debug, Default)]
pub struct CatchUpRetry {
    at: Option<Instant>,
    attempts: u32,
    patience: FailedAttempts,
    /// The last reason that was reported.
    reason: Option<String>,
    /// True if missed notifications are known that could not be handed over. Later ones wait for them.
    has_pending: bool,
}

/// One notification to hand over.
#[derive(Debug)]
struct HandOver {
    /// None if all of it was handed over before.
    handed: Option<HandedMessage>,
    /// The notification as received; empty for missed changes from Change Lists.
    body: Vec<u8>,
    /// The memory once it is handed over; none in the middle of missed changes.
    after: Option<Memory>,
}

/// What is to be handed over, and the memory after all of it.
#[derive(Debug)]
struct PreparedHandOvers {
    memory: Memory,
    hand_overs: Vec<HandOver>,
}

impl TopicReceiver {
    /// Receives until it is stopped. Ends with an error if the output is closed.
    pub async fn run(mut self) -> io::Result<()> {
        let listening = Arc::clone(&self.listening);
        let check = Arc::clone(&self.check);
        let limit = if listening.is_batch() { BATCH } else { 1 };
        loop {
            let mut requests = Vec::new();
            let retry_at = self.retry.at;
            tokio::select! {
                biased;
                () = wait_for_stop(&listening.stop) => return Ok(()),
                () = check.notified() => self.catch_up().await?,
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                    self.catch_up().await?;
                }
                _ = self.received.recv_many(&mut requests, limit) => {
                    if requests.is_empty() {
                        return Ok(());
                    }
                    self.take(requests).await?;
                }
            }
        }
    }

    /// Returns nothing to hand over, with the memory of what was.
    fn no_hand_overs(&self) -> PreparedHandOvers {
        let saved = lock(&self.listening.state.saved);
        let saved = saved.subscriptions.get(&self.topic);
        PreparedHandOvers {
            memory: saved.map_or_else(Memory::default, |saved| saved.memory.clone()),
            hand_overs: Vec::new(),
        }
    }

    /// Takes received notifications. The hub is answered 200 once they were handed over.
    async fn take(&mut self, requests: Vec<SignatureCheck>) -> io::Result<()> {
        let mut notifications = Vec::new();
        for request in requests {
            match request {
                // The hub delivers it again, after those that it has delivered before.
                SignatureCheck::Notification(notification) if notification.answer.is_closed() => {}
                SignatureCheck::Notification(notification) => notifications.push(notification),
                SignatureCheck::BadSignature { signature } => {
                    let reporter = &self.listening.reporter;
                    reporter.bad_signature(self.topic.as_str(), signature.as_deref());
                }
            }
        }
        if self.retry.has_pending && !notifications.is_empty() {
            self.catch_up().await?;
            if self.retry.has_pending {
                return Ok(());
            }
        }
        let mut judged = self.no_hand_overs();
        let mut answered = Vec::new();
        for notification in notifications {
            let added = self.add_hand_overs(&mut judged, &notification.body, false);
            // The hub delivers it again, and what comes after it.
            if let Err(error) = added.await {
                self.retry.has_pending = true;
                self.schedule_retry(error.retry_after());
                break;
            }
            answered.push(notification);
        }
        if self.hand_over(judged.hand_overs).await? {
            for notification in answered {
                notification.acknowledge();
            }
            if !self.retry.has_pending && self.retry.at.is_none() {
                (self.retry.patience, self.retry.reason) = (FailedAttempts::default(), None);
            }
        }
        Ok(())
    }

    /// Reads missed notifications: the content of the topic, and for changes the Change Lists.
    async fn catch_up(&mut self) -> io::Result<()> {
        self.retry.at = None;
        if self.listening.state.path.is_none() {
            return Ok(());
        }
        let body = topic_content(&self.topic).await;
        if let Err(error) = &body {
            let reporter = &self.listening.reporter;
            reporter.not_caught_up(self.topic.as_str(), &error_chain(error));
            if error.is_temporary() {
                self.schedule_retry(error.retry_after());
                return Ok(());
            }
        }
        let body = body.ok().filter(|body| Notification::parse(body).is_ok());
        // Without a notification that follows a gap, no later one has to wait: it begins where the last one ended, or there
        // is a gap, which is read then.
        let is_awaited = body.is_some();
        let mut judged = self.no_hand_overs();
        let read = match body {
            Some(body) => self.add_hand_overs(&mut judged, &body, true).await,
            // The topic has nothing, or nobody may read it.
            None if judged.memory.kind == Some(ChannelKind::Change) => {
                self.add_missed(&mut judged, None).await
            }
            None => Ok(()),
        };
        let is_handed_over = self.hand_over(judged.hand_overs).await?;
        self.retry.has_pending = !is_handed_over || (is_awaited && read.is_err());
        match read {
            Err(error) => self.schedule_retry(error.retry_after()),
            Ok(()) if !is_handed_over => self.schedule_retry(None),
            Ok(()) => self.retry = CatchUpRetry::default(),
        }
        Ok(())
    }

    /// Sets the time of the next attempt, which a server may ask for.
    fn schedule_retry(&mut self, asked_for: Option<Duration>) {
        self.retry.attempts += 1;
        let backoff = || backoff(self.retry.attempts, fastrand::f64());
        let wait = asked_for.unwrap_or_else(backoff);
        self.retry.at = Some(Instant::now() + wait);
    }

    /// Adds the hand-overs of a notification after those before it. It was delivered, or else read from the topic.
    ///
    /// # Errors
    ///
    /// If changes before it were missed and cannot be read now: handing it over would lose them for good.
    async fn add_hand_overs(
        &mut self,
        judged: &mut PreparedHandOvers,
        body: &[u8],
        caught_up: bool,
    ) -> Result<(), CatchUpError> {
        let listening = Arc::clone(&self.listening);
        let (topic, reporter) = (self.topic.clone(), &listening.reporter);
        let topic = topic.as_str();
        let notification = match Notification::parse(body) {
            Ok(notification) => notification,
            Err(error) => {
                reporter.invalid(topic, &error_chain(&error));
                return Ok(());
            }
        };
        if let Notification::Change(changes) = &notification
            && changes.skipped > 0
        {
            reporter.skipped(topic, changes.skipped);
        }
        let mut handed = HandedMessage::new(topic, notification, body);
        handed.caught_up = caught_up;
        judged.memory.up = handed.up.clone().or(judged.memory.up.take());
        let had_entries = !handed.changes().is_empty();
        let relation = judged.memory.relation(&handed);
        if relation == Continuity::Gap {
            let last = judged.memory.known_until().unwrap_or_default();
            reporter.gap(topic, last, handed.from.as_deref().unwrap_or_default());
            if listening.state.path.is_some() && handed.kind == ChannelKind::Change {
                self.add_missed(judged, Some(&handed)).await?;
            }
        }
        let memory = &mut judged.memory;
        let is_page = memory.is_extended_by(&handed);
        if let HandedEntries::Change(changes) = &mut handed.entries
            && relation != Continuity::Repeat
        {
            memory.remove_caught_up(changes);
            if relation == Continuity::Overlap {
                let handed_over = memory.handed_over_keys();
                changes.retain(|change| {
                    let is_known = is_page && memory.has_had(change, &handed_over);
                    !is_known && !self.heard.keys.contains(&ReceivedKey::of(change))
                });
            }
        }
        let is_repeat =
            relation == Continuity::Repeat || (had_entries && handed.changes().is_empty());
        // One that was read is no repeat: the topic often has the notification that was delivered last.
        if is_repeat && !caught_up {
            reporter.repeated(topic, handed.until.as_deref());
        }
        if relation != Continuity::Repeat {
            *memory = std::mem::take(memory).after(&handed);
            judged.hand_overs.push(HandOver {
                handed: (!is_repeat).then_some(handed),
                body: body.to_vec(),
                after: Some(memory.clone()),
            });
        }
        Ok(())
    }

    /// Adds the hand-overs of missed changes, up to the start of the notification that follows, if one does.
    ///
    /// # Errors
    ///
    /// If they cannot be read now. Documents that can never be read, or are given up, are reported, and what the others
    /// have is added.
    async fn add_missed(
        &mut self,
        judged: &mut PreparedHandOvers,
        following: Option<&HandedMessage>,
    ) -> Result<(), CatchUpError> {
        if judged.memory.known_until().is_none() {
            return Ok(());
        }
        let before = following.and_then(|following| following.from.clone());
        let from = before.as_deref().and_then(time_span);
        let next = |(following, (from, _)): (&HandedMessage, _)| NotificationAfterMissed {
            from,
            keys: following.changes().iter().map(ReceivedKey::of).collect(),
        };
        let following = following.zip(from).map(next);
        let read = self.read_missed(&judged.memory, following.as_ref()).await;
        let (topic, reporter) = (self.topic.as_str(), &self.listening.reporter);
        let MissedChanges { missed, unreadable } = match read {
            Ok(read) => read,
            Err(error) => {
                let reason = error_chain(&error);
                // Once, however often it is tried again.
                if self.retry.reason.as_ref() != Some(&reason) {
                    reporter.not_caught_up(topic, &reason);
                    self.retry.reason = Some(reason);
                }
                return Err(error);
            }
        };
        for error in &unreadable {
            reporter.not_caught_up(topic, &error_chain(error));
        }
        if !missed.is_empty() || (before.is_some() && unreadable.is_empty()) {
            reporter.caught_up(topic, missed.len());
        }
        judged.add_missed(topic, &missed, before);
        Ok(())
    }

    async fn read_missed(
        &mut self,
        memory: &Memory,
        following: Option<&NotificationAfterMissed>,
    ) -> Result<MissedChanges, CatchUpError> {
        let topic = self.topic.as_str();
        let mut waits = READ_AGAIN_AFTER.iter().filter(|_| following.is_some());
        loop {
            let read = missed(topic, memory, following, &mut self.retry.patience).await;
            let (Err(error), Some(wait)) = (&read, waits.next()) else {
                return read;
            };
            let wait = error.retry_after().unwrap_or(*wait);
            if wait > LONGEST_WAIT {
                return read;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Hands notifications over, each remembered when it is, or with a batch all together. Returns false if the command
    /// failed, or if it is to stop before the last one, and an error if the output is closed.
    async fn hand_over(&mut self, mut hand_overs: Vec<HandOver>) -> io::Result<bool> {
        let together = self.listening.is_batch().then_some(usize::MAX);
        for part in hand_overs.chunks_mut(together.unwrap_or(1)) {
            if !self.hand_over_together(part).await? {
                return Ok(false);
            }
            for hand_over in part {
                self.remember(hand_over);
            }
        }
        Ok(true)
    }

    /// Hands notifications over together; with anything but a command, one at a time.
    async fn hand_over_together(&self, part: &[HandOver]) -> io::Result<bool> {
        let listening = &*self.listening;
        let (output, stop) = (&listening.output, &listening.stop);
        let all = part.iter().filter_map(|one| one.handed.as_ref());
        let (Some(first), Some(last)) = (all.clone().next(), all.clone().next_back()) else {
            return Ok(true);
        };
        if *stop.borrow() > 0 {
            return Ok(false);
        }
        if let Some(command) = &output.exec {
            let mut input = String::new();
            for handed in all {
                input += &serde_json::to_string(handed)?;
                input.push('\n');
            }
            let run = CommandInput {
                input,
                topic: &last.topic,
                kind: last.kind.as_str(),
                from: first.from.as_deref(),
                until: last.until.as_deref(),
            };
            let outcome = run.execute(command, wait_for_stop(stop)).await;
            if let Err(reason) = &outcome {
                listening.reporter.command_failed(&last.topic, reason);
            }
            return Ok(outcome.is_ok());
        }
        let text = if output.json {
            OutputText::Line(serde_json::to_string(first)?)
        } else if output.xml {
            OutputText::Document(part[0].body.clone())
        } else {
            OutputText::Lines(first.to_string())
        };
        listening.reporter.print(text, wait_for_stop(stop)).await
    }

    /// Records that a notification was handed over, and saves the memory.
    fn remember(&mut self, hand_over: &mut HandOver) {
        let listening = &*self.listening;
        if let Some(handed) = &hand_over.handed {
            self.heard.add(handed.changes().iter().map(ReceivedKey::of));
            if handed.may_advertise() {
                listening.look.notify_one();
            }
        }
        let Some(after) = hand_over.after.take() else {
            return;
        };
        // It was handed over all the same; after a restart it may be once more.
        let state = &listening.state;
        if let Err(error) = state.update(&self.topic, |saved| saved.memory = after) {
            listening.reporter.not_saved(self.topic.as_str(), &error);
        }
    }
}

impl PreparedHandOvers {
    /// Adds the hand-overs of changes that were missed since the last notification, up to `until` or the last of them, a
    /// limited number in each; the last one has the memory after all of them.
    fn add_missed(&mut self, topic: &str, missed: &[MissedChange], until: Option<String>) {
        let after = self.memory.clone().after_missed(missed);
        let mut from = self.memory.known_until().map(str::to_owned);
        let mut parts = missed.chunks(CHANGES_AT_A_TIME);
        while let Some(part) = parts.next() {
            let is_last = parts.len() == 0;
            let end = match &until {
                _ if !is_last => last_effective(part),
                None => last_effective(missed),
                until => until.clone(),
            };
            // Our own time, at the first subscription, is no `until`.
            let end = end.or(self.memory.until.clone());
            let changes = part.iter().map(|missed| missed.change.clone()).collect();
            let handed = HandedMessage {
                topic: topic.to_owned(),
                kind: ChannelKind::Change,
                from: from.clone(),
                until: end.clone(),
                up: self.memory.up.clone(),
                caught_up: true,
                entries: HandedEntries::Change(changes),
                digest: String::new(),
            };
            self.hand_overs.push(HandOver {
                handed: Some(handed),
                body: Vec::new(),
                after: is_last.then(|| after.clone()),
            });
            from = end.or(from);
        }
        self.memory = after;
    }
}

/// Returns the last time at which one of some changes took effect, if any has one.
fn last_effective(changes: &[MissedChange]) -> Option<String> {
    let last = changes.iter().rev().find_map(|missed| missed.effective);
    last.map(|last| last.to_string())
}

/// Returns the memory of a topic to which nobody has subscribed yet: neither its current content was missed, nor what the
/// Change Lists have. If these cannot be read, changes in them without a time may be handed over.
pub async fn initial_memory(channel: &ListenedChannel) -> Memory {
    let now = Timestamp::now();
    let topic = &channel.topic;
    let mut memory = Memory::new(channel.kind, channel.capability_list.as_deref());
    let content = topic_content(topic).await.unwrap_or_default();
    if let Ok(notification) = Notification::parse(&content) {
        memory = memory.after(&HandedMessage::new(topic.as_str(), notification, &content));
    }
    if memory.until.is_none() {
        memory.since = Some(format!("{now:.3}"));
    }
    if memory.kind == Some(ChannelKind::Framework) {
        return memory;
    }
    let mut patience = FailedAttempts::default();
    match missed(topic.as_str(), &memory, None, &mut patience).await {
        Ok(read) => memory.with_listed_before(&read.missed),
        Err(_) => memory,
    }
}

/// Retrieves the content of a topic: the last notification, or nothing.
async fn topic_content(topic: &Topic) -> Result<Vec<u8>, RetrieveError> {
    let retriever = Retriever::new(AllowedOrigins::of([topic.as_str()]))?;
    retriever.get(topic.as_str()).await
}
