//! The pages of channels: a list with filters, and one page for each.

use askama::Template;
use websub::headers::encode_form;

use crate::admin::page::parameter;
use crate::admin::page::parts::{self, PER_PAGE};
use crate::announce::history::NotificationView;
use crate::report::status::{ChannelView, Status, WaitingView, waiting};

/// Filter of the list of channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelFilter {
    pub text: String,
    /// State of the channels to list, as the query names it.
    pub state: &'static str,
    /// Page number, from 1.
    pub page: usize,
}

/// States of channels in the query, and in words.
const STATES: [(&str, &str); 4] = [
    ("", "any"),
    ("trouble", "a hub is failing"),
    ("waiting", "changes pending or held"),
    ("retired", "retired"),
];

impl ChannelFilter {
    /// Reads the filter from a query; invalid values count as absent.
    pub fn from_query(parameters: &[(String, String)]) -> ChannelFilter {
        let state = parameter(parameters, "state").unwrap_or_default();
        let state = STATES.into_iter().find(|(name, _)| *name == state);
        let page = parameter(parameters, "page").and_then(|page| page.parse().ok());
        ChannelFilter {
            text: parameter(parameters, "text")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            state: state.map_or("", |(name, _)| name),
            page: page.unwrap_or(1),
        }
    }

    pub fn at_page(&self, page: usize) -> String {
        let page = page.to_string();
        let parameters = [
            ("text", &*self.text),
            ("state", self.state),
            ("page", &page),
        ];
        format!("/channels?{}", encode_form(&parameters))
    }

    fn matches(&self, channel: &ChannelView) -> bool {
        let names = [channel.topic.as_str(), channel.set.as_str()];
        let hubs = channel.hubs.iter().map(|hub| hub.hub.as_str());
        let is_in_state = match self.state {
            "trouble" => channel.worst().is_trouble(),
            "waiting" => channel.pending_count() + channel.held_count() > 0,
            "retired" => channel.retired.is_some(),
            _ => true,
        };
        is_in_state
            && names
                .into_iter()
                .chain(hubs)
                .any(|name| name.contains(&self.text))
    }
}

#[derive(Template)]
#[template(path = "channels.html")]
pub struct ChannelsPage<'a> {
    page: &'static str,
    address: String,
    status: &'a Status,
    filter: ChannelFilter,
    found: usize,
    views: Vec<&'a ChannelView>,
    last_page: usize,
}

impl<'a> ChannelsPage<'a> {
    pub fn new(status: &'a Status, mut filter: ChannelFilter) -> ChannelsPage<'a> {
        let mut views = status.by_trouble();
        views.retain(|channel| filter.matches(channel));
        let found = views.len();
        let last_page = found.div_ceil(PER_PAGE).max(1);
        filter.page = filter.page.clamp(1, last_page);
        let before = (filter.page - 1) * PER_PAGE;
        ChannelsPage {
            page: "channels",
            address: filter.at_page(filter.page),
            status,
            found,
            views: views.into_iter().skip(before).take(PER_PAGE).collect(),
            last_page,
            filter,
        }
    }
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
        let views: Vec<_> = channels.map(|view| (view, waiting([view]))).collect();
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
