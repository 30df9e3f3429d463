//! Submissions to hubs and message brokers, and the state of those that do not accept.
//!
//! [`hub_queue`] decides which of a hub's submissions may be sent (R23), [`attempt`] is the part of an answer that is
//! kept. `websub` makes requests and judges answers.

use std::sync::Arc;

use messaging::message::{BrokerNotification, HashedPayload};
use resourcesync::channel_kind::ChannelKind;
use resourcesync::datetime::Datetime;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::hub::{Relay, RelayHeaders, RelayId};
use websub::publisher::HubRequest;

use crate::plan::PublishMode;
use crate::state::ChannelId;

pub mod attempt;
pub mod hub_queue;

/// The channel, hub and sequence number of a submission: unique among all that are under way at the same time.
pub type SubmissionId = (ChannelId, Hub, u64);

/// One attempt to tell one hub or broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub channel: ChannelId,
    pub hub: Hub,
    pub mode: PublishMode,
    /// Number of the notification on its channel, from 1.
    pub seq: u64,
    /// The name of the source.
    pub source: String,
    pub kind: ChannelKind,
    pub topic: Topic,
    pub capability_list: Uri,
    /// The payload; a ping sends none of it.
    pub body: Arc<[u8]>,
    /// For a broker, the datetimes of changes that lie outside the interval of a change notification, with the positions of
    /// their entries: hubs are not sent them (C15), feeds have them (F6).
    pub outside: Vec<(usize, Datetime)>,
}

impl Submission {
    /// Returns what a hub is sent over HTTP.
    pub fn request(&self) -> HubRequest {
        let hub = self.hub.clone();
        if self.mode == PublishMode::Ping {
            return HubRequest::ping(hub, &self.topic);
        }
        HubRequest {
            in_query: (self.mode == PublishMode::ContentQuery).then(|| self.topic.clone()),
            ..HubRequest::content(hub, &self.topic, &self.capability_list, &self.body)
        }
    }

    /// Returns what a message broker is sent.
    pub fn notification(&self) -> BrokerNotification<'_> {
        BrokerNotification {
            source: &self.source,
            topic: self.topic.as_str(),
            kind: self.kind,
            seq: self.seq,
            body: HashedPayload::new(&self.body, &self.outside),
        }
    }

    /// Returns what the embedded hub relays.
    pub fn relayed(&self) -> Relay {
        Relay {
            id: RelayId::default(),
            topic: self.topic.clone(),
            seq: self.seq,
            body: Arc::clone(&self.body),
            headers: RelayHeaders {
                capability_list: Some(self.capability_list.clone()),
                ..RelayHeaders::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_form_over_http() {
        let payload: Arc<[u8]> = b"<urlset/>".as_slice().into();
        for (mode, is_content, is_in_query) in [
            (PublishMode::Content, true, false),
            (PublishMode::Embedded, true, false),
            (PublishMode::Broker, true, false),
            (PublishMode::ContentQuery, true, true),
            (PublishMode::Ping, false, false),
        ] {
            let submission = Submission {
                channel: ChannelId(1),
                hub: Hub::new("https://hub.example.net/websub/"),
                mode,
                seq: 1,
                source: "main".to_owned(),
                kind: ChannelKind::Framework,
                topic: Topic::new("https://e.org/set1/"),
                capability_list: Uri::parse("https://e.org/cl.xml").unwrap(),
                body: Arc::clone(&payload),
                outside: Vec::new(),
            };
            let request = submission.request();
            assert_eq!(request.body == payload, is_content);
            assert_eq!(request.in_query.is_some(), is_in_query);
        }
    }
}
