//! ARP, ping of the worker, VLANs, gateways.

use std::collections::HashSet;

use weir_engine::{DropReason, Side};
use weir_wire::arp::{self, Arp};
use weir_wire::ethernet::{Ethernet, Mac};
use weir_wire::{build, ethernet, icmp, ipv4};

use crate::world::*;

#[test]
fn a_worker_announces_itself_and_asks_for_its_gateways() {
    let mut world = World::unstarted(config());
    let out = world.start();
    let mut seen: Vec<_> = out
        .other
        .iter()
        .map(|(side, frame)| {
            assert_eq!(ethernet::parse(frame).unwrap().destination, Mac::BROADCAST);
            let message = arp::parse(&frame[Ethernet::LEN..]).unwrap();
            (*side as usize, dotted(message.sender_ip.get()), dotted(message.target_ip.get()))
        })
        .collect();
    seen.sort();
    let text = |side: usize, from: &str, to: &str| (side, from.to_owned(), to.to_owned());
    assert_eq!(
        seen,
        [
            text(0, "10.1.0.1", "10.1.0.1"),
            text(0, "10.1.0.1", "10.1.0.2"),
            text(1, "10.2.0.1", "10.2.0.1"),
            text(1, "10.2.0.1", "10.2.0.2"),
        ]
    );
    assert!(!world.engine.admin().is_ready());
    world.gateway_answers(Side::Access);
    assert!(world.engine.admin().gateway_up(Side::Access) && !world.engine.admin().is_ready());
    world.gateway_answers(Side::Internet);
    assert!(world.engine.admin().is_ready() && world.counters.gateway_up(Side::Internet));
}

#[test]
fn arp_is_answered_for_the_workers_own_address_only() {
    let mut world = World::default();
    let asker = build::mac(99);
    for (target, answers) in [(WORKER_ACCESS, 1), (ENDPOINT, 0), ("10.1.0.77", 0)] {
        let request = Arp::request(asker, "10.1.0.50".to_bits(), target.to_bits());
        let out = world.frame(Side::Access, &build::arp(request)).other;
        assert_eq!(out.len(), answers, "{target}");
        if let Some((_, frame)) = out.first() {
            assert_eq!(ethernet::parse(frame).unwrap().destination, asker);
            let reply = arp::parse(&frame[Ethernet::LEN..]).unwrap();
            assert!(reply.is_reply());
            assert_eq!(reply.sender_mac, worker_mac(Side::Access));
        }
    }
}

#[test]
fn gateways_are_confirmed_also_when_idle_and_lost_when_silent() {
    let mut world = World::default();
    let out = world.pass_sec(21);
    assert_eq!(out.other.len(), 4, "one unicast and one retry a side: {:?}", out.other.len());
    assert_eq!(
        ethernet::parse(&out.other[0].1).unwrap().destination,
        gateway_mac(out.other[0].0),
        "sent to the known MAC of the gateway"
    );
    world.pass_sec(3);
    assert!(!world.engine.admin().gateway_up(Side::Internet));
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x"));
    assert_eq!(world.dropped(DropReason::GatewayUnresolved), 1);
    world.gateway_answers(Side::Internet);
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
}

#[test]
fn flows_use_all_live_gateways() {
    let mut config = config();
    config.internet.gateways.push("10.2.0.3".parse().unwrap());
    let mut world = World::new(config);
    let second = build::mac(77);
    let reply = Arp::reply(
        second,
        "10.2.0.3".to_bits(),
        worker_mac(Side::Internet),
        WORKER_INTERNET.to_bits(),
    );
    world.frame(Side::Internet, &build::arp(reply));
    let mut next_hops = HashSet::new();
    for port in 5000..5032 {
        let packet = build::ipv4(PC, SERVER).udp(port, 53, b"x");
        let [first, again] = [0; 2].map(|_| world.up(HOME_A, &packet).next_hops);
        assert_eq!(first, again, "a flow keeps its gateway");
        next_hops.extend(first);
    }
    assert_eq!(next_hops, HashSet::from([gateway_mac(Side::Internet), second]));
}

#[test]
fn the_worker_and_its_endpoints_answer_ping() {
    let mut world = World::default();
    for (side, address) in [
        (Side::Access, WORKER_ACCESS),
        (Side::Access, ENDPOINT),
        (Side::Access, ENDPOINT_2),
        (Side::Internet, WORKER_INTERNET),
    ] {
        let ping = build::ipv4("10.3.0.9", address).ttl(3).icmp_echo_request(7, 8, b"hello");
        let out = world.packet(side, &ping);
        let reply = match side {
            Side::Access => out.into_access(),
            Side::Internet => out.into_internet(),
        };
        let (ip, at, _) = ipv4::parse(&reply).unwrap();
        assert_eq!((ip.source.get(), ip.ttl), (address.to_bits(), 64));
        assert_eq!(ip.destination.get(), "10.3.0.9".to_bits());
        assert_eq!(reply[at], icmp::ECHO_REPLY);
        assert_eq!(&reply[at + 8..], b"hello");
    }
    let other = build::ipv4("10.3.0.9", WORKER_INTERNET).udp(1, 2, b"x");
    assert!(world.down(other).is_nothing());
    assert_eq!(world.dropped(DropReason::LocalProtocol), 1);
}

#[test]
fn k08_a_side_may_be_a_vlan() {
    let mut config = config();
    config.internet.vlan = Some(300);
    let mut world = World::unstarted(config);
    world.start();
    let (worker, gateway) = (worker_mac(Side::Internet), gateway_mac(Side::Internet));
    let reply = Arp::reply(gateway, "10.2.0.2".to_bits(), worker, WORKER_INTERNET.to_bits());
    world.frame(Side::Internet, &build::arp(reply));
    assert_eq!(world.dropped(DropReason::Vlan), 1, "untagged");
    world.frame(Side::Internet, &build::vlan(301, build::arp(reply)));
    assert_eq!(world.dropped(DropReason::Vlan), 2, "another VLAN");
    world.frame(Side::Internet, &build::vlan(300, build::arp(reply)));
    assert!(world.engine.admin().gateway_up(Side::Internet));
    let ping = build::ipv4("10.2.0.2", WORKER_INTERNET).icmp_echo_request(7, 8, b"hello");
    let frame = build::vlan(300, build::ethernet(worker, gateway, ping));
    let out = world.frame(Side::Internet, &frame).other;
    let header = ethernet::parse_link(&out[0].1).unwrap();
    assert_eq!((header.vlan, header.ethertype), (Some(300), ethernet::ETHERTYPE_IPV4));
}

#[test]
fn gateway_at_a_group_mac_or_at_the_workers_own_is_refused() {
    let mut world = World::default();
    let side = Side::Internet;
    let gateway = gateway_ip(side).to_bits();
    for mac in [Mac::BROADCAST, Mac([1, 0, 94, 0, 0, 1]), Mac::ZERO, worker_mac(side)] {
        let lie = Arp::reply(mac, gateway, worker_mac(side), WORKER_INTERNET.to_bits());
        assert!(world.frame(side, &build::arp(lie)).is_nothing());
    }
    assert_eq!(world.dropped(DropReason::ArpMalformed), 4);
    let request = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), request);
    let frame = build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), outer);
    let mut frames = vec![weir_wire::frame::VecFrame::new(&frame)];
    let mut out = weir_engine::Output::new();
    world.engine.receive(Side::Access, world.now, &mut frames, &mut world.pool, &mut out);
    let sent = weir_wire::frame::Frame::data(&out.internet[0]).to_vec();
    assert_eq!(ethernet::parse(&sent).unwrap().destination, gateway_mac(side));
}

#[test]
fn pings_from_impossible_sources_get_no_answer() {
    let mut world = World::default();
    for (side, address) in
        [(Side::Access, WORKER_ACCESS), (Side::Access, ENDPOINT), (Side::Internet, WORKER_INTERNET)]
    {
        for from in ["255.255.255.255", "224.0.0.1", "127.0.0.1", "0.0.0.0", address] {
            let ping = build::ipv4(from, address).icmp_echo_request(7, 8, b"hello");
            assert!(world.packet(side, &ping).is_nothing(), "{from}");
        }
        let ping = build::ipv4("10.3.0.9", address).icmp_echo_request(7, 8, b"hello");
        let frame = build::ethernet(worker_mac(side), Mac::BROADCAST, ping);
        assert!(world.frame(side, &frame).is_nothing(), "the answer would be a broadcast");
    }
    assert_eq!((world.dropped(DropReason::Martian), world.drops()), (18, 18));
}

fn gateway_at(mac: Mac, side: Side, is_answer: bool) -> Vec<u8> {
    let gateway = gateway_ip(side).to_bits();
    let own = if side == Side::Access { WORKER_ACCESS } else { WORKER_INTERNET };
    build::arp(match is_answer {
        true => Arp::reply(mac, gateway, worker_mac(side), own.to_bits()),
        false => Arp::gratuitous(mac, gateway),
    })
}

fn next_hop(world: &mut World) -> Vec<Mac> {
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).next_hops
}

#[test]
fn claims_of_a_gateways_address_move_nothing_while_it_answers() {
    let (mut world, liar, side) = (World::default(), build::mac(66), Side::Internet);
    for round in 0..50 {
        for is_answer in [false, true, round % 2 == 0] {
            world.frame(side, &gateway_at(liar, side, is_answer));
        }
        world.pass_ms(300);
        world.gateway_answers(Side::Access);
        world.gateway_answers(side);
        assert_eq!(next_hop(&mut world), [gateway_mac(side)]);
    }
    let (claims, claimant) = world.engine.admin().counters().refused_claims(side);
    assert_eq!((claims, claimant), (150, liar));
    assert_eq!(world.engine.admin().counters().gateway_moves(side).0, 0);
}

#[test]
fn a_gateway_that_moves_to_another_router_is_followed() {
    let (mut world, new, side) = (World::default(), build::mac(67), Side::Internet);
    world.frame(side, &gateway_at(new, side, false));
    assert_eq!(next_hop(&mut world), [gateway_mac(side)]);
    let asked = world.pass_ms(1_300).other;
    let to = |frame: &(Side, Vec<u8>)| ethernet::parse(&frame.1).unwrap().destination;
    let asked: Vec<Mac> = asked.iter().filter(|frame| frame.0 == side).map(to).collect();
    let known = gateway_mac(side);
    assert_eq!(asked, [known, known, known, Mac::BROADCAST]);
    world.frame(side, &gateway_at(new, side, true));
    assert_eq!(next_hop(&mut world), [new]);
    assert_eq!(world.engine.admin().counters().gateway_moves(side), (1, new));
}

#[test]
fn a_pinned_gateway_never_moves() {
    let (mut config, side) = (config(), Side::Internet);
    config.internet.gateway_macs.push(gateway_mac(side));
    let mut world = World::new(config);
    let liar = build::mac(66);
    for _ in 0..100 {
        world.frame(side, &gateway_at(liar, side, false));
        world.pass_ms(1_000);
        world.frame(side, &gateway_at(liar, side, true));
    }
    assert!(!world.engine.admin().gateway_up(side), "the pinned gateway does not answer");
    world.gateway_answers(side);
    assert_eq!(next_hop(&mut world), [gateway_mac(side)]);
    assert_eq!(world.engine.admin().counters().refused_claims(side), (200, liar));
}
