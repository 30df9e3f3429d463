//! The reasons why a hub did not accept a notification, with their usual causes (R23).

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The reason why a hub did not accept, with the usual cause of such an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There was no answer; the error.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// It is overloaded, or fails; the HTTP status.
    #[error("it cannot take it now ({0})")]
    Unavailable(u16),
    /// A hub that forgets topics without subscribers answers so; the HTTP status.
    #[error("probably nobody has subscribed ({0})")]
    NoSubscribersLikely(u16),
    /// It redirects to where nothing is sent.
    #[error("{}", redirected(*status, to.as_deref()))]
    Redirected {
        /// HTTP status.
        status: u16,
        /// Value of the `Location` header.
        to: Option<String>,
    },
    /// It does not understand the request; the HTTP status.
    #[error("it wants the notification in another form ({0}): try another mode")]
    WrongMode(u16),
    /// It requires authorization; the HTTP status.
    #[error("it wants credentials, or the topic to be registered first ({0})")]
    NotAllowed(u16),
    /// It refuses the credentials of the request, which are named.
    #[error("it refuses the {0} (401)")]
    WrongCredentials(&'static str),
    /// The proxy requires authorization.
    #[error(
        "the proxy wants credentials (407): put them into the variable that names it, such as HTTPS_PROXY"
    )]
    NotAllowedByProxy,
    /// Nothing is at the address; the HTTP status.
    #[error("it takes no notifications at this address ({0}): correct url or publish_url")]
    NotThere(u16),
    /// The form of its answer denies the publication; its reason.
    #[error("it denies the publication: {0}")]
    Denied(String),
    /// Any other HTTP status.
    #[error("it refuses ({0})")]
    Refused(u16),
    /// A message broker refuses the login; its text.
    #[error("it refuses user name, password or virtual host: {0}")]
    BrokerLogin(String),
    /// A message broker refuses the destination; its text.
    #[error("it refuses the destination: {0}")]
    Destination(String),
    /// A message broker answers with any other `ERROR`; its text.
    #[error("it answers with an error: {0}")]
    BrokerFailure(String),
}

impl Reason {
    /// Returns the kind of refusal.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Reason::NoAnswer(_) => RefusalKind::NoAnswer,
            Reason::Unavailable(_) => RefusalKind::Unavailable,
            Reason::NoSubscribersLikely(_) => RefusalKind::NoSubscribersLikely,
            Reason::Redirected { .. } => RefusalKind::Redirected,
            Reason::WrongMode(_) => RefusalKind::WrongMode,
            Reason::NotAllowed(_) | Reason::WrongCredentials(_) => RefusalKind::NotAllowed,
            Reason::NotAllowedByProxy => RefusalKind::NotAllowedByProxy,
            Reason::NotThere(_) => RefusalKind::NotThere,
            Reason::Denied(_) => RefusalKind::Denied,
            Reason::Refused(_) => RefusalKind::Refused,
            Reason::BrokerLogin(_) => RefusalKind::NotAllowed,
            Reason::Destination(_) => RefusalKind::DestinationRefused,
            Reason::BrokerFailure(_) => RefusalKind::Unavailable,
        }
    }

    /// Returns the name that metrics and JSON have for it.
    pub fn name(&self) -> &'static str {
        self.kind().as_str()
    }
}

fn redirected(status: u16, to: Option<&str>) -> String {
    match to {
        Some(to) => format!(
            "it redirects ({status}) to {to}, where nothing is sent: if that is the hub, make it url or publish_url"
        ),
        None => format!("it redirects ({status}) to nowhere: correct url or publish_url"),
    }
}

/// The kinds of refusal, as metrics, JSON and the state file name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// See [`Reason::NoAnswer`].
    NoAnswer,
    /// See [`Reason::Unavailable`] and [`Reason::BrokerFailure`].
    Unavailable,
    /// See [`Reason::NoSubscribersLikely`].
    NoSubscribersLikely,
    /// See [`Reason::Redirected`].
    Redirected,
    /// See [`Reason::WrongMode`].
    WrongMode,
    /// See [`Reason::NotAllowed`] and [`Reason::BrokerLogin`].
    NotAllowed,
    /// See [`Reason::NotAllowedByProxy`].
    NotAllowedByProxy,
    /// See [`Reason::NotThere`].
    NotThere,
    /// See [`Reason::Denied`].
    Denied,
    /// See [`Reason::Destination`].
    DestinationRefused,
    /// The notification is too large, and sent in parts.
    TooLarge,
    /// See [`Reason::Refused`].
    Refused,
}

impl RefusalKind {
    /// Each kind.
    pub const ALL: [RefusalKind; 12] = [
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

    /// Returns the name in metrics and JSON.
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

/// The error for an unknown kind of refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no kind of refusal")]
pub struct UnknownKind(String);

impl FromStr for RefusalKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<RefusalKind, UnknownKind> {
        let mut kinds = RefusalKind::ALL.into_iter();
        let known = kinds.find(|kind| kind.as_str() == text);
        known.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in RefusalKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::json!(kind), kind.as_str());
        }
        assert!("".parse::<RefusalKind>().is_err());
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
