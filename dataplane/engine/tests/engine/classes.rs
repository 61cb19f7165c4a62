//! The marks of packets whose flow has a class.

use weir_engine::EngineConfig;
use weir_nat::{ClassSettings, Endpoint, Filtering, FlowClass, Timeouts};
use weir_rules::RuleAction::Accept;
use weir_wire::build;

use crate::world::rules::*;
use crate::world::*;

const EF: u8 = 46;
const UNMARKED: u8 = 10;

fn class(number: u8) -> FlowClass {
    FlowClass::new(number).unwrap()
}

/// Class 1 has a mark, class 2 has none.
fn classed() -> EngineConfig {
    let mut config = config();
    let settings = |dscp| ClassSettings { timeouts: Timeouts::default(), dscp };
    config.nat.classes = [(class(1), settings(Some(EF))), (class(2), settings(None))].into();
    config
}

/// Makes a worker that gives the flows of homes to port 53 class 1, and those to port 54 class 2.
fn world(config: EngineConfig) -> World {
    let rules = Rules::default()
        .home(Accept, |filter| filter.remote_ports = port(53))
        .class(class(1))
        .home(Accept, |filter| filter.remote_ports = port(54))
        .class(class(2));
    rules.world(config)
}

fn dscp(packet: &[u8]) -> u8 {
    packet[1] >> 2
}

fn ecn(packet: &[u8]) -> u8 {
    packet[1] & 3
}

/// Returns the codepoints of the tunnel header and of the packet in it.
fn dscp_down(out: Out) -> (u8, u8) {
    let packet = out.into_access();
    let (_, _, inner) = decapsulate(&packet);
    (dscp(&packet), dscp(&inner))
}

#[test]
fn packets_of_a_marked_class_have_its_codepoint_both_ways_and_others_keep_theirs() {
    for (remote_port, expected) in [(53, EF), (54, UNMARKED), (55, UNMARKED)] {
        let mut world = world(classed());
        for n in 0..5 {
            let query = build::ipv4(PC, SERVER).dscp(UNMARKED).ecn(1);
            let up = world.up(HOME_A, query.udp(5000, remote_port, b"x")).into_internet();
            assert_eq!((dscp(&up), ecn(&up)), (expected, 1), "port {remote_port}, packet {n}");
            let (public, public_port, ..) = ends(&up);
            let answer = build::ipv4(SERVER, public).dscp(UNMARKED);
            let down = world.down(answer.udp(remote_port, public_port, b"x"));
            assert_eq!(dscp_down(down), (expected, expected), "port {remote_port}, packet {n}");

            let segment = build::tcp(6000, remote_port);
            let segment = if n == 0 { segment.syn() } else { segment.ack() };
            let segment = build::ipv4(PC, SERVER).dscp(UNMARKED).tcp(segment);
            let up = world.up(HOME_A, segment).into_internet();
            assert_eq!(dscp(&up), expected, "port {remote_port}, segment {n}");
            let (public, public_port, ..) = ends(&up);
            let segment = build::tcp(remote_port, public_port).ack();
            let segment = if n == 0 { segment.syn() } else { segment };
            let answer = build::ipv4(SERVER, public).dscp(UNMARKED).tcp(segment);
            assert_eq!(dscp_down(world.down(answer)), (expected, expected));
        }
        assert_eq!(world.drops(), 0);
    }
}

#[test]
fn each_remote_of_a_mapping_has_the_class_of_its_own_flow() {
    let mut world = world(classed());
    for _ in 0..2 {
        for (remote_port, expected) in [(55, 0), (53, EF), (54, 0)] {
            let packet = build::ipv4(PC, SERVER).udp(5000, remote_port, b"x");
            let up = world.up(HOME_A, packet).into_internet();
            assert_eq!(dscp(&up), expected, "port {remote_port}");
        }
    }
}

#[test]
fn all_fragments_of_a_marked_flow_are_marked() {
    let mut world = world(classed());
    let datagram = build::ipv4(PC, SERVER).identification(7).udp(5000, 53, vec![7; 3000]);
    let mut public = Endpoint::new(0, 0);
    // Later fragments come before the first one, and after it.
    let pieces = build::fragments(datagram, 1400);
    let mut sent = 0;
    for at in [1, 0, 2] {
        for packet in world.up(HOME_A, &pieces[at]).internet {
            assert_eq!(dscp(&packet), EF);
            public.address = ends(&packet).0;
            sent += 1;
        }
    }
    assert_eq!(sent, 3);
    let up = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    public.port = ends(&up).1;
    let answer = build::ipv4(SERVER, public.address).udp(53, public.port, vec![7; 3000]);
    let pieces = build::fragments(answer, 1400);
    let mut delivered = 0;
    for at in [2, 0, 1] {
        for packet in world.down(&pieces[at]).access {
            assert_eq!((dscp(&packet), dscp(&decapsulate(&packet).2)), (EF, EF));
            delivered += 1;
        }
    }
    assert_eq!(delivered, 3);
}

#[test]
fn flow_from_the_internet_gets_the_class_of_its_rule_with_a_session_and_without() {
    let rules =
        Rules::default().internet(Accept, |filter| filter.remote = host(SERVER_2)).class(class(1));
    let mut world = rules.world(classed());
    let up = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    assert_eq!(dscp(&up), 0);
    let (public, public_port, ..) = ends(&up);
    let packet = build::ipv4(SERVER_2, public).udp(9, public_port, b"x");
    assert_eq!(dscp_down(world.down(packet)), (EF, EF));
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(6000, 80).syn());
    let (public, public_port, ..) = ends(&world.up(HOME_A, syn).into_internet());
    for segment in [build::tcp(9, public_port).syn(), build::tcp(9, public_port).ack()] {
        let packet = build::ipv4(SERVER_2, public).tcp(segment);
        assert_eq!(dscp_down(world.down(packet)), (EF, EF));
        let answer = build::ipv4(PC, SERVER_2).tcp(build::tcp(6000, 9).syn().ack());
        assert_eq!(dscp(&world.up(HOME_A, answer).into_internet()), EF);
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn packets_of_a_class_are_no_slow_path_packets() {
    let mut config = classed();
    config.limits.slow_path_packets_per_sec = 1000;
    config.nat.filtering = Filtering::EndpointIndependent;
    let mut world = world(config);
    for _ in 0..2000 {
        let packet = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
        let up = world.up(HOME_A, packet).into_internet();
        let (public, public_port, ..) = ends(&up);
        world.down(build::ipv4(SERVER, public).udp(53, public_port, b"x")).into_home();
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn home_that_calls_a_home_gets_marks_of_its_own_flow() {
    let mut world = world(classed());
    let up = world.up(HOME_B, build::ipv4(PC, SERVER).udp(53, 80, b"x")).into_internet();
    let (public, public_port, ..) = ends(&up);
    let rules = Rules::default()
        .home(Accept, |filter| filter.remote_ports = port(public_port))
        .class(class(1))
        .internet(Accept, |_| ());
    rules.load(&mut world);
    let packet = build::ipv4(PC, public).udp(5000, public_port, b"x");
    let out = world.up(HOME_A, packet);
    assert_eq!(dscp_down(out), (EF, EF), "the way to the other home has no class of its own");
}
