//! The pages of channels: a list with filters, and one page for each.

use askama::Template;
use websub::headers::encode_form;

use crate::admin::page::parameter;
use crate::admin::page::parts::{self, PER_PAGE};
use crate::report::status::{ChannelView, Status, WaitingView, waiting_changes};
use announce::history::NotificationView;

/// States of channels in the query, and in words.
const STATES: [(&str, &str); 4] = [
    ("", "any"),
    ("trouble", "a hub is failing"),
    ("waiting", "changes pending or held"),
    ("retired", "retired"),
];

#[derive(Template)]
#[template(path = "channels.html")]
pub struct ChannelsPage<'a> {
    page: &'static str,
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
    pub fn new(status: &'a Status, query: &'a [(String, String)]) -> ChannelsPage<'a> {
        let value = |name| parameter(query, name).unwrap_or_default();
        let text = value("text").trim();
        let mut states = STATES.iter().map(|(name, _)| *name);
        let state = states.find(|name| *name == value("state"));
        let state = state.unwrap_or_default();
        let mut views = status.by_trouble();
        views.retain(|channel| matches(channel, text, state));
        let found = views.len();
        let last_page = found.div_ceil(PER_PAGE).max(1);
        let number = value("page").parse().unwrap_or(1).clamp(1, last_page);
        let before = (number - 1) * PER_PAGE;
        ChannelsPage {
            page: "channels",
            address: address(text, state, number),
            status,
            text,
            state,
            found,
            views: views.into_iter().skip(before).take(PER_PAGE).collect(),
            number,
            last_page,
        }
    }

    fn at_page(&self, number: usize) -> String {
        address(self.text, self.state, number)
    }
}

fn address(text: &str, state: &str, number: usize) -> String {
    let number = number.to_string();
    let parameters = [("text", text), ("state", state), ("page", &number)];
    format!("/channels?{}", encode_form(&parameters))
}

fn matches(channel: &ChannelView, text: &str, state: &str) -> bool {
    let names = [channel.topic.as_str(), channel.set.as_str()];
    let hubs = channel.hubs.iter().map(|hub| hub.hub.as_str());
    let is_in_state = match state {
        "trouble" => channel.worst().is_trouble(),
        "waiting" => channel.pending_count() + channel.held_count() > 0,
        "retired" => channel.retired.is_some(),
        _ => true,
    };
    is_in_state
        && names
            .into_iter()
            .chain(hubs)
            .any(|name| name.contains(text))
}

#[derive(Template)]
#[template(path = "channel.html")]
pub struct ChannelPage<'a> {
    page: &'static str,
    address: String,
    status: &'a Status,
    topic: &'a str,
    /// One for each set that has or had the topic, with its pending and held changes.
    views: Vec<(&'a ChannelView, Vec<(&'static str, &'a WaitingView)>)>,
    notifications: Vec<&'a NotificationView>,
}

impl<'a> ChannelPage<'a> {
    /// Returns `None` if no channel has the topic.
    pub fn new(status: &'a Status, topic: &'a str) -> Option<ChannelPage<'a>> {
        let channels = status
            .channels
            .iter()
            .filter(|channel| channel.topic.as_str() == topic);
        let views: Vec<_> = channels
            .map(|view| (view, waiting_changes([view])))
            .collect();
        let address = parts::channel(&views.first()?.0.topic);
        let notifications = status.notifications.iter();
        Some(ChannelPage {
            page: "",
            address,
            status,
            topic,
            views,
            notifications: notifications
                .filter(|notification| notification.topic.as_str() == topic)
                .collect(),
        })
    }
}
