//! The meaning of an `ERROR`, and of a connection that fails (F7).

use resourcesync::escape::printable;
use websub::answer::{Answer, BrokerRefusal};
use websub::secret::Mask;

use crate::frame::{Frame, FrameError};

/// A notification that was not accepted, or a connection that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerFailure {
    /// No address of the host.
    #[error("its host name cannot be resolved: {0}")]
    Resolve(String),
    /// No connection over TCP.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// No connection over TLS.
    #[error("cannot connect over TLS: {0}")]
    Tls(String),
    /// Silence while connecting.
    #[error("timed out")]
    Timeout,
    /// Silence while receipts are pending.
    #[error("no receipt in time")]
    NoReceipt,
    /// The end of the connection.
    #[error("it ended the connection")]
    Closed,
    /// Any other failure of the connection.
    #[error("the connection failed: {0}")]
    Failed(String),
    /// Heart-beats that are missing.
    #[error("it is silent: two heart-beats are missing")]
    Silent,
    /// Bytes that are no frame.
    #[error("it does not answer in STOMP 1.2; is its address right? ({0})")]
    Frame(#[from] FrameError),
    /// A version that the broker has chosen, other than 1.2.
    #[error("it speaks STOMP {0}, and not 1.2")]
    Version(String),
    /// An `ERROR`.
    #[error("{text}")]
    Refused {
        /// Its meaning.
        refusal: BrokerRefusal,
        /// Its text.
        text: String,
    },
}

impl From<std::io::Error> for BrokerFailure {
    fn from(error: std::io::Error) -> BrokerFailure {
        BrokerFailure::Failed(error.to_string())
    }
}

impl BrokerFailure {
    /// Returns the meaning of an `ERROR`; secrets in it are masked.
    pub fn from_frame(error: &Frame, mask: &Mask) -> BrokerFailure {
        let body = String::from_utf8_lossy(&error.body);
        let first = body.lines().map(str::trim).find(|line| !line.is_empty());
        let message = error.header("message").unwrap_or_default().trim();
        let text = match (message, first.unwrap_or_default()) {
            ("", "") => "an ERROR without a reason".to_owned(),
            ("", first) => first.to_owned(),
            // Some brokers put a stack trace there, which begins with the message.
            (message, first) if first.is_empty() || first.contains(message) => message.to_owned(),
            (message, first) => format!("{message}: {first}"),
        };
        BrokerFailure::Refused {
            refusal: refusal_kind(&text),
            text: printable(&mask.hide(&text)),
        }
    }

    /// Returns true if it lasts until an operator corrects something.
    pub fn needs_operator(&self) -> bool {
        matches!(self, BrokerFailure::Refused { refusal, .. } if *refusal != BrokerRefusal::Other)
    }

    /// Returns it as an answer for the engine.
    pub fn into_answer(self) -> Answer {
        match self {
            BrokerFailure::Refused { refusal, text } => Answer::BrokerError {
                refusal,
                excerpt: text,
            },
            error => Answer::Failed(error.to_string()),
        }
    }
}

/// Returns the kind of refusal that the text of an `ERROR` describes, in the words of ActiveMQ, Artemis and RabbitMQ. Only
/// what names a login or destination as refused or missing needs an operator: their other errors, also of a destination that
/// is full, locked or on a node that is down, pass by themselves (F7).
fn refusal_kind(text: &str) -> BrokerRefusal {
    const CREDENTIALS: &str = "password is invalid|access refused for user|bad connect|\
        unable to validate user|authentication failed|not authenticated|virtual host '";
    const DESTINATION: &str = "not authorized|access_refused|not_found - no |\
        does not have permission|unknown destination|invalid destination|is not a valid |\
        inequivalent arg|does not exist";
    let text = text.to_ascii_lowercase();
    let says = |phrases: &str| phrases.split('|').any(|phrase| text.contains(phrase));
    if says(CREDENTIALS) {
        BrokerRefusal::Credentials
    } else if says(DESTINATION) {
        BrokerRefusal::Destination
    } else {
        BrokerRefusal::Other
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use websub::secret::Secret;

    use super::*;

    /// An `ERROR`, as it is read.
    fn refused(message: &str, body: &str, mask: &Mask) -> BrokerFailure {
        let mut frame = Frame::new("ERROR").with("message", message);
        frame.body = body.as_bytes().to_vec();
        BrokerFailure::from_frame(&frame, mask)
    }

    #[rstest]
    // In the words of ActiveMQ 5.17, RabbitMQ 3.10 and Artemis 2.
    #[case::credentials(BrokerRefusal::Credentials, &[
        ("User name [a] or password is invalid.", ""),
        ("Bad CONNECT", "Access refused for user 'a'\n"),
        ("Bad CONNECT", "Virtual host 'v' access denied"),
        ("AMQ229031: Unable to validate user from 127.0.0.1. Username: a; SSL certificate subject DN: unavailable", ""),
    ])]
    #[case::destination(BrokerRefusal::Destination, &[
        ("User a is not authorized to write to: topic://x", ""),
        ("not_found", "NOT_FOUND - no exchange 'x' in vhost '/'"),
        ("Unknown destination", "'/x' is not a valid destination.\n"),
        ("AMQ229032: User: a does not have permission='SEND' on address x", ""),
        ("AMQ339001: Destination does not exist: /topic/x", ""),
    ])]
    #[case::what_passes_by_itself(BrokerRefusal::Other, &[
        ("not_found", "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"),
        ("not_found", "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor"),
        ("precondition_failed", "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"),
        ("Destination is full: topic://x", ""),
        ("Cannot publish to a deleted Destination: queue://x", ""),
        ("Usage Manager Memory Limit reached", ""),
    ])]
    fn an_error_says_who_must_act(#[case] want: BrokerRefusal, #[case] errors: &[(&str, &str)]) {
        for (message, body) in errors {
            let error = refused(message, body, &Mask::default());
            let is_wanted =
                matches!(&error, BrokerFailure::Refused { refusal, .. } if *refusal == want);
            assert!(is_wanted, "{error:?}");
        }
    }

    #[test]
    fn the_body_is_quoted_where_it_says_more_and_a_repeated_password_is_hidden() {
        let mask = Mask::new([Secret::new("hunter2")]);
        let exception = "java.lang.SecurityException: Unknown user.\n\tat x";
        for (message, body, want) in [
            (
                "Bad CONNECT",
                "Access refused\n",
                "Bad CONNECT: Access refused",
            ),
            ("Unknown user.", exception, "Unknown user."),
            ("It is full", "", "It is full"),
            ("no user a with hunter2", "", "no user a with ***"),
        ] {
            assert_eq!(refused(message, body, &mask).to_string(), want);
        }
    }
}
