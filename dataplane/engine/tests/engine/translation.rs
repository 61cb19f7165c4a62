//! The main function: homes behind tunnels reach the internet, and only answers to their packets
//! come back.

use weir_engine::{AccessMode, DropReason, Side};
use weir_nat::{Filtering, Protocol};
use weir_wire::{build, gre, ipv4, tcp};

use crate::world::*;

#[test]
fn k01_k04_a_udp_exchange_through_the_tunnel() {
    let mut world = World::default();
    let request = build::ipv4(PC, SERVER).ttl(64).tos(0xb8).udp(5000, 53, b"question");
    let sent = world.up(HOME_A, request).into_internet();
    let (source, port, destination, destination_port) = ends(&sent);
    assert!(
        (source.to_be_bytes()[..3]) == [203, 0, 113] && source & 0xff < 8,
        "the shard's prefix"
    );
    assert!(port >= 1024);
    assert_eq!((destination, destination_port), (SERVER.to_bits(), 53));
    let (ip, header_len, _) = ipv4::parse(&sent).unwrap();
    assert_eq!((ip.ttl, ip.tos), (63, 0xb8), "one hop less, DSCP kept");
    assert_eq!(&sent[header_len + 8..], b"question");

    let answer = build::ipv4(SERVER, source).tos(0x28).udp(53, port, b"answer");
    let tunnel = world.down(&answer).into_access();
    let (outer, _, _) = ipv4::parse(&tunnel).unwrap();
    assert_eq!(outer.source.get(), ENDPOINT.to_bits());
    assert_eq!(outer.destination.get(), HOME_A.to_bits());
    assert_eq!(outer.tos, 0x28, "the access network sees the DSCP");
    let (_, header, inner) = decapsulate(&tunnel);
    assert_eq!((header.len, header.key), (4, None));
    assert_eq!(ends(&inner), (SERVER.to_bits(), 53, PC.to_bits(), 5000));
    assert_eq!(world.drops(), 0);
}

#[test]
fn k03_homes_with_the_same_private_addresses_stay_apart() {
    let mut world = World::default();
    let packet = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let a = ends(&world.up(HOME_A, &packet).into_internet());
    let b = ends(&world.up(HOME_B, &packet).into_internet());
    assert_ne!((a.0, a.1), (b.0, b.1));
    for (home, public) in [(HOME_A, a), (HOME_B, b)] {
        let answer = build::ipv4(SERVER, public.0).udp(53, public.1, b"y");
        let (to, _, inner) = world.down(answer).into_home();
        assert_eq!(to, home.to_bits());
        assert_eq!(ends(&inner).3, 5000);
    }
}

/// RFC 4787 REQ-7 b. Inside addresses may be numerically those of external nodes, of tunnels and of
/// the worker's own networks; external ones those of inside nodes and of homes' tunnels.
#[test]
fn u7_homes_reach_external_nodes_whose_addresses_are_numerically_inside_ones() {
    let mut world = World::default();
    let insides = [PC, SERVER, HOME_B, "203.0.113.1", ENDPOINT, WORKER_INTERNET];
    let remotes = [PC, SERVER, HOME_A, HOME_B, "10.200.9.9"];
    let pairs = insides.iter().flat_map(|inside| remotes.map(|remote| (*inside, remote)));
    // A packet of a node to its own number does not leave the node.
    let pairs = pairs.filter(|(inside, remote)| inside != remote);
    let mut flows = 0;
    for (number, (inside, remote)) in pairs.enumerate() {
        let port = 5000 + number as u16;
        let sent = |world: &mut World, inner: &[u8]| {
            let up = world.up(HOME_A, inner).into_internet();
            let (public, public_port, to, _) = ends(&up);
            assert_eq!((to, public >> 8), (remote.to_bits(), "203.0.113.0".to_bits() >> 8));
            (public, public_port)
        };
        let back = |world: &mut World, packet: &[u8]| {
            let (home, _, inner) = world.down(packet).into_home();
            assert_eq!(home, HOME_A.to_bits());
            inner
        };
        // The first packet, and packets of the live flow.
        for _ in 0..3 {
            let query = build::ipv4(inside, remote).udp(port, 53, b"query");
            let (public, public_port) = sent(&mut world, &query);
            let answer = build::ipv4(remote, public).udp(53, public_port, b"answer");
            let inner = back(&mut world, &answer);
            assert_eq!(ends(&inner), (remote.to_bits(), 53, inside.to_bits(), port));
        }
        let syn = build::ipv4(inside, remote).tcp(build::tcp(port, 80).flags(tcp::SYN));
        let (public, public_port) = sent(&mut world, &syn);
        let answer = build::tcp(80, public_port).flags(tcp::SYN | tcp::ACK);
        let inner = back(&mut world, &build::ipv4(remote, public).tcp(answer));
        assert_eq!(ends(&inner), (remote.to_bits(), 80, inside.to_bits(), port));
        flows += 2;
    }
    assert_eq!(world.engine.nat().admin().gauges().flows, flows);
    assert_eq!(world.drops(), 0);
}

#[test]
fn k05_the_endpoint_decides_the_public_prefix() {
    let mut world = World::default();
    let inner = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let outer = build::ipv4(HOME_A, ENDPOINT_2).gre(build::gre(), &inner);
    let sent = world.packet(Side::Access, &outer).into_internet();
    let public = ends(&sent);
    assert!((8..16).contains(&(public.0 & 0xff)), "{}", dotted(public.0));
    let tunnel = world.down(build::ipv4(SERVER, public.0).udp(53, public.1, b"y")).into_access();
    assert_eq!(ipv4::parse(&tunnel).unwrap().0.source.get(), ENDPOINT_2.to_bits());
}

#[test]
fn u1_u2_one_public_endpoint_whatever_the_destination() {
    let mut world = World::default();
    let mut seen = Vec::new();
    for (server, port) in [(SERVER, 53), (SERVER, 54), (SERVER_2, 53)] {
        let sent = world.up(HOME_A, build::ipv4(PC, server).udp(5000, port, b"x")).into_internet();
        seen.push((ends(&sent).0, ends(&sent).1));
    }
    assert!(seen.iter().all(|public| *public == seen[0]), "endpoint-independent mapping");
    let other = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5001, 53, b"x")).into_internet();
    assert_eq!(ends(&other).0, seen[0].0, "paired pooling");
}

#[test]
fn u8_filtering_in_its_three_modes() {
    for (filtering, same_address, other_address) in [
        (Filtering::AddressAndPortDependent, false, false),
        (Filtering::AddressDependent, true, false),
        (Filtering::EndpointIndependent, true, true),
    ] {
        let mut config = config();
        config.nat.filtering = filtering;
        let mut world = World::new(config);
        let sent = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
        let public = ends(&sent);
        let mut passes = |server: &str, port| {
            let packet = build::ipv4(server, public.0).udp(port, public.1, b"y");
            world.down(packet).access.len() == 1
        };
        assert!(passes(SERVER, 53), "{filtering:?}");
        assert_eq!(passes(SERVER, 99), same_address, "{filtering:?}");
        assert_eq!(passes(SERVER_2, 53), other_address, "{filtering:?}");
    }
}

#[test]
fn t2_a_tcp_connection_from_syn_to_fin() {
    let mut world = World::default();
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).syn().mss(1460));
    let sent = world.up(HOME_A, syn).into_internet();
    let public = ends(&sent);
    let up = |segment| build::ipv4(PC, SERVER).tcp(segment);
    let down = |segment| build::ipv4(SERVER, public.0).tcp(segment);
    let port = public.1;
    world.down(down(build::tcp(80, port).syn().ack())).into_access();
    world.up(HOME_A, up(build::tcp(40000, 80).ack().payload(b"GET"))).into_internet();
    world.down(down(build::tcp(80, port).ack().payload(b"200"))).into_access();
    world.down(down(build::tcp(80, port).fin().ack())).into_access();
    world.up(HOME_A, up(build::tcp(40000, 80).ack().payload(b"half closed"))).into_internet();
    world.up(HOME_A, up(build::tcp(40000, 80).fin().ack())).into_internet();
    world.down(down(build::tcp(80, port).ack())).into_access();
    assert_eq!(world.drops(), 0);
}

#[test]
fn unsolicited_tcp_gets_no_answer() {
    let mut world = World::default();
    world.up(HOME_A, build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).ack()));
    assert_eq!(world.dropped(DropReason::TcpNotSyn), 1);
    let syn = build::ipv4(SERVER, "203.0.113.1").tcp(build::tcp(1, 2000).syn());
    assert!(world.down(syn).is_nothing(), "RFC 5382 REQ-4: silent");
    assert_eq!(world.dropped(DropReason::NoMapping), 1);
}

#[test]
fn i1_a_ping_and_its_reply() {
    let mut world = World::default();
    let sent = world
        .up(HOME_A, build::ipv4(PC, SERVER).icmp_echo_request(77, 1, b"payload"))
        .into_internet();
    let public = ends(&sent);
    let reply = build::ipv4(SERVER, public.0).icmp_echo_reply(public.1, 1, b"payload");
    let (_, _, inner) = world.down(reply).into_home();
    assert_eq!(ends(&inner), (SERVER.to_bits(), 77, PC.to_bits(), 77));
    let request = build::ipv4(SERVER, public.0).icmp_echo_request(public.1, 1, b"payload");
    assert!(world.down(request).is_nothing(), "no request from the internet reaches a home");
    assert_eq!(world.dropped(DropReason::IcmpUnsolicited), 1);
}

#[test]
fn k04_a_key_is_remembered_and_echoed_and_may_change() {
    let mut world = World::default();
    let inner = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let mut public = None;
    for key in [Some(7), Some(9), None] {
        let header = build::gre().maybe_key(key).sequence(5).checksum();
        let outer = build::ipv4(HOME_A, ENDPOINT).gre(header, &inner);
        let ends = ends(&world.packet(Side::Access, &outer).into_internet());
        assert_eq!(*public.get_or_insert(ends), ends);
        let answer = build::ipv4(SERVER, ends.0).udp(53, ends.1, b"y");
        assert_eq!(world.down(answer).into_home().1.key, key);
    }
}

#[test]
fn a_key_can_be_part_of_the_home() {
    let mut config = config();
    config.nat.gre_key_identifies_home = true;
    let mut world = World::new(config);
    let inner = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let publics = [1, 2].map(|key| {
        let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(key), &inner);
        ends(&world.packet(Side::Access, &outer).into_internet())
    });
    assert_ne!(publics[0], publics[1]);
    for (public, key) in publics.into_iter().zip([1, 2]) {
        let answer = build::ipv4(SERVER, public.0).udp(53, public.1, b"y");
        assert_eq!(world.down(answer).into_home().1.key, Some(key));
    }
}

#[test]
fn gre_keepalives_come_back() {
    let mut world = World::default();
    let inside = build::ipv4(ENDPOINT, HOME_A)
        .ttl(255)
        .gre(build::gre().protocol(gre::PROTOCOL_KEEPALIVE), []);
    let back = world.up(HOME_A, &inside).into_access();
    assert_eq!(back, inside);
}

#[test]
fn u9_t8_hairpinning_shows_the_public_endpoint() {
    let mut config = config();
    config.nat.filtering = Filtering::EndpointIndependent;
    let mut world = World::new(config);
    let b = ends(&world.up(HOME_B, build::ipv4(PC, SERVER).udp(6000, 53, b"x")).into_internet());
    let hello = build::ipv4(PC, b.0).udp(5000, b.1, b"hello neighbour");
    let (to, _, inner) = world.up(HOME_A, hello).into_home();
    assert_eq!(to, HOME_B.to_bits());
    let (source, port, destination, destination_port) = ends(&inner);
    assert_eq!((destination, destination_port), (PC.to_bits(), 6000));
    assert_ne!((source, port), (PC.to_bits(), 5000));
    let back = build::ipv4(PC, source).udp(6000, port, b"hello yourself");
    let (to, _, inner) = world.up(HOME_B, back).into_home();
    assert_eq!(to, HOME_A.to_bits());
    assert_eq!(ends(&inner), (b.0, b.1, PC.to_bits(), 5000));
}

#[test]
fn a_zero_udp_checksum_stays_zero() {
    let mut world = World::default();
    let packet = build::ipv4(PC, SERVER).udp_without_checksum(5000, 53, b"x");
    let sent = world.up(HOME_A, packet).into_internet();
    assert_eq!(sent[26..28], [0, 0]);
}

#[test]
fn plain_access_needs_no_tunnel() {
    let mut config = config();
    config.mode = AccessMode::Plain;
    config.nat.subscribers = vec!["100.64.0.0/16".parse().unwrap()];
    for (shard, prefix) in config.shards.iter_mut().zip(["100.64.0.0/24", "100.64.1.0/24"]) {
        shard.endpoint = None;
        shard.subscribers = vec![prefix.parse().unwrap()];
    }
    let mut world = World::new(config);
    let home = "100.64.1.7";
    let packet = build::ipv4(home, SERVER).udp(5000, 53, b"x");
    let public = ends(&world.packet(Side::Access, &packet).into_internet());
    assert!((8..16).contains(&(public.0 & 0xff)), "the second shard's prefix");
    let answer = build::ipv4(SERVER, public.0).udp(53, public.1, b"y");
    let back = world.down(answer).into_access();
    assert_eq!(ends(&back), (SERVER.to_bits(), 53, home.to_bits(), 5000));
    let stranger = build::ipv4("100.64.9.9", SERVER).udp(5000, 53, b"x");
    assert!(world.packet(Side::Access, &stranger).is_nothing());
    assert_eq!(world.dropped(DropReason::NotSubscriber), 1);
}

#[test]
fn k02_a_firewall_without_translation() {
    let mut config = config();
    config.nat.enabled = false;
    let mut world = World::new(config);
    let pc = "203.0.113.5";
    let unasked = build::ipv4(SERVER, pc).udp(53, 5000, b"y");
    assert!(world.down(&unasked).is_nothing());
    let sent = world.up(HOME_A, build::ipv4(pc, SERVER).udp(5000, 53, b"x")).into_internet();
    assert_eq!(ends(&sent), (pc.to_bits(), 5000, SERVER.to_bits(), 53));
    let (to, _, inner) = world.down(&unasked).into_home();
    assert_eq!((to, ends(&inner).2), (HOME_A.to_bits(), pc.to_bits()));
    // Another home gets no packet through from that address, whatever its port and protocol.
    for packet in [
        build::ipv4(pc, SERVER).udp(5000, 53, b"x"),
        build::ipv4(pc, SERVER_2).udp(5001, 53, b"x"),
        build::ipv4(pc, SERVER).tcp(build::tcp(5000, 80).syn()),
        build::ipv4(pc, SERVER).icmp_echo_request(1, 1, b"x"),
        build::ipv4(pc, SERVER).fragment(0, true).udp(5002, 53, [0; 64]),
    ] {
        assert!(world.up(HOME_B, packet).is_nothing());
    }
    assert_eq!((world.dropped(DropReason::AddressConflict), world.drops()), (5, 6));
    world.up(HOME_A, build::ipv4(pc, SERVER).tcp(build::tcp(5000, 80).syn())).into_internet();
}

#[test]
fn mss_is_clamped_to_what_the_tunnel_carries() {
    let mut world = World::default();
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).syn().mss(1460));
    let sent = world.up(HOME_A, syn).into_internet();
    let mss = |packet: &[u8]| {
        let (_, at, _) = ipv4::parse(packet).unwrap();
        assert_eq!(packet[at + 20..at + 22], [2, 4]);
        u16::from_be_bytes([packet[at + 22], packet[at + 23]])
    };
    assert_eq!(mss(&sent), 1500 - 24 - 40);
    let public = ends(&sent);
    let syn_ack = build::tcp(80, public.1).flags(tcp::SYN | tcp::ACK).mss(1460);
    let (_, _, inner) = world.down(build::ipv4(SERVER, public.0).tcp(syn_ack)).into_home();
    assert_eq!(mss(&inner), 1500 - 24 - 40);
    let small = build::ipv4(PC, SERVER).tcp(build::tcp(40001, 80).syn().mss(536));
    assert_eq!(mss(&world.up(HOME_A, small).into_internet()), 536, "only ever lowered");
    // Once a home sends a key, the MSS leaves room for it.
    let keyed = build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).syn().mss(1460));
    let keyed = build::ipv4(HOME_B, ENDPOINT).gre(build::gre().key(1), keyed);
    assert_eq!(mss(&world.packet(Side::Access, &keyed).into_internet()), 1500 - 28 - 40);
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(40002, 80).syn().mss(1460));
    assert_eq!(mss(&world.up(HOME_A, syn).into_internet()), 1500 - 28 - 40);
}

#[test]
fn state_ends_and_ports_come_back() {
    let mut config = config();
    config.nat.timeouts.udp = 5;
    config.nat.quarantine_sec = 10;
    let mut world = World::new(config);
    let sent = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    let public = ends(&sent);
    assert_eq!(world.engine.nat().admin().gauges().flows, 1);
    world.pass_sec(12);
    let late = build::ipv4(SERVER, public.0).udp(53, public.1, b"y");
    assert!(world.down(late).is_nothing());
    assert_eq!(world.engine.nat().admin().gauges().flows, 0);
    world.pass_sec(20);
    assert_eq!(world.engine.nat().admin().gauges().subscribers, 0);
    let kinds: Vec<_> =
        std::iter::from_fn(|| world.engine.nat_mut().admin_mut().next_event()).collect();
    assert_eq!(kinds.len(), 2, "one block allocated, one released: {kinds:?}");
}

#[test]
fn peek_never_makes_state() {
    let mut world = World::default();
    let home =
        weir_nat::Home { shard: weir_nat::ShardIndex(0), outer: HOME_A.to_bits(), gre_key: None };
    let end = |address: &str, port| weir_nat::Endpoint { address: address.to_bits(), port };
    let found =
        world.engine.nat_mut().peek_outbound(&home, end(PC, 1), end(SERVER, 2), Protocol::Udp);
    assert!(found.is_none());
    assert_eq!(world.engine.nat().admin().gauges().flows, 0);
}
