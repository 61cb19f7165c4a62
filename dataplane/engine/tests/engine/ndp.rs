//! Neighbor discovery (RFC 4861) on the links of the worker: what it answers, what it refuses, and
//! how it finds its gateways.

use weir_engine::{DropReason, Engine, EngineError, Side};
use weir_nat::IpFamily;
use weir_wire::build;
use weir_wire::ethernet::{self, ETHERTYPE_IPV6, Mac};
use weir_wire::frame::{VecFrame, VecPool};
use weir_wire::icmp6::{
    NEIGHBOR_ADVERTISEMENT, NEIGHBOR_SOLICITATION, REDIRECT, ROUTER_ADVERTISEMENT,
    ROUTER_SOLICITATION,
};
use weir_wire::ipv6::{ALL_NODES, Ipv6, PROTOCOL_FRAGMENT, solicited_node};
use weir_wire::ndp::{NdpMessage, NdpPacket, NeighborAdvertisement};

use crate::world::link6::*;
use crate::world::*;

const SIDE: Side = Side::Internet;

/// Bytes of a message, checksum missing: flags, target, options.
fn message(kind: u8, flags: u8, target: u128, options: &[u8]) -> Vec<u8> {
    let head = [kind, 0, 0, 0, flags, 0, 0, 0];
    [&head, &target.to_be_bytes()[..], options].concat()
}

/// An option with the address of a station: type, length, MAC.
fn option(kind: u8, Mac(mac): Mac) -> Vec<u8> {
    [&[kind, 1], &mac[..]].concat()
}

fn solicitation(options: &[u8]) -> Vec<u8> {
    message(NEIGHBOR_SOLICITATION, 0, own6(SIDE), options)
}

/// A message that claims the worker's address: if it were believed, there would be a conflict.
fn advertisement(flags: u8, options: &[u8]) -> Vec<u8> {
    message(NEIGHBOR_ADVERTISEMENT, flags, own6(SIDE), options)
}

#[test]
fn rfc4861_7_1_invalid_messages_are_dropped() {
    let (own, station, group) = (own6(SIDE), station6(), solicited_node(own6(SIDE)));
    let source = option(1, STRANGER);
    let to_own = |hop_limit, message: &[u8]| icmp6_packet(station, own, hop_limit, message);
    for (name, good) in [
        ("solicitation", solicitation(&source)),
        ("advertisement", advertisement(0x60, &option(2, STRANGER))),
    ] {
        let check = |what: &str, packet: &[u8]| {
            let what = format!("{name}: {what}");
            check_dropped6(&what, DropReason::NdpMalformed, STRANGER, packet);
        };
        check("hop limit 254", &to_own(254, &good));
        check("hop limit 64", &to_own(64, &good));
        check("checksum", &with(to_own(255, &good), 42, 0xbe));
        check("code 1", &to_own(255, &with(good.clone(), 1, 1)));
        check("23 bytes", &to_own(255, &good[..23]));
        check("multicast target", &to_own(255, &with(good.clone(), 8, 0xff)));
        check("option of length 0", &to_own(255, &with(good.clone(), 25, 0)));
        check("option beyond the end", &to_own(255, &with(good.clone(), 25, 2)));
        let many = [&good[..24], &[14, 1, 0, 0, 0, 0, 0, 0].repeat(9)].concat();
        check("too many options", &to_own(255, &many));
        check("multicast source", &icmp6_packet(bits6("ff02::5"), own, 255, &good));
        check("loopback source", &icmp6_packet(1, own, 255, &good));
    }
    let check = |what: &str, packet: &[u8]| {
        check_dropped6(what, DropReason::NdpMalformed, STRANGER, packet);
    };
    check("solicitation from :: to unicast", &icmp6_packet(0, own, 255, &solicitation(&[])));
    check("solicitation from :: with MAC", &icmp6_packet(0, group, 255, &solicitation(&source)));
    let solicited = advertisement(0x60, &option(2, STRANGER));
    check("solicited to multicast", &icmp6_packet(station, ALL_NODES, 255, &solicited));
    check("advertisement from ::", &icmp6_packet(0, own, 255, &advertisement(0x20, &[])));
}

#[test]
fn rfc6980_message_in_fragments_is_dropped_even_in_an_atomic_one() {
    let mut packet = icmp6_packet(station6(), own6(SIDE), 255, &solicitation(&option(1, STRANGER)));
    let header = [packet[6], 0, 0, 0, 0, 0, 0, 1];
    packet.splice(Ipv6::LEN..Ipv6::LEN, header);
    packet[6] = PROTOCOL_FRAGMENT;
    packet[5] += 8;
    check_dropped6("atomic fragment", DropReason::NdpMalformed, STRANGER, &packet);
}

#[test]
fn message_that_no_neighbour_can_have_sent_is_dropped() {
    let good = |mac| {
        let solicitation = solicitation(&option(1, mac));
        let advertisement = advertisement(0x20, &option(2, mac));
        [solicitation, advertisement].map(|it| icmp6_packet(station6(), own6(SIDE), 255, &it))
    };
    for mac in [Mac::BROADCAST, Mac([0x33, 0x33, 0, 0, 0, 1]), Mac::ZERO, worker_mac(SIDE)] {
        for packet in good(mac) {
            check_dropped6("its MAC", DropReason::NdpMalformed, STRANGER, &packet);
        }
        for packet in good(STRANGER) {
            check_dropped6("its sender", DropReason::NdpMalformed, mac, &packet);
        }
    }
}

#[test]
fn messages_of_routers_are_counted_and_ignored() {
    for kind in [ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, REDIRECT] {
        let message = message(kind, 0, gateway6(SIDE), &[0; 16]);
        let packet = icmp6_packet(bits6("fe80::2"), ALL_NODES, 255, &message);
        let mut world = world6();
        let to = Mac::of_multicast6(ALL_NODES);
        assert!(world.frame6(SIDE, to, gateway_mac(SIDE), &packet).is_nothing());
        assert_eq!((world.dropped(DropReason::NdpIgnored), world.drops()), (1, 1), "{kind}");
        let forged = with(packet, 7, 64);
        world.frame6(SIDE, to, gateway_mac(SIDE), &forged);
        assert_eq!(world.dropped(DropReason::NdpMalformed), 1, "{kind}");
    }
}

#[test]
fn message_to_another_address_is_dropped() {
    let to_other =
        |to: &str| icmp6_packet(station6(), bits6(to), 255, &solicitation(&option(1, STRANGER)));
    for to in ["ff02::2", "ff02::1:ff00:77", "fe80::3"] {
        check_dropped6(to, DropReason::NotLocal, STRANGER, &to_other(to));
    }
    // To another station, through this worker: no router forwards it.
    let to = "2001:db8:2::3";
    check_dropped6(to, DropReason::IcmpKind, STRANGER, &to_other(to));
}

/// Returns the answer to a solicitation, and the MAC to which it was sent.
fn answered(world: &mut World, ask: &NdpPacket) -> (NeighborAdvertisement, Mac) {
    let out = world.neighbor_at(SIDE, STRANGER, ask);
    let [Sent6 { side: SIDE, to, message: NdpMessage::Advertisement(answer) }] = sent6(&out)[..]
    else {
        panic!("one answer: {out:?}");
    };
    (answer, to)
}

#[test]
fn solicitation_of_an_own_address_is_answered_to_its_sender() {
    let mut world = world6();
    for target in [own6(SIDE), link_local6(SIDE)] {
        for ask in [
            NdpPacket::solicitation(station6(), STRANGER, target),
            NdpPacket::probe(station6(), STRANGER, target),
        ] {
            let (answer, to) = answered(&mut world, &ask);
            let expected = NeighborAdvertisement {
                source: target,
                destination: station6(),
                target,
                is_router: true,
                is_solicited: true,
                is_override: true,
                target_mac: Some(worker_mac(SIDE)),
            };
            assert_eq!((answer, to), (expected, STRANGER));
        }
    }
    // RFC 4861 section 4.3: a unicast solicitation may come without the sender's MAC.
    let bare = icmp6_packet(station6(), own6(SIDE), 255, &solicitation(&[]));
    let out = world.frame6(SIDE, worker_mac(SIDE), STRANGER, &bare);
    assert_eq!(sent6(&out)[0].to, STRANGER);
    assert_eq!((world.drops(), world.pool.alive()), (0, 0));
}

#[test]
fn solicitation_of_another_address_of_the_same_group_is_not_answered() {
    let mut world = world6();
    let same_group = own6(SIDE) | 0x77 << 32;
    let ask = NdpPacket::solicitation(station6(), STRANGER, same_group);
    assert_eq!(ask.destination(), solicited_node(own6(SIDE)));
    assert!(world.neighbor_at(SIDE, STRANGER, &ask).is_nothing());
    assert_eq!(world.drops(), 0);
}

#[test]
fn frames_to_other_groups_and_unicast_packets_in_group_frames_are_not_for_the_worker() {
    let mut world = world6();
    let ask = NdpPacket::solicitation(station6(), STRANGER, own6(SIDE));
    let unicast = NdpPacket::probe(station6(), STRANGER, own6(SIDE));
    let group = ask.multicast_mac().unwrap();
    let mut cases = vec![(group, unicast.as_bytes()), (group, &unicast.as_bytes()[..39])];
    let others = [Mac::BROADCAST, Mac([0x33, 0x33, 0, 0, 0, 2]), Mac([0x33, 0x33, 255, 0, 0, 9])];
    cases.extend(others.map(|to| (to, ask.as_bytes())));
    // A member of the group of all nodes does not get there what is for another group.
    cases.push((Mac::of_multicast6(ALL_NODES), ask.as_bytes()));
    let count = cases.len() as u64;
    for (to, packet) in cases {
        assert!(world.frame6(SIDE, to, STRANGER, packet).is_nothing(), "{to}");
    }
    assert_eq!((world.dropped(DropReason::NotOurMac), world.drops()), (count, count));
    let mut without = World::default();
    assert!(without.neighbor_at(SIDE, STRANGER, &ask).is_nothing());
    assert_eq!(without.dropped(DropReason::EtherType), 1);
}

#[test]
fn flood_of_solicitations_and_advertisements_leaves_the_gateways_as_they_are() {
    let mut world = world6();
    for station in 0..2_000_u32 {
        let [_, _, a, b] = station.to_be_bytes();
        let (address, mac) =
            (bits6("2001:db8:2::1:0") + u128::from(station), Mac([2, 1, 0, 0, a, b]));
        for flood in [
            NdpPacket::solicitation(address, mac, own6(SIDE)),
            NdpPacket::solicitation(address, mac, gateway6(SIDE)),
            NdpPacket::unsolicited(address, mac, true),
        ] {
            world.neighbor_at(SIDE, mac, &flood);
        }
    }
    assert_eq!(world.pool.alive(), 0);
    assert!(sent6(&world.pass_sec(2)).is_empty(), "no station is asked for");
    assert!(world.counters.family_up(SIDE, IpFamily::Ipv6));
    assert_eq!(world.counters.gateway_moves(SIDE).0, 0);
}

/// Returns what the worker asked for on the side, with the link-layer destinations.
fn asked(out: &Out) -> Vec<(u128, Mac)> {
    let ask = |sent: &Sent6| match sent.message {
        NdpMessage::Solicitation(it) if sent.side == SIDE => Some((it.target, sent.to)),
        _ => None,
    };
    sent6(out).iter().filter_map(ask).collect()
}

fn family_up(world: &World) -> [bool; 3] {
    let [v4, v6] = IpFamily::ALL.map(|family| world.counters.family_up(SIDE, family));
    [v4, v6, world.counters.gateway_up(SIDE)]
}

#[test]
fn side_works_only_while_a_gateway_of_each_family_answers() {
    let mut world = started6(config6());
    assert_eq!(asked(&world.pass_sec(3)).len(), 3, "once a second from the first on");
    assert_eq!(family_up(&world), [true, false, false]);
    world.neighbor(SIDE, &gateway_answer(SIDE, gateway_mac(SIDE)));
    assert_eq!(family_up(&world), [true, true, true]);
    assert!(world.engine.admin().gateway_up(SIDE) && !world.engine.admin().is_ready());
    for _ in 0..4 {
        world.pass_sec(6);
        world.gateway_answers(SIDE);
    }
    assert_eq!(family_up(&world), [true, false, false], "silent for 24 s");
    world.neighbor(SIDE, &gateway_answer(SIDE, gateway_mac(SIDE)));
    assert_eq!(family_up(&world), [true, true, true]);
    assert_eq!(world.counters.gateway_moves(SIDE).0, 0);
}

#[test]
fn known_gateway_is_asked_at_its_mac_and_within_200_ms_of_silence_lost_when_watched() {
    let mut world = world6();
    let known = (gateway6(SIDE), gateway_mac(SIDE));
    assert_eq!(asked(&world.pass_ms(20_000)), [known]);
    world.engine.setup().watch_gateways();
    world.neighbor(SIDE, &gateway_answer(SIDE, gateway_mac(SIDE)));
    world.gateway_answers(SIDE);
    for _ in 0..4 {
        world.gateway_answers(SIDE);
        assert_eq!(family_up(&world), [true, true, true]);
        world.pass_ms(100);
    }
    assert_eq!(family_up(&world), [true, false, false]);
}

#[test]
fn only_an_answer_to_the_workers_own_question_makes_a_gateway_usable() {
    let mut world = started6(config6());
    world.pass_ms(1_000);
    let (gateway, mac) = (gateway6(SIDE), gateway_mac(SIDE));
    world.neighbor(SIDE, &NdpPacket::unsolicited(gateway, mac, true));
    world.neighbor(SIDE, &NdpPacket::solicitation(gateway, mac, own6(SIDE)));
    // An answer without MAC says nothing of a gateway that is not known.
    let bare = message(NEIGHBOR_ADVERTISEMENT, 0xe0, gateway, &[]);
    let bare = icmp6_packet(gateway, own6(SIDE), 255, &bare);
    world.frame6(SIDE, worker_mac(SIDE), mac, &bare);
    assert_eq!(family_up(&world), [true, false, false]);
    world.neighbor(SIDE, &gateway_answer(SIDE, mac));
    assert_eq!(family_up(&world), [true, true, true]);
    // It confirms a known one, from its MAC.
    for _ in 0..6 {
        world.pass_sec(6);
        world.gateway_answers(SIDE);
        world.frame6(SIDE, worker_mac(SIDE), STRANGER, &bare);
        world.frame6(SIDE, worker_mac(SIDE), mac, &bare);
    }
    assert_eq!(family_up(&world), [true, true, true]);
    assert_eq!((world.counters.refused_claims(SIDE).0, world.drops()), (0, 0));
}

#[test]
fn claims_of_a_gateways_address_move_nothing_while_it_answers() {
    let mut world = world6();
    for _ in 0..20 {
        world.neighbor_at(SIDE, STRANGER, &NdpPacket::unsolicited(gateway6(SIDE), STRANGER, true));
        world.neighbor_at(SIDE, STRANGER, &gateway_answer(SIDE, STRANGER));
        let out = world.pass_ms(300);
        assert_eq!(asked(&out)[0].1, gateway_mac(SIDE));
        world.gateway_answers(SIDE);
        world.neighbor(SIDE, &gateway_answer(SIDE, gateway_mac(SIDE)));
    }
    assert_eq!(world.counters.refused_claims(SIDE), (40, STRANGER));
    assert_eq!(world.counters.gateway_moves(SIDE).0, 0);
}

#[test]
fn gateway_that_moves_to_another_router_is_followed() {
    let mut world = world6();
    let (gateway, known) = (gateway6(SIDE), gateway_mac(SIDE));
    world.neighbor_at(SIDE, STRANGER, &NdpPacket::unsolicited(gateway, STRANGER, true));
    let group = Mac::of_multicast6(solicited_node(gateway));
    let expected = [(gateway, known), (gateway, known), (gateway, known), (gateway, group)];
    assert_eq!(asked(&world.pass_ms(1_300)), expected);
    world.neighbor_at(SIDE, STRANGER, &gateway_answer(SIDE, STRANGER));
    assert_eq!(world.counters.gateway_moves(SIDE), (1, STRANGER));
    assert_eq!(asked(&world.pass_ms(20_000)), [(gateway, STRANGER)]);
}

#[test]
fn link_local_gateway_is_asked_from_the_link_local_address() {
    let mut config = config6();
    config.internet.ipv6.as_mut().unwrap().gateways = vec!["fe80::2".parse().unwrap()];
    let mut world = started6(config);
    let out = world.pass_ms(1_000);
    let asks: Vec<_> = sent6(&out)
        .iter()
        .filter_map(|sent| match sent.message {
            NdpMessage::Solicitation(it) if sent.side == SIDE => Some((it.source, it.target)),
            _ => None,
        })
        .collect();
    let gateway = bits6("fe80::2");
    assert_eq!(asks, [(link_local6(SIDE), gateway)]);
    let answer = message(NEIGHBOR_ADVERTISEMENT, 0xe0, gateway, &option(2, gateway_mac(SIDE)));
    let answer = icmp6_packet(gateway, link_local6(SIDE), 255, &answer);
    world.frame6(SIDE, worker_mac(SIDE), gateway_mac(SIDE), &answer);
    assert_eq!(family_up(&world), [true, true, true]);
}

#[test]
fn side_of_a_vlan_speaks_neighbor_discovery_with_its_tag() {
    let mut config = config6();
    config.internet.vlan = Some(300);
    let mut world = World::unstarted(config);
    world.start();
    let out = world.pass_ms(1_000);
    let sent: Vec<_> = sent6(&out).into_iter().filter(|sent| sent.side == SIDE).collect();
    assert_eq!(sent.len(), 3, "two announcements and a solicitation");
    for (side, frame) in out.other.iter().filter(|(side, _)| *side == SIDE) {
        assert_eq!(ethernet::parse_link(frame).unwrap().vlan, Some(300), "{side:?}");
    }
    let ask = NdpPacket::solicitation(station6(), STRANGER, own6(SIDE));
    let to = ask.multicast_mac().unwrap();
    let frame = build::ethernet_of(ETHERTYPE_IPV6, to, STRANGER, ask.as_bytes());
    assert!(world.frame(SIDE, &frame).is_nothing());
    assert_eq!(world.dropped(DropReason::Vlan), 1, "untagged");
    let out = world.frame(SIDE, &build::vlan(300, &frame));
    let header = ethernet::parse_link(&out.other[0].1).unwrap();
    assert_eq!((header.vlan, header.ethertype), (Some(300), ETHERTYPE_IPV6));
}

#[test]
fn message_without_a_buffer_is_dropped() {
    let mut world = World::unstarted(config6());
    world.pool = VecPool::with_limit(0);
    assert!(world.start().is_nothing());
    // An announcement, a question to the gateway and two probes a side.
    assert_eq!((world.dropped(DropReason::NoBuffer), world.drops()), (8, 8));
}

#[test]
fn side_with_an_ipv6_address_needs_an_ipv6_gateway() {
    let mut config = config6();
    config.access.ipv6.as_mut().unwrap().gateways.clear();
    let error = Engine::<VecFrame>::new(config).unwrap_err();
    assert!(matches!(error, EngineError::NoGateway6("access")), "{error}");
}
