//! ICMP errors, TTL, path MTU.

use weir_engine::{DropReason, MssClamp, Side};
use weir_wire::{build, gre, icmp, ipv4, tcp};

use crate::world::*;

/// Opens a UDP session from home A; returns its public endpoint and the packet as the internet saw
/// it.
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
    // RFC 5508 REQ-6: the session is unchanged.
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
    // The quote of a TCP packet may end eight bytes behind the IP header (RFC 792).
    let sent =
        world.up(HOME_A, build::ipv4(PC, SERVER).tcp(build::tcp(40000, 80).syn())).into_internet();
    let error = build::ipv4("192.0.2.99", ends(&sent).0).time_exceeded(&sent[..28]);
    world.down(error).into_home();
}

#[test]
fn expired_ttl_is_reported_in_both_directions() {
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
fn u13_packet_too_big_for_the_tunnel_is_refused_or_fragmented() {
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
fn u13_packet_too_big_for_the_internet_is_refused_or_fragmented() {
    let mut config = config();
    config.internet.mtu = 1400;
    let mut world = World::new(config);
    let big = build::ipv4(PC, SERVER).df(true).udp(5000, 53, vec![7; 1400]);
    let (_, _, error) = world.up(HOME_A, &big).into_home();
    let (_, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(error[at..at + 2], [3, 4]);
    assert_eq!(error[at + 6..at + 8], 1400_u16.to_be_bytes());
    assert_eq!(
        world.engine.nat().admin().gauges().flows,
        0,
        "no state for a packet that did not leave"
    );
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
fn i8_c11_refused_session_is_reported_by_an_icmp_error() {
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

/// Opens sessions between homes A and B; returns both public endpoints.
fn neighbours(world: &mut World) -> [(u32, u16); 2] {
    let open = |world: &mut World, home, port, to: (u32, u16)| {
        let sent = world.up(home, build::ipv4(PC, to.0).udp(port, to.1, b"x"));
        sent.internet.first().map(|packet| (ends(packet).0, ends(packet).1))
    };
    let a = open(world, HOME_A, 5000, (SERVER.to_bits(), 53)).unwrap();
    let b = open(world, HOME_B, 6000, (SERVER.to_bits(), 53)).unwrap();
    open(world, HOME_B, 6000, a);
    open(world, HOME_A, 5000, b);
    [a, b]
}

#[test]
fn i7a_an_error_about_a_hairpinned_packet_is_translated_twice() {
    let mut world = World::default();
    let [a, b] = neighbours(&mut world);
    let hello = build::ipv4(PC, b.0).udp(5000, b.1, b"hello neighbour");
    let (to, _, delivered) = world.up(HOME_A, hello).into_home();
    assert_eq!((to, ends(&delivered)), (HOME_B.to_bits(), (a.0, a.1, PC.to_bits(), 6000)));
    let error = build::ipv4(PC, a.0).port_unreachable(&delivered);
    let (to, _, error) = world.up(HOME_B, error).into_home();
    let (ip, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!((to, ip.source.get(), ip.destination.get()), (HOME_A.to_bits(), b.0, PC.to_bits()));
    assert_eq!(ends(&error[at + 8..]), (PC.to_bits(), 5000, b.0, b.1));
}

/// ICMP errors of the worker about a hairpinned packet stay inside too (RFC 5508 REQ-7a).
#[test]
fn icmp_errors_about_hairpinned_packets_are_hairpinned() {
    let mut config = config();
    config.internet.mtu = 1600;
    let mut world = World::new(config);
    let [_, b] = neighbours(&mut world);
    let big = build::ipv4(PC, b.0).df(true).udp(5000, b.1, vec![7; 1460]);
    let late = build::ipv4(PC, b.0).ttl(2).udp(5000, b.1, b"late");
    for (packet, kind) in [(big, [3, 4]), (late, [11, 0])] {
        let (to, _, error) = world.up(HOME_A, &packet).into_home();
        let (ip, at, _) = ipv4::parse(&error).unwrap();
        assert_eq!((to, ip.destination.get()), (HOME_A.to_bits(), PC.to_bits()));
        assert_eq!(error[at..at + 2], kind);
        assert_eq!(error[at + 20..at + 32], packet[12..24], "quoted ends as the home sent them");
    }
}

#[test]
fn errors_fit_the_smallest_tunnel() {
    let mut config = config();
    config.access.mtu = 576;
    let mut world = World::new(config);
    let probe = build::ipv4(PC, SERVER).ttl(1).udp(5000, 33434, [0; 540]);
    assert!(world.up(HOME_A, &probe).into_access().len() <= 576);
}

/// The MTUs come from the configuration; no value makes the engine panic.
#[test]
fn mtu_below_the_header_length_drops_packets() {
    let mut config = config();
    config.access.mtu = 20;
    let mut world = World::new(config);
    let (address, port, _) = session(&mut world);
    assert!(world.down(build::ipv4(SERVER, address).udp(53, port, b"y")).is_nothing());
    assert_eq!(world.dropped(DropReason::DontFragment), 1);
}

#[test]
fn redirects_stay_on_their_link() {
    let mut world = World::default();
    let (address, port, sent) = session(&mut world);
    let redirect = build::ipv4("192.0.2.99", address).icmp_error(5, 1, [6, 6, 6, 6], &sent);
    assert!(world.down(redirect).is_nothing());
    let answer = build::ipv4(SERVER, address).udp(53, port, b"answer");
    let (_, _, delivered) = world.down(answer).into_home();
    let redirect = build::ipv4(PC, SERVER).icmp_error(5, 1, [192, 168, 1, 1], &delivered);
    assert!(world.up(HOME_A, redirect).is_nothing());
    assert_eq!(world.dropped(DropReason::IcmpKind), 2);
}

#[test]
fn nothing_is_sent_to_an_outer_source_that_is_no_home() {
    let mut world = World::default();
    let stranger = "10.201.0.1";
    let probe = build::ipv4(PC, SERVER).ttl(1).udp(5000, 33434, b"traceroute");
    assert!(world.up(stranger, probe).is_nothing());
    let keepalive =
        build::ipv4(ENDPOINT, stranger).gre(build::gre().protocol(gre::PROTOCOL_KEEPALIVE), []);
    assert!(world.up(stranger, keepalive).is_nothing());
    assert_eq!(world.drops(), 2);
}

/// A packet of a home whose TTL expires at the worker.
fn probe(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).ttl(1).udp(port, 33434, b"traceroute")
}

/// A packet of a home that is too big for an internet side of 1400 bytes.
fn oversized(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).df(true).udp(port, 53, vec![7; 1400])
}

fn small_internet() -> World {
    let mut config = config();
    config.internet.mtu = 1400;
    World::new(config)
}

/// Returns how many of the packets that home B floods for two seconds, 50 a millisecond, get an
/// error; all of home A's, three together every 800 ms, do.
fn flood_beside(flood: impl Fn(u16) -> Vec<u8>, modest: impl Fn(u16) -> Vec<u8>) -> usize {
    let mut world = small_internet();
    let mut answered = 0;
    for ms in 0..2000_u16 {
        world.now.ms += 1;
        for n in 0..50 {
            answered += world.up(HOME_B, flood(n + 1)).access.len();
        }
        if ms.is_multiple_of(800) {
            for n in 0..3 {
                world.up(HOME_A, modest(n + 1)).into_home();
            }
        }
    }
    answered
}

#[test]
fn i9_a_home_that_floods_gets_its_rate_and_others_their_errors() {
    for flood in [probe, oversized] {
        for modest in [probe, oversized] {
            let answered = flood_beside(flood, modest);
            assert!((20..=60).contains(&answered), "20 and 20 a second: {answered}");
        }
    }
}

/// So many homes flood that together they exceed the worker's rate in any second.
#[test]
fn i9_many_homes_that_flood_leave_a_modest_one_its_errors() {
    let mut world = small_internet();
    let mut answered = 0;
    for ms in 0..3000_u32 {
        world.now.ms += 1;
        for n in 0..20 {
            let home = dotted("10.200.2.0".to_bits() + (ms * 20 + n) % 400);
            let packet = if n.is_multiple_of(2) { probe(9) } else { oversized(9) };
            answered += world.up(&home, packet).access.len();
        }
        // The flooding homes were modest for their first requests.
        if ms >= 1000 && ms.is_multiple_of(500) {
            for n in 1..=3 {
                world.up(HOME_A, probe(n)).into_home();
                world.up(HOME_A, oversized(n)).into_home();
            }
        }
    }
    assert!(answered <= 4000, "1000 a second and as many at once: {answered}");
    let limited = world.counters.icmp_errors_limited(Side::Access);
    assert_eq!(world.counters.icmp_errors(Side::Access), answered as u64 + 24);
    assert_eq!(limited, 60_000 - answered as u64);
}

#[test]
fn i9_forged_remotes_cannot_silence_the_errors_about_other_homes() {
    let mut config = config();
    config.nat.filtering = weir_nat::Filtering::EndpointIndependent;
    let mut world = World::new(config);
    let mut public_of = |home: &str| {
        let sent = world.up(home, build::ipv4(PC, SERVER).udp(5000, 53, b"q")).into_internet();
        (ends(&sent).0, ends(&sent).1)
    };
    let (victim, other) = (public_of(HOME_B), public_of(HOME_A));
    let big =
        |from: &str, to: (u32, u16)| build::ipv4(from, to.0).df(true).udp(53, to.1, vec![7; 1460]);
    let late = |from: &str, to: (u32, u16)| build::ipv4(from, to.0).ttl(1).udp(53, to.1, b"x");
    let mut answered = 0;
    for ms in 0..3000_u32 {
        world.now.ms += 1;
        for n in 0..20 {
            let forged = dotted("100.64.0.0".to_bits() + ms * 20 + n);
            let packet =
                if n.is_multiple_of(2) { big(&forged, victim) } else { late(&forged, victim) };
            answered += world.down(packet).internet.len();
        }
        if ms.is_multiple_of(500) {
            for server in [SERVER, SERVER_2] {
                world.down(big(server, other)).into_internet();
                world.down(late(server, other)).into_internet();
            }
            world.up(HOME_A, probe(9)).into_home();
        }
    }
    assert!(answered <= 2 * (20 + 60), "of each kind the home's rate: {answered}");
}

/// Homes behind one public address are distinguished when they talk to each other through it.
#[test]
fn i9_a_home_that_floods_its_neighbours_takes_no_errors_from_them() {
    let mut config = config();
    config.nat.shards[0].public = vec!["203.0.113.1/32".parse().unwrap()];
    let mut world = World::new(config);
    let [a, b] = neighbours(&mut world);
    assert_eq!(a.0, b.0, "behind one public address");
    let late = |to: (u32, u16), from: u16| build::ipv4(PC, to.0).ttl(2).udp(from, to.1, b"late");
    for ms in 0..2000_u16 {
        world.now.ms += 1;
        for _ in 0..20 {
            world.up(HOME_A, late(b, 5000));
        }
        if ms % 1000 == 999 {
            let (to, _, _) = world.up(HOME_B, late(a, 6000)).into_home();
            assert_eq!(to, HOME_B.to_bits());
        }
    }
    assert_eq!(world.counters.icmp_errors(Side::Internet), 0, "the errors went to homes");
}

#[test]
fn i9_errors_can_be_off_for_homes_and_for_the_internet() {
    let mut config = config();
    config.limits.icmp_errors_to_homes = false;
    let mut world = World::new(config.clone());
    assert!(world.up(HOME_A, probe(9)).is_nothing());
    let (address, port, _) = session(&mut world);
    world.down(build::ipv4(SERVER, address).ttl(1).udp(53, port, b"late")).into_internet();

    config.limits.icmp_errors_to_homes = true;
    config.limits.icmp_errors_to_internet = false;
    let mut world = World::new(config);
    world.up(HOME_A, probe(9)).into_home();
    let (address, port, _) = session(&mut world);
    assert!(world.down(build::ipv4(SERVER, address).ttl(1).udp(53, port, b"late")).is_nothing());
    assert_eq!(world.counters.icmp_errors_limited(Side::Internet), 0, "off is not limited");
    assert_eq!(world.dropped(DropReason::TtlExceeded), 2);
}

#[test]
fn i9_the_rates_are_those_configured() {
    let mut config = config();
    config.limits.icmp_errors_per_sec = 7;
    let mut world = World::new(config.clone());
    let sent = (0..100).filter(|_| !world.up(HOME_A, probe(9)).is_nothing()).count();
    assert_eq!(sent, 7);
    config.limits.worker_icmp_errors_per_sec = 0;
    let mut world = World::new(config);
    assert!(world.up(HOME_A, probe(9)).is_nothing());
    assert_eq!(world.counters.icmp_errors_limited(Side::Access), 1);
}

/// Sends a segment of a home in fragments; returns the sent fragments, the first one first.
fn fragmented(world: &mut World, home: &str, identification: u16, port: u16) -> Vec<Vec<u8>> {
    let packet =
        build::ipv4(PC, SERVER).identification(identification).udp(port, 53, vec![7; 2000]);
    build::fragments(&packet, 1400)
        .iter()
        .flat_map(|piece| world.up(home, piece).internet)
        .collect()
}

fn quoted_identification(error: &[u8]) -> u16 {
    let (_, at, _) = ipv4::parse(error).unwrap();
    ipv4::parse_quoted(&error[at + 8..]).unwrap().0.identification.get()
}

/// RFC 5508 REQ-4a: the quoted packet matches what the home sent, including its identification.
#[test]
fn i4a_an_error_about_a_fragment_quotes_the_homes_own_identification() {
    let mut world = World::default();
    for (home, identification) in [(HOME_A, 77), (HOME_B, 77), (HOME_A, 78)] {
        let sent = fragmented(&mut world, home, identification, 5000);
        assert_ne!(ipv4::parse(&sent[0]).unwrap().0.identification.get(), identification);
        let error = build::ipv4("192.0.2.99", ends(&sent[0]).0).time_exceeded(&sent[0][..600]);
        let (to, _, inner) = world.down(error).into_home();
        assert_eq!((to, quoted_identification(&inner)), (home.to_bits(), identification));
        let (_, at, _) = ipv4::parse(&inner).unwrap();
        assert!(ipv4::header_checksum_ok(&inner[at + 8..]));
    }
}

/// The same as above for a packet that the worker itself fragmented.
#[test]
fn i4a_error_about_a_fragmented_packet_quotes_the_homes_identification() {
    let mut world = small_internet();
    let packet = build::ipv4(PC, SERVER).identification(99).udp(5000, 53, vec![7; 1400]);
    let sent = world.up(HOME_A, packet).internet;
    assert_eq!(sent.len(), 2);
    let error = build::ipv4(SERVER, ends(&sent[0]).0).time_exceeded(&sent[0]);
    let (_, _, inner) = world.down(error).into_home();
    assert_eq!(quoted_identification(&inner), 99);
}

#[test]
fn i4a_the_quote_of_a_whole_packet_or_of_a_datagram_long_gone_keeps_its_identification() {
    let mut config = config();
    // 20,000 datagrams of one home come at once.
    config.limits.slow_path_packets_per_sec = u32::MAX;
    let mut world = World::new(config);
    let sent = fragmented(&mut world, HOME_A, 77, 5000);
    let identification = ipv4::parse(&sent[0]).unwrap().0.identification.get();
    // A whole packet that has the same identification by chance.
    let public = ends(&sent[0]);
    let whole = build::ipv4(public.0, SERVER).identification(identification);
    let whole = whole.udp(public.1, 53, b"x");
    let (_, _, inner) = world.down(build::ipv4(SERVER, public.0).time_exceeded(&whole)).into_home();
    assert_eq!(quoted_identification(&inner), identification);
    for n in 0..20_000 {
        fragmented(&mut world, HOME_B, n, 5000);
    }
    let late = build::ipv4(SERVER, public.0).time_exceeded(&sent[0]);
    let (_, _, inner) = world.down(late).into_home();
    assert_eq!(quoted_identification(&inner), identification, "the home's own one is lost");
}

/// A packet fits the tunnel of one home and not that of another, whose key arrived with a copy of
/// its mapping.
#[test]
fn copied_key_of_a_home_lowers_the_mtu_before_a_packet_exceeds_it() {
    let big = |public: (u32, u16), len: usize| {
        build::ipv4(SERVER, public.0).df(true).udp(53, public.1, vec![0; len - 28])
    };
    let mut pair = pair::Pair::new(config());
    pair.b.engine.nat_mut().replica_mut().set_replicated_lanes(pair::SHARD, 0xff);
    let question = || build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let keyless = ends(&pair.a.up(HOME_B, question()).into_internet());
    pair.a.down(big((keyless.0, keyless.1), 1476)).into_home();
    let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(1), question());
    let keyed = ends(&pair.b.packet(Side::Access, &outer).into_internet());
    let mut body = [0; weir_nat::BODY_MAX];
    while let Some((change, len)) = pair.b.engine.nat_mut().replica_mut().next_change(&mut body) {
        pair.a.engine.nat_mut().replica_mut().apply(&change, &body[..len], weir_nat::Tick(1));
    }
    let error = pair.a.down(big((keyed.0, keyed.1), 1473)).into_internet();
    let (_, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(error[at + 6..at + 8], 1472_u16.to_be_bytes());
    pair.a.down(big((keyed.0, keyed.1), 1472)).into_home();
    pair.a.down(big((keyless.0, keyless.1), 1476)).into_home();
}

#[test]
fn home_that_begins_to_send_a_key_lowers_its_tunnel_mtu() {
    let mut world = World::default();
    let question = || build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let public = ends(&world.up(HOME_A, question()).into_internet());
    let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre().key(1), question());
    world.packet(Side::Access, &outer).into_internet();
    let big = build::ipv4(SERVER, public.0).df(true).udp(53, public.1, vec![0; 1473 - 28]);
    let error = world.down(big).into_internet();
    let (_, at, _) = ipv4::parse(&error).unwrap();
    assert_eq!(error[at..at + 2], [3, 4]);
}
