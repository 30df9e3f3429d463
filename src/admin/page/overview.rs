//! The status page: the verdict, then everything else, each list bounded.

use askama::Template;

use crate::admin::page::day::DayPicture;
use crate::admin::page::parts;
use crate::report::limited;
use crate::report::status::alerts::{Alert, Health};
use crate::report::status::hubs::HubSummary;
use crate::report::status::{ChannelView, Status, WaitingView, waiting_changes};

/// Number of each that the page shows; others have their own pages.
const MAX_CHANNELS: usize = 20;
const MAX_ALERTS: usize = 20;
const MAX_WAITING: usize = 20;

/// The status page, which leads to the others.
#[derive(Template)]
#[template(path = "status.html")]
pub struct OverviewPage<'a> {
    page: &'static str,
    address: &'static str,
    status: &'a Status,
    verdict: Health,
    alerts: Vec<Alert>,
    more_alerts: usize,
    documents: usize,
    hubs: Vec<HubSummary<'a>>,
    channels: Vec<&'a ChannelView>,
    more_channels: usize,
    waiting: Vec<(&'static str, &'a WaitingView)>,
    more_waiting: usize,
    /// The last 24 hours.
    day: DayPicture,
    /// True if the page does not renew itself.
    is_still: bool,
}

impl<'a> OverviewPage<'a> {
    pub fn new(status: &'a Status, is_still: bool) -> OverviewPage<'a> {
        let (alerts, more_alerts) = limited(status.alerts(), MAX_ALERTS);
        let (channels, more_channels) = limited(status.by_trouble(), MAX_CHANNELS);
        let (waiting, beyond) = limited(waiting_changes(&status.channels), MAX_WAITING);
        let not_listed = status
            .channels
            .iter()
            .map(|channel| channel.more_pending + channel.more_held);
        OverviewPage {
            page: "status",
            address: if is_still { "/?refresh=no" } else { "/" },
            status,
            verdict: status.health(),
            alerts,
            more_alerts,
            documents: status.sources.iter().map(|source| source.documents).sum(),
            hubs: status.hubs(),
            channels,
            more_channels,
            more_waiting: beyond + not_listed.sum::<usize>(),
            waiting,
            day: DayPicture::new(&status.last_day),
            is_still,
        }
    }
}
