//! Duplicate address detection of the worker's IPv6 addresses (RFC 4862 section 5.4), and their
//! defence.

use weir_engine::{DropReason, Side};
use weir_nat::IpFamily;
use weir_wire::ethernet::Mac;
use weir_wire::ipv6::{self, ALL_NODES};
use weir_wire::ndp::{NdpMessage, NdpPacket};
use weir_wire::{build, icmp6};

use crate::world::link6::*;
use crate::world::*;

const SIDE: Side = Side::Internet;

/// Returns the probed addresses among what was sent, by side.
fn probed(out: &Out) -> Vec<(Side, u128)> {
    let probe = |sent: &Sent6| match sent.message {
        NdpMessage::Solicitation(it) if it.detects_duplicates() => Some((sent.side, it.target)),
        _ => None,
    };
    sent6(out).iter().filter_map(probe).collect()
}

/// Returns the addresses announced to all nodes among what was sent, by side.
fn announced(out: &Out) -> Vec<(Side, u128)> {
    let announcement = |sent: &Sent6| match sent.message {
        NdpMessage::Advertisement(it) => {
            assert!(it.is_override && it.is_router && !it.is_solicited);
            assert_eq!((it.target_mac, it.source), (Some(worker_mac(sent.side)), it.target));
            assert_eq!(it.destination, ALL_NODES);
            Some((sent.side, it.target))
        }
        _ => None,
    };
    sent6(out).iter().filter_map(announcement).collect()
}

fn all_addresses() -> Vec<(Side, u128)> {
    Side::ALL.into_iter().flat_map(|side| [(side, own6(side)), (side, link_local6(side))]).collect()
}

fn conflicts(world: &World) -> (bool, u64, Mac) {
    let (total, mac) = world.counters.address_conflicts(SIDE);
    (world.counters.address_conflict(SIDE), total, mac)
}

#[test]
fn addresses_are_probed_for_a_second_then_announced() {
    let mut world = World::unstarted(config6());
    assert_eq!(probed(&world.start()), all_addresses());
    Side::ALL.into_iter().for_each(|side| world.gateway_answers(side));
    let out = world.pass_ms(900);
    assert!(sent6(&out).is_empty(), "nothing comes from an address that is not in use");
    let out = world.pass_ms(100);
    assert_eq!(announced(&out), all_addresses());
    let asks = sent6(&out).into_iter().filter_map(|sent| match sent.message {
        NdpMessage::Solicitation(it) => Some((it.source, it.target, it.source_mac)),
        _ => None,
    });
    let expected =
        Side::ALL.map(|side| (own6(side), gateway6(side), Some(worker_mac(side)))).to_vec();
    assert_eq!(asks.collect::<Vec<_>>(), expected);
    assert!(!world.engine.admin().is_ready(), "no IPv6 gateway has answered");
    assert_eq!(probed(&world.pass_sec(60)), [], "an address is probed once");
}

/// Other stations' messages that say they have an address.
fn claims(address: u128) -> [NdpPacket; 3] {
    [
        NdpPacket::unsolicited(address, STRANGER, false),
        NdpPacket::duplicate_detection(address),
        NdpPacket::solicitation(address, STRANGER, own6(SIDE)),
    ]
}

#[test]
fn claim_of_a_probed_address_keeps_it_out_of_use() {
    for address in [own6(SIDE), link_local6(SIDE)] {
        for claim in claims(address) {
            let mut world = started6(config6());
            world.pass_ms(500);
            assert!(world.neighbor_at(SIDE, STRANGER, &claim).is_nothing());
            assert_eq!(conflicts(&world), (true, 1, STRANGER));
            let out = world.pass_ms(1_000);
            assert!(!announced(&out).contains(&(SIDE, address)));
            let is_ask = |sent: &Sent6| {
                sent.side == SIDE && matches!(sent.message, NdpMessage::Solicitation(_))
            };
            assert!(!sent6(&out).iter().any(is_ask), "the gateways are not asked");
            world.neighbor_at(SIDE, STRANGER, &claim);
            assert_eq!(conflicts(&world), (true, 1, STRANGER), "the conflict is known");
            assert!(!world.counters.gateway_up(SIDE) && !world.engine.admin().is_ready());
            assert!(world.counters.family_up(SIDE, IpFamily::Ipv4));
            assert!(!world.counters.address_conflict(Side::Access));
            assert_eq!(world.drops(), 0);
        }
    }
}

#[test]
fn address_that_is_not_in_use_answers_nobody() {
    let mut world = started6(config6());
    let station = bits6("2001:db8:2::77");
    for claimed in [false, true] {
        if claimed {
            world.neighbor_at(SIDE, STRANGER, &NdpPacket::duplicate_detection(own6(SIDE)));
            world.pass_ms(1_000);
        }
        let ask = NdpPacket::solicitation(station, STRANGER, own6(SIDE));
        assert!(world.neighbor_at(SIDE, STRANGER, &ask).is_nothing());
        let ping = [icmp6::ECHO_REQUEST, 0, 0, 0, 0, 7, 0, 1];
        let ping = icmp6_packet(station, own6(SIDE), 64, &ping);
        assert!(world.frame6(SIDE, worker_mac(SIDE), STRANGER, &ping).is_nothing());
    }
    assert_eq!((world.dropped(DropReason::AddressUnusable), world.drops()), (4, 4));
    // The other address of the side is in use.
    let ask = NdpPacket::solicitation(station, STRANGER, link_local6(SIDE));
    assert_eq!(sent6(&world.neighbor_at(SIDE, STRANGER, &ask)).len(), 1);
}

#[test]
fn conflict_heals_without_a_restart_when_the_other_station_is_gone() {
    let mut world = started6(config6());
    world.pass_ms(500);
    for round in 1..=3 {
        let claim = NdpPacket::unsolicited(own6(SIDE), STRANGER, true);
        world.neighbor_at(SIDE, STRANGER, &claim);
        assert_eq!(conflicts(&world), (true, round, STRANGER));
        assert_eq!(probed(&world.pass_ms(9_900)), []);
        assert_eq!(probed(&world.pass_ms(100)), [(SIDE, own6(SIDE))]);
    }
    assert!(!world.counters.address_conflict(SIDE), "being probed");
    assert_eq!(announced(&world.pass_ms(1_000)), [(SIDE, own6(SIDE))]);
    for side in Side::ALL {
        world.gateway_answers(side);
        world.neighbor(side, &gateway_answer(side, gateway_mac(side)));
    }
    assert!(world.engine.admin().is_ready());
}

#[test]
fn claim_of_an_address_in_use_is_counted_and_the_address_is_defended_once_a_second() {
    for address in [own6(SIDE), link_local6(SIDE)] {
        let mut world = world6();
        let mut defences = 0;
        for round in 1..=50 {
            // A probe is no claim then: it gets an answer.
            let claim = &claims(address)[if round % 2 == 0 { 0 } else { 2 }];
            let out = world.neighbor_at(SIDE, STRANGER, claim);
            let sent = announced(&out);
            assert!(sent.iter().all(|sent| *sent == (SIDE, address)));
            defences += sent.len();
            assert_eq!(conflicts(&world), (false, round, STRANGER));
            world.pass_ms(100);
        }
        assert_eq!(defences, 5);
        assert!(world.engine.admin().is_ready(), "the address stays in use");
    }
}

#[test]
fn probe_of_an_address_in_use_is_answered_to_all_nodes() {
    let mut world = world6();
    for address in [own6(SIDE), link_local6(SIDE)] {
        let out = world.neighbor_at(SIDE, STRANGER, &NdpPacket::duplicate_detection(address));
        assert_eq!(announced(&out), [(SIDE, address)]);
        assert_eq!(sent6(&out)[0].to, Mac::of_multicast6(ALL_NODES));
    }
    assert_eq!(conflicts(&world), (false, 0, Mac::ZERO));
}

/// A switch that sends frames back, or a loop.
#[test]
fn own_messages_that_come_back_are_no_conflict() {
    let mut world = World::unstarted(config6());
    let mut own = world.start();
    for _ in 0..3 {
        for (side, frame) in own.other.iter().filter(|frame| frame.1[12..14] == [0x86, 0xdd]) {
            assert!(world.frame(*side, frame).is_nothing());
        }
        own = world.pass_ms(1_000);
    }
    assert_eq!(conflicts(&world), (false, 0, Mac::ZERO));
    // Four probes, four announcements, and two questions for the gateway of the internet side: its
    // group is also that of the worker's link-local address.
    assert_eq!((world.dropped(DropReason::NdpMalformed), world.drops()), (10, 12));
    assert_eq!(world.dropped(DropReason::NotOurMac), 2);
}

#[test]
fn new_mac_has_its_link_local_address_probed_and_both_announced() {
    let mut world = world6();
    world.macs[SIDE as usize] = build::mac(40);
    world.engine.setup().set_mac(SIDE, build::mac(40));
    let new = bits6("fe80::ff:fe00:28");
    let out = world.pass_ms(500);
    assert_eq!(probed(&out), [(SIDE, own6(SIDE)), (SIDE, new)]);
    let out = world.pass_ms(1_000);
    let announced: Vec<_> = sent6(&out)
        .iter()
        .filter_map(|sent| match sent.message {
            NdpMessage::Advertisement(it) => Some((it.target, it.target_mac)),
            _ => None,
        })
        .collect();
    let mac = Some(build::mac(40));
    assert_eq!(announced, [(own6(SIDE), mac), (new, mac)]);
    assert!(world.engine.admin().is_ready(), "the gateway stays known");
    assert!(ipv6::is_link_local(new));
}
