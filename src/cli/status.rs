//! `status`: how everything stands, trouble first.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use crate::announce::status::{Condition, HubView, Status};
use crate::cli::asking::{ask, unexpected};
use crate::cli::options::{AskOptions, Exit};
use crate::cli::outbox::text::{Row, in_words, write_rows};
use crate::cli::output::{counted, print, print_json};
use crate::config::Config;
use crate::control::{Answer, Request};

/// So many lines of one kind are printed; of others it is said where they are.
const MOST_LINES: usize = 20;

pub fn status(file: Option<&Path>, options: &AskOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.tree.overrides())?;
    let (Answer::Status(status), is_running) = ask(&config, Request::Status)? else {
        return Err(unexpected());
    };
    match options.json {
        true => print_json(is_running, &status)?,
        false => print(|out| write_status(out, &status, is_running))?,
    }
    Ok(Exit::Fine)
}

fn write_status(out: &mut impl Write, status: &Status, is_running: bool) -> io::Result<()> {
    match is_running {
        true => writeln!(out, "rsnotify is running")?,
        false => writeln!(
            out,
            "rsnotify is not running; this is how it left things, as far as it saved them"
        )?,
    }
    if let Some(trouble) = &status.unsaved {
        writeln!(out, "NOTHING IS SENT: {trouble}")?;
    }
    for source in &status.sources {
        let (name, missing, broken) = (&source.name, source.missing, source.broken);
        writeln!(
            out,
            "source {name}: {}, {missing} missing, {broken} broken",
            counted(source.documents, "document")
        )?;
        for mount in &source.mounts {
            let presence = match mount.present {
                Some(true) => "is there",
                Some(false) => "IS NOT THERE; nothing below it counts as deleted",
                None => "was not looked at",
            };
            writeln!(out, "  {} ({}) {presence}", mount.directory, mount.url)?;
        }
        if let Some(suspension) = &source.suspension {
            writeln!(out, "  {suspension}")?;
        }
    }
    write_hubs(out, status)?;
    if let Some(hub) = &status.embedded_hub {
        writeln!(
            out,
            "embedded hub: {}, {} failing, deliveries owed: {}",
            counted(hub.subscriptions, "subscription"),
            hub.failing,
            hub.owed
        )?;
    }
    let mut rows: Vec<Row<'_>> = status
        .channels
        .iter()
        .flat_map(|channel| channel.hubs.iter().map(move |hub| Row { channel, hub }))
        .filter(|row| row.hub.state <= Condition::Unfetched)
        .collect();
    rows.sort_by_key(|row| (row.hub.state, &row.channel.topic, &row.hub.hub));
    if !rows.is_empty() {
        let shown = &rows[..rows.len().min(MOST_LINES)];
        writeln!(
            out,
            "\nin trouble; `rsnotify outbox show CHANNEL HUB` says more:"
        )?;
        write_rows(out, shown, status.at)?;
        write_more(out, rows.len(), "outbox list")?;
    }
    if !status.findings.is_empty() {
        writeln!(out, "\nfound in the tree:")?;
        for finding in status.findings.iter().take(MOST_LINES) {
            writeln!(out, "{finding}")?;
        }
        write_more(out, status.findings.len(), "check")?;
    }
    Ok(())
}

/// One line for each hub, over all channels.
fn write_hubs(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let mut hubs: BTreeMap<&str, Vec<&HubView>> = BTreeMap::new();
    for hub in status.channels.iter().flat_map(|channel| &channel.hubs) {
        hubs.entry(hub.hub.as_str()).or_default().push(hub);
    }
    for (name, accounts) in hubs {
        let due: usize = accounts.iter().map(|hub| hub.due).sum();
        let mut states: BTreeMap<Condition, usize> = BTreeMap::new();
        for hub in &accounts {
            *states.entry(hub.state).or_default() += 1;
        }
        let states: Vec<String> = states
            .into_iter()
            .map(|(state, count)| format!("{count} {}", in_words(state)))
            .collect();
        writeln!(
            out,
            "hub {name}: {} due on {} ({})",
            counted(due, "change"),
            counted(accounts.len(), "channel"),
            states.join(", ")
        )?;
    }
    Ok(())
}

fn write_more(out: &mut impl Write, count: usize, command: &str) -> io::Result<()> {
    match count.saturating_sub(MOST_LINES) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more: see `rsnotify {command}`"),
    }
}
