//! Subscription requests, as forms have them (WebSub section 5.1, Framework Notification 1.0.1 section 4.2), and the policy
//! for callbacks: checks their URLs at subscription, and the addresses they resolve to at each connection.
//!
//! A URL is checked by its text alone, so that the answer to a subscription request reveals nothing about the network.
//! The addresses behind a name are known only when it is called, and that outcome is not revealed to the subscriber.

#[cfg(feature = "hub")]
pub mod http;

// `core::net` has the addresses without the sockets.
use core::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use percent_encoding::percent_decode;
use resourcesync::uri::has_valid_chars;
use url::{Host, Url, form_urlencoded};

use crate::headers::form_value;
use crate::hub::Callback;
use crate::hub::address::{LOOPBACK, is_public, routed_address};
use crate::hub::admission::LimitExceeded;
use crate::secret::Secret;

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

    /// Returns the time after which the same request may succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Rejection::Limit(exceeded) => Some(exceeded.retry_after),
            _ => None,
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
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    let secret: Vec<u8> = percent_decode(&plain).collect();
    if secret.len() > SECRET_BYTES {
        return Err(Rejection::Secret);
    }
    Ok(Some(secret)
        .filter(|secret| !secret.is_empty())
        .map(Secret::of_bytes))
}

/// The maximum length of a callback URL.
const CALLBACK_BYTES: usize = 2_000;

/// The callbacks that the embedded hub delivers to. The default suits a public hub: common web ports on public addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackPolicy {
    /// True if `http` URLs are refused.
    pub https_only: bool,
    /// Ports that callbacks may have. The default ones do not apply in `allowed`: there, any port is permitted then.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Networks that are allowed although they are not public, or belong to this machine.
    pub allowed: Vec<IpNet>,
}

impl Default for CallbackPolicy {
    fn default() -> CallbackPolicy {
        CallbackPolicy {
            https_only: false,
            ports: vec![80..=80, 443..=443, 8000..=9999],
            allowed: Vec::new(),
        }
    }
}

impl CallbackPolicy {
    /// Returns the default policy plus any port on loopback, for a hub that only this machine can reach.
    pub fn on_this_machine() -> CallbackPolicy {
        CallbackPolicy {
            allowed: LOOPBACK.to_vec(),
            ..CallbackPolicy::default()
        }
    }

    /// Checks a callback URL.
    ///
    /// # Errors
    ///
    /// If it is no URL, or not one that is permitted.
    pub fn accept(&self, text: &str) -> Result<Callback, Rejection> {
        let url = Url::parse(text).map_err(|_| Rejection::Callback)?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none();
        if !is_plain || !has_valid_chars(text) || text.len() > CALLBACK_BYTES {
            return Err(Rejection::Callback);
        }
        if self.https_only && url.scheme() != "https" {
            return Err(Rejection::Https);
        }
        let port = url.port_or_known_default().ok_or(Rejection::Callback)?;
        let literal = literal_address(&url);
        if !self.permits_port(port, literal) {
            return Err(Rejection::Port);
        }
        // The URL does not show if a public address is our own, so that is not revealed.
        let is_permitted = literal.is_none_or(|address| self.permits(address, |_| false));
        if is_permitted {
            Ok(Callback::new(text))
        } else {
            Err(Rejection::Address)
        }
    }

    /// Returns true if a callback may be called at an address. `is_local` tells if an address is this machine's.
    pub fn permits(&self, address: IpAddr, is_local: impl Fn(IpAddr) -> bool) -> bool {
        self.is_in_allowed(address) || (is_public(address) && !is_local(routed_address(address)))
    }

    /// Returns true if a callback may have this port at an address, or under a name, which may stand for an address in an
    /// allowed network.
    pub fn permits_port(&self, port: u16, address: Option<IpAddr>) -> bool {
        let is_open = || match address {
            Some(address) => self.is_in_allowed(address),
            None => !self.allowed.is_empty(),
        };
        // Ports that are chosen are a limit in allowed networks too.
        self.ports.iter().any(|ports| ports.contains(&port))
            || self.ports == CallbackPolicy::default().ports && is_open()
    }

    fn is_in_allowed(&self, address: IpAddr) -> bool {
        let destination = routed_address(address);
        let mut allowed = self.allowed.iter();
        allowed.any(|network| network.contains(&address) || network.contains(&destination))
    }
}

/// Returns the IP address in a callback URL, which is used without a lookup.
pub fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::hub::address::parse_network;

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

    fn judged(policy: &CallbackPolicy, text: &str) -> Result<(), Rejection> {
        let accepted = policy.accept(text);
        accepted.map(|callback| assert_eq!(callback.as_str(), text))
    }

    #[rstest]
    #[case("http://example.org/c?k=%20", Ok(()))]
    #[case("https://EXAMPLE.org/", Ok(()))]
    #[case("http://example.org:8000/", Ok(()))]
    #[case("http://example.org:9999/", Ok(()))]
    #[case("http://93.184.215.14/", Ok(()))]
    #[case("https://[2606:2800:21f::1]/", Ok(()))]
    // Names are not judged by what they say: what they resolve to is.
    #[case("http://localhost/", Ok(()))]
    #[case("http://10.0.0.1.example.org/", Ok(()))]
    #[case("http://example.org:22/", Err(Rejection::Port))]
    #[case("https://example.org:7999/", Err(Rejection::Port))]
    #[case("https://example.org:10000/", Err(Rejection::Port))]
    #[case("http://127.0.0.1:22/", Err(Rejection::Port))]
    #[case("http://127.0.0.1/", Err(Rejection::Address))]
    #[case("http://2130706433/", Err(Rejection::Address))]
    #[case("http://0x7f.1/", Err(Rejection::Address))]
    #[case("http://0177.0.0.1/", Err(Rejection::Address))]
    #[case("http://127.1/", Err(Rejection::Address))]
    #[case("http://127.0.0.1./", Err(Rejection::Address))]
    #[case("http://%31%32%37.0.0.1/", Err(Rejection::Address))]
    #[case("http://10.0.0.1/", Err(Rejection::Address))]
    #[case("http://0.0.0.0/", Err(Rejection::Address))]
    #[case("http://[::ffff:127.0.0.1]/", Err(Rejection::Address))]
    #[case("http://[::]/", Err(Rejection::Address))]
    #[case("http://127.0.0.1@example.org/", Err(Rejection::Callback))]
    #[case("http://u:p@example.org/", Err(Rejection::Callback))]
    #[case("http://:p@example.org/", Err(Rejection::Callback))]
    #[case("http://example.org/#x", Err(Rejection::Callback))]
    #[case("http://example.org/a b", Err(Rejection::Callback))]
    #[case("http://example.org/a\r\nX: y", Err(Rejection::Callback))]
    #[case("ftp://example.org/", Err(Rejection::Callback))]
    #[case("gopher://example.org:80/", Err(Rejection::Callback))]
    #[case("/c", Err(Rejection::Callback))]
    fn strangers_may_name_plain_urls_at_the_web_s_ports(
        #[case] text: &str,
        #[case] want: Result<(), Rejection>,
    ) {
        assert_eq!(judged(&CallbackPolicy::default(), text), want);
    }

    #[rstest]
    #[case("http://127.0.0.1:9/c?k=%20", Ok(()))]
    #[case("http://127.8.8.8/", Ok(()))]
    #[case("https://[::1]:8443/c", Ok(()))]
    #[case("http://LOCALHOST/c", Ok(()))]
    #[case("http://2130706433/c", Ok(()))] // 127.0.0.1, and connected to as such
    #[case("http://[::ffff:127.0.0.1]:40000/", Ok(()))] // so is this
    #[case("http://10.0.0.1/", Err(Rejection::Address))]
    #[case("http://0.0.0.0/", Err(Rejection::Address))]
    #[case("http://[::]/", Err(Rejection::Address))]
    fn loopback_may_be_allowed(#[case] text: &str, #[case] want: Result<(), Rejection>) {
        assert_eq!(judged(&CallbackPolicy::on_this_machine(), text), want);
    }

    #[test]
    fn https_may_be_required() {
        let policy = CallbackPolicy {
            https_only: true,
            ..CallbackPolicy::default()
        };
        assert_eq!(judged(&policy, "https://example.org/c"), Ok(()));
        for url in ["http://example.org/c", "http://example.org:443/c"] {
            assert_eq!(judged(&policy, url), Err(Rejection::Https));
        }
    }

    #[rstest]
    #[case("93.184.215.14", true)]
    #[case("93.184.215.15", false)]
    #[case("64:ff9b::93.184.215.15", false)]
    #[case("10.1.2.3", true)]
    #[case("10.1.2.15", true)]
    #[case("::ffff:10.1.2.3", true)]
    #[case("10.2.2.3", false)]
    #[case("::1", false)]
    fn our_own_addresses_are_called_only_where_it_is_allowed(
        #[case] address: &str,
        #[case] want: bool,
    ) {
        let policy = CallbackPolicy {
            allowed: vec![parse_network("10.1.0.0/16").unwrap()],
            ..CallbackPolicy::default()
        };
        let is_local = |address: IpAddr| address.to_string().ends_with(".15");
        let permits = policy.permits(address.parse().unwrap(), is_local);
        assert_eq!(permits, want);
    }

    #[rstest]
    #[case("http://10.1.2.3:22/", Ok(()))]
    #[case("http://[::ffff:10.1.2.3]:22/", Ok(()))]
    #[case("http://93.184.215.14:22/", Err(Rejection::Port))]
    #[case("http://10.2.2.3:22/", Err(Rejection::Port))]
    // What it stands for is known at the connection.
    #[case("http://example.org:22/", Ok(()))]
    fn any_port_is_permitted_in_an_allowed_network_unless_ports_are_chosen(
        #[case] text: &str,
        #[case] want: Result<(), Rejection>,
    ) {
        let mut policy = CallbackPolicy {
            allowed: vec![parse_network("10.1.0.0/16").unwrap()],
            ..CallbackPolicy::default()
        };
        assert_eq!(judged(&policy, text), want);
        policy.ports = vec![443..=443];
        assert_eq!(judged(&policy, text), Err(Rejection::Port));
    }

    proptest! {
        #[test]
        fn an_address_is_judged_alike_in_every_notation(
            network in prop::sample::select(vec![0, 0x0a00_0000, 0x7f00_0000, 0xa9fe_0000, 0xc0a8_0000]),
            bits: u32,
        ) {
            for address in [bits, network | bits & 0xffff].map(Ipv4Addr::from_bits) {
                let [a, b, c, d] = address.octets();
                let bits = address.to_bits();
                let carried = |prefix: u128| Ipv6Addr::from_bits(prefix | u128::from(bits));
                for host in [
                    address.to_string(),
                    format!("{address}."),
                    format!("{bits}"),
                    format!("0x{bits:X}"),
                    format!("0{a:o}.0x{b:x}.{c}.0{d:o}"),
                    format!("{a}.{b}.{}", u32::from(c) << 8 | u32::from(d)),
                    format!("[{}]", address.to_ipv6_mapped()),
                    format!("[{}]", carried(0)),
                    format!("[{}]", carried(0x0064_ff9b << 96)),
                    format!("[2002:{:x}:{:x}::1]", bits >> 16, bits & 0xffff),
                ] {
                    let want = is_public(address.into()).then_some(()).ok_or(Rejection::Address);
                    let text = format!("http://{host}/");
                    prop_assert_eq!(judged(&CallbackPolicy::default(), &text), want, "{}", host);
                }
            }
        }
    }
}
