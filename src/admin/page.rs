//! The status page and its subpages: HTML without JavaScript or external resources.
//!
//! The templates escape everything that comes from files, hubs or the configuration.

mod parts;

use std::fmt::Write;

use announce::history::NotificationView;
use askama::Template;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use jiff::Timestamp;
use resourcesync::escape::escaped_lines;
use sha2::{Digest, Sha256};
use url::form_urlencoded;
use websub::headers::encode_form;

use crate::admin::page::parts::PER_PAGE;
use crate::admin::{AdminResponse, ok_response, text_response};
use crate::report::limited;
use crate::report::status::alerts::Alert;
use crate::report::status::{
    ChannelView, INTERVAL, INTERVALS, IntervalDeliveries, Status, WaitingDocument, pending_and_held,
};

/// Number of each that the page shows; others have their own pages.
const MAX_LISTED: usize = 20;
/// States of channels in the query, and in words.
const STATES: [(&str, &str); 4] = [
    ("", "any"),
    ("trouble", "a hub is failing"),
    ("waiting", "changes pending or held"),
    ("retired", "retired"),
];
/// Width of an interval, and height of the picture, in its own units.
const WIDTH: usize = 8;
const HEIGHT: u64 = 100;

/// Returns the page at a path. The status page renews itself unless the query is `refresh=no`; `/channels` has all channels,
/// page by page, `/channel?topic=TOPIC` one of them, `/payload?topic=TOPIC&seq=NUMBER` the payload of one of the last
/// notifications as it was sent, and `/configuration` the effective configuration with secrets masked.
pub(super) fn page_at(path: &str, query: &str, status: &Status) -> AdminResponse {
    let query = form_urlencoded::parse(query.as_bytes()).into_owned();
    let query: Vec<(String, String)> = query.collect();
    let topic = parameter(&query, "topic");
    match path {
        "/channels" => html(&ChannelsPage::new(status, &query)),
        "/channel" => match topic.map(|topic| ChannelPage::new(status, topic)) {
            Some(Some(page)) => html(&page),
            Some(None) => not_found("no channel has this topic"),
            None => not_found("parameter topic is missing"),
        },
        "/subscriptions" => html(&SubscriptionsPage {
            address: path,
            status,
        }),
        "/payload" => {
            let seq = parameter(&query, "seq").and_then(|seq| seq.parse::<u64>().ok());
            let (Some(topic), Some(seq)) = (topic, seq) else {
                return not_found("parameters topic and seq are missing");
            };
            let mut views = status.notifications.iter();
            let found = views.find(|view| view.topic.as_str() == topic && view.seq == seq);
            match found.and_then(|view| view.payload.as_ref()) {
                Some(body) => text(body.as_text().into_owned()),
                None => not_found("payload no longer kept"),
            }
        }
        "/configuration" => match &status.configuration {
            Some(configuration) => text(configuration.effective.clone()),
            None => not_found("no configuration is known"),
        },
        _ => match parameter(&query, "refresh") {
            Some("no") => html(&OverviewPage::new(status, "/?refresh=no")),
            _ => html(&OverviewPage::new(status, "/")),
        },
    }
}

/// The subscriptions, failing ones first.
#[derive(Template)]
#[template(path = "subscriptions.html")]
struct SubscriptionsPage<'a> {
    address: &'a str,
    status: &'a Status,
}

fn html(page: &impl Template) -> AdminResponse {
    match page.render() {
        Ok(page) => {
            let page = escaped_lines(&page).into_owned();
            secured(ok_response("text/html; charset=utf-8", page))
        }
        Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(text: String) -> AdminResponse {
    secured(text_response(StatusCode::OK, text))
}

fn not_found(message: &str) -> AdminResponse {
    secured(text_response(StatusCode::NOT_FOUND, format!("{message}\n")))
}

/// Adds headers by which the browser runs and loads nothing, sniffs no type, caches nothing and sends no referrer.
fn secured(mut page: AdminResponse) -> AdminResponse {
    let style = BASE64_STANDARD.encode(Sha256::digest(parts::STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("base64 is valid in a header");
    let fixed = |name: HeaderName, value| (name, HeaderValue::from_static(value));
    page.headers_mut().extend([
        (CONTENT_SECURITY_POLICY, policy),
        fixed(X_CONTENT_TYPE_OPTIONS, "nosniff"),
        fixed(CACHE_CONTROL, "no-store"),
        fixed(REFERRER_POLICY, "no-referrer"),
    ]);
    page
}

fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = parameters.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

/// The status page, which leads to the others.
#[derive(Template)]
#[template(path = "status.html")]
struct OverviewPage<'a> {
    /// `/`, or `/?refresh=no` if the page does not renew itself.
    address: &'static str,
    status: &'a Status,
    alerts: Vec<Alert>,
    more_alerts: usize,
    documents: usize,
    channels: Vec<&'a ChannelView>,
    more_channels: usize,
    waiting: Vec<(&'static str, &'a WaitingDocument)>,
    more_waiting: usize,
}

impl<'a> OverviewPage<'a> {
    fn new(status: &'a Status, address: &'static str) -> OverviewPage<'a> {
        let (alerts, more_alerts) = limited(status.alerts(), MAX_LISTED);
        let (channels, more_channels) = limited(status.channels_by_trouble(), MAX_LISTED);
        let (waiting, beyond) = limited(pending_and_held(&status.channels), MAX_LISTED);
        let all = status.channels.iter();
        let not_listed = all.map(|channel| channel.more_pending + channel.more_held);
        OverviewPage {
            address,
            status,
            alerts,
            more_alerts,
            documents: status.sources.iter().map(|source| source.documents).sum(),
            channels,
            more_channels,
            more_waiting: beyond + not_listed.sum::<usize>(),
            waiting,
        }
    }
}

#[derive(Template)]
#[template(path = "channels.html")]
struct ChannelsPage<'a> {
    address: String,
    status: &'a Status,
    /// Text that the topic, the set or a hub contains.
    text: &'a str,
    /// State of the channels to list, as the query names it.
    state: &'static str,
    found: usize,
    views: Vec<&'a ChannelView>,
    /// Page number, from 1.
    number: usize,
    last_page: usize,
}

impl<'a> ChannelsPage<'a> {
    /// Lists the channels that a query asks for; invalid values count as absent.
    fn new(status: &'a Status, query: &'a [(String, String)]) -> ChannelsPage<'a> {
        let value = |name| parameter(query, name).unwrap_or_default();
        let text = value("text").trim();
        let mut states = STATES.iter().map(|(name, _)| *name);
        let state = states
            .find(|name| *name == value("state"))
            .unwrap_or_default();
        let mut views = status.channels_by_trouble();
        views.retain(|channel| channel_matches(channel, text, state));
        let found = views.len();
        let last_page = found.div_ceil(PER_PAGE).max(1);
        let number = value("page").parse().unwrap_or(1).clamp(1, last_page);
        let before = (number - 1) * PER_PAGE;
        ChannelsPage {
            address: channels_address(text, state, number),
            status,
            text,
            state,
            found,
            views: views.into_iter().skip(before).take(PER_PAGE).collect(),
            number,
            last_page,
        }
    }

    fn address_of_page(&self, number: usize) -> String {
        channels_address(self.text, self.state, number)
    }
}

fn channels_address(text: &str, state: &str, number: usize) -> String {
    let number = number.to_string();
    let parameters = [("text", text), ("state", state), ("page", &number)];
    format!("/channels?{}", encode_form(&parameters))
}

fn channel_matches(channel: &ChannelView, text: &str, state: &str) -> bool {
    let names = [channel.topic.as_str(), channel.set.as_str()];
    let hubs = channel.hubs.iter().map(|hub| hub.hub.as_str());
    let is_in_state = match state {
        "trouble" => channel.worst().is_trouble(),
        "waiting" => channel.pending_count() + channel.held_count() > 0,
        "retired" => channel.retired.is_some(),
        _ => true,
    };
    let mut names = names.into_iter().chain(hubs);
    is_in_state && names.any(|name| name.contains(text))
}

#[derive(Template)]
#[template(path = "channel.html")]
struct ChannelPage<'a> {
    address: String,
    status: &'a Status,
    topic: &'a str,
    /// One for each set that has or had the topic, with its pending and held changes.
    views: Vec<(&'a ChannelView, Vec<(&'static str, &'a WaitingDocument)>)>,
    notifications: Vec<&'a NotificationView>,
}

impl<'a> ChannelPage<'a> {
    /// Returns `None` if no channel has the topic.
    fn new(status: &'a Status, topic: &'a str) -> Option<ChannelPage<'a>> {
        let all = status.channels.iter();
        let channels = all.filter(|channel| channel.topic.as_str() == topic);
        let views = channels
            .map(|view| (view, pending_and_held([view])))
            .collect::<Vec<_>>();
        let address = parts::channel_url(&views.first()?.0.topic);
        let made = status.notifications.iter();
        let notifications = made.filter(|view| view.topic.as_str() == topic);
        Some(ChannelPage {
            address,
            status,
            topic,
            views,
            notifications: notifications.collect(),
        })
    }
}

/// The shapes of the picture.
struct DayPicture {
    /// The bars of intervals, each with its place and the heights of its parts: the failures stand on the deliveries.
    bars: Vec<(usize, u64, u64)>,
    /// The points of the line of pending deliveries; empty if none were.
    pending: String,
    /// The places of intervals in which the daemon started.
    starts: Vec<usize>,
    /// The times at the beginning of each quarter of the picture.
    ticks: Vec<Timestamp>,
    /// Maximum of deliveries and failures in an interval.
    max: u64,
    max_pending: u64,
    delivered: u64,
    failed: u64,
    retries: u64,
    started: u64,
}

impl DayPicture {
    const WIDTH: usize = WIDTH * INTERVALS;
    const HEIGHT: u64 = HEIGHT;
    const BAR: usize = WIDTH - 1;

    /// Draws the intervals, the last at the right.
    fn new(intervals: &[IntervalDeliveries]) -> DayPicture {
        type Figure = fn(&IntervalDeliveries) -> u64;
        let sum = |figure: Figure| intervals.iter().map(figure).sum();
        let highest = |figure: Figure| intervals.iter().map(figure).max().unwrap_or(0);
        let max = highest(|one| one.delivered + one.failed);
        let max_pending = highest(|one| one.pending);
        let first = INTERVALS.saturating_sub(intervals.len());
        let places = (first..).map(|place| place * WIDTH);
        let mut pending = String::new();
        let (mut bars, mut starts) = (Vec::new(), Vec::new());
        for (x, one) in places.zip(intervals) {
            let delivered = scaled_height(one.delivered, max);
            let failed = scaled_height(one.failed, max).min(HEIGHT - delivered);
            if delivered + failed > 0 {
                bars.push((x, delivered, failed));
            }
            if one.starts > 0 {
                starts.push(x);
            }
            if max_pending > 0 {
                let y = HEIGHT - scaled_height(one.pending, max_pending);
                // Writing to a String cannot fail.
                let _ = write!(pending, "{x},{y} {},{y} ", x + WIDTH);
            }
        }
        DayPicture {
            bars,
            pending,
            starts,
            ticks: intervals.last().map_or(Vec::new(), ticks),
            max,
            max_pending,
            delivered: sum(|one| one.delivered),
            failed: sum(|one| one.failed),
            retries: sum(|one| one.retries),
            started: sum(|one| one.starts),
        }
    }
}

/// Returns the times at the beginning of each quarter of a day that ends with the interval.
fn ticks(last: &IntervalDeliveries) -> Vec<Timestamp> {
    let end = (last.from.as_second().div_euclid(INTERVAL) + 1) * INTERVAL;
    let ticks = [24, 18, 12, 6].map(|hours| Timestamp::from_second(end - hours * 3_600));
    ticks.into_iter().flatten().collect()
}

/// Returns the height of a value; any value above zero is visible.
fn scaled_height(value: u64, max: u64) -> u64 {
    match value {
        0 => 0,
        value => (value.saturating_mul(HEIGHT) / max.max(1)).clamp(2, HEIGHT),
    }
}

#[cfg(test)]
mod tests;
