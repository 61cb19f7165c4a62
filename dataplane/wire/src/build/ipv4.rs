//! The IPv4 header, and everything that can follow it.

use super::udp::udp_datagram;
use super::{GreBuilder, TcpBuilder, icmp_echo, icmp_error, icmp_message};
use crate::icmp::{
    CODE_PORT_UNREACHABLE, CODE_TTL_EXCEEDED, DESTINATION_UNREACHABLE, ECHO_REPLY, ECHO_REQUEST,
    TIME_EXCEEDED,
};
use crate::ipv4::{Ipv4, PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::{checksum, udp};
use core::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// Forms of an IPv4 address in a test: text, four bytes, a number in host order, an [`Ipv4Addr`].
pub trait Address {
    /// Returns the address in host order.
    fn host_order(self) -> u32;
}

impl Address for u32 {
    fn host_order(self) -> u32 {
        self
    }
}

impl Address for Ipv4Addr {
    fn host_order(self) -> u32 {
        u32::from(self)
    }
}

impl Address for [u8; 4] {
    fn host_order(self) -> u32 {
        u32::from_be_bytes(self)
    }
}

impl Address for &str {
    fn host_order(self) -> u32 {
        let address: Ipv4Addr =
            self.parse().unwrap_or_else(|_| panic!("not an IPv4 address: {self}"));
        u32::from(address)
    }
}

/// Builder of an IPv4 packet. Defaults: TTL 64, DF clear, identification 0, no options. The payload
/// completes it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Ipv4Builder {
    header: Ipv4,
    options: Vec<u8>,
}

/// Starts a packet from `source` to `destination`.
pub fn ipv4(source: impl Address, destination: impl Address) -> Ipv4Builder {
    Ipv4Builder {
        header: Ipv4::new(source.host_order(), destination.host_order(), 0, 0),
        options: Vec::new(),
    }
}

impl Ipv4Builder {
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.header.ttl = ttl;
        self
    }

    /// Sets DSCP and ECN as one byte.
    pub fn tos(mut self, tos: u8) -> Self {
        self.header.tos = tos;
        self
    }

    /// Sets DSCP, 0 to 63 (RFC 2474).
    pub fn dscp(self, dscp: u8) -> Self {
        let ecn = self.header.ecn();
        self.tos(dscp << 2 | ecn)
    }

    /// Sets ECN, 0 to 3 (RFC 3168): not capable, ECT(1), ECT(0), CE.
    pub fn ecn(self, ecn: u8) -> Self {
        let dscp = self.header.dscp();
        self.tos(dscp << 2 | ecn & 0b11)
    }

    /// Sets or clears DF, "don't fragment".
    pub fn df(mut self, dont_fragment: bool) -> Self {
        let (more, offset) = (self.header.more_fragments(), self.header.fragment_offset());
        self.header.set_fragment(dont_fragment, more, offset);
        self
    }

    pub fn identification(mut self, identification: u16) -> Self {
        self.header.identification.set(identification);
        self
    }

    /// Makes the packet a fragment: `offset` in bytes, a multiple of 8. [`super::fragments`]
    /// fragments a whole packet.
    pub fn fragment(mut self, offset: usize, more_fragments: bool) -> Self {
        let dont_fragment = self.header.dont_fragment();
        self.header.set_fragment(dont_fragment, more_fragments, offset);
        self
    }

    /// Sets header options, padded with zeros to a multiple of 4; at most 40 bytes.
    pub fn options(mut self, options: &[u8]) -> Self {
        assert!(options.len() <= 40, "IPv4 options of {} bytes", options.len());
        self.options = options.to_vec();
        self.options.resize(options.len().next_multiple_of(4), 0);
        self
    }

    /// Builds the packet around a payload of any protocol.
    pub fn payload(mut self, protocol: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
        let payload = payload.as_ref();
        let header_len = Ipv4::LEN + self.options.len();
        let total = u16::try_from(header_len + payload.len())
            .expect("an IPv4 packet has at most 65,535 bytes");
        self.header.version_ihl = 0x40 | (header_len / 4) as u8;
        self.header.protocol = protocol;
        self.header.total_length.set(total);
        self.header.checksum.set(0);
        let parts = checksum::partial(self.header.as_bytes()) + checksum::partial(&self.options);
        self.header.checksum.set(checksum::finish(parts));
        [self.header.as_bytes(), &self.options, payload].concat()
    }

    /// Builds a UDP datagram with checksum.
    pub fn udp(
        self,
        source_port: u16,
        destination_port: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        let mut datagram = udp_datagram(source_port, destination_port, payload.as_ref());
        let checksum = udp::checksum(self.source(), self.destination(), &datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        self.payload(PROTOCOL_UDP, datagram)
    }

    /// Builds a UDP datagram whose sender computed no checksum.
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
        let segment = segment.build(self.source(), self.destination());
        self.payload(PROTOCOL_TCP, segment)
    }

    pub fn icmp_echo_request(
        self,
        identifier: u16,
        sequence: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        self.payload(PROTOCOL_ICMP, icmp_echo(ECHO_REQUEST, identifier, sequence, payload))
    }

    pub fn icmp_echo_reply(
        self,
        identifier: u16,
        sequence: u16,
        payload: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        self.payload(PROTOCOL_ICMP, icmp_echo(ECHO_REPLY, identifier, sequence, payload))
    }

    /// Builds an ICMP message of any kind with checksum; `rest` = bytes 4 to 8 of the header.
    pub fn icmp(self, kind: u8, code: u8, rest: [u8; 4], payload: impl AsRef<[u8]>) -> Vec<u8> {
        self.payload(PROTOCOL_ICMP, icmp_message(kind, code, rest, payload))
    }

    /// Builds an ICMP error that quotes as much of `offending` (an IPv4 packet) as RFC 1812 section
    /// 4.3.2.3 allows: 576 bytes in total.
    pub fn icmp_error(
        self,
        kind: u8,
        code: u8,
        rest: [u8; 4],
        offending: impl AsRef<[u8]>,
    ) -> Vec<u8> {
        let room = 576 - Ipv4::LEN - self.options.len();
        self.payload(PROTOCOL_ICMP, icmp_error(kind, code, rest, offending, room))
    }

    /// Builds the error "time to live exceeded in transit"; the source of this packet is the
    /// router.
    pub fn time_exceeded(self, offending: impl AsRef<[u8]>) -> Vec<u8> {
        self.icmp_error(TIME_EXCEEDED, CODE_TTL_EXCEEDED, [0; 4], offending)
    }

    pub fn port_unreachable(self, offending: impl AsRef<[u8]>) -> Vec<u8> {
        self.icmp_error(DESTINATION_UNREACHABLE, CODE_PORT_UNREACHABLE, [0; 4], offending)
    }

    /// Builds a GRE tunnel packet around `payload`, by default an IPv4 packet.
    pub fn gre(self, header: GreBuilder, payload: impl AsRef<[u8]>) -> Vec<u8> {
        self.payload(PROTOCOL_GRE, header.build(payload.as_ref()))
    }

    /// Builds an IPIP tunnel packet around the IPv4 packet `inner` (RFC 2003).
    pub fn ipip(self, inner: impl AsRef<[u8]>) -> Vec<u8> {
        self.payload(PROTOCOL_IPIP, inner)
    }

    fn source(&self) -> u32 {
        self.header.source.get()
    }

    fn destination(&self) -> u32 {
        self.header.destination.get()
    }
}
