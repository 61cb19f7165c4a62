//! Hot. The octets that all fast-path frames of a port have in common, compared eight at a time.

use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};

use crate::ethernet_input::WorkerSide;
use crate::fast_path::{GRE, NO_OPTIONS};
use crate::link_header::{TAGGED, UNTAGGED};

/// Words of a pattern.
pub(crate) const WORDS: usize = 8;
/// The words that reach to the last octet that is known where there is no tunnel: three, and four
/// behind a VLAN tag. Four are compared as fast as three.
pub(crate) const PLAIN_WORDS: usize = 4;

/// What the first octets of a fast-path frame must be: for this port, with its VLAN tag, an IPv4
/// packet that is no fragment and has no options, or an IPv6 packet; in a tunnel, a GRE packet over
/// IPv4 without key, checksum and sequence number, and the same of the packet inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePattern {
    expected: [u64; WORDS],
    mask: [u64; WORDS],
}

impl FramePattern {
    /// Makes the pattern of the frames of a link, which carry IPv4 in tunnels or without.
    pub(crate) fn ipv4(link: &WorkerSide, has_tunnel: bool) -> Self {
        let (mut octets, ip) = match has_tunnel {
            true => Octets::of_tunnel(link, gre::PROTOCOL_IPV4),
            false => Octets::of_link(link, ETHERTYPE_IPV4),
        };
        octets.set_ip(ip);
        octets.pattern()
    }

    /// As [`ipv4`](Self::ipv4), of frames that carry IPv6.
    pub(crate) fn ipv6(link: &WorkerSide, has_tunnel: bool) -> Self {
        let (mut octets, ip) = match has_tunnel {
            true => Octets::of_tunnel(link, gre::PROTOCOL_IPV6),
            false => Octets::of_link(link, ETHERTYPE_IPV6),
        };
        octets.set_masked(ip, &[6 << 4], &[0xf0]);
        octets.pattern()
    }

    /// Whether the first `N` words of a frame are as expected.
    #[inline(always)]
    pub(crate) fn fits<const N: usize>(&self, words: &[u64; N]) -> bool {
        let expected = self.expected.iter().zip(&self.mask);
        let differs = words
            .iter()
            .zip(expected)
            .fold(0, |differs, (word, (expected, mask))| differs | (word ^ expected) & mask);
        differs == 0
    }
}

/// A pattern being made, octet by octet.
struct Octets {
    expected: [u8; 8 * WORDS],
    mask: [u8; 8 * WORDS],
}

impl Octets {
    /// Sets the link header of a port. Returns the offset of what follows, too.
    fn of_link(link: &WorkerSide, ethertype: u16) -> (Self, usize) {
        let mut octets = Self { expected: [0; 8 * WORDS], mask: [0; 8 * WORDS] };
        octets.set(0, &link.mac.0);
        let end = match link.vlan {
            None => UNTAGGED,
            Some(id) => {
                octets.set(12, &ETHERTYPE_VLAN.to_be_bytes());
                // Priority and drop eligibility may be anything.
                octets.set_masked(14, &id.to_be_bytes(), &0x0fff_u16.to_be_bytes());
                TAGGED
            }
        };
        octets.set(end - 2, &ethertype.to_be_bytes());
        (octets, end)
    }

    /// Sets the link header of a port and a tunnel header of GRE over IPv4.
    fn of_tunnel(link: &WorkerSide, protocol: u16) -> (Self, usize) {
        let (mut octets, ip) = Self::of_link(link, ETHERTYPE_IPV4);
        octets.set_ip(ip);
        octets.set(ip + 9, &[ipv4::PROTOCOL_GRE]);
        octets.set(ip + Ipv4::LEN, &[0, 0]);
        octets.set(ip + Ipv4::LEN + 2, &protocol.to_be_bytes());
        (octets, ip + GRE)
    }

    fn pattern(self) -> FramePattern {
        FramePattern {
            expected: zerocopy::transmute!(self.expected),
            mask: zerocopy::transmute!(self.mask),
        }
    }

    fn set(&mut self, at: usize, octets: &[u8]) {
        self.set_masked(at, octets, &vec![0xff; octets.len()]);
    }

    fn set_masked(&mut self, at: usize, octets: &[u8], mask: &[u8]) {
        self.expected[at..at + octets.len()].copy_from_slice(octets);
        self.mask[at..at + mask.len()].copy_from_slice(mask);
    }

    /// An IP header at this offset: version and header length; more fragments and the offset are 0.
    fn set_ip(&mut self, at: usize) {
        self.set(at, &[NO_OPTIONS]);
        self.set_masked(at + 6, &[0, 0], &[0x3f, 0xff]);
    }
}
