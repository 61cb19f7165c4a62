//! Frames around packets.

use crate::arp::{Arp, REQUEST};
use crate::ethernet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, Ethernet, Mac, Vlan,
};
use zerocopy::IntoBytes;

/// Returns the locally administered address `02:00:00:00:00:n`.
pub fn mac(n: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, n])
}

/// Builds a frame around an IPv4 packet. Not padded to 60 bytes.
pub fn ethernet(destination: Mac, source: Mac, packet: impl AsRef<[u8]>) -> Vec<u8> {
    ethernet_of(ETHERTYPE_IPV4, destination, source, packet)
}

/// Builds a frame around an IPv6 packet. Not padded to 60 bytes.
pub fn ethernet6(destination: Mac, source: Mac, packet: impl AsRef<[u8]>) -> Vec<u8> {
    ethernet_of(ETHERTYPE_IPV6, destination, source, packet)
}

/// Builds a frame around a payload of any ethertype.
pub fn ethernet_of(
    ethertype: u16,
    destination: Mac,
    source: Mac,
    payload: impl AsRef<[u8]>,
) -> Vec<u8> {
    let header = Ethernet::new(destination, source, ethertype);
    [header.as_bytes(), payload.as_ref()].concat()
}

/// Inserts an 802.1Q tag of VLAN `id` into a frame; twice gives two tags.
pub fn vlan(id: u16, frame: impl AsRef<[u8]>) -> Vec<u8> {
    let (addresses, rest) = frame.as_ref().split_at(Ethernet::LEN - 2);
    let (ethertype, payload) = rest.split_at(2);
    let tag = Vlan::new(id, u16::from_be_bytes([ethertype[0], ethertype[1]]));
    [addresses, &ETHERTYPE_VLAN.to_be_bytes(), tag.as_bytes(), payload].concat()
}

/// Builds a frame around an ARP packet: requests are broadcast, replies go to their target.
pub fn arp(packet: Arp) -> Vec<u8> {
    let destination =
        if packet.operation.get() == REQUEST { Mac::BROADCAST } else { packet.target_mac };
    ethernet_of(ETHERTYPE_ARP, destination, packet.sender_mac, packet.as_bytes())
}
