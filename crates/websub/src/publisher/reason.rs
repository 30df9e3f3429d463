//! The reasons why a hub or message broker did not accept a notification, with their usual causes (R23).

use resourcesync::escape::printable;
use serde::{Deserialize, Serialize};

/// The reason why a hub did not accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its kind, which has a usual cause.
    pub kind: RefusalKind,
    /// What the hub answered, in an operator's words.
    pub reason: String,
    /// True if it will not pass by itself. State files and JSON call this `needs_person`.
    #[serde(rename = "needs_person")]
    pub needs_operator: bool,
}

impl Refusal {
    /// Returns a refusal with the beginning of a reason, which may have been written elsewhere.
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
    /// There was no answer.
    NoAnswer,
    /// It is overloaded, or fails.
    Unavailable,
    /// A hub that forgets topics without subscribers answers so.
    NoSubscribersLikely,
    /// It redirects to where nothing is sent.
    Redirected,
    /// It does not understand the request.
    WrongMode,
    /// It requires other credentials.
    NotAllowed,
    /// The proxy requires credentials.
    NotAllowedByProxy,
    /// Nothing is at the address.
    NotThere,
    /// The form of its answer denies the publication.
    Denied,
    /// A message broker refuses the destination.
    DestinationRefused,
    /// The notification is too large, and sent in parts.
    TooLarge,
    /// Any other status.
    Refused,
}

impl RefusalKind {
    /// Each kind, with its name in metrics and JSON.
    pub const ALL: [(RefusalKind, &str); 12] = [
        (RefusalKind::NoAnswer, "no_answer"),
        (RefusalKind::Unavailable, "unavailable"),
        (RefusalKind::NoSubscribersLikely, "no_subscribers_likely"),
        (RefusalKind::Redirected, "redirected"),
        (RefusalKind::WrongMode, "wrong_mode"),
        (RefusalKind::NotAllowed, "not_allowed"),
        (RefusalKind::NotAllowedByProxy, "not_allowed_by_proxy"),
        (RefusalKind::NotThere, "not_there"),
        (RefusalKind::Denied, "denied"),
        (RefusalKind::DestinationRefused, "destination_refused"),
        (RefusalKind::TooLarge, "too_large"),
        (RefusalKind::Refused, "refused"),
    ];

    /// Returns the name in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        RefusalKind::ALL[self as usize].1
    }

    /// Returns the usual cause and the remedy, for a hub or a message broker.
    pub fn usual_cause(self, is_broker: bool) -> &'static str {
        match self {
            RefusalKind::NoAnswer if is_broker => {
                "the broker is down, or a wrong address, a firewall or a certificate is in the way; \
                 `rsnotify check` tries to reach it"
            }
            RefusalKind::Unavailable if is_broker => {
                "the broker is short of resources or being restarted: see its log; this passes by itself"
            }
            RefusalKind::NotAllowed if is_broker => {
                "username, password_file or vhost of its [[broker]] is wrong or out of date"
            }
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
                "its credentials are missing, wrong or another publisher's, or the hub wants the topic to be \
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

/// Returns an error with its causes, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for (kind, name) in RefusalKind::ALL {
            assert_eq!(kind.as_str(), name);
            let name = serde_json::json!(kind);
            assert_eq!(name, kind.as_str());
            assert_eq!(serde_json::from_value::<RefusalKind>(name).unwrap(), kind);
        }
        assert!(serde_json::from_value::<RefusalKind>("".into()).is_err());
    }

    #[test]
    fn no_hub_is_named_where_a_broker_refuses() {
        for kind in [
            RefusalKind::NoAnswer,
            RefusalKind::Unavailable,
            RefusalKind::NotAllowed,
            RefusalKind::DestinationRefused,
        ] {
            let cause = kind.usual_cause(true);
            assert!(!cause.contains("hub"), "{cause}");
        }
    }
}
