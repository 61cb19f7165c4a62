//! Ethernet II (IEEE 802.3 clause 3) and one 802.1Q tag. Hot: per packet.

use crate::{Malformed, U16};
use core::fmt;
use core::str::FromStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// IEEE 802.1Q customer tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// A 48-bit hardware address. Text form `02:00:00:00:00:01`.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    pub const ZERO: Mac = Mac([0; 6]);

    /// Returns the address of the group that listens to an IPv6 multicast address: 33:33 and its
    /// last four bytes (RFC 2464 section 7).
    #[inline]
    pub const fn of_multicast6(address: u128) -> Mac {
        let [a, b, c, d] = (address as u32).to_be_bytes();
        Mac([0x33, 0x33, a, b, c, d])
    }

    /// True for multicast and broadcast: the group bit is set (IEEE 802 section 8.2).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True for an address that one station can own: not a group address and not zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Mac::ZERO
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six two-digit hexadecimal numbers separated by colons (or dashes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMac;

impl fmt::Display for NotAMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected six hexadecimal bytes such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for NotAMac {}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Mac, NotAMac> {
        let mut mac = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            let part = parts.next().ok_or(NotAMac)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(NotAMac);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| NotAMac)?;
        }
        if parts.next().is_some() { Err(NotAMac) } else { Ok(Mac(mac)) }
    }
}

/// The Ethernet header: 14 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ethernet {
    pub destination: Mac,
    pub source: Mac,
    /// Ethertype; a value below 0x0600 is an 802.3 length, which no caller supports.
    pub ethertype: U16,
}

impl Ethernet {
    pub const LEN: usize = size_of::<Ethernet>();

    #[inline]
    pub fn new(destination: Mac, source: Mac, ethertype: u16) -> Ethernet {
        Ethernet { destination, source, ethertype: U16::new(ethertype) }
    }

    /// Writes the header to the first 14 bytes of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// The 802.1Q tag that follows the addresses if the ethertype is [`ETHERTYPE_VLAN`]: 4 bytes,
/// counted from behind that ethertype.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Vlan {
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub tci: U16,
    /// Ethertype of the payload.
    pub ethertype: U16,
}

impl Vlan {
    pub const LEN: usize = size_of::<Vlan>();

    /// Makes the tag of VLAN `id` (1 to 4094) with priority 0.
    #[inline]
    pub fn new(id: u16, ethertype: u16) -> Vlan {
        Vlan { tci: U16::new(id & 0x0fff), ethertype: U16::new(ethertype) }
    }

    /// Returns the VLAN identifier; 0 = priority tag only.
    #[inline]
    pub fn id(&self) -> u16 {
        self.tci.get() & 0x0fff
    }

    #[inline]
    pub fn priority(&self) -> u8 {
        (self.tci.get() >> 13) as u8
    }

    /// Writes the tag to the first 4 bytes of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// The headers in front of the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeaders {
    /// Bytes up to the network layer: 14, or 18 with a tag.
    pub len: usize,
    pub destination: Mac,
    pub source: Mac,
    /// The outermost VLAN identifier (0 to 4095), if the frame is tagged.
    pub vlan: Option<u16>,
    /// Ethertype of the payload; [`ETHERTYPE_VLAN`] again for a frame with two tags.
    pub ethertype: u16,
}

/// Returns the header at the front of `bytes`.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&Ethernet, Malformed> {
    Ethernet::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Returns the header at the front of `bytes`, to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Ethernet, Malformed> {
    Ethernet::mut_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Returns the tag at the front of `bytes` (14 bytes into the frame).
#[inline]
pub fn parse_vlan(bytes: &[u8]) -> Result<&Vlan, Malformed> {
    Vlan::ref_from_prefix(bytes).map(|(tag, _)| tag).map_err(|_| Malformed::Truncated)
}

/// Returns the header and, if there is one, the first 802.1Q tag.
#[inline]
pub fn parse_link(bytes: &[u8]) -> Result<EthernetHeaders, Malformed> {
    let header = parse(bytes)?;
    let (len, vlan, ethertype) = match header.ethertype.get() {
        ETHERTYPE_VLAN => {
            let tag = parse_vlan(&bytes[Ethernet::LEN..])?;
            (Ethernet::LEN + Vlan::LEN, Some(tag.id()), tag.ethertype.get())
        }
        ethertype => (Ethernet::LEN, None, ethertype),
    };
    Ok(EthernetHeaders {
        len,
        destination: header.destination,
        source: header.source,
        vlan,
        ethertype,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn mac_text_round_trips() {
        let mac: Mac = "02:1a:ff:00:9c:01".parse().unwrap();
        assert_eq!(mac, Mac([0x02, 0x1a, 0xff, 0x00, 0x9c, 0x01]));
        assert_eq!(mac.to_string(), "02:1a:ff:00:9c:01");
        assert_eq!("02-1A-FF-00-9C-01".parse(), Ok(mac));
    }

    #[test]
    fn refuses_text_that_is_no_mac() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:0g",
            "+2:00:00:00:00:01",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(NotAMac), "{text}");
        }
    }

    #[test]
    fn group_and_zero_macs_are_not_unicast() {
        assert!(build::mac(1).is_unicast());
        assert!(!Mac::BROADCAST.is_unicast() && Mac::BROADCAST.is_multicast());
        assert!(!Mac::ZERO.is_unicast() && !Mac::ZERO.is_multicast());
    }

    #[test]
    fn mac_of_an_ipv6_group_ends_with_the_last_four_bytes_of_its_address() {
        let group = 0xff02_0000_0000_0000_0000_0001_ff0e_8c6c;
        assert_eq!(Mac::of_multicast6(group).to_string(), "33:33:ff:0e:8c:6c");
        assert!(Mac::of_multicast6(group).is_multicast());
    }

    #[test]
    fn finds_the_network_layer_behind_a_tag() {
        let plain = build::ethernet(build::mac(1), build::mac(2), [0; 20]);
        let link = parse_link(&plain).unwrap();
        assert_eq!((link.len, link.vlan, link.ethertype), (14, None, ETHERTYPE_IPV4));
        assert_eq!((link.destination, link.source), (build::mac(1), build::mac(2)));

        let tagged = build::vlan(4094, &plain);
        let link = parse_link(&tagged).unwrap();
        assert_eq!((link.len, link.vlan, link.ethertype), (18, Some(4094), ETHERTYPE_IPV4));

        let twice = build::vlan(7, &tagged);
        let link = parse_link(&twice).unwrap();
        assert_eq!((link.vlan, link.ethertype), (Some(7), ETHERTYPE_VLAN));
    }

    #[test]
    fn refuses_a_cut_header_or_tag() {
        let frame = build::vlan(7, build::ethernet(build::mac(1), build::mac(2), []));
        for len in 0..frame.len() {
            assert_eq!(parse_link(&frame[..len]), Err(Malformed::Truncated), "{len} bytes");
        }
        assert!(parse_link(&frame).is_ok());
    }
}
