//! Frames around packets.

use crate::arp::{Arp, REQUEST};
use crate::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_VLAN, Ethernet, Mac, Vlan};
use zerocopy::IntoBytes;

/// The locally administered address `02:00:00:00:00:n`.
pub fn mac(n: u8) -> Mac {
    Mac([0x02, 0, 0, 0, 0, n])
}

/// A frame around an IPv4 packet. Not padded to 60 bytes.
pub fn ethernet(destination: Mac, source: Mac, packet: impl AsRef<[u8]>) -> Vec<u8> {
    ethernet_of(ETHERTYPE_IPV4, destination, source, packet)
}

/// A frame around a payload of any ethertype.
pub fn ethernet_of(
    ethertype: u16,
    destination: Mac,
    source: Mac,
    payload: impl AsRef<[u8]>,
) -> Vec<u8> {
    let header = Ethernet::new(destination, source, ethertype);
    [header.as_bytes(), payload.as_ref()].concat()
}

/// The frame with an 802.1Q tag of VLAN `id` put in; twice gives two tags.
pub fn vlan(id: u16, frame: impl AsRef<[u8]>) -> Vec<u8> {
    let (addresses, rest) = frame.as_ref().split_at(Ethernet::LEN - 2);
    let (ethertype, payload) = rest.split_at(2);
    let tag = Vlan::new(id, u16::from_be_bytes([ethertype[0], ethertype[1]]));
    [addresses, &ETHERTYPE_VLAN.to_be_bytes(), tag.as_bytes(), payload].concat()
}

/// A frame around an ARP packet: requests to everybody, replies to their target.
pub fn arp(packet: Arp) -> Vec<u8> {
    let destination =
        if packet.operation.get() == REQUEST { Mac::BROADCAST } else { packet.target_mac };
    ethernet_of(ETHERTYPE_ARP, destination, packet.sender_mac, packet.as_bytes())
}
