//! Who asks: the address that requests are counted for, behind trusted proxies too.

// The addresses alone: `core` has no sockets.
use core::net::{IpAddr, SocketAddr};
use std::fmt;

use crate::hub::network::Network;

/// One who asks, as far as addresses tell: an IPv4 address or an IPv6 /64, which is what one customer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requester(IpAddr);

impl Requester {
    pub fn new(address: IpAddr) -> Requester {
        let address = address.to_canonical();
        let prefix_length = if address.is_ipv4() { 32 } else { 64 };
        Requester(Network::around(address, prefix_length).address)
    }
}

impl Requester {
    /// The networks that it counts for.
    pub fn networks(&self) -> Vec<(Network, u32)> {
        Network::counted(self.0)
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who asks, when `peer` is connected and says in these headers for whom it does. A peer without an address came
/// through a Unix socket, where only programs of this machine come, and counts as a proxy. None if even that one does
/// not say.
///
/// Each proxy adds to the end of a header, so the last address is believed if the peer is trusted, the one before it
/// if that one is trusted too, and so on. A proxy that knows one of the headers lets the other one pass as a stranger
/// wrote it: where they disagree, neither is believed.
pub fn requester(
    peer: Option<IpAddr>,
    trusted: &[Network],
    forwarded: &[&str],
    x_forwarded_for: &[&str],
) -> Option<Requester> {
    let peer = peer.map(|address| address.to_canonical());
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !peer.is_none_or(is_trusted) {
        return peer.map(Requester::new);
    }
    let nearest = |hops: Vec<Option<IpAddr>>| {
        let mut found = None;
        for hop in hops.into_iter().rev() {
            // What is no address hides who is behind it.
            let Some(address) = hop else { break };
            found = Some(address);
            if !is_trusted(address) {
                break;
            }
        }
        found
    };
    let forwarded = nearest(forwarded_hops(forwarded));
    let x_forwarded_for = nearest(x_forwarded_for_hops(x_forwarded_for));
    let told = match (forwarded, x_forwarded_for) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    };
    told.or(peer).map(Requester::new)
}

/// Whether a request with this `Host`, and this `Origin` if it has one, is meant for a server with these host names. IP
/// addresses and `localhost` always are its own. Only browsers send `Origin`, with what pages make them ask.
pub fn is_meant(own_hosts: &[String], host: &str, origin: Option<&str>) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_own = bare.unwrap_or(name).parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || own_hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
    let is_same = |origin: &str| {
        let rest = origin.split_once("://").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    };
    (is_own || name.is_empty()) && origin.is_none_or(is_same)
}

/// The addresses of `X-Forwarded-For`, in order.
fn x_forwarded_for_hops(values: &[&str]) -> Vec<Option<IpAddr>> {
    let hops = values.iter().flat_map(|value| value.split(','));
    hops.map(address).collect()
}

/// The addresses of `Forwarded` (RFC 7239), in order.
fn forwarded_hops(values: &[&str]) -> Vec<Option<IpAddr>> {
    let elements = values.iter().flat_map(|value| unquoted_split(value, ','));
    let hops = elements.map(|element| {
        let mut pairs = unquoted_split(element, ';').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
        address(value.trim().trim_matches('"'))
    });
    hops.collect()
}

/// The parts of a text between separators that stand in no quotes.
fn unquoted_split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |c| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    })
}

/// An address as proxies write it: bare, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match bare.unwrap_or(text).parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => text.parse::<SocketAddr>().ok()?.ip(),
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn found(peer: Option<&str>, forwarded: &[&str], x_forwarded_for: &[&str]) -> Option<String> {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|text| Network::parse(text).unwrap());
        let peer = peer.map(|peer| peer.parse().unwrap());
        requester(peer, &trusted, forwarded, x_forwarded_for).map(|found| found.to_string())
    }

    #[rstest]
    #[case("1.1.1.1", &["2.2.2.2"], "1.1.1.1")] // whoever says so itself
    #[case("::ffff:1.1.1.1", &["2.2.2.2"], "1.1.1.1")]
    #[case("10.0.0.1", &[], "10.0.0.1")]
    #[case("10.0.0.1", &["2.2.2.2"], "2.2.2.2")]
    #[case("::ffff:10.0.0.1", &["::ffff:2.2.2.2"], "2.2.2.2")]
    #[case("10.0.0.1", &["2.2.2.2:1234"], "2.2.2.2")]
    #[case("fd00::1", &["2a00:1:2:3:4::5"], "2a00:1:2:3::")]
    #[case("10.0.0.1", &["[2a00:1:2:3::5]"], "2a00:1:2:3::")]
    #[case("10.0.0.1", &["[2a00:1:2:3::5]:80"], "2a00:1:2:3::")]
    #[case("10.0.0.1", &["9.9.9.9, 2.2.2.2"], "2.2.2.2")] // what a stranger wrote comes first
    #[case("10.0.0.1", &["9.9.9.9, 2.2.2.2 ,10.0.0.7"], "2.2.2.2")]
    #[case("10.0.0.1", &["9.9.9.9", "2.2.2.2", "10.0.0.7"], "2.2.2.2")]
    #[case("10.0.0.1", &["10.0.0.9, 10.0.0.7"], "10.0.0.9")]
    #[case("10.0.0.1", &["2.2.2.2, unknown, 10.0.0.7"], "10.0.0.7")]
    #[case("10.0.0.1", &["2.2.2.2,"], "10.0.0.1")]
    #[case("10.0.0.1", &["' or 1=1"], "10.0.0.1")]
    fn x_forwarded_for_is_read_from_its_end_as_far_as_it_is_trusted(
        #[case] peer: &str,
        #[case] header: &[&str],
        #[case] want: &str,
    ) {
        assert_eq!(found(Some(peer), &[], header).as_deref(), Some(want));
    }

    #[rstest]
    #[case(&["for=2.2.2.2"], "2.2.2.2")]
    #[case(&["proto=https; For=\"2.2.2.2:80\" ;by=10.0.0.1"], "2.2.2.2")]
    #[case(&["for=\"[2a00:1:2:3::5]:4711\""], "2a00:1:2:3::")]
    #[case(&["for=9.9.9.9, for=2.2.2.2, for=10.0.0.7"], "2.2.2.2")]
    #[case(&["for=9.9.9.9;host=\"a, for=3.3.3.3\", for=2.2.2.2"], "2.2.2.2")]
    #[case(&["for=2.2.2.2, for=_hidden"], "10.0.0.1")]
    #[case(&["for=2.2.2.2, proto=http"], "10.0.0.1")]
    #[case(&["for=2.2.2.2, \"for=9.9.9.9"], "10.0.0.1")]
    fn forwarded_is_read_from_its_end_as_far_as_it_is_trusted(
        #[case] header: &[&str],
        #[case] want: &str,
    ) {
        assert_eq!(found(Some("10.0.0.1"), header, &[]).as_deref(), Some(want));
    }

    #[rstest]
    #[case(Some("10.0.0.1"), "2.2.2.2", "for=2.2.2.2", Some("2.2.2.2"))]
    #[case(Some("10.0.0.1"), "2.2.2.2", "for=9.9.9.9", Some("10.0.0.1"))]
    #[case(None, "2.2.2.2", "for=2.2.2.2", Some("2.2.2.2"))]
    #[case(None, "2.2.2.2", "for=9.9.9.9", None)]
    #[case(None, "", "", None)]
    fn headers_that_disagree_are_not_believed(
        #[case] peer: Option<&str>,
        #[case] x_forwarded_for: &str,
        #[case] forwarded: &str,
        #[case] want: Option<&str>,
    ) {
        assert_eq!(
            found(peer, &[forwarded], &[x_forwarded_for]).as_deref(),
            want
        );
    }

    #[rstest]
    #[case("127.0.0.1:8400", None, true)]
    #[case("[::1]:8400", None, true)]
    #[case("192.0.2.7", None, true)]
    #[case("localhost:8400", None, true)]
    #[case("LOCALHOST", None, true)]
    #[case("hub.example:80", None, true)]
    #[case("", None, true)]
    #[case("evil.example", None, false)]
    #[case("evil.example:8400", None, false)]
    #[case("localhost.evil.example:8400", None, false)]
    #[case("127.0.0.1.evil.example", None, false)]
    #[case("127.0.0.1:8400", Some("http://127.0.0.1:8400"), true)]
    #[case("127.0.0.1:8400", Some("http://127.0.0.1:3000"), false)]
    #[case("127.0.0.1:8400", Some("https://evil.example"), false)]
    #[case("127.0.0.1:8400", Some("null"), false)]
    #[case("127.0.0.1:8400", Some(""), false)]
    #[case("evil.example:8400", Some("http://evil.example:8400"), false)]
    fn only_what_is_addressed_to_us_by_no_page_elsewhere_is_meant(
        #[case] host: &str,
        #[case] origin: Option<&str>,
        #[case] want: bool,
    ) {
        let own = ["hub.example".to_owned()];
        assert_eq!(is_meant(&own, host, origin), want);
    }

    proptest! {
        #[test]
        fn nothing_a_stranger_writes_first_counts(theirs in "[ -~]{0,60}", quad: [u8; 4]) {
            let stranger = IpAddr::from([101, quad[1], quad[2], quad[3]]);
            let want = Some(stranger.to_string());
            // As a proxy that adds to the header, or writes another one.
            let ours = stranger.to_string();
            prop_assert_eq!(&found(Some("10.0.0.1"), &[], &[&theirs, &ours]), &want);
            let added = format!("{theirs}, {ours}");
            prop_assert_eq!(&found(Some("10.0.0.1"), &[], &[&added]), &want);
            let ours = format!("for={ours}");
            prop_assert_eq!(&found(Some("10.0.0.1"), &[&theirs, &ours], &[]), &want);
        }
    }
}
