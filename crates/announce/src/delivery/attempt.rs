//! The outcome of the last attempt at a hub: kept until the next one, so that nobody has to search a log for it.

use jiff::Timestamp;
use resourcesync::escape::printable;
use serde::{Deserialize, Serialize};
use websub::answer::Answer;
use websub::publisher::reason::{Refusal, RefusalKind};
use websub::publisher::verdict::says_nothing;

use crate::state::{Columns, FromRow};

/// The last attempt at one hub on one channel, whether it accepted or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub at: Timestamp,
    /// The number of the notification that was submitted.
    pub seq: u64,
    /// Nothing where there was no answer, and for brokers.
    pub status: Option<u16>,
    /// The beginning of the answer's body.
    pub excerpt: String,
    /// Nothing where it was accepted.
    pub refusal: Option<Refusal>,
}

/// Reads the column of an account that has its last one.
impl FromRow for Option<Attempt> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<Attempt>> {
        let last: Option<String> = row.read()?;
        Ok(last.and_then(|last| serde_json::from_str(&last).ok()))
    }
}

impl Attempt {
    pub fn new(seq: u64, answer: &Answer, refusal: Option<Refusal>, at: Timestamp) -> Attempt {
        let (status, excerpt) = match answer {
            Answer::Status {
                status, excerpt, ..
            } => (Some(*status), printable(excerpt)),
            Answer::Failed(_) | Answer::Receipts => (None, String::new()),
            Answer::BrokerError { excerpt, .. } => (None, printable(excerpt)),
        };
        Attempt {
            at,
            seq,
            status,
            excerpt,
            refusal,
        }
    }

    /// Returns it as the column of an account has it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the answer in words.
    pub fn answer(&self) -> String {
        match (self.status, &self.refusal) {
            (Some(status), _) => format!("answered {status}"),
            (None, None) => "accepted".to_owned(),
            (None, Some(refusal)) if refusal.kind == RefusalKind::NoAnswer => {
                "no answer".to_owned()
            }
            (None, Some(_)) => "refused".to_owned(),
        }
    }

    /// Returns the hub's own reason for a refusal, if the body is one: not a page for browsers.
    pub fn reason_in_body(&self) -> Option<&str> {
        let is_reason = self.status? >= 400 && !self.excerpt.starts_with('<');
        (is_reason && !self.excerpt.is_empty()).then_some(self.excerpt.as_str())
    }

    /// Returns true if it was refused because of the hub as a whole, or its address or credentials: every notification would
    /// be (R23). Other refusals are about this notification, or its topic.
    pub fn is_hub_wide_refusal(&self) -> bool {
        let kind = self.refusal.as_ref().map(|refusal| refusal.kind);
        kind.is_some_and(|kind| match kind {
            RefusalKind::NoSubscribersLikely => {
                self.status == Some(500) && says_nothing(&self.excerpt)
            }
            RefusalKind::WrongMode => self.status == Some(405),
            RefusalKind::NoAnswer
            | RefusalKind::Unavailable
            | RefusalKind::Redirected
            | RefusalKind::NotAllowed
            | RefusalKind::NotAllowedByProxy
            | RefusalKind::NotThere => true,
            RefusalKind::Denied
            | RefusalKind::DestinationRefused
            | RefusalKind::TooLarge
            | RefusalKind::Refused => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::escape::MAX_EXCERPT;
    use websub::answer::BrokerRefusal;

    use super::*;

    #[test]
    fn what_a_hub_says_is_kept_in_part_and_cannot_command_a_terminal() {
        let answer = Answer::Status {
            status: 403,
            content_type: None,
            retry_after: None,
            excerpt: format!("\n\u{1b}[2J{}", "ü".repeat(100_000)),
            credentials: None,
        };
        let refusal = Refusal::new(RefusalKind::NotAllowed, &"\u{7}x".repeat(100_000), true);
        let attempt = Attempt::new(1, &answer, Some(refusal), Timestamp::UNIX_EPOCH);
        let reason = attempt.refusal.unwrap().reason;
        for (text, begins) in [(attempt.excerpt, " [2Jüü"), (reason, " x x x")] {
            assert_eq!(text.chars().count(), MAX_EXCERPT);
            assert!(text.starts_with(begins), "{text}");
        }
    }

    #[test]
    fn a_broker_answers_without_a_status() {
        let refused = Answer::BrokerError {
            refusal: BrokerRefusal::Destination,
            excerpt: "no such queue".to_owned(),
        };
        let failed = Answer::Failed("timed out".to_owned());
        for (answer, refusal, want) in [
            (Answer::Receipts, None, "accepted"),
            (refused, Some(RefusalKind::DestinationRefused), "refused"),
            (failed, Some(RefusalKind::NoAnswer), "no answer"),
        ] {
            let refusal = refusal.map(|kind| Refusal::new(kind, "", false));
            let attempt = Attempt::new(1, &answer, refusal, Timestamp::UNIX_EPOCH);
            assert_eq!(attempt.answer(), want);
        }
    }

    #[test]
    fn a_page_for_browsers_and_an_accepting_body_are_no_reason() {
        for (status, excerpt, want) in [
            (Some(403), "no such topic", Some("no such topic")),
            (Some(403), "", None),
            (Some(404), "<html><body>Not Found", None),
            (Some(302), "Location: https://h.example/", None),
            (Some(200), "hub.mode=denied", None),
            (None, "no such queue", None),
        ] {
            let attempt = Attempt {
                at: Timestamp::UNIX_EPOCH,
                seq: 1,
                status,
                excerpt: excerpt.to_owned(),
                refusal: None,
            };
            assert_eq!(attempt.reason_in_body(), want, "{excerpt}");
        }
    }
}
