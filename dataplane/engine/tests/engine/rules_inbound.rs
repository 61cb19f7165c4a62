//! Rules about flows that begin on the internet side, or at another home, on a mapping that is
//! there.

use weir_engine::{DropReason, EngineConfig, Side};
use weir_nat::Filtering;
use weir_rules::RuleAction::{Accept, Drop, Reject};
use weir_wire::tcp::{self, ACK, RST};
use weir_wire::{build, icmp, ipv4};

use crate::world::rules::*;
use crate::world::*;

fn open_filter() -> EngineConfig {
    let mut config = config();
    config.nat.filtering = Filtering::EndpointIndependent;
    config
}

type Public = (u32, u16);

/// Makes a worker with rules, and a mapping of home A for each protocol, from port 5000.
fn world(config: EngineConfig, rules: Rules) -> (World, Public, Public) {
    let mut world = rules.world(config);
    let public = |packet: Vec<u8>| (ends(&packet).0, ends(&packet).1);
    let udp = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(5000, 80).syn());
    let tcp = world.up(HOME_A, syn).into_internet();
    (world, public(udp), public(tcp))
}

fn udp(to: Public) -> Vec<u8> {
    build::ipv4(SERVER_2, to.0).udp(7000, to.1, b"hello")
}

fn syn(to: Public) -> Vec<u8> {
    build::ipv4(SERVER_2, to.0).tcp(build::tcp(7000, to.1).syn().sequence(41))
}

fn to_inside(filter: &mut Filter) {
    (filter.local, filter.local_ports) = (host(HOME_A), port(5000));
    (filter.remote, filter.remote_ports) = (host(SERVER_2), port(7000));
}

#[test]
fn remote_that_a_rule_accepts_passes_the_strictest_filtering() {
    let (mut world, by_udp, by_tcp) = world(config(), Rules::default().internet(Accept, to_inside));
    for _ in 0..2 {
        let (to, _, inner) = world.down(udp(by_udp)).into_home();
        assert_eq!((to, ends(&inner).3), (HOME_A.to_bits(), 5000));
    }
    let (_, _, inner) = world.down(syn(by_tcp)).into_home();
    assert_eq!(ends(&inner), (SERVER_2.to_bits(), 7000, PC.to_bits(), 5000));
    let answer = build::ipv4(PC, SERVER_2).tcp(build::tcp(5000, 7000).syn().ack());
    world.up(HOME_A, answer).into_internet();
    let segment = build::ipv4(SERVER_2, by_tcp.0).tcp(build::tcp(7000, by_tcp.1).ack());
    world.down(segment).into_home();
    // Each datagram without state, and the connection once.
    assert_eq!((hits(&world), world.drops()), (vec![3], 0));
    let other = build::ipv4(SERVER_2, by_udp.0).udp(7001, by_udp.1, b"x");
    assert!(world.down(other).is_nothing());
    assert_only(&world, DropReason::Filtered, 1);
}

#[test]
fn remote_that_a_rule_drops_is_refused_by_the_widest_filtering() {
    let rules = Rules::default().internet(Drop, to_inside);
    let (mut world, by_udp, by_tcp) = world(open_filter(), rules);
    assert!(world.down(udp(by_udp)).is_nothing());
    assert!(world.down(syn(by_tcp)).is_nothing());
    assert_only(&world, DropReason::RuleDrop, 2);
    assert_eq!(hits(&world), [2]);
    world.down(build::ipv4(SERVER_2, by_udp.0).udp(7001, by_udp.1, b"x")).into_home();
    // What the home sends decides for what comes back.
    world.up(HOME_A, build::ipv4(PC, SERVER_2).udp(5000, 7000, b"x")).into_internet();
    world.down(udp(by_udp)).into_home();
}

#[test]
fn datagram_that_a_rule_rejects_gets_an_icmp_error() {
    let rules = Rules::default().internet(Reject, to_inside);
    let (mut world, by_udp, _) = world(open_filter(), rules);
    let error = world.down(udp(by_udp)).into_internet();
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    let ends = (ip.source.get(), ip.destination.get());
    assert_eq!(ends, (WORKER_INTERNET.to_bits(), SERVER_2.to_bits()));
    let kind = [icmp::DESTINATION_UNREACHABLE, icmp::CODE_ADMINISTRATIVELY_PROHIBITED];
    assert_eq!((&error[at..at + 2], &error[at + 8..]), (&kind[..], &udp(by_udp)[..]));
    assert_only(&world, DropReason::RuleReject, 1);
    // First fragments are packets like others.
    let datagram = build::ipv4(SERVER_2, by_udp.0).udp(7000, by_udp.1, vec![7; 2000]);
    world.down(&build::fragments(datagram, 1400)[0]).into_internet();
    assert_only(&world, DropReason::RuleReject, 2);
}

fn assert_reset(reset: &[u8], from: Public) {
    assert_eq!(ends(reset), (from.0, from.1, SERVER_2.to_bits(), 7000));
    let (_, at, _) = ipv4::parse(reset).unwrap();
    let segment = tcp::parse(&reset[at..]).unwrap();
    let numbers = (segment.sequence.get(), segment.acknowledgment.get());
    assert_eq!((segment.flags, numbers), (RST | ACK, (0, 42)));
}

#[test]
fn syn_of_a_remote_that_a_rule_rejects_gets_a_reset_from_the_public_endpoint() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressAndPortDependent] {
        let mut config = config();
        config.nat.filtering = filtering;
        config.limits.icmp_errors_to_internet = false;
        let (mut world, _, by_tcp) = world(config, Rules::default().internet(Reject, to_inside));
        assert_reset(&world.down(syn(by_tcp)).into_internet(), by_tcp);
        // No rule is about segments that begin nothing, and no reset answers a reset.
        for flags in [ACK, RST] {
            let segment = build::tcp(7000, by_tcp.1).flags(flags);
            assert!(world.down(build::ipv4(SERVER_2, by_tcp.0).tcp(segment)).is_nothing());
        }
        let dropped = [DropReason::RuleReject, DropReason::TcpNotSyn].map(|it| world.dropped(it));
        assert_eq!((dropped, hits(&world)), ([1, 2], vec![1]));
        assert_eq!(world.counters.resets(Side::Internet), 1);
    }
}

/// A forged sender looks modest, so the home that it names is charged, too.
#[test]
fn resets_about_segments_to_one_home_are_limited_whoever_sends_them() {
    let mut limited = config();
    limited.limits.icmp_errors_per_sec = 5;
    let (mut world, _, by_tcp) = world(limited, Rules::default().internet(Reject, |_| {}));
    let from = |n: u32| build::ipv4(SERVER_2.to_bits() + n, by_tcp.0);
    let answers = (0..50)
        .filter(|&n| !world.down(from(n).tcp(build::tcp(7000, by_tcp.1).syn())).is_nothing());
    assert_eq!(answers.count(), 5);
    assert_eq!(world.counters.resets_limited(Side::Internet), 45);
}

#[test]
fn without_a_mapping_no_rule_is_asked() {
    let mut world = Rules::default().internet(Accept, |_| {}).world(config());
    assert!(world.down(udp(("203.0.113.1".to_bits(), 6000))).is_nothing());
    assert_only(&world, DropReason::NoMapping, 1);
    assert_eq!(hits(&world), [0]);
}

/// A home that does not listen says so to whomever a rule has let in.
#[test]
fn icmp_error_about_a_datagram_that_a_rule_let_in_finds_its_sender() {
    let (mut world, by_udp, _) = world(config(), Rules::default().internet(Accept, to_inside));
    let (_, _, inner) = world.down(udp(by_udp)).into_home();
    let sent = world.up(HOME_A, build::ipv4(PC, SERVER_2).port_unreachable(&inner)).into_internet();
    let (ip, at, _) = ipv4::parse(&sent).unwrap();
    assert_eq!((ip.source.get(), ip.destination.get()), (by_udp.0, SERVER_2.to_bits()));
    assert_eq!(ends(&sent[at + 8..]), (SERVER_2.to_bits(), 7000, by_udp.0, by_udp.1));
    assert_eq!(hits(&world), [1], "an error is asked about no rule");
}

#[test]
fn home_is_let_in_to_another_home_by_a_rule() {
    let (mut world, by_udp, _) = world(
        config(),
        Rules::default().internet(Accept, |filter| {
            filter.local = host(HOME_A);
        }),
    );
    let hello = build::ipv4(PC, by_udp.0).udp(6000, by_udp.1, b"hello");
    let (to, _, inner) = world.up(HOME_B, hello).into_home();
    assert_eq!((to, ends(&inner).3), (HOME_A.to_bits(), 5000));
    let (public, port, ..) = ends(&inner);
    let answer = build::ipv4(PC, public).udp(5000, port, b"answer");
    assert_eq!(world.up(HOME_A, answer).into_home().0, HOME_B.to_bits());
    assert_eq!((hits(&world), world.drops()), (vec![1], 0));
}

#[test]
fn ping_of_a_home_is_let_in_to_another_home_by_a_rule_and_answered() {
    let mut config = config();
    config.nat.enabled = false;
    let rules = Rules::default().internet(Accept, |filter| filter.local = host(HOME_A));
    let mut world = rules.world(config);
    let (a, b) = ("203.0.113.1", "203.0.113.2");
    let ping = |from: &str, to: &str| build::ipv4(from, to).icmp_echo_request(9, 1, b"ping");
    world.up(HOME_A, ping(a, SERVER)).into_internet();
    let (to, _, inner) = world.up(HOME_B, ping(b, a)).into_home();
    assert_eq!((to, ends(&inner).0), (HOME_A.to_bits(), b.to_bits()));
    let reply = build::ipv4(a, b).icmp_echo_reply(9, 1, b"ping");
    assert_eq!(world.up(HOME_A, reply).into_home().0, HOME_B.to_bits());
    assert_eq!((hits(&world), world.drops()), (vec![1], 0));
}

#[test]
fn home_whose_flow_to_another_home_is_rejected_there_gets_the_answer_once() {
    let rules = Rules::default().internet(Reject, |_| {});
    let (mut world, by_udp, by_tcp) = world(open_filter(), rules);
    let syn = build::ipv4(PC, by_tcp.0).tcp(build::tcp(6000, by_tcp.1).syn().sequence(41));
    let (to, _, reset) = world.up(HOME_B, syn).into_home();
    assert_eq!((to, ends(&reset)), (HOME_B.to_bits(), (by_tcp.0, by_tcp.1, PC.to_bits(), 6000)));
    let (_, at, _) = ipv4::parse(&reset).unwrap();
    let segment = tcp::parse(&reset[at..]).unwrap();
    assert_eq!((segment.flags, segment.acknowledgment.get()), (RST | ACK, 42));
    let hello = build::ipv4(PC, by_udp.0).udp(6000, by_udp.1, b"hello");
    let (to, _, error) = world.up(HOME_B, &hello).into_home();
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!((to, ip.destination.get()), (HOME_B.to_bits(), PC.to_bits()));
    assert_eq!(error[at], icmp::DESTINATION_UNREACHABLE);
    assert_eq!(ends(&error[at + 8..]), ends(&hello));
    assert_only(&world, DropReason::RuleReject, 2);
    assert_eq!((hits(&world), world.pool.alive()), (vec![2], 0));
}
