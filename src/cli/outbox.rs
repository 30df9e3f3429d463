//! `outbox`: what each hub is due, and operator commands for a stuck hub: retry, drop (R23).

pub mod text;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use serde_json::json;

use crate::cli::Exit;
use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::{OutboxCommand, RequestOptions};
use crate::cli::outbox::text::{Row, rows, write_account, write_due, write_muted, write_rows};
use crate::cli::output::{counted, print_answer};
use crate::control::{ControlReply, ControlRequest};
use crate::report::outbox::{AccountName, AccountView};
use crate::report::status::{ChannelView, Condition};

pub fn outbox(file: Option<&Path>, command: &OutboxCommand) -> anyhow::Result<Exit> {
    let daemon = |ask: &RequestOptions| DaemonClient::new(file, &ask.tree);
    let named = named(command);
    match command {
        OutboxCommand::List { state, ask } => list(&daemon(ask)?, state, ask.json),
        OutboxCommand::Show {
            kind, payload, ask, ..
        } => {
            let daemon = daemon(ask)?;
            let account = named.map_or_else(|| only_account(&daemon, *kind), Ok)?;
            let (shown, is_running) = ask_for(&daemon, account, *payload)?;
            print_answer(ask.json, (&shown, is_running), |out| {
                write_account(out, &shown)
            })
        }
        OutboxCommand::Retry { ask, .. } => retry(&daemon(ask)?, named, ask.json),
        OutboxCommand::Drop { yes, ask, .. } => {
            let account = named.context("no account is named")?;
            if *yes {
                drop(&daemon(ask)?, account, ask.json)
            } else {
                say_what_would_be_dropped(&daemon(ask)?, account, ask.json)
            }
        }
    }
}

/// Returns the hub and the channel that a command names, if it does.
fn named(command: &OutboxCommand) -> Option<AccountName> {
    let (channel, kind, hub) = match command {
        OutboxCommand::List { .. } => return None,
        OutboxCommand::Show {
            channel, kind, hub, ..
        }
        | OutboxCommand::Retry {
            channel, kind, hub, ..
        } => (channel.as_ref()?, kind, hub.as_ref()?),
        OutboxCommand::Drop {
            channel, kind, hub, ..
        } => (channel, kind, hub),
    };
    Some(AccountName {
        channel: channel.clone(),
        kind: *kind,
        hub: hub.clone(),
    })
}

fn list(daemon: &DaemonClient<'_>, states: &[Condition], as_json: bool) -> anyhow::Result<Exit> {
    let (ControlReply::Outbox(channels), is_running) = daemon.ask(ControlRequest::Outbox)? else {
        return Err(unexpected_answer());
    };
    let is_all = states.is_empty();
    let rows = rows(&channels, |hub| is_all || states.contains(&hub.state));
    let answer: Vec<_> = rows.iter().map(Row::as_json).collect();
    let answer = json!({ "outbox": answer });
    print_answer(as_json, (&answer, is_running), |out| {
        if rows.is_empty() && !is_all {
            return writeln!(out, "no hub is in this state on any channel");
        }
        write_rows(out, &rows, Timestamp::now())?;
        write_muted(out, &channels)
    })
}

/// Returns the hub and the channel of which there is one only.
fn only_account(
    daemon: &DaemonClient<'_>,
    kind: Option<ChannelKind>,
) -> anyhow::Result<AccountName> {
    let (ControlReply::Outbox(channels), _) = daemon.ask(ControlRequest::Outbox)? else {
        return Err(unexpected_answer());
    };
    let of_kind = |view: &&ChannelView| kind.is_none_or(|kind| kind == view.kind);
    let named = channels.iter().filter(of_kind);
    let mut hubs = named.flat_map(|view| view.hubs.iter().map(move |hub| (view, hub)));
    match (hubs.next(), hubs.next()) {
        (Some((view, hub)), None) => Ok(AccountName {
            channel: view.topic.to_string(),
            kind: None,
            hub: hub.hub.to_string(),
        }),
        (None, _) => bail!("no channel has a hub"),
        _ => {
            bail!("there are several: name the channel and the hub, as `rsnotify outbox list` does")
        }
    }
}

fn ask_for(
    daemon: &DaemonClient<'_>,
    account: AccountName,
    payload: bool,
) -> anyhow::Result<(Box<AccountView>, bool)> {
    let request = ControlRequest::Show { account, payload };
    match daemon.ask(request)? {
        (ControlReply::Account(shown), is_running) => Ok((shown, is_running)),
        _ => Err(unexpected_answer()),
    }
}

fn retry(
    daemon: &DaemonClient<'_>,
    only: Option<AccountName>,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let (ControlReply::Retried { notifications }, is_running) =
        daemon.ask(ControlRequest::Retry { only })?
    else {
        return Err(unexpected_answer());
    };
    let answer = json!({ "tried": notifications });
    let counted = counted(notifications, "notification");
    print_answer(as_json, (&answer, is_running), |out| {
        if notifications == 0 {
            writeln!(out, "nothing to retry: all is accepted, or in flight")
        } else if is_running {
            writeln!(out, "retrying {counted} now")
        } else {
            writeln!(
                out,
                "rsnotify is not running; it retries {counted} as soon as it is started"
            )
        }
    })
}

fn drop(daemon: &DaemonClient<'_>, account: AccountName, as_json: bool) -> anyhow::Result<Exit> {
    let request = ControlRequest::Drop {
        account: account.clone(),
    };
    let (ControlReply::Dropped { changes }, is_running) = daemon.ask(request)? else {
        return Err(unexpected_answer());
    };
    let AccountName { channel, hub, .. } = account;
    let answer = json!({ "channel": channel, "hub": hub, "dropped": changes });
    print_answer(as_json, (&answer, is_running), |out| match changes {
        0 => writeln!(out, "nothing is due to {hub} on {channel}"),
        _ => writeln!(
            out,
            "dropped: {} that {hub} was due on {channel}; they count as told",
            counted(changes, "change")
        ),
    })
}

fn say_what_would_be_dropped(
    daemon: &DaemonClient<'_>,
    account: AccountName,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let (shown, is_running) = ask_for(daemon, account.clone(), false)?;
    let AccountName { channel, hub, .. } = account;
    let due = shown.hub.due;
    let answer = json!({ "dropped": null, "channel": channel, "hub": hub, "due": due });
    print_answer(as_json, (&answer, is_running), |out| {
        let (hub, topic) = (&shown.hub.hub, &shown.topic);
        if due == 0 {
            return writeln!(out, "nothing is due to {hub} on {topic}");
        }
        writeln!(
            out,
            "these changes would be dropped, and never be announced to {hub} on {topic}:\n"
        )?;
        write_due(out, &shown)?;
        if !shown.held.is_empty() {
            let held = counted(shown.held.len() + shown.more_held, "document");
            writeln!(out, "\n{held} would stay held, and be announced later")?;
        }
        writeln!(out, "\nnothing was dropped; --yes drops it")
    })?;
    Ok(match due {
        0 => Exit::Fine,
        _ => Exit::Failure,
    })
}
