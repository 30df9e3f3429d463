//! The outcome of the last attempt at a hub: kept until the next one, so that nobody has to search a log for it.

use std::str::FromStr;

use jiff::Timestamp;
use resourcesync::escape::printable;
use serde::{Deserialize, Serialize};

use crate::http::answer::{Answer, BrokerAnswer};

/// The last attempt at one hub on one channel, whether it accepted or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub at: Timestamp,
    /// The number of the notification that was submitted.
    pub seq: u64,
    /// Nothing where there was no answer.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub excerpt: String,
    /// Nothing where it was accepted.
    pub refusal: Option<Refusal>,
}

/// The reason why a hub did not accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub reason: String,
    /// True if it will not pass by itself. State files and JSON call this `needs_person`.
    #[serde(rename = "needs_person")]
    pub needs_operator: bool,
}

impl Attempt {
    pub fn new(seq: u64, answer: &Answer, refusal: Option<Refusal>, at: Timestamp) -> Attempt {
        let (status, excerpt) = match answer {
            Answer::Status {
                status, excerpt, ..
            } => (Some(*status), printable(excerpt)),
            Answer::Failed(_) | Answer::Broker(BrokerAnswer::Receipts) => (None, String::new()),
            Answer::Broker(BrokerAnswer::Refused { excerpt, .. }) => (None, printable(excerpt)),
        };
        Attempt {
            at,
            seq,
            status,
            excerpt,
            refusal,
        }
    }
}

/// The scope of a refusal (R23).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalScope {
    /// The hub as a whole, or its address or credentials: every notification would be refused.
    Hub,
    /// This notification, or its topic.
    Notification,
}

impl Attempt {
    /// Returns the scope of the refusal; nothing if there is none.
    pub fn scope(&self) -> Option<RefusalScope> {
        let kind = self.refusal.as_ref()?.kind;
        Some(match (kind, self.status) {
            (RefusalKind::NoSubscribersLikely, Some(500)) if says_nothing(&self.excerpt) => {
                RefusalScope::Hub
            }
            (RefusalKind::WrongMode, Some(405)) => RefusalScope::Hub,
            (
                RefusalKind::NoAnswer
                | RefusalKind::Unavailable
                | RefusalKind::Redirected
                | RefusalKind::NotAllowed
                | RefusalKind::NotAllowedByProxy
                | RefusalKind::NotThere,
                _,
            ) => RefusalScope::Hub,
            (
                RefusalKind::NoSubscribersLikely
                | RefusalKind::WrongMode
                | RefusalKind::Denied
                | RefusalKind::DestinationRefused
                | RefusalKind::TooLarge
                | RefusalKind::Refused,
                _,
            ) => RefusalScope::Notification,
        })
    }
}

/// Returns true if a body is empty or a server's stock error page: a known ResourceSync hub answers so while a topic
/// has no subscribers.
pub fn says_nothing(body: &str) -> bool {
    body.trim().is_empty() || body.to_ascii_lowercase().contains("internal server error")
}

impl Refusal {
    pub fn new(kind: RefusalKind, reason: &str, needs_operator: bool) -> Refusal {
        Refusal {
            kind,
            reason: printable(reason),
            needs_operator,
        }
    }
}

/// The kinds of refusal, as metrics, JSON and the state file name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    NoAnswer,
    Unavailable,
    NoSubscribersLikely,
    Redirected,
    WrongMode,
    NotAllowed,
    NotAllowedByProxy,
    NotThere,
    Denied,
    DestinationRefused,
    TooLarge,
    Refused,
}

const KINDS: [RefusalKind; 12] = [
    RefusalKind::NoAnswer,
    RefusalKind::Unavailable,
    RefusalKind::NoSubscribersLikely,
    RefusalKind::Redirected,
    RefusalKind::WrongMode,
    RefusalKind::NotAllowed,
    RefusalKind::NotAllowedByProxy,
    RefusalKind::NotThere,
    RefusalKind::Denied,
    RefusalKind::DestinationRefused,
    RefusalKind::TooLarge,
    RefusalKind::Refused,
];

impl RefusalKind {
    pub fn all() -> impl Iterator<Item = RefusalKind> {
        KINDS.into_iter()
    }

    pub fn as_str(self) -> &'static str {
        match self {
            RefusalKind::NoAnswer => "no_answer",
            RefusalKind::Unavailable => "unavailable",
            RefusalKind::NoSubscribersLikely => "no_subscribers_likely",
            RefusalKind::Redirected => "redirected",
            RefusalKind::WrongMode => "wrong_mode",
            RefusalKind::NotAllowed => "not_allowed",
            RefusalKind::NotAllowedByProxy => "not_allowed_by_proxy",
            RefusalKind::NotThere => "not_there",
            RefusalKind::Denied => "denied",
            RefusalKind::DestinationRefused => "destination_refused",
            RefusalKind::TooLarge => "too_large",
            RefusalKind::Refused => "refused",
        }
    }

    /// Returns the usual cause and the remedy.
    pub fn usual_cause(self) -> &'static str {
        match self {
            RefusalKind::NoAnswer => {
                "the hub is down, or a wrong address, a firewall, a proxy or a certificate is in the way; \
                 `rsnotify check` tries to reach it"
            }
            RefusalKind::Unavailable => {
                "the hub is overloaded or being restarted; this passes by itself"
            }
            RefusalKind::NoSubscribersLikely => {
                "some hubs answer so while nobody has subscribed to the topic; this passes when somebody does"
            }
            RefusalKind::Redirected => {
                "the hub has moved: set url or publish_url of its [[hub]] to its new address"
            }
            RefusalKind::WrongMode => {
                "the hub expects another form of notification: set another mode in its [[hub]], \"content\" for \
                 ResourceSync hubs, \"ping\" for most others"
            }
            RefusalKind::NotAllowed => {
                "its credentials are missing, wrong or out of date, or the hub wants the topic to be \
                 registered with it first"
            }
            RefusalKind::NotAllowedByProxy => {
                "the proxy between here and the hub wants credentials: put them into the variable that names it, \
                 such as HTTPS_PROXY"
            }
            RefusalKind::NotThere => {
                "the address is wrong: many hubs take notifications at another one than subscriptions; set \
                 publish_url in its [[hub]]"
            }
            RefusalKind::Denied => {
                "the hub does not know this publisher or this topic: register it there"
            }
            RefusalKind::DestinationRefused => {
                "the destination does not exist on the broker, or this user may not send to it: correct destination or \
                 username in its [[broker]], or grant the permission there"
            }
            RefusalKind::TooLarge => {
                "the hub, or a proxy before it, limits requests to less than it takes to name one document"
            }
            RefusalKind::Refused => "the reason is unknown: see its answer, or the log of the hub",
        }
    }
}

/// The error for an unknown kind of refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no kind of refusal")]
pub struct UnknownKind(String);

impl FromStr for RefusalKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<RefusalKind, UnknownKind> {
        let known = KINDS.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::escape::MAX_EXCERPT;

    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in KINDS {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::json!(kind), kind.as_str());
        }
        assert!("".parse::<RefusalKind>().is_err());
    }

    #[test]
    fn what_a_hub_says_is_kept_in_part_and_cannot_command_a_terminal() {
        let answer = Answer::Status {
            status: 403,
            content_type: None,
            retry_after: None,
            excerpt: format!("\n\u{1b}[2J{}", "ü".repeat(100_000)),
        };
        let refusal = Refusal::new(RefusalKind::NotAllowed, &"\u{7}x".repeat(100_000), true);
        let attempt = Attempt::new(1, &answer, Some(refusal), Timestamp::UNIX_EPOCH);
        let reason = attempt.refusal.unwrap().reason;
        for (text, begins) in [(attempt.excerpt, " [2Jüü"), (reason, " x x x")] {
            assert_eq!(text.chars().count(), MAX_EXCERPT);
            assert!(text.starts_with(begins), "{text}");
        }
    }
}
