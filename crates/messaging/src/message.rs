//! Messages as a broker gets them: headers, properties that consumers select by, and ids that make repeats discardable.

use resourcesync::capability::ChannelKind;
use resourcesync::change_payload::ChangePayload;
use resourcesync::datetime::Datetime;
use resourcesync::feed::ATOM_TYPE;

use crate::frame::Frame;

/// The `type` of each message, which JMS has as `JMSType`.
pub const MESSAGE_TYPE: &str = "content-change";

/// The property that distinguishes messages about all resources, which `resend` sends, from those about changes.
pub const INITIAL: &str = "initial";

/// Longest value of a property or header that is made of a URI, in bytes. ActiveMQ refuses longer headers than 10 KiB.
pub(crate) const LONGEST_PROPERTY: usize = 4 << 10;

/// A notification that becomes messages.
#[derive(Debug, Clone, Copy)]
pub struct BrokerNotification<'a> {
    /// Name of the source.
    pub source: &'a str,
    /// Topic of the channel.
    pub topic: &'a str,
    /// Kind of the channel.
    pub kind: ChannelKind,
    /// Number of the notification on its channel, as the broker's account counts it.
    pub seq: u64,
    /// The payload.
    pub body: HashedPayload<'a>,
}

/// The payload that a hub would get, with the hash that the ids of all its messages are made of.
#[derive(Debug, Clone, Copy)]
pub struct HashedPayload<'a> {
    bytes: &'a [u8],
    hash: blake3::Hash,
    /// Datetimes that the payload lacks because they lie outside its interval, with the positions of their entries.
    outside: &'a [(usize, Datetime)],
}

impl<'a> HashedPayload<'a> {
    /// Hashes a payload, which lacks these datetimes because they lie outside its interval; with the positions of their
    /// entries.
    pub fn new(bytes: &'a [u8], outside: &'a [(usize, Datetime)]) -> HashedPayload<'a> {
        HashedPayload {
            bytes,
            hash: blake3::hash(bytes),
            outside,
        }
    }

    /// Returns the change notification that it is, with the datetimes that lie outside its interval.
    pub fn change_payload(&self) -> Option<ChangePayload> {
        let mut payload = ChangePayload::parse(self.bytes)?;
        for (position, datetime) in self.outside {
            if let Some(change) = payload.entries.get_mut(*position) {
                change.datetime = Some(*datetime);
            }
        }
        Some(payload)
    }
}

/// Position of an id among those of one notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IdPosition {
    /// The message that has the whole notification.
    Whole,
    /// The feed of this many changes of an object, by the number of the first. Both count, so that feeds of the same
    /// changes by other settings are no repeats.
    Feed { first: u64, count: u64 },
    /// The entry of a feed: the change with this number.
    Entry(u64),
}

/// Returns the identity of a message or of an entry (F4): a UUID of version 8, which is blake3 over the notification and the
/// position in it. A repeat has the same one, and nothing else has.
///
/// The body counts too, since numbers begin anew when a state file is lost, and new changes must not be discarded
/// as repeats of old ones.
pub(crate) fn message_id(notification: &BrokerNotification<'_>, position: IdPosition) -> String {
    let (kind, number, count) = match position {
        IdPosition::Whole => (0_u8, 0, 0),
        IdPosition::Feed { first, count } => (1, first, count),
        IdPosition::Entry(number) => (2, number, 1),
    };
    let mut hasher = blake3::Hasher::new();
    // Of a fixed length, or with its length, so that two positions never yield the same bytes.
    hasher.update(&(notification.topic.len() as u64).to_le_bytes());
    hasher.update(notification.topic.as_bytes());
    hasher.update(&notification.seq.to_le_bytes());
    hasher.update(&[kind]);
    hasher.update(&number.to_le_bytes());
    hasher.update(&count.to_le_bytes());
    hasher.update(notification.body.hash.as_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    // RFC 9562 section 5.8: version and variant.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| &digits[part]).join("-")
}

/// Returns an id as a URI.
pub(crate) fn urn(id: &str) -> String {
    format!("urn:uuid:{id}")
}

/// Returns the one message of a notification that is sent as hubs get it: `payload = "resourcesync"` (F3, F6).
pub fn resourcesync_message(notification: &BrokerNotification<'_>) -> Frame {
    let id = message_id(notification, IdPosition::Whole);
    let mut message = message_frame(&id, notification.topic, "application/xml", notification);
    message.body = notification.body.bytes.to_vec();
    message
}

/// Returns a message about an object (F3), with headers that STOMP or the brokers define and properties that consumers
/// select by. It lacks what a particular frame adds (destination, receipt, transaction, lengths), and its body, which is a
/// feed or the payload. Messages of one `group` are received in order even by consumers that compete.
pub(crate) fn message_frame(
    id: &str,
    group: &str,
    content_type: &str,
    notification: &BrokerNotification<'_>,
) -> Frame {
    let urn = urn(id);
    let group: &str = if group.len() <= LONGEST_PROPERTY {
        group
    } else {
        &blake3::hash(group.as_bytes()).to_hex()
    };
    let format = match content_type {
        ATOM_TYPE => "atom",
        _ => "resourcesync",
    };
    let headers = [
        ("type", MESSAGE_TYPE),
        ("content-type", content_type),
        ("correlation-id", &urn),
        ("JMSXGroupID", group),
        ("_AMQ_DUPL_ID", &urn),
        ("persistent", "true"),
        // Otherwise ActiveMQ makes bytes of a message that has a length.
        ("amq-msg-type", "text"),
        // The name of a property is a valid Java identifier, since JMS selectors take no other.
        ("messageId", id),
        ("format", format),
        ("kind", notification.kind.as_str()),
        ("source", notification.source),
        ("topic", notification.topic),
        ("seq", &notification.seq.to_string()),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Frame {
        headers: headers.into(),
        ..Frame::new("SEND")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use resourcesync::capability::ChannelKind;

    use super::{
        BrokerNotification, HashedPayload, IdPosition, MESSAGE_TYPE, message_id,
        resourcesync_message, urn,
    };

    fn notification() -> BrokerNotification<'static> {
        BrokerNotification {
            source: "main",
            topic: "https://e.org/changes",
            kind: ChannelKind::Change,
            seq: 7,
            body: HashedPayload::new(b"<urlset/>", &[]),
        }
    }

    #[test]
    fn a_message_repeats_the_payload_and_says_what_it_is() {
        let notification = notification();
        let message = resourcesync_message(&notification);
        let id = message_id(&notification, IdPosition::Whole);
        assert_eq!(message.body, notification.body.bytes);
        let headers = message.headers.iter();
        for (name, _) in headers.skip_while(|(name, _)| name != "messageId") {
            // Selectors can name it.
            let is_identifier = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let begins_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
            assert!(is_identifier && !begins_with_digit, "{name}");
        }
        for (name, want) in [
            ("messageId", id.as_str()),
            ("format", "resourcesync"),
            ("kind", "change"),
            ("source", "main"),
            ("topic", "https://e.org/changes"),
            ("seq", "7"),
        ] {
            assert_eq!(message.header(name), Some(want), "{name}");
        }
        for (name, want) in [
            ("type", MESSAGE_TYPE),
            ("correlation-id", urn(&id).as_str()),
            ("_AMQ_DUPL_ID", urn(&id).as_str()),
            ("JMSXGroupID", "https://e.org/changes"),
            ("persistent", "true"),
            ("amq-msg-type", "text"),
        ] {
            assert_eq!(message.header(name), Some(want), "{name}");
        }
    }

    #[test]
    fn an_id_is_a_uuid_of_version_8() {
        let position = IdPosition::Feed { first: 0, count: 1 };
        let id = message_id(&notification(), position);
        let parsed = uuid::Uuid::parse_str(&id).unwrap();
        assert_eq!(parsed.get_version_num(), 8);
        assert_eq!(parsed.get_variant(), uuid::Variant::RFC4122);
        assert_eq!(urn(&id), parsed.urn().to_string());
        assert_eq!(id, "d38aff5e-6775-884a-8b6d-a109c12aaa50");
    }

    #[test]
    fn a_repeat_has_the_same_id_and_nothing_else_has() {
        let mut others = [(); 4].map(|()| notification());
        others[1].topic = "https://e.org/change";
        others[2].seq = 8;
        others[3].body = HashedPayload::new(b"<urlset />", &[]);
        let mut ids = HashSet::new();
        let feed = |first| IdPosition::Feed { first, count: 1 };
        let positions = (0..300).flat_map(|at| [feed(at), IdPosition::Entry(at)]);
        for position in positions.chain([IdPosition::Whole]) {
            for notification in &others {
                let id = message_id(notification, position);
                assert_eq!(id, message_id(notification, position));
                assert!(ids.insert(id), "{position:?}");
            }
        }
    }
}
