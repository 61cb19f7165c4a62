//! Inner fragments follow their first fragment (RFC 4787 REQ-14).

use weir_engine::DropReason;
use weir_wire::{build, ipv4};

use crate::world::*;

fn datagram() -> (Vec<u8>, Vec<Vec<u8>>) {
    let payload: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    let packet = build::ipv4(PC, SERVER).identification(9).udp(5000, 53, &payload);
    let pieces = build::fragments(&packet, 1400);
    assert_eq!(pieces.len(), 3);
    (payload, pieces)
}

/// Reassembles IP fragments by offset; all must agree on addresses and identification.
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
    for order in ORDERS {
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
        assert_eq!(world.engine.nat().admin().gauges().flows, 1);
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

/// RFC 6864 lets atomic datagrams have any identification. Whole packets without DF keep the home's
/// identification, see SPECIFICATION.md: they must not use up the counter of fragments.
#[test]
fn b11_a_whole_packet_keeps_its_identification() {
    let mut world = World::default();
    let identification = |sent: &[u8]| ipv4::parse(sent).unwrap().0.identification.get();
    for n in 1..20_u16 {
        let head = build::ipv4(PC, SERVER).df(n % 2 == 0).identification(n);
        // The slow path, the fast path, and a packet with IP options.
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

/// Returns a fragment behind the first, of a datagram without a first one.
fn tail(from: &str, to: &str, identification: u16) -> Vec<u8> {
    build::ipv4(from, to).identification(identification).fragment(1480, false).payload(17, [0; 100])
}

#[test]
fn u14a_a_flood_of_fragments_hurts_only_fragments() {
    let mut world = World::default();
    for identification in 0..2000 {
        world.up(HOME_B, tail(PC, SERVER, identification));
    }
    // A quarter of the homes' half of 512.
    assert_eq!(world.dropped(DropReason::FragmentLimit), 2000 - 64);
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet();
    world.pass_sec(7);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 64);
    let (_, pieces) = datagram();
    for piece in &pieces {
        world.up(HOME_A, piece).into_internet();
    }
}

/// Sends a datagram of a home in fragments with something between them; all must be sent.
fn passes_up(world: &mut World, home: &str, round: usize, mut between: impl FnMut(&mut World)) {
    let (payload, _) = datagram();
    let packet = build::ipv4(PC, SERVER).identification(round as u16).udp(5000, 53, &payload);
    let pieces = build::fragments(&packet, 1400);
    let mut sent = Vec::new();
    for index in ORDERS[round % 6] {
        sent.extend(world.up(home, &pieces[index]).internet);
        between(world);
    }
    assert_eq!(sent.len(), 3, "round {round}");
    assert_eq!(reassemble(&sent)[8..], payload);
}

/// Sends a datagram to a home from a server, like [`passes_up`].
fn passes_down(
    world: &mut World,
    server: &str,
    public: (u32, u16),
    round: usize,
    mut between: impl FnMut(&mut World),
) {
    let payload = vec![3; 4000];
    let packet =
        build::ipv4(server, public.0).identification(round as u16).udp(53, public.1, &payload);
    let pieces = build::fragments(&packet, 1400);
    let mut inner = Vec::new();
    for index in ORDERS[round % 6] {
        let out = world.down(&pieces[index]).access;
        inner.extend(out.iter().map(|packet| decapsulate(packet).2));
        between(world);
    }
    assert_eq!(inner.len(), 3, "round {round}");
    assert_eq!(reassemble(&inner)[8..], payload);
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Returns the public endpoint of a home's socket that talks to port 53 of a server.
fn public_of(world: &mut World, home: &str, port: u16, server: &str) -> (u32, u16) {
    let sent = world.up(home, build::ipv4(PC, server).udp(port, 53, b"q")).into_internet();
    (ends(&sent).0, ends(&sent).1)
}

/// Makes a world in which floods are limited by the room for fragments alone, not by the home's
/// share of the slow path.
fn world_of_floods() -> World {
    let mut config = config();
    config.limits.slow_path_packets_per_sec = u32::MAX;
    World::new(config)
}

#[test]
fn u14a_a_home_that_floods_fragments_takes_none_from_others() {
    let mut world = world_of_floods();
    let public = public_of(&mut world, HOME_A, 7000, SERVER);
    public_of(&mut world, HOME_B, 5000, SERVER);
    let mut number = 0_u32;
    let mut flood = |world: &mut World| {
        for _ in 0..100 {
            number += 1;
            let identification = number as u16;
            // First fragments of the flooding home are forwarded all the time.
            if number.is_multiple_of(3) {
                let first = build::ipv4(PC, SERVER)
                    .identification(identification)
                    .fragment(0, true)
                    .payload(17, udp_head(5000, 53, 4000));
                assert_eq!(world.up(HOME_B, first).internet.len(), 1, "never refused");
            } else {
                world.up(HOME_B, tail(PC, SERVER, identification));
            }
        }
    };
    for round in 0..170 {
        passes_up(&mut world, HOME_A, round, &mut flood);
        passes_down(&mut world, SERVER, public, round, &mut flood);
    }
    assert!(number > 100_000);
}

/// Returns a UDP header of a datagram with `len` bytes of payload, and the first 24 bytes of it.
fn udp_head(source: u16, destination: u16, len: u16) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes(), (len + 8).to_be_bytes()];
    [&ports.concat()[..], &[0; 26]].concat()
}

#[test]
fn u14a_a_remote_that_floods_fragments_takes_none_from_others() {
    let mut world = world_of_floods();
    let public = public_of(&mut world, HOME_A, 7000, SERVER);
    let own = public_of(&mut world, HOME_B, 7000, SERVER_2);
    let mut number = 0_u32;
    let mut flood = |world: &mut World| {
        for _ in 0..100 {
            number += 1;
            let target = dotted([public.0, own.0][number as usize % 2]);
            world.down(tail(SERVER_2, &target, number as u16));
            // The remote talks to home B: its first fragments take slots of that home.
            let first = build::ipv4(SERVER_2, own.0)
                .identification(number as u16)
                .fragment(0, true)
                .payload(17, udp_head(53, own.1, 4000));
            assert_eq!(world.down(first).access.len().min(1), 1, "never refused");
        }
    };
    for round in 0..170 {
        passes_up(&mut world, HOME_A, round, &mut flood);
        passes_down(&mut world, SERVER, public, round, &mut flood);
    }
}

/// Forged remotes cannot be distinguished from others; datagrams that are charged to a home are out
/// of their reach.
#[test]
fn u14a_forged_remotes_stop_no_datagram_whose_first_fragment_comes_first() {
    let mut world = World::default();
    let public = public_of(&mut world, HOME_A, 7000, SERVER);
    let mut number = 0_u32;
    let mut flood = |world: &mut World| {
        for _ in 0..100 {
            number += 1;
            let forged = dotted("100.64.0.0".to_bits() + number);
            world.down(tail(&forged, &dotted(public.0), number as u16));
        }
    };
    for round in 0..60 {
        passes_up(&mut world, HOME_A, round, &mut flood);
        // In rounds that are multiples of six the first fragment comes first.
        passes_down(&mut world, SERVER, public, 6 * round, &mut flood);
    }
}

/// 300 homes are more than there are slots for early fragments, so these are dropped in order of
/// arrival.
#[test]
fn u14a_many_homes_that_flood_stop_no_datagram_whose_first_fragment_comes_first() {
    let mut world = World::default();
    let public = public_of(&mut world, HOME_A, 7000, SERVER);
    let mut number = 0_u32;
    let mut flood = |world: &mut World| {
        for _ in 0..300 {
            number += 1;
            let home = dotted("10.200.2.0".to_bits() + number % 300);
            world.up(&home, tail(PC, SERVER, number as u16));
        }
    };
    for round in 0..30 {
        passes_up(&mut world, HOME_A, 6 * round, &mut flood);
        passes_down(&mut world, SERVER, public, round, &mut flood);
    }
}

#[test]
fn u14a_fewer_homes_than_slots_stop_no_datagram_at_all() {
    let mut world = World::default();
    let mut number = 0_u32;
    let mut flood = |world: &mut World| {
        for _ in 0..500 {
            number += 1;
            let home = dotted("10.200.2.0".to_bits() + number % 100);
            world.up(&home, tail(PC, SERVER, number as u16));
        }
    };
    for round in 0..30 {
        passes_up(&mut world, HOME_A, round, &mut flood);
    }
}

/// Behind its public address a home is a remote that it shares with other homes: packets that it
/// hairpins must not count against those.
#[test]
fn u14a_hairpinned_fragments_of_one_home_take_none_from_others() {
    let mut config = config();
    config.nat.filtering = weir_nat::Filtering::EndpointIndependent;
    let mut world = World::new(config);
    let public = public_of(&mut world, HOME_A, 7000, SERVER);
    public_of(&mut world, HOME_B, 5000, SERVER);
    let mut number = 0_u32;
    let refused = |number: u32| {
        let address = "203.0.113.0".to_bits() + number % 8;
        build::ipv4(PC, address).identification(number as u16).udp(5000, 9, vec![0; 2000])
    };
    for round in 0..20 {
        let packet =
            build::ipv4(PC, public.0).identification(round).udp(5000, public.1, vec![9; 4000]);
        let mut inner = Vec::new();
        for piece in build::fragments(&packet, 1400) {
            let out = world.up("10.200.0.9", piece).access;
            inner.extend(out.iter().map(|packet| decapsulate(packet).2));
            for _ in 0..100 {
                number += 1;
                for piece in build::fragments(refused(number), 1400) {
                    assert!(world.up(HOME_B, piece).is_nothing());
                }
            }
        }
        assert_eq!(reassemble(&inner)[8..], [9; 4000]);
        // Early fragments from the internet still wait.
        passes_down(&mut world, SERVER_2, public, 1 + usize::from(round), |_| ());
    }
    assert_eq!(world.dropped(DropReason::FragmentLimit), 0, "no slot was taken from others");
    assert_eq!(world.dropped(DropReason::FragmentTimeout), u64::from(number));
}

#[test]
fn u14a_plain_access_shares_fragments_too() {
    let mut config = config();
    config.mode = weir_engine::AccessMode::Plain;
    config.shards.iter_mut().zip(["10.200.0.0/24", "10.200.1.0/24"]).for_each(|(shard, net)| {
        shard.endpoint = None;
        shard.subscribers = vec![net.parse().unwrap()];
    });
    let mut world = World::new(config);
    let (payload, _) = datagram();
    for round in 0..60 {
        let packet = build::ipv4(HOME_A, SERVER).identification(round).udp(5000, 53, &payload);
        let pieces = build::fragments(&packet, 1400);
        let mut sent = Vec::new();
        for index in ORDERS[usize::from(round) % 6] {
            sent.extend(world.packet(weir_engine::Side::Access, &pieces[index]).internet);
            for n in 0..200 {
                let tail = tail(HOME_B, SERVER, round * 600 + n);
                world.packet(weir_engine::Side::Access, &tail);
            }
        }
        assert_eq!(reassemble(&sent)[8..], payload);
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
fn homes_distinguished_by_key_never_share_a_datagram() {
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
        "a first fragment counts for the fragments of its own home only"
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
fn duplicate_first_fragment_keeps_one_identification_for_all() {
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
fn packet_that_the_worker_fragments_gets_a_new_identification() {
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

/// RFC 791: a datagram has at most 65,535 bytes. If this fragment was fragmented again, its offset
/// would overflow.
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
