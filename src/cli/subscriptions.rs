//! `subscriptions`: the subscriptions at the embedded hub, and the command that removes one.

use std::io::Write;
use std::path::Path;

use askama::Template;
use jiff::Timestamp;
use serde_json::json;
use websub::hub::subscriptions::view::SubscriptionView;

use crate::cli::Exit;
use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::{DaemonQueryOptions, SubscriptionsCommand};
use crate::cli::output::{self, counted, in_columns, next_try_in_words, relative};
use crate::control::{ControlReply, ControlRequest, SubscriptionName, SubscriptionsAction};

pub fn subscriptions(file: Option<&Path>, command: &SubscriptionsCommand) -> anyhow::Result<Exit> {
    let daemon = |ask: &DaemonQueryOptions| DaemonClient::new(file, ask);
    match command {
        SubscriptionsCommand::List(ask) => list(&mut daemon(ask)?),
        SubscriptionsCommand::Show { name, ask } => {
            let daemon = &mut daemon(ask)?;
            let shown = SubscriptionText::ask(daemon, name)?;
            daemon.print_answer(&shown.subscription, |out| writeln!(out, "{shown}"))
        }
        SubscriptionsCommand::Remove { name, yes, ask } if *yes => {
            remove(&mut daemon(ask)?, name.clone())
        }
        SubscriptionsCommand::Remove { name, ask, .. } => {
            let daemon = &mut daemon(ask)?;
            let found = SubscriptionText::ask(daemon, name)?;
            let answer = json!({ "removed": null, "found": found.subscription });
            daemon.print_answer(&answer, |out| {
                writeln!(
                    out,
                    "this subscription would be removed:\n\n{found}\n\nnothing was removed; --yes removes it"
                )
            })?;
            Ok(Exit::Failure)
        }
    }
}

fn list(daemon: &mut DaemonClient<'_>) -> anyhow::Result<Exit> {
    let request = ControlRequest::Subscriptions(SubscriptionsAction::List);
    let ControlReply::Subscriptions(list) = daemon.ask(request)? else {
        return Err(unexpected_answer());
    };
    daemon.print_answer(&list, |out| {
        if list.subscriptions.is_empty() {
            return writeln!(out, "nobody has subscribed");
        }
        let header = [
            "STATE",
            "OWED",
            "TRIES",
            "NEXT TRY",
            "LEASE ENDS",
            "CALLBACK",
            "TOPIC",
        ];
        let now = Timestamp::now();
        let lines = list.subscriptions.iter().map(|subscription| {
            [
                subscription.state().to_owned(),
                subscription.owed.to_string(),
                subscription.attempts.to_string(),
                next_try_in_words(subscription.next_try, now),
                relative(&subscription.expires, &now),
                subscription.callback.clone(),
                subscription.topic.to_string(),
            ]
        });
        for line in in_columns(header, lines, &[1, 2]) {
            writeln!(out, "{}", line.trim_end())?;
        }
        match list.more {
            0 => Ok(()),
            more => writeln!(out, "and {more} more, with no more failed attempts"),
        }
    })
}

fn remove(daemon: &mut DaemonClient<'_>, name: SubscriptionName) -> anyhow::Result<Exit> {
    let request = ControlRequest::Subscriptions(SubscriptionsAction::Remove(name));
    let ControlReply::Removed(removed) = daemon.ask(request)? else {
        return Err(unexpected_answer());
    };
    let told = if daemon.is_running {
        "its subscriber is being notified"
    } else {
        "rsnotify is not running, so its subscriber is not notified"
    };
    daemon.print_answer(&json!({ "removed": removed }), |out| {
        let (callback, topic) = (&removed.callback, &removed.topic);
        let owed = counted(removed.owed, "notification");
        writeln!(
            out,
            "removed: the subscription of {callback} to {topic}, with {owed} owed; {told}"
        )
    })
}

/// The details of a subscription.
#[derive(Template)]
#[template(path = "subscription.txt", whitespace = "preserve")]
struct SubscriptionText {
    subscription: Box<SubscriptionView>,
    now: Timestamp,
}

impl SubscriptionText {
    /// Asks for a subscription.
    fn ask(
        daemon: &mut DaemonClient<'_>,
        name: &SubscriptionName,
    ) -> anyhow::Result<SubscriptionText> {
        let action = SubscriptionsAction::Show(name.clone());
        match daemon.ask(ControlRequest::Subscriptions(action))? {
            ControlReply::Subscription(subscription) => Ok(SubscriptionText {
                subscription,
                now: Timestamp::now(),
            }),
            _ => Err(unexpected_answer()),
        }
    }
}
