//! Packets between homes: turned around in one worker, or sent through the internet side to another
//! worker; and packets from the internet that only look like them.

use std::sync::Arc;

use weir_engine::{DropReason, EngineConfig, Misses, Side};
use weir_nat::{AddressRanges, Filtering, ShardIndex, Tick};
use weir_wire::build;

use crate::world::pair::{B, Pair, SHARD};
use crate::world::*;

const OTHER: ShardIndex = ShardIndex(1);

fn open_filter() -> EngineConfig {
    let mut config = config();
    config.nat.filtering = Filtering::EndpointIndependent;
    config
}

/// Makes a worker with one of the two shards: a node on its own.
fn with_shard(index: usize) -> World {
    with_shard_of(open_filter(), index)
}

fn with_shard_of(mut config: EngineConfig, index: usize) -> World {
    config.shards = vec![config.shards.remove(index)];
    config.nat.shards = vec![config.nat.shards.remove(index)];
    config.nat.seed[0] += index as u64;
    World::new(config)
}

/// Sends a packet through the tunnel to the second shard.
fn up_second(world: &mut World, home: &str, inner: impl AsRef<[u8]>) -> Out {
    let packet = build::ipv4(home, ENDPOINT_2).gre(build::gre(), inner);
    world.packet(Side::Access, &packet)
}

#[test]
fn u9_homes_of_two_nodes_reach_each_other_through_the_internet_side() {
    let (mut first, mut second) = (with_shard(0), with_shard(1));
    let to_server = build::ipv4(PC, SERVER).udp(6000, 53, b"x");
    let b = ends(&up_second(&mut second, HOME_B, to_server).into_internet());
    let mut a = None;
    for n in 0..3 {
        // The first packet of the flow, then two of the established flow.
        let hello = build::ipv4(PC, b.0).udp(5000, b.1, [n]);
        let sent = first.up(HOME_A, hello).into_internet();
        let (source, port, destination, destination_port) = ends(&sent);
        assert_eq!((destination, destination_port), (b.0, b.1));
        assert_eq!(*a.get_or_insert((source, port)), (source, port));
        let (to, _, inner) = second.down(&sent).into_home();
        assert_eq!(to, HOME_B.to_bits());
        assert_eq!(ends(&inner), (source, port, PC.to_bits(), 6000), "the public source is seen");
        let answer = build::ipv4(PC, source).udp(6000, port, [n]);
        let back = up_second(&mut second, HOME_B, answer).into_internet();
        let (to, _, inner) = first.down(&back).into_home();
        assert_eq!(to, HOME_A.to_bits());
        assert_eq!(ends(&inner), (b.0, b.1, PC.to_bits(), 5000));
    }
    assert_eq!((first.drops(), second.drops()), (0, 0));
}

/// The second node has a copy of the first one's shard as well, so the source belongs to one of its
/// own shards.
#[test]
fn u9_a_source_of_a_shard_that_another_node_serves_too_is_delivered() {
    let mut pair = Pair::new(open_filter());
    // Homes of the first shard use A, which does not serve the second; homes of the second use B.
    pair.a.engine.setup().set_serving(OTHER, false);
    pair.b.engine.nat_mut().replica_mut().set_owned_lanes(OTHER, 0xff, Tick(1));
    let to_server = build::ipv4(PC, SERVER).udp(6000, 53, b"x");
    let b = ends(&up_second(&mut pair.b, HOME_B, to_server).into_internet());
    let hello = build::ipv4(PC, b.0).udp(5000, b.1, b"hello");
    let sent = pair.a.up(HOME_A, hello).into_internet();
    assert_eq!(pair.b.engine.nat().shard_of_public(ends(&sent).0), Some(SHARD));
    let (to, _, inner) = pair.b.down(&sent).into_home();
    assert_eq!((to, ends(&inner).3), (HOME_B.to_bits(), 6000));
    assert_eq!(pair.drops(), 0);
}

#[test]
fn a_packet_from_the_internet_with_a_source_of_ours_is_dropped() {
    let mut world = World::new(open_filter());
    let a = ends(&world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet());
    let to_server = build::ipv4(PC, SERVER).tcp(build::tcp(5000, 80).syn());
    let tcp = ends(&world.up(HOME_A, to_server).into_internet());
    let of = |source: &str, tail: u8| {
        [
            build::ipv4(source, a.0).udp(53, a.1, [tail]),
            build::ipv4(source, a.0).fragment(0, true).udp(53, a.1, [tail; 24]),
            build::ipv4(source, tcp.0).tcp(build::tcp(80, tcp.1).syn()),
        ]
    };
    // Sources in either shard's prefix, whether or not a home has the address.
    for source in ["203.0.113.6", "203.0.113.15"] {
        for packet in of(source, 1) {
            assert!(world.down(&packet).is_nothing());
        }
    }
    assert_eq!((world.dropped(DropReason::OwnSource), world.drops()), (6, 6));
    for packet in of("203.0.113.16", 1) {
        assert_eq!(world.down(&packet).into_home().0, HOME_A.to_bits());
    }
    assert_eq!(world.drops(), 6);
}

/// One port block for each address, so that identifiers of two addresses coincide.
fn one_block() -> EngineConfig {
    let mut config = config();
    config.nat.port_block = 8192;
    config.nat.ports_per_subscriber = 8192;
    config.nat.shards[0].public = vec!["203.0.113.0/31".parse().unwrap()];
    config
}

fn ping(to: u32, identifier: u16) -> Vec<u8> {
    build::ipv4(PC, to).icmp_echo_request(identifier, 1, b"ping")
}

/// Sends a home's query; returns its public address and identifier.
fn query(world: &mut World, home: &str, to: u32, identifier: u16) -> (u32, u16) {
    let out = world.up(home, ping(to, identifier));
    let sent = ends(&out.into_internet());
    (sent.0, sent.1)
}

/// Returns identifiers of A and of B with the same public identifier, and their public endpoints.
fn meeting_queries(world: &mut World) -> [(u16, (u32, u16)); 2] {
    world.engine.nat_mut().replica_mut().set_owned_lanes(SHARD, 1, Tick(1));
    let of = |world: &mut World, home| -> Vec<_> {
        (1..500).map(|own| (own, query(world, home, SERVER.to_bits(), own))).collect()
    };
    let (a, b) = (of(world, HOME_A), of(world, HOME_B));
    let pair = a.iter().find_map(|a| Some((a, b.iter().find(|b| b.1.1 == a.1.1)?)));
    let (a, b) = pair.expect("two of 500 identifiers out of 8,192 coincide");
    assert_ne!(a.1.0, b.1.0, "an address each");
    [*a, *b]
}

/// RFC 7857 extends RFC 5508 REQ-7a to NAPT. A query has one identifier, so it reaches the home
/// whose mapping has the public identifier that the query got.
#[test]
fn i7a_b13_a_query_to_a_neighbour_is_answered() {
    let mut world = World::new(one_block());
    let [(own_a, a), (own_b, b)] = meeting_queries(&mut world);
    // Before B has sent a packet to A's address, the filter drops the query.
    assert!(world.up(HOME_A, ping(b.0, own_a)).is_nothing());
    assert_eq!(world.dropped(DropReason::Filtered), 1);
    let (to, _, request) = world.up(HOME_B, ping(a.0, own_b)).into_home();
    assert_eq!((to, ends(&request)), (HOME_A.to_bits(), (b.0, own_a, PC.to_bits(), own_a)));
    for _ in 0..2 {
        let (to, _, request) = world.up(HOME_A, ping(b.0, own_a)).into_home();
        assert_eq!((to, ends(&request)), (HOME_B.to_bits(), (a.0, own_b, PC.to_bits(), own_b)));
        let reply = build::ipv4(PC, a.0).icmp_echo_reply(own_b, 1, b"ping");
        let (to, _, reply) = world.up(HOME_B, reply).into_home();
        assert_eq!((to, ends(&reply)), (HOME_A.to_bits(), (b.0, own_a, PC.to_bits(), own_a)));
    }
    assert_eq!(world.drops(), 1);
}

#[test]
fn i7a_b13_a_home_that_pings_its_own_public_address_is_answered() {
    let mut world = World::default();
    let (public, _) = query(&mut world, HOME_A, SERVER.to_bits(), 7);
    let (to, _, request) = world.up(HOME_A, ping(public, 7)).into_home();
    assert_eq!((to, ends(&request)), (HOME_A.to_bits(), (public, 7, PC.to_bits(), 7)));
    let reply = build::ipv4(PC, public).icmp_echo_reply(7, 1, b"ping");
    let (to, _, reply) = world.up(HOME_A, reply).into_home();
    assert_eq!((to, ends(&reply)), (HOME_A.to_bits(), (public, 7, PC.to_bits(), 7)));
}

#[test]
fn i7a_a_query_between_homes_without_translation_is_answered() {
    let mut config = config();
    config.nat.enabled = false;
    let mut world = World::new(config);
    let (a, b) = ("203.0.113.1", "203.0.113.2");
    let ping = |from: &str, to: &str| build::ipv4(from, to).icmp_echo_request(9, 1, b"ping");
    assert!(world.up(HOME_A, ping(a, b)).is_nothing(), "B has sent no query yet");
    assert_eq!(world.dropped(DropReason::NoMapping), 1);
    let (to, _, request) = world.up(HOME_B, ping(b, a)).into_home();
    assert_eq!((to, ends(&request).0), (HOME_A.to_bits(), b.to_bits()));
    let reply = build::ipv4(a, b).icmp_echo_reply(9, 1, b"ping");
    let (to, _, reply) = world.up(HOME_A, reply).into_home();
    assert_eq!((to, ends(&reply).0), (HOME_B.to_bits(), a.to_bits()));
}

/// A reply creates no state, and none leaves to the internet, because no request comes from there.
#[test]
fn i7a_replies_to_nothing_are_dropped() {
    let mut world = World::default();
    let (public, _) = query(&mut world, HOME_A, SERVER.to_bits(), 7);
    let reply = |to: u32, identifier| build::ipv4(PC, to).icmp_echo_reply(identifier, 1, b"x");
    let flows = world.engine.nat().admin().gauges().flows;
    let fragment = build::ipv4(PC, public).fragment(0, true).icmp_echo_reply(7, 1, [0; 24]);
    let replies = [
        // To a server with or without a session; to a public address that it never queried; with an
        // identifier that it never used.
        reply(SERVER.to_bits(), 7),
        reply(SERVER_2.to_bits(), 7),
        reply(public, 7),
        reply(public, 8),
        fragment,
    ];
    for (n, packet) in (1..).zip(replies) {
        assert!(world.up(HOME_A, packet).is_nothing());
        assert_eq!((world.dropped(DropReason::IcmpUnsolicited), world.drops()), (n, n));
    }
    // A request from the internet does not come in either, whatever the filter.
    let mut world = World::new(open_filter());
    let (public, mapped) = query(&mut world, HOME_A, SERVER.to_bits(), 7);
    let request = build::ipv4(SERVER, public).icmp_echo_request(mapped, 1, b"x");
    assert!(world.down(request).is_nothing());
    assert_eq!(world.dropped(DropReason::IcmpUnsolicited), 1);
    assert_eq!(flows, world.engine.nat().admin().gauges().flows);
}

/// One port block for each address, in each of the two shards.
fn one_block_each() -> EngineConfig {
    let mut config = one_block();
    config.nat.shards[1].public = vec!["203.0.113.8/31".parse().unwrap()];
    config
}

fn ranges(nets: &[&str]) -> Arc<AddressRanges> {
    let nets = nets.iter().map(|net| (net.parse().unwrap(), SHARD));
    Arc::new(AddressRanges::new(nets))
}

/// A home of the first shard at one worker and a home of the second at another send queries to each
/// other; the internet side of each leads to the other.
fn queries_meet_between(first: &mut World, second: &mut World) {
    let public = |out: Out| {
        let sent = ends(&out.into_internet());
        (sent.0, sent.1)
    };
    let to_server = |own| ping(SERVER.to_bits(), own);
    let of_a: Vec<_> =
        (1..500).map(|own| (own, public(first.up(HOME_A, to_server(own))))).collect();
    let of_b: Vec<_> =
        (1..500).map(|own| (own, public(up_second(second, HOME_B, to_server(own))))).collect();
    let pair = of_a.iter().find_map(|a| Some((*a, *of_b.iter().find(|b| b.1.1 == a.1.1)?)));
    let ((own_a, a), (own_b, b)) = pair.expect("two of 500 identifiers out of 8,192 coincide");
    // B has not sent a query to A's address yet: its filter drops the request.
    let request = first.up(HOME_A, ping(b.0, own_a)).into_internet();
    assert_eq!(ends(&request), (a.0, a.1, b.0, a.1));
    assert!(second.down(&request).is_nothing());
    assert_eq!((second.dropped(DropReason::Filtered), second.drops()), (1, 1));
    let at_a = (HOME_A.to_bits(), (b.0, own_a, PC.to_bits(), own_a));
    let at_b = (HOME_B.to_bits(), (a.0, own_b, PC.to_bits(), own_b));
    for _ in 0..2 {
        let request = up_second(second, HOME_B, ping(a.0, own_b)).into_internet();
        let (to, _, request) = first.down(&request).into_home();
        assert_eq!((to, ends(&request)), at_a);
        let reply = build::ipv4(PC, b.0).icmp_echo_reply(own_a, 1, b"ping");
        let reply = first.up(HOME_A, reply).into_internet();
        let (to, _, reply) = second.down(&reply).into_home();
        assert_eq!((to, ends(&reply)), at_b);
        let request = first.up(HOME_A, ping(b.0, own_a)).into_internet();
        let (to, _, request) = second.down(&request).into_home();
        assert_eq!((to, ends(&request)), at_b);
        let reply = build::ipv4(PC, a.0).icmp_echo_reply(own_b, 1, b"ping");
        let reply = up_second(second, HOME_B, reply).into_internet();
        let (to, _, reply) = first.down(&reply).into_home();
        assert_eq!((to, ends(&reply)), at_a);
    }
    assert_eq!((first.drops(), second.drops()), (0, 1));
}

#[test]
fn i7a_b13_queries_between_homes_of_two_workers_are_answered() {
    let config = one_block_each();
    let mut workers = [0, 1].map(|index| with_shard_of(config.clone(), index));
    for world in &mut workers {
        world.engine.nat_mut().replica_mut().set_owned_lanes(SHARD, 1, Tick(1));
        world.engine.setup().set_all_public(ranges(&["203.0.113.0/31", "203.0.113.8/31"]));
    }
    let [first, second] = &mut workers;
    queries_meet_between(first, second);
}

/// Each of the two nodes has a copy of the other one's shard.
#[test]
fn i7a_b13_queries_between_homes_of_two_nodes_with_copies_are_answered() {
    let mut pair = Pair::new(one_block_each());
    pair.a.engine.setup().set_serving(OTHER, false);
    pair.b.engine.setup().set_serving(SHARD, false);
    pair.a.engine.nat_mut().replica_mut().set_owned_lanes(SHARD, 1, Tick(1));
    pair.b.engine.nat_mut().replica_mut().set_owned_lanes(OTHER, 1, Tick(1));
    queries_meet_between(&mut pair.a, &mut pair.b);
}

/// A request or a reply that arrives at a worker without the mapping is redirected to the worker
/// that has it, like any other packet.
#[test]
fn i7a_b13_a_query_from_another_worker_is_redirected_to_the_owner_of_the_mapping() {
    let (neighbor, id) = ("203.0.113.40", 7);
    let mut pair = Pair::new(open_filter());
    let (public, mapped) = query(&mut pair.b, HOME_A, SERVER.to_bits(), id);
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let request = |from: &str| build::ipv4(from, public).icmp_echo_request(mapped, 1, b"ping");
    // The source is not known as a home's yet.
    assert!(pair.a.down(request(neighbor)).is_nothing());
    assert_eq!((pair.a.dropped(DropReason::IcmpUnsolicited), pair.drops()), (1, 1));
    for world in [&mut pair.a, &mut pair.b] {
        world.engine.setup().set_all_public(ranges(&["203.0.113.0/28", "203.0.113.32/27"]));
    }
    let redirected = pair.a.down(request(neighbor));
    let (to, _, request_in) = pair.deliver(&redirected).into_home();
    assert_eq!(to, HOME_A.to_bits());
    assert_eq!(ends(&request_in), (neighbor.to_bits(), id, PC.to_bits(), id));
    let reply = build::ipv4(PC, neighbor.to_bits()).icmp_echo_reply(id, 1, b"ping");
    let redirected = pair.a.up(HOME_A, reply);
    let reply = pair.deliver(&redirected).into_internet();
    assert_eq!(ends(&reply), (public, mapped, neighbor.to_bits(), mapped));
    assert_eq!(pair.drops(), 1);
    // A request from an unknown source is neither let in nor redirected.
    assert!(pair.a.down(request(SERVER)).is_nothing());
    assert_eq!((pair.a.dropped(DropReason::IcmpUnsolicited), pair.drops()), (2, 2));
}

/// On a single node, whose packets never leave it and come back.
#[test]
fn i7a_b13_a_query_from_the_internet_with_a_source_of_this_worker_alone_is_dropped() {
    let mut world = World::new(open_filter());
    world.engine.setup().set_all_public(ranges(&["203.0.113.0/28"]));
    let (public, mapped) = query(&mut world, HOME_A, SERVER.to_bits(), 7);
    let request = build::ipv4("203.0.113.6", public).icmp_echo_request(mapped, 1, b"x");
    assert!(world.down(request).is_nothing());
    assert_eq!((world.dropped(DropReason::OwnSource), world.drops()), (1, 1));
}
