//! Reports of events and notifications, printed on a thread of its own: a reader that pauses delays neither signals nor
//! subscriptions.

use std::io::{self, IsTerminal, Write};

use resourcesync::escape::{escaped, escaped_lines};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use websub::publisher::reason::error_chain;

use crate::STOP_PRINTING_AFTER;

/// Texts that wait at most. Further events are dropped, and further notifications wait to be handed over.
const WAITING: usize = 1_024;

/// A text to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputText {
    /// A line for programs, on standard output.
    Line(String),
    /// Lines for people, on standard output.
    Lines(String),
    /// A document of others, on standard output.
    Document(Vec<u8>),
    /// A message on standard error.
    Message(String),
    /// A line of its own on standard error, whose parts are escaped.
    Announcement(String),
}

/// A text, with the receiver of the outcome if it is awaited.
type Job = (OutputText, Option<oneshot::Sender<io::Result<()>>>);

/// Prints texts in their order, and reports events: as lines of JSON on standard output, or as sentences on standard
/// error.
#[derive(Debug, Clone)]
pub struct Reporter {
    pub is_json: bool,
    jobs: mpsc::Sender<Job>,
}

impl Reporter {
    /// Starts the thread, which ends with the program.
    pub fn start(is_json: bool) -> io::Result<Reporter> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING);
        let print_all = move || {
            while let Some((text, outcome)) = waiting.blocking_recv() {
                let printed = text.print();
                if let Some(outcome) = outcome {
                    // Fails if nobody waits any more.
                    let _ = outcome.send(printed);
                }
            }
        };
        let thread = std::thread::Builder::new().name("print".to_owned());
        thread.spawn(print_all)?;
        Ok(Reporter { is_json, jobs })
    }

    /// Prints a text some time. It is dropped if too many are waiting.
    pub fn print_later(&self, text: OutputText) {
        let _ = self.jobs.try_send((text, None));
    }

    /// Prints a text and waits until its reader has it. Returns false if `stop` comes before that.
    ///
    /// # Errors
    ///
    /// If it cannot be printed, because the reader has closed the output for example.
    pub async fn print(
        &self,
        text: OutputText,
        stop: impl Future<Output = ()>,
    ) -> io::Result<bool> {
        let stopped = async {
            stop.await;
            sleep(STOP_PRINTING_AFTER).await;
        };
        tokio::select! {
            biased;
            printed = self.print_and_wait(text) => printed.map(|()| true),
            () = stopped => Ok(false),
        }
    }

    /// Waits until all is printed, but no longer than the time for that.
    pub async fn finish(&self) {
        let nothing = OutputText::Lines(String::new());
        let _ = tokio::time::timeout(STOP_PRINTING_AFTER, self.print_and_wait(nothing)).await;
    }

    async fn print_and_wait(&self, text: OutputText) -> io::Result<()> {
        let (outcome, printed) = oneshot::channel();
        // Otherwise the outcome is dropped.
        let _ = self.jobs.send((text, Some(outcome))).await;
        let ended = |_| Err(io::Error::other("the thread that prints has ended"));
        printed.await.unwrap_or_else(ended)
    }

    /// Reports a subscription that a hub has verified, or a broker has accepted. The lease is none if it is not stated.
    pub fn subscribed(&self, topic: &str, hub: &str, lease_seconds: Option<u64>) {
        let (shown, by) = (escaped(topic), escaped(hub));
        // Awaited by scripts, as it was before there were others.
        let text =
            OutputText::Announcement(format!("listening to {shown} by {by}; Ctrl-C ends it"));
        let event = json!({
            "event": "subscribed", "topic": topic, "hub": hub, "lease_seconds": lease_seconds
        });
        self.report_text(event, text);
    }

    /// Reports a later verification, which is expected: as JSON only.
    pub fn renewed(&self, topic: &str, hub: &str, lease_seconds: Option<u64>) {
        if self.is_json {
            let event = json!({
                "event": "renewed", "topic": topic, "hub": hub, "lease_seconds": lease_seconds
            });
            self.report(event, String::new());
        }
    }

    /// Reports that the hub denied the subscription, now or long after it had verified it.
    pub fn denied(&self, topic: &str, hub: &str, reason: &str) {
        let sentence = format!("hub {hub} denies the subscription to {topic}: {reason}");
        let event = json!({ "event": "denied", "topic": topic, "hub": hub, "reason": reason });
        self.report(event, sentence);
    }

    /// Reports a subscription that could not be made or renewed; it is tried again, unless no time is given. The lease is
    /// the rest of it; none if there is no subscription.
    pub fn not_subscribed(
        &self,
        topic: &str,
        reason: &str,
        lease_seconds: Option<u64>,
        retry_seconds: Option<u64>,
    ) {
        let what = match lease_seconds {
            Some(rest) => {
                format!("cannot renew the subscription to {topic}, which lasts {rest} s")
            }
            None => format!("cannot subscribe to {topic}"),
        };
        let retry = retry_seconds.map(|wait| format!(", retrying in {wait} s"));
        let sentence = format!("{what}{}: {reason}", retry.unwrap_or_default());
        let event = json!({
            "event": "not_subscribed", "topic": topic, "reason": reason,
            "lease_seconds": lease_seconds, "retry_seconds": retry_seconds
        });
        self.report(event, sentence);
    }

    /// Reports a URL that was given, or that a document names, and that leads to no channel now. Subscriptions that it
    /// led to go on.
    pub fn no_channel(&self, url: &str, reason: &str, retry_seconds: Option<u64>) {
        let retry = retry_seconds
            .map(|wait| format!(", looking again in {wait} s"))
            .unwrap_or_default();
        let sentence = format!("no channel found at {url}{retry}; subscriptions go on: {reason}");
        let event = json!({
            "event": "no_channel", "topic": url, "reason": reason, "retry_seconds": retry_seconds
        });
        self.report(event, sentence);
    }

    /// Reports that notifications are missing between the last `until` and this `from`.
    pub fn gap(&self, topic: &str, until: &str, from: &str) {
        let sentence = format!("gap: notifications of {topic} from {until} to {from} are missing");
        let event = json!({ "event": "gap", "topic": topic, "until": until, "from": from });
        self.report(event, sentence);
    }

    /// Reports that missed changes could not be read.
    pub fn not_caught_up(&self, topic: &str, reason: &str) {
        let sentence = format!("cannot catch up with {topic}: {reason}");
        let event = json!({ "event": "not_caught_up", "topic": topic, "reason": reason });
        self.report(event, sentence);
    }

    /// Reports that missed changes were read from Change Lists.
    pub fn caught_up(&self, topic: &str, changes: usize) {
        let noun = if changes == 1 { "change" } else { "changes" };
        let sentence =
            format!("caught up with {topic}: {changes} missed {noun} in its Change Lists");
        let event = json!({ "event": "caught_up", "topic": topic, "changes": changes });
        self.report(event, sentence);
    }

    /// Reports a notification that was delivered again.
    pub fn repeated(&self, topic: &str, until: Option<&str>) {
        let which = match until {
            Some(until) => format!("the notification of {topic} until {until}"),
            None => format!("a notification of {topic}"),
        };
        let sentence = format!("repeat: {which} was delivered again");
        let event = json!({ "event": "repeat", "topic": topic, "until": until });
        self.report(event, sentence);
    }

    /// Reports a notification without the right signature. Of the signature, the method and the first digits are shown.
    pub fn bad_signature(&self, topic: &str, signature: Option<&str>) {
        let why = match signature {
            Some(signature) => {
                let mut short: String = signature.chars().take(16).collect();
                if short.len() < signature.len() {
                    short.push('…');
                }
                format!("its signature {short} is wrong, or not one of sha256, sha384 and sha512")
            }
            None => "it is not signed".to_owned(),
        };
        let sentence = format!("a notification of {topic} is ignored: {why}");
        let event = json!({ "event": "bad_signature", "topic": topic, "signature": signature });
        self.report(event, sentence);
    }

    /// Reports a delivery that is no notification.
    pub fn invalid(&self, topic: &str, reason: &str) {
        let sentence = format!("the content delivered for {topic} is no notification: {reason}");
        let event = json!({ "event": "invalid", "topic": topic, "reason": reason });
        self.report(event, sentence);
    }

    /// Reports entries of a change notification without `loc` or `change`, which were left out.
    pub fn skipped(&self, topic: &str, entries: usize) {
        let noun = if entries == 1 { "entry" } else { "entries" };
        let sentence =
            format!("a notification of {topic} has {entries} {noun} without loc or change");
        let event = json!({ "event": "skipped", "topic": topic, "entries": entries });
        self.report(event, sentence);
    }

    /// Reports that the command failed, so that the notification has to be delivered again.
    pub fn command_failed(&self, topic: &str, reason: &str) {
        let sentence = format!("the command failed for a notification of {topic}: {reason}");
        let event = json!({ "event": "command_failed", "topic": topic, "reason": reason });
        self.report(event, sentence);
    }

    /// Reports that the state file could not be written.
    pub fn not_saved(&self, topic: &str, error: &anyhow::Error) {
        let reason = error_chain(error.as_ref());
        let sentence = format!("cannot save the state of {topic}: {reason}");
        let event = json!({ "event": "not_saved", "topic": topic, "reason": reason });
        self.report(event, sentence);
    }

    fn report(&self, event: Value, sentence: String) {
        self.report_text(event, OutputText::Message(sentence));
    }

    /// Reports an event. A closed standard output is noticed when a notification is printed.
    fn report_text(&self, event: Value, text: OutputText) {
        let line = (self.is_json).then(|| OutputText::Line(event.to_string()));
        self.print_later(line.unwrap_or(text));
    }
}

impl OutputText {
    fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            OutputText::Message(text) => {
                return writeln!(io::stderr(), "rsnotify: {}", escaped(text));
            }
            OutputText::Announcement(text) => return writeln!(io::stderr(), "{text}"),
            OutputText::Line(text) => out.write_all(format!("{text}\n").as_bytes())?,
            // It cannot control a terminal, and JSON stays as it is.
            OutputText::Lines(text) => out.write_all(escaped_lines(text).as_bytes())?,
            OutputText::Document(text) if out.is_terminal() => {
                let text = String::from_utf8_lossy(text);
                out.write_all(format!("{}\n", escaped_lines(&text)).as_bytes())?;
            }
            OutputText::Document(text) => {
                out.write_all(text)?;
                writeln!(out)?;
            }
        }
        out.flush()
    }
}
