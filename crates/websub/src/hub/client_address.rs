//! The requester: the client address under which requests are counted, behind trusted proxies too.

// `core::net` has the addresses without the sockets.
use core::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::hub::address::around;

/// A client, as far as addresses identify it: an IPv4 address or an IPv6 /64, which is what one customer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requester(pub(crate) IpAddr);

impl Requester {
    /// Returns the requester at an address.
    pub fn at(address: IpAddr) -> Requester {
        let address = address.to_canonical();
        let prefix_length = if address.is_ipv4() { 32 } else { 64 };
        Requester(around(address, prefix_length).addr())
    }
}

/// Returns the address of the client of the `peer` that is connected, from its forwarding headers; nothing if the peer
/// itself counts as the client. A peer without an address is connected through a Unix socket, which only programs of this
/// machine can reach, and counts as a trusted proxy.
///
/// Each proxy appends to a header, so its last address is trusted if the peer is, the one before it if that one is
/// trusted too, and so on. A proxy that knows one of the headers passes the other one on as a stranger wrote it: where
/// they disagree, neither is trusted.
pub fn forwarded_for(
    peer: Option<IpAddr>,
    trusted: &[IpNet],
    forwarded: &[&str],
    x_forwarded_for: &[&str],
) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    if !peer.is_none_or(|address| is_trusted(address.to_canonical())) {
        return None;
    }
    let nearest = |hops: Vec<Option<IpAddr>>| {
        let mut found = None;
        // An invalid address hides those before it.
        for address in hops.into_iter().rev().map_while(|hop| hop) {
            found = Some(address);
            if !is_trusted(address) {
                break;
            }
        }
        found
    };
    let addresses = x_forwarded_for.iter().flat_map(|value| value.split(','));
    let x_forwarded_for = nearest(addresses.map(address).collect());
    match (nearest(forwarded_hops(forwarded)), x_forwarded_for) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    }
}

/// Returns the addresses of `Forwarded` (RFC 7239), in order.
fn forwarded_hops(values: &[&str]) -> Vec<Option<IpAddr>> {
    let elements = values.iter().flat_map(|value| unquoted_split(value, ','));
    let hops = elements.map(|element| {
        let mut pairs = unquoted_split(element, ';').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
        address(value.trim().trim_matches('"'))
    });
    hops.collect()
}

/// Splits a text at separators outside quotes.
fn unquoted_split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |c| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    })
}

/// Parses an address as proxies write it: bare, or with a port.
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
    use crate::hub::address::parse_network;

    fn found(peer: Option<&str>, forwarded: &[&str], x_forwarded_for: &[&str]) -> Option<String> {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|text| parse_network(text).unwrap());
        let peer = peer.map(|peer| peer.parse().unwrap());
        let client = forwarded_for(peer, &trusted, forwarded, x_forwarded_for);
        client
            .or(peer)
            .map(|found| Requester::at(found).0.to_string())
    }

    #[rstest]
    #[case("1.1.1.1", &["2.2.2.2"], "1.1.1.1")] // an untrusted peer
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

    #[test]
    fn headers_that_disagree_are_not_believed() {
        for (peer, x_forwarded_for, forwarded, want) in [
            (Some("10.0.0.1"), "2.2.2.2", "for=2.2.2.2", Some("2.2.2.2")),
            (Some("10.0.0.1"), "2.2.2.2", "for=9.9.9.9", Some("10.0.0.1")),
            (None, "2.2.2.2", "for=2.2.2.2", Some("2.2.2.2")),
            (None, "2.2.2.2", "for=9.9.9.9", None),
            (None, "", "", None),
        ] {
            let found = found(peer, &[forwarded], &[x_forwarded_for]);
            assert_eq!(found.as_deref(), want, "{peer:?} {forwarded}");
        }
    }

    #[test]
    fn a_client_on_the_host_of_the_proxy_is_told_from_the_proxy() {
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        for (trusted, header, want) in [
            ("127.0.0.0/8", "127.0.0.1", Some(here)),
            ("10.0.0.0/8", "127.0.0.1", None),
            ("127.0.0.0/8", "unknown", None),
        ] {
            let trusted = [parse_network(trusted).unwrap()];
            assert_eq!(forwarded_for(Some(here), &trusted, &[], &[header]), want);
        }
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
