//! Which callbacks are accepted: their URLs when they are asked for, and the addresses behind those whenever they are
//! called.
//!
//! A URL is judged by its text alone, so that the answer to a subscription tells nothing about the network: what a
//! name stands for shows only when it is called, and nobody is told of that.

// The addresses alone: `core` has no sockets.
use core::net::IpAddr;
use std::ops::RangeInclusive;

use url::{Host, Url};

use crate::hub::Callback;
use crate::hub::address::{destination, is_public};
use crate::hub::network::Network;
use crate::hub::request::Refusal;
use crate::resourcesync::uri::is_clean;

/// Longer ones are nobody's address.
const CALLBACK_BYTES: usize = 2_000;

/// Where the embedded hub delivers to. The default is for strangers: the web's ports on public addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackPolicy {
    pub https_only: bool,
    pub ports: Vec<RangeInclusive<u16>>,
    /// Where callbacks may lie although it is not public, or is this machine.
    pub allowed: Vec<Network>,
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
    /// The default, and any port of this machine: for who listens to nobody else.
    pub fn on_this_machine() -> CallbackPolicy {
        CallbackPolicy {
            ports: vec![1..=u16::MAX],
            allowed: Network::LOOPBACK.to_vec(),
            ..CallbackPolicy::default()
        }
    }

    /// The callback, if its URL may be used.
    pub fn accept(&self, text: &str) -> Result<Callback, Refusal> {
        let url = Url::parse(text).map_err(|_| Refusal::Callback)?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none();
        if !is_plain || !is_clean(text) || text.len() > CALLBACK_BYTES {
            return Err(Refusal::Callback);
        }
        if self.https_only && url.scheme() != "https" {
            return Err(Refusal::Https);
        }
        let port = url.port_or_known_default().ok_or(Refusal::Callback)?;
        if !self.ports.iter().any(|ports| ports.contains(&port)) {
            return Err(Refusal::Port);
        }
        // Whether a public address is ours is not in the URL, and therefore not told.
        let is_permitted = literal(&url).is_none_or(|address| self.permits(address, |_| false));
        match is_permitted {
            true => Ok(Callback::new(text)),
            false => Err(Refusal::Address),
        }
    }

    /// Whether a callback may be called at an address. `is_own` says whether one is this machine's.
    pub fn permits(&self, address: IpAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
        let destination = destination(address);
        let is_allowed =
            |network: &Network| network.contains(address) || network.contains(destination);
        self.allowed.iter().any(is_allowed) || (is_public(address) && !is_own(destination))
    }
}

/// The address that a callback has instead of a name. It is in force without being looked up.
pub fn literal_address(callback: &Callback) -> Option<IpAddr> {
    literal(&Url::parse(callback.as_str()).ok()?)
}

fn literal(url: &Url) -> Option<IpAddr> {
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

    fn judged(policy: &CallbackPolicy, text: &str) -> Result<(), Refusal> {
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
    #[case("http://example.org:22/", Err(Refusal::Port))]
    #[case("https://example.org:7999/", Err(Refusal::Port))]
    #[case("https://example.org:10000/", Err(Refusal::Port))]
    #[case("http://127.0.0.1:22/", Err(Refusal::Port))]
    #[case("http://127.0.0.1/", Err(Refusal::Address))]
    #[case("http://2130706433/", Err(Refusal::Address))]
    #[case("http://0x7f.1/", Err(Refusal::Address))]
    #[case("http://0177.0.0.1/", Err(Refusal::Address))]
    #[case("http://127.1/", Err(Refusal::Address))]
    #[case("http://127.0.0.1./", Err(Refusal::Address))]
    #[case("http://%31%32%37.0.0.1/", Err(Refusal::Address))]
    #[case("http://10.0.0.1/", Err(Refusal::Address))]
    #[case("http://0.0.0.0/", Err(Refusal::Address))]
    #[case("http://[::ffff:127.0.0.1]/", Err(Refusal::Address))]
    #[case("http://[::]/", Err(Refusal::Address))]
    #[case("http://127.0.0.1@example.org/", Err(Refusal::Callback))]
    #[case("http://u:p@example.org/", Err(Refusal::Callback))]
    #[case("http://:p@example.org/", Err(Refusal::Callback))]
    #[case("http://example.org/#x", Err(Refusal::Callback))]
    #[case("http://example.org/a b", Err(Refusal::Callback))]
    #[case("http://example.org/a\r\nX: y", Err(Refusal::Callback))]
    #[case("ftp://example.org/", Err(Refusal::Callback))]
    #[case("gopher://example.org:80/", Err(Refusal::Callback))]
    #[case("/c", Err(Refusal::Callback))]
    fn strangers_may_name_plain_urls_at_the_web_s_ports(
        #[case] text: &str,
        #[case] want: Result<(), Refusal>,
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
    #[case("http://10.0.0.1/", Err(Refusal::Address))]
    #[case("http://0.0.0.0/", Err(Refusal::Address))]
    #[case("http://[::]/", Err(Refusal::Address))]
    fn loopback_may_be_allowed(#[case] text: &str, #[case] want: Result<(), Refusal>) {
        assert_eq!(judged(&CallbackPolicy::on_this_machine(), text), want);
    }

    #[test]
    fn https_may_be_required() {
        let policy = CallbackPolicy {
            https_only: true,
            ..CallbackPolicy::default()
        };
        assert_eq!(judged(&policy, "https://example.org/c"), Ok(()));
        assert_eq!(judged(&policy, "http://example.org/c"), Err(Refusal::Https));
        assert_eq!(
            judged(&policy, "http://example.org:443/c"),
            Err(Refusal::Https)
        );
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
            allowed: vec![Network::parse("10.1.0.0/16").unwrap()],
            ..CallbackPolicy::default()
        };
        let is_own = |address: IpAddr| address.to_string().ends_with(".15");
        let permits = policy.permits(address.parse().unwrap(), is_own);
        assert_eq!(permits, want);
    }

    #[test]
    fn one_refusal_stands_for_all_addresses() {
        let answers = [
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "[fe80::1]",
            "240.0.0.1",
        ]
        .map(|host| CallbackPolicy::default().accept(&format!("http://{host}/")));
        assert!(
            answers
                .iter()
                .all(|answer| *answer == Err(Refusal::Address))
        );
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
                    let want = match is_public(address.into()) {
                        true => Ok(()),
                        false => Err(Refusal::Address),
                    };
                    let text = format!("http://{host}/");
                    prop_assert_eq!(judged(&CallbackPolicy::default(), &text), want, "{}", host);
                }
            }
        }
    }
}
