//! Checks of every IPv4 header, on either side, inside the tunnel and outside.

use weir_wire::frame::Frame;
use weir_wire::ipv4::{self, Ipv4};

use crate::DropReason;
use crate::engine::Engine;

/// Fault of an IPv4 header.
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

/// A valid IPv4 packet, without the bytes that followed it in the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) ip: &'a Ipv4,
    /// Header and payload.
    pub(crate) bytes: &'a [u8],
    /// Length of the header, options included, bytes.
    pub(crate) header_len: usize,
}

impl<'a> Packet<'a> {
    /// Reads the packet at the front of `bytes`; its header must be valid (RFC 1812 section 5.2.2).
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, IpHeaderError> {
        let (ip, header_len, total_length) =
            ipv4::parse(bytes).map_err(|_| IpHeaderError::Malformed)?;
        if !ipv4::header_checksum_ok(bytes) {
            return Err(IpHeaderError::Checksum);
        }
        Ok(Self { ip, bytes: &bytes[..total_length], header_len })
    }

    #[inline]
    pub(crate) fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_len..).unwrap_or_default()
    }
}

/// True if the packet has an address that no forwarded packet may have (RFC 1812 section 5.3.7, RFC
/// 6890): this network, loopback, multicast, reserved or broadcast; or if its source equals its
/// destination (land attack).
#[inline]
pub(crate) fn is_martian(ip: &Ipv4) -> bool {
    is_martian_pair(ip.source.get(), ip.destination.get())
}

/// As [`is_martian`], with the addresses of a packet, host order.
#[inline]
pub(crate) fn is_martian_pair(source: u32, destination: u32) -> bool {
    let is_martian = |address: u32| MARTIAN[(address >> 24) as usize];
    is_martian(source) | is_martian(destination) || source == destination
}

/// Whether addresses are martian, by their first octet: 0, 127, 224 or more.
static MARTIAN: [bool; 256] = {
    let mut octets = [false; 256];
    (octets[0], octets[127]) = (true, true);
    let mut octet = 224;
    while octet < octets.len() {
        octets[octet] = true;
        octet += 1;
    }
    octets
};

/// RFC 791 section 3.1: the types of the options that route a packet by addresses that its sender
/// chose.
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

impl<F: Frame> Engine<F> {
    /// Refuses a packet with a source route (RFC 7126 sections 4.3 and 4.4), unless the operator
    /// permits source routes.
    #[inline]
    pub(crate) fn check_options(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        let options = packet.bytes.get(Ipv4::LEN..packet.header_len).unwrap_or_default();
        if options.is_empty() || self.forwards_source_routes || !has_source_route(options) {
            return Ok(());
        }
        Err(DropReason::SourceRoute)
    }
}

/// True if the options contain a source route. A malformed list ends where it cannot be read, as it
/// does for the routers behind.
#[cold]
fn has_source_route(mut options: &[u8]) -> bool {
    loop {
        options = match options {
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return true,
            // End of the list.
            [] | [0, ..] => return false,
            [1, rest @ ..] => rest,
            [_, len, ..] if *len >= 2 => options.get(usize::from(*len)..).unwrap_or_default(),
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1122 section 3.2.1.3: 0/8, 127/8, class D and E are no addresses of hosts.
    #[test]
    fn an_address_is_martian_by_its_first_octet() {
        for octet in 0..=255_u32 {
            let (address, host) = (octet << 24 | 0x0a_0b0c, 0xcb00_7101);
            let is_martian = matches!(octet, 0 | 127 | 224..);
            assert_eq!(is_martian_pair(address, host), is_martian, "{octet}");
            assert_eq!(is_martian_pair(host, address), is_martian, "{octet}");
        }
        assert!(is_martian_pair(0xcb00_7101, 0xcb00_7101));
    }
}
