//! `listen --broker`: the messages of a broker's destinations, each acknowledged once it was printed, or once the command
//! has exited with 0.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use messaging::client::WAITS;
use messaging::frame::Frame;
use messaging::message::INITIAL;
use messaging::refusal::BrokerError;
use messaging::settings::BrokerSettings;
use messaging::subscribe::{BrokerSubscription, MessageSelection};
use resourcesync::escape::escaped;
use resourcesync::receive::Notification;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::cli::Exit;
use crate::cli::listen::command::Run;
use crate::cli::listen::exit::Failure;
use crate::cli::listen::notification::Handed;
use crate::cli::listen::reporter::{Reporter, Text};
use crate::cli::listen::{CLOSE_TIMEOUT, of_output, second_signal, stop_signals, stopped};
use crate::cli::no_broker;
use crate::cli::options::ListenOptions;
use crate::config::Config;
use crate::daemon::log::error_chain;
use resourcesync::feed::{Feed, ItemChange, change_term};

/// Properties of messages that a line of JSON has beside what is read of the payload.
const PROPERTIES: [&str; 6] = ["messageId", "format", "kind", "source", "topic", "user"];

/// The content of a message, read as far as it can be.
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
    let stop = stop_signals().context("cannot wait for signals")?;
    let (settings, wanted) = wanted(name, file, options)?;
    let listener = BrokerListener {
        settings,
        wanted,
        options,
        reporter,
        stop: stop.subscribe(),
    };
    tokio::select! {
        ended = listener.read() => ended,
        () = second_signal(&listener.stop) => Ok(()),
    }
}

/// Returns the broker of the configuration, and the requested subscription.
fn wanted(
    name: &str,
    file: Option<&Path>,
    options: &ListenOptions,
) -> Result<(BrokerSettings, MessageSelection), Failure> {
    let wrong = |reason| Failure {
        reason,
        exit: Exit::Configuration,
    };
    let config = Config::load_brokers(file).map_err(|error| wrong(error_chain(&error)))?;
    let all = config.broker_settings();
    let all = all.map_err(|error| wrong(error_chain(&error)))?;
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
    let of_sources = || sources.iter().map(|source| settings.destination_of(source));
    let named = options.destination.as_ref();
    let mut destinations = named.map_or_else(|| of_sources().collect(), |one| vec![one.clone()]);
    destinations.dedup();
    if destinations.is_empty() {
        let (name, destination) = (&settings.name, &settings.destination);
        return Err(wrong(format!(
            "the destination of {name} is {destination}, and there is no [[source]]: name it with --destination, or the \
             sources in [[broker]]"
        )));
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
    options: &'a ListenOptions,
    reporter: &'a Reporter,
    stop: watch::Receiver<u32>,
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
                    let name = self.settings.name.as_str();
                    self.reporter.subscribed(&destinations, name, None);
                    match self.receive(&mut subscription).await {
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
            let reason = format!("{}: {error}", self.settings.name);
            let retry = Some(wait.as_secs());
            self.reporter
                .not_subscribed(&destinations, &reason, None, retry);
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
        if let Some(command) = &self.options.exec {
            let json = content.json(message);
            let run = Run {
                input: format!("{json}\n"),
                topic: message.header("topic").unwrap_or_default(),
                kind: message.header("kind").unwrap_or_default(),
                from: json["from"].as_str(),
                until: json["until"].as_str(),
            };
            return Ok(self.execute(run, command).await);
        }
        let text = if self.options.json {
            Text::Line(content.json(message).to_string())
        } else if self.options.xml {
            Text::Document(message.body.clone())
        } else {
            Text::Lines(content.text(message))
        };
        self.reporter.print(text, stopped(&self.stop)).await
    }

    /// Runs the command until it exits with 0: no message after this one is handed over before. Returns false if it was
    /// stopped before that.
    async fn execute(&self, run: Run<'_>, command: &str) -> bool {
        let timeout = self.options.exec_timeout;
        for failures in 0.. {
            let running = run.clone();
            let outcome = running.execute(command, timeout, stopped(&self.stop));
            let Err(reason) = outcome.await else {
                return true;
            };
            self.reporter.command_failed(run.topic, &reason);
            tokio::select! {
                biased;
                () = stopped(&self.stop) => return false,
                () = tokio::time::sleep(wait(failures)) => {}
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
                MessageContent::Notification(Handed::new(topic, notification, &message.body))
            }),
            // Other servers' messages may have no properties.
            Some("atom") | None => Feed::parse(&message.body).ok().map(MessageContent::Feed),
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
        if let Value::Object(read) = read {
            for (name, value) in read {
                object[name] = value;
            }
        }
        for name in PROPERTIES {
            if let Some(value) = message.header(name) {
                object[name] = json!(value);
            }
        }
        let seq = message.header("seq").map(str::parse::<u64>);
        if let Some(Ok(seq)) = seq {
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
fn line(item: &ItemChange) -> String {
    let change = item.change.map_or("STATE", change_term);
    let uri = escaped(&item.item);
    let content = item.content.as_ref();
    let media_type = content.and_then(|content| content.media_type.as_deref());
    let media_type = media_type.map(|media_type| format!("  ({})", escaped(media_type)));
    let media_type = media_type.unwrap_or_default();
    format!("{}  {change:<6}  {uri}{media_type}\n", item.updated)
}

fn wait(failures: usize) -> Duration {
    Duration::from_secs(WAITS[failures.min(WAITS.len() - 1)])
}

/// Returns the failure of the first attempt, which ends the command.
fn failure(settings: &BrokerSettings, error: BrokerError) -> Failure {
    let exit = match &error {
        error if error.needs_operator() => Exit::Refused,
        BrokerError::Version(_) | BrokerError::Frame(_) => Exit::Failure,
        _ => Exit::Temporary,
    };
    let (name, address) = (&settings.name, &settings.address);
    let reason = format!("cannot read from broker {name} at {address}: {error}");
    Failure { reason, exit }
}
