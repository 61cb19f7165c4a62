//! ICMP errors about translated packets: the packet that they quote is translated too (RFC 5508
//! section 4).
//!
//! An error never creates, refreshes or deletes state (RFC 4787 REQ-12, RFC 5382 REQ-10, RFC 5508
//! REQ-6): the session is only looked up. Checksums change incrementally, so RFC 4884 extensions
//! behind the quote stay valid (REQ-3d).

use weir_nat::{Endpoint, Protocol};
use weir_wire::checksum::Delta;
use weir_wire::icmp::{self, Icmp};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::tcp::Tcp;
use weir_wire::udp::{self, Udp};
use zerocopy::FromBytes;

use crate::DropReason;
use crate::flow_key;
use crate::rewrite::{PacketEnd, swap16, swap32};

/// ICMP header before the quoted packet, bytes.
const ICMP_HEADER: usize = 8;

/// The session that an error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    pub(crate) protocol: Protocol,
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    /// Identification of the quoted packet if that is a first fragment; `None` for a whole packet.
    pub(crate) identification: Option<u16>,
    header_len: usize,
}

impl Quote {
    /// Reads the quoted packet of an ICMP error; `icmp` starts at the ICMP header.
    ///
    /// `local` is the end of the quoted packet that the NAT translates: the identifier of an ICMP
    /// query counts as its port at that end.
    pub(crate) fn read(icmp: &[u8], local: PacketEnd) -> Result<Self, DropReason> {
        // RFC 5508 REQ-3a: an error with a wrong ICMP checksum is dropped.
        if !icmp::checksum_ok(icmp) {
            return Err(DropReason::IcmpChecksum);
        }
        let quoted = icmp.get(ICMP_HEADER..).ok_or(DropReason::TransportMalformed)?;
        let (ip, header_len, _) =
            ipv4::parse_quoted(quoted).map_err(|_| DropReason::TransportMalformed)?;
        // REQ-3b: an error is also dropped for a wrong checksum of the quoted IP header; REQ-3c:
        // its options are skipped.
        if !ipv4::header_checksum_ok(quoted) {
            return Err(DropReason::IcmpChecksum);
        }
        let protocol = flow_key::protocol(ip.protocol).ok_or(DropReason::IcmpErrorUnmatched)?;
        let transport = quoted[header_len..].first_chunk::<8>();
        // The quote of a later fragment has no ports to look up.
        let transport = transport
            .filter(|_| ip.fragment_offset() == 0)
            .ok_or(DropReason::IcmpErrorUnmatched)?;
        let (source_port, destination_port) = ports(transport, protocol, local)?;
        Ok(Self {
            protocol,
            source: Endpoint { address: ip.source.get(), port: source_port },
            destination: Endpoint { address: ip.destination.get(), port: destination_port },
            identification: ip.is_fragment().then(|| ip.identification.get()),
            header_len,
        })
    }

    /// Replaces one endpoint of the quoted packet with its translation, in the error's own `icmp`
    /// bytes.
    pub(crate) fn rewrite(&self, icmp: &mut [u8], end: PacketEnd, new: Endpoint) -> Option<()> {
        let (header, quoted) = icmp.split_at_mut_checked(ICMP_HEADER)?;
        let (ip_bytes, transport) = quoted.split_at_mut_checked(self.header_len)?;
        let (ip, _) = Ipv4::mut_from_prefix(ip_bytes).ok()?;
        let field = match end {
            PacketEnd::Source => &mut ip.source,
            PacketEnd::Destination => &mut ip.destination,
        };
        let address = swap32(field, new.address);
        let new_ip_checksum = address.apply(ip.checksum.get());
        let mut change = address.then(swap16(&mut ip.checksum, new_ip_checksum));
        change = change.then(rewrite_transport(transport, self.protocol, end, new.port, address)?);
        icmp::apply_delta(header, change);
        Some(())
    }

    /// Replaces the identification of the quoted packet. RFC 5508 REQ-4a: the quote has to match
    /// what the home sent.
    pub(crate) fn rewrite_identification(&self, icmp: &mut [u8], new: u16) -> Option<()> {
        let (header, quoted) = icmp.split_at_mut_checked(ICMP_HEADER)?;
        let (ip, _) = Ipv4::mut_from_prefix(quoted).ok()?;
        let identification = swap16(&mut ip.identification, new);
        let checksum = identification.apply(ip.checksum.get());
        let change = identification.then(swap16(&mut ip.checksum, checksum));
        icmp::apply_delta(header, change);
        Some(())
    }
}

/// Returns the ports of the quoted transport header, or the identifier of the quoted query as the
/// port of its local end.
fn ports(
    transport: &[u8; 8],
    protocol: Protocol,
    local: PacketEnd,
) -> Result<(u16, u16), DropReason> {
    let word = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    match (protocol, local) {
        (Protocol::Tcp | Protocol::Udp, _) => Ok((word(0), word(2))),
        // A query that left was a request; a query that came in was a reply.
        (Protocol::Icmp, PacketEnd::Source) if icmp::is_query_request(transport[0]) => {
            Ok((word(4), 0))
        }
        (Protocol::Icmp, PacketEnd::Destination) if icmp::is_query_reply(transport[0]) => {
            Ok((0, word(4)))
        }
        (Protocol::Icmp, _) => Err(DropReason::IcmpErrorUnmatched),
    }
}

/// Edits the quoted transport header, as far as it is present (eight bytes at least); returns all
/// changes. The quoted checksum is never validated (REQ-3c of RFC 5508), only updated.
fn rewrite_transport(
    transport: &mut [u8],
    protocol: Protocol,
    end: PacketEnd,
    port: u16,
    address: Delta,
) -> Option<Delta> {
    match protocol {
        Protocol::Udp => {
            let (udp, _) = Udp::mut_from_prefix(transport).ok()?;
            let field = match end {
                PacketEnd::Source => &mut udp.source_port,
                PacketEnd::Destination => &mut udp.destination_port,
            };
            let change = swap16(field, port);
            let checksum = udp::apply_delta(udp.checksum.get(), address.then(change));
            Some(change.then(swap16(&mut udp.checksum, checksum)))
        }
        Protocol::Tcp => {
            let at = if end == PacketEnd::Source { 0 } else { 2 };
            let old = u16::from_be_bytes(*transport.get(at..)?.first_chunk::<2>()?);
            let change = Delta::new().replace16(old, port);
            let Ok((tcp, _)) = Tcp::mut_from_prefix(transport) else {
                transport.get_mut(at..at + 2)?.copy_from_slice(&port.to_be_bytes());
                return Some(change);
            };
            match end {
                PacketEnd::Source => tcp.source_port = port.into(),
                PacketEnd::Destination => tcp.destination_port = port.into(),
            }
            let checksum = address.then(change).apply(tcp.checksum.get());
            Some(change.then(swap16(&mut tcp.checksum, checksum)))
        }
        Protocol::Icmp => {
            let (query, _) = Icmp::mut_from_prefix(transport).ok()?;
            let change = Delta::new().replace16(query.identifier(), port);
            query.set_identifier(port);
            let checksum = change.apply(query.checksum.get());
            Some(change.then(swap16(&mut query.checksum, checksum)))
        }
    }
}
