//! The diagnostics of `check`: problems around rsnotify with their remedies, derived from facts that adaptors bring.
//!
//! [`topic`] and [`hub`] judge replies, [`clock`] compares clocks, [`machine`] checks limits and permissions, and
//! [`access`] knows the remedies for unreadable directories. [`changes`] has notes about change channels.

pub mod access;
pub mod broker;
pub mod changes;
pub mod clock;
pub mod hub;
pub mod machine;
pub mod topic;

use jiff::Timestamp;
use resourcesync::payload::Payload;
use resourcesync::receive::Notification;
use url::Url;

/// Body of our own 404 for an unknown topic, by which `check` recognises it.
pub const NO_SUCH_TOPIC: &str = "no such topic\n";
/// Body of our own hub's answer to a `GET`.
pub const HUB_GREETING: &str = "this is a WebSub hub: POST a subscription form\n";

/// Body of the answer of `rsnotify hub` to a `GET`.
pub const PUBLIC_HUB_GREETING: &str =
    "this is a WebSub hub: POST a subscription form, or a notification as a publisher\n";

/// A message to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// The operation, its object and the result.
    pub message: String,
    /// Usual cause and remedy; empty if obvious.
    pub remedy: String,
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A problem; `check` exits with 1.
    Finding,
    /// Information that does not change the exit code.
    Note,
}

impl Diagnostic {
    pub fn finding(message: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Finding,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    pub fn note(message: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Note,
            ..Diagnostic::finding(message, remedy)
        }
    }

    /// Returns message and remedy in one line.
    pub fn line(&self) -> String {
        match self.remedy.as_str() {
            "" => self.message.clone(),
            remedy => format!("{}: {remedy}", self.message),
        }
    }
}

/// Reply to a `HEAD` or `GET` of ours, redirections not followed.
pub type ProbeResult = Result<ProbeReply, ProbeError>;

/// A reply. Repeated headers are joined by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReply {
    pub status: u16,
    pub location: Option<String>,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub date: Option<String>,
    pub age: Option<String>,
    pub links: Links,
    pub body: ReplyBody,
    /// Time of arrival, by our clock.
    pub at: Timestamp,
}

/// Targets of the `Link` header by relation, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    pub self_links: Vec<String>,
    pub hubs: Vec<String>,
    pub capability_lists: Vec<String>,
}

/// Summary of a reply's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBody {
    Empty,
    Payload,
    /// Its first bytes, and the reason why it is no payload.
    Other {
        beginning: Vec<u8>,
        reason: String,
    },
}

impl ReplyBody {
    /// Bytes of a body to read, one more than the largest payload has.
    pub const MAX_READ: usize = (1 << 20) + 1;
    /// Bytes kept of a body that is no payload.
    const EXCERPT: usize = 100;

    /// Classifies a body, of which `MAX_READ` bytes are enough.
    pub fn read(body: &[u8]) -> ReplyBody {
        let reason = match body.len() {
            0 => return ReplyBody::Empty,
            ReplyBody::MAX_READ.. => "it is longer than any".to_owned(),
            _ => match (Payload::parse(body), Notification::parse(body)) {
                (Ok(_), _) | (_, Ok(_)) => return ReplyBody::Payload,
                (Err(error), _) => error.to_string(),
            },
        };
        ReplyBody::Other {
            beginning: body[..body.len().min(ReplyBody::EXCERPT)].to_vec(),
            reason,
        }
    }

    /// Returns true if the body is this text of ours.
    fn is(&self, text: &str) -> bool {
        matches!(self, ReplyBody::Other { beginning, .. } if beginning == text.as_bytes())
    }
}

/// A request without a reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    pub cause: FailureCause,
    /// The message of the operating system or the TLS library.
    pub message: String,
}

/// Usual causes of a failed request, each with its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureCause {
    Name,
    Refused,
    Timeout,
    UnknownIssuer,
    SelfSignedAuthority,
    Expired,
    NotYetValid,
    OtherName,
    NoTls,
    Unknown,
}

/// Returns scheme, host and port of a URL.
pub fn origin(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => url.to_owned(),
    }
}

/// Returns true if the URL refers to the machine that resolves it.
pub fn is_local(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => false,
    }
}

/// Returns true if the URL can be reached only from this machine or a private network.
fn is_private(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Some(url::Host::Ipv6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::change_payload::ChangePayload;
    use rstest::rstest;

    use super::*;

    /// Returns a failure of this cause.
    pub fn failure(cause: FailureCause, message: &str) -> ProbeError {
        ProbeError {
            cause,
            message: message.to_owned(),
        }
    }

    /// Returns a reply with nothing but a status.
    pub fn reply(status: u16) -> ProbeReply {
        ProbeReply {
            status,
            location: None,
            content_type: None,
            content_encoding: None,
            date: None,
            age: None,
            links: Links::default(),
            body: ReplyBody::Empty,
            at: "2026-11-20T12:00:00Z".parse().unwrap(),
        }
    }

    #[rstest]
    #[case("http://127.0.0.1:8400/", true)]
    #[case("http://[::1]/", true)]
    #[case("http://localhost:8400/", true)]
    #[case("http://10.1.2.3/", true)]
    #[case("http://[fd00::1]/", true)]
    #[case("https://example.org/", false)]
    #[case("https://192.0.2.1/", false)]
    #[case("no url", false)]
    fn a_private_address_is_known_by_its_host(#[case] url: &str, #[case] want: bool) {
        assert_eq!(is_private(url), want);
    }

    #[test]
    fn little_is_kept_of_a_body() {
        assert_eq!(ReplyBody::read(b""), ReplyBody::Empty);
        assert_eq!(
            ReplyBody::read(&Payload::default().render()),
            ReplyBody::Payload
        );
        let change = ChangePayload {
            up: None,
            from: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            entries: Vec::new(),
        };
        assert_eq!(ReplyBody::read(&change.render()), ReplyBody::Payload);
        let long = vec![b'x'; ReplyBody::MAX_READ];
        for (body, reason) in [(&long[..99], ""), (&long[..], "it is longer than any")] {
            let ReplyBody::Other {
                beginning,
                reason: found,
            } = ReplyBody::read(body)
            else {
                panic!("{} bytes are no payload", body.len());
            };
            assert!(found.contains(reason), "{found}");
            assert!(beginning.len() <= 100 && body.starts_with(&beginning));
        }
        assert!(ReplyBody::read(NO_SUCH_TOPIC.as_bytes()).is(NO_SUCH_TOPIC));
        assert!(ReplyBody::read(HUB_GREETING.as_bytes()).is(HUB_GREETING));
        assert!(!ReplyBody::Empty.is(NO_SUCH_TOPIC));
    }
}
