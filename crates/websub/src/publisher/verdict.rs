//! The meaning of a hub's answer for the notification in flight (R23).

use std::time::Duration;

use jiff::Timestamp;

use crate::answer::{Answer, BrokerAnswer, BrokerRefusal};
use crate::form::{form_value, is_form};
use crate::publisher::reason::Reason;
use crate::retry::{after, backoff, next_try};

/// The outcome of a notification after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The hub has it.
    Accepted,
    /// It is retried, and this may pass by itself.
    Retry {
        /// The time of the next attempt.
        at: Timestamp,
        /// The reason for it.
        reason: Reason,
    },
    /// The notification is withdrawn, and half of it cut.
    TooLarge,
    /// It is retried, but an operator must act.
    NeedsOperator {
        /// The time of the next attempt.
        at: Timestamp,
        /// The reason for it.
        reason: Reason,
    },
}

/// The beginning of an excerpt that holds an answer's `Location`: the body of a redirection tells no more.
pub const LOCATION: &str = "Location: ";
/// Characters that are repeated of a hub's own reason.
const DENIAL_CHARS: usize = 500;
/// The wait for a hub that needs an operator.
const OPERATOR_WAIT: Duration = Duration::from_secs(15 * 60);

/// Judges the answer to the `attempts`th try. `jitter` is random, from 0 to 1.
pub fn verdict(answer: &Answer, attempts: u32, now: Timestamp, jitter: f64) -> Verdict {
    let (status, content_type, retry_after, excerpt, credentials) = match answer {
        Answer::Failed(what) => {
            let at = after(now, backoff(attempts, jitter));
            return Verdict::Retry {
                at,
                reason: Reason::NoAnswer(what.clone()),
            };
        }
        Answer::Broker(answer) => return of_broker(answer, attempts, now, jitter),
        Answer::Status {
            status,
            content_type,
            retry_after,
            excerpt,
            credentials,
        } => (
            *status,
            content_type.as_deref(),
            retry_after.as_deref(),
            excerpt,
            *credentials,
        ),
    };
    let later = |reason| Verdict::Retry {
        at: next_try(retry_after, attempts, now, jitter),
        reason,
    };
    let operator = |reason| Verdict::NeedsOperator {
        at: after(now, OPERATOR_WAIT),
        reason,
    };
    match status {
        200..=299 => match denial(content_type, excerpt) {
            Some(why) => operator(Reason::Denied(why)),
            None => Verdict::Accepted,
        },
        413 => Verdict::TooLarge,
        500 if says_nobody_subscribed(excerpt) || says_nothing(excerpt) => {
            later(Reason::NoSubscribersLikely(status))
        }
        // No operator can correct this, so there is no alert, and the hub is retried slowly.
        400 if says_nobody_subscribed(excerpt) => Verdict::Retry {
            at: after(now, OPERATOR_WAIT),
            reason: Reason::NoSubscribersLikely(status),
        },
        408 | 425 | 429 | 500..=599 => later(Reason::Unavailable(status)),
        300..=399 => operator(Reason::Redirected {
            status,
            to: excerpt
                .strip_prefix(LOCATION)
                .filter(|to| !to.is_empty())
                .map(str::to_owned),
        }),
        400 | 405 | 406 | 415 => operator(Reason::WrongMode(status)),
        401 | 403 => operator(match credentials {
            Some(refused) if status == 401 => Reason::WrongCredentials(refused),
            _ => Reason::NotAllowed(status),
        }),
        407 => operator(Reason::NotAllowedByProxy),
        404 | 410 => operator(Reason::NotThere(status)),
        _ => operator(Reason::Refused(status)),
    }
}

/// Judges the answer of a message broker (F7).
fn of_broker(answer: &BrokerAnswer, attempts: u32, now: Timestamp, jitter: f64) -> Verdict {
    let BrokerAnswer::Refused { refusal, excerpt } = answer else {
        return Verdict::Accepted;
    };
    let (text, at) = (excerpt.clone(), after(now, OPERATOR_WAIT));
    let operator = |reason| Verdict::NeedsOperator { at, reason };
    match refusal {
        BrokerRefusal::Credentials => operator(Reason::BrokerLogin(text)),
        BrokerRefusal::Destination => operator(Reason::Destination(text)),
        BrokerRefusal::Other => Verdict::Retry {
            at: after(now, backoff(attempts, jitter)),
            reason: Reason::BrokerFailure(text),
        },
    }
}

/// Returns the reason in a form body that says `hub.mode=denied`.
fn denial(content_type: Option<&str>, body: &str) -> Option<String> {
    if !is_form(content_type?) {
        return None;
    }
    let value = |name| form_value(body.trim().as_bytes(), name);
    (value("hub.mode")? == "denied").then(|| match value("hub.reason") {
        Some(reason) => reason.chars().take(DENIAL_CHARS).collect(),
        None => "no reason given".to_owned(),
    })
}

/// Returns true if a body is empty or a server's stock error page: a known ResourceSync hub answers so while a topic
/// has no subscribers.
pub fn says_nothing(body: &str) -> bool {
    body.trim().is_empty() || body.to_ascii_lowercase().contains("internal server error")
}

fn says_nobody_subscribed(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    body.contains("subscri")
        && ["no ", "not ", "nobody", "none", "without ", "zero ", "0 "]
            .iter()
            .any(|word| body.contains(word))
        && !body.contains("hub.mode")
        && !body.contains("hub.callback")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn status(status: u16) -> Answer {
        Answer::Status {
            status,
            content_type: None,
            retry_after: None,
            excerpt: "words".into(),
            credentials: None,
        }
    }

    fn seconds(verdict: &Verdict) -> Option<i64> {
        match verdict {
            Verdict::Retry { at, .. } | Verdict::NeedsOperator { at, .. } => {
                Some(at.duration_since(now()).as_secs())
            }
            Verdict::Accepted | Verdict::TooLarge => None,
        }
    }

    #[rstest]
    #[case(200, "accepted", None)]
    #[case(202, "accepted", None)]
    #[case(204, "accepted", None)]
    #[case(207, "accepted", None)]
    #[case(301, "operator redirected", Some(900))]
    #[case(304, "operator redirected", Some(900))]
    #[case(308, "operator redirected", Some(900))]
    #[case(400, "operator wrong_mode", Some(900))]
    #[case(401, "operator not_allowed", Some(900))]
    #[case(403, "operator not_allowed", Some(900))]
    #[case(404, "operator not_there", Some(900))]
    #[case(405, "operator wrong_mode", Some(900))]
    #[case(406, "operator wrong_mode", Some(900))]
    #[case(407, "operator not_allowed_by_proxy", Some(900))]
    #[case(408, "retry unavailable", Some(8))]
    #[case(410, "operator not_there", Some(900))]
    #[case(413, "too large", None)]
    #[case(415, "operator wrong_mode", Some(900))]
    #[case(418, "operator refused", Some(900))]
    #[case(425, "retry unavailable", Some(8))]
    #[case(429, "retry unavailable", Some(8))]
    #[case(500, "retry unavailable", Some(8))]
    #[case(502, "retry unavailable", Some(8))]
    #[case(503, "retry unavailable", Some(8))]
    #[case(599, "retry unavailable", Some(8))]
    fn every_status_has_its_verdict(
        #[case] answered: u16,
        #[case] want: &str,
        #[case] wait: Option<i64>,
    ) {
        let verdict = verdict(&status(answered), 3, now(), 1.0);
        let said = match &verdict {
            Verdict::Accepted => "accepted".to_owned(),
            Verdict::TooLarge => "too large".to_owned(),
            Verdict::Retry { reason, .. } => format!("retry {}", reason.name()),
            Verdict::NeedsOperator { reason, .. } => format!("operator {}", reason.name()),
        };
        assert_eq!(said, want);
        assert_eq!(seconds(&verdict), wait);
    }

    #[test]
    fn no_answer_is_retried_and_says_what_failed() {
        let verdict = verdict(&Answer::Failed("connection refused".into()), 1, now(), 0.0);
        let Verdict::Retry { reason, .. } = &verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!(reason.to_string(), "no answer: connection refused");
        assert_eq!(seconds(&verdict), Some(1));
    }

    #[rstest]
    #[case(BrokerRefusal::Credentials, "operator not_allowed", Some(900))]
    #[case(BrokerRefusal::Destination, "operator destination_refused", Some(900))]
    #[case(BrokerRefusal::Other, "retry unavailable", Some(8))]
    fn an_error_of_a_broker_has_its_verdict(
        #[case] refusal: BrokerRefusal,
        #[case] want: &str,
        #[case] wait: Option<i64>,
    ) {
        let excerpt = "words".to_owned();
        let answer = Answer::Broker(BrokerAnswer::Refused { refusal, excerpt });
        let verdict = verdict(&answer, 3, now(), 1.0);
        let said = match &verdict {
            Verdict::Retry { reason, .. } => format!("retry {}", reason.name()),
            Verdict::NeedsOperator { reason, .. } => format!("operator {}", reason.name()),
            other => panic!("{other:?}"),
        };
        assert_eq!(said, want);
        assert_eq!(seconds(&verdict), wait);
    }

    #[test]
    fn a_broker_accepts_by_its_receipts() {
        let answer = Answer::Broker(BrokerAnswer::Receipts);
        assert_eq!(verdict(&answer, 1, now(), 0.5), Verdict::Accepted);
        assert!(!answer.leaves_doubt());
    }

    #[rstest]
    #[case(
        "application/x-www-form-urlencoded",
        "hub.mode=denied&hub.reason=not+registered",
        Some("not registered")
    )]
    #[case(
        "Application/X-WWW-Form-Urlencoded; charset=utf-8",
        "x=1&hub.mode=denied\r\n",
        Some("no reason given")
    )]
    #[case("application/x-www-form-urlencoded", "hub.mode=accepted", None)]
    #[case("text/plain", "hub.mode=denied", None)]
    fn a_form_body_may_deny_what_its_status_accepts(
        #[case] content_type: &str,
        #[case] body: &str,
        #[case] want: Option<&str>,
    ) {
        let answer = Answer::Status {
            status: 200,
            content_type: Some(content_type.into()),
            retry_after: None,
            excerpt: body.into(),
            credentials: None,
        };
        let want = want.map_or(Verdict::Accepted, |why| Verdict::NeedsOperator {
            at: now() + OPERATOR_WAIT,
            reason: Reason::Denied(why.into()),
        });
        assert_eq!(verdict(&answer, 1, now(), 0.5), want);
    }

    #[rstest]
    #[case(400, "no subscribers for this topic", "no_subscribers_likely")]
    #[case(400, "Topic has not been subscribed to", "no_subscribers_likely")]
    #[case(
        400,
        "hub.mode not recognized: no subscribe or unsubscribe",
        "wrong_mode"
    )]
    #[case(400, "bad form", "wrong_mode")]
    #[case(500, "", "no_subscribers_likely")]
    #[case(500, "<h1>Internal Server Error</h1>", "no_subscribers_likely")]
    #[case(500, "Traceback: disk full", "unavailable")]
    fn a_hub_without_subscribers_pages_nobody(
        #[case] status: u16,
        #[case] excerpt: &str,
        #[case] want: &str,
    ) {
        let answer = Answer::Status {
            status,
            content_type: None,
            retry_after: None,
            excerpt: excerpt.into(),
            credentials: None,
        };
        let (reason, calls) = match verdict(&answer, 1, now(), 0.5) {
            Verdict::Retry { reason, .. } => (reason, false),
            Verdict::NeedsOperator { reason, .. } => (reason, true),
            other => panic!("{other:?}"),
        };
        assert_eq!(reason.name(), want);
        assert_eq!(calls, want == "wrong_mode");
    }
}
