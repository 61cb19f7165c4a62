//! Neighbor discovery of the simulated gateway (RFC 4861).

use weir_wire::ethernet::{ETHERTYPE_IPV6, Ethernet, Mac};
use weir_wire::ipv6::{self, Ipv6, PROTOCOL_ICMPV6};
use weir_wire::ndp::{self, NdpMessage, NdpPacket};
use zerocopy::FromBytes;

use super::LinkFrame;

/// The gateway is a router of the device's settings.
const IS_ROUTER: bool = true;

#[derive(Clone, Copy, Debug)]
pub struct Gateway6 {
    /// Address of this gateway, host order.
    address: u128,
    /// The address of the device under test on this side, host order.
    device_address: u128,
    /// Whether the device has answered for its address: it does so only once it knows that no other
    /// station has the address (RFC 4862).
    device_answers: bool,
    /// Whether the device has asked for this gateway and got its answer.
    is_known: bool,
}

impl Gateway6 {
    pub fn new(address: u128, device_address: u128) -> Self {
        Gateway6 { address, device_address, device_answers: false, is_known: false }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.device_answers && self.is_known
    }

    /// Returns the question for the device's address.
    pub(super) fn request(&self, mac: Mac) -> LinkFrame {
        frame(mac, &NdpPacket::solicitation(self.address, mac, self.device_address), mac)
    }

    /// Returns the answer to a message of neighbor discovery, if there is one; `None` for other
    /// frames.
    pub(super) fn receive(&mut self, mac: Mac, bytes: &[u8]) -> Option<Option<LinkFrame>> {
        let (ethernet, packet) = Ethernet::ref_from_prefix(bytes).ok()?;
        if ethernet.ethertype.get() != ETHERTYPE_IPV6 {
            return None;
        }
        let (ip, len) = ipv6::parse(packet).ok()?;
        if ip.next_header != PROTOCOL_ICMPV6 {
            return None;
        }
        match ndp::parse(ip, packet.get(Ipv6::LEN..len)?).ok()? {
            NdpMessage::Solicitation(question) if question.target == self.address => {
                self.is_known |= question.source == self.device_address;
                let to = question.source_mac.unwrap_or(ethernet.source);
                Some(Some(frame(mac, &NdpPacket::answer(&question, mac, IS_ROUTER), to)))
            }
            NdpMessage::Advertisement(answer) => {
                self.device_answers |= answer.is_solicited && answer.target == self.device_address;
                Some(None)
            }
            // The device looks for others with its addresses, or asks for another station.
            NdpMessage::Solicitation(_) | NdpMessage::Other(_) => Some(None),
        }
    }
}

/// Returns a packet as a frame; `to`: the station of a packet to one neighbor.
fn frame(from: Mac, packet: &NdpPacket, to: Mac) -> LinkFrame {
    let to = packet.multicast_mac().unwrap_or(to);
    LinkFrame::new(to, from, ETHERTYPE_IPV6, packet.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const DEVICE: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const ADDRESS: u128 = 0xfd00_0001 << 96 | 2;
    const OF_DEVICE: u128 = 0xfd00_0001 << 96 | 1;

    #[test]
    fn gateway_is_ready_once_the_device_has_asked_and_answered() {
        let mut gateway = Gateway6::new(ADDRESS, OF_DEVICE);
        let probe = frame(DEVICE, &NdpPacket::duplicate_detection(OF_DEVICE), DEVICE);
        assert_eq!(gateway.receive(OURS, probe.as_bytes()), Some(None));

        let question = NdpPacket::solicitation(OF_DEVICE, DEVICE, ADDRESS);
        let question = frame(DEVICE, &question, DEVICE);
        let Some(Some(answer)) = gateway.receive(OURS, question.as_bytes()) else {
            panic!("the question has no answer")
        };
        assert_eq!((&answer.as_bytes()[..6], gateway.is_ready()), (&DEVICE.0[..], false));

        let mut device = Gateway6::new(OF_DEVICE, ADDRESS);
        let Some(Some(answer)) = device.receive(DEVICE, gateway.request(OURS).as_bytes()) else {
            panic!("the request has no answer")
        };
        assert_eq!(gateway.receive(OURS, answer.as_bytes()), Some(None));
        assert!(gateway.is_ready());
    }

    #[test]
    fn other_packets_are_left_to_others() {
        let mut gateway = Gateway6::new(ADDRESS, OF_DEVICE);
        let request = gateway.request(OURS);
        assert_eq!(gateway.receive(OURS, &request.as_bytes()[..60]), None);
        assert_eq!(gateway.receive(OURS, &[0; 60]), None);
    }
}
