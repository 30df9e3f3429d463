//! Failures of subscribing, with the exit codes that tell them apart.

use websub::hub::request::Rejection;
use websub::subscriber::SubscribeError;
use websub::subscriber::retrieve::RetrieveError;

use crate::cli::Exit;
use crate::daemon::log::error_chain;

/// A failure that ends `listen`, unless other subscriptions go on.
#[derive(Debug)]
pub struct Failure {
    /// The error with its causes.
    pub reason: String,
    pub exit: Exit,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure {
            reason: error_chain(error.as_ref()),
            exit: Exit::Failure,
        }
    }
}

impl From<RetrieveError> for Failure {
    fn from(error: RetrieveError) -> Failure {
        let exit = if error.is_temporary() {
            Exit::Temporary
        } else {
            Exit::Failure
        };
        let reason = error_chain(&error);
        Failure { reason, exit }
    }
}

impl From<SubscribeError> for Failure {
    fn from(error: SubscribeError) -> Failure {
        let exit = match &error {
            error if error.is_temporary() => Exit::Temporary,
            SubscribeError::Refused { .. } => Exit::Refused,
            SubscribeError::Denied { .. } => Exit::Denied,
            SubscribeError::NotVerified { .. } => Exit::NotVerified,
            _ => Exit::Failure,
        };
        let mut reason = error_chain(&error);
        let is_named = |rejection: Rejection| reason.contains(&rejection.to_string());
        // An rsnotify hub rejects it: its operator has to set these keys.
        if matches!(error, SubscribeError::Refused { .. })
            && [Rejection::Port, Rejection::Address]
                .into_iter()
                .any(is_named)
        {
            reason.truncate(reason.trim_end().len());
            reason += "; for subscribers on its own host or network, the hub's configuration ([embedded_hub], or [hub] of \
                       rsnotify hub) needs allow_callback_networks = [\"127.0.0.0/8\", \"::1\"], or the network, and \
                       callback_ports only if that names ports";
        }
        Failure { reason, exit }
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Hub;
    use rstest::rstest;

    use super::{Exit, Failure, Rejection, SubscribeError};

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
            let told = Failure::from(refused(403, &format!("{rejection} ")));
            let told = told.reason;
            for words in [
                "callback_ports",
                "allow_callback_networks = [",
                &rejection.to_string(),
            ] {
                assert!(told.contains(words), "{told}");
            }
        }
        let told = Failure::from(refused(503, "")).reason;
        assert!(!told.contains("callback_ports"), "{told}");
    }

    #[rstest]
    #[case(refused(400, ""), Exit::Refused)]
    #[case(refused(403, ""), Exit::Refused)]
    #[case(refused(429, ""), Exit::Temporary)]
    #[case(refused(503, ""), Exit::Temporary)]
    #[case(
        SubscribeError::NoAnswer { hub: Hub::new("h"), reason: String::new() },
        Exit::Temporary
    )]
    #[case(
        SubscribeError::Denied { hub: Hub::new("h"), reason: String::new() },
        Exit::Denied
    )]
    #[case(
        SubscribeError::NotVerified { hub: Hub::new("h"), callback: String::new() },
        Exit::NotVerified
    )]
    fn each_failure_has_its_exit_code(#[case] error: SubscribeError, #[case] want: Exit) {
        assert_eq!(Failure::from(error).exit, want);
    }
}
