//! Which addresses belong to the public internet, whatever notation hides them.

// The addresses alone: `core` has no sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::hub::network::Network;

/// What is not the public internet, as IANA's registry of special-purpose IPv4 addresses has it.
const SPECIAL_V4: [Network; 15] = [
    Network::v4(0, 0, 0, 0, 8),       // this network, and nowhere
    Network::v4(10, 0, 0, 0, 8),      // private
    Network::v4(100, 64, 0, 0, 10),   // shared by a provider's customers
    Network::v4(127, 0, 0, 0, 8),     // loopback
    Network::v4(169, 254, 0, 0, 16),  // link-local; clouds tell secrets there
    Network::v4(172, 16, 0, 0, 12),   // private
    Network::v4(192, 0, 0, 0, 24),    // protocols
    Network::v4(192, 0, 2, 0, 24),    // documentation
    Network::v4(192, 88, 99, 0, 24),  // what 6to4 had
    Network::v4(192, 168, 0, 0, 16),  // private
    Network::v4(198, 18, 0, 0, 15),   // benchmarks
    Network::v4(198, 51, 100, 0, 24), // documentation
    Network::v4(203, 0, 113, 0, 24),  // documentation
    Network::v4(224, 0, 0, 0, 4),     // multicast
    Network::v4(240, 0, 0, 0, 4),     // reserved, and broadcast
];

/// All of IPv6 that is given out for use between anyone and anyone. Loopback, link-local, unique local,
/// multicast and what is yet to be given out lie elsewhere.
const UNICAST_V6: Network = Network::v6(0x2000 << 112, 3);

/// What is special in it.
const SPECIAL_V6: [Network; 3] = [
    Network::v6(0x2001 << 112, 23),     // protocols and benchmarks
    Network::v6(0x2001_0db8 << 96, 32), // documentation
    Network::v6(0x3fff << 112, 20),     // documentation
];

/// Notations of IPv4 addresses in IPv6: the network, and how far right the IPv4 address ends.
const CARRIERS: [(Network, u32); 4] = [
    (Network::v6(0xffff << 32, 96), 0),      // mapped
    (Network::v6(0, 96), 0),                 // compatible
    (Network::v6(0x0064_ff9b << 96, 96), 0), // NAT64 (RFC 6052)
    (Network::v6(0x2002 << 112, 16), 80),    // 6to4
];

/// Teredo, which writes the bits of the IPv4 address inverted.
const TEREDO: Network = Network::v6(0x2001 << 112, 32);

/// Whether an address is one that anybody might have.
pub fn is_public(address: IpAddr) -> bool {
    let is_in =
        |networks: &[Network], address| networks.iter().any(|network| network.contains(address));
    match destination(address) {
        address @ IpAddr::V4(_) => !is_in(&SPECIAL_V4, address),
        address @ IpAddr::V6(_) => UNICAST_V6.contains(address) && !is_in(&SPECIAL_V6, address),
    }
}

/// Where packets for an address end up: at the IPv4 address within it, if there is one.
pub fn destination(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    match ipv4_within(v6) {
        Some(within) => within.into(),
        None => address,
    }
}

fn ipv4_within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let at = |shift: u32| Ipv4Addr::from_bits((address.to_bits() >> shift) as u32);
    if TEREDO.contains(address.into()) {
        return Some(Ipv4Addr::from_bits(!at(0).to_bits()));
    }
    CARRIERS
        .iter()
        .find(|(network, _)| network.contains(address.into()))
        .map(|(_, shift)| at(*shift))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1.1.1.1")]
    #[case("9.255.255.255")]
    #[case("11.0.0.0")]
    #[case("100.63.255.255")]
    #[case("100.128.0.0")]
    #[case("126.255.255.255")]
    #[case("128.0.0.0")]
    #[case("169.253.255.255")]
    #[case("172.15.255.255")]
    #[case("172.32.0.0")]
    #[case("192.0.1.0")]
    #[case("192.167.255.255")]
    #[case("192.169.0.0")]
    #[case("198.17.255.255")]
    #[case("198.20.0.0")]
    #[case("223.255.255.255")]
    #[case("2606:4700::1111")]
    #[case("2001:200::1")]
    #[case("2001:4860:4860::8888")]
    #[case("2003::1")]
    #[case("3ffe::1")]
    #[case("::ffff:1.1.1.1")]
    #[case("::1.1.1.1")]
    #[case("64:ff9b::1.1.1.1")]
    #[case("2002:101:101::1")]
    #[case("2001:0:a00:1::fefe:fefe")] // Teredo of 1.1.1.1
    fn these_are_public(#[case] address: &str) {
        assert!(is_public(address.parse().unwrap()));
    }

    #[rstest]
    // Unspecified, this network.
    #[case("0.0.0.0")]
    #[case("0.255.255.255")]
    #[case("::")]
    // Loopback.
    #[case("127.0.0.1")]
    #[case("127.255.255.255")]
    #[case("::1")]
    // Private.
    #[case("10.0.0.0")]
    #[case("10.255.255.255")]
    #[case("100.64.0.0")]
    #[case("100.127.255.255")]
    #[case("172.16.0.0")]
    #[case("172.31.255.255")]
    #[case("192.168.0.0")]
    #[case("192.168.255.255")]
    #[case("fc00::")]
    #[case("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]
    #[case("fec0::1")]
    // Link-local.
    #[case("169.254.0.0")]
    #[case("169.254.169.254")]
    #[case("fe80::1")]
    #[case("febf::1")]
    // Protocols, documentation, benchmarks.
    #[case("192.0.0.0")]
    #[case("192.0.0.255")]
    #[case("192.0.2.1")]
    #[case("192.88.99.1")]
    #[case("198.51.100.1")]
    #[case("203.0.113.1")]
    #[case("198.18.0.0")]
    #[case("198.19.255.255")]
    #[case("2001:2::1")]
    #[case("2001:1ff::1")]
    #[case("2001:db8::1")]
    #[case("3fff::1")]
    #[case("100::1")]
    // Multicast, broadcast, reserved.
    #[case("224.0.0.1")]
    #[case("239.255.255.255")]
    #[case("240.0.0.1")]
    #[case("255.255.255.255")]
    #[case("ff02::1")]
    #[case("4000::1")]
    #[case("5f00::1")]
    // IPv4 within IPv6.
    #[case("::ffff:0.0.0.0")]
    #[case("::ffff:127.0.0.1")]
    #[case("::ffff:a9fe:a9fe")]
    #[case("::10.0.0.1")]
    #[case("64:ff9b::10.0.0.1")]
    #[case("64:ff9b:1::1.1.1.1")] // for private use, whatever is within
    #[case("2002:7f00:1::1")]
    #[case("2002:a00:1:1:2:3:4:5")]
    #[case("2001:0:101:101::f5ff:fffe")] // Teredo of 10.0.0.1
    fn these_are_not(#[case] address: &str) {
        assert!(!is_public(address.parse().unwrap()));
    }

    /// Any address of a network that is not public.
    fn special() -> impl Strategy<Value = Ipv4Addr> {
        let networks = prop::sample::select(SPECIAL_V4.to_vec());
        (networks, any::<u32>()).prop_map(|(network, bits)| {
            let IpAddr::V4(base) = network.address else {
                unreachable!("the table is of IPv4")
            };
            let host_bits = u32::MAX >> network.prefix_length;
            Ipv4Addr::from_bits(base.to_bits() | bits & host_bits)
        })
    }

    proptest! {
        #[test]
        fn no_notation_makes_a_special_address_public(inner in special(), noise: u128) {
            let bits = u128::from(inner.to_bits());
            let mut written = vec![
                IpAddr::V4(inner),
                inner.to_ipv6_mapped().into(),
                inner.to_ipv6_compatible().into(),
            ];
            for v6 in [
                0x0064_ff9b << 96 | bits,
                0x2002 << 112 | bits << 80 | noise >> 48,
                0x2001 << 112 | noise >> 32 & !u128::from(u32::MAX) | bits ^ u128::from(u32::MAX),
            ] {
                written.push(Ipv6Addr::from_bits(v6).into());
            }
            for address in written {
                prop_assert!(!is_public(address), "{address} for {inner}");
            }
        }

        #[test]
        fn the_standard_library_finds_nothing_special_in_a_public_address(v4: u32, v6: u128) {
            let v4 = Ipv4Addr::from_bits(v4);
            if is_public(v4.into()) {
                prop_assert!(!v4.is_private() && !v4.is_loopback() && !v4.is_link_local());
                prop_assert!(!v4.is_multicast() && !v4.is_documentation() && !v4.is_unspecified());
            }
            // Most of the time within what is given out, where there is something to find.
            for v6 in [v6, v6 >> 3 | 1 << 125] {
                let v6 = Ipv6Addr::from_bits(v6);
                if is_public(v6.into()) {
                    prop_assert!(!v6.is_loopback() && !v6.is_multicast() && !v6.is_unspecified());
                    prop_assert!(!v6.is_unique_local() && !v6.is_unicast_link_local());
                }
            }
        }
    }
}
