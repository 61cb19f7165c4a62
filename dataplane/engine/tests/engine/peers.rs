//! The peers of a worker: how they are reached, and the datagrams that are exchanged with them.

use std::net::Ipv4Addr;

use weir_engine::{DropReason, Side};
use weir_wire::arp::{self, Arp};
use weir_wire::ethernet::{Ethernet, Mac};
use weir_wire::frame::Frame;
use weir_wire::{build, ethernet, ipv4};

use crate::world::pair::{A, B, PORT, Pair, clustered};
use crate::world::*;

const TO_B: &str = "10.1.0.3:7473";
/// Not on the access subnet.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

fn taken(world: &mut World) -> Vec<(String, Vec<u8>)> {
    let next = || world.engine.take_datagram();
    std::iter::from_fn(next)
        .map(|(from, frame)| (from.to_string(), frame.data().to_vec()))
        .collect()
}

fn datagram(from: Ipv4Addr, source_port: u16, port: u16) -> Vec<u8> {
    build::ipv4(from.to_bits(), A.to_bits()).udp(source_port, port, b"hello")
}

/// Returns the destinations and targets of a worker's ARP requests.
fn asked(out: &Out) -> Vec<(Mac, Ipv4Addr)> {
    let request = |(_, frame): &(Side, Vec<u8>)| {
        let message = arp::parse(&frame[Ethernet::LEN..]).unwrap();
        let to = ethernet::parse(frame).unwrap().destination;
        message.is_request().then(|| (to, Ipv4Addr::from_bits(message.target_ip.get())))
    };
    out.other.iter().filter_map(request).collect()
}

#[test]
fn datagrams_go_both_ways_as_large_as_replication_makes_them() {
    let mut pair = Pair::new(config());
    let large: Vec<u8> = (0..1400).map(|n| n as u8).collect();
    for payload in [&b"x"[..], &large, &[]] {
        let out = pair.a.send_datagram(TO_B, payload).expect("B is resolved");
        let (ip, ..) = ipv4::parse(&out.access[0]).unwrap();
        assert_eq!((ip.dscp(), ip.ecn(), ip.dont_fragment()), (48, 0, true));
        assert!(pair.deliver(&out).is_nothing());
        assert_eq!(taken(&mut pair.b), [("10.1.0.1:7473".to_owned(), payload.to_vec())]);
    }
    let out = pair.b.send_datagram("10.1.0.1:7473", b"back").unwrap();
    let frame = &out.frames[0].1;
    assert!(pair.a.frame(Side::Access, frame).is_nothing());
    assert_eq!(taken(&mut pair.a), [(TO_B.to_owned(), b"back".to_vec())]);
    assert!(pair.a.send_datagram(TO_B, &[0; 1472]).is_some());
    assert!(pair.a.send_datagram(TO_B, &[0; 1473]).is_none(), "larger than the MTU");
    pair.a.pool = weir_wire::frame::VecPool::with_limit(0);
    assert!(pair.a.send_datagram(TO_B, b"x").is_none(), "no buffer");
    assert_eq!(pair.drops(), 0);
}

#[test]
fn peer_is_resolved_at_once_and_confirmed_also_when_idle() {
    let mut world = World::new(clustered(config()));
    assert!(world.send_datagram(TO_B, b"x").is_none(), "the peer is unknown");
    assert!(world.engine.setup().add_peer(B));
    assert!(world.send_datagram(TO_B, b"x").is_none(), "the peer is not resolved yet");
    let first = world.pass_sec(1);
    assert_eq!(asked(&first)[0], (Mac::BROADCAST, B));
    let announce = |world: &mut World, side: Side, n: u8, is_answer: bool| {
        let own = worker_mac(Side::Access);
        let message = match is_answer {
            true => Arp::reply(build::mac(n), B.to_bits(), own, A.to_bits()),
            false => Arp::gratuitous(build::mac(n), B.to_bits()),
        };
        world.frame(side, &build::arp(message));
    };
    let next_hops = |world: &mut World| world.send_datagram(TO_B, b"x").map(|out| out.next_hops);
    announce(&mut world, Side::Access, 50, true);
    assert_eq!(next_hops(&mut world), Some(vec![build::mac(50)]));
    // Another station claims the address, and the peer answers; then the peer has moved, and does
    // not answer.
    for is_answer in [false, true] {
        announce(&mut world, Side::Access, 51, is_answer);
        world.pass_ms(300);
        announce(&mut world, Side::Access, 50, true);
        assert_eq!(next_hops(&mut world), Some(vec![build::mac(50)]));
    }
    assert_eq!(world.engine.admin().counters().refused_claims(Side::Access), (2, build::mac(51)));
    announce(&mut world, Side::Access, 51, false);
    world.pass_ms(1_300);
    announce(&mut world, Side::Access, 51, true);
    assert_eq!(next_hops(&mut world), Some(vec![build::mac(51)]));
    let asked: Vec<_> = asked(&world.pass_sec(21)).into_iter().filter(|one| one.1 == B).collect();
    assert_eq!(asked, [(build::mac(51), B); 2], "confirmed also when idle");
    world.pass_sec(4);
    assert_eq!(next_hops(&mut world), None, "the peer does not answer");
    // The internet side has no peers.
    announce(&mut world, Side::Internet, 52, true);
    assert_eq!(next_hops(&mut world), None);
    // A request is sent at once when the peer itself sends one, and the peer is found when it
    // answers.
    let asks = Arp::request(build::mac(53), B.to_bits(), A.to_bits());
    assert_eq!(world.frame(Side::Access, &build::arp(asks)).other.len(), 1);
    assert_eq!(next_hops(&mut world), None);
    announce(&mut world, Side::Access, 53, true);
    assert_eq!(next_hops(&mut world), Some(vec![build::mac(53)]));
    world.engine.setup().remove_peer(B);
    assert!(world.send_datagram(TO_B, b"x").is_none());
}

#[test]
fn new_mac_of_the_port_is_the_source_of_all_frames() {
    let mut pair = Pair::new(config());
    pair.a.macs[Side::Access as usize] = build::mac(40);
    pair.a.engine.setup().set_mac(Side::Access, build::mac(40));
    assert_eq!(pair.a.send_datagram(TO_B, b"x").unwrap().next_hops, [pair.b.macs[0]]);
}

#[test]
fn workers_beyond_the_subnet_are_reached_through_the_gateways() {
    let mut world = World::new(clustered(config()));
    assert!(world.engine.setup().add_peer(FAR));
    let out = world.send_datagram("10.9.0.1:7473", b"x").unwrap();
    assert_eq!(out.next_hops, [gateway_mac(Side::Access)]);
    assert!(asked(&world.pass_sec(1)).iter().all(|one| one.1 != FAR), "FAR gets no ARP request");
    world.packet(Side::Access, &datagram(FAR, PORT, PORT));
    assert_eq!(taken(&mut world), [("10.9.0.1:7473".to_owned(), b"hello".to_vec())]);
}

#[test]
fn datagrams_are_accepted_from_known_workers_only() {
    let mut world = World::new(clustered(config()));
    let dropped = |world: &mut World, packet: &[u8], reason| {
        let before = (world.dropped(reason), world.drops());
        assert!(world.packet(Side::Access, packet).is_nothing());
        assert_eq!((world.dropped(reason), world.drops()), (before.0 + 1, before.1 + 1));
        assert!(taken(world).is_empty());
    };
    dropped(&mut world, &datagram(B, PORT, PORT), DropReason::NotPeer);
    assert!(world.engine.setup().add_peer(B));
    dropped(&mut world, &datagram(B, 7474, PORT), DropReason::NotPeer);
    dropped(&mut world, &datagram(B, PORT, 7474), DropReason::LocalProtocol);
    dropped(&mut world, &datagram(FAR, PORT, PORT), DropReason::NotPeer);
    let mut broken = datagram(B, PORT, PORT);
    *broken.last_mut().unwrap() ^= 1;
    dropped(&mut world, &broken, DropReason::ReplicationMalformed);
    let mut long = datagram(B, PORT, PORT);
    long[25] = 200;
    dropped(&mut world, &long, DropReason::ReplicationMalformed);
    let piece = &build::fragments(datagram(B, PORT, PORT), 28)[0];
    dropped(&mut world, piece, DropReason::ReplicationMalformed);
    let silent = build::ipv4(B.to_bits(), A.to_bits()).udp_without_checksum(PORT, PORT, b"hello");
    assert!(world.packet(Side::Access, &silent).is_nothing());
    assert_eq!(taken(&mut world), [(TO_B.to_owned(), b"hello".to_vec())]);
    world.engine.setup().remove_peer(B);
    dropped(&mut world, &datagram(B, PORT, PORT), DropReason::NotPeer);
    let ping = build::ipv4("10.3.0.9", WORKER_ACCESS).icmp_echo_request(7, 8, b"hello");
    world.packet(Side::Access, &ping).into_access();
}

#[test]
fn single_node_has_no_peers() {
    let mut world = World::default();
    assert!(!world.engine.setup().add_peer(B));
    let stray = build::ipv4(B.to_bits(), A.to_bits()).ipip(datagram(B, 1, 2));
    for packet in [datagram(B, PORT, PORT), stray] {
        assert!(world.packet(Side::Access, &packet).is_nothing());
    }
    assert_eq!((world.dropped(DropReason::LocalProtocol), world.drops()), (2, 2));
    assert!(world.send_datagram(TO_B, b"x").is_none());
}

#[test]
fn at_most_a_burst_of_datagrams_waits() {
    let mut pair = Pair::new(config());
    for n in 0..65_u8 {
        let out = pair.b.send_datagram("10.1.0.1:7473", &[n]).unwrap();
        pair.a.frame(Side::Access, &out.frames[0].1);
    }
    assert_eq!((pair.a.dropped(DropReason::NoBuffer), pair.a.drops()), (1, 1));
    let kept: Vec<_> = taken(&mut pair.a).into_iter().map(|(_, payload)| payload[0]).collect();
    assert_eq!(kept, (0..64).collect::<Vec<_>>());
    assert_eq!(pair.a.pool.alive(), 0);
}
