//! `status`: daemon status, with what requires action first.

use std::cmp::Reverse;
use std::io::Write;
use std::path::Path;

use askama::Template;
use resourcesync::capability::ChannelKind;

use crate::cli::daemon_client::{DaemonClient, unexpected_answer};
use crate::cli::options::DaemonQueryOptions;
use crate::cli::outbox::{account_rows, account_table};
use crate::cli::{Exit, output};
use crate::control::{ControlReply, ControlRequest};
use crate::report::status::alerts::{self, Alert, Health};
use crate::report::status::{
    BacklogView, ChannelView, HubView, Status, WaitingDocument, pending_and_held,
};
use announce::plan::PublishMode;

/// The maximum number of lines of one kind; for the others, the command that prints them is named.
const MAX_LINES: usize = 20;
/// The number of last notifications that are printed.
const MAX_NOTIFICATIONS: usize = 10;

pub fn status(file: Option<&Path>, options: &DaemonQueryOptions) -> anyhow::Result<Exit> {
    let mut daemon = DaemonClient::new(file, options)?;
    let ControlReply::Status(status) = daemon.ask(ControlRequest::Status)? else {
        return Err(unexpected_answer());
    };
    daemon.print_answer(&status, |out| {
        writeln!(out, "{}", StatusText::new(&status, daemon.is_running))
    })
}

/// The status as text, for an operator.
#[derive(Template)]
#[template(path = "status.txt", whitespace = "preserve")]
struct StatusText<'a> {
    status: &'a Status,
    is_running: bool,
    /// All but that the state cannot be saved.
    alerts: Vec<Alert>,
    /// The lines about hubs that fail on a channel, and their number.
    troubled: Vec<String>,
    all_troubled: usize,
    /// What hubs are due on change channels, those furthest behind first.
    backlogs: Vec<(&'a ChannelView, &'a HubView, &'a BacklogView)>,
    waiting: Vec<(&'static str, &'a WaitingDocument)>,
    more_waiting: usize,
}

impl<'a> StatusText<'a> {
    fn new(status: &'a Status, is_running: bool) -> StatusText<'a> {
        let channels = || status.channels.iter();
        let mut alerts = status.alerts();
        alerts.retain(|alert| alert.part != alerts::StatusPart::State);
        let due = channels().flat_map(|channel| {
            let hubs = channel.hubs.iter().filter(|hub| hub.due > 0);
            hubs.filter_map(move |hub| Some((channel, hub, hub.backlog.as_ref()?)))
        });
        let mut backlogs: Vec<_> = due.collect();
        backlogs.sort_by_key(|(channel, hub, backlog)| {
            (Reverse(backlog.changes), &channel.topic, &hub.hub)
        });
        let waiting = pending_and_held(&status.channels);
        // Of each channel, the status itself has only those that wait for longest.
        let documents = channels().filter(|channel| channel.kind == ChannelKind::Framework);
        let untold = documents.map(|channel| channel.more_pending + channel.more_held);
        let troubled = account_rows(&status.channels, |hub| hub.state.is_trouble());
        StatusText {
            status,
            is_running,
            alerts,
            troubled: account_table(&troubled[..troubled.len().min(MAX_LINES)], status.at),
            all_troubled: troubled.len(),
            backlogs,
            more_waiting: waiting.len().saturating_sub(MAX_LINES) + untold.sum::<usize>(),
            waiting,
        }
    }

    /// Returns a line about those of so many that are not printed, if there are any.
    fn others_line(&self, count: usize, command: &str) -> String {
        match count.saturating_sub(MAX_LINES) {
            0 => String::new(),
            more => format!("\nand {more} more: see `{command}`"),
        }
    }
}
