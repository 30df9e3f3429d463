//! The delivery request to a subscriber, its signature, and the meaning of the answer (WebSub section 7).

use std::fmt::Write;
use std::time::Duration;

use hmac::digest::KeyInit;
use hmac::{EagerHash, Hmac, Mac};
use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, unescape_at};
use sha2::{Sha256, Sha384, Sha512};

use crate::answer::Answer;
use crate::headers::link_header;
use crate::hub::RelayHeaders;
use crate::retry::{MAX_ATTEMPTS, next_try};
use crate::secret::Secret;

#[cfg(feature = "hub")]
pub mod http;

/// The outcome of an attempt to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The subscriber has it.
    Delivered,
    /// It is attempted again at this time.
    Retry(Timestamp),
    /// It failed at the last attempt, and the next notification follows.
    Abandoned,
    /// 410: the subscription has ended.
    Gone,
}

/// Judges the answer to attempt number `attempts`. `jitter` is random, from 0 to 1.
pub fn outcome(answer: &Answer, attempts: u32, now: Timestamp, jitter: f64) -> DeliveryOutcome {
    match answer {
        Answer::Status {
            status: 200..=299, ..
        } => DeliveryOutcome::Delivered,
        Answer::Status { status: 410, .. } => DeliveryOutcome::Gone,
        // The subscription stays until its lease ends.
        _ if attempts >= MAX_ATTEMPTS => DeliveryOutcome::Abandoned,
        _ => DeliveryOutcome::Retry(next_try(answer.retry_after(now), attempts, now, jitter)),
    }
}

/// The least speed at which a subscriber takes a body and answers, in bytes a second.
const SLOWEST: u64 = 10_000;

/// Returns the longest time for a delivery of a body of `size` bytes, where `usual` is that of any request.
pub fn timeout(usual: Duration, size: u64) -> Duration {
    usual + Duration::from_millis(size.saturating_mul(1_000) / SLOWEST)
}

/// Returns the headers of a delivery (Framework Notification 1.0.1 section 4.3).
pub fn headers(
    topic: &Topic,
    headers: &RelayHeaders,
    hub: &Hub,
    signature: Option<String>,
) -> Vec<(&'static str, String)> {
    let hub = std::slice::from_ref(hub);
    let links = link_header(topic, hub, headers.capability_list.as_ref());
    let content_type = headers.content_type.clone();
    let mut headers = vec![("Content-Type", content_type), ("Link", links)];
    headers.extend(signature.map(|signature| ("X-Hub-Signature", signature)));
    headers
}

/// Returns the value of `X-Hub-Signature`.
pub fn signature(secret: &Secret, body: &[u8]) -> String {
    signature_of_mac(new_mac::<Sha256>(secret).chain_update(body))
}

/// Returns the value of `X-Hub-Signature` for what a code was updated with.
pub(crate) fn signature_of_mac(mac: Hmac<Sha256>) -> String {
    let mut text = String::from("sha256=");
    for byte in mac.finalize().into_bytes() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns true if `X-Hub-Signature` proves that the sender knows the secret, by a method of WebSub section 7.1 that is
/// still secure.
pub fn is_signed(signature: &str, secret: &Secret, body: &[u8]) -> bool {
    let parts = signature.trim().split_once('=');
    let read = parts.and_then(|(method, digits)| Some((method, parse_hex(digits)?)));
    let Some((method, given)) = read else {
        return false;
    };
    match method.to_ascii_lowercase().as_str() {
        "sha256" => is_mac::<Sha256>(&given, secret, body),
        "sha384" => is_mac::<Sha384>(&given, secret, body),
        "sha512" => is_mac::<Sha512>(&given, secret, body),
        _ => false,
    }
}

fn is_mac<H: EagerHash>(given: &[u8], secret: &Secret, body: &[u8]) -> bool {
    let verified = new_mac::<H>(secret).chain_update(body).verify_slice(given);
    verified.is_ok()
}

/// Returns the message authentication code of no bytes yet.
pub(crate) fn new_mac<H: EagerHash>(secret: &Secret) -> Hmac<H> {
    Hmac::<H>::new_from_slice(secret.bytes()).expect("HMAC takes a key of any length")
}

/// Reads pairs of hexadecimal digits, which are escapes of URIs without their percent signs.
fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| unescape_at(&[b'%', *pair.first()?, *pair.get(1)?], 0))
        .collect()
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::Uri;
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn answered(status: u16, retry_after: Option<&str>) -> Answer {
        Answer::Status {
            status,
            content_type: None,
            retry_after: retry_after.map(Into::into),
            excerpt: String::new(),
            credentials: None,
        }
    }

    /// WebSub 7. Failures count, and `Retry-After`, as with hubs.
    #[test]
    fn a_delivery_is_retried_until_it_is_accepted_or_gone() {
        let retry = |after| DeliveryOutcome::Retry(now() + jiff::SignedDuration::from_secs(after));
        for (answer, attempts, want) in [
            (answered(200, None), 1, DeliveryOutcome::Delivered),
            (answered(204, None), 100, DeliveryOutcome::Delivered),
            (answered(410, None), 1, DeliveryOutcome::Gone),
            (answered(404, None), 1, retry(2)),
            (answered(302, None), 2, retry(4)),
            (answered(503, Some("60")), 1, retry(60)),
            (Answer::Failed("timeout".into()), 1, retry(2)),
            (answered(500, None), 99, retry(900)),
            (answered(500, None), 100, DeliveryOutcome::Abandoned),
        ] {
            assert_eq!(outcome(&answer, attempts, now(), 1.0), want, "{answer:?}");
        }
        let soonest = outcome(&Answer::Failed("timeout".into()), 1, now(), 0.0);
        assert_eq!(soonest, retry(1));
    }

    #[test]
    fn a_large_body_has_more_time() {
        let timeouts = [0, 1_000_000].map(|size| timeout(Duration::from_secs(10), size).as_secs());
        assert_eq!(timeouts, [10, 110]);
    }

    #[test]
    fn a_delivery_has_the_headers_that_came_with_its_notification() {
        let of_relay = RelayHeaders {
            content_type: "application/xml; charset=utf-8".to_owned(),
            capability_list: Some(Uri::parse("https://e.org/cl.xml").unwrap()),
        };
        let topic = Topic::new("https://e.org/t");
        let hub = Hub::new("https://hub.example/");
        let headers = headers(&topic, &of_relay, &hub, None);
        let links = "<https://e.org/t>; rel=\"self\", <https://hub.example/>; rel=\"hub\", \
                     <https://e.org/cl.xml>; rel=\"resourcesync\"";
        assert_eq!(
            headers,
            [
                ("Content-Type", "application/xml; charset=utf-8".to_owned()),
                ("Link", links.to_owned())
            ]
        );
    }

    // RFC 4231 section 4.3.
    const KNOWN: &str = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        let secret = Secret::new("Jefe");
        assert_eq!(signature(&secret, b"what do ya want for nothing?"), KNOWN);
        // Section 4.4: a secret that is no text signs as its bytes.
        let secret = Secret::of_bytes([0xaa; 20]);
        let want = "sha256=773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe";
        assert_eq!(signature(&secret, &[0xdd; 50]), want);
    }

    #[rstest]
    #[case(KNOWN, true)]
    #[case(&KNOWN.to_ascii_uppercase(), true)]
    #[case(&KNOWN[..KNOWN.len() - 2], false)]
    #[case(&KNOWN[..KNOWN.len() - 1], false)]
    #[case(&KNOWN.replace('5', "6"), false)]
    #[case("sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79", false)]
    #[case("sha256=", false)]
    #[case("sha256", false)]
    #[case("sha256=é", false)]
    fn only_the_right_signature_is_believed(#[case] given: &str, #[case] want: bool) {
        let secret = Secret::new("Jefe");
        assert_eq!(
            is_signed(given, &secret, b"what do ya want for nothing?"),
            want
        );
    }
}
