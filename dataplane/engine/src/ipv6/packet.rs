//! Hot. What is known of an IPv6 packet while its burst is processed, and how that is read.

use weir_nat::{FlowKey6, Home, LookUp, Packet6, Protocol};
use weir_wire::ethernet::Mac;
use weir_wire::ipv6::{self, FragmentHeader, Ipv6, UpperLayer};
use weir_wire::{icmp6, tcp, udp};

use crate::DropReason;
use crate::flow_key::PacketKind;

/// Next step of a frame with an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketStep6 {
    Forward,
    /// Forward, as [`Forward`](Self::Forward), a packet that another worker redirected here.
    Stray,
    /// It is to the worker itself, or to a group of it.
    Local,
    /// Its hop limit ends here.
    TimeExceeded,
    /// It is a tunnel packet over IPv6 of a home that is not known.
    UnknownHome,
    /// It is a ping of a tunnel endpoint.
    ToEndpoint,
    /// It is the packet of a GRE keepalive, to be sent back.
    KeepaliveBack,
    /// It is a fragment of a tunnel packet over IPv6.
    OuterFragment,
    Discard(DropReason),
}

impl PacketStep6 {
    /// Whether only a packet to a tunnel endpoint over IPv6 has this step.
    #[inline(always)]
    pub(crate) fn is_to_endpoint(self) -> bool {
        use PacketStep6::*;
        matches!(self, UnknownHome | ToEndpoint | KeepaliveBack | OuterFragment)
    }
}

/// State of a frame with an IPv6 packet while its burst is processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet6State {
    pub(crate) key: FlowKey6,
    pub(crate) look_up: LookUp,
    /// The home of the tunnel; without tunnels it is not known before the slow path.
    pub(crate) home: Home,
    pub(crate) kind: PacketKind,
    pub(crate) protocol: Protocol,
    /// Flags of TCP; 0 for other protocols.
    pub(crate) tcp_flags: u8,
    /// Offset of the transport header in the packet, bytes.
    pub(crate) transport_at: u16,
    /// None for a whole packet.
    pub(crate) fragment: Option<FragmentHeader>,
    pub(crate) step: PacketStep6,
    /// Link-layer sender of a packet to the worker itself.
    pub(crate) from: Mac,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way6 {
    /// The source is the inside endpoint.
    Up,
    /// The destination is the inside endpoint.
    Down,
}

/// The remote port of an ICMPv6 echo that the remote began. One that the home began has 0, so a
/// remote that answers a home's echo may not begin one.
const REMOTE_ECHO: u16 = 1;

impl Packet6State {
    pub(crate) const EMPTY: Self = Self {
        key: FlowKey6::EMPTY,
        look_up: LookUp::EMPTY,
        home: Home { shard: weir_nat::ShardIndex(0), outer: 0, gre_key: None },
        kind: PacketKind::Session,
        protocol: Protocol::Udp,
        tcp_flags: 0,
        transport_at: Ipv6::LEN as u16,
        fragment: None,
        step: PacketStep6::Discard(DropReason::FrameTruncated),
        from: Mac::ZERO,
    };

    pub(crate) fn flow_packet(&self) -> Packet6 {
        Packet6 { key: self.key, protocol: self.protocol, tcp_flags: self.tcp_flags }
    }

    /// Reads the headers of a packet, whose fixed header is `ip`, that is to be forwarded.
    /// `packet` ends with it.
    #[inline(always)]
    pub(crate) fn read(&mut self, packet: &[u8], ip: &Ipv6, way: Way6) -> Result<(), DropReason> {
        match ip.next_header {
            weir_wire::ipv4::PROTOCOL_UDP | weir_wire::ipv4::PROTOCOL_TCP => {
                self.fragment = None;
                self.transport_at = Ipv6::LEN as u16;
                self.kind = PacketKind::Session;
                self.read_upper(packet, ip, ip.next_header, way)
            }
            _ => self.walk(packet, ip, way),
        }
    }

    #[inline(never)]
    fn walk(&mut self, packet: &[u8], ip: &Ipv6, way: Way6) -> Result<(), DropReason> {
        let upper =
            ipv6::walk(packet, packet.len()).map_err(|fault| match fault.is_malformed() {
                true => DropReason::Ip6Malformed,
                false => DropReason::Ip6Extension,
            })?;
        let UpperLayer { protocol, offset, fragment, .. } = upper;
        self.transport_at = offset as u16;
        // RFC 6946: an atomic fragment is a whole packet.
        self.fragment = fragment.filter(|fragment| !fragment.is_atomic());
        self.kind = match self.fragment {
            None => PacketKind::Session,
            Some(fragment) if fragment.is_first() => PacketKind::FirstFragment,
            Some(_) => PacketKind::LaterFragment,
        };
        if self.kind == PacketKind::LaterFragment {
            self.protocol = Protocol::Udp;
            self.set_key(ip, 0, 0, false, way);
            return Ok(());
        }
        self.read_upper(packet, ip, protocol, way)
    }

    /// Reads the transport header. RFC 7112: a first fragment has all headers.
    #[inline(always)]
    fn read_upper(
        &mut self,
        packet: &[u8],
        ip: &Ipv6,
        protocol: u8,
        way: Way6,
    ) -> Result<(), DropReason> {
        let transport = packet.get(usize::from(self.transport_at)..).unwrap_or_default();
        let is_whole = self.kind == PacketKind::Session;
        let cut = if is_whole { DropReason::TransportMalformed } else { DropReason::FragmentTiny };
        match protocol {
            weir_wire::ipv4::PROTOCOL_UDP => {
                let ports = match is_whole {
                    true => udp::parse(transport)
                        .ok()
                        .map(|udp| (udp.source_port.get(), udp.destination_port.get())),
                    // The UDP length includes the fragments to come.
                    false => transport.first_chunk::<8>().map(|bytes| {
                        let [a, b, c, d, ..] = *bytes;
                        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
                    }),
                };
                let (source, destination) = ports.ok_or(cut)?;
                (self.protocol, self.tcp_flags) = (Protocol::Udp, 0);
                self.set_ports(ip, source, destination, is_whole, way)
            }
            weir_wire::ipv4::PROTOCOL_TCP => {
                let tcp = tcp::parse(transport).map_err(|_| cut)?;
                (self.protocol, self.tcp_flags) = (Protocol::Tcp, tcp.flags);
                const SPECIAL: u8 = tcp::SYN | tcp::FIN | tcp::RST;
                let is_ordinary = is_whole && tcp.flags & (SPECIAL | tcp::ACK) == tcp::ACK;
                let ports = (tcp.source_port.get(), tcp.destination_port.get());
                self.set_ports(ip, ports.0, ports.1, is_ordinary, way)
            }
            ipv6::PROTOCOL_ICMPV6 => self.read_icmp(transport, ip, way),
            _ => Err(DropReason::Protocol),
        }
    }

    #[inline(always)]
    fn set_ports(
        &mut self,
        ip: &Ipv6,
        source: u16,
        destination: u16,
        is_ordinary: bool,
        way: Way6,
    ) -> Result<(), DropReason> {
        if source == 0 || destination == 0 {
            return Err(DropReason::PortZero);
        }
        let (inside, remote) = match way {
            Way6::Up => (source, destination),
            Way6::Down => (destination, source),
        };
        self.set_key(ip, inside, remote, is_ordinary, way);
        Ok(())
    }

    #[inline(never)]
    fn read_icmp(&mut self, transport: &[u8], ip: &Ipv6, way: Way6) -> Result<(), DropReason> {
        (self.protocol, self.tcp_flags) = (Protocol::Icmp, 0);
        let icmp = icmp6::parse(transport).map_err(|_| match self.kind {
            PacketKind::Session => DropReason::TransportMalformed,
            _ => DropReason::FragmentTiny,
        })?;
        match icmp.kind {
            icmp6::ECHO_REQUEST | icmp6::ECHO_REPLY => {
                let is_request = icmp.kind == icmp6::ECHO_REQUEST;
                let (inside, remote) = Self::echo_ports(is_request, icmp.identifier(), way);
                self.set_key(ip, inside, remote, false, way);
                Ok(())
            }
            kind if icmp6::quotes_a_packet(kind) && self.kind == PacketKind::Session => {
                self.kind = PacketKind::IcmpError;
                self.set_key(ip, 0, 0, false, way);
                Ok(())
            }
            // RFC 4890 section 4.3.1, 4.4: multicast listener discovery and neighbor discovery are
            // about the sender's own link; all else is for a router to drop.
            _ => Err(DropReason::IcmpKind),
        }
    }

    /// Returns the ports, inside and remote, of an echo that goes this way.
    pub(crate) fn echo_ports(is_request: bool, identifier: u16, way: Way6) -> (u16, u16) {
        let began_at_home = is_request == (way == Way6::Up);
        (identifier, if began_at_home { 0 } else { REMOTE_ECHO })
    }

    #[inline(always)]
    fn set_key(&mut self, ip: &Ipv6, inside: u16, remote: u16, is_ordinary: bool, way: Way6) {
        let [source, destination] = [ip.source, ip.destination].map(|it| halves(it.to_bytes()));
        let (from, to) = match way {
            Way6::Up => (source, destination),
            Way6::Down => (destination, source),
        };
        self.key = FlowKey6::of_words((from, inside), (to, remote), self.protocol, is_ordinary);
    }

    /// Whether this is an answer to an echo that the other side began.
    pub(crate) fn is_echo_reply(&self, way: Way6) -> bool {
        let began_at_home = self.key.remote().port != REMOTE_ECHO;
        self.protocol == Protocol::Icmp && began_at_home == (way == Way6::Down)
    }
}

/// Returns the octets of an address, as they lie in memory.
#[inline(always)]
fn halves(octets: [u8; 16]) -> [u64; 2] {
    zerocopy::transmute!(octets)
}

impl AsMut<LookUp> for Packet6State {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut LookUp {
        &mut self.look_up
    }
}
