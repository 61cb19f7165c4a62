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

/// RFC 6864 lets atomic datagrams have any identification. Whole ones without DF keep their home's, see SPECIFICATION.md:
/// the counter of fragments must not be used up by them.
#[test]
fn b11_a_whole_packet_keeps_its_identification() {
    let mut world = World::default();
    let identification = |sent: &[u8]| ipv4::parse(sent).unwrap().0.identification.get();
    for n in 1..20_u16 {
        let head = build::ipv4(PC, SERVER).df(n % 2 == 0).identification(n);
        // The general way, the short one, and one with IP options.
        let head = if n % 3 == 0 { head.options(&[1, 1, 1, 1]) } else { head };
        let sent = world.up(HOME_A, head.udp(5000, 53, b"x")).into_internet();
        assert_eq!(identification(&sent), n);
    }
    let (_, pieces) = datagram();
    let first = identification(&world.up(HOME_A, &pieces[0]).into_internet());
    let other = identification(&world.up(HOME_B, &pieces[0]).into_internet());
    assert_eq!(other, first.wrapping_add(1), "whole packets have used up none");
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
    assert_eq!(world.dropped(DropReason::FragmentLimit), 2000 - 256);
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    world.pass_sec(7);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 256);
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

#[test]
fn homes_told_apart_by_key_never_share_a_datagram() {
    let mut config = config();
    config.nat.gre_key_identifies_home = true;
    let mut world = World::new(config);
    let (_, pieces) = datagram();
    let mut keyed = |key, piece: &Vec<u8>| {
        let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(key), piece);
        world.packet(weir_engine::Side::Access, &outer).internet
    };
    let first = keyed(1, &pieces[0]);
    assert!(
        keyed(2, &pieces[1]).is_empty(),
        "another home's first fragment speaks for nobody else"
    );
    let second = keyed(2, &pieces[0]);
    assert_eq!(second.len(), 2, "the first fragment and the held one");
    let end = |packet: &Vec<u8>| {
        let ip = ipv4::parse(packet).unwrap().0;
        (ip.source.get(), ip.identification.get())
    };
    assert_eq!(end(&second[0]), end(&second[1]));
    assert_ne!(end(&first[0]).1, end(&second[0]).1);
}

#[test]
fn a_key_that_is_only_an_echo_may_change_between_fragments() {
    let mut world = World::default();
    let (payload, pieces) = datagram();
    let mut sent = Vec::new();
    for (key, piece) in [Some(1), None, Some(2)].into_iter().zip(&pieces) {
        let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().maybe_key(key), piece);
        sent.extend(world.packet(weir_engine::Side::Access, &outer).internet);
    }
    assert_eq!(reassemble(&sent)[8..], payload);
}

#[test]
fn a_first_fragment_that_comes_twice_parts_nothing() {
    let mut world = World::default();
    let (payload, pieces) = datagram();
    let mut sent = Vec::new();
    for index in [0, 1, 0, 2] {
        sent.extend(world.up(HOME_A, &pieces[index]).internet);
    }
    sent.remove(2);
    assert_eq!(reassemble(&sent)[8..], payload, "one identification for all");
}

/// The tunnel headers of 65,535 packets lie between two datagrams (RFC 6864 section 5.3.1).
#[test]
fn traffic_toward_homes_uses_up_no_identifications_of_fragments() {
    let mut world = World::default();
    let (_, pieces) = datagram();
    let identification = |packet: &Vec<u8>| ipv4::parse(packet).unwrap().0.identification.get();
    let first = world.up(HOME_A, &pieces[0]).into_internet();
    let public = ends(&first);
    let answer = build::ipv4(SERVER, public.0).udp(53, public.1, b"y");
    for _ in 0..65_535 {
        world.down(&answer).into_access();
    }
    let other = world.up(HOME_B, &pieces[0]).into_internet();
    assert_ne!(identification(&first), identification(&other));
}

#[test]
fn what_the_worker_cuts_itself_gets_an_identification_of_its_own() {
    let mut config = config();
    config.internet.mtu = 1400;
    let mut world = World::new(config);
    let mut seen = Vec::new();
    for home in [HOME_A, HOME_B] {
        let big = build::ipv4(PC, SERVER).identification(9).udp(5000, 53, vec![7; 1400]);
        let pieces = world.up(home, big).internet;
        assert_eq!(reassemble(&pieces)[8..], [7; 1400]);
        seen.push(ipv4::parse(&pieces[0]).unwrap().0.identification.get());
    }
    assert_ne!(seen[0], seen[1], "RFC 6864: two homes behind one address");
}

/// RFC 791: a datagram has at most 65,535 bytes. Cut once more, the offset of such a fragment would run over.
#[test]
fn a_fragment_beyond_the_longest_datagram_is_refused() {
    let mut world = World::default();
    let far = |len| build::ipv4(PC, SERVER).fragment(8191 * 8, false).payload(17, vec![0; len]);
    assert!(world.up(HOME_A, far(1400)).is_nothing());
    assert_eq!(world.dropped(DropReason::InnerMalformed), 1);
    let far = build::ipv4(SERVER, "203.0.113.1").fragment(8191 * 8, true).payload(17, [0; 1480]);
    assert!(world.down(far).is_nothing());
    assert_eq!(world.dropped(DropReason::IpMalformed), 1);
    let last = build::ipv4(SERVER, "203.0.113.1").fragment(8180 * 8, false).payload(17, [0; 75]);
    assert!(world.down(last).is_nothing());
    assert_eq!(world.drops(), 2, "65,535 bytes are held");
}

#[test]
fn fragments_of_strangers_are_not_held() {
    let mut world = World::default();
    let (_, pieces) = datagram();
    for piece in &pieces[1..] {
        assert!(world.up("10.201.0.1", piece).is_nothing());
    }
    assert_eq!((world.dropped(DropReason::NotSubscriber), world.drops()), (2, 2));
}

#[test]
fn later_fragments_and_errors_with_df_are_never_cut() {
    let mut config = config();
    config.internet.mtu = 1400;
    let mut world = World::new(config);
    let head = build::ipv4(PC, SERVER).df(true).identification(9).fragment(0, true);
    let udp = build::ipv4(PC, SERVER).udp(5000, 53, vec![7; 1448]);
    world.up(HOME_A, head.payload(17, &udp[20..20 + 1320])).into_internet();
    let tail = build::ipv4(PC, SERVER).df(true).identification(9).fragment(1320, false);
    assert!(world.up(HOME_A, tail.payload(17, [7; 1400])).is_nothing());
    assert_eq!(world.dropped(DropReason::DontFragment), 1);

    let sent = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5001, 53, b"q")).into_internet();
    let answer = build::ipv4(SERVER, ends(&sent).0).udp(53, ends(&sent).1, [7; 1420]);
    let (_, _, delivered) = world.down(answer).into_home();
    let error = build::ipv4(PC, SERVER).df(true).icmp(3, 3, [0; 4], delivered);
    assert!(world.up(HOME_A, error).is_nothing());
    assert_eq!(world.dropped(DropReason::DontFragment), 2);
}
