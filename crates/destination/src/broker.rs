//! The messages of a broker's destinations, each acknowledged once it was printed, or once the command
//! has exited with 0.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use anyhow::Context;
use messaging::client::WAITS;
use messaging::frame::Frame;
use messaging::message::INITIAL;
use messaging::refusal::BrokerFailure;
use messaging::session::{MessageReceiver, MessageSelection};
use messaging::settings::BrokerSettings;
use resourcesync::escape::escaped;
use resourcesync::feed::{FeedEntry, ObjectFeed, change_term};
use resourcesync::receive::Notification;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::command::CommandInput;
use crate::failure::{Failure, FailureKind};
use crate::notification::HandedMessage;
use crate::reporter::{OutputText, Reporter};
use crate::{
    CLOSE_TIMEOUT, ExecOptions, OutputOptions, ignore_broken_pipe, stop_signals,
    wait_for_second_signal, wait_for_stop,
};

/// Properties of messages that a line of JSON has beside what is read of the payload.
const PROPERTIES: [&str; 6] = ["messageId", "format", "kind", "source", "topic", "user"];

/// The content of a message, read as far as it can be.
enum MessageContent {
    Notification(HandedMessage),
    /// The changes of one object.
    Feed(ObjectFeed),
    Other,
}

/// Reads messages until a signal comes, or until the output is closed.
pub async fn run(
    settings: BrokerSettings,
    wanted: MessageSelection,
    output: &OutputOptions,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let stop = stop_signals().context("cannot wait for signals")?;
    let listener = BrokerListener {
        settings,
        wanted,
        output,
        reporter,
        stop: stop.subscribe(),
    };
    tokio::select! {
        ended = listener.read_until_stop() => ended,
        () = wait_for_second_signal(&listener.stop) => Ok(()),
    }
}

/// A reader of a broker that hands changes over.
struct BrokerListener<'a> {
    settings: BrokerSettings,
    wanted: MessageSelection,
    output: &'a OutputOptions,
    reporter: &'a Reporter,
    stop: watch::Receiver<u32>,
}

impl BrokerListener<'_> {
    async fn read_until_stop(&self) -> Result<(), Failure> {
        let destinations = self.wanted.destinations.join(" ");
        let mut was_open = false;
        let mut failures = 0;
        loop {
            let opened = tokio::select! {
                () = wait_for_stop(&self.stop) => return Ok(()),
                opened = MessageReceiver::open(&self.settings, &self.wanted) => opened,
            };
            let error = match opened {
                Ok(mut subscription) => {
                    was_open = true;
                    failures = 0;
                    let name = self.settings.name.as_str();
                    self.reporter.subscribed(&destinations, name, None);
                    match self.hand_over_all(&mut subscription).await {
                        Ok(Some(error)) => error,
                        Ok(None) => {
                            let _ = tokio::time::timeout(CLOSE_TIMEOUT, subscription.close()).await;
                            return Ok(());
                        }
                        Err(error) => return ignore_broken_pipe(Err(error)),
                    }
                }
                Err(error) => error,
            };
            if !was_open {
                return Err(failure(&self.settings, error));
            }
            let wait = retry_wait(failures);
            failures += 1;
            let (reporter, retry) = (self.reporter, Some(wait.as_secs()));
            let reason = format!("{}: {error}", self.settings.name);
            reporter.not_subscribed(&destinations, &reason, None, retry);
            tokio::select! {
                () = wait_for_stop(&self.stop) => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Hands messages over until the connection fails, whose error it returns, or until it is stopped. The other error is
    /// that the output is closed.
    async fn hand_over_all(
        &self,
        subscription: &mut MessageReceiver,
    ) -> io::Result<Option<BrokerFailure>> {
        loop {
            let message = tokio::select! {
                biased;
                () = wait_for_stop(&self.stop) => return Ok(None),
                message = subscription.message() => match message {
                    Ok(message) => message,
                    Err(error) => return Ok(Some(error)),
                },
            };
            if let Some(damage) = &message.damage {
                let destination = message.header("destination").unwrap_or_default();
                self.reporter.invalid(destination, &damage.to_string());
            } else if !self.hand_over(&message).await? {
                return Ok(None);
            }
            subscription.acknowledge(&message);
        }
    }

    /// Hands a message over. Returns false if it was stopped before that.
    async fn hand_over(&self, message: &Frame) -> io::Result<bool> {
        let content = MessageContent::of(message);
        if let Some(command) = &self.output.exec {
            let json = content.json(message);
            let run = CommandInput {
                input: format!("{json}\n"),
                topic: message.header("topic").unwrap_or_default(),
                kind: message.header("kind").unwrap_or_default(),
                from: json["from"].as_str(),
                until: json["until"].as_str(),
            };
            return Ok(self.execute(run, command).await);
        }
        let text = if self.output.json {
            OutputText::Line(content.json(message).to_string())
        } else if self.output.xml {
            OutputText::Document(message.body.clone())
        } else {
            OutputText::Lines(content.text(message))
        };
        self.reporter.print(text, wait_for_stop(&self.stop)).await
    }

    /// Runs the command until it exits with 0: no message after this one is handed over before. Returns false if it was
    /// stopped before that.
    async fn execute(&self, run: CommandInput<'_>, command: &ExecOptions) -> bool {
        for failures in 0.. {
            let outcome = run.clone().execute(command, wait_for_stop(&self.stop));
            let Err(reason) = outcome.await else {
                return true;
            };
            self.reporter.command_failed(run.topic, &reason);
            tokio::select! {
                biased;
                () = wait_for_stop(&self.stop) => return false,
                () = tokio::time::sleep(retry_wait(failures)) => {}
            }
        }
        false
    }
}

impl MessageContent {
    fn of(message: &Frame) -> MessageContent {
        let topic = message.header("topic").unwrap_or_default();
        let content = match message.header("format") {
            Some("resourcesync") => Notification::parse(&message.body).ok().map(|notification| {
                MessageContent::Notification(HandedMessage::new(topic, notification, &message.body))
            }),
            // Other servers' messages may have no properties.
            Some("atom") | None => ObjectFeed::parse(&message.body)
                .ok()
                .map(MessageContent::Feed),
            Some(_) => None,
        };
        content.unwrap_or(MessageContent::Other)
    }

    /// Returns the object of JSON: a notification as of a hub, or the changes of an object, with the message's properties;
    /// or, of any other message, its headers and its text.
    fn json(&self, message: &Frame) -> Value {
        let destination = message.header("destination");
        let read = match self {
            MessageContent::Notification(handed) => json!(handed),
            MessageContent::Feed(feed) => json!(feed),
            MessageContent::Other => {
                // The first counts.
                let headers = message.headers.iter().rev();
                let headers = headers.map(|(name, value)| (name.clone(), json!(value)));
                return json!({
                    "event": "message",
                    "destination": destination,
                    "headers": headers.collect::<Map<String, Value>>(),
                    "body": String::from_utf8_lossy(&message.body),
                });
            }
        };
        let mut object = json!({ "event": "notification", "destination": destination });
        if let (Value::Object(object), Value::Object(read)) = (&mut object, read) {
            object.extend(read);
        }
        for name in PROPERTIES {
            if let Some(value) = message.header(name) {
                object[name] = json!(value);
            }
        }
        if let Some(Ok(seq)) = message.header("seq").map(str::parse::<u64>) {
            object["seq"] = json!(seq);
        }
        if let MessageContent::Feed(feed) = self {
            let changes = feed.items.iter().filter_map(|item| item.change);
            object["changeTypes"] = json!(changes.map(change_term).collect::<BTreeSet<&str>>());
            object["itemCount"] = json!(feed.items.len());
        }
        object["initial"] = json!(message.header(INITIAL) == Some("true"));
        object
    }

    fn text(&self, message: &Frame) -> String {
        match self {
            MessageContent::Notification(handed) => handed.to_string(),
            MessageContent::Feed(feed) => feed.items.iter().map(line).collect(),
            MessageContent::Other => format!("{}\n", String::from_utf8_lossy(&message.body)),
        }
    }
}

/// Returns the line of text for a change of an item. Characters that would end the line are escaped.
fn line(item: &FeedEntry) -> String {
    let change = item.change.map_or("STATE", change_term);
    let uri = escaped(&item.item);
    let content = item.content.as_ref();
    let media_type = content
        .and_then(|content| content.media_type.as_deref())
        .map_or_else(String::new, |it| format!("  ({})", escaped(it)));
    format!("{}  {change:<6}  {uri}{media_type}\n", item.updated)
}

fn retry_wait(failures: usize) -> Duration {
    Duration::from_secs(WAITS[failures.min(WAITS.len() - 1)])
}

/// Returns the failure of the first attempt, which ends the command.
fn failure(settings: &BrokerSettings, error: BrokerFailure) -> Failure {
    let kind = match &error {
        error if error.needs_operator() => FailureKind::Refused,
        BrokerFailure::Version(_) | BrokerFailure::Frame(_) => FailureKind::Other,
        _ => FailureKind::Temporary,
    };
    let (name, address) = (&settings.name, &settings.address);
    let reason = format!("cannot read from broker {name} at {address}: {error}");
    Failure { reason, kind }
}
