//! The gateway that the generator simulates on each side: it answers for its addresses and finds
//! the device, by ARP (RFC 826) and, where the flows have IPv6, by neighbor discovery (`ipv6.rs`).

mod ipv6;

use weir_wire::U32;
use weir_wire::arp::{self, Arp};
use weir_wire::ethernet::{ETHERTYPE_ARP, Ethernet, Mac};
use weir_wire::ndp::NdpPacket;
use zerocopy::{FromBytes, IntoBytes};

pub use self::ipv6::Gateway6;

/// A frame of ARP, 42 bytes, or of neighbor discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFrame {
    bytes: [u8; Self::LEN_MAX],
    len: usize,
}

impl LinkFrame {
    const LEN_MAX: usize = Ethernet::LEN + NdpPacket::LEN_MAX;

    fn new(destination: Mac, source: Mac, ethertype: u16, payload: &[u8]) -> Self {
        let ethernet = Ethernet::new(destination, source, ethertype);
        let mut bytes = [0; Self::LEN_MAX];
        let len = Ethernet::LEN + payload.len();
        bytes[..Ethernet::LEN].copy_from_slice(ethernet.as_bytes());
        bytes[Ethernet::LEN..len].copy_from_slice(payload);
        LinkFrame { bytes, len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The meaning of a frame to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Not of ARP or neighbor discovery.
    Foreign,
    Message,
    /// A request for an address of this gateway, with the answer to send.
    Question(LinkFrame),
}

#[derive(Clone, Copy, Debug)]
pub struct Gateway {
    pub mac: Mac,
    /// Address of this gateway, host order.
    pub address: u32,
    /// The address of the device under test on this side, host order.
    pub device_address: u32,
    /// Known once the device has sent an ARP packet.
    pub device_mac: Option<Mac>,
    /// None: no IPv6 on this side.
    pub ipv6: Option<Gateway6>,
}

impl Gateway {
    /// Returns the request for the device's address.
    pub fn request(&self) -> LinkFrame {
        frame(Mac::BROADCAST, self.mac, &Arp::request(self.mac, self.address, self.device_address))
    }

    /// Returns the request for the device's IPv6 address.
    pub fn request6(&self) -> Option<LinkFrame> {
        self.ipv6.map(|ipv6| ipv6.request(self.mac))
    }

    /// True if the device has shown that it forwards from this side and to it.
    pub fn is_ready(&self) -> bool {
        self.device_mac.is_some() && self.ipv6.is_none_or(|ipv6| ipv6.is_ready())
    }

    /// Processes a received frame.
    pub fn receive(&mut self, bytes: &[u8]) -> Received {
        let of_ndp = self.ipv6.as_mut().and_then(|ipv6| ipv6.receive(self.mac, bytes));
        match of_ndp.or_else(|| self.receive_arp(bytes)) {
            None => Received::Foreign,
            Some(None) => Received::Message,
            Some(Some(answer)) => Received::Question(answer),
        }
    }

    /// Returns the answer to an ARP packet, if there is one; `None` for other frames.
    fn receive_arp(&mut self, bytes: &[u8]) -> Option<Option<LinkFrame>> {
        let (ethernet, payload) = Ethernet::ref_from_prefix(bytes).ok()?;
        if ethernet.ethertype.get() != ETHERTYPE_ARP {
            return None;
        }
        let packet = arp::parse(payload).ok()?;
        if !packet.is_valid_ipv4_ethernet() {
            return None;
        }
        if packet.sender_ip == U32::new(self.device_address) {
            self.device_mac = Some(packet.sender_mac);
        }
        let asks_for_us = packet.is_request() && packet.target_ip == U32::new(self.address);
        Some(asks_for_us.then(|| {
            let (mac, ip) = (packet.sender_mac, packet.sender_ip.get());
            frame(mac, self.mac, &Arp::reply(self.mac, self.address, mac, ip))
        }))
    }
}

fn frame(destination: Mac, source: Mac, packet: &Arp) -> LinkFrame {
    LinkFrame::new(destination, source, ETHERTYPE_ARP, packet.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const DEVICE: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn gateway() -> Gateway {
        Gateway {
            mac: OURS,
            address: 0x0a01_0002,
            device_address: 0x0a01_0001,
            device_mac: None,
            ipv6: None,
        }
    }

    #[test]
    fn a_request_is_answered_and_teaches_the_device() {
        let mut gateway = gateway();
        let request =
            frame(Mac::BROADCAST, DEVICE, &Arp::request(DEVICE, 0x0a01_0001, 0x0a01_0002));
        let Received::Question(answer) = gateway.receive(request.as_bytes()) else {
            panic!("not taken as a question")
        };
        assert_eq!(gateway.device_mac, Some(DEVICE));
        assert_eq!(answer.as_bytes()[..6], DEVICE.0);
        let reply = arp::parse(&answer.as_bytes()[14..]).unwrap();
        assert!(
            reply.is_reply() && reply.sender_mac == OURS && reply.sender_ip.get() == 0x0a01_0002
        );
    }

    #[test]
    fn a_reply_teaches_and_is_not_answered() {
        let mut gateway = gateway();
        let reply = frame(OURS, DEVICE, &Arp::reply(DEVICE, 0x0a01_0001, OURS, 0x0a01_0002));
        assert_eq!(gateway.receive(reply.as_bytes()), Received::Message);
        assert_eq!(gateway.device_mac, Some(DEVICE));
    }

    #[test]
    fn requests_for_other_addresses_and_other_frames_are_ignored() {
        let mut gateway = gateway();
        let other = frame(Mac::BROADCAST, DEVICE, &Arp::request(DEVICE, 0x0a01_0003, 0x0a01_0004));
        assert_eq!(gateway.receive(other.as_bytes()), Received::Message);
        assert_eq!(gateway.receive(&other.as_bytes()[..20]), Received::Foreign);
        assert_eq!(gateway.receive(&[0; 60]), Received::Foreign);
        assert_eq!(gateway.device_mac, None);
    }
}
