//! Packets without a mapping at one worker are redirected once, to the worker that has it, and
//! processed there as if they had come directly.

use weir_engine::{Direction, DropReason, Misses, Redirects, Side};
use weir_nat::{BODY_MAX, Filtering, Tick};
use weir_wire::icmp;
use weir_wire::{build, gre, ipv4};

use crate::world::pair::{A, B, Pair, SHARD};
use crate::world::*;

fn udp() -> Vec<u8> {
    build::ipv4(PC, SERVER).ttl(64).udp(5000, 53, b"query")
}

fn reply(to: (u32, u16)) -> Vec<u8> {
    build::ipv4(SERVER, to.0).ttl(64).udp(53, to.1, b"answer")
}

fn redirected(world: &World) -> [u64; 2] {
    [Direction::Receive, Direction::Transmit].map(|direction| world.counters.redirected(direction))
}

/// Returns the packet inside an IPIP packet of A to B.
fn in_ipip(packet: &[u8]) -> &[u8] {
    let (ip, header_len, _) = ipv4::parse(packet).unwrap();
    assert_eq!(ip.protocol, ipv4::PROTOCOL_IPIP);
    assert_eq!((ip.source.get(), ip.destination.get()), (A.to_bits(), B.to_bits()));
    &packet[header_len..]
}

/// Applies all changes of B at A.
fn replicate(pair: &mut Pair) {
    let mut body = [0; BODY_MAX];
    while let Some((change, len)) = pair.b.engine.nat_mut().replica_mut().next_change(&mut body) {
        pair.a.engine.nat_mut().replica_mut().apply(&change, &body[..len], Tick(1));
    }
}

#[test]
fn new_flow_is_redirected_and_made_at_the_other_worker() {
    let mut pair = Pair::redirecting();
    pair.b.engine.nat_mut().replica_mut().set_replicated_lanes(SHARD, 0xff);
    let packet = build::ipv4(HOME_A, ENDPOINT).tos(0x48).gre(build::gre().key(77), udp());
    let out = pair.a.packet(Side::Access, &packet);
    assert_eq!(out.next_hops, [pair.b.macs[0]]);
    let whole = in_ipip(&out.access[0]);
    let (ip, header_len, _) = ipv4::parse(whole).unwrap();
    assert_eq!(
        (dotted(ip.source.get()), dotted(ip.destination.get())),
        (HOME_A.into(), ENDPOINT.into())
    );
    let header = gre::parse(&whole[header_len..]).unwrap();
    assert_eq!(header.key, Some(77));
    assert_eq!(whole[header_len + header.len..], udp(), "the home's packet is as it was");
    let sent = pair.deliver(&out).into_internet();
    let (_, _, to, port) = ends(&sent);
    assert_eq!((dotted(to), port), (SERVER.to_owned(), 53));
    assert_eq!(ipv4::parse(&sent).unwrap().0.ttl, 63, "one hop");
    assert_eq!((redirected(&pair.a), redirected(&pair.b)), ([0, 1], [1, 0]));
    // The answer arrives at B, and goes to the home from there.
    let (home, header, inner) = pair.b.down(reply((ends(&sent).0, ends(&sent).1))).into_home();
    assert_eq!((dotted(home), header.key), (HOME_A.to_owned(), Some(77)));
    assert_eq!(dotted(ends(&inner).2), PC);
    assert_eq!(
        (pair.a.engine.nat().admin().gauges().flows, pair.b.engine.nat().admin().gauges().flows),
        (0, 1)
    );
    // Once A has the changes, it translates itself, to the same endpoint.
    replicate(&mut pair);
    assert_eq!(pair.a.packet(Side::Access, &packet).into_internet()[..20], sent[..20]);
    assert_eq!(pair.drops(), 0);
}

#[test]
fn packet_from_the_internet_is_redirected_to_the_worker_with_its_flow() {
    let mut pair = Pair::redirecting();
    let sent = pair.b.up(HOME_A, udp()).into_internet();
    let answer = reply((ends(&sent).0, ends(&sent).1));
    let out = pair.a.down(&answer);
    assert_eq!(in_ipip(&out.access[0]), answer);
    let (home, _, inner) = pair.deliver(&out).into_home();
    assert_eq!((dotted(home), dotted(ends(&inner).2)), (HOME_A.to_owned(), PC.to_owned()));
    // A port without a mapping: dropped by the second worker, not by the first.
    let out = pair.a.down(reply((ends(&sent).0, 65_000)));
    assert!(pair.deliver(&out).is_nothing());
    assert_eq!(pair.b.dropped(DropReason::NoMapping), 1);
    assert_eq!(pair.drops(), 1);
}

#[test]
fn packet_that_a_mapping_filters_is_not_redirected() {
    let mut pair = Pair::new(config());
    let sent = pair.a.up(HOME_A, udp()).into_internet();
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let foreign = build::ipv4(SERVER_2, ends(&sent).0).udp(53, ends(&sent).1, b"y");
    assert!(pair.a.down(foreign).is_nothing());
    assert_eq!(pair.a.dropped(DropReason::Filtered), 1);
    pair.a.up(HOME_A, udp()).into_internet();
    assert_eq!(redirected(&pair.a), [0, 0]);
}

/// In the middle of a connection that only B knows; A has nothing, or the mapping for another
/// remote.
#[test]
fn segments_are_redirected_to_the_worker_that_knows_the_connection() {
    for is_mapping_known in [false, true] {
        let mut pair = Pair::new(config());
        let syn = |server| build::ipv4(PC, server).tcp(build::tcp(5000, 80).syn());
        let ack = build::ipv4(PC, SERVER).tcp(build::tcp(5000, 80).ack());
        if is_mapping_known {
            pair.a.up(HOME_A, syn(SERVER_2)).into_internet();
        }
        pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
        pair.b.up(HOME_A, syn(SERVER)).into_internet();
        let out = pair.a.up(HOME_A, ack);
        pair.deliver(&out).into_internet();
        assert_eq!(pair.drops(), 0);
    }
}

#[test]
fn later_fragments_are_redirected_with_their_first_fragment() {
    let datagram = build::ipv4(PC, SERVER).identification(9).udp(5000, 53, [7; 4000]);
    let pieces = build::fragments(&datagram, 1400);
    for order in [[0, 1, 2], [2, 0, 1], [2, 1, 0]] {
        let mut pair = Pair::redirecting();
        let (mut sent, mut bytes) = (Vec::new(), 0);
        for index in order {
            let out = pair.a.up(HOME_A, &pieces[index]);
            sent.extend(pair.deliver(&out).internet);
        }
        for piece in &sent {
            bytes += piece.len() - 20;
        }
        assert_eq!((sent.len(), bytes), (3, 4008), "{order:?}");
        assert_eq!((pair.drops(), redirected(&pair.a)), (0, [0, 3]));
        // The answer, in fragments too.
        let (address, port, ..) = ends(&sent[0]);
        let answer = build::ipv4(SERVER, address).identification(5).udp(53, port, [8; 4000]);
        let pieces = build::fragments(&answer, 1400);
        let mut home = 0;
        for index in order {
            let out = pair.a.down(&pieces[index]);
            home += pair.deliver(&out).access.len();
        }
        assert_eq!((home, pair.drops()), (3, 0), "{order:?}");
        assert_eq!(pair.a.pool.alive() + pair.b.pool.alive(), 0);
    }
}

/// The datagram began to go to B; then A was ordered to translate the shard itself.
#[test]
fn rest_of_a_redirected_datagram_is_dropped_when_the_duty_changes() {
    let datagram = build::ipv4(PC, SERVER).identification(9).udp(5000, 53, [7; 3000]);
    let pieces = build::fragments(&datagram, 1400);
    let mut pair = Pair::redirecting();
    assert_eq!(pair.a.up(HOME_A, &pieces[0]).access.len(), 1);
    pair.a.engine.setup().set_misses(SHARD, Misses::Create);
    assert!(pair.a.up(HOME_A, &pieces[1]).is_nothing());
    assert_eq!((pair.a.dropped(DropReason::MissRefused), pair.drops()), (1, 1));
    // The whole datagram, sent again, takes the new way.
    for piece in &pieces {
        pair.a.up(HOME_A, piece).into_internet();
    }
}

#[test]
fn redirected_packet_beyond_the_mtu_is_fragmented_inside_or_refused() {
    let mut pair = Pair::redirecting();
    // 1,500 bytes without two outer headers and the GRE header.
    let inner = |len: usize, df| build::ipv4(PC, SERVER).df(df).udp(5000, 53, vec![1; len - 28]);
    let out = pair.a.up(HOME_A, inner(1456, true));
    assert_eq!(out.access[0].len(), 1500);
    pair.deliver(&out).into_internet();
    let (_, _, error) = pair.a.up(HOME_A, inner(1457, true)).into_home();
    assert_eq!(
        (error[20], error[21]),
        (icmp::DESTINATION_UNREACHABLE, icmp::CODE_FRAGMENTATION_NEEDED)
    );
    assert_eq!(u16::from_be_bytes([error[26], error[27]]), 1456);
    assert_eq!(pair.a.dropped(DropReason::DontFragment), 1);
    let out = pair.a.up(HOME_A, inner(1457, false));
    assert_eq!(out.access.len(), 2);
    let sent = pair.deliver(&out).internet;
    assert_eq!(sent.iter().map(|piece| piece.len() - 20).sum::<usize>(), 1437);
    // From the internet, without a tunnel: 24 bytes more.
    let (address, port, ..) = ends(&sent[0]);
    let answer =
        |len: usize, df| build::ipv4(SERVER, address).df(df).udp(53, port, vec![1; len - 28]);
    // The link carries 1,480 bytes of it to B, but the home's tunnel no more than 1,476.
    let out = pair.a.down(answer(1476, true));
    assert_eq!(out.access[0].len(), 1496);
    pair.deliver(&out).into_home();
    let out = pair.a.down(answer(1480, true));
    assert_eq!(out.access[0].len(), 1500);
    let error = pair.deliver(&out).into_internet();
    assert_eq!(u16::from_be_bytes([error[26], error[27]]), 1476);
    let error = pair.a.down(answer(1481, true)).into_internet();
    assert_eq!(u16::from_be_bytes([error[26], error[27]]), 1480);
    let out = pair.a.down(answer(1481, false));
    assert_eq!((out.access.len(), pair.deliver(&out).access.len()), (2, 2));
    assert_eq!((pair.a.dropped(DropReason::DontFragment), pair.drops()), (2, 3));
}

#[test]
fn icmp_errors_are_redirected_to_the_worker_with_the_flow() {
    let mut pair = Pair::redirecting();
    let sent = pair.b.up(HOME_A, udp()).into_internet();
    let answer = reply((ends(&sent).0, ends(&sent).1));
    let (_, _, inner) = pair.b.down(&answer).into_home();
    let out = pair.a.up(HOME_A, build::ipv4(PC, SERVER).port_unreachable(&inner));
    let error = pair.deliver(&out).into_internet();
    assert_eq!((error[20], ends(&error).0), (icmp::DESTINATION_UNREACHABLE, ends(&sent).0));
    let out = pair.a.down(build::ipv4("192.0.2.9", ends(&sent).0).time_exceeded(&sent));
    let (home, _, error) = pair.deliver(&out).into_home();
    assert_eq!((dotted(home), error[20]), (HOME_A.to_owned(), icmp::TIME_EXCEEDED));
    assert_eq!(pair.drops(), 0);
    // Not addressed to the address that it quotes.
    let forged = build::ipv4("192.0.2.9", ends(&sent).0 ^ 1).time_exceeded(&sent);
    assert!(pair.a.down(forged).is_nothing());
    assert_eq!(pair.a.dropped(DropReason::IcmpErrorUnmatched), 1);
}

#[test]
fn packet_is_dropped_while_the_other_worker_cannot_be_reached() {
    let mut pair = Pair::strangers(config());
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    assert!(pair.a.up(HOME_A, udp()).is_nothing());
    assert!(pair.a.engine.setup().add_peer(B));
    assert!(pair.a.up(HOME_A, udp()).is_nothing());
    assert_eq!(pair.a.dropped(DropReason::PeerNoSession), 1);
    pair.a.engine.setup().set_redirects(B, Redirects::Plain);
    assert!(pair.a.up(HOME_A, udp()).is_nothing());
    assert_eq!((pair.a.dropped(DropReason::PeerUnresolved), pair.drops()), (2, 3));
    assert_eq!(redirected(&pair.a), [0, 0]);
}

/// Whether redirected packets in the clear are accepted depends on the session alone, and changes
/// with it in either direction.
#[test]
fn unsealed_redirects_are_accepted_only_from_an_earlier_version() {
    let mut pair = Pair::redirecting();
    let sealed = Redirects::Sealed { front: 24, behind: 16 };
    let forms = [sealed, Redirects::Refused, Redirects::Plain, sealed, Redirects::Plain];
    for (redirects, refused) in forms.into_iter().zip([1, 2, 2, 3, 3]) {
        pair.b.engine.setup().set_redirects(A, redirects);
        let stray = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), udp());
        let out = pair.b.packet(Side::Access, &build::ipv4(A.to_bits(), B.to_bits()).ipip(stray));
        assert_eq!(out.is_nothing(), redirects != Redirects::Plain, "{redirects:?}");
        assert_eq!(pair.b.dropped(DropReason::RedirectUnsealed), refused);
    }
}

#[test]
fn flood_of_forged_remotes_does_not_overload_the_other_worker() {
    let mut pair = Pair::redirecting();
    let scan = |n: u32| {
        let forged = "100.64.0.0".to_bits() + n;
        build::ipv4(forged, "203.0.113.1").udp(53, 1024 + (n / 6) as u16, b"x")
    };
    // All but the quarter reserved for homes.
    for n in 0..75_100 {
        assert_eq!(pair.a.down(scan(n)).access.len(), usize::from(n < 75_000));
    }
    assert_eq!((pair.a.dropped(DropReason::RedirectLimit), pair.drops()), (100, 100));
    pair.a.now.ms += 1;
    assert_eq!((80_000..80_200).filter(|&n| pair.a.down(scan(n)).access.len() == 1).count(), 75);
    in_ipip(&pair.a.up(HOME_A, udp()).into_access());
}

#[test]
fn a_home_that_floods_unknown_flows_leaves_the_redirects_of_others() {
    let mut config = config();
    config.limits.redirects_per_sec = 50;
    let mut pair = Pair::new(config);
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let packet = |port| build::ipv4(PC, SERVER).ttl(64).udp(port, 53, b"query");
    let sent = (0..200).filter(|&n| pair.a.up(HOME_A, packet(5000 + n)).access.len() == 1);
    assert_eq!(sent.count(), 50);
    assert_eq!(pair.a.dropped(DropReason::RedirectLimit), 150);
    assert_eq!(pair.a.up(HOME_B, packet(5000)).access.len(), 1);
    pair.a.now.ms += 100;
    let sent = (0..200).filter(|&n| pair.a.up(HOME_A, packet(6000 + n)).access.len() == 1);
    assert_eq!(sent.count(), 5);
}

#[test]
fn plain_mode_packets_are_redirected_without_a_tunnel() {
    let mut pair = Pair::new(plain());
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let packet = build::ipv4(HOME_A, SERVER).ttl(64).udp(5000, 53, b"query");
    let out = pair.a.packet(Side::Access, &packet);
    assert_eq!(in_ipip(&out.access[0]), packet);
    let sent = pair.deliver(&out).into_internet();
    let answer = reply((ends(&sent).0, ends(&sent).1));
    let out = pair.a.down(&answer);
    assert_eq!(in_ipip(&out.access[0]), answer);
    let home = pair.deliver(&out).into_access();
    assert_eq!(dotted(ends(&home).2), HOME_A);
    assert_eq!(pair.drops(), 0);
    // B would take these for packets of a home.
    for forged in [HOME_A, HOME_B, "10.200.200.1"] {
        let packet = build::ipv4(forged, ends(&sent).0).udp(53, 65_000, b"forged");
        assert!(pair.a.down(packet).is_nothing());
    }
    assert_eq!((pair.a.dropped(DropReason::NoMapping), pair.drops()), (3, 3));
}

#[test]
fn two_homes_of_one_shard_at_two_workers_meet() {
    let mut config = config();
    config.nat.filtering = Filtering::EndpointIndependent;
    let mut pair = Pair::new(config);
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let public = ends(&pair.b.up(HOME_B, udp()).into_internet());
    // The other home's flow is known at A.
    pair.a.engine.setup().set_misses(SHARD, Misses::Create);
    pair.a.up(HOME_A, udp()).into_internet();
    pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
    let call = build::ipv4(PC, public.0).udp(5000, public.1, b"hello");
    let out = pair.a.up(HOME_A, call);
    let (home, _, _) = pair.deliver(&out).into_home();
    assert_eq!((dotted(home), pair.drops()), (HOME_B.to_owned(), 0));
}

#[test]
fn homes_that_flood_the_other_worker_leave_a_modest_one_its_redirects() {
    let mut pair = Pair::redirecting();
    let mut sent = [0; 12];
    for n in 0..12_000_u32 {
        for (home, sent) in (0..).zip(&mut sent) {
            let home = dotted("10.200.2.0".to_bits() + home);
            let packet = build::ipv4(PC, SERVER).udp(1024 + (n % 60_000) as u16, 53, b"x");
            *sent += pair.a.up(&home, packet).access.len();
        }
    }
    // The flooding homes first take the half of 100,000 that is open to any party, and some of the
    // reserved part.
    assert!(sent.iter().all(|&sent| sent <= 10_000), "{sent:?}");
    assert!(sent.iter().sum::<usize>() <= 75_000, "{sent:?}");
    for port in 1..100 {
        let packet = build::ipv4(PC, SERVER).udp(port, 53, b"x");
        in_ipip(&pair.a.up(HOME_A, packet).into_access());
    }
    in_ipip(&pair.a.down(reply(("203.0.113.1".to_bits(), 9))).into_access());
}

#[test]
fn a_remote_that_scans_takes_no_redirects_from_homes_or_other_remotes() {
    let mut pair = Pair::redirecting();
    let scan = |n: u16| build::ipv4(SERVER_2, "203.0.113.1").udp(9, n, b"x");
    let sent: usize = (1..=20_000).map(|n| pair.a.down(scan(n)).access.len()).sum();
    assert_eq!(sent, 10_000);
    assert_eq!(pair.a.dropped(DropReason::RedirectLimit), 10_000);
    in_ipip(&pair.a.down(reply(("203.0.113.1".to_bits(), 9))).into_access());
    in_ipip(&pair.a.up(HOME_A, udp()).into_access());
}
