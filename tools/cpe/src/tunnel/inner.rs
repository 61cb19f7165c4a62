//! What the tunnel needs to know of an inner packet of either family, and the one change it makes
//! there: the congestion mark.

use std::hash::{BuildHasher, Hasher};

use weir_wire::{checksum, gre, ipv4, ipv6};

use super::Refused;
use super::ecn;

/// Bits of an IPv6 flow label.
const FLOW_LABEL: u32 = 0xf_ffff;
/// Protocols whose first four bytes are two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// An inner packet that is whole: its length fields fit its bytes.
pub(super) struct Inner<'a> {
    /// Bytes of header and payload, nothing behind.
    packet: &'a [u8],
    /// GRE protocol type, [`gre::PROTOCOL_IPV4`] or [`gre::PROTOCOL_IPV6`].
    pub(super) protocol: u16,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
    /// True if an outer IPv4 packet must not be fragmented: a path MTU below the tunnel's must
    /// reach the sender. An IPv6 packet of up to 1280 bytes may be, since its sender never sends
    /// less (RFC 4213 section 3.2.2).
    pub(super) dont_fragment: bool,
    /// The fields that tell flows apart, as bytes.
    flow: Flow,
}

/// Positions in the packet of what tells flows apart.
struct Flow {
    addresses: std::ops::Range<usize>,
    protocol: u8,
    ports: Option<usize>,
    /// Flow label of IPv6; 0 for none.
    label: u32,
}

impl<'a> Inner<'a> {
    /// Reads the packet at the front of `bytes` by the version that it states.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Refused> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_ipv4(bytes),
            Some(6) => Self::parse_ipv6(bytes),
            _ => Err(Refused::Malformed),
        }
    }

    fn parse_ipv4(bytes: &'a [u8]) -> Result<Self, Refused> {
        let (header, header_len, length) = ipv4::parse(bytes).map_err(|_| Refused::Malformed)?;
        let has_ports = !header.is_fragment() && WITH_PORTS.contains(&header.protocol);
        Ok(Self {
            packet: &bytes[..length],
            protocol: gre::PROTOCOL_IPV4,
            traffic_class: header.tos,
            dont_fragment: header.dont_fragment(),
            flow: Flow {
                addresses: 12..20,
                protocol: header.protocol,
                ports: has_ports.then_some(header_len),
                label: 0,
            },
        })
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Result<Self, Refused> {
        let (header, length) = ipv6::parse(bytes).map_err(|_| Refused::Malformed)?;
        Ok(Self {
            packet: &bytes[..length],
            protocol: gre::PROTOCOL_IPV6,
            traffic_class: header.traffic_class(),
            dont_fragment: length > ipv6::MTU_MIN,
            flow: Flow {
                addresses: 8..40,
                protocol: header.next_header,
                ports: WITH_PORTS.contains(&header.next_header).then_some(ipv6::Ipv6::LEN),
                label: header.flow_label(),
            },
        })
    }

    /// Returns the length of the packet, bytes.
    pub(super) fn len(&self) -> usize {
        self.packet.len()
    }

    /// Returns a label of 20 bits for an outer IPv6 header, never 0: the same for all packets of an
    /// inner flow, so that routers that spread load keep their order (RFC 6438 section 3).
    ///
    /// The ports behind extension headers are not read; the inner flow label stands for them.
    pub(super) fn flow_label(&self, key: &impl BuildHasher) -> u32 {
        let mut hasher = key.build_hasher();
        hasher.write(&self.packet[self.flow.addresses.clone()]);
        hasher.write_u8(self.flow.protocol);
        hasher.write_u32(self.flow.label);
        let ports = self.flow.ports.and_then(|at| self.packet.get(at..at + 4));
        hasher.write(ports.unwrap_or_default());
        (hasher.finish() as u32 & FLOW_LABEL).max(1)
    }
}

/// Merges the congestion mark of the outer header into the packet at the front of `bytes` (RFC 6040
/// section 4.2), and returns that packet. `protocol` is the GRE protocol type that announced it.
pub(super) fn mark(bytes: &mut [u8], protocol: u16, outer_ecn: u8) -> Result<&[u8], Refused> {
    let inner = Inner::parse(bytes)?;
    if inner.protocol != protocol {
        return Err(Refused::Malformed);
    }
    let (length, before) = (inner.len(), inner.traffic_class);
    let after = before & !ecn::ECN | ecn::merge(before & ecn::ECN, outer_ecn)?;
    let packet = &mut bytes[..length];
    if after != before {
        if protocol == gre::PROTOCOL_IPV4 {
            packet[1] = after;
            packet[10..12].fill(0);
            let header_len = usize::from(packet[0] & 0x0f) * 4;
            let sum = checksum::sum(&packet[..header_len]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            // The lower half of the traffic class and the upper four bits of the flow label.
            packet[1] = after << 4 | packet[1] & 0x0f;
        }
    }
    Ok(packet)
}
