//! Inner fragments follow their first fragment (RFC 4787 REQ-14).

mod world;

use weir_engine::DropReason;
use weir_wire::{build, ipv4};
use world::*;

fn datagram() -> (Vec<u8>, Vec<Vec<u8>>) {
    let payload: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    let packet = build::ipv4(PC, SERVER).identification(9).udp(5000, 53, &payload);
    let pieces = build::fragments(&packet, 1400);
    assert_eq!(pieces.len(), 3);
    (payload, pieces)
}

/// Puts IP fragments together by offset; all must agree on addresses and identification.
fn reassemble(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut sorted: Vec<_> = pieces.iter().map(|piece| ipv4::parse(piece).unwrap().0).collect();
    let heads: Vec<_> =
        sorted.iter().map(|ip| (ip.source, ip.destination, ip.identification)).collect();
    assert!(heads.iter().all(|head| *head == heads[0]));
    sorted.sort_by_key(|ip| ip.fragment_offset());
    let mut data = Vec::new();
    for ip in sorted {
        let piece = pieces
            .iter()
            .find(|piece| ipv4::parse(piece).unwrap().0.fragment_offset() == ip.fragment_offset());
        assert_eq!(ip.fragment_offset(), data.len());
        data.extend_from_slice(&piece.unwrap()[20..]);
    }
    data
}

#[test]
fn u14_fragments_in_every_order_toward_the_internet() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = World::default();
        let (payload, pieces) = datagram();
        let mut sent = Vec::new();
        for index in order {
            sent.extend(world.up(HOME_A, &pieces[index]).internet);
        }
        assert_eq!(sent.len(), 3, "{order:?}");
        let data = reassemble(&sent);
        assert_eq!(data[8..], payload);
        let head = ipv4::parse(&sent[0]).unwrap().0;
        let checked = build::ipv4(head.source.get(), head.destination.get())
            .payload(ipv4::PROTOCOL_UDP, &data);
        assert_sound(&checked);
        assert_eq!(world.drops(), 0);
        assert_eq!(world.engine.nat().gauges().flows, 1);
    }
}

#[test]
fn u14_fragments_in_every_order_toward_a_home() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut world = World::default();
        let sent = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"q")).into_internet();
        let public = ends(&sent);
        let payload = vec![3; 4000];
        let packet = build::ipv4(SERVER, public.0).identification(9).udp(53, public.1, &payload);
        let pieces = build::fragments(&packet, 1400);
        let mut inner = Vec::new();
        for index in order {
            let out = world.down(&pieces[index]).access;
            inner.extend(out.iter().map(|packet| decapsulate(packet).2));
        }
        let data = reassemble(&inner);
        assert_eq!(data[8..], payload);
        assert_eq!(data[2..4], 5000_u16.to_be_bytes());
    }
}

#[test]
fn two_homes_never_share_an_identification() {
    let mut world = World::default();
    let (_, pieces) = datagram();
    let mut seen = Vec::new();
    for home in [HOME_A, HOME_B] {
        for piece in &pieces {
            let sent = world.up(home, piece).into_internet();
            seen.push(ipv4::parse(&sent).unwrap().0.identification.get());
        }
    }
    assert!(seen[..3].iter().all(|id| *id == seen[0]));
    assert!(seen[3..].iter().all(|id| *id == seen[3] && *id != seen[0]), "RFC 6864");
}

#[test]
fn fragments_without_their_first_are_held_for_a_time_only() {
    let mut world = World::default();
    let (_, pieces) = datagram();
    assert!(world.up(HOME_A, &pieces[1]).is_nothing());
    assert!(world.up(HOME_A, &pieces[2]).is_nothing());
    assert_eq!(world.drops(), 0);
    world.pass_sec(7);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 2);
    assert_eq!(world.up(HOME_A, &pieces[0]).internet.len(), 1);
}

#[test]
fn u14a_a_flood_of_fragments_hurts_only_fragments() {
    let mut world = World::default();
    for identification in 0..2000 {
        let tail = build::ipv4(PC, SERVER)
            .identification(identification)
            .fragment(1480, false)
            .payload(17, [0; 100]);
        world.up(HOME_B, tail);
    }
    assert_eq!(world.dropped(DropReason::FragmentLimit), 2000 - 512);
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    world.pass_sec(7);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 512);
    let (_, pieces) = datagram();
    for piece in &pieces {
        world.up(HOME_A, piece).into_internet();
    }
}

#[test]
fn rfc1858_rfc3128_hidden_headers_are_refused() {
    let mut world = World::default();
    let tiny = build::ipv4(PC, SERVER).fragment(0, true).payload(6, [0; 8]);
    assert!(world.up(HOME_A, tiny).is_nothing());
    let overlap = build::ipv4(PC, SERVER).fragment(8, false).payload(6, [0; 24]);
    assert!(world.up(HOME_A, overlap).is_nothing());
    assert_eq!(world.dropped(DropReason::FragmentTiny), 2);
}

#[test]
fn a_refused_first_fragment_takes_the_others_with_it() {
    let mut world = World::default();
    let packet = build::ipv4(SERVER, "203.0.113.1").identification(3).udp(53, 5000, vec![0; 3000]);
    for piece in build::fragments(&packet, 1400) {
        assert!(world.down(piece).is_nothing());
    }
    assert_eq!(world.dropped(DropReason::NoMapping), 1);
    world.pass_sec(7);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 2);
    assert_eq!(world.pool.alive(), 0);
}
