//! IPv6 on both sides of the worker: addresses, and messages of neighbor discovery.

use std::net::Ipv6Addr;

use weir_engine::{DropReason, EngineConfig, Side, Side6Config};
use weir_wire::ethernet::{self, ETHERTYPE_IPV6, Mac};
use weir_wire::icmp6;
use weir_wire::ipv6::{self, Ipv6, PROTOCOL_ICMPV6};
use weir_wire::ndp::{self, NdpMessage, NdpPacket, NeighborSolicitation};

use super::{Out, World, build, config, gateway_mac, worker_mac};

/// A MAC of no gateway and no worker.
pub const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 99]);

pub fn bits6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

pub fn own6(side: Side) -> u128 {
    bits6(["2001:db8:1::1", "2001:db8:2::1"][side as usize])
}

/// The worker's link-local address, made of its MAC 02:00:00:00:00:01 or :02.
pub fn link_local6(side: Side) -> u128 {
    bits6(["fe80::ff:fe00:1", "fe80::ff:fe00:2"][side as usize])
}

pub fn gateway6(side: Side) -> u128 {
    bits6(["2001:db8:1::2", "2001:db8:2::2"][side as usize])
}

/// The configuration of the other tests, with IPv6 on both sides.
pub fn config6() -> EngineConfig {
    sides6(config())
}

/// Returns the configuration with IPv6 on both sides.
pub fn sides6(mut config: EngineConfig) -> EngineConfig {
    for side in Side::ALL {
        let link = if side == Side::Access { &mut config.access } else { &mut config.internet };
        link.ipv6 = Some(Side6Config {
            address: format!("{}/64", Ipv6Addr::from(own6(side))).parse().unwrap(),
            gateways: vec![gateway6(side).into()],
        });
    }
    config
}

/// Makes a started worker whose IPv4 gateways have answered, and whose IPv6 addresses are probed.
pub fn started6(config: EngineConfig) -> World {
    let mut world = World::unstarted(config);
    world.start();
    Side::ALL.into_iter().for_each(|side| world.gateway_answers(side));
    world
}

/// Makes a worker that can forward both families on both sides.
pub fn world6() -> World {
    ready6(config6())
}

/// As [`world6`], with another configuration that has IPv6 on both sides.
pub fn ready6(config: EngineConfig) -> World {
    let mut world = started6(config);
    world.pass_ms(1_000);
    for side in Side::ALL {
        assert!(world.neighbor(side, &gateway_answer(side, gateway_mac(side))).is_nothing());
    }
    assert!(world.engine.admin().is_ready());
    world
}

/// A station of the internet side's subnet.
pub fn station6() -> u128 {
    bits6("2001:db8:2::77")
}

/// Returns the answer of a gateway at `mac` to the worker's solicitation.
pub fn gateway_answer(side: Side, mac: Mac) -> NdpPacket {
    let asked = NeighborSolicitation {
        source: own6(side),
        destination: gateway6(side),
        target: gateway6(side),
        source_mac: None,
    };
    NdpPacket::answer(&asked, mac, true)
}

/// Builds a packet of ICMPv6; the checksum of the message is set.
pub fn icmp6_packet(source: u128, destination: u128, hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; Ipv6::LEN];
    packet.extend(message);
    let mut ip = Ipv6::new(source, destination, PROTOCOL_ICMPV6, message.len() as u16);
    ip.hop_limit = hop_limit;
    ip.emit(&mut packet);
    icmp6::set_checksum(source, destination, &mut packet[Ipv6::LEN..]);
    packet
}

impl World {
    /// Passes in an IPv6 packet in a frame to `to`.
    pub fn frame6(&mut self, side: Side, to: Mac, from: Mac, packet: &[u8]) -> Out {
        self.frame(side, &build::ethernet_of(ETHERTYPE_IPV6, to, from, packet))
    }

    /// Passes in a message of neighbor discovery from its station: to the worker's MAC, or to that
    /// of the group.
    pub fn neighbor_at(&mut self, side: Side, from: Mac, packet: &NdpPacket) -> Out {
        let to = packet.multicast_mac().unwrap_or(self.macs[side as usize]);
        self.frame6(side, to, from, packet.as_bytes())
    }

    /// Passes in a message of the gateway.
    pub fn neighbor(&mut self, side: Side, packet: &NdpPacket) -> Out {
        self.neighbor_at(side, gateway_mac(side), packet)
    }
}

/// A message of neighbor discovery that the worker sent.
#[derive(Debug)]
pub struct Sent6 {
    pub side: Side,
    /// Link-layer destination.
    pub to: Mac,
    pub message: NdpMessage,
}

/// Returns the messages of neighbor discovery among what was sent. Each is valid, and one to a
/// group has the group's MAC.
pub fn sent6(out: &Out) -> Vec<Sent6> {
    let mut sent = Vec::new();
    for (side, frame) in &out.other {
        let link = ethernet::parse_link(frame).unwrap();
        if link.ethertype != ETHERTYPE_IPV6 {
            continue;
        }
        let (ip, len) = ipv6::parse(&frame[link.len..]).unwrap();
        assert_eq!(link.len + len, frame.len(), "no padding");
        let message = ndp::parse(ip, &frame[link.len + Ipv6::LEN..]).unwrap();
        let destination = ip.destination.get();
        if ipv6::is_multicast(destination) {
            assert_eq!(link.destination, Mac::of_multicast6(destination));
        }
        sent.push(Sent6 { side: *side, to: link.destination, message });
    }
    sent
}

/// Asserts that a packet, in a frame from `from` on the internet side, is dropped for this reason
/// and changes nothing.
pub fn check_dropped6(what: &str, reason: DropReason, from: Mac, packet: &[u8]) {
    let mut world = world6();
    let out = world.frame6(Side::Internet, worker_mac(Side::Internet), from, packet);
    assert!(out.is_nothing(), "{what} is answered");
    assert_eq!((world.dropped(reason), world.drops()), (1, 1), "{what}");
    assert_eq!(world.counters.address_conflicts(Side::Internet).0, 0, "{what} is believed");
    assert_eq!(world.pool.alive(), 0);
}

/// Returns the bytes with one of them changed.
pub fn with(mut bytes: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    bytes[at] = byte;
    bytes
}
