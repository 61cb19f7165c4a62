//! Kinds of IPv6 addresses (RFC 4291 section 2.4). Addresses are in host order. Hot: per packet.

/// `::`, the source of a node that has no address yet (RFC 4291 section 2.5.2).
pub const UNSPECIFIED: u128 = 0;
/// `::1` (RFC 4291 section 2.5.3).
pub const LOOPBACK: u128 = 1;
/// `ff02::1`, all nodes of the link (RFC 4291 section 2.7.1).
pub const ALL_NODES: u128 = 0xff02_0000_0000_0000_0000_0000_0000_0001;

/// `ff02::1:ff00:0`/104 (RFC 4291 section 2.7.1); the lower 24 bits are those of the address.
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
const SOLICITED_NODE_BITS: u128 = 0x00ff_ffff;

/// True for `::`.
#[inline]
pub const fn is_unspecified(address: u128) -> bool {
    address == UNSPECIFIED
}

/// True for `::1`.
#[inline]
pub const fn is_loopback(address: u128) -> bool {
    address == LOOPBACK
}

/// True for ff00::/8 (RFC 4291 section 2.7).
#[inline]
pub const fn is_multicast(address: u128) -> bool {
    address >> 120 == 0xff
}

/// True for fe80::/10 (RFC 4291 section 2.5.6): a router does not forward such packets.
#[inline]
pub const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// True for fc00::/7, unique local addresses (RFC 4193): valid within a site, not in the internet.
#[inline]
pub const fn is_unique_local(address: u128) -> bool {
    address >> 121 == 0xfc >> 1
}

/// True for ::ffff:0:0/96 (RFC 4291 section 2.5.5.2): an IPv4 address in an IPv6 socket, which no
/// packet has (RFC 6890).
#[inline]
pub const fn is_v4_mapped(address: u128) -> bool {
    address >> 32 == 0xffff
}

/// True for an address that an interface can own and a packet can come from: not multicast, not
/// `::`, not `::1`, not IPv4-mapped. Link-local and unique local addresses are unicast.
#[inline]
pub const fn is_unicast(address: u128) -> bool {
    !is_multicast(address) && address > LOOPBACK && !is_v4_mapped(address)
}

/// Returns the multicast address that the owner of `address` listens to (RFC 4291 section 2.7.1).
#[inline]
pub const fn solicited_node(address: u128) -> u128 {
    SOLICITED_NODE | address & SOLICITED_NODE_BITS
}

/// True for ff02::1:ff00:0/104, the solicited-node multicast address of any address.
#[inline]
pub const fn is_solicited_node(address: u128) -> bool {
    address & !SOLICITED_NODE_BITS == SOLICITED_NODE
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    /// Returns which of the kinds an address is of, in the order of the file.
    fn kinds(text: &str) -> [bool; 8] {
        let address = u128::from(text.parse::<Ipv6Addr>().unwrap());
        [
            is_unspecified(address),
            is_loopback(address),
            is_multicast(address),
            is_link_local(address),
            is_unique_local(address),
            is_v4_mapped(address),
            is_unicast(address),
            is_solicited_node(address),
        ]
    }

    fn check(text: &str, expected: &[usize]) {
        let of: Vec<usize> =
            kinds(text).iter().enumerate().filter(|(_, is)| **is).map(|(at, _)| at).collect();
        assert_eq!(of, expected, "{text}");
    }

    #[test]
    fn first_and_last_address_of_each_prefix_have_its_kind_and_their_neighbours_do_not() {
        check("::", &[0]);
        check("::1", &[1]);
        check("::2", &[6]);
        check("::fffe:ffff:ffff", &[6]);
        check("::ffff:0:0", &[5]);
        check("::ffff:255.255.255.255", &[5]);
        check("::1:0:0:0", &[6]);
        check("fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[6]);
        check("fc00::", &[4, 6]);
        check("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[4, 6]);
        check("fe00::", &[6]);
        check("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[6]);
        check("fe80::", &[3, 6]);
        check("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[3, 6]);
        check("fec0::", &[6]);
        check("feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[6]);
        check("ff00::", &[2]);
        check("ff02::1:feff:ffff", &[2]);
        check("ff02::1:ff00:0", &[2, 7]);
        check("ff02::1:ffff:ffff", &[2, 7]);
        check("ff02::2:0:0", &[2]);
        check("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &[2]);
        check("2001:db8::1", &[6]);
    }

    #[test]
    fn solicited_node_address_ends_with_the_last_three_bytes_of_the_address() {
        let of =
            |text: &str| Ipv6Addr::from(solicited_node(text.parse::<Ipv6Addr>().unwrap().into()));
        // The example of RFC 4291 section 2.7.1.
        assert_eq!(of("4037::1:800:200e:8c6c").to_string(), "ff02::1:ff0e:8c6c");
        assert_eq!(of("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").to_string(), "ff02::1:ffff:ffff");
        assert_eq!(Ipv6Addr::from(ALL_NODES).to_string(), "ff02::1");
    }
}
