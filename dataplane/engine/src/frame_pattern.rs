//! Hot. The octets that all fast-path frames of a port have in common, compared eight at a time.

use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6::Ipv6;

use crate::AccessMode;
use crate::ethernet_input::WorkerSide;
use crate::fast_path::{GRE, NO_OPTIONS};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::tunnel6::GRE6;

/// Words of a pattern.
pub(crate) const WORDS: usize = 8;
/// The words that reach to the last octet that is known where there is no tunnel: three, and four
/// behind a VLAN tag. Four are compared as fast as three.
pub(crate) const PLAIN_WORDS: usize = 4;

/// What the first octets of a fast-path frame must be: for this port, with its VLAN tag, an IPv4
/// packet that is no fragment and has no options, or an IPv6 packet; in a tunnel, a GRE packet over
/// IPv4 or IPv6 without key, checksum and sequence number, and the same of the packet inside, as
/// far as the pattern reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePattern {
    expected: [u64; WORDS],
    mask: [u64; WORDS],
}

impl FramePattern {
    /// Makes the pattern of the frames of a link that carry IPv4 behind such a tunnel header.
    fn ipv4(link: &WorkerSide, tunnel: TunnelKind) -> Self {
        let (mut octets, ip) = match tunnel {
            TunnelKind::None => Octets::of_link(link, ETHERTYPE_IPV4),
            TunnelKind::OverIpv4 => Octets::of_tunnel(link, gre::PROTOCOL_IPV4),
            TunnelKind::OverIpv6 => Octets::of_tunnel6(link, gre::PROTOCOL_IPV4),
        };
        octets.set_ip(ip);
        octets.pattern()
    }

    /// As [`ipv4`](Self::ipv4), of frames that carry IPv6.
    fn ipv6(link: &WorkerSide, tunnel: TunnelKind) -> Self {
        let (mut octets, ip) = match tunnel {
            TunnelKind::None => Octets::of_link(link, ETHERTYPE_IPV6),
            TunnelKind::OverIpv4 => Octets::of_tunnel(link, gre::PROTOCOL_IPV6),
            TunnelKind::OverIpv6 => Octets::of_tunnel6(link, gre::PROTOCOL_IPV6),
        };
        octets.set_version_6(ip);
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

/// What the frames of the fast path look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patterns {
    /// Of each side, with IPv4 and with IPv6; over IPv4 where there are tunnels.
    pub(crate) ipv4: [FramePattern; 2],
    pub(crate) ipv6: [FramePattern; 2],
    /// From homes with tunnels over IPv6, with IPv4 inside and with IPv6.
    pub(crate) over_ipv6: [FramePattern; 2],
}

impl Patterns {
    pub(crate) fn new([access, internet]: [&WorkerSide; 2], mode: AccessMode) -> Self {
        let tunnel = match mode {
            AccessMode::Gre => TunnelKind::OverIpv4,
            AccessMode::Plain => TunnelKind::None,
        };
        let sides = [(access, tunnel), (internet, TunnelKind::None)];
        Self {
            ipv4: sides.map(|(link, tunnel)| FramePattern::ipv4(link, tunnel)),
            ipv6: sides.map(|(link, tunnel)| FramePattern::ipv6(link, tunnel)),
            over_ipv6: [
                FramePattern::ipv4(access, TunnelKind::OverIpv6),
                FramePattern::ipv6(access, TunnelKind::OverIpv6),
            ],
        }
    }
}

/// The tunnel header in front of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelKind {
    None,
    OverIpv4,
    OverIpv6,
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

    /// As [`of_tunnel`](Self::of_tunnel), over IPv6.
    fn of_tunnel6(link: &WorkerSide, protocol: u16) -> (Self, usize) {
        let (mut octets, ip) = Self::of_link(link, ETHERTYPE_IPV6);
        octets.set_version_6(ip);
        octets.set(ip + 6, &[ipv4::PROTOCOL_GRE]);
        octets.set(ip + Ipv6::LEN, &[0, 0]);
        octets.set(ip + Ipv6::LEN + 2, &protocol.to_be_bytes());
        (octets, ip + GRE6)
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

    /// Sets octets, of which these bits count. The pattern may end before the last one.
    fn set_masked(&mut self, at: usize, octets: &[u8], mask: &[u8]) {
        for (at, (octet, mask)) in (at..self.mask.len()).zip(octets.iter().zip(mask)) {
            (self.expected[at], self.mask[at]) = (octet & mask, *mask);
        }
    }

    /// The first octet of an IPv6 header at this offset.
    fn set_version_6(&mut self, at: usize) {
        self.set_masked(at, &[6 << 4], &[0xf0]);
    }

    /// An IP header at this offset: version and header length; more fragments and the offset are 0.
    fn set_ip(&mut self, at: usize) {
        self.set(at, &[NO_OPTIONS]);
        self.set_masked(at + 6, &[0, 0], &[0x3f, 0xff]);
    }
}
