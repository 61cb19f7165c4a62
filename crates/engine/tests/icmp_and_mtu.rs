//! ICMP errors, time to live, path MTU.

mod world;

use weir_engine::{DropReason, MssClamp, Side};
use weir_wire::{build, icmp, ipv4, tcp};
use world::*;

/// A UDP session from home A; returns its public endpoint and the packet as the internet saw it.
fn session(world: &mut World) -> (u32, u16, Vec<u8>) {
    let sent = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"question")).into_internet();
    let (address, port, _, _) = ends(&sent);
    (address, port, sent)
}

#[test]
fn i4_u12_an_error_from_any_router_finds_the_home() {
    let mut world = World::default();
    let (address, _, sent) = session(&mut world);
    let error = build::ipv4("192.0.2.99", address).port_unreachable(&sent);
    let (to, _, inner) = world.down(error).into_home();
    assert_eq!(to, HOME_A.to_bits());
    let (ip, at, _) = ipv4::parse(&inner).unwrap();
    assert_eq!((ip.source.get(), ip.destination.get()), ("192.0.2.99".to_bits(), PC.to_bits()));
    assert_eq!(ends(&inner[at + 8..]), (PC.to_bits(), 5000, SERVER.to_bits(), 53));
    // RFC 5508 REQ-6: the session is as it was.
    let answer = build::ipv4(SERVER, address).udp(53, ends(&sent).1, b"answer");
    world.down(answer).into_home();
}

#[test]
fn i5_an_error_from_inside_quotes_the_public_endpoint() {
    let mut world = World::default();
    let (address, port, _) = session(&mut world);
    let (_, _, delivered) =
        world.down(build::ipv4(SERVER, address).udp(53, port, b"answer")).into_home();
    for speaker in [PC, "192.168.1.1"] {
        let error = build::ipv4(speaker, SERVER).port_unreachable(&delivered);
        let sent = world.up(HOME_A, error).into_internet();
        let (ip, at, _) = ipv4::parse(&sent).unwrap();
        assert_eq!(ip.source.get(), address, "RFC 5508 REQ-5");
        assert_eq!(ends(&sent[at + 8..]), (SERVER.to_bits(), 53, address, port));
    }
}

#[test]
fn i3_i4a_bad_or_foreign_errors_are_dropped() {
    let mut world = World::default();
    let (address, _, sent) = session(&mut world);
    let mut bad = build::ipv4(SERVER, address).port_unreachable(&sent);
    bad[22] ^= 1;
    assert!(world.down(bad).is_nothing());
    let mut quote = sent.clone();
    quote[10] ^= 1;
    assert!(world.down(build::ipv4(SERVER, address).port_unreachable(&quote)).is_nothing());
    assert_eq!(world.dropped(DropReason::IcmpChecksum), 2);
    let foreign = build::ipv4(address, SERVER).udp(4321, 53, b"never sent");
    assert!(world.down(build::ipv4(SERVER, address).port_unreachable(&foreign)).is_nothing());
    assert_eq!(world.dropped(DropReason::IcmpErrorUnmatched), 1);
}

#[test]
fn errors_about_tcp_and_ping_are_translated_too() {
    let mut world = World::default();
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).syn());
    let ping = build::ipv4(PC, SERVER).icmp_echo_request(77, 1, b"payload");
    for packet in [syn, ping] {
        let sent = world.up(HOME_A, &packet).into_internet();
        let error = build::ipv4("192.0.2.99", ends(&sent).0).time_exceeded(&sent);
        let (_, _, inner) = world.down(error).into_home();
        let (_, at, _) = ipv4::parse(&inner).unwrap();
        let (quoted, _) = (ends(&inner[at + 8..]), ());
        assert_eq!(quoted, ends(&packet));
    }
    // The quote of TCP may be cut to eight bytes behind the IP header (RFC 792).
    let sent =
        world.up(HOME_A, build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).syn())).into_internet();
    let error = build::ipv4("192.0.2.99", ends(&sent).0).time_exceeded(&sent[..28]);
    world.down(error).into_home();
}

#[test]
fn ttl_ends_here_in_both_directions() {
    let mut world = World::default();
    let probe = build::ipv4(PC, SERVER).ttl(1).udp(5000, 33434, b"traceroute");
    let (to, _, error) = world.up(HOME_A, &probe).into_home();
    assert_eq!(to, HOME_A.to_bits());
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!((ip.source.get(), ip.destination.get()), (ENDPOINT.to_bits(), PC.to_bits()));
    assert_eq!(error[at], icmp::TIME_EXCEEDED);
    assert_eq!(error[at + 8..], probe, "the packet is quoted as the home sent it");

    let (address, port, _) = session(&mut world);
    let late = build::ipv4(SERVER, address).ttl(1).udp(53, port, b"late");
    let error = world.down(late).into_internet();
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(ip.source.get(), WORKER_INTERNET.to_bits());
    assert_eq!((error[at], ip.destination.get()), (icmp::TIME_EXCEEDED, SERVER.to_bits()));
    assert_eq!(world.dropped(DropReason::TtlExceeded), 2);
}

#[test]
fn u13_too_big_for_the_tunnel() {
    let mut world = World::default();
    let (address, port, _) = session(&mut world);
    let payload = vec![7; 1460];
    let big = build::ipv4(SERVER, address).df(true).udp(53, port, &payload);
    let error = world.down(&big).into_internet();
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(ip.destination.get(), SERVER.to_bits());
    assert_eq!(error[at..at + 2], [3, 4]);
    assert_eq!(error[at + 6..at + 8], 1476_u16.to_be_bytes());
    assert_eq!(world.dropped(DropReason::DontFragment), 1);

    let big = build::ipv4(SERVER, address).df(false).udp(53, port, &payload);
    let pieces = world.down(&big).access;
    assert_eq!(pieces.len(), 2);
    let mut data = Vec::new();
    for piece in &pieces {
        assert!(piece.len() <= 1500);
        let (to, _, inner) = decapsulate(piece);
        let (ip, at, _) = ipv4::parse(&inner).unwrap();
        assert_eq!((to, ip.fragment_offset()), (HOME_A.to_bits(), data.len()));
        assert_eq!(ip.destination.get(), PC.to_bits());
        data.extend_from_slice(&inner[at..]);
    }
    assert_eq!(data[8..], payload);
    let ports = [53_u16.to_be_bytes(), 5000_u16.to_be_bytes()].concat();
    assert_eq!(data[..4], ports);
}

#[test]
fn u13_too_big_for_the_internet_side() {
    let mut config = config();
    config.internet.mtu = 1400;
    let mut world = World::new(config);
    let big = build::ipv4(PC, SERVER).df(true).udp(5000, 53, vec![7; 1400]);
    let (_, _, error) = world.up(HOME_A, &big).into_home();
    let (_, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(error[at..at + 2], [3, 4]);
    assert_eq!(error[at + 6..at + 8], 1400_u16.to_be_bytes());
    assert_eq!(world.engine.nat().gauges().flows, 0, "no state for a packet that did not leave");
    let pieces = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, vec![7; 1400])).internet;
    assert_eq!(pieces.len(), 2);
}

#[test]
fn a_keyed_tunnel_carries_four_bytes_less() {
    let mut world = World::default();
    let inner = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(1), &inner);
    let public = ends(&world.packet(Side::Access, &outer).into_internet());
    let fits =
        |len: usize| build::ipv4(SERVER, public.0).df(true).udp(53, public.1, vec![0; len - 28]);
    world.down(fits(1472)).into_home();
    world.down(fits(1473)).into_internet();
}

#[test]
fn i8_c11_a_refused_session_is_told() {
    let mut config = config();
    config.nat.flows_max = 2;
    let mut world = World::new(config);
    for port in [5000, 5001] {
        world.up(HOME_A, build::ipv4(PC, SERVER).udp(port, 53, b"x")).into_internet();
    }
    let (_, _, error) = world.up(HOME_A, build::ipv4(PC, SERVER).udp(5002, 53, b"x")).into_home();
    let (_, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(error[at..at + 2], [3, 13]);
    assert_eq!(world.dropped(DropReason::TableFull), 1);
    world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"old flows go on")).into_internet();
}

#[test]
fn no_error_about_an_error_or_a_later_fragment() {
    let mut world = World::default();
    let (_, _, sent) = session(&mut world);
    let error = build::ipv4(PC, SERVER).ttl(1).port_unreachable(&sent);
    assert!(world.up(HOME_A, error).is_nothing());
    let later = build::ipv4(PC, SERVER).ttl(1).fragment(1480, false).payload(17, b"tail");
    assert!(world.up(HOME_A, later).is_nothing());
}

#[test]
fn clamping_can_be_off() {
    let mut config = config();
    config.mss_clamp = MssClamp::Off;
    let mut world = World::new(config);
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).flags(tcp::SYN).mss(1460));
    let sent = world.up(HOME_A, syn).into_internet();
    assert_eq!(sent[20 + 22..20 + 24], 1460_u16.to_be_bytes());
}
