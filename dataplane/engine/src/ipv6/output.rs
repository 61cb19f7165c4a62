//! Hot. The ways out of an IPv6 packet: to the internet, and to a home, in its tunnel or without.

use weir_nat::{FlowClass, Home};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::Ipv4;
use weir_wire::ipv6::{self, Ipv6};
use weir_wire::tcp;
use zerocopy::FromBytes;

use crate::engine::{Context, Engine};
use crate::ipv6::packet::Packet6State;
use crate::{AccessMode, DropReason, Side};

impl<F: Frame> Engine<F> {
    /// Sends a packet, whose hop limit is lowered already, to the internet.
    #[inline(always)]
    pub(crate) fn send6<P: Pool<Frame = F>>(
        &self,
        side: Side,
        mut frame: F,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) {
        let own = self.link(side).ipv6.as_ref();
        let Some(header) = own.and_then(|own| own.gateways.choose(flow)) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        if !header.push(&mut frame) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }

    /// Sends a packet, whose hop limit is lowered already, to a home.
    #[inline(always)]
    pub(crate) fn deliver6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: &Home,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) {
        if self.mode == AccessMode::Plain {
            return self.send6(Side::Access, frame, flow, cx);
        }
        if home.is_over_ipv6() {
            return self.encapsulate_over_ipv6(frame, home, (flow, gre::PROTOCOL_IPV6), cx);
        }
        let Some(header) = self.link(Side::Access).gateways.choose(flow) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        let tunnel_len = Ipv4::LEN + gre::header_len(home.gre_key);
        let Some(packet) = header.push_before(&mut frame, tunnel_len) else {
            return self.discard(DropReason::NoBuffer);
        };
        self.outer_identification = self.outer_identification.wrapping_add(1);
        self.write_tunnel_header6(packet, tunnel_len, home);
        self.emit(Side::Access, frame, cx);
    }

    /// Writes the tunnel header into the first `tunnel_len` bytes of `packet`; the inner packet
    /// follows them. Routers on the way may fragment it, since an error of theirs about its size
    /// would name no packet of the sender (RFC 4213 section 3.2.1): "don't fragment" is not set.
    #[inline(always)]
    fn write_tunnel_header6(&self, packet: &mut [u8], tunnel_len: usize, home: &Home) {
        let len = packet.len() as u16;
        let Some((tunnel, inner)) = packet.split_at_mut_checked(tunnel_len) else { return };
        let Ok((inner, _)) = Ipv6::ref_from_prefix(inner) else { return };
        let class = inner.traffic_class();
        self.fill_tunnel_header(tunnel, len, home, (class, false), gre::PROTOCOL_IPV6);
    }

    /// Returns the largest IPv6 packet that fits in one packet to this home, in bytes.
    #[inline(always)]
    pub(crate) fn tunnel_mtu6(&self, home: &Home) -> usize {
        self.link(Side::Access).mtu.saturating_sub(self.tunnel_len(home))
    }

    /// Whether a packet that fits any tunnel over IPv4 fits in the tunnel of this home.
    #[inline(always)]
    pub(crate) fn fits_tunnel6(&self, packet: &[u8], home: &Home) -> bool {
        !home.is_over_ipv6() || packet.len() <= self.tunnel_mtu6(home)
    }

    /// Makes the changes of a packet that is forwarded: its hop limit, the codepoint of its flow's
    /// class, and the MSS of a SYN that came from this side.
    #[inline(always)]
    pub(crate) fn edit6(
        &self,
        frame: &mut F,
        packet: &Packet6State,
        class: FlowClass,
        (from, home): (Side, &Home),
    ) {
        if packet.tcp_flags & tcp::SYN != 0 {
            self.edit_segment6(frame, packet, (from, home));
        }
        let bytes = frame.data_mut();
        decrement_hop_limit(bytes);
        if class != FlowClass::NONE {
            self.mark6(bytes, class);
        }
    }

    #[inline(never)]
    fn edit_segment6(&self, frame: &mut F, packet: &Packet6State, (from, home): (Side, &Home)) {
        if self.counters.count_syn(from) {
            self.look_at_checksum6(frame.data(), packet, from);
        }
        if let Some(max) = self.mss_max_of(home.outer) {
            // An IPv6 header is 20 bytes longer than one of IPv4.
            const LONGER: u16 = (Ipv6::LEN - Ipv4::LEN) as u16;
            let segment = frame.data_mut().get_mut(usize::from(packet.transport_at)..);
            if let Some(segment) = segment {
                tcp::clamp_mss(segment, max.saturating_sub(LONGER));
            }
        }
    }

    /// Verifies the checksum of a TCP segment that is all in this packet, and counts a wrong one.
    #[cold]
    #[inline(never)]
    fn look_at_checksum6(&self, bytes: &[u8], packet: &Packet6State, from: Side) {
        let Ok((ip, _)) = Ipv6::ref_from_prefix(bytes) else { return };
        let segment = bytes.get(usize::from(packet.transport_at)..);
        let segment = segment.filter(|_| packet.fragment.is_none());
        let (source, destination) = (ip.source.get(), ip.destination.get());
        if segment.is_some_and(|segment| !tcp::checksum6_ok(source, destination, segment)) {
            self.counters.count_wrong_checksum(from);
        }
    }

    /// Gives a packet the codepoint of its flow's class, if it has one.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark6(&self, packet: &mut [u8], class: FlowClass) {
        if let (Some(dscp), Ok((ip, _))) = (self.nat.dscp_of(class), ipv6::parse_mut(packet)) {
            ip.set_traffic_class(dscp << 2 | ip.ecn());
        }
    }
}

/// Lowers the hop limit of a packet that was seen to have some left.
#[inline(always)]
pub(crate) fn decrement_hop_limit(packet: &mut [u8]) {
    /// Offset of the hop limit.
    const HOP_LIMIT: usize = 7;
    if let Some(hop_limit) = packet.get_mut(HOP_LIMIT) {
        *hop_limit = hop_limit.wrapping_sub(1);
    }
}
