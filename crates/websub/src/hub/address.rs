//! Public and special-purpose IP addresses, in any notation, and networks in the configuration, such as `10.0.0.0/8`.

// `core::net` has the addresses without the sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// IANA's registry of special-purpose IPv4 addresses.
const SPECIAL_V4: [Ipv4Net; 15] = [
    v4_net([0, 0, 0, 0], 8),       // this network, and unspecified
    v4_net([10, 0, 0, 0], 8),      // private
    v4_net([100, 64, 0, 0], 10),   // shared by a provider's customers
    v4_net([127, 0, 0, 0], 8),     // loopback
    v4_net([169, 254, 0, 0], 16),  // link-local; cloud metadata services
    v4_net([172, 16, 0, 0], 12),   // private
    v4_net([192, 0, 0, 0], 24),    // protocols
    v4_net([192, 0, 2, 0], 24),    // documentation
    v4_net([192, 88, 99, 0], 24),  // 6to4 relays
    v4_net([192, 168, 0, 0], 16),  // private
    v4_net([198, 18, 0, 0], 15),   // benchmarks
    v4_net([198, 51, 100, 0], 24), // documentation
    v4_net([203, 0, 113, 0], 24),  // documentation
    v4_net([224, 0, 0, 0], 4),     // multicast
    v4_net([240, 0, 0, 0], 4),     // reserved, and broadcast
];

/// Global unicast IPv6. Loopback, link-local, unique local, multicast and unassigned addresses are outside it.
const UNICAST_V6: Ipv6Net = v6_net(0x2000 << 112, 3);

/// Special-purpose networks within it.
const SPECIAL_V6: [Ipv6Net; 3] = [
    v6_net(0x2001 << 112, 23),     // protocols and benchmarks
    v6_net(0x2001_0db8 << 96, 32), // documentation
    v6_net(0x3fff << 112, 20),     // documentation
];

/// IPv6 networks that embed IPv4 addresses, with the number of bits to the right of the IPv4 address.
const CARRIERS: [(Ipv6Net, u32); 4] = [
    (v6_net(0xffff << 32, 96), 0),      // mapped
    (v6_net(0, 96), 0),                 // compatible
    (v6_net(0x0064_ff9b << 96, 96), 0), // NAT64 (RFC 6052)
    (v6_net(0x2002 << 112, 16), 80),    // 6to4
];

/// Teredo, which inverts the bits of the IPv4 address.
const TEREDO: Ipv6Net = v6_net(0x2001 << 112, 32);

const fn v4_net(bytes: [u8; 4], prefix_length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(bytes), prefix_length)
}

const fn v6_net(bits: u128, prefix_length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix_length)
}

/// Returns true if an address belongs to the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match routed_address(address) {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            UNICAST_V6.contains(&address)
                && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

/// Returns the address to which packets go in the end: the embedded IPv4 address, if there is one.
pub fn routed_address(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let at = |shift: u32| Ipv4Addr::from_bits((v6.to_bits() >> shift) as u32);
    if TEREDO.contains(&v6) {
        return Ipv4Addr::from_bits(!at(0).to_bits()).into();
    }
    let mut carriers = CARRIERS.iter();
    let carrier = carriers.find(|(network, _)| network.contains(&v6));
    carrier.map_or(address, |(_, shift)| at(*shift).into())
}

/// The loopback networks.
pub const LOOPBACK: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
];

/// Parses a network in CIDR notation, or a single address.
///
/// # Errors
///
/// What to write instead, if it is neither, or has bits beyond its prefix.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let parsed = if text.contains('/') {
        text.parse().ok()
    } else {
        text.parse().ok().map(IpAddr::into)
    };
    let network: IpNet = parsed.ok_or_else(|| {
        format!(
            "\"{text}\" is not a network: write \"10.0.0.0/8\", \"fd00::/8\" or a single IP address"
        )
    })?;
    match network.trunc() {
        truncated if truncated == network => Ok(network),
        truncated => Err(format!(
            "\"{text}\" has bits set beyond its prefix: write \"{truncated}\""
        )),
    }
}

/// Returns the network with this prefix length around an address.
pub fn around(address: IpAddr, prefix_length: u8) -> IpNet {
    IpNet::new(address, prefix_length).map_or_else(|_| address.into(), |network| network.trunc())
}

/// Returns the networks under which an address is counted, each with the multiple of a quota that it allows: an IPv4
/// address alone, but of IPv6 the /64 that a customer has at least, and the /56 and /48 that it may have.
pub fn quota_networks(address: IpAddr) -> Vec<(IpNet, u32)> {
    let address = address.to_canonical();
    let sizes: &[(u8, u32)] = match address {
        IpAddr::V4(_) => &[(32, 1)],
        IpAddr::V6(_) => &[(64, 1), (56, 2), (48, 4)],
    };
    let around = |(length, times): &(u8, u32)| (around(address, *length), *times);
    sizes.iter().map(around).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hub::address::parse_network;

    #[test]
    fn these_are_public() {
        let addresses = [
            "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255",
            "128.0.0.0 169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255",
            "192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2001:200::1",
            "2001:4860:4860::8888 2003::1 3ffe::1 ::ffff:1.1.1.1 ::1.1.1.1 64:ff9b::1.1.1.1",
            "2002:101:101::1",
            // Teredo of 1.1.1.1
            "2001:0:a00:1::fefe:fefe",
        ];
        for address in addresses.iter().flat_map(|group| group.split(' ')) {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn these_are_not() {
        let addresses = [
            // Unspecified, this network.
            "0.0.0.0 0.255.255.255 ::",
            // Loopback.
            "127.0.0.1 127.255.255.255 ::1",
            // Private.
            "10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 172.16.0.0 172.31.255.255",
            "192.168.0.0 192.168.255.255 fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "fec0::1",
            // Link-local.
            "169.254.0.0 169.254.169.254 fe80::1 febf::1",
            // Protocols, documentation, benchmarks.
            "192.0.0.0 192.0.0.255 192.0.2.1 192.88.99.1 198.51.100.1 203.0.113.1 198.18.0.0",
            "198.19.255.255 2001:2::1 2001:1ff::1 2001:db8::1 3fff::1 100::1",
            // Multicast, broadcast, reserved.
            "224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 ff02::1 4000::1 5f00::1",
            // IPv4 within IPv6.
            "::ffff:0.0.0.0 ::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::10.0.0.1 64:ff9b::10.0.0.1",
            // for private use, whatever is within
            "64:ff9b:1::1.1.1.1",
            "2002:7f00:1::1 2002:a00:1:1:2:3:4:5",
            // Teredo of 10.0.0.1
            "2001:0:101:101::f5ff:fffe",
        ];
        for address in addresses.iter().flat_map(|group| group.split(' ')) {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
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

    #[test]
    fn networks_read_back() {
        for (text, display) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.168.1.7", "192.168.1.7/32"),
            ("fd00::/8", "fd00::/8"),
            ("::1", "::1/128"),
        ] {
            let read = parse_network(text).map(|network| network.to_string());
            assert_eq!(read, Ok(display.into()));
        }
        for text in " 10.0.0.0/33 10.0.0.0/x example.org ::/129 10.0.0/8".split(' ') {
            let message = parse_network(text).unwrap_err();
            assert!(message.contains("is not a network"), "{message}");
        }
        assert_eq!(
            parse_network("10.1.2.3/8").unwrap_err(),
            "\"10.1.2.3/8\" has bits set beyond its prefix: write \"10.0.0.0/8\""
        );
    }

    #[test]
    fn an_ipv6_address_counts_for_the_networks_that_one_customer_may_have() {
        let counted = |address: &str| {
            let counted = quota_networks(address.parse().unwrap())
                .into_iter()
                .map(|(network, times)| format!("{network} {times}"));
            counted.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(counted("192.0.2.7"), "192.0.2.7/32 1");
        assert_eq!(counted("::ffff:192.0.2.7"), "192.0.2.7/32 1");
        let networks = "2001:db8:1:234::/64 1, 2001:db8:1:200::/56 2, 2001:db8:1::/48 4";
        assert_eq!(counted("2001:db8:1:234:5::6"), networks);
    }

    #[test]
    fn a_network_contains_its_addresses_only() {
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::1", "::2", false),
        ] {
            let network = parse_network(network).unwrap();
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(network.contains(&address), inside, "{network} {address}");
        }
    }
}
