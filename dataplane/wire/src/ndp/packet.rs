//! The packets of neighbor discovery that a node sends (RFC 4861 section 7.2).

use super::{
    HOP_LIMIT, LinkLayerAddress, NeighborMessage, NeighborSolicitation, OVERRIDE, ROUTER,
    SOLICITED, SOURCE_LINK_LAYER_ADDRESS, TARGET_LINK_LAYER_ADDRESS,
};
use crate::U128;
use crate::ethernet::Mac;
use crate::icmp6::{self, Icmp6, NEIGHBOR_ADVERTISEMENT, NEIGHBOR_SOLICITATION};
use crate::ipv6::{ALL_NODES, Ipv6, PROTOCOL_ICMPV6, UNSPECIFIED, is_multicast, solicited_node};
use zerocopy::IntoBytes;

/// A neighbor solicitation or advertisement: an IPv6 packet with its checksum, without its Ethernet
/// header. Addresses in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpPacket {
    bytes: [u8; NdpPacket::LEN_MAX],
    len: usize,
    destination: u128,
}

impl NdpPacket {
    /// Bytes of a packet with a link-layer address.
    pub const LEN_MAX: usize = Ipv6::LEN + NeighborMessage::LEN + LinkLayerAddress::LEN;

    /// Makes the question of `source` at `mac` for the link-layer address of `target`, to the
    /// target's solicited-node multicast address (RFC 4861 section 7.2.2).
    pub fn solicitation(source: u128, mac: Mac, target: u128) -> NdpPacket {
        let option = Some((SOURCE_LINK_LAYER_ADDRESS, mac));
        let message = (NEIGHBOR_SOLICITATION, 0);
        NdpPacket::new(source, solicited_node(target), message, target, option)
    }

    /// Makes the question whether `target` is still reachable, to the target itself (RFC 4861
    /// section 7.3.3).
    pub fn probe(source: u128, mac: Mac, target: u128) -> NdpPacket {
        let option = Some((SOURCE_LINK_LAYER_ADDRESS, mac));
        NdpPacket::new(source, target, (NEIGHBOR_SOLICITATION, 0), target, option)
    }

    /// Makes the question whether another node has `address` already: from `::`, without option
    /// (RFC 4862 section 5.4.2).
    pub fn duplicate_detection(address: u128) -> NdpPacket {
        let message = (NEIGHBOR_SOLICITATION, 0);
        NdpPacket::new(UNSPECIFIED, solicited_node(address), message, address, None)
    }

    /// Makes the answer "the target of `solicitation` is at `mac`" of the target's owner (RFC 4861
    /// section 7.2.4): to its sender; to all nodes, and not as solicited, if that has no address
    /// yet.
    pub fn answer(solicitation: &NeighborSolicitation, mac: Mac, is_router: bool) -> NdpPacket {
        let (destination, solicited) = if solicitation.detects_duplicates() {
            (ALL_NODES, 0)
        } else {
            (solicitation.source, SOLICITED)
        };
        NdpPacket::advertisement(solicitation.target, destination, mac, is_router, solicited)
    }

    /// Makes an announcement to all nodes that `address` is at `mac` from now on (RFC 4861 section
    /// 7.2.6).
    pub fn unsolicited(address: u128, mac: Mac, is_router: bool) -> NdpPacket {
        NdpPacket::advertisement(address, ALL_NODES, mac, is_router, 0)
    }

    fn advertisement(
        address: u128,
        destination: u128,
        mac: Mac,
        is_router: bool,
        solicited: u8,
    ) -> NdpPacket {
        let flags = OVERRIDE | solicited | if is_router { ROUTER } else { 0 };
        let option = Some((TARGET_LINK_LAYER_ADDRESS, mac));
        NdpPacket::new(address, destination, (NEIGHBOR_ADVERTISEMENT, flags), address, option)
    }

    /// `message` = ICMPv6 type and flags.
    fn new(
        source: u128,
        destination: u128,
        message: (u8, u8),
        target: u128,
        option: Option<(u8, Mac)>,
    ) -> NdpPacket {
        let (kind, flags) = message;
        let mut bytes = [0; NdpPacket::LEN_MAX];
        let mut len = Ipv6::LEN + NeighborMessage::LEN;
        let neighbor = NeighborMessage {
            icmp6: Icmp6::new(kind, 0, [flags, 0, 0, 0]),
            target: U128::new(target),
        };
        bytes[Ipv6::LEN..len].copy_from_slice(neighbor.as_bytes());
        if let Some((kind, mac)) = option {
            let option = LinkLayerAddress { kind, length: 1, mac };
            bytes[len..].copy_from_slice(option.as_bytes());
            len = NdpPacket::LEN_MAX;
        }
        let payload_len = (len - Ipv6::LEN) as u16;
        let mut ip = Ipv6::new(source, destination, PROTOCOL_ICMPV6, payload_len);
        ip.hop_limit = HOP_LIMIT;
        ip.emit(&mut bytes);
        icmp6::set_checksum(source, destination, &mut bytes[Ipv6::LEN..len]);
        NdpPacket { bytes, len, destination }
    }

    /// Returns the packet, IPv6 header first: 64 bytes, or 72 with a link-layer address.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the IPv6 destination, host order.
    #[inline]
    pub fn destination(&self) -> u128 {
        self.destination
    }

    /// Returns the Ethernet destination of a packet to a multicast address; `None` for one to a
    /// neighbor, whose address the sender knows.
    #[inline]
    pub fn multicast_mac(&self) -> Option<Mac> {
        is_multicast(self.destination).then(|| Mac::of_multicast6(self.destination))
    }
}
