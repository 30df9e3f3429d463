//! `status`: daemon status, with what requires action first.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::escape::{escaped, excerpt};

use crate::announce::history::NotificationView;
use crate::announce::plan::Mode;
use crate::cli::Exit;
use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::RequestOptions;
use crate::cli::outbox::text::{rows, write_rows};
use crate::cli::output::{counted, grouped, print_answer, relative, when};
use crate::control::{ControlReply, ControlRequest};
use crate::report::status::alerts::{Health, Part, more_directories};
use crate::report::status::hubs::HubSummary;
use crate::report::status::{ChannelView, SourceStatus, Status, waiting};

/// The maximum number of lines of one kind; for the others, the command that prints them is named.
const MAX_LINES: usize = 20;
/// The maximum number of characters printed of a text of others.
const MAX_CHARACTERS: usize = 500;
/// The number of last notifications that are printed.
const MAX_NOTIFICATIONS: usize = 10;

pub fn status(file: Option<&Path>, options: &RequestOptions) -> anyhow::Result<Exit> {
    let daemon = DaemonClient::new(file, &options.tree)?;
    let (ControlReply::Status(status), is_running) = daemon.ask(ControlRequest::Status)? else {
        return Err(unexpected_answer());
    };
    print_answer(options.json, (&status, is_running), |out| {
        write_status(out, &status, is_running)
    })
}

fn write_status(out: &mut impl Write, status: &Status, is_running: bool) -> io::Result<()> {
    if is_running {
        writeln!(out, "rsnotify is running")?
    } else {
        writeln!(
            out,
            "rsnotify is not running; this is the state that it saved last"
        )?
    }
    if let Some(trouble) = &status.unsaved {
        writeln!(out, "!! NOTHING IS SENT: {trouble}")?;
    }
    write_alerts(out, status)?;
    if let Some(configuration) = &status.configuration {
        let loaded = when(configuration.loaded, status.at);
        writeln!(
            out,
            "configuration read {loaded}; `rsnotify config` prints it"
        )?;
    }
    for source in &status.sources {
        write_source(out, source)?;
    }
    for hub in status.hubs() {
        write_hub(out, &hub, status)?;
    }
    write_publishers(out, status)?;
    if let Some(hub) = &status.embedded_hub {
        let name = if status.is_of_hub() {
            "hub"
        } else {
            "embedded hub"
        };
        writeln!(
            out,
            "{name}: {}, {} failing, deliveries owed: {}",
            counted(hub.subscriptions, "subscription"),
            hub.failing,
            hub.owed
        )?;
    }
    if status.is_of_hub() {
        return Ok(());
    }
    let channels = || status.channels.iter();
    let pending: usize = channels().map(ChannelView::pending_count).sum();
    let held: usize = channels().map(ChannelView::held_count).sum();
    writeln!(
        out,
        "{}: {pending} pending, {held} held",
        counted(status.channels.len(), "channel")
    )?;
    write_troubled(out, status)?;
    write_backlogs(out, status)?;
    write_waiting(out, status)?;
    write_broken(out, status)?;
    write_findings(out, status)?;
    write_notifications(out, status)
}

/// Writes a line for each publisher of `rsnotify hub`.
fn write_publishers(out: &mut impl Write, status: &Status) -> io::Result<()> {
    for publisher in &status.publishers {
        let published = match publisher.published {
            Some(at) => format!("published {}", when(at, status.at)),
            None => "nothing published yet".to_owned(),
        };
        write!(
            out,
            "publisher {}: {}, {published}",
            escaped(&publisher.name),
            counted(publisher.published_topics, "topic"),
        )?;
        if publisher.waiting_fetches > 0 {
            let waiting = grouped(publisher.waiting_fetches);
            write!(out, ", waiting to be fetched: {waiting}")?;
        }
        writeln!(out)?;
        if let Some(refusal) = &publisher.counts.last_refusal {
            let reason = excerpt(&refusal.reason, MAX_CHARACTERS);
            let at = when(refusal.at, status.at);
            writeln!(out, "    refused {at}: {}", shown(&reason))?;
        }
    }
    for unknown in status.unknown_tokens.iter().rev() {
        let at = relative(unknown.last, status.at);
        let times = counted(unknown.times as usize, "request");
        write!(
            out,
            "unknown token {}: {times}, the last {at}",
            escaped(&unknown.token)
        )?;
        match &unknown.publisher {
            Some(publisher) => writeln!(out, " for a topic of {}", escaped(publisher))?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// Writes the findings, grouped by kind.
fn write_findings(out: &mut impl Write, status: &Status) -> io::Result<()> {
    if !status.findings.is_empty() {
        writeln!(out, "\nfindings:")?;
    }
    for group in status
        .finding_groups
        .iter()
        .filter(|group| !group.acknowledged)
    {
        for example in &group.examples {
            writeln!(out, "{}", shown(example))?;
        }
        match group.more() {
            0 => {}
            more => writeln!(
                out,
                "and {} more of the kind {}: see `rsnotify check --all`",
                grouped(more),
                group.kind
            )?,
        }
    }
    let known = status
        .finding_groups
        .iter()
        .filter(|group| group.acknowledged);
    match known.map(|group| group.count).sum() {
        0 => Ok(()),
        1 => writeln!(out, "\n1 finding is acknowledged by the configuration"),
        count => writeln!(
            out,
            "\n{} findings are acknowledged by the configuration",
            grouped(count)
        ),
    }
}

/// Writes the summary, which comes first.
fn write_alerts(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let mut alerts = status.alerts();
    alerts.retain(|alert| alert.part != Part::State);
    for alert in alerts.iter().take(MAX_LINES) {
        let mark = match alert.urgency {
            Health::Act => "!!",
            _ => " !",
        };
        let since = alert
            .since
            .map(|at| format!(" ({})", relative(at, status.at)));
        writeln!(
            out,
            "{mark} {}{}",
            shown(&alert.what),
            since.unwrap_or_default()
        )?;
        if let Some(advice) = &alert.advice {
            writeln!(out, "   {advice}")?;
        }
    }
    write_more(out, alerts.len(), "rsnotify status --json")
}

fn write_source(out: &mut impl Write, source: &SourceStatus) -> io::Result<()> {
    let (name, missing, broken) = (&source.name, source.missing, source.broken);
    let documents = counted(source.documents, "document");
    writeln!(
        out,
        "source {name}: {documents}, {missing} missing, {broken} broken"
    )?;
    for mount in &source.mounts {
        let presence = match mount.present {
            Some(true) => "is there",
            Some(false) => "IS NOT THERE; nothing below it counts as deleted",
            None => "was not looked at",
        };
        writeln!(out, "  {} ({}) {presence}", mount.directory, mount.url)?;
        for unreadable in &mount.unreadable {
            let (directory, reason) = (escaped(&unreadable.directory), escaped(&unreadable.reason));
            writeln!(out, "    {directory} CANNOT BE READ: {reason}")?;
        }
        if mount.more_unreadable > 0 {
            writeln!(out, "    and {} more", mount.more_unreadable)?;
        }
    }
    if let Some(suspension) = &source.suspension {
        writeln!(out, "  {suspension}")?;
    }
    for missing in &source.missing_in {
        writeln!(out, "    {}", shown(&missing.to_string()))?;
    }
    match source.more_missing_in {
        0 => Ok(()),
        more => writeln!(
            out,
            "    and {}: see `rsnotify accept {name} --dry-run`",
            more_directories(more)
        ),
    }
}

/// Writes one line for a hub, over all channels.
fn write_hub(out: &mut impl Write, hub: &HubSummary<'_>, status: &Status) -> io::Result<()> {
    let accepted = match hub.accepted {
        Some(at) => format!(", last accepted {}", relative(at, status.at)),
        None => String::new(),
    };
    let kind = match hub.mode {
        Mode::Broker => "broker",
        _ => "hub",
    };
    writeln!(
        out,
        "{kind} {}: {} due on {} ({}){accepted}",
        hub.hub,
        counted(hub.due, "change"),
        counted(hub.channels(), "channel"),
        hub.states_in_words()
    )
}

fn write_troubled(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let rows = rows(&status.channels, |hub| hub.state.is_trouble());
    if rows.is_empty() {
        return Ok(());
    }
    let shown = &rows[..rows.len().min(MAX_LINES)];
    writeln!(
        out,
        "\nchannels with problems; `rsnotify outbox show CHANNEL HUB` prints details:"
    )?;
    write_rows(out, shown, status.at)?;
    write_more(out, rows.len(), "rsnotify outbox list")
}

fn write_waiting(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let waiting = waiting(&status.channels);
    if waiting.is_empty() {
        return Ok(());
    }
    writeln!(out, "\npending changes, the oldest first:")?;
    for (state, view) in waiting.iter().take(MAX_LINES) {
        let (since, capability) = (relative(view.since, status.at), view.capability.as_str());
        writeln!(
            out,
            "{state:<7}  {capability}  {}  {since}  ({})",
            view.uri, view.reason
        )?;
    }
    // Of each channel, the status itself has only those that wait for longest.
    let channels = status.channels.iter();
    let channels = channels.filter(|channel| channel.kind == ChannelKind::Framework);
    let untold = channels.map(|channel| channel.more_pending + channel.more_held);
    let more = waiting.len().saturating_sub(MAX_LINES) + untold.sum::<usize>();
    write_more(out, more + MAX_LINES, "rsnotify outbox show CHANNEL HUB")
}

/// Writes what hubs are due on change channels, those furthest behind first.
fn write_backlogs(out: &mut impl Write, status: &Status) -> io::Result<()> {
    let channels = status.channels.iter();
    let due = channels.flat_map(|channel| {
        let hubs = channel.hubs.iter();
        hubs.filter_map(move |hub| Some((channel, hub, hub.backlog.as_ref()?)))
    });
    let mut due: Vec<_> = due.filter(|(_, hub, _)| hub.due > 0).collect();
    if due.is_empty() {
        return Ok(());
    }
    due.sort_by_key(|(channel, hub, backlog)| (Reverse(backlog.changes), &channel.topic, &hub.hub));
    writeln!(out, "\nchanges of resources that are due:")?;
    for (channel, hub, backlog) in due.iter().take(MAX_LINES) {
        let (topic, hub) = (&channel.topic, &hub.hub);
        let changes = counted(backlog.changes, "change");
        let notifications = counted(backlog.notifications, "notification");
        write!(out, "{topic}  {changes} in {notifications} to {hub}")?;
        if let Some(since) = backlog.since {
            write!(out, "  {}", relative(since, status.at))?;
        }
        match &backlog.waits {
            Some(waits) => writeln!(out, "  (waiting {waits})")?,
            None => writeln!(out)?,
        }
    }
    write_more(out, due.len(), "rsnotify outbox list")
}

fn write_broken(out: &mut impl Write, status: &Status) -> io::Result<()> {
    if status.broken.is_empty() {
        return Ok(());
    }
    writeln!(out, "\ncannot be read:")?;
    for document in status.broken.iter().take(MAX_LINES) {
        let since = relative(document.since, status.at);
        let (path, reason) = (shown(&document.path), shown(&document.reason));
        writeln!(out, "{path}  {since}  ({reason})")?;
    }
    write_more(
        out,
        status.broken.len() + status.more_broken,
        "rsnotify check",
    )
}

fn write_notifications(out: &mut impl Write, status: &Status) -> io::Result<()> {
    if status.notifications.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nlast notifications:")?;
    let shown = status.notifications.iter().take(MAX_NOTIFICATIONS);
    for notification in shown {
        let changes = match notification.changes {
            Some(changes) => counted(changes, "change"),
            None => "changes".to_owned(),
        };
        let cut = relative(notification.cut, status.at);
        writeln!(
            out,
            "{cut}  {} of {}, {changes}: {}",
            notification.seq,
            notification.topic,
            outcomes(notification)
        )?;
    }
    match status.notifications.len().saturating_sub(MAX_NOTIFICATIONS) {
        0 => Ok(()),
        more => writeln!(
            out,
            "and {more} more: see `rsnotify status --json`, which has their payloads"
        ),
    }
}

/// Returns the outcome of a notification at each hub; the hub is left out if there is only one.
fn outcomes(notification: &NotificationView) -> String {
    let outcomes = notification.hubs.iter().map(|outcome| {
        let (words, hub) = (outcome.outcome.in_words(), &outcome.hub);
        match notification.hubs.len() {
            1 => words.to_owned(),
            _ => format!("{words} at {hub}"),
        }
    });
    outcomes.collect::<Vec<_>>().join(", ")
}

/// Returns a text of others escaped, in one line that is not too long.
fn shown(text: &str) -> String {
    excerpt(&escaped(text), MAX_CHARACTERS)
}

fn write_more(out: &mut impl Write, count: usize, command: &str) -> io::Result<()> {
    match count.saturating_sub(MAX_LINES) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more: see `{command}`"),
    }
}
