//! Which callbacks are accepted, and how a subscriber's intent is verified (WebSub section 5.3).

use url::{Host, Url};

use crate::announce::delivery::with_parameters;
use crate::announce::subscription::Callback;
use crate::announce::subscription::request::{Action, Refusal};
use crate::resourcesync::uri::is_clean;

/// Longer ones are nobody's address.
const CALLBACK_BYTES: usize = 2_000;

/// Where the embedded hub delivers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackPolicy {
    /// This machine only: 127.0.0.0/8, `::1` and `localhost`.
    Loopback,
}

impl CallbackPolicy {
    /// The callback, if it may be used.
    pub fn accept(&self, text: &str) -> Result<Callback, Refusal> {
        let url = Url::parse(text).map_err(|_| Refusal::Callback)?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none();
        if !is_plain || !is_clean(text) || text.len() > CALLBACK_BYTES {
            return Err(Refusal::Callback);
        }
        let CallbackPolicy::Loopback = self;
        let is_loopback = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        match is_loopback {
            true => Ok(Callback::new(text)),
            false => Err(Refusal::Address),
        }
    }
}

/// The URL to `GET` for verification: the callback's own query stays, ours comes after it.
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

/// Whether an answer says that the subscriber means it.
pub fn confirms(status: u16, body: &[u8], challenge: &str) -> bool {
    (200..300).contains(&status) && body == challenge.as_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://127.0.0.1:9/c?k=%20", Ok(()))]
    #[case("http://127.8.8.8/", Ok(()))]
    #[case("https://[::1]:8443/c", Ok(()))]
    #[case("http://LOCALHOST/c", Ok(()))]
    #[case("http://2130706433/c", Ok(()))] // 127.0.0.1, and connected to as such
    #[case("http://10.0.0.1/", Err(Refusal::Address))]
    #[case("http://0.0.0.0/", Err(Refusal::Address))]
    #[case("http://[::ffff:127.0.0.1]/", Err(Refusal::Address))]
    #[case("http://[::]/", Err(Refusal::Address))]
    #[case("http://example.org/", Err(Refusal::Address))]
    #[case("http://localhost.example.org/", Err(Refusal::Address))]
    #[case("http://localhost./", Err(Refusal::Address))]
    #[case("http://127.0.0.1@example.org/", Err(Refusal::Callback))]
    #[case("http://u:p@127.0.0.1/", Err(Refusal::Callback))]
    #[case("http://127.0.0.1/#x", Err(Refusal::Callback))]
    #[case("http://127.0.0.1/a b", Err(Refusal::Callback))]
    #[case("http://127.0.0.1/a\r\nX: y", Err(Refusal::Callback))]
    #[case("ftp://127.0.0.1/", Err(Refusal::Callback))]
    #[case("/c", Err(Refusal::Callback))]
    fn only_plain_urls_on_this_machine_are_accepted(
        #[case] text: &str,
        #[case] want: Result<(), Refusal>,
    ) {
        let accepted = CallbackPolicy::Loopback.accept(text);
        assert_eq!(
            accepted.map(|callback| assert_eq!(callback.as_str(), text)),
            want
        );
    }

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
