//! Hot. Input of IPv6 packets, from homes and from the internet.

use weir_nat::{Home, PacketKey};
use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::frame::Frame;
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6::{self, Ipv6};
use zerocopy::FromBytes;

use crate::engine::Engine;
use crate::ethernet_input::{Network, sender};
use crate::fast_path::GRE;
use crate::ip_input::Packet;
use crate::ipv6::packet::{Packet6State, PacketStep6, Way6};
use crate::{AccessMode, DropReason, Side, ecn};

/// Whether a frame, which the IPv4 fast path has not taken, carries an IPv6 packet: behind the
/// Ethernet header of `LINK` bytes, or in a whole GRE packet over IPv4. Nothing else is checked.
#[inline(always)]
pub(crate) fn carries_ipv6<const LINK: usize, const TUNNEL: usize>(frame: &[u8]) -> bool {
    let Some(ethertype) = frame.get(LINK - 2..LINK) else { return false };
    if ethertype == ETHERTYPE_IPV6.to_be_bytes() {
        return true;
    }
    if TUNNEL != GRE || ethertype != ETHERTYPE_IPV4.to_be_bytes() {
        return false;
    }
    frame.get(LINK..).is_some_and(is_tunnel_of_ipv6)
}

/// Whether an IPv4 packet is a whole GRE packet with an IPv6 packet inside.
#[inline(always)]
pub(crate) fn is_tunnel_of_ipv6(packet: &[u8]) -> bool {
    let Ok((ip, _)) = Ipv4::ref_from_prefix(packet) else { return false };
    let header_len = usize::from(ip.version_ihl & 15) * 4;
    let protocol = packet.get(header_len + 2..).and_then(|rest| rest.first_chunk::<2>());
    ip.protocol == ipv4::PROTOCOL_GRE
        && !ip.is_fragment()
        && protocol == Some(&gre::PROTOCOL_IPV6.to_be_bytes())
}

impl<F: Frame> Engine<F> {
    /// Decides on the step of a frame from the access side, cuts it to the IPv6 packet and
    /// prefetches its index line.
    #[inline(always)]
    pub(crate) fn read_access6(&self, frame: &mut F, packet: &mut Packet6State) {
        packet.step = self.access_input6(frame, packet).unwrap_or_else(PacketStep6::Discard);
        self.begin_look_up6(packet);
    }

    /// As [`read_access6`](Self::read_access6), from the internet side.
    #[inline(always)]
    pub(crate) fn read_internet6(&self, frame: &mut F, packet: &mut Packet6State) {
        packet.step = self.internet_input6(frame, packet).unwrap_or_else(PacketStep6::Discard);
        self.begin_look_up6(packet);
    }

    #[inline(always)]
    fn begin_look_up6(&self, packet: &mut Packet6State) {
        if packet.step == PacketStep6::Forward {
            packet.look_up.hash = packet.key.hash(&self.nat);
            self.nat.begin_look_up::<weir_nat::FlowKey6>(packet.look_up.hash);
        }
    }

    /// Decides on the step of a frame from the access side, and cuts the frame to the IPv6 packet.
    #[inline(always)]
    pub(crate) fn access_input6<G: Frame>(
        &self,
        frame: &mut G,
        packet: &mut Packet6State,
    ) -> Result<PacketStep6, DropReason> {
        let (network, offset) = self.link(Side::Access).input(frame)?;
        match network {
            Network::Ipv4 if self.mode == AccessMode::Gre => {
                self.tunnel_input6(frame, offset, packet)
            }
            Network::Ipv6 => {
                packet.from = sender(frame);
                if self.mode == AccessMode::Gre
                    && let Some(to) =
                        self.endpoint6_input(frame.data().get(offset..).unwrap_or_default())?
                {
                    return self.endpoint6_step(frame, offset, &to, packet);
                }
                let is_transit = self.mode == AccessMode::Plain;
                self.native_input6(frame, offset, Side::Access, is_transit, packet)
            }
            _ => Err(DropReason::GreProtocol),
        }
    }

    /// Reads a GRE packet over IPv4, whose inner packet is of IPv6.
    #[inline(always)]
    pub(crate) fn tunnel_input6<G: Frame>(
        &self,
        frame: &mut G,
        offset: usize,
        packet: &mut Packet6State,
    ) -> Result<PacketStep6, DropReason> {
        let bytes = frame.data().get(offset..).unwrap_or_default();
        let outer = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        let shard = self.shards.of_endpoint(outer.ip.destination.get());
        let shard = shard.ok_or(DropReason::NotLocal)?;
        if !self.duties.serves(shard) {
            return Err(DropReason::NotServing);
        }
        let header = gre::parse(outer.payload()).map_err(|_| DropReason::GreMalformed)?;
        if self.is_reserved_outer(shard, outer.ip.source.get()) {
            return Err(DropReason::Martian);
        }
        packet.home = Home { shard, outer: outer.ip.source.get(), gre_key: header.key };
        let tunnel_len = outer.header_len + header.len;
        let (outer_tos, outer_len) = (outer.ip.tos, outer.bytes.len());
        frame.keep(offset + tunnel_len, outer_len.saturating_sub(tunnel_len));
        let (ip, len) = ipv6::parse(frame.data()).map_err(|_| DropReason::Ip6Malformed)?;
        // A congestion mark made inside the tunnel is carried over to the inner packet (RFC 6040).
        let class = ip.traffic_class();
        let new_class = ecn::decapsulate(outer_tos, class).ok_or(DropReason::EcnCongestion)?;
        frame.truncate(len);
        if new_class != class {
            set_traffic_class(frame.data_mut(), new_class);
        }
        transit_input6(frame.data(), Way6::Up, packet)
    }

    /// Reads an IPv6 packet behind the Ethernet header: one to this worker, or, on a link where
    /// there may be such, one to be forwarded.
    #[inline(always)]
    fn native_input6<G: Frame>(
        &self,
        frame: &mut G,
        offset: usize,
        side: Side,
        is_transit: bool,
        packet: &mut Packet6State,
    ) -> Result<PacketStep6, DropReason> {
        frame.pull(offset);
        let (ip, len) = ipv6::parse(frame.data()).map_err(|_| DropReason::Ip6Malformed)?;
        let destination = ip.destination.get();
        frame.truncate(len);
        let own = self.link(side).ipv6.as_ref().ok_or(DropReason::EtherType)?;
        if own.is_own(destination) || ipv6::is_multicast(destination) {
            return Ok(PacketStep6::Local);
        }
        if !is_transit || ipv6::is_link_local(destination) {
            return Err(DropReason::NotLocal);
        }
        let way = if side == Side::Access { Way6::Up } else { Way6::Down };
        transit_input6(frame.data(), way, packet)
    }

    /// As [`access_input6`](Self::access_input6), from the internet side.
    #[inline(always)]
    pub(crate) fn internet_input6<G: Frame>(
        &self,
        frame: &mut G,
        packet: &mut Packet6State,
    ) -> Result<PacketStep6, DropReason> {
        let (_, offset) = self.link(Side::Internet).input(frame)?;
        packet.from = sender(frame);
        self.native_input6(frame, offset, Side::Internet, true, packet)
    }
}

/// Reads a packet to be forwarded, whose fixed header was seen to be valid and which ends with the
/// packet.
#[inline(always)]
pub(crate) fn transit_input6(
    bytes: &[u8],
    way: Way6,
    packet: &mut Packet6State,
) -> Result<PacketStep6, DropReason> {
    let (ip, _) = Ipv6::ref_from_prefix(bytes).map_err(|_| DropReason::Ip6Malformed)?;
    if is_martian6(ip) {
        return Err(DropReason::Martian);
    }
    packet.read(bytes, ip, way)?;
    if ip.hop_limit <= 1 {
        return Ok(PacketStep6::TimeExceeded);
    }
    Ok(PacketStep6::Forward)
}

/// Sets the traffic class of a packet.
pub(crate) fn set_traffic_class(packet: &mut [u8], class: u8) {
    if let Ok((ip, _)) = ipv6::parse_mut(packet) {
        ip.set_traffic_class(class);
    }
}

/// Whether a packet has an address that no forwarded packet may have (RFC 4291 sections 2.5 and
/// 2.7, RFC 4193 section 4.3): unspecified, loopback, IPv4-mapped, link-local, or a multicast
/// source; unique local at one end alone; or if its source is its destination.
pub(crate) fn is_martian6(ip: &Ipv6) -> bool {
    let [source, destination] = [ip.source.get(), ip.destination.get()];
    let is_martian = |address| !ipv6::is_unicast(address) || ipv6::is_link_local(address);
    is_martian(source)
        || is_martian(destination)
        || ipv6::is_unique_local(source) != ipv6::is_unique_local(destination)
        || source == destination
}
