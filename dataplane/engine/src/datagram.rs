//! Datagrams that workers exchange for replication: UDP from access address to access address, with
//! the same port on both ends.
//!
//! Datagrams from a known worker are kept for the caller, at most a burst of them; their payload is
//! not read here.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use weir_nat::ReplicaMut;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::udp::{self, Udp};

use crate::engine::Engine;
use crate::ethernet_input::Link;
use crate::ip_input::Packet;
use crate::peer::Peers;
use crate::upstream::{Step, Upstream};
use crate::{BURST_MAX, DropReason, Output, Side};

/// RFC 2474 section 4.2.2: class selector 6, network control. Lost sessions are worse than lost
/// packets.
const TOS: u8 = 48 << 2;

const HEADERS: usize = Ipv4::LEN + Udp::LEN;

/// The received datagrams that the caller has not taken yet, and their UDP port.
#[derive(Debug)]
pub(crate) struct Datagrams<F> {
    /// `None`: no datagrams are exchanged.
    pub(crate) port: Option<u16>,
    waiting: VecDeque<(SocketAddrV4, F)>,
}

impl<F> Datagrams<F> {
    pub(crate) fn new(port: Option<u16>) -> Self {
        let room = if port.is_some() { BURST_MAX } else { 0 };
        Self { port, waiting: VecDeque::with_capacity(room) }
    }
}

/// Reads a datagram of a known worker to the replication port and cuts it to its payload.
pub(crate) fn datagram_input(
    outer: &Packet<'_>,
    packet: &mut Upstream,
) -> Result<Step, DropReason> {
    if outer.ip.is_fragment() {
        return Err(DropReason::ReplicationMalformed);
    }
    let payload = outer.payload();
    let header = udp::parse(payload).map_err(|_| DropReason::ReplicationMalformed)?;
    if header.source_port != header.destination_port {
        return Err(DropReason::NotPeer);
    }
    let (source, destination) = (outer.ip.source.get(), outer.ip.destination.get());
    let len = usize::from(header.length.get());
    if !udp::checksum_ok(source, destination, &payload[..len]) {
        return Err(DropReason::ReplicationMalformed);
    }
    packet.key.source.address = source;
    packet.offset += outer.header_len + Udp::LEN;
    packet.len = len - Udp::LEN;
    Ok(Step::Datagram)
}

/// Sends datagrams to other workers.
#[derive(Debug)]
pub struct Post<'a> {
    link: &'a Link,
    peers: &'a Peers,
    port: Option<u16>,
}

impl Post<'_> {
    /// Sends a datagram to a known worker. Returns false and sends nothing if no port was
    /// configured, the worker is unknown or does not answer ARP, the datagram exceeds the access
    /// MTU, or there is no buffer.
    pub fn send<P: Pool>(
        &self,
        to: SocketAddrV4,
        payload: &[u8],
        pool: &mut P,
        out: &mut Output<P::Frame>,
    ) -> bool {
        let frame = self.build(to, payload, pool);
        frame.is_some_and(|frame| out.push(Side::Access, frame))
    }

    fn build<P: Pool>(&self, to: SocketAddrV4, payload: &[u8], pool: &mut P) -> Option<P::Frame> {
        let port = self.port?;
        let (source, destination) = (self.link.address, to.ip().to_bits());
        let header = self.peers.header_to(destination, &self.link.gateways)?;
        let len = HEADERS + payload.len();
        if len > self.link.mtu {
            return None;
        }
        let mut frame = pool.alloc()?;
        if !frame.extend(len) {
            return None;
        }
        let udp_len = (len - Ipv4::LEN) as u16;
        let mut ip = Ipv4::new(source, destination, ipv4::PROTOCOL_UDP, udp_len);
        ip.tos = TOS;
        // The datagram is never fragmented, so RFC 6864 section 4.1 permits any identification.
        ip.set_fragment(true, false, 0);
        ip.set_checksum();
        let bytes = frame.data_mut();
        ip.emit(bytes);
        let datagram = &mut bytes[Ipv4::LEN..];
        Udp::new(port, to.port(), payload.len() as u16).emit(datagram);
        datagram[Udp::LEN..].copy_from_slice(payload);
        let checksum = udp::checksum(source, destination, datagram);
        if let Ok(header) = udp::parse_header_mut(datagram) {
            header.checksum = checksum.into();
        }
        header.push(&mut frame).then_some(frame)
    }
}

impl<F: Frame> Engine<F> {
    /// Removes and returns the oldest received datagram: its sender, and the frame cut to its
    /// payload. The caller empties the queue after each [`receive`](Self::receive): it holds at
    /// most a burst.
    pub fn take_datagram(&mut self) -> Option<(SocketAddrV4, F)> {
        self.datagrams.waiting.pop_front()
    }

    /// Returns the tables as replication changes them, together with the [`Post`] that sends
    /// datagrams about the changes.
    #[inline]
    pub fn replica_and_post(&mut self) -> (ReplicaMut<'_>, Post<'_>) {
        let link = &self.links[Side::Access as usize];
        let nat = self.nat.replica_mut();
        (nat, Post { link, peers: &self.peers, port: self.datagrams.port })
    }

    /// Queues a checked datagram for the caller.
    pub(crate) fn keep_datagram(&mut self, frame: F, packet: &Upstream) {
        let waiting = &mut self.datagrams.waiting;
        match self.datagrams.port {
            Some(port) if waiting.len() < BURST_MAX => {
                let from = Ipv4Addr::from_bits(packet.key.source.address);
                waiting.push_back((SocketAddrV4::new(from, port), frame));
            }
            _ => self.discard(DropReason::NoBuffer),
        }
    }
}
