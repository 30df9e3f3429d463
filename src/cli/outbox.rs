//! `outbox`: what each hub is due, and operator commands for a stuck hub: retry, drop (R23).

use std::io::Write;
use std::path::Path;

use announce::plan::PublishMode;
use anyhow::{Context, bail};
use askama::Template;
use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use serde_json::json;

use crate::cli::Exit;
use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::{DaemonQueryOptions, OutboxCommand};
use crate::cli::output::{self, counted, in_columns, next_try_in_words};
use crate::control::{ControlReply, ControlRequest};
use crate::report::outbox::{AccountName, AccountView};
use crate::report::status::{AccountCondition, ChannelView, HubView};

pub fn outbox(file: Option<&Path>, command: &OutboxCommand) -> anyhow::Result<Exit> {
    let daemon = |ask: &DaemonQueryOptions| DaemonClient::new(file, ask);
    let named = named_account(command);
    match command {
        OutboxCommand::List { state, ask } => list(&mut daemon(ask)?, state),
        OutboxCommand::Show {
            kind, payload, ask, ..
        } => {
            let daemon = &mut daemon(ask)?;
            let name = named.map_or_else(|| only_account(daemon, *kind), Ok)?;
            let account = &*ask_account(daemon, name, *payload)?;
            let word = json!(account.hub.mode);
            let mode = word.as_str().unwrap_or_default();
            daemon.print_answer(account, |out| {
                writeln!(out, "{}", AccountText { account, mode })
            })
        }
        OutboxCommand::Retry { ask, .. } => retry(&mut daemon(ask)?, named),
        OutboxCommand::Drop { yes, ask, .. } => {
            let (daemon, name) = (&mut daemon(ask)?, named.context("no account is named")?);
            if *yes {
                drop(daemon, name)
            } else {
                print_dry_drop(daemon, name)
            }
        }
    }
}

/// Returns the hub and the channel that a command names, if it does.
fn named_account(command: &OutboxCommand) -> Option<AccountName> {
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

fn ask_channels(daemon: &mut DaemonClient<'_>) -> anyhow::Result<Vec<ChannelView>> {
    match daemon.ask(ControlRequest::Outbox)? {
        ControlReply::Outbox(channels) => Ok(channels),
        _ => Err(unexpected_answer()),
    }
}

fn list(daemon: &mut DaemonClient<'_>, states: &[AccountCondition]) -> anyhow::Result<Exit> {
    let channels = ask_channels(daemon)?;
    let is_all = states.is_empty();
    let rows = account_rows(&channels, |hub| is_all || states.contains(&hub.state));
    let answer = rows.iter().map(|(channel, hub)| {
        let mut row = json!(hub);
        row["source"] = json!(channel.source);
        row["kind"] = json!(channel.kind);
        row["set"] = json!(channel.set);
        row["topic"] = json!(channel.topic);
        row["retired"] = json!(channel.retired);
        row
    });
    let answer = json!({ "outbox": answer.collect::<Vec<_>>() });
    daemon.print_answer(&answer, |out| {
        if rows.is_empty() && !is_all {
            return writeln!(out, "no hub is in this state on any channel");
        }
        for line in account_table(&rows, Timestamp::now()) {
            writeln!(out, "{}", line.trim_end())?;
        }
        for muted in channels
            .iter()
            .filter(|it| it.worst() == AccountCondition::Muted)
        {
            let (topic, set) = (&muted.topic, &muted.set);
            writeln!(
                out,
                "!! NOTHING IS SENT on {topic}: {set} advertises only hubs that are not configured"
            )?;
        }
        Ok(())
    })
}

/// Returns the hub and the channel of which there is one only.
fn only_account(
    daemon: &mut DaemonClient<'_>,
    kind: Option<ChannelKind>,
) -> anyhow::Result<AccountName> {
    let mut channels = ask_channels(daemon)?;
    channels.retain(|view| kind.is_none_or(|kind| kind == view.kind));
    match account_rows(&channels, |_| true)[..] {
        [(channel, hub)] => Ok(AccountName {
            channel: channel.topic.to_string(),
            kind: None,
            hub: hub.hub.to_string(),
        }),
        [] => bail!("no channel has a hub"),
        _ => {
            bail!("there are several: name the channel and the hub, as `rsnotify outbox list` does")
        }
    }
}

fn ask_account(
    daemon: &mut DaemonClient<'_>,
    account: AccountName,
    payload: bool,
) -> anyhow::Result<Box<AccountView>> {
    match daemon.ask(ControlRequest::Show { account, payload })? {
        ControlReply::Account(account) => Ok(account),
        _ => Err(unexpected_answer()),
    }
}

fn retry(daemon: &mut DaemonClient<'_>, only: Option<AccountName>) -> anyhow::Result<Exit> {
    let ControlReply::Retried { notifications } = daemon.ask(ControlRequest::Retry { only })?
    else {
        return Err(unexpected_answer());
    };
    let counted = counted(notifications, "notification");
    daemon.print_answer(&json!({ "tried": notifications }), |out| {
        if notifications == 0 {
            writeln!(out, "nothing to retry: all is accepted, or in flight")
        } else if daemon.is_running {
            writeln!(out, "retrying {counted} now")
        } else {
            writeln!(
                out,
                "rsnotify is not running; it retries {counted} as soon as it is started"
            )
        }
    })
}

fn drop(daemon: &mut DaemonClient<'_>, account: AccountName) -> anyhow::Result<Exit> {
    let AccountName { channel, hub, .. } = account.clone();
    let ControlReply::Dropped { changes } = daemon.ask(ControlRequest::Drop { account })? else {
        return Err(unexpected_answer());
    };
    let answer = json!({ "channel": channel, "hub": hub, "dropped": changes });
    daemon.print_answer(&answer, |out| match changes {
        0 => writeln!(out, "nothing is due to {hub} on {channel}"),
        _ => writeln!(
            out,
            "dropped: {} that {hub} was due on {channel}; they count as told",
            counted(changes, "change")
        ),
    })
}

fn print_dry_drop(daemon: &mut DaemonClient<'_>, name: AccountName) -> anyhow::Result<Exit> {
    let AccountName { channel, hub, .. } = name.clone();
    let account = &*ask_account(daemon, name, false)?;
    let due = account.hub.due;
    let answer = json!({ "dropped": null, "channel": channel, "hub": hub, "due": due });
    daemon.print_answer(&answer, |out| {
        let (hub, topic) = (&account.hub.hub, &account.topic);
        if due == 0 {
            return writeln!(out, "nothing is due to {hub} on {topic}");
        }
        writeln!(
            out,
            "these changes would be dropped, and never be announced to {hub} on {topic}:\n{}",
            FlightAndDueText { account }
        )?;
        if !account.held.is_empty() {
            let held = counted(account.held.len() + account.more_held, "document");
            writeln!(out, "\n{held} would stay held, and be announced later")?;
        }
        writeln!(out, "\nnothing was dropped; --yes drops it")
    })?;
    Ok(Exit::fine_if(due == 0))
}

/// One hub on one channel.
pub type Row<'a> = (&'a ChannelView, &'a HubView);

/// Returns the hubs that are meant, each on each channel, those in the worst condition first.
pub fn account_rows(channels: &[ChannelView], is_meant: impl Fn(&HubView) -> bool) -> Vec<Row<'_>> {
    let rows = channels
        .iter()
        .flat_map(|channel| channel.hubs.iter().map(move |hub| (channel, hub)));
    let mut rows: Vec<Row<'_>> = rows.filter(|(_, hub)| is_meant(hub)).collect();
    rows.sort_by_key(|(channel, hub)| (hub.state, &channel.topic, &hub.hub));
    rows
}

/// Returns a line for each row, in columns, below a header.
pub fn account_table(rows: &[Row<'_>], now: Timestamp) -> Vec<String> {
    if rows.is_empty() {
        return vec!["no channel has a hub yet".to_owned()];
    }
    let header = [
        "STATE", "KIND", "DUE", "TRIES", "NEXT TRY", "CHANNEL", "HUB",
    ];
    let lines = rows.iter().map(|(channel, hub)| {
        let next_try = if hub.sending {
            "under way".to_owned()
        } else {
            next_try_in_words(hub.next_try, now)
        };
        let retired = channel.retired.map_or("", |_| " (retired)");
        [
            hub.state.in_words().to_owned(),
            channel.kind.to_string(),
            hub.due.to_string(),
            hub.attempts.to_string(),
            next_try,
            format!("{}{retired}", channel.topic),
            hub.hub.to_string(),
        ]
    });
    let mut lines = in_columns(header, lines, &[2, 3]);
    for (line, (_, hub)) in lines.iter_mut().skip(1).zip(rows) {
        if let Some(reason) = hub.trouble_reason() {
            line.push_str(&format!("  ({reason})"));
        }
    }
    lines
}

/// One hub on one channel in detail.
#[derive(Template)]
#[template(path = "account.txt", whitespace = "preserve")]
pub struct AccountText<'a> {
    pub account: &'a AccountView,
    pub mode: &'a str,
}

/// The notification in flight with its next attempt, and what is due.
#[derive(Template)]
#[template(path = "due.txt", whitespace = "preserve")]
pub struct FlightAndDueText<'a> {
    pub account: &'a AccountView,
}
