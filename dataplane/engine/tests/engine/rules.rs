//! Rules about flows that homes begin.

use weir_engine::{AccessMode, DropReason, EngineConfig, Misses, Side};
use weir_nat::Filtering;
use weir_rules::RuleAction::{Accept, Drop, Reject};
use weir_rules::{FlowOrigin, PortRange, Prefix};
use weir_wire::arp::Arp;
use weir_wire::frame::VecFrame;
use weir_wire::tcp::{self, ACK, RST};
use weir_wire::{build, icmp, ipv4};

use crate::world::pair::{Pair, SHARD};
use crate::world::rules::*;
use crate::world::*;

fn udp() -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(5000, 53, b"query")
}

fn syn() -> Vec<u8> {
    build::ipv4(PC, SERVER).tcp(build::tcp(5000, 80).syn().sequence(u32::MAX).mss(1460))
}

fn ping() -> Vec<u8> {
    build::ipv4(PC, SERVER).icmp_echo_request(77, 1, b"ping")
}

fn first_fragment() -> Vec<u8> {
    let datagram = build::ipv4(PC, SERVER).udp(5000, 53, vec![7; 2000]);
    build::fragments(datagram, 1400).swap_remove(0)
}

fn plain() -> EngineConfig {
    let mut config = config();
    config.mode = AccessMode::Plain;
    config.shards[0].subscribers = vec!["10.200.0.0/24".parse().unwrap()];
    config.shards[1].subscribers = vec!["10.200.1.0/24".parse().unwrap()];
    config
}

/// Asserts that a packet is the ICMP error of a rule about `original`.
fn assert_prohibited(error: &[u8], from: &str, original: &[u8]) {
    let (ip, at, _) = ipv4::parse(error).unwrap();
    assert_eq!((ip.source.get(), ip.destination.get()), (from.to_bits(), ends(original).0));
    assert_eq!(
        error[at..at + 2],
        [icmp::DESTINATION_UNREACHABLE, icmp::CODE_ADMINISTRATIVELY_PROHIBITED]
    );
    assert_eq!(error[at + 8..], original[..original.len().min(548)], "as the home sent it");
}

/// Asserts that a packet is the reset that answers a SYN.
fn assert_reset(reset: &[u8], syn: &[u8]) {
    let (source, port, destination, destination_port) = ends(syn);
    assert_eq!(ends(reset), (destination, destination_port, source, port));
    let (_, at, len) = ipv4::parse(reset).unwrap();
    let segment = tcp::parse(&reset[at..]).unwrap();
    assert_eq!((segment.flags, segment.sequence.get(), len), (RST | ACK, 0, at + 20));
    let (_, at, _) = ipv4::parse(syn).unwrap();
    let sent = tcp::parse(&syn[at..]).unwrap().sequence.get();
    assert_eq!(segment.acknowledgment.get(), sent.wrapping_add(1));
}

#[test]
fn first_packet_that_a_rule_accepts_begins_its_flow_and_counts_once() {
    for packet in [udp(), syn(), ping(), first_fragment()] {
        let rules = Rules::default().home(Accept, |_| {}).home(Drop, |_| {});
        let mut world = rules.world(config());
        world.up(HOME_A, &packet).into_internet();
        world.up(HOME_A, &packet).into_internet();
        assert_eq!((hits(&world), world.drops()), (vec![1, 0], 0));
    }
}

#[test]
fn first_packet_that_a_rule_drops_leaves_nothing_and_gets_no_answer() {
    for packet in [udp(), syn(), ping(), first_fragment()] {
        let mut world = Rules::default().home(Drop, |_| {}).world(config());
        assert!(world.up(HOME_A, &packet).is_nothing());
        assert!(world.up(HOME_A, &packet).is_nothing());
        assert_only(&world, DropReason::RuleDrop, 2);
        assert_eq!(hits(&world), [2]);
        assert_nothing_begun(&world);
    }
}

#[test]
fn first_packet_that_a_rule_rejects_leaves_nothing_and_gets_an_icmp_error() {
    for packet in [udp(), ping(), first_fragment()] {
        let mut world = Rules::default().home(Reject, |_| {}).world(config());
        let (to, _, error) = world.up(HOME_A, &packet).into_home();
        assert_eq!(to, HOME_A.to_bits());
        assert_prohibited(&error, ENDPOINT, &packet);
        assert_only(&world, DropReason::RuleReject, 1);
        assert_eq!((hits(&world), world.counters.icmp_errors(Side::Access)), (vec![1], 1));
        assert_nothing_begun(&world);
    }
}

#[test]
fn syn_that_a_rule_rejects_gets_a_reset_from_the_remote() {
    let mut world = Rules::default().home(Reject, |_| {}).world(config());
    let (to, _, reset) = world.up(HOME_A, syn()).into_home();
    assert_eq!(to, HOME_A.to_bits());
    assert_reset(&reset, &syn());
    assert_only(&world, DropReason::RuleReject, 1);
    assert_eq!(
        (world.counters.resets(Side::Access), world.counters.icmp_errors(Side::Access)),
        (1, 0)
    );
    assert_nothing_begun(&world);
    // RFC 9293 section 3.10.7.1: the octets of the segment are acknowledged, too.
    let open = build::tcp(5000, 80).syn().sequence(7).payload(b"hello");
    let (_, _, reset) = world.up(HOME_A, build::ipv4(PC, SERVER).tcp(open)).into_home();
    let (_, at, _) = ipv4::parse(&reset).unwrap();
    assert_eq!(tcp::parse(&reset[at..]).unwrap().acknowledgment.get(), 7 + 1 + 5);
}

#[test]
fn subscribers_without_tunnels_are_asked_about_by_their_own_address() {
    let from_a = |filter: &mut Filter| filter.local = host(HOME_A);
    for enabled in [true, false] {
        let mut config = plain();
        if !enabled {
            config.nat.enabled = false;
            config.nat.shards[0].public = vec!["10.200.0.0/24".parse().unwrap()];
        }
        let mut world = Rules::default().home(Reject, from_a).world(config);
        let udp = build::ipv4(HOME_A, SERVER).udp(5000, 53, b"x");
        let error = world.packet(Side::Access, &udp).into_access();
        assert_prohibited(&error, WORKER_ACCESS, &udp);
        let syn = build::ipv4(HOME_A, SERVER).tcp(build::tcp(5000, 80).syn());
        assert_reset(&world.packet(Side::Access, &syn).into_access(), &syn);
        assert_only(&world, DropReason::RuleReject, 2);
        assert_nothing_begun(&world);
        let of_b = build::ipv4(HOME_B, SERVER).udp(5000, 53, b"x");
        world.packet(Side::Access, &of_b).into_internet();
    }
}

#[test]
fn rules_hold_and_resets_are_tagged_on_sides_that_are_vlans() {
    let mut tagged = config();
    (tagged.access.vlan, tagged.internet.vlan) = (Some(200), Some(300));
    let mut world = World::unstarted(tagged);
    world.start();
    for (side, vlan) in [(Side::Access, 200), (Side::Internet, 300)] {
        let address = world.addresses[side as usize].to_bits();
        let gateway = gateway_ip(side).to_bits();
        let reply = Arp::reply(gateway_mac(side), gateway, worker_mac(side), address);
        world.frame(side, &build::vlan(vlan, build::arp(reply)));
    }
    let to_80 = |filter: &mut Filter| filter.remote_ports = port(80);
    Rules::default().home(Reject, to_80).home(Accept, |_| {}).load(&mut world);
    let up = |inner: Vec<u8>| {
        let packet = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner);
        let (to, from) = (worker_mac(Side::Access), gateway_mac(Side::Access));
        build::vlan(200, build::ethernet(to, from, packet))
    };
    let frames = [syn(), udp()].map(|inner| VecFrame::new(&up(inner)));
    let out = world.frames(Side::Access, frames.into()).frames;
    let [(Side::Access, reset), (Side::Internet, sent)] = &*out else { panic!("{out:?}") };
    assert_eq!((&reset[12..16], &sent[12..16]), (&[0x81, 0, 0, 200][..], &[0x81, 0, 1, 44][..]));
    assert_reset(&decapsulate(&reset[18..]).2, &syn());
    assert_eq!((hits(&world), world.dropped(DropReason::RuleReject)), (vec![1, 1], 1));
}

#[test]
fn further_remote_is_asked_about_and_the_mapping_stays_endpoint_independent() {
    let to_second = |filter: &mut Filter| filter.remote = host(SERVER_2);
    let mut world = Rules::default().home(Drop, to_second).home(Accept, |_| {}).world(config());
    let to = |remote, port| build::ipv4(PC, remote).udp(5000, port, b"x");
    let public = ends(&world.up(HOME_A, to(SERVER, 53)).into_internet());
    assert!(world.up(HOME_A, to(SERVER_2, 53)).is_nothing());
    assert_only(&world, DropReason::RuleDrop, 1);
    let further = ends(&world.up(HOME_A, to(SERVER, 54)).into_internet());
    assert_eq!((further.0, further.1), (public.0, public.1));
    world.up(HOME_A, to(SERVER, 54)).into_internet();
    assert_eq!(hits(&world), [1, 2]);
    assert_eq!(world.engine.nat().admin().gauges().flows, 2);
}

#[test]
fn rejected_further_syn_gets_a_reset_and_its_mapping_lives() {
    let to_second = |filter: &mut Filter| filter.remote = host(SERVER_2);
    let mut world = Rules::default().home(Reject, to_second).world(config());
    world.up(HOME_A, syn()).into_internet();
    let further = build::ipv4(PC, SERVER_2).tcp(build::tcp(5000, 80).syn().sequence(9));
    assert_reset(&world.up(HOME_A, &further).into_home().2, &further);
    // A segment that begins nothing is no question to the rules.
    assert!(
        world.up(HOME_A, build::ipv4(PC, SERVER_2).tcp(build::tcp(5000, 80).ack())).is_nothing()
    );
    assert_eq!(
        (world.dropped(DropReason::RuleReject), world.dropped(DropReason::TcpNotSyn)),
        (1, 1)
    );
    assert_eq!((hits(&world), world.engine.nat().admin().gauges().flows), (vec![1], 1));
}

#[test]
fn segments_behind_their_syn_take_its_outcome() {
    let segment = |remote, flags| {
        let inner = build::ipv4(PC, remote).tcp(build::tcp(5000, 80).flags(flags));
        let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner);
        let (to, from) = (worker_mac(Side::Access), gateway_mac(Side::Access));
        VecFrame::new(&build::ethernet(to, from, outer))
    };
    let to_second = |filter: &mut Filter| filter.remote = host(SERVER_2);
    for (refused, passing) in [(SERVER, SERVER_2), (SERVER_2, SERVER)] {
        let mut world = Rules::default()
            .home(Accept, |filter| filter.remote = host(passing))
            .home(Drop, |_| {})
            .world(config());
        let burst = [(refused, tcp::SYN), (refused, ACK), (passing, tcp::SYN), (passing, ACK)];
        let frames = burst.map(|(remote, flags)| segment(remote, flags));
        let out = world.frames(Side::Access, frames.into());
        assert_eq!(
            out.internet.iter().map(|it| ends(it).2).collect::<Vec<_>>(),
            [passing.to_bits(); 2]
        );
        assert_only(&world, DropReason::RuleDrop, 2);
        assert_eq!((hits(&world), world.engine.nat().admin().gauges().flows), (vec![1, 2], 1));
    }
    // Both in one burst, in one flow: the first opens it, the other remote of it is refused.
    let mut world = Rules::default().home(Drop, to_second).world(config());
    let frames = [(SERVER, tcp::SYN), (SERVER_2, tcp::SYN)].map(|(to, flags)| segment(to, flags));
    world.frames(Side::Access, frames.into()).into_internet();
    assert_only(&world, DropReason::RuleDrop, 1);
}

#[test]
fn rules_of_a_group_are_about_its_subscribers_only() {
    let of_group = |filter: &mut Filter| filter.groups = 1 << 3;
    let rules = Rules::default().home(Drop, of_group).group(Prefix::new(HOME_B.to_bits(), 32), 3);
    let mut world = rules.world(config());
    world.up(HOME_A, udp()).into_internet();
    assert!(world.up(HOME_B, udp()).is_nothing());
    world.up("10.200.0.3", udp()).into_internet();
    assert_only(&world, DropReason::RuleDrop, 1);
}

#[test]
fn rules_look_at_protocols_and_at_ranges_of_both_ports() {
    let mail = |filter: &mut Filter| {
        filter.kinds = kinds(FlowOrigin::Home, 6);
        filter.remote_ports = PortRange { first: 465, last: 587 };
    };
    let served = |filter: &mut Filter| {
        filter.kinds = kinds(FlowOrigin::Home, 17);
        filter.local_ports = PortRange { first: 8000, last: 8099 };
    };
    let mut world = Rules::default().home(Drop, mail).home(Drop, served).world(config());
    let syn = |port| build::ipv4(PC, SERVER).tcp(build::tcp(6000, port).syn());
    let udp = |inside, port| build::ipv4(PC, SERVER).udp(inside, port, b"x");
    for (packet, is_refused) in [
        (syn(464), false),
        (syn(465), true),
        (syn(587), true),
        (syn(588), false),
        (udp(5000, 465), false),
        (udp(7999, 1), false),
        (udp(8000, 1), true),
        (udp(8099, 1), true),
        (udp(8100, 1), false),
        // The identifier of a query is no port.
        (build::ipv4(PC, SERVER).icmp_echo_request(8000, 1, b"x"), false),
    ] {
        assert_eq!(world.up(HOME_A, &packet).internet.is_empty(), is_refused, "{packet:x?}");
    }
    assert_only(&world, DropReason::RuleDrop, 4);
}

#[test]
fn refused_packets_take_no_token_of_the_home() {
    let mut limited = config();
    limited.nat.new_flows_per_sec = 1;
    limited.nat.new_flows_burst = 1;
    let to_80 = |filter: &mut Filter| filter.remote_ports = port(80);
    let mut world = Rules::default().home(Drop, to_80).world(limited);
    for _ in 0..10 {
        assert!(world.up(HOME_A, syn()).is_nothing());
    }
    world.up(HOME_A, udp()).into_internet();
    assert_only(&world, DropReason::RuleDrop, 10);
}

/// A home that floods is known by its address, so that others do not pay for it.
#[test]
fn refused_packets_are_charged_to_the_slow_path_limit_of_their_home() {
    let mut limited = config();
    limited.limits.slow_path_packets_per_sec = 1000;
    let to_80 = |filter: &mut Filter| filter.remote_ports = port(80);
    let mut world = Rules::default().home(Drop, to_80).world(limited);
    for _ in 0..2000 {
        assert!(world.up(HOME_A, syn()).is_nothing());
    }
    assert!(world.dropped(DropReason::SlowPathLimit) > 1500);
    world.up(HOME_B, udp()).into_internet();
}

#[test]
fn sources_that_are_no_subscribers_count_for_no_rule_and_get_no_answer() {
    let mut world = Rules::default().home(Reject, |_| {}).world(config());
    for packet in [udp(), syn()] {
        assert!(world.up("10.201.0.1", packet).is_nothing());
    }
    assert_only(&world, DropReason::NotSubscriber, 2);
    assert_eq!(hits(&world), [0]);
}

#[test]
fn resets_share_the_limits_of_icmp_errors_but_not_their_switch() {
    let mut limited = config();
    limited.limits.icmp_errors_to_homes = false;
    limited.limits.icmp_errors_per_sec = 3;
    let mut world = Rules::default().home(Reject, |_| {}).world(limited);
    assert!(world.up(HOME_A, udp()).is_nothing());
    let resets = (0..10).filter(|_| !world.up(HOME_A, syn()).is_nothing()).count();
    assert_eq!(resets, 3);
    let counters = &world.counters;
    assert_eq!((counters.resets(Side::Access), counters.resets_limited(Side::Access)), (3, 7));
    assert_eq!(world.counters.icmp_errors(Side::Access), 0);
    assert_reset(&world.up(HOME_B, syn()).into_home().2, &syn());
    assert_only(&world, DropReason::RuleReject, 12);
}

#[test]
fn live_flows_go_on_under_rules_that_refuse_them_and_new_ones_are_refused() {
    let mut world = World::default();
    let public = ends(&world.up(HOME_A, udp()).into_internet());
    Rules::default().home(Drop, |_| {}).internet(Drop, |_| {}).load(&mut world);
    let answer = build::ipv4(SERVER, public.0).udp(53, public.1, b"answer");
    for _ in 0..3 {
        world.down(&answer).into_home();
        world.up(HOME_A, udp()).into_internet();
    }
    assert!(world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 54, b"x")).is_nothing());
    assert!(world.up(HOME_A, build::ipv4(PC, SERVER).udp(5001, 53, b"x")).is_nothing());
    assert_only(&world, DropReason::RuleDrop, 2);
    assert_eq!(hits(&world), [2, 0]);
    // Its session runs out: what follows begins a flow again.
    world.pass_sec(301);
    assert!(world.up(HOME_A, udp()).is_nothing());
    assert_only(&world, DropReason::RuleDrop, 3);
}

#[test]
fn worker_that_makes_the_flow_asks_about_a_redirected_packet() {
    let mut pair = Pair::redirecting();
    Rules::default().home(Drop, |_| {}).load(&mut pair.a);
    let out = pair.a.up(HOME_A, udp());
    pair.deliver(&out).into_internet();
    assert_eq!((hits(&pair.a), pair.drops()), (vec![0], 0));
    Rules::default().home(Drop, |_| {}).load(&mut pair.b);
    let out = pair.a.up(HOME_B, udp());
    assert!(pair.deliver(&out).is_nothing());
    assert_eq!(pair.b.dropped(DropReason::RuleDrop), 1);
    pair.a.engine.setup().set_misses(SHARD, Misses::Create);
    assert!(pair.a.up("10.200.0.3", udp()).is_nothing());
    assert_eq!((hits(&pair.a), hits(&pair.b)), (vec![1], vec![1]));
}

/// The sender is asked as a home, with the public endpoint as its remote.
#[test]
fn home_is_asked_about_a_flow_to_another_home() {
    let mut open = config();
    open.nat.filtering = Filtering::EndpointIndependent;
    let mut world = World::new(open);
    let b = ends(&world.up(HOME_B, build::ipv4(PC, SERVER).udp(6000, 53, b"x")).into_internet());
    let to_b = |filter: &mut Filter| {
        filter.remote = Prefix::new(b.0, 32);
        filter.remote_ports = port(b.1);
    };
    Rules::default().home(Reject, to_b).load(&mut world);
    let hello = build::ipv4(PC, b.0).udp(5000, b.1, b"hello");
    let (to, _, error) = world.up(HOME_A, &hello).into_home();
    assert_eq!(to, HOME_A.to_bits());
    assert_prohibited(&error, ENDPOINT, &hello);
    assert_only(&world, DropReason::RuleReject, 1);
}
