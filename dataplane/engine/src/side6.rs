//! The IPv6 of one side of the worker: its two addresses, the groups to which it listens, and its
//! gateways.
//!
//! The addresses are the configured one, which is global or unique local, and a link-local address
//! made of the MAC (modified EUI-64, RFC 4291 appendix A). Both are of this worker alone and never
//! move to another one, so that duplicates are looked for once, when the worker starts, and again
//! only if its MAC changes.

use std::net::Ipv6Addr;

use weir_wire::ethernet::{ETHERTYPE_IPV6, Mac};
use weir_wire::ipv6;

use crate::config::Side6Config;
use crate::duplicate_detection::{ClaimOutcome, DetectionStep, DuplicateDetection};
use crate::link_header::LinkHeader;
use crate::neighbor::Gateways;

/// `fe80::/64`.
const LINK_LOCAL: u128 = 0xfe80 << 112;

/// The worker's IPv6 on one side. Addresses in host order.
#[derive(Debug, Default)]
pub(crate) struct Side6 {
    /// Global or unique local.
    pub(crate) address: u128,
    pub(crate) link_local: u128,
    /// No gateway has a pinned MAC: the pins of a side are of its IPv4 gateways.
    pub(crate) gateways: Gateways<u128>,
    /// Of `address` and of `link_local`.
    detections: [DuplicateDetection; 2],
    /// MACs of the groups to which the worker listens: all nodes, and those of its addresses.
    groups: [Mac; 3],
}

impl Side6 {
    /// `vlan`: that of the side's frames.
    pub(crate) fn new(config: &Side6Config, mac: Mac, vlan: Option<u16>) -> Self {
        let gateways = config.gateways.iter().map(|&address| Ipv6Addr::to_bits(address));
        let mut side = Self {
            address: config.address.addr().to_bits(),
            gateways: Gateways::new(gateways, &[], header(mac, vlan)),
            ..Self::default()
        };
        side.join(mac);
        side
    }

    /// Makes what follows from the MAC.
    fn join(&mut self, mac: Mac) {
        self.link_local = link_local(mac);
        let [own, link_local] =
            [self.address, self.link_local].map(|it| Mac::of_multicast6(ipv6::solicited_node(it)));
        self.groups = [Mac::of_multicast6(ipv6::ALL_NODES), own, link_local];
    }

    /// Replaces the MAC: the side looks for duplicates of its addresses again.
    pub(crate) fn set_mac(&mut self, mac: Mac, vlan: Option<u16>) {
        self.join(mac);
        self.detections = Default::default();
        self.gateways.set_header(header(mac, vlan));
    }

    /// True for the two addresses of the worker on this side, whether they are in use or not.
    #[inline]
    pub(crate) fn is_own(&self, address: u128) -> bool {
        address == self.address || address == self.link_local
    }

    /// True for the groups of which the worker is a member (RFC 4291 section 2.8): all nodes, and
    /// the solicited-node groups of its addresses.
    pub(crate) fn is_own_group(&self, destination: u128) -> bool {
        destination == ipv6::ALL_NODES
            || destination == ipv6::solicited_node(self.address)
            || destination == ipv6::solicited_node(self.link_local)
    }

    /// Whether a frame to `mac` is one to a group of the worker. Its packet must be to that group
    /// too: one to a station, in a frame to many, would be forwarded by each that gets it.
    pub(crate) fn is_to_own_group(&self, mac: Mac, packet: &[u8]) -> bool {
        self.groups.contains(&mac)
            && ipv6::parse_quoted(packet).is_ok_and(|(ip, _)| {
                let destination = ip.destination.get();
                ipv6::is_multicast(destination) && Mac::of_multicast6(destination) == mac
            })
    }

    /// Whether both addresses are in use: no other station has one of them.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.detections.iter().all(DuplicateDetection::is_assigned)
    }

    /// Whether `address` is an own one that is in use.
    pub(crate) fn is_assigned(&self, address: u128) -> bool {
        let own = [self.address, self.link_local].into_iter().zip(&self.detections);
        own.into_iter().any(|(own, detection)| own == address && detection.is_assigned())
    }

    /// Whether another station has one of the addresses.
    pub(crate) fn has_duplicate(&self) -> bool {
        self.detections.iter().any(DuplicateDetection::is_duplicate)
    }

    /// Whether the side can forward IPv6: its addresses are in use, and a gateway answers.
    pub(crate) fn is_up(&self) -> bool {
        self.may_send() && self.gateways.is_up()
    }

    /// Handles the claim of another station that it has `address`; nothing if it is no own one.
    pub(crate) fn on_claim(&mut self, address: u128, now_ms: u64) -> ClaimOutcome {
        let own = [self.address, self.link_local].into_iter().zip(&mut self.detections);
        match own.into_iter().find(|(own, _)| *own == address) {
            Some((_, detection)) => detection.on_claim(now_ms),
            None => ClaimOutcome::Nothing,
        }
    }

    /// Calls `send` for each address about which a message is due.
    pub(crate) fn due(&mut self, now_ms: u64, mut send: impl FnMut(u128, DetectionStep)) {
        let own = [self.address, self.link_local].into_iter().zip(&mut self.detections);
        own.for_each(|(own, detection)| {
            if let Some(step) = detection.due(now_ms) {
                send(own, step);
            }
        });
    }
}

/// Returns the header of IPv6 packets without a destination MAC.
fn header(mac: Mac, vlan: Option<u16>) -> LinkHeader {
    LinkHeader::new(Mac::ZERO, mac, vlan, ETHERTYPE_IPV6)
}

/// Returns the link-local address whose interface identifier is made of a MAC: `ff:fe` between its
/// halves, and the universal/local bit inverted (RFC 4291 appendix A).
fn link_local(Mac([a, b, c, d, e, f]): Mac) -> u128 {
    LINK_LOCAL | u128::from(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);

    fn bits(text: &str) -> u128 {
        text.parse::<Ipv6Addr>().unwrap().to_bits()
    }

    fn side() -> Side6 {
        let config = Side6Config {
            address: "2001:db8::1:2:3/64".parse().unwrap(),
            gateways: vec!["fe80::1".parse().unwrap()],
        };
        Side6::new(&config, MAC, None)
    }

    /// The example of RFC 4291 appendix A.
    #[test]
    fn rfc4291_interface_identifier_is_the_mac_with_its_local_bit_inverted() {
        assert_eq!(side().link_local, bits("fe80::3656:78ff:fe9a:bcde"));
    }

    #[test]
    fn side_has_two_addresses_and_listens_to_three_groups() {
        let side = side();
        assert!(side.is_own(bits("2001:db8::1:2:3")));
        assert!(side.is_own(bits("fe80::3656:78ff:fe9a:bcde")));
        for other in ["2001:db8::1:2:4", "fe80::1", "ff02::1", "::"] {
            assert!(!side.is_own(bits(other)), "{other}");
        }
        for group in ["ff02::1", "ff02::1:ff02:3", "ff02::1:ff9a:bcde"] {
            assert!(side.is_own_group(bits(group)), "{group}");
        }
        for other in ["ff02::2", "ff01::1", "ff02::1:ff02:4", "2001:db8::1:2:3"] {
            assert!(!side.is_own_group(bits(other)), "{other}");
        }
    }

    #[test]
    fn new_mac_gives_a_new_link_local_address_and_both_are_probed_again() {
        let mut side = side();
        for now_ms in [0, 1_000] {
            side.due(now_ms, |_, _| {});
        }
        assert!(side.may_send() && side.is_assigned(bits("2001:db8::1:2:3")));
        side.set_mac(Mac([2, 0, 0, 0, 0, 1]), None);
        assert!(!side.may_send() && side.is_own(bits("fe80::ff:fe00:1")));
        assert!(!side.is_own(bits("fe80::3656:78ff:fe9a:bcde")));
        let mut probed = Vec::new();
        side.due(5_000, |address, step| probed.push((address, step)));
        let [own, link_local] = [side.address, side.link_local];
        assert_eq!(probed, [(own, DetectionStep::Probe), (link_local, DetectionStep::Probe)]);
    }
}
