//! The outbox as text, for an operator.

use askama::Template;
use jiff::Timestamp;

use crate::cli::output::{self, aligned, next_try};
use crate::report::outbox::AccountView;
use crate::report::status::{ChannelView, HubView};
use announce::plan::PublishMode;

/// One hub on one channel.
pub type Row<'a> = (&'a ChannelView, &'a HubView);

/// Returns the hubs that are meant, each on each channel, those in the worst condition first.
pub fn rows(channels: &[ChannelView], is_meant: impl Fn(&HubView) -> bool) -> Vec<Row<'_>> {
    let rows = channels
        .iter()
        .flat_map(|channel| channel.hubs.iter().map(move |hub| (channel, hub)));
    let mut rows: Vec<Row<'_>> = rows.filter(|(_, hub)| is_meant(hub)).collect();
    rows.sort_by_key(|(channel, hub)| (hub.state, &channel.topic, &hub.hub));
    rows
}

/// Returns a line for each row, in columns, below a header.
pub fn table(rows: &[Row<'_>], now: Timestamp) -> Vec<String> {
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
            next_try(hub.next_try, now)
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
    let mut lines = aligned(header, lines, &[2, 3]);
    for (line, (_, hub)) in lines.iter_mut().skip(1).zip(rows) {
        if let Some(reason) = hub.trouble() {
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
pub struct DueText<'a> {
    pub account: &'a AccountView,
}
