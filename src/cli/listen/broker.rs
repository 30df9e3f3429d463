//! `listen --broker`: the messages of a broker's destinations, each acknowledged once it was printed, or once the command
//! has exited with 0.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use resourcesync::escape::escaped;
use resourcesync::receive::Notification;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::broker::feeds::message::INITIAL;
use crate::broker::frame::Frame;
use crate::broker::refusal::BrokerError;
use crate::broker::settings::BrokerSettings;
use crate::broker::subscribe::{BrokerSubscription, MessageSelection};
use crate::cli::Exit;
use crate::cli::listen::command::Run;
use crate::cli::listen::exit::Failure;
use crate::cli::listen::notification::Handed;
use crate::cli::listen::printer::{Reporter, Text};
use crate::cli::listen::receiver::Recipient;
use crate::cli::listen::report::ListenEvent;
use crate::cli::listen::{CLOSE_TIMEOUT, StopSignals, of_output, recipient, stopped};
use crate::cli::options::ListenOptions;
use crate::cli::{WAITS, no_broker};
use crate::config::Config;
use resourcesync::feed::{Feed, ItemChange, change_term};

/// Properties of messages that a line of JSON has beside what is read of the payload.
const PROPERTIES: [&str; 6] = ["messageId", "format", "kind", "source", "topic", "user"];

/// A message, read as far as it can be.
struct ReceivedMessage {
    message: Frame,
    content: MessageContent,
}

/// The content of a message.
enum MessageContent {
    Notification(Handed),
    /// The changes of one object.
    Feed(Feed),
    Other,
}

/// Reads messages until a signal comes, or until the output is closed.
pub async fn run(
    name: &str,
    file: Option<&Path>,
    options: &ListenOptions,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let mut signals = StopSignals::new().context("cannot wait for signals")?;
    let (settings, wanted) = wanted(name, file, options)?;
    let (stop, is_stopped) = watch::channel(false);
    let listener = BrokerListener {
        settings,
        wanted,
        recipient: recipient(options),
        reporter,
        stop: is_stopped,
    };
    let mut reading = pin!(listener.read());
    tokio::select! {
        ended = &mut reading => return ended,
        () = signals.next() => {}
    }
    // An error means that it has ended.
    let _ = stop.send(true);
    tokio::select! {
        ended = reading => ended,
        // A second one does not wait for a command that is running: dropped, it is killed.
        () = signals.next() => Ok(()),
    }
}

/// Returns the broker of the configuration, and the requested subscription.
fn wanted(
    name: &str,
    file: Option<&Path>,
    options: &ListenOptions,
) -> Result<(BrokerSettings, MessageSelection), Failure> {
    let wrong = |error| Failure {
        error,
        exit: Exit::Configuration,
    };
    let config = Config::load_brokers(file).map_err(|error| wrong(error.into()))?;
    let all = config
        .broker_settings()
        .map_err(|error| wrong(error.into()))?;
    let mut all = config.brokers.iter().zip(all);
    let found = all.find(|(broker, _)| broker.name.as_str() == name);
    let (broker, settings) = found.ok_or_else(|| no_broker(&config, name))?;
    let sources = broker.sources.iter().flatten();
    let mut sources: Vec<&str> = sources.map(String::as_str).collect();
    if sources.is_empty() {
        let all = config.sources.iter();
        sources = all.map(|source| source.name.as_str()).collect();
    }
    // Without a source in its name, a destination is that of all.
    if sources.is_empty() && !settings.destination.contains("{source}") {
        sources.push("");
    }
    let mut destinations: Vec<String> = match &options.destination {
        Some(destination) => vec![destination.clone()],
        None => sources
            .iter()
            .map(|source| settings.destination_of(source))
            .collect(),
    };
    destinations.dedup();
    if destinations.is_empty() {
        let (name, destination) = (&settings.name, &settings.destination);
        let text = format!(
            "the destination of {name} is {destination}, and there is no [[source]]: name it with --destination, or the \
             sources in [[broker]]"
        );
        return Err(wrong(anyhow::anyhow!(text)));
    }
    let wanted = MessageSelection {
        destinations,
        selector: options.selector.clone(),
        durable: options.durable.clone(),
        leaves_damaged: options.strict,
    };
    Ok((settings, wanted))
}

/// A reader of a broker that hands changes over.
struct BrokerListener<'a> {
    settings: BrokerSettings,
    wanted: MessageSelection,
    recipient: Recipient,
    reporter: &'a Reporter,
    stop: watch::Receiver<bool>,
}

impl BrokerListener<'_> {
    async fn read(&self) -> Result<(), Failure> {
        let destinations = self.wanted.destinations.join(" ");
        let mut was_open = false;
        let mut failures = 0;
        loop {
            let opened = tokio::select! {
                () = stopped(&self.stop) => return Ok(()),
                opened = BrokerSubscription::open(&self.settings, &self.wanted) => opened,
            };
            let error = match opened {
                Ok(mut subscription) => {
                    was_open = true;
                    failures = 0;
                    self.reporter.report(&ListenEvent::Subscribed {
                        topic: &destinations,
                        hub: self.settings.name.as_str(),
                        lease_seconds: None,
                    });
                    let received = self.receive(&mut subscription).await;
                    match received {
                        Ok(Some(error)) => error,
                        Ok(None) => {
                            let _ = tokio::time::timeout(CLOSE_TIMEOUT, subscription.close()).await;
                            return Ok(());
                        }
                        Err(error) => return of_output(Err(error)),
                    }
                }
                Err(error) => error,
            };
            if !was_open {
                return Err(failure(&self.settings, error));
            }
            let wait = wait(failures);
            failures += 1;
            self.reporter.report(&ListenEvent::NotSubscribed {
                topic: &destinations,
                reason: &format!("{}: {error}", self.settings.name),
                lease_seconds: None,
                retry_seconds: Some(wait.as_secs()),
            });
            tokio::select! {
                () = stopped(&self.stop) => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Hands messages over until the connection fails, whose error it returns, or until it is stopped. The other error is
    /// that the output is closed.
    async fn receive(
        &self,
        subscription: &mut BrokerSubscription,
    ) -> io::Result<Option<BrokerError>> {
        loop {
            let message = tokio::select! {
                biased;
                () = stopped(&self.stop) => return Ok(None),
                message = subscription.message() => match message {
                    Ok(message) => message,
                    Err(error) => return Ok(Some(error)),
                },
            };
            if let Some(damage) = &message.damage {
                self.reporter.report(&ListenEvent::Invalid {
                    topic: message.header("destination").unwrap_or_default(),
                    reason: &damage.to_string(),
                });
                subscription.acknowledge(&message);
                continue;
            }
            let received = ReceivedMessage::new(message);
            let text = match &self.recipient {
                Recipient::Command {
                    command, timeout, ..
                } => {
                    if !self.execute(&received, command, *timeout).await {
                        return Ok(None);
                    }
                    subscription.acknowledge(&received.message);
                    continue;
                }
                Recipient::Json => Text::Line(received.json().to_string()),
                Recipient::Text => Text::Lines(received.text()),
                Recipient::Xml => Text::Document(received.message.body.clone()),
            };
            if !self.reporter.print(text, stopped(&self.stop)).await? {
                return Ok(None);
            }
            subscription.acknowledge(&received.message);
        }
    }

    /// Runs the command until it exits with 0: no message after this one is handed over before. Returns false if it was
    /// stopped before that.
    async fn execute(&self, received: &ReceivedMessage, command: &str, timeout: Duration) -> bool {
        let header = |name| received.message.header(name).unwrap_or_default();
        let (topic, kind) = (header("topic"), header("kind"));
        let handed = match &received.content {
            MessageContent::Notification(handed) => Some(handed),
            MessageContent::Feed(_) | MessageContent::Other => None,
        };
        for failures in 0.. {
            let run = Run::new(
                format!("{}\n", received.json()),
                (topic, kind),
                (handed, handed),
            );
            let Err(reason) = run.execute(command, timeout, stopped(&self.stop)).await else {
                return true;
            };
            self.reporter.report(&ListenEvent::CommandFailed {
                topic,
                reason: &reason,
            });
            tokio::select! {
                biased;
                () = stopped(&self.stop) => return false,
                () = tokio::time::sleep(wait(failures)) => {}
            }
        }
        false
    }
}

impl ReceivedMessage {
    fn new(message: Frame) -> ReceivedMessage {
        let topic = message.header("topic").unwrap_or_default();
        let content = match message.header("format") {
            Some("resourcesync") => Notification::parse(&message.body).ok().map(|notification| {
                MessageContent::Notification(Handed::new(topic, notification, &message.body))
            }),
            // Other servers' messages may have no properties.
            Some("atom") | None => Feed::parse(&message.body).ok().map(MessageContent::Feed),
            Some(_) => None,
        };
        ReceivedMessage {
            message,
            content: content.unwrap_or(MessageContent::Other),
        }
    }

    /// Returns the object of JSON: a notification as of a hub, or the changes of an object, with the message's properties;
    /// or, of any other message, its headers and its text.
    fn json(&self) -> Value {
        let message = &self.message;
        let read = match &self.content {
            MessageContent::Notification(handed) => serde_json::to_value(handed),
            MessageContent::Feed(feed) => serde_json::to_value(feed),
            MessageContent::Other => {
                // The first counts.
                let headers = message.headers.iter().rev();
                let headers = headers.map(|(name, value)| (name.clone(), json!(value)));
                return json!({
                    "event": "message",
                    "destination": message.header("destination"),
                    "headers": headers.collect::<Map<String, Value>>(),
                    "body": String::from_utf8_lossy(&message.body),
                });
            }
        };
        let mut object = Map::new();
        object.insert("event".to_owned(), json!("notification"));
        object.insert(
            "destination".to_owned(),
            json!(message.header("destination")),
        );
        if let Ok(Value::Object(read)) = read {
            object.extend(read);
        }
        for name in PROPERTIES {
            if let Some(value) = message.header(name) {
                object.insert(name.to_owned(), json!(value));
            }
        }
        let seq = message
            .header("seq")
            .and_then(|seq| seq.parse::<u64>().ok());
        if let Some(seq) = seq {
            object.insert("seq".to_owned(), json!(seq));
        }
        if let MessageContent::Feed(feed) = &self.content {
            let types: BTreeSet<&str> = feed
                .items
                .iter()
                .filter_map(|item| item.change.map(change_term))
                .collect();
            object.insert("changeTypes".to_owned(), json!(types));
            object.insert("itemCount".to_owned(), json!(feed.items.len()));
        }
        let is_initial = message.header(INITIAL) == Some("true");
        object.insert("initial".to_owned(), json!(is_initial));
        Value::Object(object)
    }

    fn text(&self) -> String {
        match &self.content {
            MessageContent::Notification(handed) => handed.to_string(),
            MessageContent::Feed(feed) => feed.items.iter().map(line).collect(),
            MessageContent::Other => format!("{}\n", String::from_utf8_lossy(&self.message.body)),
        }
    }
}

/// Returns the line of text for a change of an item. Characters that would end the line are escaped.
fn line(item: &ItemChange) -> String {
    let change = item.change.map_or("STATE", change_term);
    let uri = escaped(&item.item);
    let media_type = item
        .content
        .as_ref()
        .and_then(|content| content.media_type.as_deref());
    let media_type = media_type.map(|media_type| format!("  ({})", escaped(media_type)));
    let media_type = media_type.unwrap_or_default();
    format!("{}  {change:<6}  {uri}{media_type}\n", item.updated)
}

fn wait(failures: usize) -> Duration {
    let seconds = WAITS.get(failures).or(WAITS.last());
    Duration::from_secs(seconds.copied().unwrap_or(1))
}

/// Returns the failure of the first attempt, which ends the command.
fn failure(settings: &BrokerSettings, error: BrokerError) -> Failure {
    let exit = match &error {
        error if error.needs_operator() => Exit::Refused,
        BrokerError::Version(_) | BrokerError::Frame(_) => Exit::Failure,
        _ => Exit::Temporary,
    };
    let (name, address) = (&settings.name, &settings.address);
    Failure {
        error: anyhow::anyhow!("cannot read from broker {name} at {address}: {error}"),
        exit,
    }
}
