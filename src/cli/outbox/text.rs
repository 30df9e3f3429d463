//! The outbox as text, for an operator.

use std::io::{self, Write};

use jiff::Timestamp;
use resourcesync::escape::escaped;
use resourcesync::payload::Entry;
use serde_json::json;

use crate::announce::delivery::attempt::Attempt;
use crate::announce::plan::Mode;
use crate::cli::output::{aligned, counted, next_try, when};
use crate::report::outbox::{AccountView, FlightView};
use crate::report::status::{BacklogView, ChannelView, HubView};

/// One hub on one channel.
pub struct Row<'a> {
    pub channel: &'a ChannelView,
    pub hub: &'a HubView,
}

impl Row<'_> {
    pub fn as_json(&self) -> serde_json::Value {
        let Row { channel, hub } = self;
        let mut row = json!(hub);
        row["source"] = json!(channel.source);
        row["kind"] = json!(channel.kind);
        row["set"] = json!(channel.set);
        row["topic"] = json!(channel.topic);
        row["retired"] = json!(channel.retired);
        row
    }
}

/// Returns the hubs that are meant, each on each channel, those in the worst condition first.
pub fn rows(channels: &[ChannelView], is_meant: impl Fn(&HubView) -> bool) -> Vec<Row<'_>> {
    let rows = channels
        .iter()
        .flat_map(|channel| channel.hubs.iter().map(move |hub| Row { channel, hub }));
    let mut rows: Vec<Row<'_>> = rows.filter(|row| is_meant(row.hub)).collect();
    rows.sort_by_key(|row| (row.hub.state, &row.channel.topic, &row.hub.hub));
    rows
}

/// Writes one line for each row, in columns.
pub fn write_rows(out: &mut impl Write, rows: &[Row<'_>], now: Timestamp) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no channel has a hub yet");
    }
    let header = [
        "STATE", "KIND", "DUE", "TRIES", "NEXT TRY", "CHANNEL", "HUB",
    ];
    let header = header.map(str::to_owned);
    let lines = rows.iter().map(|row| {
        [
            row.hub.state.in_words().to_owned(),
            row.channel.kind.to_string(),
            row.hub.due.to_string(),
            row.hub.attempts.to_string(),
            if row.hub.sending {
                "under way".to_owned()
            } else {
                next_try(row.hub.next_try, now)
            },
            match row.channel.retired {
                None => row.channel.topic.to_string(),
                Some(_) => format!("{} (retired)", row.channel.topic),
            },
            row.hub.hub.to_string(),
        ]
    });
    let all: Vec<[String; 7]> = std::iter::once(header).chain(lines).collect();
    let reasons = std::iter::once(None).chain(rows.iter().map(|row| row.hub.trouble()));
    for (text, reason) in aligned(&all, &[2, 3]).iter().zip(reasons) {
        match reason {
            Some(reason) => writeln!(out, "{text}  ({reason})")?,
            None => writeln!(out, "{}", text.trim_end())?,
        }
    }
    Ok(())
}

/// Writes the channels on which nothing is sent because no advertised hub is configured.
pub fn write_muted(out: &mut impl Write, channels: &[ChannelView]) -> io::Result<()> {
    for channel in channels.iter().filter(|channel| channel.is_muted()) {
        let (topic, set) = (&channel.topic, &channel.set);
        writeln!(
            out,
            "!! NOTHING IS SENT on {topic}: {set} advertises only hubs that are not configured"
        )?;
    }
    Ok(())
}

/// Writes the details of one hub on one channel.
pub fn write_account(out: &mut impl Write, account: &AccountView) -> io::Result<()> {
    let now = account.at;
    let hub = &account.hub;
    let mode = json!(hub.mode);
    let mode = mode.as_str().unwrap_or_default();
    let (topic, kind) = (&account.topic, account.kind);
    writeln!(out, "channel    {topic} (kind {kind})")?;
    writeln!(
        out,
        "set        {} (source {})",
        account.set, account.source
    )?;
    if let Some(since) = account.retired {
        writeln!(
            out,
            "           retired {}: only its last changes are sent",
            when(since, now)
        )?;
    }
    let is_broker = hub.mode == Mode::Broker;
    if is_broker {
        writeln!(out, "broker     {}", hub.hub)?;
    } else {
        writeln!(out, "hub        {} (mode {mode})", hub.hub)?;
    }
    writeln!(out, "state      {}", hub.state.in_words())?;
    match &hub.last {
        Some(last) => write_attempt(out, last, is_broker, now)?,
        None => writeln!(out, "last try   none yet")?,
    }
    if let Some(accepted) = hub.accepted {
        writeln!(out, "accepted   last {}", when(accepted, now))?;
    }
    match hub.fetch_confirmed {
        Some(true) => writeln!(out, "topic      fetched after the last ping")?,
        Some(false) => writeln!(
            out,
            "topic      not fetched within a minute of a ping\n           \
             usually: the hub cannot reach it at that URI, or it was never advertised with this hub"
        )?,
        None => {}
    }
    writeln!(out)?;
    write_due(out, account)?;
    if !account.held.is_empty() {
        let count = account.held.len() + account.more_held;
        let held = counted(count, "document");
        writeln!(out, "held       {held}, not announced yet")?;
        for held in &account.held {
            writeln!(
                out,
                "           {:<16}  {}  ({})",
                held.capability.as_str(),
                held.uri,
                held.reason
            )?;
        }
        write_more(out, account.more_held)?;
    }
    Ok(())
}

fn write_attempt(
    out: &mut impl Write,
    last: &Attempt,
    is_broker: bool,
    now: Timestamp,
) -> io::Result<()> {
    let (at, seq, answer) = (when(last.at, now), last.seq, last.answer());
    writeln!(out, "last try   {at}, notification {seq}: {answer}")?;
    if let Some(refusal) = &last.refusal {
        writeln!(out, "           {}", refusal.reason)?;
        let cause = refusal.kind.usual_cause(is_broker);
        writeln!(out, "           usually: {cause}")?;
    }
    if !last.excerpt.is_empty() {
        writeln!(out, "           it said: {}", last.excerpt)?;
    }
    Ok(())
}

/// Writes the notification in flight, and the next attempt.
pub fn write_due(out: &mut impl Write, account: &AccountView) -> io::Result<()> {
    let now = account.at;
    let hub = &account.hub;
    if let Some(flight) = &account.notification {
        let (seq, bytes) = (flight.seq, flight.bytes);
        let cut = hub
            .since
            .map_or_else(String::new, |at| format!(", cut {}", when(at, now)));
        writeln!(out, "in flight  notification {seq}{cut}, {bytes} bytes")?;
        let attempts = usize::try_from(hub.attempts).unwrap_or(usize::MAX);
        let next = match (hub.sending, hub.next_try) {
            (true, _) => "being tried now".to_owned(),
            (false, Some(at)) => format!("next try {}", when(at, now)),
            (false, None) => String::new(),
        };
        writeln!(
            out,
            "           tried {}, {next}",
            counted(attempts, "time")
        )?;
        write_changes(out, &flight.changes, 0)?;
        write_resources(out, flight)?;
        if let Some(payload) = &flight.payload {
            writeln!(out, "\n{payload}\n")?;
        }
    }
    if !account.changes.is_empty() {
        let waits = account
            .waits
            .as_deref()
            .map(|waits| format!(", waiting {waits}"));
        let count = account.changes.len() + account.more_changes;
        writeln!(
            out,
            "next       {}{}",
            counted(count, "change"),
            waits.unwrap_or_default()
        )?;
        write_changes(out, &account.changes, account.more_changes)?;
    }
    if let Some(backlog) = &hub.backlog {
        write_backlog(out, backlog)?;
    }
    if account.notification.is_none() && hub.due == 0 {
        writeln!(out, "due        nothing")?;
    }
    Ok(())
}

/// Writes the changes of resources in flight.
fn write_resources(out: &mut impl Write, flight: &FlightView) -> io::Result<()> {
    for resource in &flight.resources {
        let datetime = resource.datetime.as_deref().unwrap_or("-");
        let (change, uri) = (&resource.change, escaped(&resource.uri));
        writeln!(out, "           {change:<7}  {datetime:<20}  {uri}")?;
    }
    Ok(())
}

/// Writes the changes due to a hub on a change channel, what is in flight included.
fn write_backlog(out: &mut impl Write, backlog: &BacklogView) -> io::Result<()> {
    let (Some(from), Some(until)) = (backlog.from, backlog.until) else {
        return Ok(());
    };
    let changes = counted(backlog.changes, "change");
    let notifications = counted(backlog.notifications, "notification");
    let waits = backlog.waits.as_deref();
    let waits = waits.map(|waits| format!(", waiting {waits}"));
    writeln!(
        out,
        "due        {changes} in {notifications}{}",
        waits.unwrap_or_default()
    )?;
    writeln!(out, "           from {from} until {until}")
}

fn write_changes(out: &mut impl Write, changes: &[Entry], more: usize) -> io::Result<()> {
    for entry in changes {
        let (change, capability) = (entry.change.as_str(), entry.capability.as_str());
        writeln!(
            out,
            "           {change:<7}  {capability:<16}  {}",
            entry.uri
        )?;
    }
    write_more(out, more)
}

fn write_more(out: &mut impl Write, more: usize) -> io::Result<()> {
    match more {
        0 => Ok(()),
        more => writeln!(out, "           and {more} more"),
    }
}
