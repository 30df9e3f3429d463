//! `subscriptions`: the subscriptions at the embedded hub, and the command that removes one.

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use serde_json::json;
use websub::hub::subscriptions::view::{SubscriptionList, SubscriptionView};

use crate::cli::Exit;
use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::{RequestOptions, SubscriptionsCommand};
use crate::cli::output::{aligned, counted, next_try, print_answer, relative, when};
use crate::control::{ControlReply, ControlRequest, SubscriptionName, SubscriptionsAction};

pub fn subscriptions(file: Option<&Path>, command: &SubscriptionsCommand) -> anyhow::Result<Exit> {
    let daemon = |ask: &RequestOptions| DaemonClient::new(file, &ask.tree);
    let name = |callback: &String, topic: &Option<String>| SubscriptionName {
        callback: callback.clone(),
        topic: topic.clone(),
    };
    match command {
        SubscriptionsCommand::List(ask) => list(&daemon(ask)?, ask.json),
        SubscriptionsCommand::Show {
            callback,
            topic,
            ask,
        } => show(&daemon(ask)?, name(callback, topic), ask.json),
        SubscriptionsCommand::Remove {
            callback,
            topic,
            yes,
            ask,
        } => {
            let (daemon, name) = (daemon(ask)?, name(callback, topic));
            if *yes {
                remove(&daemon, name, ask.json)
            } else {
                say_what_would_be_removed(&daemon, name, ask.json)
            }
        }
    }
}

fn list(daemon: &DaemonClient<'_>, as_json: bool) -> anyhow::Result<Exit> {
    let request = ControlRequest::Subscriptions(SubscriptionsAction::List);
    let (ControlReply::Subscriptions(list), is_running) = daemon.ask(request)? else {
        return Err(unexpected_answer());
    };
    print_answer(as_json, (&list, is_running), |out| {
        write_list(out, &list, Timestamp::now())
    })
}

fn show(daemon: &DaemonClient<'_>, name: SubscriptionName, as_json: bool) -> anyhow::Result<Exit> {
    let (shown, is_running) = ask_for(daemon, name)?;
    print_answer(as_json, (&shown, is_running), |out| {
        write_one(out, &shown, Timestamp::now())
    })
}

fn ask_for(
    daemon: &DaemonClient<'_>,
    name: SubscriptionName,
) -> anyhow::Result<(Box<SubscriptionView>, bool)> {
    let request = ControlRequest::Subscriptions(SubscriptionsAction::Show(name));
    match daemon.ask(request)? {
        (ControlReply::Subscription(shown), is_running) => Ok((shown, is_running)),
        _ => Err(unexpected_answer()),
    }
}

fn say_what_would_be_removed(
    daemon: &DaemonClient<'_>,
    name: SubscriptionName,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let (shown, is_running) = ask_for(daemon, name)?;
    let answer = json!({ "removed": null, "found": shown });
    print_answer(as_json, (&answer, is_running), |out| {
        writeln!(out, "this subscription would be removed:\n")?;
        write_one(out, &shown, Timestamp::now())?;
        writeln!(out, "\nnothing was removed; --yes removes it")
    })?;
    Ok(Exit::Failure)
}

fn remove(
    daemon: &DaemonClient<'_>,
    name: SubscriptionName,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let request = ControlRequest::Subscriptions(SubscriptionsAction::Remove(name));
    let (ControlReply::Removed(removed), is_running) = daemon.ask(request)? else {
        return Err(unexpected_answer());
    };
    let told = if is_running {
        "its subscriber is being notified"
    } else {
        "rsnotify is not running, so its subscriber is not notified"
    };
    let answer = json!({ "removed": removed });
    print_answer(as_json, (&answer, is_running), |out| {
        writeln!(
            out,
            "removed: the subscription of {} to {}, with {} owed; {told}",
            removed.callback,
            removed.topic,
            counted(removed.owed, "notification")
        )
    })
}

fn write_list(out: &mut impl Write, list: &SubscriptionList, now: Timestamp) -> io::Result<()> {
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
    let lines = list.subscriptions.iter().map(|subscription| {
        [
            subscription.state().to_owned(),
            subscription.owed.to_string(),
            subscription.attempts.to_string(),
            next_try(subscription.next_try, now),
            relative(subscription.expires, now),
            subscription.callback.clone(),
            subscription.topic.to_string(),
        ]
    });
    let lines: Vec<_> = std::iter::once(header.map(str::to_owned))
        .chain(lines)
        .collect();
    for line in aligned(&lines, &[1, 2]) {
        writeln!(out, "{}", line.trim_end())?;
    }
    match list.more {
        0 => Ok(()),
        more => writeln!(out, "and {more} more, with no more failed attempts"),
    }
}

fn write_one(
    out: &mut impl Write,
    subscription: &SubscriptionView,
    now: Timestamp,
) -> io::Result<()> {
    writeln!(out, "topic      {}", subscription.topic)?;
    writeln!(out, "callback   {}", subscription.callback)?;
    let signed = if subscription.signed {
        "deliveries are signed"
    } else {
        "no secret, deliveries are not signed"
    };
    writeln!(out, "           {signed}")?;
    writeln!(out, "lease      ends {}", when(subscription.expires, now))?;
    writeln!(out, "state      {}", subscription.state())?;
    match &subscription.last {
        Some(last) => writeln!(out, "last try   {}: {last}", when(last.at, now))?,
        None => writeln!(out, "last try   none since rsnotify was started")?,
    }
    match subscription.next {
        Some(next) => writeln!(
            out,
            "owed       {}, number {next} first",
            counted(subscription.owed, "notification")
        )?,
        None => writeln!(out, "owed       nothing")?,
    }
    let tried = counted(subscription.attempts as usize, "time");
    match subscription.next_try {
        Some(at) if at > now => {
            writeln!(out, "           tried {tried}, next try {}", when(at, now))
        }
        Some(_) => writeln!(out, "           tried {tried}, next try now"),
        None => Ok(()),
    }
}
