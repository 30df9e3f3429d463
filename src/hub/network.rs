//! Address ranges, as `10.0.0.0/8`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

/// An IP network; `address` has no bit set beyond `prefix_length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    pub address: IpAddr,
    pub prefix_length: u8,
}

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotANetwork {
    #[error("\"{0}\" is not a network: write \"10.0.0.0/8\", \"fd00::/8\" or a single IP address")]
    Form(String),
    #[error("\"{0}\" has bits set beyond its prefix: write \"{1}\"")]
    HostBits(String, Network),
}

impl Network {
    /// This machine, as it calls itself.
    pub const LOOPBACK: [Network; 2] = [Network::v4(127, 0, 0, 0, 8), Network::v6(1, 128)];

    pub(super) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_length: u8) -> Network {
        Network {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix_length,
        }
    }

    pub(super) const fn v6(bits: u128, prefix_length: u8) -> Network {
        Network {
            address: IpAddr::V6(Ipv6Addr::from_bits(bits)),
            prefix_length,
        }
    }

    /// Reads an address with a prefix length, or a single address.
    pub fn parse(text: &str) -> Result<Network, NotANetwork> {
        let form = || NotANetwork::Form(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix_length = match length {
            Some(length) => length.parse().map_err(|_| form())?,
            None => longest,
        };
        if prefix_length > longest {
            return Err(form());
        }
        let network = Network::around(address, prefix_length);
        if network.address == address {
            Ok(network)
        } else {
            Err(NotANetwork::HostBits(text.to_owned(), network))
        }
    }

    /// The network of this size that an address lies in.
    pub fn around(address: IpAddr, prefix_length: u8) -> Network {
        Network {
            address: masked(address, prefix_length),
            prefix_length,
        }
    }

    /// The networks that an address counts for, with how many times as much as a single one each of them may take: an
    /// IPv4 address alone, but of IPv6 the /64 that a customer has at least, and the /56 and /48 that he may have.
    pub fn counted(address: IpAddr) -> Vec<(Network, u32)> {
        let address = address.to_canonical();
        let sizes: &[(u8, u32)] = match address {
            IpAddr::V4(_) => &[(32, 1)],
            IpAddr::V6(_) => &[(64, 1), (56, 2), (48, 4)],
        };
        let around = |(length, times): &(u8, u32)| (Network::around(address, *length), *times);
        sizes.iter().map(around).collect()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.prefix_length) == self.address
    }
}

/// The address with the bits beyond `length` cleared.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

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
                Network::parse(text).map(|network| network.to_string()),
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
            let message = Network::parse(text).unwrap_err().to_string();
            assert!(message.contains("is not a network"), "{message}");
        }
        assert_eq!(
            Network::parse("10.1.2.3/8").unwrap_err().to_string(),
            "\"10.1.2.3/8\" has bits set beyond its prefix: write \"10.0.0.0/8\""
        );
    }

    #[test]
    fn an_ipv6_address_counts_for_the_networks_that_one_customer_may_have() {
        let counted = |address: &str| {
            let counted = Network::counted(address.parse().unwrap());
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
            let network = Network::parse(network).unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                inside,
                "{network} {address}"
            );
        }
    }
}
