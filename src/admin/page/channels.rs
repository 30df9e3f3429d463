//! The pages of channels: all of them, some at a time and sought by plain forms, and each by itself.

use askama::Template;
use jiff::Timestamp;

use crate::admin::page::parameter;
use crate::admin::page::parts::{self, PER_PAGE, Waiting, waiting};
use crate::announce::delivery::form;
use crate::report::status::notification::NotificationView;
use crate::report::status::{ChannelView, Status};

/// What somebody looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub text: String,
    pub state: Sought,
    /// From 1.
    pub page: usize,
}

/// How the channels stand that somebody looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    Any,
    Troubled,
    Waiting,
    Retired,
}

const SOUGHT: [Sought; 4] = [
    Sought::Any,
    Sought::Troubled,
    Sought::Waiting,
    Sought::Retired,
];

impl Sought {
    pub fn name(self) -> &'static str {
        match self {
            Sought::Any => "",
            Sought::Troubled => "trouble",
            Sought::Waiting => "waiting",
            Sought::Retired => "retired",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Sought::Any => "any",
            Sought::Troubled => "a hub is failing",
            Sought::Waiting => "changes pending or held",
            Sought::Retired => "retired",
        }
    }

    fn suits(self, channel: &ChannelView) -> bool {
        match self {
            Sought::Any => true,
            Sought::Troubled => channel.worst().is_trouble(),
            Sought::Waiting => channel.pending_count() + channel.held_count() > 0,
            Sought::Retired => channel.retired.is_some(),
        }
    }
}

impl Filter {
    /// Whatever makes no sense counts as not said.
    pub fn from_query(parameters: &[(String, String)]) -> Filter {
        let state = parameter(parameters, "state").unwrap_or_default();
        let state = SOUGHT.into_iter().find(|own| own.name() == state);
        let page = parameter(parameters, "page").and_then(|page| page.parse().ok());
        Filter {
            text: parameter(parameters, "text")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            state: state.unwrap_or(Sought::Any),
            page: page.unwrap_or(1),
        }
    }

    pub fn choices(&self) -> [(&'static str, &'static str); 4] {
        SOUGHT.map(|own| (own.name(), own.words()))
    }

    pub fn seeks(&self, name: &str) -> bool {
        self.state.name() == name
    }

    pub fn at_page(&self, page: usize) -> String {
        let page = page.to_string();
        let parameters = [
            ("text", &*self.text),
            ("state", self.state.name()),
            ("page", &page),
        ];
        format!("/channels?{}", form(&parameters))
    }

    fn suits(&self, channel: &ChannelView) -> bool {
        let names = [channel.topic.as_str(), channel.set.as_str()];
        let hubs = channel.hubs.iter().map(|hub| hub.hub.as_str());
        self.state.suits(channel)
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
    own: String,
    now: Timestamp,
    filter: Filter,
    all: usize,
    found: usize,
    views: Vec<&'a ChannelView>,
    last_page: usize,
}

impl<'a> ChannelsPage<'a> {
    pub fn new(status: &'a Status, mut filter: Filter) -> ChannelsPage<'a> {
        let mut views = status.by_trouble();
        views.retain(|channel| filter.suits(channel));
        let found = views.len();
        let last_page = found.div_ceil(PER_PAGE).max(1);
        filter.page = filter.page.clamp(1, last_page);
        let before = (filter.page - 1) * PER_PAGE;
        ChannelsPage {
            page: "channels",
            own: filter.at_page(filter.page),
            now: status.at,
            all: status.channels.len(),
            found,
            views: views.into_iter().skip(before).take(PER_PAGE).collect(),
            last_page,
            filter,
        }
    }
}

/// One set's channel, with what waits on it.
struct Section<'a> {
    view: &'a ChannelView,
    waiting: Vec<Waiting<'a>>,
}

#[derive(Template)]
#[template(path = "channel.html")]
pub struct ChannelPage<'a> {
    page: &'static str,
    own: String,
    now: Timestamp,
    topic: &'a str,
    /// A topic may have been another set's before.
    views: Vec<Section<'a>>,
    notifications: Vec<&'a NotificationView>,
}

impl<'a> ChannelPage<'a> {
    /// Nothing if no channel has the topic.
    pub fn new(status: &'a Status, topic: &'a str) -> Option<ChannelPage<'a>> {
        let channels = status
            .channels
            .iter()
            .filter(|own| own.topic.as_str() == topic);
        let views = channels.map(|view| Section {
            view,
            waiting: waiting(std::iter::once(view)),
        });
        let views: Vec<Section<'a>> = views.collect();
        let own = parts::channel(&views.first()?.view.topic);
        let notifications = status.notifications.iter();
        Some(ChannelPage {
            page: "",
            own,
            now: status.at,
            topic,
            views,
            notifications: notifications
                .filter(|own| own.topic.as_str() == topic)
                .collect(),
        })
    }
}
