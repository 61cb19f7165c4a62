//! The fields of a packet's transport header that the NAT needs.

use weir_nat::{Endpoint, Protocol};
use weir_wire::ipv4;
use weir_wire::{icmp, tcp, udp};

use crate::DropReason;
use crate::ip_input::Packet;

/// RFC 791: the total length has 16 bits. A fragment that reaches further cannot be part of a
/// datagram; if it was fragmented again, its offset would overflow and its pieces would land at the
/// front, unseen by the firewall.
const DATAGRAM_MAX: usize = 65_535;

/// Kind of a packet from the NAT's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// TCP, UDP or an ICMP query, which has (or creates) a session of its own.
    Session,
    /// Like `Session`, and more fragments follow.
    FirstFragment,
    /// A fragment without a transport header: it follows its first fragment.
    LaterFragment,
    /// An ICMP error about another packet, which it quotes.
    IcmpError,
    /// A home's answer to an ICMP query. Only a query of another home reaches a home, so the answer
    /// turns around here.
    IcmpReply,
}

/// The session of a packet, read from the packet: its source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) kind: PacketKind,
    pub(crate) protocol: Protocol,
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    /// TCP flags; 0 for other protocols.
    pub(crate) tcp_flags: u8,
}

/// Direction of a packet, which determines the ICMP queries that pass: requests leave, replies come
/// back (RFC 5508 section 3). Between homes both pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Internet,
    Home,
    /// From a home of the cluster (on any worker), or from this worker itself, to another home.
    Neighbor,
}

impl FlowKey {
    /// A key before anything is read.
    pub(crate) const EMPTY: Self = Self {
        kind: PacketKind::Session,
        protocol: Protocol::Udp,
        source: Endpoint::new(0, 0),
        destination: Endpoint::new(0, 0),
        tcp_flags: 0,
    };

    /// True for TCP or UDP behind an IP header without options (`header_len` bytes), and no
    /// fragment.
    #[inline]
    pub(crate) fn is_plain(&self, header_len: usize) -> bool {
        self.kind == PacketKind::Session
            && self.protocol != Protocol::Icmp
            && header_len == ipv4::Ipv4::LEN
    }

    /// Reads the transport header of a packet.
    pub(crate) fn read(&mut self, packet: &Packet<'_>, toward: Toward) -> Result<(), DropReason> {
        let ip = packet.ip;
        let protocol = protocol(ip.protocol).ok_or(DropReason::Protocol)?;
        self.kind = PacketKind::Session;
        self.protocol = protocol;
        self.tcp_flags = 0;
        self.source.address = ip.source.get();
        self.destination.address = ip.destination.get();
        if ip.is_fragment() {
            self.kind = fragment_kind(packet, protocol, toward)?;
            if self.kind == PacketKind::LaterFragment {
                (self.source.port, self.destination.port) = (0, 0);
                return Ok(());
            }
        }
        match protocol {
            Protocol::Udp => self.read_udp(packet.payload()),
            Protocol::Tcp => self.read_tcp(packet.payload()),
            Protocol::Icmp => self.read_icmp(packet.payload(), toward),
        }
    }

    fn read_udp(&mut self, transport: &[u8]) -> Result<(), DropReason> {
        let (source, destination) = if self.kind == PacketKind::FirstFragment {
            // The UDP length includes the fragments to come, so only the header can be checked
            // here.
            let bytes = transport.first_chunk::<8>().ok_or(DropReason::FragmentTiny)?;
            (u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]]))
        } else {
            let udp = udp::parse(transport).map_err(|_| DropReason::TransportMalformed)?;
            (udp.source_port.get(), udp.destination_port.get())
        };
        // RFC 768 lets a sender that wants no answer write source port 0. A mapping needs a port on
        // either side.
        if source == 0 || destination == 0 {
            return Err(DropReason::PortZero);
        }
        self.source.port = source;
        self.destination.port = destination;
        Ok(())
    }

    fn read_tcp(&mut self, transport: &[u8]) -> Result<(), DropReason> {
        let reason = match self.kind {
            PacketKind::FirstFragment => DropReason::FragmentTiny,
            _ => DropReason::TransportMalformed,
        };
        let tcp = tcp::parse(transport).map_err(|_| reason)?;
        self.source.port = tcp.source_port.get();
        self.destination.port = tcp.destination_port.get();
        self.tcp_flags = tcp.flags;
        if self.source.port == 0 || self.destination.port == 0 {
            return Err(DropReason::PortZero);
        }
        Ok(())
    }

    fn read_icmp(&mut self, transport: &[u8], toward: Toward) -> Result<(), DropReason> {
        (self.source.port, self.destination.port) = (0, 0);
        let icmp = icmp::parse(transport).map_err(|_| DropReason::TransportMalformed)?;
        if icmp::is_error(icmp.kind) {
            // An ICMP error in fragments quotes more than RFC 1812 allows, and no host sends one. A
            // redirect concerns the sender's own link and names a router that no translation can
            // name (RFC 792); from the internet it could only lead a home's traffic astray.
            if self.kind == PacketKind::FirstFragment || icmp.kind == icmp::REDIRECT {
                return Err(DropReason::IcmpKind);
            }
            self.kind = PacketKind::IcmpError;
            return Ok(());
        }
        let is_request = icmp::is_query_request(icmp.kind);
        if !is_request && !icmp::is_query_reply(icmp.kind) {
            return Err(DropReason::IcmpKind);
        }
        match toward {
            Toward::Internet if is_request => self.source.port = icmp.identifier(),
            Toward::Internet if self.kind == PacketKind::Session => {
                self.kind = PacketKind::IcmpReply;
                self.source.port = icmp.identifier();
            }
            Toward::Home if !is_request => self.destination.port = icmp.identifier(),
            Toward::Neighbor => self.destination.port = icmp.identifier(),
            Toward::Internet | Toward::Home => return Err(DropReason::IcmpUnsolicited),
        }
        Ok(())
    }
}

/// Returns the protocol with this IP number if it is translated.
#[inline]
pub(crate) fn protocol(number: u8) -> Option<Protocol> {
    match number {
        ipv4::PROTOCOL_TCP => Some(Protocol::Tcp),
        ipv4::PROTOCOL_UDP => Some(Protocol::Udp),
        ipv4::PROTOCOL_ICMP => Some(Protocol::Icmp),
        _ => None,
    }
}

/// Tells a first fragment from a later one. RFC 3128: a fragment at offset 8 could overwrite the
/// TCP flags that the firewall saw.
#[cold]
fn fragment_kind(
    packet: &Packet<'_>,
    protocol: Protocol,
    toward: Toward,
) -> Result<PacketKind, DropReason> {
    let offset = packet.ip.fragment_offset();
    if offset + packet.bytes.len() > DATAGRAM_MAX {
        return Err(match toward {
            Toward::Internet => DropReason::InnerMalformed,
            Toward::Home | Toward::Neighbor => DropReason::IpMalformed,
        });
    }
    match offset {
        0 => Ok(PacketKind::FirstFragment),
        1..20 if protocol == Protocol::Tcp => Err(DropReason::FragmentTiny),
        _ => Ok(PacketKind::LaterFragment),
    }
}
