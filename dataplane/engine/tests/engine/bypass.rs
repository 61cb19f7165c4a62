//! Packets that rules let pass as they are (RFC 6888 REQ-6), without tunnels.

use weir_engine::{DropReason, Side};
use weir_rules::RuleAction::{Accept, Bypass, Drop};
use weir_wire::{build, icmp, ipv4};

use crate::world::rules::*;
use crate::world::*;

/// A server that homes reach without translation.
const INSIDER: &str = SERVER_2;
const ROUTER: &str = "192.0.2.1";

/// Rules about both sides.
fn rules() -> Rules {
    let of_insider = |filter: &mut Filter| filter.remote = host(INSIDER);
    Rules::default().home(Bypass, of_insider).internet(Bypass, of_insider)
}

fn world() -> World {
    rules().world(plain())
}

fn up(world: &mut World, packet: impl AsRef<[u8]>) -> Out {
    world.packet(Side::Access, packet.as_ref())
}

/// Asserts that a packet passes as it is, but for its TTL, in the direction of `side`.
fn assert_passes(world: &mut World, from: Side, packet: impl Fn(u8) -> Vec<u8>) {
    let out = world.packet(from, &packet(64));
    let passed = match from {
        Side::Access => out.into_internet(),
        Side::Internet => out.into_access(),
    };
    assert_eq!(passed, packet(63));
}

fn flows(world: &World) -> u32 {
    world.engine.nat().admin().gauges().flows
}

#[test]
fn c6_packets_of_every_kind_pass_as_they_are_and_begin_nothing() {
    let mut world = world();
    let there = |ttl| build::ipv4(HOME_A, INSIDER).ttl(ttl);
    let back = |ttl| build::ipv4(INSIDER, HOME_A).ttl(ttl);
    for _ in 0..2 {
        assert_passes(&mut world, Side::Access, |ttl| there(ttl).udp(5000, 53, b"query"));
        assert_passes(&mut world, Side::Internet, |ttl| back(ttl).udp(53, 5000, b"answer"));
        // Segments of a connection that began elsewhere, and both ways of beginning one.
        for flags in [0x10, 0x02, 0x11, 0x04] {
            let segment = |from, to| build::tcp(from, to).flags(flags);
            assert_passes(&mut world, Side::Access, |ttl| there(ttl).tcp(segment(5000, 80)));
            assert_passes(&mut world, Side::Internet, |ttl| back(ttl).tcp(segment(80, 5000)));
        }
        assert_passes(&mut world, Side::Access, |ttl| there(ttl).icmp_echo_request(7, 1, b"x"));
        assert_passes(&mut world, Side::Internet, |ttl| back(ttl).icmp_echo_reply(7, 1, b"x"));
        assert_passes(&mut world, Side::Internet, |ttl| back(ttl).icmp_echo_request(8, 1, b"x"));
        assert_passes(&mut world, Side::Access, |ttl| there(ttl).icmp_echo_reply(8, 1, b"x"));
    }
    assert_eq!((world.drops(), hits(&world)), (0, vec![14, 14]));
    assert_nothing_begun(&world);
}

#[test]
fn an_endpoint_is_translated_to_one_remote_and_not_to_the_other() {
    let mut world = world();
    let to = |remote| build::ipv4(HOME_A, remote).ttl(64).udp(5000, 53, b"x");
    let translated = up(&mut world, to(SERVER)).into_internet();
    let (public, public_port, ..) = ends(&translated);
    assert_ne!(dotted(public), HOME_A);
    for _ in 0..2 {
        let passed = up(&mut world, to(INSIDER)).into_internet();
        assert_eq!(ends(&passed).0, HOME_A.to_bits());
        assert_eq!(ends(&up(&mut world, to(SERVER)).into_internet()), ends(&translated));
        let answer = build::ipv4(SERVER, public).udp(53, public_port, b"x");
        assert_eq!(ends(&world.down(answer).into_access()).2, HOME_A.to_bits());
    }
    // What the server sends to the public endpoint is not for the rule.
    let stranger = build::ipv4(INSIDER, public).udp(53, public_port, b"x");
    assert!(world.down(stranger).is_nothing());
    assert_only(&world, DropReason::Filtered, 1);
    assert_eq!(flows(&world), 1);
    let segment = build::ipv4(HOME_A, SERVER).tcp(build::tcp(5000, 80).ack());
    assert!(up(&mut world, segment).is_nothing());
    assert_eq!(world.dropped(DropReason::TcpNotSyn), 1, "a segment that no rule lets pass");
}

#[test]
fn fragments_of_a_datagram_pass_in_any_order() {
    let mut world = world();
    for from in [Side::Access, Side::Internet] {
        let ends = if from == Side::Access { (HOME_A, INSIDER) } else { (INSIDER, HOME_A) };
        let datagram = |ttl| {
            let packet = build::ipv4(ends.0, ends.1).ttl(ttl).identification(9);
            build::fragments(packet.udp(5000, 5001, vec![7; 3000]), 1400)
        };
        let (sent, expected) = (datagram(64), datagram(63));
        let mut passed = Vec::new();
        for at in [1, 0, 2] {
            let mut out = world.packet(from, &sent[at]);
            passed.append(&mut out.internet);
            passed.append(&mut out.access);
        }
        passed.sort();
        let payloads = |packets: &[Vec<u8>]| {
            let mut all: Vec<Vec<u8>> = packets.iter().map(|it| it[20..].to_vec()).collect();
            all.sort();
            all
        };
        assert_eq!(payloads(&passed), payloads(&expected));
        for packet in &passed {
            let (ip, ..) = ipv4::parse(packet).unwrap();
            assert_eq!(
                (dotted(ip.source.get()), dotted(ip.destination.get())),
                (ends.0.into(), ends.1.into())
            );
            assert_eq!(ip.identification, ipv4::parse(&passed[0]).unwrap().0.identification);
        }
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn icmp_errors_about_such_packets_pass_and_others_do_not() {
    let mut world = world();
    let sent = build::ipv4(HOME_A, INSIDER).udp(5000, 53, b"query");
    assert_passes(&mut world, Side::Internet, |ttl| {
        build::ipv4(ROUTER, HOME_A).ttl(ttl).time_exceeded(&sent)
    });
    let received = build::ipv4(INSIDER, HOME_A).udp(53, 5000, b"answer");
    assert_passes(&mut world, Side::Access, |ttl| {
        build::ipv4(HOME_A, INSIDER).ttl(ttl).port_unreachable(&received)
    });
    let other = build::ipv4(HOME_A, SERVER).udp(5000, 53, b"query");
    assert!(world.down(build::ipv4(ROUTER, HOME_A).time_exceeded(&other)).is_nothing());
    let of_other_home = build::ipv4(HOME_B, INSIDER).udp(5000, 53, b"query");
    assert!(world.down(build::ipv4(ROUTER, HOME_A).time_exceeded(&of_other_home)).is_nothing());
    assert_only(&world, DropReason::IcmpErrorUnmatched, 2);
}

#[test]
fn packet_that_exceeds_a_link_gets_an_icmp_error() {
    let mut config = plain();
    config.access.mtu = 1400;
    let mut world = rules().world(config);
    let large = build::ipv4(INSIDER, HOME_A).df(true).udp(53, 5000, vec![7; 1400]);
    let error = world.down(&large).into_internet();
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(dotted(ip.destination.get()), INSIDER);
    let kind = [icmp::DESTINATION_UNREACHABLE, icmp::CODE_FRAGMENTATION_NEEDED];
    assert_eq!(error[at..at + 2], kind);
    let last = build::ipv4(HOME_A, INSIDER).ttl(1).udp(5000, 53, b"x");
    let error = up(&mut world, last).into_access();
    assert_eq!(error[20], icmp::TIME_EXCEEDED);
}

#[test]
fn other_packets_to_homes_are_dropped() {
    let mut world = world();
    let to_home = |from| build::ipv4(from, HOME_A).udp(53, 5000, b"x");
    assert!(world.down(to_home(SERVER)).is_nothing());
    assert!(world.down(build::ipv4(INSIDER, "10.201.0.1").udp(53, 5000, b"x")).is_nothing());
    assert_only(&world, DropReason::NotLocal, 2);
    let stranger = build::ipv4("10.201.0.1", INSIDER).udp(5000, 53, b"x");
    assert!(up(&mut world, stranger).is_nothing());
    assert_eq!(world.dropped(DropReason::NotSubscriber), 1);

    let from_homes_alone = Rules::default().home(Bypass, |filter| filter.remote = host(INSIDER));
    from_homes_alone.load(&mut world);
    assert!(world.down(to_home(INSIDER)).is_nothing());
    assert_eq!(world.dropped(DropReason::NotLocal), 3);
    up(&mut world, build::ipv4(HOME_A, INSIDER).udp(5000, 53, b"x")).into_internet();
}

#[test]
fn first_rule_that_fits_decides_whether_a_packet_passes_as_it_is() {
    let of_insider = |filter: &mut Filter| filter.remote = host(INSIDER);
    let rules = Rules::default()
        .home(Drop, |filter| filter.remote_ports = port(25))
        .home(Accept, |filter| (filter.remote, filter.remote_ports) = (host(INSIDER), port(80)))
        .home(Bypass, of_insider);
    let mut world = rules.world(plain());
    let to = |port| build::ipv4(HOME_A, INSIDER).udp(5000, port, b"x");
    assert!(up(&mut world, to(25)).is_nothing());
    assert_ne!(ends(&up(&mut world, to(80)).into_internet()).0, HOME_A.to_bits());
    assert_eq!(ends(&up(&mut world, to(53)).into_internet()).0, HOME_A.to_bits());
    assert_eq!(hits(&world), [1, 1, 1]);
}

#[test]
fn many_first_packets_of_a_burst_pass_in_their_order() {
    let mut world = world();
    let frames = (0..40_u16).map(|n| {
        let remote = if n % 2 == 0 { INSIDER } else { SERVER };
        let packet = build::ipv4(HOME_A, remote).udp(5000 + n / 4, 53, n.to_be_bytes());
        let frame = build::ethernet(world.macs[0], gateway_mac(Side::Access), packet);
        weir_wire::frame::VecFrame::new(&frame)
    });
    let frames = frames.collect();
    let out = world.frames(Side::Access, frames);
    assert_eq!((out.internet.len(), world.drops()), (40, 0));
    let passed = out.internet.iter().filter(|it| ends(it).0 == HOME_A.to_bits());
    let numbers: Vec<u16> = passed.map(|it| u16::from_be_bytes([it[28], it[29]])).collect();
    assert!(numbers.is_sorted() && numbers.len() == 20, "{numbers:?}");
}
