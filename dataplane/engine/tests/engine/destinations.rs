//! Packets of flows to which a rule gives another destination.

use weir_engine::{DropReason, Side};
use weir_nat::{Destination, FlowClass, FlowPolicy, Refusal, SourcePool};
use weir_rules::Prefix;
use weir_rules::RuleAction::Accept;
use weir_wire::frame::VecFrame;
use weir_wire::{build, icmp, ipv4};

use crate::world::rules::*;
use crate::world::*;

const RESOLVER: &str = "198.18.0.53";

fn to(port: Option<u16>) -> FlowPolicy {
    let destination = Some(Destination { address: RESOLVER.to_bits(), port });
    FlowPolicy { destination, ..FlowPolicy::NONE }
}

/// Flows to port 53 go to port 5353 of the resolver, all others to `SERVER_2` to the same port of
/// it.
fn rules() -> Rules {
    Rules::default()
        .home(Accept, |filter| {
            filter.remote_ports = port(53);
            filter.kinds = kinds(weir_rules::FlowOrigin::Home, 17);
        })
        .policy(to(Some(5353)))
        .home(Accept, |filter| filter.remote = host(SERVER_2))
        .policy(to(None))
}

fn world() -> World {
    rules().world(config())
}

#[test]
fn datagrams_go_there_and_answers_come_from_where_the_home_asked() {
    let mut world = world();
    for n in 0..4 {
        let query = build::ipv4(PC, SERVER).udp(5000, 53, [n; 40]);
        let up = world.up(HOME_A, query).into_internet();
        let (public, public_port, ..) = ends(&up);
        assert_eq!(ends(&up), (public, public_port, RESOLVER.to_bits(), 5353));
        let answer = build::ipv4(RESOLVER, public).udp(5353, public_port, [n; 90]);
        let (_, _, down) = world.down(answer).into_home();
        assert_eq!(ends(&down), (SERVER.to_bits(), 53, PC.to_bits(), 5000));
        let forged = build::ipv4(SERVER, public).udp(53, public_port, b"forged");
        assert!(world.down(forged).is_nothing());
        let other = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 54, b"x")).into_internet();
        assert_eq!(ends(&other).2, SERVER.to_bits(), "another flow of the same endpoint");
        assert_ne!(ends(&other).1, public_port);
    }
    assert_only(&world, DropReason::Filtered, 4);
    assert_eq!(world.engine.nat().admin().gauges().flows, 2);
}

#[test]
fn connections_go_there_and_have_their_clamped_segments_sound() {
    let mut world = world();
    let segments = [build::tcp(6000, 80).syn(), build::tcp(6000, 80).ack()];
    for (n, segment) in segments.into_iter().enumerate() {
        let up = world.up(HOME_A, build::ipv4(PC, SERVER_2).tcp(segment)).into_internet();
        let (public, public_port, ..) = ends(&up);
        assert_eq!((ends(&up).2, ends(&up).3), (RESOLVER.to_bits(), 80));
        let answer = build::tcp(80, public_port).ack();
        let answer = if n == 0 { answer.syn() } else { answer };
        let (_, _, down) = world.down(build::ipv4(RESOLVER, public).tcp(answer)).into_home();
        assert_eq!(ends(&down), (SERVER_2.to_bits(), 80, PC.to_bits(), 6000));
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn pings_go_there_with_their_identifier() {
    let mut world = world();
    let ping = build::ipv4(PC, SERVER_2).icmp_echo_request(77, 1, b"payload");
    let up = world.up(HOME_A, ping).into_internet();
    let (ip, at, _) = ipv4::parse(&up).unwrap();
    assert_eq!(ip.destination.get(), RESOLVER.to_bits());
    let id = icmp::parse(&up[at..]).unwrap().identifier();
    let pong = build::ipv4(RESOLVER, ip.source.get()).icmp_echo_reply(id, 1, b"payload");
    let (_, _, down) = world.down(pong).into_home();
    let (ip, at, _) = ipv4::parse(&down).unwrap();
    assert_eq!(ip.source.get(), SERVER_2.to_bits());
    assert_eq!(icmp::parse(&down[at..]).unwrap().identifier(), 77);
}

#[test]
fn first_packets_of_a_burst_each_find_their_own_flow() {
    let mut world = world();
    let remotes = [SERVER, SERVER_2, "192.0.2.7", "192.0.2.8"];
    let frame = |n: usize| {
        // Every fifth packet is of another flow, which goes where it asks.
        let port = if n % 5 == 4 { 54 } else { 53 };
        let inner = build::ipv4(PC, remotes[n % 4]).udp(5000, port, [n as u8; 8]);
        let packet = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner);
        let (to, from) = (worker_mac(Side::Access), gateway_mac(Side::Access));
        VecFrame::new(&build::ethernet(to, from, packet))
    };
    for _ in 0..3 {
        let sent = world.frames(Side::Access, (0..20).map(frame).collect()).internet;
        assert_eq!(sent.len(), 20);
        let mut publics: Vec<_> =
            sent.iter().filter(|it| ends(it).3 == 5353).map(|it| ends(it).1).collect();
        assert_eq!(publics.len(), 16);
        publics.sort_unstable();
        publics.dedup();
        assert_eq!(publics.len(), 4, "one for each asked destination");
    }
    // SERVER_2 has another destination for port 54 too.
    assert_eq!(world.engine.nat().admin().gauges().flows, 4 + 4);
    assert_eq!(hits(&world), [4, 1]);
}

#[test]
fn all_fragments_go_there_and_come_from_where_the_home_asked() {
    let mut world = world();
    let datagram = build::ipv4(PC, SERVER).identification(7).udp(5000, 53, vec![7; 3000]);
    let pieces = build::fragments(datagram, 1400);
    let mut sent = Vec::new();
    for at in [1, 0, 2] {
        sent.extend(world.up(HOME_A, &pieces[at]).internet);
    }
    assert_eq!(sent.len(), 3);
    for packet in &sent {
        assert_eq!(ipv4::parse(packet).unwrap().0.destination.get(), RESOLVER.to_bits());
    }
    let up = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    let (public, public_port, ..) = ends(&up);
    let answer = build::ipv4(RESOLVER, public).udp(5353, public_port, vec![7; 3000]);
    let pieces = build::fragments(answer, 1400);
    let mut delivered = 0;
    for at in [2, 0, 1] {
        for packet in world.down(&pieces[at]).access {
            let inner = decapsulate(&packet).2;
            assert_eq!(ipv4::parse(&inner).unwrap().0.source.get(), SERVER.to_bits());
            delivered += 1;
        }
    }
    assert_eq!(delivered, 3);
}

#[test]
fn error_from_the_internet_quotes_what_the_home_sent() {
    let mut world = world();
    let query = build::ipv4(PC, SERVER).udp(5000, 53, b"question");
    let sent = world.up(HOME_A, query).into_internet();
    let public = ends(&sent).0;
    for (from, seen) in [(RESOLVER, SERVER), ("192.0.2.99", "192.0.2.99")] {
        let error = build::ipv4(from, public).port_unreachable(&sent);
        let (_, _, inner) = world.down(error).into_home();
        let (ip, at, _) = ipv4::parse(&inner).unwrap();
        assert_eq!((ip.source.get(), ip.destination.get()), (seen.to_bits(), PC.to_bits()));
        assert_eq!(ends(&inner[at + 8..]), (PC.to_bits(), 5000, SERVER.to_bits(), 53));
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn error_from_the_home_quotes_what_the_destination_sent() {
    let mut world = world();
    let query = build::ipv4(PC, SERVER).udp(5000, 53, b"question");
    let sent = world.up(HOME_A, query).into_internet();
    let (public, public_port, ..) = ends(&sent);
    let answer = build::ipv4(RESOLVER, public).udp(5353, public_port, b"answer");
    let (_, _, delivered) = world.down(answer).into_home();
    let error = build::ipv4(PC, SERVER).port_unreachable(&delivered);
    let up = world.up(HOME_A, error).into_internet();
    let (ip, at, _) = ipv4::parse(&up).unwrap();
    assert_eq!((ip.source.get(), ip.destination.get()), (public, RESOLVER.to_bits()));
    assert_eq!(ends(&up[at + 8..]), (RESOLVER.to_bits(), 5353, public, public_port));
}

#[test]
fn flow_may_have_a_class_and_a_source_pool_beside_its_destination() {
    let pool = SourcePool::new(1).unwrap();
    let policy = FlowPolicy { source: pool, class: FlowClass::new(1).unwrap(), ..to(Some(5353)) };
    let public = config().nat.shards[0].public[0];
    let special = public.hosts().next().unwrap().to_bits();
    let rules = Rules::default()
        .home(Accept, |filter| filter.remote_ports = port(53))
        .policy(policy)
        .pool(Prefix::new(special, 32), pool);
    let mut world = rules.world(config());
    for n in 0..3 {
        let query = build::ipv4(PC, SERVER).udp(5000, 53, [n; 4]);
        let up = world.up(HOME_A, query).into_internet();
        assert_eq!((ends(&up).0, ends(&up).2), (special, RESOLVER.to_bits()));
        let other = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 54, b"x")).into_internet();
        assert_ne!(ends(&other).0, special);
    }
}

#[test]
fn segment_of_a_forgotten_connection_is_refused() {
    let mut world = world();
    let segment = build::ipv4(PC, SERVER_2).tcp(build::tcp(6000, 80).ack());
    assert!(world.up(HOME_A, segment).is_nothing());
    assert_only(&world, Refusal::TcpNotSyn.into(), 1);
}
