//! The reasons why a hub did not accept a notification, with their usual causes (R23).

use crate::announce::delivery::attempt::RefusalKind;

/// The reason why a hub did not accept, with the usual cause of such an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("no answer: {0}")]
    NoAnswer(String),
    #[error("it cannot take it now ({0})")]
    Unavailable(u16),
    #[error("probably nobody has subscribed ({0})")]
    NoSubscribersLikely(u16),
    #[error("{}", redirected(*status, to.as_deref()))]
    Redirected { status: u16, to: Option<String> },
    #[error("it wants the notification in another form ({0}): try another mode")]
    WrongMode(u16),
    #[error("it wants credentials, or the topic to be registered first ({0})")]
    NotAllowed(u16),
    #[error(
        "the proxy wants credentials (407): put them into the variable that names it, such as HTTPS_PROXY"
    )]
    NotAllowedByProxy,
    #[error("it takes no notifications at this address ({0}): correct url or publish_url")]
    NotThere(u16),
    #[error("it denies the publication: {0}")]
    Denied(String),
    #[error("it refuses ({0})")]
    Refused(u16),
    #[error("it refuses user name, password or virtual host: {0}")]
    BrokerLogin(String),
    #[error("it refuses the destination: {0}")]
    Destination(String),
    #[error("it answers with an error: {0}")]
    BrokerFailure(String),
}

impl Reason {
    pub fn kind(&self) -> RefusalKind {
        match self {
            Reason::NoAnswer(_) => RefusalKind::NoAnswer,
            Reason::Unavailable(_) => RefusalKind::Unavailable,
            Reason::NoSubscribersLikely(_) => RefusalKind::NoSubscribersLikely,
            Reason::Redirected { .. } => RefusalKind::Redirected,
            Reason::WrongMode(_) => RefusalKind::WrongMode,
            Reason::NotAllowed(_) => RefusalKind::NotAllowed,
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
