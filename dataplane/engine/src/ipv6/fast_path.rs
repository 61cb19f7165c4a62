//! Hot. Reads fast-path packets of IPv6, as [`crate::fast_path`] those of IPv4: UDP or TCP right
//! behind the fixed header, every check of a header passed, in a tunnel without a key. Any other
//! packet, and any that is not of a settled flow, is read by `input.rs`, which finds the same
//! values (the tests compare the two).

use weir_nat::{FlowKey6, Hash, Home, Nat, PacketKey, Protocol, ShardIndex};
use weir_wire::frame::Frame;
use weir_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use weir_wire::ipv6::Ipv6;
use weir_wire::tcp::{ACK, FIN, RST, SYN};
use weir_wire::udp::Udp;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Side;
use crate::engine::Engine;
use crate::fast_path::{FastPacket, GRE, PLAIN, TunnelWords, words};
use crate::flow_key::PacketKind;
use crate::frame_pattern::{PLAIN_WORDS, WORDS};
use crate::ipv6::input::is_martian6;
use crate::ipv6::packet::{Packet6State, PacketStep6, Way6};
use crate::tunnel6::GRE6;

/// A fixed header and the first 8 bytes of the transport header, read as UDP's, by words as they
/// lie in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
struct Headers6 {
    /// Version, traffic class, flow label.
    first: [u8; 4],
    payload_length: u16,
    next_header: u8,
    hop_limit: u8,
    source: [u64; 2],
    destination: [u64; 2],
    source_port: u16,
    destination_port: u16,
    udp_length: u16,
    udp_checksum: u16,
}

/// Bytes that are read of every packet.
const READ: usize = size_of::<Headers6>();

const _: () = assert!(READ == Ipv6::LEN + Udp::LEN);

/// The flow of a fast-path packet, and what its tunnel header says of its home. From the internet,
/// and without a tunnel, the home is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastKey6 {
    pub(crate) flow: FlowKey6,
    outer: u32,
    shard: ShardIndex,
}

impl FastKey6 {
    #[inline(always)]
    pub(crate) fn home(&self) -> Home {
        Home { shard: self.shard, outer: self.outer, gre_key: None }
    }
}

impl PacketKey for FastKey6 {
    #[inline(always)]
    fn index(nat: &Nat) -> &weir_flow::Index {
        FlowKey6::index(nat)
    }

    #[inline(always)]
    fn hash(&self, nat: &Nat) -> Hash {
        self.flow.hash(nat)
    }

    #[inline(always)]
    fn remote_word(&self) -> u64 {
        self.flow.remote_word()
    }
}

pub(crate) type FastPacket6 = FastPacket<FastKey6>;

impl FastPacket6 {
    /// Fills in what the slow path reads of the packet `bytes`.
    pub(crate) fn fill(&self, bytes: &[u8], packet: &mut Packet6State) {
        /// Offset of the flags in a TCP segment.
        const TCP_FLAGS: usize = 13;
        (packet.key, packet.look_up, packet.home) = (self.key.flow, self.look_up, self.key.home());
        let is_tcp =
            Ipv6::ref_from_prefix(bytes).is_ok_and(|(ip, _)| ip.next_header == PROTOCOL_TCP);
        (packet.protocol, packet.tcp_flags) = match is_tcp {
            true => (Protocol::Tcp, bytes.get(Ipv6::LEN + TCP_FLAGS).copied().unwrap_or(0)),
            false => (Protocol::Udp, 0),
        };
        (packet.kind, packet.fragment) = (PacketKind::Session, None);
        packet.transport_at = Ipv6::LEN as u16;
        packet.step = PacketStep6::Forward;
    }
}

impl<F: Frame> Engine<F> {
    /// Fills in `packet` and returns true for a fast-path packet from a home.
    #[inline(always)]
    pub(crate) fn read_fast6_up<const LINK: usize, const TUNNEL: usize>(
        &self,
        frame: &F,
        packet: &mut FastPacket6,
    ) -> bool {
        let data = frame.data();
        if data.len() < LINK + TUNNEL + READ {
            return false;
        }
        let pattern = match TUNNEL {
            GRE6 => &self.patterns.over_ipv6[1],
            _ => &self.patterns.ipv6[Side::Access as usize],
        };
        let fits = match TUNNEL {
            PLAIN => words(data).is_some_and(|words| pattern.fits::<PLAIN_WORDS>(&words)),
            _ => words(data).is_some_and(|words| pattern.fits::<WORDS>(&words)),
        };
        if !fits || !frame.is_contiguous() {
            return false;
        }
        let (tunnel, inner) = data[LINK..].split_at(TUNNEL);
        let Ok((headers, _)) = Headers6::ref_from_prefix(inner) else { return false };
        let len = headers.len();
        if TUNNEL == GRE {
            let Ok(outer) = TunnelWords::ref_from_bytes(tunnel) else { return false };
            let outer = &outer.ip;
            let served = self.shards.of_served_endpoint(outer.destination);
            let Some(shard) = served.or_else(|| self.served_shard_elsewhere(outer.destination))
            else {
                return false;
            };
            // RFC 6040: with either of these the inner header stays as it is.
            let (ecn, inner_ecn) = (outer.version_tos[1] & 3, headers.first[1] >> 4 & 3);
            if outer.len() != GRE + len || (ecn != 0 && ecn != inner_ecn) || !outer.is_right() {
                return false;
            }
            let source = u32::from_be(outer.source);
            // Such a source would pass for a home with a tunnel over IPv6.
            if weir_nat::is_outer_handle(source) {
                return false;
            }
            (packet.key.outer, packet.key.shard) = (source, shard);
        } else if TUNNEL == GRE6 {
            let ecn = headers.first[1] >> 4 & 3;
            let Some(home) = self.home_of_tunnel6(tunnel, len, ecn) else { return false };
            (packet.key.outer, packet.key.shard) = (home.outer, home.shard);
        }
        let mtu = self.link(Side::Internet).mtu;
        len <= inner.len() && headers.fill(inner, len, mtu, Way6::Up, packet)
    }

    /// Fills in `packet` and returns true for a fast-path packet from the internet.
    #[inline(always)]
    pub(crate) fn read_fast6_down<const LINK: usize>(
        &self,
        frame: &F,
        packet: &mut FastPacket6,
    ) -> bool {
        let data = frame.data();
        if data.len() < LINK + READ {
            return false;
        }
        let pattern = &self.patterns.ipv6[Side::Internet as usize];
        let fits = words(data).is_some_and(|words| pattern.fits::<PLAIN_WORDS>(&words));
        if !fits || !frame.is_contiguous() {
            return false;
        }
        let bytes = &data[LINK..];
        let Ok((headers, _)) = Headers6::ref_from_prefix(bytes) else { return false };
        let len = headers.len();
        len <= bytes.len() && headers.fill(bytes, len, self.tunnel_mtu_least, Way6::Down, packet)
    }

    /// Whether a packet has what `read_fast6_*` do not look for, since no record has it: a martian
    /// address, port 0, an address of this worker. `side`: where it came from, without a tunnel.
    pub(crate) fn is_unusual6(&self, packet: &[u8], side: Option<Side>) -> bool {
        let Ok((headers, _)) = Headers6::ref_from_prefix(packet) else { return true };
        let Ok((ip, _)) = Ipv6::ref_from_prefix(packet) else { return true };
        let own = side.and_then(|side| self.link(side).ipv6.as_ref());
        let has_port_0 = headers.source_port == 0 || headers.destination_port == 0;
        has_port_0 || is_martian6(ip) || own.is_some_and(|own| own.is_own(ip.destination.get()))
    }
}

impl Headers6 {
    /// Length of the packet, bytes.
    #[inline(always)]
    fn len(&self) -> usize {
        Ipv6::LEN + usize::from(u16::from_be(self.payload_length))
    }

    /// Fills in what is known of the packet `bytes`, of `len` bytes, and returns true, if it may be
    /// forwarded over a link of `mtu` bytes.
    #[inline(always)]
    fn fill(
        &self,
        bytes: &[u8],
        len: usize,
        mtu: usize,
        way: Way6,
        packet: &mut FastPacket6,
    ) -> bool {
        let has_length = len.wrapping_sub(READ) <= mtu.saturating_sub(READ);
        if !has_length || self.hop_limit <= 1 {
            return false;
        }
        let (protocol, is_ordinary) = match self.next_header {
            PROTOCOL_UDP => {
                let length = usize::from(u16::from_be(self.udp_length));
                if length < Udp::LEN || Ipv6::LEN + length > len {
                    return false;
                }
                (Protocol::Udp, true)
            }
            PROTOCOL_TCP => {
                const FIXED: usize = Ipv6::LEN + 14;
                let Some(&[.., offset, tcp_flags]) = bytes.first_chunk::<FIXED>() else {
                    return false;
                };
                let header_len = usize::from(offset >> 4) * 4;
                if header_len < 20 || Ipv6::LEN + header_len > len {
                    return false;
                }
                (Protocol::Tcp, tcp_flags & (SYN | FIN | RST | ACK) == ACK)
            }
            _ => return false,
        };
        let source = (self.source, u16::from_be(self.source_port));
        let destination = (self.destination, u16::from_be(self.destination_port));
        let (inside, remote) = match way {
            Way6::Up => (source, destination),
            Way6::Down => (destination, source),
        };
        packet.key.flow = FlowKey6::of_words(inside, remote, protocol, is_ordinary);
        packet.len = len as u16;
        true
    }
}

#[cfg(test)]
#[path = "fast_path_tests.rs"]
mod tests;
