//! Shards that a worker serves or does not serve, and shards whose packets it has seen.

use weir_engine::{AccessMode, DropReason, Misses, Side};
use weir_nat::{Filtering, ShardIndex};
use weir_wire::build;

use crate::world::pair::{A, B, Pair, SHARD};
use crate::world::*;

const SHARD_2: ShardIndex = ShardIndex(1);

fn udp(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(port, 53, b"query")
}

fn traffic(world: &mut World) -> Vec<u16> {
    let mut shards = Vec::new();
    world.engine.take_traffic(|shard| shards.push(shard.0));
    shards
}

#[test]
fn a_shard_that_is_not_served_is_silent() {
    let mut world = World::default();
    let (address, port, ..) = ends(&world.up(HOME_A, udp(5000)).into_internet());
    let answer = build::ipv4(SERVER, address).udp(53, port, b"y");
    world.engine.setup().set_serving(SHARD, false);
    let keepalive = build::ipv4(ENDPOINT, HOME_A).gre(build::gre().protocol(0), []);
    let pieces = build::fragments(build::ipv4(PC, SERVER).udp(5000, 53, [0; 3000]), 1400);
    let from_homes = [&udp(5000), &udp(6000), &keepalive, &pieces[0], &pieces[1]];
    for inner in from_homes {
        assert!(world.up(HOME_A, inner).is_nothing());
    }
    let ping = build::ipv4("10.3.0.9", ENDPOINT).icmp_echo_request(7, 8, b"hello");
    assert!(world.packet(Side::Access, &ping).is_nothing());
    let stranger = build::ipv4(SERVER, address).udp(53, 65_000, b"y");
    let error = build::ipv4(SERVER_2, address).time_exceeded(&answer);
    let pieces = build::fragments(build::ipv4(SERVER, address).udp(53, port, [0; 3000]), 1400);
    for packet in [&answer, &stranger, &error, &pieces[0], &pieces[1]] {
        assert!(world.down(packet).is_nothing());
    }
    assert_eq!((world.dropped(DropReason::NotServing), world.drops()), (11, 11));
    assert_eq!(world.pool.alive(), 0, "nothing is held");
    // The other shard and the worker itself answer as before.
    for address in [ENDPOINT_2, WORKER_ACCESS] {
        let ping = build::ipv4("10.3.0.9", address).icmp_echo_request(7, 8, b"hello");
        world.packet(Side::Access, &ping).into_access();
    }
    world.engine.setup().set_serving(SHARD, true);
    world.up(HOME_A, udp(5000)).into_internet();
    world.down(&answer).into_home();
    world.packet(Side::Access, &ping).into_access();
}

#[test]
fn plain_home_of_a_shard_that_is_not_served_is_dropped() {
    let mut plain = config();
    plain.mode = AccessMode::Plain;
    plain.shards[0].subscribers = vec!["10.200.0.0/16".parse().unwrap()];
    let mut world = World::new(plain);
    world.engine.setup().set_serving(SHARD, false);
    let packet = build::ipv4(HOME_A, SERVER).udp(5000, 53, b"x");
    assert!(world.packet(Side::Access, &packet).is_nothing());
    assert_eq!((world.dropped(DropReason::NotServing), world.drops()), (1, 1));
    let ping = build::ipv4(HOME_A, WORKER_ACCESS).icmp_echo_request(7, 8, b"hello");
    world.packet(Side::Access, &ping).into_access();
}

/// Another worker serves the shard: the switches have its route.
#[test]
fn home_reaches_a_home_of_a_shard_that_another_worker_serves() {
    let mut open = config();
    open.nat.filtering = Filtering::EndpointIndependent;
    let mut world = World::new(open);
    let of_shard_2 = build::ipv4(HOME_B, ENDPOINT_2).gre(build::gre(), udp(5000));
    let (address, port, ..) = ends(&world.packet(Side::Access, &of_shard_2).into_internet());
    let call = build::ipv4(PC, address).udp(6000, port, b"hello");
    world.up(HOME_A, &call).into_home();
    world.engine.setup().set_serving(SHARD_2, false);
    let sent = world.up(HOME_A, &call).into_internet();
    assert_eq!((ends(&sent).2, ends(&sent).3), (address, port));
    assert_eq!(world.drops(), 0);
}

#[test]
fn packet_without_a_mapping_is_dropped_where_none_may_be_made() {
    let mut world = World::default();
    let (address, port, ..) = ends(&world.up(HOME_A, udp(5000)).into_internet());
    world.engine.setup().set_misses(SHARD, Misses::Refuse);
    assert!(world.up(HOME_A, udp(6000)).is_nothing(), "no ICMP error is sent");
    let ping = build::ipv4(PC, SERVER).icmp_echo_request(7, 8, b"hello");
    assert!(world.up(HOME_A, ping).is_nothing());
    assert_eq!((world.dropped(DropReason::MissRefused), world.drops()), (2, 2));
    world.down(build::ipv4(SERVER, address).udp(53, 65_000, b"y"));
    assert_eq!(world.dropped(DropReason::NoMapping), 1);
    // Flows with a mapping go on.
    world.up(HOME_A, udp(5000)).into_internet();
    world.down(build::ipv4(SERVER, address).udp(53, port, b"y")).into_home();
    let of_shard_2 = build::ipv4(HOME_B, ENDPOINT_2).gre(build::gre(), udp(5000));
    world.packet(Side::Access, &of_shard_2).into_internet();
}

#[test]
fn packets_of_homes_count_as_traffic_of_their_shard() {
    let mut world = World::default();
    assert_eq!(traffic(&mut world), [0; 0]);
    world.up("10.201.0.1", udp(5000));
    world.down(build::ipv4(SERVER, "203.0.113.1").udp(53, 65_000, b"y"));
    let ping = build::ipv4(HOME_A, ENDPOINT).icmp_echo_request(7, 8, b"hello");
    world.packet(Side::Access, &ping);
    assert_eq!(traffic(&mut world), [0; 0], "strangers, scans and pings are no traffic");
    let sent = world.up(HOME_A, udp(5000)).into_internet();
    assert_eq!(traffic(&mut world), [0]);
    assert_eq!(traffic(&mut world), [0; 0], "reported once");
    world.up(HOME_A, udp(5000));
    assert_eq!(traffic(&mut world), [0]);
    let answer = build::ipv4(SERVER, ends(&sent).0).udp(53, ends(&sent).1, b"y");
    world.down(&answer).into_home();
    assert_eq!(traffic(&mut world), [0]);
    world.down(build::ipv4(SERVER_2, ends(&sent).0).time_exceeded(&sent)).into_home();
    assert_eq!(traffic(&mut world), [0]);
    // A packet of a home counts, even if it is dropped.
    world.up(HOME_A, build::ipv4(PC, SERVER).tcp(build::tcp(1, 2).ack()));
    assert_eq!((traffic(&mut world), world.dropped(DropReason::TcpNotSyn)), (vec![0], 1));
    world.engine.setup().set_misses(SHARD_2, Misses::Refuse);
    let of_shard_2 = build::ipv4(HOME_B, ENDPOINT_2).gre(build::gre(), udp(5000));
    world.packet(Side::Access, &of_shard_2);
    assert_eq!(traffic(&mut world), [1]);
}

#[test]
fn redirected_and_hairpinned_packets_are_no_traffic_of_a_shard() {
    let mut open = config();
    open.nat.filtering = Filtering::EndpointIndependent;
    let mut pair = Pair::new(open);
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let out = pair.a.up(HOME_A, udp(5000));
    let sent = pair.deliver(&out).into_internet();
    let out = pair.a.down(build::ipv4(SERVER, ends(&sent).0).udp(53, ends(&sent).1, b"y"));
    pair.deliver(&out).into_home();
    assert_eq!(traffic(&mut pair.a), [0], "the home's packet; not the one without a mapping");
    assert_eq!(traffic(&mut pair.b), [0; 0]);
    // The same flow, redirected, and a hairpinned packet at B.
    let stray = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), udp(5000));
    pair.b.packet(Side::Access, &build::ipv4(A.to_bits(), B.to_bits()).ipip(stray)).into_internet();
    let call = build::ipv4(PC, ends(&sent).0).udp(5000, ends(&sent).1, b"hello");
    let of_shard_2 = build::ipv4(HOME_B, ENDPOINT_2).gre(build::gre(), call);
    pair.b.packet(Side::Access, &of_shard_2).into_home();
    assert_eq!(traffic(&mut pair.b), [1]);
}

#[test]
fn late_packets_with_a_mapping_are_translated_and_the_others_begin_nothing() {
    let mut world = World::default();
    let sent = world.up(HOME_A, udp(5000)).into_internet();
    let (address, port, ..) = ends(&sent);
    assert_eq!(traffic(&mut world), [SHARD.0]);
    world.engine.begin_late();
    assert_eq!(world.up(HOME_A, udp(5000)).into_internet(), sent);
    let answer = build::ipv4(SERVER, address).udp(53, port, b"y");
    world.down(&answer).into_home();
    // Neither a flow of this home is made, nor the first one of another, nor one for a fragmented
    // datagram.
    assert!(world.up(HOME_A, udp(6000)).is_nothing());
    assert!(world.up(HOME_B, udp(5000)).is_nothing());
    for piece in build::fragments(build::ipv4(PC, SERVER).udp(7000, 53, [0; 3000]), 1400) {
        assert!(world.up(HOME_A, piece).is_nothing());
    }
    assert_eq!(world.dropped(DropReason::MissRefused), world.drops());
    world.engine.end_late();
    assert_eq!(traffic(&mut world), [] as [u16; 0], "late packets do not count as traffic");
    world.up(HOME_A, udp(6000)).into_internet();
    world.up(HOME_B, udp(5000)).into_internet();
    assert_eq!(traffic(&mut world), [SHARD.0]);
}

#[test]
fn late_packets_are_not_redirected() {
    let mut pair = Pair::redirecting();
    pair.a.engine.begin_late();
    assert!(pair.a.up(HOME_A, udp(5000)).is_nothing());
    assert_eq!((pair.a.dropped(DropReason::MissRefused), pair.a.drops()), (1, 1));
    pair.a.engine.end_late();
    let out = pair.a.up(HOME_A, udp(5000));
    pair.deliver(&out).into_internet();
}
