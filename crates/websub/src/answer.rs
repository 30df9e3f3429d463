//! The answer of a hub, a subscriber or a message broker to a request.

use std::time::Duration;

use jiff::Timestamp;

use crate::retry::parse_retry_after;

/// An answer, or the error if there was none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// An HTTP answer.
    Status {
        /// HTTP status.
        status: u16,
        /// Value of the `Content-Type` header.
        content_type: Option<String>,
        /// Value of the `Retry-After` header.
        retry_after: Option<String>,
        /// The beginning of the body: a few hundred characters, and more of a form, which may decide.
        excerpt: String,
        /// The credentials that the request had, in words, such as `bearer token`.
        credentials: Option<&'static str>,
    },
    /// No answer: the error message.
    Failed(String),
    /// A message broker has it: all receipts arrived.
    Receipts,
    /// A message broker answered with an `ERROR`.
    BrokerError {
        /// Kind of refusal.
        refusal: BrokerRefusal,
        /// The beginning of its text.
        excerpt: String,
    },
}

/// The kinds of `ERROR` of a message broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerRefusal {
    /// User name, password or virtual host is wrong.
    Credentials,
    /// The destination does not exist, or this user may not send to it.
    Destination,
    /// Anything else.
    Other,
}

/// Returns true for statuses after which the same request may succeed.
pub fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

impl Answer {
    /// The answer of the embedded hub to a submission, and of any hub in a dry run.
    pub const ACCEPTED: Answer = Answer::Status {
        status: 202,
        content_type: None,
        retry_after: None,
        excerpt: String::new(),
        credentials: None,
    };

    /// Returns the wait of its `Retry-After`, clamped (R23).
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Answer::Status { retry_after, .. } => parse_retry_after(retry_after.as_deref()?, now),
            _ => None,
        }
    }

    /// Returns true if the hub may have accepted the notification all the same: a gateway in front may have answered.
    pub fn leaves_doubt(&self) -> bool {
        match self {
            Answer::Status { status, .. } => matches!(status, 500 | 502 | 504),
            Answer::Failed(_) | Answer::BrokerError { .. } => true,
            Answer::Receipts => false,
        }
    }
}
