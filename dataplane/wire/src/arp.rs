//! ARP for IPv4 over Ethernet (RFC 826, gratuitous: RFC 5227 section 1.1).

use crate::ethernet::{ETHERTYPE_IPV4, Mac};
use crate::{Malformed, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const HARDWARE_ETHERNET: u16 = 1;
pub const REQUEST: u16 = 1;
pub const REPLY: u16 = 2;

/// An ARP packet for IPv4 over Ethernet: 28 bytes. Addresses are in network order on the wire;
/// `get()` returns host order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Arp {
    pub hardware_type: U16,
    pub protocol_type: U16,
    pub hardware_len: u8,
    pub protocol_len: u8,
    pub operation: U16,
    pub sender_mac: Mac,
    pub sender_ip: U32,
    pub target_mac: Mac,
    pub target_ip: U32,
}

impl Arp {
    pub const LEN: usize = size_of::<Arp>();

    /// Makes a request of `sender` for the MAC of `target_ip`.
    pub fn request(sender_mac: Mac, sender_ip: u32, target_ip: u32) -> Arp {
        Arp::new(REQUEST, (sender_mac, sender_ip), (Mac::ZERO, target_ip))
    }

    /// Makes the answer "`sender_ip` is at `sender_mac`" to one station.
    pub fn reply(sender_mac: Mac, sender_ip: u32, target_mac: Mac, target_ip: u32) -> Arp {
        Arp::new(REPLY, (sender_mac, sender_ip), (target_mac, target_ip))
    }

    /// Makes an announcement (RFC 5227 section 1.1): a request for the sender's own address, which
    /// every station enters in its cache.
    pub fn gratuitous(mac: Mac, ip: u32) -> Arp {
        Arp::new(REQUEST, (mac, ip), (Mac::ZERO, ip))
    }

    fn new(operation: u16, sender: (Mac, u32), target: (Mac, u32)) -> Arp {
        Arp {
            hardware_type: U16::new(HARDWARE_ETHERNET),
            protocol_type: U16::new(ETHERTYPE_IPV4),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(operation),
            sender_mac: sender.0,
            sender_ip: U32::new(sender.1),
            target_mac: target.0,
            target_ip: U32::new(target.1),
        }
    }

    /// Whether the types and lengths are those of IPv4 over Ethernet; otherwise the other fields
    /// have no meaning.
    #[inline]
    pub fn is_valid_ipv4_ethernet(&self) -> bool {
        self.hardware_type.get() == HARDWARE_ETHERNET
            && self.protocol_type.get() == ETHERTYPE_IPV4
            && self.hardware_len == 6
            && self.protocol_len == 4
    }

    #[inline]
    pub fn is_request(&self) -> bool {
        self.operation.get() == REQUEST
    }

    #[inline]
    pub fn is_reply(&self) -> bool {
        self.operation.get() == REPLY
    }

    /// True for an announcement: sender and target address are the same.
    #[inline]
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip
    }

    /// Writes the packet to the first 28 bytes of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Returns the packet at the front of `bytes` (Ethernet padding may follow). Does not check types
/// and lengths: [`Arp::is_valid_ipv4_ethernet`].
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&Arp, Malformed> {
    Arp::ref_from_prefix(bytes).map(|(arp, _)| arp).map_err(|_| Malformed::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn announcement_is_a_request_for_the_senders_own_address() {
        let arp = Arp::gratuitous(build::mac(1), 0x0a01_0001);
        assert!(arp.is_gratuitous() && arp.is_request() && arp.is_valid_ipv4_ethernet());
        assert_eq!(arp.target_mac, Mac::ZERO);
    }

    #[test]
    fn arp_reply_is_addressed_to_the_requesting_station() {
        let request = Arp::request(build::mac(2), 0x0a01_0002, 0x0a01_0001);
        let reply = Arp::reply(
            build::mac(1),
            request.target_ip.get(),
            request.sender_mac,
            request.sender_ip.get(),
        );
        assert!(reply.is_reply() && !reply.is_gratuitous());
        assert_eq!((reply.target_mac, reply.target_ip), (build::mac(2), request.sender_ip));
    }

    #[test]
    fn arp_of_other_hardware_is_not_valid_ipv4_ethernet() {
        let mut arp = Arp::request(build::mac(2), 1, 2);
        arp.hardware_len = 8;
        assert!(!arp.is_valid_ipv4_ethernet());
    }

    #[test]
    fn refuses_a_cut_packet() {
        assert_eq!(parse(&[0; 27]), Err(Malformed::Truncated));
        assert!(parse(&[0; 46]).is_ok(), "padding to the smallest frame is allowed");
    }
}
