//! The policy for callbacks: checks their URLs at subscription, and the addresses they resolve to at each connection.
//!
//! A URL is checked by its text alone, so that the answer to a subscription request reveals nothing about the network.
//! The addresses behind a name are known only when it is called, and that outcome is not revealed to the subscriber.

// `core::net` has the addresses without the sockets.
use core::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use resourcesync::uri::is_clean;
use url::{Host, Url};

use crate::hub::Callback;
use crate::hub::address::{LOOPBACK, is_public, routed_address};
use crate::hub::request::Rejection;

#[cfg(feature = "hub")]
pub(crate) mod http;

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
        if !is_plain || !is_clean(text) || text.len() > CALLBACK_BYTES {
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
        self.allows(address) || (is_public(address) && !is_local(routed_address(address)))
    }

    /// Returns true if a callback may have this port at an address, or under a name, which may stand for an address in an
    /// allowed network.
    pub fn permits_port(&self, port: u16, address: Option<IpAddr>) -> bool {
        let is_open = || match address {
            Some(address) => self.allows(address),
            None => !self.allowed.is_empty(),
        };
        // Ports that are chosen are a limit in allowed networks too.
        self.ports.iter().any(|ports| ports.contains(&port))
            || self.ports == CallbackPolicy::default().ports && is_open()
    }

    fn allows(&self, address: IpAddr) -> bool {
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
