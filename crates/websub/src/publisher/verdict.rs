//! The meaning of a hub's answer for the notification in flight, and the redirections that a submission follows: file
//! content and foreign servers never decide where notifications are sent (R9, R23).

use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use crate::answer::{Answer, BrokerRefusal};
use crate::headers::{form_value, is_form};
use crate::publisher::reason::{Refusal, RefusalKind};
use crate::retry::{backoff, later, next_try};

/// The outcome of a notification after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The hub has it.
    Accepted,
    /// The notification is withdrawn, and half of it cut.
    TooLarge,
    /// It is retried.
    Refused {
        /// The time of the next attempt.
        at: Timestamp,
        /// The reason for it.
        refusal: Refusal,
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
    let refused = |at, kind, reason: &str, needs_operator| Verdict::Refused {
        at,
        refusal: Refusal::new(kind, reason, needs_operator),
    };
    let slowly = later(now, OPERATOR_WAIT);
    let operator = |kind, reason: &str| refused(slowly, kind, reason, true);
    let soon = |kind, reason: &str| {
        let at = later(now, backoff(attempts, jitter));
        refused(at, kind, reason, false)
    };
    let (status, content_type, excerpt, credentials) = match answer {
        Answer::Failed(error) => {
            return soon(RefusalKind::NoAnswer, &format!("no answer: {error}"));
        }
        Answer::Receipts => return Verdict::Accepted,
        // F7.
        Answer::BrokerError { refusal, excerpt } => {
            return match refusal {
                BrokerRefusal::Credentials => operator(
                    RefusalKind::NotAllowed,
                    &format!("it refuses user name, password or virtual host: {excerpt}"),
                ),
                BrokerRefusal::Destination => operator(
                    RefusalKind::DestinationRefused,
                    &format!("it refuses the destination: {excerpt}"),
                ),
                BrokerRefusal::Other => soon(
                    RefusalKind::Unavailable,
                    &format!("it answers with an error: {excerpt}"),
                ),
            };
        }
        Answer::Status {
            status,
            content_type,
            excerpt,
            credentials,
            ..
        } => (*status, content_type, excerpt, *credentials),
    };
    let later = |kind, reason: &str| {
        let at = next_try(answer.retry_after(now), attempts, now, jitter);
        refused(at, kind, reason, false)
    };
    let nobody_subscribed = format!("probably nobody has subscribed ({status})");
    match status {
        200..=299 => match denial(content_type.as_deref(), excerpt) {
            Some(why) => operator(
                RefusalKind::Denied,
                &format!("it denies the publication: {why}"),
            ),
            None => Verdict::Accepted,
        },
        413 => Verdict::TooLarge,
        500 if says_nobody_subscribed(excerpt) || says_nothing(excerpt) => {
            later(RefusalKind::NoSubscribersLikely, &nobody_subscribed)
        }
        // No operator can correct this, so there is no alert, and the hub is retried slowly.
        400 if says_nobody_subscribed(excerpt) => refused(
            slowly,
            RefusalKind::NoSubscribersLikely,
            &nobody_subscribed,
            false,
        ),
        408 | 425 | 429 | 500..=599 => later(
            RefusalKind::Unavailable,
            &format!("it cannot take it now ({status})"),
        ),
        300..=399 => {
            let to = excerpt.strip_prefix(LOCATION).filter(|to| !to.is_empty());
            let reason = match to {
                Some(to) => format!(
                    "it redirects ({status}) to {to}, where nothing is sent: if that is the hub, make it url or \
                     publish_url"
                ),
                None => format!("it redirects ({status}) to nowhere: correct url or publish_url"),
            };
            operator(RefusalKind::Redirected, &reason)
        }
        400 | 405 | 406 | 415 => operator(
            RefusalKind::WrongMode,
            &format!("it wants the notification in another form ({status}): try another mode"),
        ),
        401 | 403 => {
            let reason = match credentials {
                Some(refused) if status == 401 => format!("it refuses the {refused} (401)"),
                _ => {
                    format!("it wants credentials, or the topic to be registered first ({status})")
                }
            };
            operator(RefusalKind::NotAllowed, &reason)
        }
        407 => operator(
            RefusalKind::NotAllowedByProxy,
            "the proxy wants credentials (407): put them into the variable that names it, such as HTTPS_PROXY",
        ),
        404 | 410 => operator(
            RefusalKind::NotThere,
            &format!(
                "it takes no notifications at this address ({status}): correct url or publish_url"
            ),
        ),
        _ => operator(RefusalKind::Refused, &format!("it refuses ({status})")),
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

/// Redirections that one submission follows.
pub const MAX_HOPS: u32 = 3;

/// Returns the address at which an answer to a request sent to `from`, after `hops` redirections, asks for the same request
/// again; nothing if this answer is the last. `configured` are the addresses of all configured hubs.
pub fn next_hop(
    status: u16,
    location: Option<&str>,
    from: &Url,
    hops: u32,
    configured: &[Url],
) -> Option<Url> {
    let target = from.join(location?.trim()).ok()?;
    let keeps_method = matches!(status, 307 | 308);
    let is_http = matches!(target.scheme(), "http" | "https");
    let has_credentials = !target.username().is_empty() || target.password().is_some();
    let is_known = from.origin() == target.origin()
        || configured.iter().any(|hub| same_except_query(hub, &target));
    let may_follow = is_http && !has_credentials && is_known;
    (keeps_method && hops < MAX_HOPS && may_follow).then_some(target)
}

/// Returns true if two addresses are one resource, whatever their queries: a `content-query` hub's carries the topic.
pub fn same_except_query(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin() && one.path() == other.path()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn answer(status: u16, content_type: Option<&str>, excerpt: &str) -> Answer {
        Answer::Status {
            status,
            content_type: content_type.map(Into::into),
            retry_after: None,
            excerpt: excerpt.into(),
            credentials: None,
        }
    }

    /// Returns the verdict on the answer to a third attempt, if chance makes the wait the longest.
    fn judged(answer: &Answer) -> String {
        match verdict(answer, 3, now(), 1.0) {
            Verdict::Accepted => "accepted".to_owned(),
            Verdict::TooLarge => "too large".to_owned(),
            Verdict::Refused { at, refusal } => {
                let who = if refusal.needs_operator {
                    "operator"
                } else {
                    "retry"
                };
                let (wait, kind) = (at.duration_since(now()).as_secs(), refusal.kind.as_str());
                format!("{who} in {wait} s, {kind}: {}", refusal.reason)
            }
        }
    }

    /// `(N)` stands for the status.
    #[test]
    fn every_status_has_its_verdict() {
        const REDIRECTED: &str = "operator in 900 s, redirected: it redirects (N) to ";
        const OTHER_FORM: &str = "operator in 900 s, wrong_mode: it wants the notification in another form (N): try \
                                  another mode";
        const CREDENTIALS: &str = "operator in 900 s, not_allowed: it wants credentials, or the topic to be registered \
                                   first (N)";
        const ADDRESS: &str = "operator in 900 s, not_there: it takes no notifications at this address (N): correct \
                               url or publish_url";
        const PROXY: &str = "operator in 900 s, not_allowed_by_proxy: the proxy wants credentials (N): put them into \
                             the variable that names it, such as HTTPS_PROXY";
        const BUSY: &str = "retry in 8 s, unavailable: it cannot take it now (N)";
        const NOBODY: &str = "s, no_subscribers_likely: probably nobody has subscribed (N)";
        let nowhere = &format!("{REDIRECTED}nowhere: correct url or publish_url");
        let elsewhere = &format!(
            "{REDIRECTED}/b, where nothing is sent: if that is the hub, make it url or publish_url"
        );
        let [nobody, nobody_yet] = &["900", "8"].map(|wait| format!("retry in {wait} {NOBODY}"));
        for (statuses, excerpt, want) in [
            ("200 202 204 207", "denied", "accepted"),
            ("301 304 308", "words", nowhere),
            ("307", "Location: /b", elsewhere),
            ("400 405 406 415", "words", OTHER_FORM),
            ("400", "no subscribers for this topic", nobody),
            ("400", "Topic has not been subscribed to", nobody),
            ("400", "hub.mode: no subscribe or unsubscribe", OTHER_FORM),
            ("401 403", "words", CREDENTIALS),
            ("404 410", "words", ADDRESS),
            ("407", "words", PROXY),
            ("408 425 429 500 502 503 504 599", "disk full", BUSY),
            ("413", "words", "too large"),
            ("418", "words", "operator in 900 s, refused: it refuses (N)"),
            ("500", "", nobody_yet),
            ("500", "<h1>Internal Server Error</h1>", nobody_yet),
        ] {
            for status in statuses.split(' ') {
                let found = judged(&answer(status.parse().unwrap(), None, excerpt));
                assert_eq!(found, want.replace("(N)", &format!("({status})")));
            }
        }
    }

    #[test]
    fn no_answer_and_answers_of_brokers_have_their_verdicts() {
        let broker = |refusal| Answer::BrokerError {
            refusal,
            excerpt: "words".to_owned(),
        };
        for (answer, want) in [
            (
                Answer::Failed("timed out".into()),
                "retry in 8 s, no_answer: no answer: timed out",
            ),
            (Answer::Receipts, "accepted"),
            (
                broker(BrokerRefusal::Credentials),
                "operator in 900 s, not_allowed: it refuses user name, password or virtual host: words",
            ),
            (
                broker(BrokerRefusal::Destination),
                "operator in 900 s, destination_refused: it refuses the destination: words",
            ),
            (
                broker(BrokerRefusal::Other),
                "retry in 8 s, unavailable: it answers with an error: words",
            ),
        ] {
            assert_eq!(judged(&answer), want);
        }
        let soonest = verdict(&Answer::Failed("timed out".into()), 3, now(), 0.0);
        let at = now() + jiff::SignedDuration::from_secs(1);
        assert!(
            matches!(soonest, Verdict::Refused { at: it, .. } if it == at),
            "{soonest:?}"
        );
        assert!(!Answer::Receipts.leaves_doubt());
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
        #[case] reason: Option<&str>,
    ) {
        let want = reason.map_or("accepted".to_owned(), |reason| {
            format!("operator in 900 s, denied: it denies the publication: {reason}")
        });
        assert_eq!(judged(&answer(200, Some(content_type), body)), want);
    }

    #[rstest]
    #[case(307, "/b", 0, Some("https://hub.org/b"))]
    #[case(308, "b?x=1", 2, Some("https://hub.org/a/b?x=1"))]
    #[case(308, "https://hub.org:443/b", 0, Some("https://hub.org/b"))]
    #[case(308, "https://other.org/publish", 0, Some("https://other.org/publish"))]
    #[case(
        308,
        "https://other.org/publish?hub.mode=publish",
        0,
        Some("https://other.org/publish?hub.mode=publish")
    )]
    #[case(308, "https://other.org/elsewhere", 0, None)]
    #[case(308, "http://hub.org/b", 0, None)]
    #[case(308, "https://hub.org:8443/b", 0, None)]
    #[case(308, "https://user:pw@hub.org/b", 0, None)]
    #[case(308, "file:///etc/passwd", 0, None)]
    #[case(308, "//evil.org/", 0, None)]
    #[case(307, "/b", 3, None)]
    #[case(301, "/b", 0, None)]
    #[case(302, "/b", 0, None)]
    #[case(303, "/b", 0, None)]
    #[case(200, "/b", 0, None)]
    fn only_307_and_308_lead_to_the_same_origin_or_a_configured_hub(
        #[case] status: u16,
        #[case] location: &str,
        #[case] hops: u32,
        #[case] want: Option<&str>,
    ) {
        let from = Url::parse("https://hub.org/a/").unwrap();
        let configured = [Url::parse("https://other.org/publish").unwrap()];
        let want = want.map(|url| Url::parse(url).unwrap());
        assert_eq!(
            next_hop(status, Some(location), &from, hops, &configured),
            want
        );
        assert_eq!(next_hop(status, None, &from, hops, &configured), None);
    }
}
