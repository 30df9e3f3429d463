//! Public and special-purpose IP addresses, in any notation.

// `core::net` has the addresses without the sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// IANA's registry of special-purpose IPv4 addresses.
const SPECIAL_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 0, 8),       // this network, and unspecified
    v4(10, 0, 0, 0, 8),      // private
    v4(100, 64, 0, 0, 10),   // shared by a provider's customers
    v4(127, 0, 0, 0, 8),     // loopback
    v4(169, 254, 0, 0, 16),  // link-local; cloud metadata services
    v4(172, 16, 0, 0, 12),   // private
    v4(192, 0, 0, 0, 24),    // protocols
    v4(192, 0, 2, 0, 24),    // documentation
    v4(192, 88, 99, 0, 24),  // 6to4 relays
    v4(192, 168, 0, 0, 16),  // private
    v4(198, 18, 0, 0, 15),   // benchmarks
    v4(198, 51, 100, 0, 24), // documentation
    v4(203, 0, 113, 0, 24),  // documentation
    v4(224, 0, 0, 0, 4),     // multicast
    v4(240, 0, 0, 0, 4),     // reserved, and broadcast
];

/// Global unicast IPv6. Loopback, link-local, unique local, multicast and unassigned addresses are outside it.
const UNICAST_V6: Ipv6Net = v6(0x2000 << 112, 3);

/// Special-purpose networks within it.
const SPECIAL_V6: [Ipv6Net; 3] = [
    v6(0x2001 << 112, 23),     // protocols and benchmarks
    v6(0x2001_0db8 << 96, 32), // documentation
    v6(0x3fff << 112, 20),     // documentation
];

/// IPv6 networks that embed IPv4 addresses, with the number of bits to the right of the IPv4 address.
const CARRIERS: [(Ipv6Net, u32); 4] = [
    (v6(0xffff << 32, 96), 0),      // mapped
    (v6(0, 96), 0),                 // compatible
    (v6(0x0064_ff9b << 96, 96), 0), // NAT64 (RFC 6052)
    (v6(0x2002 << 112, 16), 80),    // 6to4
];

/// Teredo, which inverts the bits of the IPv4 address.
const TEREDO: Ipv6Net = v6(0x2001 << 112, 32);

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_length)
}

const fn v6(bits: u128, prefix_length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix_length)
}

/// Returns true if an address belongs to the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match destination(address) {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            UNICAST_V6.contains(&address)
                && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

/// Returns the address to which packets go in the end: the embedded IPv4 address, if there is one.
pub fn destination(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    match embedded_ipv4(v6) {
        Some(embedded) => embedded.into(),
        None => address,
    }
}

fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let at = |shift: u32| Ipv4Addr::from_bits((address.to_bits() >> shift) as u32);
    if TEREDO.contains(&address) {
        return Some(Ipv4Addr::from_bits(!at(0).to_bits()));
    }
    CARRIERS
        .iter()
        .find(|(network, _)| network.contains(&address))
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
            let base = network.network().to_bits();
            Ipv4Addr::from_bits(base | bits & network.hostmask().to_bits())
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
