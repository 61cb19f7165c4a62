//! The IPv6 header with its extension headers, and everything that can follow them.

use super::udp::udp_datagram;
use super::{GreBuilder, TcpBuilder, icmp6_message};
use crate::icmp6::{
    CODE_HOP_LIMIT_EXCEEDED, CODE_PORT_UNREACHABLE, DESTINATION_UNREACHABLE, ECHO_REPLY,
    ECHO_REQUEST, Icmp6, PACKET_TOO_BIG, TIME_EXCEEDED,
};
use crate::ipv4::{PROTOCOL_GRE, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::{
    Ipv6, MTU_MIN, PROTOCOL_AUTHENTICATION, PROTOCOL_DESTINATION_OPTIONS, PROTOCOL_FRAGMENT,
    PROTOCOL_HOP_BY_HOP, PROTOCOL_ICMPV6, PROTOCOL_IPV6, PROTOCOL_ROUTING,
};
use crate::udp;
use core::net::Ipv6Addr;
use zerocopy::IntoBytes;

/// Forms of an IPv6 address in a test: text, sixteen bytes, a number in host order, an
/// [`Ipv6Addr`].
pub trait Address6 {
    /// Returns the address in host order.
    fn host_order(self) -> u128;
}

impl Address6 for u128 {
    fn host_order(self) -> u128 {
        self
    }
}

impl Address6 for Ipv6Addr {
    fn host_order(self) -> u128 {
        u128::from(self)
    }
}

impl Address6 for [u8; 16] {
    fn host_order(self) -> u128 {
        u128::from_be_bytes(self)
    }
}

impl Address6 for &str {
    fn host_order(self) -> u128 {
        let address: Ipv6Addr =
            self.parse().unwrap_or_else(|_| panic!("not an IPv6 address: {self}"));
        u128::from(address)
    }
}

/// Builder of an IPv6 packet. Defaults: hop limit 64, traffic class and flow label 0, no extension
/// headers. Extension headers stand in the order of the calls; the payload completes the packet.
#[derive(Clone, Debug)]
#[must_use]
pub struct Ipv6Builder {
    header: Ipv6,
    /// Type and bytes of each extension header, whose first byte the payload sets.
    extensions: Vec<(u8, Vec<u8>)>,
}

/// Starts a packet from `source` to `destination`.
pub fn ipv6(source: impl Address6, destination: impl Address6) -> Ipv6Builder {
    Ipv6Builder {
        header: Ipv6::new(source.host_order(), destination.host_order(), 0, 0),
        extensions: Vec::new(),
    }
}

impl Ipv6Builder {
    pub fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.header.hop_limit = hop_limit;
        self
    }

    /// Sets DSCP and ECN as one byte.
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.header.set_traffic_class(class);
        self
    }

    /// Sets the flow label, 20 bits.
    pub fn flow_label(mut self, label: u32) -> Self {
        self.header.set_flow_label(label);
        self
    }

    /// Appends hop-by-hop options, padded with zeros (Pad1) to the next length that a header has.
    pub fn hop_by_hop(self, options: &[u8]) -> Self {
        self.options(PROTOCOL_HOP_BY_HOP, options)
    }

    /// Appends destination options, padded with zeros (Pad1) to the next length that a header has.
    pub fn destination_options(self, options: &[u8]) -> Self {
        self.options(PROTOCOL_DESTINATION_OPTIONS, options)
    }

    /// Appends a routing header with the data `data` behind its first four bytes, padded with zeros
    /// to the next length that a header has.
    pub fn routing(self, kind: u8, segments_left: u8, data: &[u8]) -> Self {
        self.options(PROTOCOL_ROUTING, &[&[kind, segments_left], data].concat())
    }

    /// Appends an authentication header with a check value of `icv` zeros, a multiple of 4 up to
    /// 1012 (RFC 4302).
    pub fn authentication(self, icv: usize) -> Self {
        assert!(icv.is_multiple_of(4) && icv <= 1012, "a check value of {icv} bytes");
        let mut bytes = vec![0; 12 + icv];
        bytes[1] = (bytes.len() / 4 - 2) as u8;
        self.extension(PROTOCOL_AUTHENTICATION, bytes)
    }

    /// Appends a fragment header: `offset` in bytes, a multiple of 8. [`super::fragments6`]
    /// fragments a whole packet.
    pub fn fragment(self, identification: u32, offset: u16, more_fragments: bool) -> Self {
        assert!(offset.is_multiple_of(8), "no fragment starts at {offset}");
        let offset_more = offset | u16::from(more_fragments);
        let [fields, identification] = [u32::from(offset_more), identification];
        let bytes = [fields.to_be_bytes(), identification.to_be_bytes()].concat();
        self.extension(PROTOCOL_FRAGMENT, bytes)
    }

    /// Appends an extension header of any type and content, right or wrong. Its first byte is set
    /// to the type of what follows.
    pub fn extension(mut self, kind: u8, bytes: impl AsRef<[u8]>) -> Self {
        assert!(!bytes.as_ref().is_empty(), "an extension header has a next header");
        self.extensions.push((kind, bytes.as_ref().to_vec()));
        self
    }

    fn options(self, kind: u8, options: &[u8]) -> Self {
        let mut bytes = [&[0, 0], options].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes[1] = u8::try_from(bytes.len() / 8 - 1).expect("a header has at most 2048 bytes");
        self.extension(kind, bytes)
    }

    /// Builds the packet around a payload of any protocol.
    pub fn payload(mut self, protocol: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
        let kinds = self.extensions.iter().map(|(kind, _)| *kind);
        let next: Vec<u8> = kinds.chain([protocol]).collect();
        self.header.next_header = next[0];
        for ((_, bytes), next_header) in self.extensions.iter_mut().zip(&next[1..]) {
            bytes[0] = *next_header;
        }
        let extensions: Vec<u8> =
            self.extensions.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        let payload_len = extensions.len() + payload.as_ref().len();
        let payload_len =
            u16::try_from(payload_len).expect("an IPv6 payload has at most 65,535 bytes");
        self.header.payload_length.set(payload_len);
        [self.header.as_bytes(), &extensions, payload.as_ref()].concat()
    }

    /// Builds a UDP datagram with checksum.
    pub fn udp(
        self,
        source_port: u16,
        destination_port: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        let mut datagram = udp_datagram(source_port, destination_port, payload.as_ref());
        let (source, destination) = self.addresses();
        let checksum = udp::checksum6(source, destination, &datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        self.payload(PROTOCOL_UDP, datagram)
    }

    /// Builds a UDP datagram whose sender computed no checksum, which only tunnels may (RFC 6935).
    pub fn udp_without_checksum(
        self,
        source_port: u16,
        destination_port: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        let datagram = udp_datagram(source_port, destination_port, payload.as_ref());
        self.payload(PROTOCOL_UDP, datagram)
    }

    /// Builds a TCP segment with checksum.
    pub fn tcp(self, segment: TcpBuilder) -> Vec<u8> {
        let (source, destination) = self.addresses();
        self.payload(PROTOCOL_TCP, segment.build6(source, destination))
    }

    pub fn icmp6_echo_request(
        self,
        identifier: u16,
        sequence: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        self.icmp6(ECHO_REQUEST, 0, echo_rest(identifier, sequence), payload)
    }

    pub fn icmp6_echo_reply(
        self,
        identifier: u16,
        sequence: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        self.icmp6(ECHO_REPLY, 0, echo_rest(identifier, sequence), payload)
    }

    /// Builds an ICMPv6 message of any kind with checksum; `rest` = bytes 4 to 8 of the header.
    pub fn icmp6(self, kind: u8, code: u8, rest: [u8; 4], payload: impl AsRef<[u8]>) -> Vec<u8> {
        let message = icmp6_message(self.addresses(), kind, code, rest, payload);
        self.payload(PROTOCOL_ICMPV6, message)
    }

    /// Builds an ICMPv6 error that quotes as much of `offending` (an IPv6 packet) as RFC 4443
    /// section 2.4 allows: 1280 bytes in total.
    pub fn icmp6_error(
        self,
        kind: u8,
        code: u8,
        rest: [u8; 4],
        offending: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        let extensions: usize = self.extensions.iter().map(|(_, bytes)| bytes.len()).sum();
        let room = MTU_MIN.saturating_sub(Ipv6::LEN + extensions + Icmp6::LEN);
        let quoted = offending.as_ref();
        self.icmp6(kind, code, rest, &quoted[..quoted.len().min(room)])
    }

    /// Builds the error "hop limit exceeded in transit"; the source of this packet is the router.
    pub fn time_exceeded(self, offending: impl AsRef<[u8]>) -> Vec<u8> {
        self.icmp6_error(TIME_EXCEEDED, CODE_HOP_LIMIT_EXCEEDED, [0; 4], offending)
    }

    pub fn port_unreachable(self, offending: impl AsRef<[u8]>) -> Vec<u8> {
        self.icmp6_error(DESTINATION_UNREACHABLE, CODE_PORT_UNREACHABLE, [0; 4], offending)
    }

    /// Builds the error "packet too big" of a next hop with this MTU, bytes.
    pub fn packet_too_big(self, mtu: u32, offending: impl AsRef<[u8]>) -> Vec<u8> {
        self.icmp6_error(PACKET_TOO_BIG, 0, mtu.to_be_bytes(), offending)
    }

    /// Builds a GRE tunnel packet around `payload`, by default an IPv4 packet (RFC 7676).
    pub fn gre(self, header: GreBuilder, payload: impl AsRef<[u8]>) -> Vec<u8> {
        self.payload(PROTOCOL_GRE, header.build(payload.as_ref()))
    }

    /// Builds a tunnel packet around the IPv4 packet `inner` (RFC 2473; DS-Lite, RFC 6333).
    pub fn ipip(self, inner: impl AsRef<[u8]>) -> Vec<u8> {
        self.payload(PROTOCOL_IPIP, inner)
    }

    /// Builds a tunnel packet around the IPv6 packet `inner` (RFC 2473).
    pub fn ipv6(self, inner: impl AsRef<[u8]>) -> Vec<u8> {
        self.payload(PROTOCOL_IPV6, inner)
    }

    /// Returns the addresses of the pseudo header; a routing header is not considered.
    fn addresses(&self) -> (u128, u128) {
        (self.header.source.get(), self.header.destination.get())
    }
}

fn echo_rest(identifier: u16, sequence: u16) -> [u8; 4] {
    let [[a, b], [c, d]] = [identifier, sequence].map(u16::to_be_bytes);
    [a, b, c, d]
}
