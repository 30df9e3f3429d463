//! IP networks in the configuration, such as `10.0.0.0/8`, and those under which an address is counted.

// `core::net` has the addresses without the sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The loopback networks.
pub const LOOPBACK: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
];

/// An error in the text of a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The text is no network.
    #[error("\"{0}\" is not a network: write \"10.0.0.0/8\", \"fd00::/8\" or a single IP address")]
    Form(String),
    /// The network has bits beyond its prefix; the text, and what it should be.
    #[error("\"{0}\" has bits set beyond its prefix: write \"{1}\"")]
    HostBits(String, IpNet),
}

/// Parses a network in CIDR notation, or a single address.
///
/// # Errors
///
/// If it is neither, or has bits beyond its prefix.
pub fn parse(text: &str) -> Result<IpNet, NetworkError> {
    let parsed = if text.contains('/') {
        text.parse().ok()
    } else {
        text.parse().ok().map(IpAddr::into)
    };
    let network: IpNet = parsed.ok_or_else(|| NetworkError::Form(text.to_owned()))?;
    match network.trunc() {
        truncated if truncated == network => Ok(network),
        truncated => Err(NetworkError::HostBits(text.to_owned(), truncated)),
    }
}

/// Returns the network with this prefix length around an address.
pub fn around(address: IpAddr, prefix_length: u8) -> IpNet {
    IpNet::new(address, prefix_length).map_or_else(|_| address.into(), |network| network.trunc())
}

/// Returns the networks under which an address is counted, each with the multiple of a quota that it allows: an IPv4
/// address alone, but of IPv6 the /64 that a customer has at least, and the /56 and /48 that it may have.
pub fn counted(address: IpAddr) -> Vec<(IpNet, u32)> {
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
    use core::net::IpAddr;

    use super::{counted, parse};

    #[test]
    fn networks_read_back() {
        for (text, display) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.168.1.7", "192.168.1.7/32"),
            ("fd00::/8", "fd00::/8"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(
                parse(text).map(|network| network.to_string()),
                Ok(display.into())
            );
        }
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "example.org",
            "::/129",
            "10.0.0/8",
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains("is not a network"), "{message}");
        }
        assert_eq!(
            parse("10.1.2.3/8").unwrap_err().to_string(),
            "\"10.1.2.3/8\" has bits set beyond its prefix: write \"10.0.0.0/8\""
        );
    }

    #[test]
    fn an_ipv6_address_counts_for_the_networks_that_one_customer_may_have() {
        let counted = |address: &str| {
            let counted = counted(address.parse().unwrap());
            let counted = counted
                .iter()
                .map(|(network, times)| format!("{network} {times}"));
            counted.collect::<Vec<_>>()
        };
        assert_eq!(counted("192.0.2.7"), ["192.0.2.7/32 1"]);
        assert_eq!(counted("::ffff:192.0.2.7"), ["192.0.2.7/32 1"]);
        assert_eq!(
            counted("2001:db8:1:234:5::6"),
            [
                "2001:db8:1:234::/64 1",
                "2001:db8:1:200::/56 2",
                "2001:db8:1::/48 4"
            ]
        );
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
            let network = parse(network).unwrap();
            assert_eq!(
                network.contains(&address.parse::<IpAddr>().unwrap()),
                inside,
                "{network} {address}"
            );
        }
    }
}
