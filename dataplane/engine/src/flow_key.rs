//! What the NAT needs to know of a packet's transport header.

use weir_nat::{Endpoint, Protocol};
use weir_wire::ipv4;
use weir_wire::{icmp, tcp, udp};

use crate::DropReason;
use crate::ip_input::Packet;

/// RFC 791: the total length has 16 bits. A fragment that reaches further cannot be part of a datagram; cut again,
/// its offset would run over and its pieces would land at the front, behind the firewall's back.
const DATAGRAM_MAX: usize = 65_535;

/// What a packet is to the NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TCP, UDP or an ICMP query: has (or makes) a session of its own.
    Session,
    /// The same, and more fragments follow.
    FirstFragment,
    /// No transport header here: follows its first fragment.
    LaterFragment,
    /// About another packet, which it quotes.
    IcmpError,
    /// A home's answer to an ICMP query. Only a query of another home reaches a home, so it turns around here.
    IcmpReply,
}

/// The session of a packet, read from the packet: its source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) kind: Kind,
    pub(crate) protocol: Protocol,
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    /// TCP flags; 0 otherwise.
    pub(crate) tcp_flags: u8,
}

/// Which ICMP queries pass: requests leave, replies come back (RFC 5508 section 3). Between homes both do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Internet,
    Home,
    /// From a home of ours, whichever worker serves it, or from the worker itself, to another.
    Neighbor,
}

impl FlowKey {
    /// Nothing read yet.
    pub(crate) const EMPTY: Self = Self {
        kind: Kind::Session,
        protocol: Protocol::Udp,
        source: Endpoint::new(0, 0),
        destination: Endpoint::new(0, 0),
        tcp_flags: 0,
    };

    /// TCP or UDP behind an IP header, `header_len` bytes, without options, and no fragment.
    #[inline]
    pub(crate) fn is_plain(&self, header_len: usize) -> bool {
        self.kind == Kind::Session
            && self.protocol != Protocol::Icmp
            && header_len == ipv4::Ipv4::LEN
    }

    /// Reads the transport header of a packet.
    pub(crate) fn read(&mut self, packet: &Packet<'_>, toward: Toward) -> Result<(), DropReason> {
        let ip = packet.ip;
        let protocol = protocol(ip.protocol).ok_or(DropReason::Protocol)?;
        self.kind = Kind::Session;
        self.protocol = protocol;
        self.tcp_flags = 0;
        self.source.address = ip.source.get();
        self.destination.address = ip.destination.get();
        if ip.is_fragment() {
            self.kind = fragment_kind(packet, protocol, toward)?;
            if self.kind == Kind::LaterFragment {
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
        let (source, destination) = if self.kind == Kind::FirstFragment {
            // The UDP length counts the fragments to come, so only the header can be checked here.
            let bytes = transport.first_chunk::<8>().ok_or(DropReason::FragmentTiny)?;
            (u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]]))
        } else {
            let udp = udp::parse(transport).map_err(|_| DropReason::TransportMalformed)?;
            (udp.source_port.get(), udp.destination_port.get())
        };
        // RFC 768 lets a sender that wants no answer write source port 0. A mapping needs a port on either side.
        if source == 0 || destination == 0 {
            return Err(DropReason::PortZero);
        }
        self.source.port = source;
        self.destination.port = destination;
        Ok(())
    }

    fn read_tcp(&mut self, transport: &[u8]) -> Result<(), DropReason> {
        let reason = match self.kind {
            Kind::FirstFragment => DropReason::FragmentTiny,
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
            // An error in fragments quotes more than RFC 1812 allows; nobody sends it.
            // A redirect concerns the sender's own link and names a router that no translation can name (RFC 792);
            // from the internet it could only lead a home's traffic astray.
            if self.kind == Kind::FirstFragment || icmp.kind == icmp::REDIRECT {
                return Err(DropReason::IcmpKind);
            }
            self.kind = Kind::IcmpError;
            return Ok(());
        }
        let is_request = icmp::is_query_request(icmp.kind);
        if !is_request && !icmp::is_query_reply(icmp.kind) {
            return Err(DropReason::IcmpKind);
        }
        match toward {
            Toward::Internet if is_request => self.source.port = icmp.identifier(),
            Toward::Internet if self.kind == Kind::Session => {
                self.kind = Kind::IcmpReply;
                self.source.port = icmp.identifier();
            }
            Toward::Home if !is_request => self.destination.port = icmp.identifier(),
            Toward::Neighbor => self.destination.port = icmp.identifier(),
            Toward::Internet | Toward::Home => return Err(DropReason::IcmpUnsolicited),
        }
        Ok(())
    }
}

/// The protocols that are translated.
#[inline]
pub(crate) fn protocol(number: u8) -> Option<Protocol> {
    match number {
        ipv4::PROTOCOL_TCP => Some(Protocol::Tcp),
        ipv4::PROTOCOL_UDP => Some(Protocol::Udp),
        ipv4::PROTOCOL_ICMP => Some(Protocol::Icmp),
        _ => None,
    }
}

/// First or later. RFC 3128: a fragment at offset 8 could overwrite the TCP flags that the firewall saw.
#[cold]
fn fragment_kind(
    packet: &Packet<'_>,
    protocol: Protocol,
    toward: Toward,
) -> Result<Kind, DropReason> {
    let offset = packet.ip.fragment_offset();
    if offset + packet.bytes.len() > DATAGRAM_MAX {
        return Err(match toward {
            Toward::Internet => DropReason::InnerMalformed,
            Toward::Home | Toward::Neighbor => DropReason::IpMalformed,
        });
    }
    match offset {
        0 => Ok(Kind::FirstFragment),
        1..20 if protocol == Protocol::Tcp => Err(DropReason::FragmentTiny),
        _ => Ok(Kind::LaterFragment),
    }
}
