//! Replies of topics and hubs, as they look from outside.

use jiff::Timestamp;
use resourcesync::payload::Payload;
use resourcesync::receive::Notification;

use crate::headers::Links;

#[cfg(feature = "publisher")]
pub mod http;

/// Reply to a `HEAD` or `GET` of ours, redirections not followed.
pub type ProbeResult = Result<ProbeReply, ProbeError>;

/// A reply. Repeated headers are joined by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReply {
    /// HTTP status.
    pub status: u16,
    /// Value of the `Location` header.
    pub location: Option<String>,
    /// Value of the `Content-Type` header.
    pub content_type: Option<String>,
    /// Value of the `Content-Encoding` header.
    pub content_encoding: Option<String>,
    /// Value of the `Date` header.
    pub date: Option<String>,
    /// Value of the `Age` header.
    pub age: Option<String>,
    /// Links of the reply.
    pub links: Links,
    /// Summary of the body.
    pub body: BodyKind,
    /// Time of arrival, by our clock.
    pub at: Timestamp,
}

/// Summary of a reply's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyKind {
    /// No body.
    Empty,
    /// A notification.
    Payload,
    /// Its first bytes, and the reason why it is no payload.
    Other {
        /// First bytes.
        beginning: Vec<u8>,
        /// The reason why it is no payload.
        reason: String,
    },
}

impl BodyKind {
    /// Bytes of a body to read, one more than the largest payload has.
    pub const MAX_READ: usize = (1 << 20) + 1;
    /// Bytes kept of a body that is no payload.
    const EXCERPT: usize = 100;

    /// Classifies a body, of which `MAX_READ` bytes are enough.
    pub fn read(body: &[u8]) -> BodyKind {
        let reason = match body.len() {
            0 => return BodyKind::Empty,
            BodyKind::MAX_READ.. => "it is longer than any".to_owned(),
            _ => match (Payload::parse(body), Notification::parse(body)) {
                (Ok(_), _) | (_, Ok(_)) => return BodyKind::Payload,
                (Err(error), _) => error.to_string(),
            },
        };
        BodyKind::Other {
            beginning: body[..body.len().min(BodyKind::EXCERPT)].to_vec(),
            reason,
        }
    }

    /// Returns true if the body is this text of ours.
    pub fn is_exactly(&self, text: &str) -> bool {
        matches!(self, BodyKind::Other { beginning, .. } if beginning == text.as_bytes())
    }
}

/// A request without a reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    /// The cause.
    pub cause: FailureCause,
    /// The message of the operating system or the TLS library.
    pub message: String,
}

/// Usual causes of a failed request, each with its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureCause {
    /// The host name has no address.
    Name,
    /// Nothing listens there.
    Refused,
    /// There was no answer in time.
    Timeout,
    /// The certificate's issuer is unknown.
    UnknownIssuer,
    /// The certificate is that of an authority, used by a server.
    SelfSignedAuthority,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is for other names.
    OtherName,
    /// The server does not speak TLS there.
    NoTls,
    /// Any other cause.
    Unknown,
}

/// Replies of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicReplies {
    /// Reply to `HEAD`.
    pub head: ProbeResult,
    /// `None` if `HEAD` had no answer.
    pub get: Option<ProbeResult>,
}

#[cfg(test)]
mod tests {
    use resourcesync::change_payload::ChangePayload;

    use super::*;
    use crate::hub::request::HUB_GREETING;
    use crate::topics::NO_SUCH_TOPIC;

    #[test]
    fn little_is_kept_of_a_body() {
        assert_eq!(BodyKind::read(b""), BodyKind::Empty);
        assert_eq!(
            BodyKind::read(&Payload::default().render()),
            BodyKind::Payload
        );
        let change = ChangePayload {
            up: None,
            from: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            entries: Vec::new(),
        };
        assert_eq!(BodyKind::read(&change.render()), BodyKind::Payload);
        let long = vec![b'x'; BodyKind::MAX_READ];
        for (body, reason) in [(&long[..99], ""), (&long[..], "it is longer than any")] {
            let BodyKind::Other {
                beginning,
                reason: found,
            } = BodyKind::read(body)
            else {
                panic!("{} bytes are no payload", body.len());
            };
            assert!(found.contains(reason), "{found}");
            assert!(beginning.len() <= 100 && body.starts_with(&beginning));
        }
        assert!(BodyKind::read(NO_SUCH_TOPIC.as_bytes()).is_exactly(NO_SUCH_TOPIC));
        assert!(BodyKind::read(HUB_GREETING.as_bytes()).is_exactly(HUB_GREETING));
        assert!(!BodyKind::Empty.is_exactly(NO_SUCH_TOPIC));
    }
}
