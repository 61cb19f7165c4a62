//! Hot. What every IPv4 header is checked for, on either side, inside the tunnel and out.

use weir_wire::ipv4::{self, Ipv4};

use crate::DropReason;

/// What is wrong with an IPv4 header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IpHeaderError {
    Malformed,
    Checksum,
}

impl IpHeaderError {
    pub(crate) fn reason(self, malformed: DropReason, checksum: DropReason) -> DropReason {
        match self {
            Self::Malformed => malformed,
            Self::Checksum => checksum,
        }
    }
}

/// Lengths of header and packet of a sound IPv4 header (RFC 1812 section 5.2.2).
#[inline]
pub(crate) fn ip_header(packet: &[u8]) -> Result<(usize, usize), IpHeaderError> {
    let (_, header_len, total_length) =
        ipv4::parse(packet).map_err(|_| IpHeaderError::Malformed)?;
    if !ipv4::header_checksum_ok(packet) {
        return Err(IpHeaderError::Checksum);
    }
    Ok((header_len, total_length))
}

/// Addresses that no forwarded packet has (RFC 1812 section 5.3.7, RFC 6890): this network, loopback, multicast,
/// reserved and broadcast; and the land attack, source equal to destination.
#[inline]
pub(crate) fn is_martian(ip: &Ipv4) -> bool {
    let (source, destination) = (ip.source.get(), ip.destination.get());
    is_martian_address(source) || is_martian_address(destination) || source == destination
}

#[inline]
fn is_martian_address(address: u32) -> bool {
    let first = address >> 24;
    first == 0 || first == 127 || first >= 224
}
