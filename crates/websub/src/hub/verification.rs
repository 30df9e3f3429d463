//! Verification of the subscriber's intent (WebSub section 5.3).

use crate::form::with_parameters;
use crate::hub::Callback;
use crate::hub::request::Action;

#[cfg(feature = "hub")]
pub(crate) mod http;
#[cfg(feature = "hub")]
mod keyed_queue;

/// Returns the URL of a verification request: the callback's own query stays, the parameters are appended.
pub fn verification_url(
    callback: &Callback,
    action: &Action,
    topic: &str,
    challenge: &str,
) -> String {
    let lease = match action {
        Action::Subscribe { lease, .. } => Some(lease.as_secs().to_string()),
        Action::Unsubscribe => None,
    };
    let mut parameters = vec![
        ("hub.mode", action.mode()),
        ("hub.topic", topic),
        ("hub.challenge", challenge),
    ];
    parameters.extend(
        lease
            .iter()
            .map(|lease| ("hub.lease_seconds", lease.as_str())),
    );
    with_parameters(callback.as_str(), &parameters)
}

/// Returns the URL of a request that tells a subscriber that its subscription was denied or has ended (WebSub
/// section 5.2).
pub fn denial_url(callback: &Callback, topic: &str, reason: &str) -> String {
    let parameters = [
        ("hub.mode", "denied"),
        ("hub.topic", topic),
        ("hub.reason", reason),
    ];
    with_parameters(callback.as_str(), &parameters)
}

/// Returns true if an answer confirms the request.
pub fn confirms(status: u16, body: &[u8], challenge: &str) -> bool {
    (200..300).contains(&status) && body == challenge.as_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    #[test]
    fn the_callback_s_own_query_is_kept() {
        let callback = Callback::new("http://127.0.0.1/c?k=a%20b+c");
        let subscribe = Action::Subscribe {
            lease: Duration::from_secs(300),
            secret: None,
        };
        assert_eq!(
            verification_url(&callback, &subscribe, "http://e.org/t?a&b", "42"),
            "http://127.0.0.1/c?k=a%20b+c&hub.mode=subscribe\
             &hub.topic=http%3A%2F%2Fe.org%2Ft%3Fa%26b&hub.challenge=42&hub.lease_seconds=300"
        );
        assert_eq!(
            verification_url(
                &Callback::new("http://[::1]/"),
                &Action::Unsubscribe,
                "t",
                "42"
            ),
            "http://[::1]/?hub.mode=unsubscribe&hub.topic=t&hub.challenge=42"
        );
    }

    #[rstest]
    #[case(200, "42", true)]
    #[case(204, "42", true)]
    #[case(200, "42\n", false)]
    #[case(200, "<p>42</p>", false)]
    #[case(200, "", false)]
    #[case(302, "42", false)]
    #[case(404, "42", false)]
    fn only_a_2xx_with_the_exact_challenge_confirms(
        #[case] status: u16,
        #[case] body: &str,
        #[case] want: bool,
    ) {
        assert_eq!(confirms(status, body.as_bytes(), "42"), want);
    }
}
