//! Failures of subscribing, and what tells them apart.

use websub::hub::request::Rejection;
use websub::publisher::reason::error_chain;
use websub::subscriber::SubscribeError;
use websub::subscriber::retrieve::RetrieveError;

/// A failure that ends `listen`, unless other subscriptions go on.
#[derive(Debug)]
pub struct Failure {
    /// The error with its causes.
    pub reason: String,
    pub kind: FailureKind,
}

/// Kind of a failure, by who must act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A hub refuses a subscription request, or a broker the login or a destination.
    Refused,
    /// A hub, topic or broker fails in a way that may pass.
    Temporary,
    /// A hub does not verify a subscription.
    NotVerified,
    /// A hub denies a subscription.
    Denied,
    /// Anything else.
    Other,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure {
            reason: error_chain(error.as_ref()),
            kind: FailureKind::Other,
        }
    }
}

impl From<RetrieveError> for Failure {
    fn from(error: RetrieveError) -> Failure {
        let temporary = error.is_temporary().then_some(FailureKind::Temporary);
        Failure {
            reason: error_chain(&error),
            kind: temporary.unwrap_or(FailureKind::Other),
        }
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Failure {
        let kind = match &error {
            error if error.is_temporary() => FailureKind::Temporary,
            SubscribeError::Refused { .. } => FailureKind::Refused,
            SubscribeError::Denied { .. } => FailureKind::Denied,
            SubscribeError::NotVerified { .. } => FailureKind::NotVerified,
            _ => FailureKind::Other,
        };
        let mut reason = error_chain(&error);
        let is_named = |rejection: Rejection| reason.contains(&rejection.to_string());
        // An rsnotify hub rejects it: its operator has to set these keys.
        let mut rejections = [Rejection::Port, Rejection::Address].into_iter();
        if matches!(error, SubscribeError::Refused { .. }) && rejections.any(is_named) {
            reason.truncate(reason.trim_end().len());
            reason += "; for subscribers on its own host or network, the hub's configuration ([embedded_hub], or [hub] of \
                       rsnotify hub) needs allow_callback_networks = [\"127.0.0.0/8\", \"::1\"], or the network, and \
                       callback_ports only if that names ports";
        }
        Failure { reason, kind }
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Hub;
    use rstest::rstest;

    use super::{Failure, FailureKind, Rejection, SubscribeError};

    fn refused(status: u16, excerpt: &str) -> SubscribeError {
        SubscribeError::Refused {
            hub: Hub::new("https://hub.org/"),
            status,
            excerpt: excerpt.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn a_refused_callback_is_reported_with_the_keys_that_allow_it() {
        for rejection in [Rejection::Port, Rejection::Address] {
            let rejection = rejection.to_string();
            let told = Failure::from(refused(403, &format!("{rejection} "))).reason;
            for words in ["callback_ports", "allow_callback_networks = [", &rejection] {
                assert!(told.contains(words), "{told}");
            }
        }
        let told = Failure::from(refused(503, "")).reason;
        assert!(!told.contains("callback_ports"), "{told}");
    }

    #[rstest]
    #[case(refused(400, ""), FailureKind::Refused)]
    #[case(refused(403, ""), FailureKind::Refused)]
    #[case(refused(429, ""), FailureKind::Temporary)]
    #[case(refused(503, ""), FailureKind::Temporary)]
    #[case(SubscribeError::NoAnswer { hub: Hub::new("h"), reason: String::new() }, FailureKind::Temporary)]
    #[case(SubscribeError::Denied { hub: Hub::new("h"), reason: String::new() }, FailureKind::Denied)]
    #[case(SubscribeError::NotVerified { hub: Hub::new("h"), callback: String::new() }, FailureKind::NotVerified)]
    fn each_failure_has_its_kind(#[case] error: SubscribeError, #[case] want: FailureKind) {
        assert_eq!(Failure::from(error).kind, want);
    }
}
