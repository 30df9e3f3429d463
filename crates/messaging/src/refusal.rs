//! The meaning of an `ERROR`, and of a connection that fails (F7).

use resourcesync::escape::excerpt;
use websub::answer::{Answer, BrokerRefusal};
use websub::secret::Mask;

use crate::frame::{Frame, FrameError};

/// The maximum number of characters quoted of an `ERROR`.
const EXCERPT_CHARS: usize = 500;

/// A notification that was not accepted, or a connection that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
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
        /// What it says.
        text: String,
    },
}

impl From<std::io::Error> for BrokerError {
    fn from(error: std::io::Error) -> BrokerError {
        BrokerError::Failed(error.to_string())
    }
}

impl BrokerError {
    /// Returns the meaning of an `ERROR`; secrets in it are masked.
    pub fn refused(error: &Frame, mask: &Mask) -> BrokerError {
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
        BrokerError::Refused {
            refusal: refusal(&text),
            text: excerpt(&mask.hide(&text), EXCERPT_CHARS),
        }
    }

    /// Returns true if it lasts until an operator corrects something.
    pub fn needs_operator(&self) -> bool {
        matches!(self, BrokerError::Refused { refusal, .. } if *refusal != BrokerRefusal::Other)
    }

    /// Returns it as an answer for the engine.
    pub fn answer(self) -> Answer {
        match self {
            BrokerError::Refused { refusal, text } => Answer::BrokerError {
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
fn refusal(text: &str) -> BrokerRefusal {
    const CREDENTIALS: [&str; 7] = [
        "password is invalid",
        "access refused for user",
        "bad connect",
        "unable to validate user",
        "authentication failed",
        "not authenticated",
        "virtual host '",
    ];
    const DESTINATION: [&str; 9] = [
        "not authorized",
        "access_refused",
        "not_found - no ",
        "does not have permission",
        "unknown destination",
        "invalid destination",
        "is not a valid ",
        "inequivalent arg",
        "does not exist",
    ];
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&CREDENTIALS) {
        BrokerRefusal::Credentials
    } else if says(&DESTINATION) {
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

    #[rstest]
    // ActiveMQ 5.17.
    #[case(
        "User name [a] or password is invalid.",
        "java.lang.SecurityException: User name [a] or password is invalid.\n\tat x",
        BrokerRefusal::Credentials,
        "User name [a] or password is invalid."
    )]
    #[case(
        "User a is not authorized to write to: topic://x",
        "",
        BrokerRefusal::Destination,
        "User a is not authorized to write to: topic://x"
    )]
    // RabbitMQ 3.10.
    #[case(
        "Bad CONNECT",
        "Access refused for user 'a'\n",
        BrokerRefusal::Credentials,
        "Bad CONNECT: Access refused for user 'a'"
    )]
    #[case(
        "Bad CONNECT",
        "Virtual host 'v' access denied",
        BrokerRefusal::Credentials,
        "Bad CONNECT: Virtual host 'v' access denied"
    )]
    #[case(
        "not_found",
        "NOT_FOUND - no exchange 'x' in vhost '/'",
        BrokerRefusal::Destination,
        "not_found: NOT_FOUND - no exchange 'x' in vhost '/'"
    )]
    #[case(
        "Unknown destination",
        "'/x' is not a valid destination.\n",
        BrokerRefusal::Destination,
        "Unknown destination: '/x' is not a valid destination."
    )]
    // Artemis 2.
    #[case(
        "AMQ229031: Unable to validate user from 127.0.0.1. Username: a; SSL certificate subject DN: unavailable",
        "",
        BrokerRefusal::Credentials,
        "AMQ229031: Unable to validate user from 127.0.0.1. Username: a; SSL certificate subject DN: unavailable"
    )]
    #[case(
        "AMQ229032: User: a does not have permission='SEND' on address x",
        "",
        BrokerRefusal::Destination,
        "AMQ229032: User: a does not have permission='SEND' on address x"
    )]
    #[case(
        "AMQ339001: Destination does not exist: /topic/x",
        "",
        BrokerRefusal::Destination,
        "AMQ339001: Destination does not exist: /topic/x"
    )]
    // What passes by itself, in the words of all three.
    #[case(
        "not_found",
        "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible",
        BrokerRefusal::Other,
        "not_found: NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"
    )]
    #[case(
        "not_found",
        "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
        BrokerRefusal::Other,
        "not_found: NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor"
    )]
    #[case(
        "precondition_failed",
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out",
        BrokerRefusal::Other,
        "precondition_failed: PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"
    )]
    #[case(
        "Destination is full: topic://x",
        "",
        BrokerRefusal::Other,
        "Destination is full: topic://x"
    )]
    #[case(
        "Cannot publish to a deleted Destination: queue://x",
        "",
        BrokerRefusal::Other,
        "Cannot publish to a deleted Destination: queue://x"
    )]
    #[case(
        "Usage Manager Memory Limit reached",
        "",
        BrokerRefusal::Other,
        "Usage Manager Memory Limit reached"
    )]
    fn an_error_says_who_must_act(
        #[case] message: &str,
        #[case] body: &str,
        #[case] want: BrokerRefusal,
        #[case] said: &str,
    ) {
        let mut frame = Frame::new("ERROR").with("message", message);
        frame.body = body.as_bytes().to_vec();
        let error = BrokerError::refused(&frame, &Mask::default());
        let want = BrokerError::Refused {
            refusal: want,
            text: said.to_owned(),
        };
        assert_eq!(error, want);
    }

    #[test]
    fn a_password_that_is_repeated_is_hidden() {
        let frame = Frame::new("ERROR").with("message", "no user a with hunter2");
        let error = BrokerError::refused(&frame, &Mask::new([Secret::new("hunter2")]));
        assert_eq!(error.to_string(), "no user a with ***");
    }
}
