//! The gateway that the generator simulates on each side, as far as ARP goes (RFC 826): it answers
//! for its address and finds the device.

use weir_wire::arp::{self, Arp};
use weir_wire::ethernet::{ETHERTYPE_ARP, Ethernet, Mac};
use weir_wire::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

/// An ARP frame: 42 bytes.
pub type ArpFrame = [u8; 42];

/// The meaning of a frame to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    NotArp,
    Arp,
    /// A request for this gateway's address, with the answer to send.
    Question(ArpFrame),
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
}

impl Gateway {
    /// Returns the request for the device's address.
    pub fn request(&self) -> ArpFrame {
        frame(Mac::BROADCAST, self.mac, &Arp::request(self.mac, self.address, self.device_address))
    }

    /// Processes a received frame.
    pub fn receive(&mut self, bytes: &[u8]) -> Received {
        match self.parse(bytes) {
            None => Received::NotArp,
            Some(None) => Received::Arp,
            Some(Some(answer)) => Received::Question(answer),
        }
    }

    fn parse(&mut self, bytes: &[u8]) -> Option<Option<ArpFrame>> {
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

fn frame(destination: Mac, source: Mac, packet: &Arp) -> ArpFrame {
    let ethernet = Ethernet { destination, source, ethertype: U16::new(ETHERTYPE_ARP) };
    let mut bytes = [0; 42];
    bytes[..14].copy_from_slice(ethernet.as_bytes());
    packet.emit(&mut bytes[14..]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const DEVICE: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn gateway() -> Gateway {
        Gateway { mac: OURS, address: 0x0a01_0002, device_address: 0x0a01_0001, device_mac: None }
    }

    #[test]
    fn a_request_is_answered_and_teaches_the_device() {
        let mut gateway = gateway();
        let request =
            frame(Mac::BROADCAST, DEVICE, &Arp::request(DEVICE, 0x0a01_0001, 0x0a01_0002));
        let Received::Question(answer) = gateway.receive(&request) else {
            panic!("not taken as a question")
        };
        assert_eq!(gateway.device_mac, Some(DEVICE));
        assert_eq!(answer[..6], DEVICE.0);
        let reply = arp::parse(&answer[14..]).unwrap();
        assert!(
            reply.is_reply() && reply.sender_mac == OURS && reply.sender_ip.get() == 0x0a01_0002
        );
    }

    #[test]
    fn a_reply_teaches_and_is_not_answered() {
        let mut gateway = gateway();
        let reply = frame(OURS, DEVICE, &Arp::reply(DEVICE, 0x0a01_0001, OURS, 0x0a01_0002));
        assert_eq!(gateway.receive(&reply), Received::Arp);
        assert_eq!(gateway.device_mac, Some(DEVICE));
    }

    #[test]
    fn requests_for_other_addresses_and_other_frames_are_ignored() {
        let mut gateway = gateway();
        let other = frame(Mac::BROADCAST, DEVICE, &Arp::request(DEVICE, 0x0a01_0003, 0x0a01_0004));
        assert_eq!(gateway.receive(&other), Received::Arp);
        assert_eq!(gateway.receive(&other[..20]), Received::NotArp);
        assert_eq!(gateway.receive(&[0; 60]), Received::NotArp);
        assert_eq!(gateway.device_mac, None);
    }
}
