//! Subscription requests, as forms have them (WebSub section 5.1, Framework Notification 1.0.1 section 4.2).

use std::time::Duration;

use percent_encoding::percent_decode;
use url::form_urlencoded;

use crate::headers::form_value;
use crate::hub::Callback;
use crate::hub::callback::CallbackPolicy;
use crate::hub::limits::LimitExceeded;
use crate::secret::Secret;

#[cfg(feature = "hub")]
pub(crate) mod http;

/// Body of the answer of a hub to a `GET`.
pub const HUB_GREETING: &str = "this is a WebSub hub: POST a subscription form\n";

/// The minimum, default and maximum lease: 5 minutes, 10 days, 31 days.
const LEASE_SECONDS: (u64, u64, u64) = (300, 864_000, 2_678_400);
/// The maximum length of a secret: WebSub section 5.1 says less than 200 bytes.
const SECRET_BYTES: usize = 199;

/// A valid subscription request, to be answered with 202.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRequest {
    /// The requested action.
    pub action: RequestedAction,
    /// The topic as given, which verification repeats.
    pub topic: String,
    /// The callback.
    pub callback: Callback,
}

/// The value of `hub.mode` with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedAction {
    /// `subscribe`, also to renew.
    Subscribe {
        /// Duration of the lease.
        lease: Duration,
        /// The secret that deliveries are signed with.
        secret: Option<Secret>,
    },
    /// `unsubscribe`.
    Unsubscribe,
}

impl RequestedAction {
    /// Returns the value of `hub.mode`.
    pub fn mode(&self) -> &'static str {
        match self {
            RequestedAction::Subscribe { .. } => "subscribe",
            RequestedAction::Unsubscribe => "unsubscribe",
        }
    }
}

/// The reason for which a request is rejected. The text is for the subscriber and reveals nothing about our network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each says it")]
pub enum Rejection {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("hub.mode must be subscribe or unsubscribe")]
    Mode,
    #[error("this hub relays the notifications of its own Source only; it takes none from others")]
    Publish,
    #[error("hub.lease_seconds is not a number of seconds greater than 0")]
    Lease,
    #[error("hub.secret must have less than 200 bytes")]
    Secret,
    #[error("hub.callback is not an http or https URL without credentials and fragment")]
    Callback,
    #[error("hub.callback must be an https URL")]
    Https,
    #[error("hub.callback is at a port that this hub does not deliver to")]
    Port,
    #[error("hub.callback is at an address that this hub does not deliver to")]
    Address,
    #[error("hub.topic is not a topic of this hub")]
    Topic,
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl Rejection {
    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Rejection::Publish | Rejection::Https | Rejection::Port | Rejection::Address => 403,
            Rejection::Topic => 404,
            Rejection::Limit(exceeded) => exceeded.status(),
            _ => 400,
        }
    }
}

/// Parses a form body. Unknown parameters, and `hub.verify` of older versions, are ignored; of several values of one
/// parameter the first counts.
///
/// # Errors
///
/// The reason for which the hub refuses it.
pub fn parse(form: &[u8], policy: &CallbackPolicy) -> Result<SubscriptionRequest, Rejection> {
    let value = |name| form_value(form, name).filter(|value| !value.is_empty());
    let need = |wanted: &'static str| value(wanted).ok_or(Rejection::Missing(wanted));
    let action = match need("hub.mode")?.as_str() {
        "subscribe" => RequestedAction::Subscribe {
            lease: lease(value("hub.lease_seconds").as_deref())?,
            secret: secret(form)?,
        },
        "unsubscribe" => RequestedAction::Unsubscribe,
        "publish" => return Err(Rejection::Publish),
        _ => return Err(Rejection::Mode),
    };
    let topic = need("hub.topic")?;
    let callback = policy.accept(&need("hub.callback")?)?;
    Ok(SubscriptionRequest {
        action,
        topic,
        callback,
    })
}

/// Returns the lease to grant.
fn lease(asked_for: Option<&str>) -> Result<Duration, Rejection> {
    let (shortest, usual, longest) = LEASE_SECONDS;
    let seconds = match asked_for.map(str::trim) {
        None => usual,
        Some(digits) if digits.bytes().any(|byte| !byte.is_ascii_digit()) => 0,
        Some("") => 0,
        // A number that overflows is longer than any lease.
        Some(digits) => digits.parse().unwrap_or(u64::MAX),
    };
    if seconds == 0 {
        return Err(Rejection::Lease);
    }
    Ok(Duration::from_secs(seconds.clamp(shortest, longest)))
}

/// Returns the secret, which may be any bytes.
fn secret(form: &[u8]) -> Result<Option<Secret>, Rejection> {
    let mut pairs = form.split(|byte| *byte == b'&');
    let value = pairs.find_map(|pair| {
        let (name, _) = form_urlencoded::parse(pair).next()?;
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (name == "hub.secret").then_some(&pair[at + 1..])
    });
    let plain: Vec<u8> = value
        .unwrap_or_default()
        .iter()
        .map(|byte| match byte {
            b'+' => b' ',
            byte => *byte,
        })
        .collect();
    let secret: Vec<u8> = percent_decode(&plain).collect();
    if secret.len() > SECRET_BYTES {
        return Err(Rejection::Secret);
    }
    Ok(Some(secret)
        .filter(|secret| !secret.is_empty())
        .map(Secret::of_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const BASE: &str = "hub.topic=http%3A%2F%2Fe.org%2Ft&hub.callback=http%3A%2F%2F127.0.0.1%2Fc";

    fn parse_text(form: &str) -> Result<SubscriptionRequest, Rejection> {
        parse(form.as_bytes(), &CallbackPolicy::on_this_machine())
    }

    /// WebSub 5.1, 5.1.1 and 5.3: the lease that is told; parameters that a hub does not know.
    #[rstest]
    #[case("", 864_000)]
    #[case("&hub.lease_seconds=", 864_000)]
    #[case("&hub.lease_seconds=299", 300)]
    #[case("&hub.lease_seconds=3600", 3600)]
    #[case("&hub.lease_seconds=2678401", 2_678_400)]
    #[case("&hub.lease_seconds=99999999999999999999999", 2_678_400)]
    #[case("&hub.verify=async&hub.verify_token=x&other=%FF", 864_000)]
    fn a_lease_is_kept_within_bounds(#[case] more: &str, #[case] seconds: u64) {
        let request = parse_text(&format!("hub.mode=subscribe&{BASE}{more}")).unwrap();
        let lease = Duration::from_secs(seconds);
        let secret = None;
        assert_eq!(request.action, RequestedAction::Subscribe { lease, secret });
        assert_eq!(request.topic, "http://e.org/t");
        assert_eq!(request.callback.as_str(), "http://127.0.0.1/c");
    }

    /// WebSub 5.1 and 5.1.2.
    #[rstest]
    #[case("", Rejection::Missing("hub.mode"))]
    #[case("hub.mode=denied&", Rejection::Mode)]
    #[case("hub.mode=publish&", Rejection::Publish)]
    #[case("hub.mode=subscribe&hub.lease_seconds=-1&", Rejection::Lease)]
    #[case("hub.mode=subscribe&hub.lease_seconds=1.5&", Rejection::Lease)]
    #[case("hub.mode=subscribe&hub.lease_seconds=0&", Rejection::Lease)]
    #[case("hub.mode=subscribe&hub.lease_seconds=000&", Rejection::Lease)]
    #[case("hub.mode=unsubscribe&hub.topic=&", Rejection::Missing("hub.topic"))]
    #[case(
        "hub.mode=unsubscribe&hub.callback=&",
        Rejection::Missing("hub.callback")
    )]
    #[case("hub.mode=unsubscribe&hub.callback=x&", Rejection::Callback)]
    fn invalid_requests_are_rejected(#[case] before: &str, #[case] want: Rejection) {
        assert_eq!(parse_text(&format!("{before}{BASE}")), Err(want));
    }

    /// WebSub 5.1: it counts for nothing there.
    #[test]
    fn an_unsubscription_may_carry_a_lease() {
        let form = format!("hub.mode=unsubscribe&hub.lease_seconds=whenever&{BASE}");
        assert!(
            matches!(parse_text(&form), Ok(request) if request.action == RequestedAction::Unsubscribe)
        );
    }

    /// WebSub 5.1.
    #[test]
    fn a_secret_is_bytes_and_fewer_than_200() {
        let secret = |given: &str| {
            let form = format!("hub.mode=subscribe&{BASE}&hub%2Esecret={given}");
            match parse_text(&form)?.action {
                RequestedAction::Subscribe { secret, .. } => Ok(secret),
                RequestedAction::Unsubscribe => panic!("it subscribes"),
            }
        };
        let longest = "s".repeat(199);
        // Bytes that are no text, those that a form writes otherwise, and none.
        for (given, want) in [
            ("%FF%00%80+a%2B=&", Some(&b"\xff\0\x80 a+="[..])),
            ("%zz%4&hub.secret=second", Some(b"%zz%4")),
            ("", None),
            (&longest, Some(longest.as_bytes())),
        ] {
            let secret = secret(given).unwrap();
            assert_eq!(secret.as_ref().map(Secret::bytes), want, "{given}");
        }
        assert_eq!(secret(&"s".repeat(200)), Err(Rejection::Secret));
    }

    proptest! {
        #[test]
        fn any_form_is_handled(form: Vec<u8>) {
            let rejected = parse(&form, &CallbackPolicy::on_this_machine()).is_err();
            prop_assert!(rejected);
        }
    }
}
