//! `outbox`: what each hub is due, and operator commands for a stuck hub: retry, drop (R23).

pub mod text;

use std::io::Write;
use std::path::Path;

use anyhow::bail;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::exit::Exit;
use crate::cli::options::{
    AccountOptions, OutboxCommand, OutboxDropOptions, OutboxListOptions, OutboxRetryOptions,
    OutboxShowOptions, RequestOptions,
};
use crate::cli::outbox::text::{Row, write_account, write_due, write_muted, write_rows};
use crate::cli::output::{counted, print_answer};
use crate::control::{ControlReply, ControlRequest};
use crate::report::outbox::AccountName;
use crate::report::outbox::AccountView;
use crate::report::status::ChannelView;

pub fn outbox(file: Option<&Path>, command: &OutboxCommand) -> anyhow::Result<Exit> {
    let daemon = |ask: &RequestOptions| DaemonClient::new(file, &ask.tree);
    match command {
        OutboxCommand::List(options) => list(&daemon(&options.ask)?, options),
        OutboxCommand::Show(options) => show(&daemon(&options.ask)?, options),
        OutboxCommand::Retry(options) => retry(&daemon(&options.ask)?, options),
        OutboxCommand::Drop(options) => drop(&daemon(&options.ask)?, options),
    }
}

fn list(daemon: &DaemonClient<'_>, options: &OutboxListOptions) -> anyhow::Result<Exit> {
    let (ControlReply::Outbox(channels), is_running) = daemon.ask(ControlRequest::Outbox)? else {
        return Err(unexpected_answer());
    };
    let mut rows: Vec<Row> = channels
        .iter()
        .flat_map(|channel| channel.hubs.iter().map(move |hub| Row { channel, hub }))
        .collect();
    let is_all = options.state.is_empty();
    rows.retain(|row| is_all || options.state.contains(&row.hub.state));
    rows.sort_by_key(|row| (row.hub.state, &row.channel.topic, &row.hub.hub));
    let answer: Vec<_> = rows.iter().map(Row::as_json).collect();
    let answer = json!({ "outbox": answer });
    print_answer(options.ask.output.json, (&answer, is_running), |out| {
        if rows.is_empty() && !is_all {
            return writeln!(out, "no hub is in this state on any channel");
        }
        write_rows(out, &rows, Timestamp::now())?;
        write_muted(out, &channels)
    })
}

fn show(daemon: &DaemonClient<'_>, options: &OutboxShowOptions) -> anyhow::Result<Exit> {
    let account = shown_account(daemon, options)?;
    let (shown, is_running) = ask_for(daemon, account, options.payload)?;
    print_answer(options.ask.output.json, (&shown, is_running), |out| {
        write_account(out, &shown)
    })
}

/// Returns the hub and the channel that are named, or of which there is one only.
fn shown_account(
    daemon: &DaemonClient<'_>,
    options: &OutboxShowOptions,
) -> anyhow::Result<AccountName> {
    let kind = options.kind.kind;
    if let Some((channel, hub)) = options.channel.clone().zip(options.hub.clone()) {
        return Ok(AccountName { channel, kind, hub });
    }
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

fn retry(daemon: &DaemonClient<'_>, options: &OutboxRetryOptions) -> anyhow::Result<Exit> {
    let only = options.channel.clone().zip(options.hub.clone());
    let only = only.map(|(channel, hub)| AccountName {
        channel,
        kind: options.kind.kind,
        hub,
    });
    let (ControlReply::Retried { notifications }, is_running) =
        daemon.ask(ControlRequest::Retry { only })?
    else {
        return Err(unexpected_answer());
    };
    let answer = json!({ "tried": notifications });
    let counted = counted(notifications, "notification");
    print_answer(options.ask.output.json, (&answer, is_running), |out| {
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

fn drop(daemon: &DaemonClient<'_>, options: &OutboxDropOptions) -> anyhow::Result<Exit> {
    if !options.yes {
        return say_what_would_be_dropped(daemon, options);
    }
    let account = options.account.name();
    let request = ControlRequest::Drop {
        account: account.clone(),
    };
    let (ControlReply::Dropped { changes }, is_running) = daemon.ask(request)? else {
        return Err(unexpected_answer());
    };
    let AccountName { channel, hub, .. } = account;
    let answer = json!({ "channel": channel, "hub": hub, "dropped": changes });
    print_answer(
        options.ask.output.json,
        (&answer, is_running),
        |out| match changes {
            0 => writeln!(out, "nothing is due to {hub} on {channel}"),
            _ => writeln!(
                out,
                "dropped: {} that {hub} was due on {channel}; they count as told",
                counted(changes, "change")
            ),
        },
    )
}

fn say_what_would_be_dropped(
    daemon: &DaemonClient<'_>,
    options: &OutboxDropOptions,
) -> anyhow::Result<Exit> {
    let (shown, is_running) = ask_for(daemon, options.account.name(), false)?;
    let AccountOptions { channel, hub, .. } = &options.account;
    let due = shown.hub.due;
    let answer = json!({ "dropped": null, "channel": channel, "hub": hub, "due": due });
    print_answer(options.ask.output.json, (&answer, is_running), |out| {
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

impl AccountOptions {
    fn name(&self) -> AccountName {
        AccountName {
            channel: self.channel.clone(),
            kind: self.kind.kind,
            hub: self.hub.clone(),
        }
    }
}
