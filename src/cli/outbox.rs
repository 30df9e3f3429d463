//! `outbox`: what each hub is due, and what a person may do about one that does not take it (R23).

pub mod text;

use std::io::Write;
use std::path::Path;

use clap::builder::{FalseyValueParser, PossibleValue};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::asking::{Asked, unexpected};
use crate::cli::options::{AskOptions, Exit};
use crate::cli::outbox::text::{Row, write_account, write_due, write_muted, write_rows};
use crate::cli::output::{counted, print, print_json};
use crate::control::{AccountName, Answer, Request};
use crate::report::status::Condition;
use crate::report::status::account::AccountView;

#[derive(Debug, Clone, Subcommand)]
pub enum OutboxCommand {
    /// Print one line for each channel and hub, those in trouble first
    List(ListOptions),
    /// Print all that a hub is due on a channel, and what it last answered
    Show(ShowOptions),
    /// Try now what waits for its next try
    Retry(RetryOptions),
    /// Let what a hub is due on a channel count as told
    Drop(DropOptions),
}

#[derive(Debug, Clone, Args)]
pub struct ListOptions {
    /// Print only hubs in these states, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        env = "RSNOTIFY_STATE",
        value_delimiter = ','
    )]
    pub state: Vec<Condition>,

    #[command(flatten)]
    pub ask: AskOptions,
}

impl ValueEnum for Condition {
    fn value_variants<'a>() -> &'a [Condition] {
        &Condition::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()))
    }
}

/// A hub on a channel.
#[derive(Debug, Clone, Args)]
pub struct AccountOptions {
    /// The channel: the URI of its topic, or of its Capability List
    #[arg(value_name = "CHANNEL")]
    pub channel: String,

    /// The hub: its URI as it is advertised, or "embedded"
    #[arg(value_name = "HUB")]
    pub hub: String,
}

#[derive(Debug, Clone, Args)]
pub struct ShowOptions {
    #[command(flatten)]
    pub account: AccountOptions,

    /// Print the notification in flight too
    #[arg(long, env = "RSNOTIFY_PAYLOAD", value_parser = FalseyValueParser::new())]
    pub payload: bool,

    #[command(flatten)]
    pub ask: AskOptions,
}

#[derive(Debug, Clone, Args)]
pub struct RetryOptions {
    /// The channel: the URI of its topic, or of its Capability List [default: all]
    #[arg(value_name = "CHANNEL", requires = "hub")]
    pub channel: Option<String>,

    /// The hub: its URI as it is advertised, or "embedded" [default: all]
    #[arg(value_name = "HUB")]
    pub hub: Option<String>,

    #[command(flatten)]
    pub ask: AskOptions,
}

#[derive(Debug, Clone, Args)]
pub struct DropOptions {
    #[command(flatten)]
    pub account: AccountOptions,

    /// Drop it; without this, say only what would be dropped
    #[arg(long, env = "RSNOTIFY_YES", value_parser = FalseyValueParser::new())]
    pub yes: bool,

    #[command(flatten)]
    pub ask: AskOptions,
}

pub fn outbox(file: Option<&Path>, command: &OutboxCommand) -> anyhow::Result<Exit> {
    let ask = match command {
        OutboxCommand::List(list) => &list.ask,
        OutboxCommand::Show(show) => &show.ask,
        OutboxCommand::Retry(retry) => &retry.ask,
        OutboxCommand::Drop(drop) => &drop.ask,
    };
    let daemon = Asked::new(file, &ask.tree)?;
    match command {
        OutboxCommand::List(options) => list(&daemon, options),
        OutboxCommand::Show(show) => self::show(&daemon, show),
        OutboxCommand::Retry(retry) => self::retry(&daemon, retry),
        OutboxCommand::Drop(drop) => self::drop(&daemon, drop),
    }
}

fn list(daemon: &Asked<'_>, options: &ListOptions) -> anyhow::Result<Exit> {
    let (Answer::Outbox(channels), is_running) = daemon.ask(Request::Outbox)? else {
        return Err(unexpected());
    };
    let mut rows: Vec<Row> = channels
        .iter()
        .flat_map(|channel| channel.hubs.iter().map(move |hub| Row { channel, hub }))
        .collect();
    let is_all = options.state.is_empty();
    rows.retain(|row| is_all || options.state.contains(&row.hub.state));
    rows.sort_by_key(|row| (row.hub.state, &row.channel.topic, &row.hub.hub));
    match options.ask.json {
        true => print_json(is_running, &json!({ "outbox": rows }))?,
        false if rows.is_empty() && !is_all => {
            print(|out| writeln!(out, "no hub is in such a state on any channel"))?;
        }
        false => print(|out| {
            write_rows(out, &rows, Timestamp::now())?;
            write_muted(out, &channels)
        })?,
    }
    Ok(Exit::Fine)
}

fn show(daemon: &Asked<'_>, options: &ShowOptions) -> anyhow::Result<Exit> {
    let (shown, is_running) = ask_for(daemon, &options.account, options.payload)?;
    match options.ask.json {
        true => print_json(is_running, &shown)?,
        false => print(|out| write_account(out, &shown))?,
    }
    Ok(Exit::Fine)
}

fn ask_for(
    daemon: &Asked<'_>,
    account: &AccountOptions,
    payload: bool,
) -> anyhow::Result<(Box<AccountView>, bool)> {
    let account = account.name();
    let request = Request::Show { account, payload };
    match daemon.ask(request)? {
        (Answer::Account(shown), is_running) => Ok((shown, is_running)),
        _ => Err(unexpected()),
    }
}

fn retry(daemon: &Asked<'_>, options: &RetryOptions) -> anyhow::Result<Exit> {
    let only = options.channel.clone().zip(options.hub.clone());
    let only = only.map(|(channel, hub)| AccountName { channel, hub });
    let (Answer::Retried { notifications }, is_running) = daemon.ask(Request::Retry { only })?
    else {
        return Err(unexpected());
    };
    if options.ask.json {
        print_json(is_running, &json!({ "tried": notifications }))?;
        return Ok(Exit::Fine);
    }
    print(|out| match (notifications, is_running) {
        (0, _) => writeln!(
            out,
            "nothing waits for its next try: it is accepted, or being tried right now"
        ),
        (_, true) => writeln!(out, "trying {} now", counted(notifications, "notification")),
        (_, false) => writeln!(
            out,
            "rsnotify is not running; it tries {} as soon as it is started",
            counted(notifications, "notification")
        ),
    })?;
    Ok(Exit::Fine)
}

fn drop(daemon: &Asked<'_>, options: &DropOptions) -> anyhow::Result<Exit> {
    if !options.yes {
        return say_what_would_be_dropped(daemon, options);
    }
    let account = options.account.name();
    let request = Request::Drop {
        account: account.clone(),
    };
    let (Answer::Dropped { changes }, is_running) = daemon.ask(request)? else {
        return Err(unexpected());
    };
    let AccountName { channel, hub } = account;
    if options.ask.json {
        let answer = json!({ "channel": channel, "hub": hub, "dropped": changes });
        print_json(is_running, &answer)?;
        return Ok(Exit::Fine);
    }
    print(|out| match changes {
        0 => writeln!(out, "{hub} is due nothing on {channel}"),
        _ => writeln!(
            out,
            "dropped: what {hub} was due on {channel}, of {}, counts as told",
            counted(changes, "document")
        ),
    })?;
    Ok(Exit::Fine)
}

fn say_what_would_be_dropped(daemon: &Asked<'_>, options: &DropOptions) -> anyhow::Result<Exit> {
    let (shown, is_running) = ask_for(daemon, &options.account, false)?;
    if options.ask.json {
        let answer = json!({
            "dropped": null,
            "channel": options.account.channel,
            "hub": options.account.hub,
            "due": shown.hub.due,
        });
        print_json(is_running, &answer)?;
    } else {
        print(|out| {
            if shown.hub.due == 0 {
                return writeln!(out, "{} is due nothing on {}", shown.hub.hub, shown.topic);
            }
            writeln!(
                out,
                "this would be dropped, and never be told to {} on {}:\n",
                shown.hub.hub, shown.topic
            )?;
            write_due(out, &shown)?;
            if !shown.held.is_empty() {
                let held = counted(shown.held.len() + shown.more_held, "document");
                writeln!(
                    out,
                    "\n{held} would stay held, and be told once they are free"
                )?;
            }
            writeln!(out, "\nnothing was dropped; --yes drops it")
        })?;
    }
    Ok(match shown.hub.due {
        0 => Exit::Fine,
        _ => Exit::Failure,
    })
}

impl AccountOptions {
    fn name(&self) -> AccountName {
        AccountName {
            channel: self.channel.clone(),
            hub: self.hub.clone(),
        }
    }
}
