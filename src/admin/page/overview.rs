//! The status page itself: whether all is well, then everything else, never more than fits.

use askama::Template;
use jiff::Timestamp;

use crate::admin::page::parts::{self, Waiting, waiting};
use crate::report::status::alerts::{Alert, Health};
use crate::report::status::hubs::HubSummary;
use crate::report::status::{ChannelView, Status};

/// So many of each are shown; others have pages of their own.
const MOST_CHANNELS: usize = 20;
const MOST_ALERTS: usize = 20;
const MOST_WAITING: usize = 20;

#[derive(Template)]
#[template(path = "status.html")]
pub struct Overview<'a> {
    page: &'static str,
    own: &'static str,
    now: Timestamp,
    status: &'a Status,
    verdict: Health,
    alerts: Vec<Alert>,
    more_alerts: usize,
    documents: usize,
    hubs: Vec<HubSummary<'a>>,
    channels: Vec<&'a ChannelView>,
    more_channels: usize,
    pending: usize,
    held: usize,
    waiting: Vec<Waiting<'a>>,
    more_waiting: usize,
    /// How many findings somebody knows of.
    acknowledged: usize,
}

impl<'a> Overview<'a> {
    pub fn new(status: &'a Status) -> Overview<'a> {
        let (alerts, more_alerts) = first(status.alerts(), MOST_ALERTS);
        let (channels, more_channels) = first(status.by_trouble(), MOST_CHANNELS);
        let pending = status.channels.iter().map(ChannelView::pending_count).sum();
        let held = status.channels.iter().map(ChannelView::held_count).sum();
        let (waiting, beyond) = first(waiting(status.channels.iter()), MOST_WAITING);
        let untold = status
            .channels
            .iter()
            .map(|own| own.more_pending + own.more_held);
        let known = status.finding_groups.iter().filter(|own| own.acknowledged);
        Overview {
            page: "status",
            own: "/",
            now: status.at,
            status,
            verdict: status.health(),
            alerts,
            more_alerts,
            documents: status.sources.iter().map(|source| source.documents).sum(),
            hubs: status.hubs(),
            channels,
            more_channels,
            pending,
            held,
            more_waiting: beyond + untold.sum::<usize>(),
            waiting,
            acknowledged: known.map(|own| own.count).sum(),
        }
    }
}

/// The first of them, and how many more there are.
fn first<T>(mut all: Vec<T>, most: usize) -> (Vec<T>, usize) {
    let more = all.len().saturating_sub(most);
    all.truncate(most);
    (all, more)
}
