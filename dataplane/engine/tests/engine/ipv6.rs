//! IPv6 of homes behind GRE tunnels, and of homes without a tunnel.

use weir_engine::*;
use weir_nat::{Delegation, RuleAction};
use weir_rules::FlowOrigin;
use weir_wire::build;
use weir_wire::icmp6;
use weir_wire::ipv6::{self as ip6, Ipv6};
use weir_wire::{gre, tcp};

use crate::world::ipv6::{address, address6, decapsulate6, dual_stack, with_ipv6};
use crate::world::link6::ready6;
use crate::world::rules::load6;
use crate::world::{ENDPOINT, Out, World, config, plain};

const HOME: &str = "10.200.0.1";
const OTHER_HOME: &str = "10.200.0.2";
const HOST: &str = "2001:db8:1000:1::7";
const OTHER_HOST: &str = "2001:db8:1000:2::7";
const SERVER: &str = "2001:db8:9::1";
const WORKER: &str = "2001:db8:2::1";

fn without_tunnels() -> World {
    let mut config = with_ipv6(plain());
    config.nat.delegation = Some(Delegation::Prefix { home_length: 64 });
    ready6(config)
}

fn udp(source: &str, destination: &str) -> Vec<u8> {
    let (from, to) = if source == SERVER { (53, 5000) } else { (5000, 53) };
    build::ipv6(source, destination).udp(from, to, b"data")
}

fn syn(source: &str, destination: &str) -> Vec<u8> {
    build::ipv6(source, destination).tcp(build::tcp(5000, 443).syn().mss(1440))
}

impl World {
    /// Passes in a packet of a home without a tunnel.
    fn plain6(&mut self, packet: impl AsRef<[u8]>) -> Out {
        self.packet6(Side::Access, packet.as_ref())
    }
}

/// Returns the packet with its hop limit lowered by one.
fn hopped(mut packet: Vec<u8>) -> Vec<u8> {
    packet[7] -= 1;
    packet
}

/// Returns the type, the code and the last word of an ICMPv6 error, and its quote.
fn error_of(packet: &[u8]) -> (u8, u8, u32, &[u8]) {
    let (ip, _) = ip6::parse(packet).unwrap();
    let message = &packet[Ipv6::LEN..];
    assert_eq!(ip.next_header, ip6::PROTOCOL_ICMPV6);
    assert!(icmp6::checksum_ok(ip.source.get(), ip.destination.get(), message));
    let header = icmp6::parse(message).unwrap();
    (header.kind, header.code, header.mtu(), &message[8..])
}

#[test]
fn home_reaches_a_server_and_its_answer_comes_back_in_the_tunnel() {
    let mut world = dual_stack();
    for _ in 0..3 {
        let sent = world.up6(HOME, udp(HOST, SERVER)).into_internet6();
        assert_eq!(sent, hopped(udp(HOST, SERVER)));
        let (home, header, inner) = world.down6(udp(SERVER, HOST)).into_home6();
        assert_eq!(home, address(HOME));
        assert_eq!((header.protocol, header.key), (gre::PROTOCOL_IPV6, None));
        assert_eq!(inner, hopped(udp(SERVER, HOST)));
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn key_of_the_tunnel_is_echoed_as_the_home_used_it_last() {
    let mut world = dual_stack();
    for key in [Some(7), None, Some(8)] {
        let header = build::gre().protocol(gre::PROTOCOL_IPV6).maybe_key(key);
        let outer = build::ipv4(HOME, ENDPOINT).gre(header, udp(HOST, SERVER));
        world.packet(Side::Access, &outer).into_internet6();
        let (_, header, _) = world.down6(udp(SERVER, HOST)).into_home6();
        assert_eq!(header.key, key);
    }
}

#[test]
fn packets_that_nobody_asked_for_do_not_come_in() {
    let mut world = dual_stack();
    world.assert_dropped(DropReason::NoMapping, |world| world.down6(udp(SERVER, HOST)));
    world.up6(HOME, udp(HOST, SERVER));
    let stranger = build::ipv6("2001:db8:9::2", HOST).udp(53, 5000, b"data");
    world.assert_dropped(DropReason::NoMapping, |world| world.down6(stranger));
    world.assert_dropped(DropReason::NoMapping, |world| world.down6(syn(SERVER, HOST)));
    let nowhere = udp(SERVER, "2001:db8:7777::1");
    world.assert_dropped(DropReason::NotLocal, |world| world.down6(nowhere));
    let ack = build::ipv6(HOST, SERVER).tcp(build::tcp(5001, 443).ack());
    world.assert_dropped(DropReason::TcpNotSyn, |world| world.up6(HOME, ack));
}

#[test]
fn tcp_connection_is_tracked_and_its_mss_fits_the_tunnel() {
    let mut world = dual_stack();
    let sent = world.up6(HOME, syn(HOST, SERVER)).into_internet6();
    // 1500 bytes less the tunnel (24), an IPv6 header (40) and a TCP header (20).
    assert_eq!(tcp::mss(&sent[Ipv6::LEN..]), Some(1416));
    let answer = |segment| build::ipv6(SERVER, HOST).tcp(segment);
    let (_, _, inner) =
        world.down6(answer(build::tcp(443, 5000).syn().ack().mss(9000))).into_home6();
    assert_eq!(tcp::mss(&inner[Ipv6::LEN..]), Some(1416));
    let ack = build::ipv6(HOST, SERVER).tcp(build::tcp(5000, 443).ack());
    world.up6(HOME, &ack).into_internet6();
    for _ in 0..3 {
        world.down6(answer(build::tcp(443, 5000).ack())).into_home6();
        assert_eq!(world.up6(HOME, &ack).into_internet6(), hopped(ack.clone()));
    }
    world.down6(answer(build::tcp(443, 5000).fin().ack())).into_home6();
    assert_eq!(world.drops(), 0);
}

#[test]
fn home_that_forges_the_source_of_another_is_told_and_refused() {
    let mut world = dual_stack();
    world.up6(HOME, udp(HOST, SERVER)).into_internet6();
    world.down6(udp(SERVER, HOST)).into_home6();
    let before = world.dropped(DropReason::ClaimConflict);
    let (home, _, inner) = world.up6(OTHER_HOME, udp(HOST, SERVER)).into_home6();
    assert_eq!(home, address(OTHER_HOME));
    let (kind, code, _, quote) = error_of(&inner);
    assert_eq!((kind, code), (icmp6::DESTINATION_UNREACHABLE, icmp6::CODE_SOURCE_POLICY));
    assert_eq!(quote, udp(HOST, SERVER));
    assert_eq!(world.dropped(DropReason::ClaimConflict), before + 1);
    // Another host of the same prefix, and an address that is nobody's.
    world.up6(OTHER_HOME, udp("2001:db8:1000:1::99", SERVER)).into_home6();
    assert_eq!(world.dropped(DropReason::ClaimConflict), before + 2);
    world.up6(OTHER_HOME, udp("2001:db8:2000::1", SERVER)).into_home6();
    assert_eq!(world.dropped(DropReason::NotDelegated), 1);
    world.up6(OTHER_HOME, udp(OTHER_HOST, SERVER)).into_internet6();
    let (home, ..) = world.down6(udp(SERVER, HOST)).into_home6();
    assert_eq!(home, address(HOME), "the flow stays its own home's");
    // A source that is no subscriber's gets no answer.
    world.assert_dropped(DropReason::NotSubscriber, |world| {
        world.up6("10.9.9.9", udp("2001:db8:1000:5::1", SERVER))
    });
}

#[test]
fn home_without_a_tunnel_is_served_as_it_is() {
    let mut world = without_tunnels();
    for _ in 0..3 {
        let sent = world.plain6(udp(HOST, SERVER)).into_internet6();
        assert_eq!(sent, hopped(udp(HOST, SERVER)));
        let delivered = world.down6(udp(SERVER, HOST)).into_access6();
        assert_eq!(delivered, hopped(udp(SERVER, HOST)));
    }
    let foreign = udp("2001:db8:7777::1", SERVER);
    world.assert_dropped(DropReason::NotSubscriber, |world| world.plain6(foreign));
    world
        .assert_dropped(DropReason::NotLocal, |world| world.down6(udp(SERVER, "2001:db8:7777::1")));
    // IPv4 homes are served beside them.
    world.packet(Side::Access, &build::ipv4(HOME, "192.0.2.1").udp(1, 2, b"")).into_internet();
}

#[test]
fn packet_in_a_tunnel_is_not_taken_from_the_access_link_itself() {
    let mut world = dual_stack();
    world.assert_dropped(DropReason::NotLocal, |world| world.plain6(udp(HOST, SERVER)));
}

#[test]
fn ping_passes_both_ways_and_only_as_asked() {
    let mut world = dual_stack();
    let request = build::ipv6(HOST, SERVER).icmp6_echo_request(7, 1, b"ping");
    let reply = build::ipv6(SERVER, HOST).icmp6_echo_reply(7, 1, b"ping");
    let from_server = build::ipv6(SERVER, HOST).icmp6_echo_request(7, 1, b"ping");
    world.assert_dropped(DropReason::IcmpUnsolicited, |world| world.down6(&reply));
    world.up6(HOME, &request).into_internet6();
    let (_, _, inner) = world.down6(&reply).into_home6();
    assert_eq!(inner, hopped(reply.clone()));
    world.assert_dropped(DropReason::NoMapping, |world| world.down6(&from_server));
    let unasked = build::ipv6(HOST, SERVER).icmp6_echo_reply(8, 1, b"ping");
    world.assert_dropped(DropReason::IcmpUnsolicited, |world| world.up6(HOME, unasked));
    for kind in [icmp6::ROUTER_SOLICITATION, 130, 143, 200] {
        let other = build::ipv6(HOST, SERVER).icmp6(kind, 0, [0; 4], b"");
        world.assert_dropped(DropReason::IcmpKind, |world| world.up6(HOME, other));
    }
}

#[test]
fn icmp_errors_about_known_flows_pass_and_others_do_not() {
    let mut world = dual_stack();
    let too_big =
        |quoted: Vec<u8>| build::ipv6("2001:db8:77::1", HOST).packet_too_big(1280, quoted);
    world.assert_dropped(DropReason::IcmpErrorUnmatched, |world| {
        world.down6(too_big(udp(HOST, SERVER)))
    });
    world.up6(HOME, udp(HOST, SERVER));
    let (home, _, inner) = world.down6(too_big(udp(HOST, SERVER))).into_home6();
    assert_eq!(home, address(HOME));
    assert_eq!(inner, hopped(too_big(udp(HOST, SERVER))));
    // About a packet that this destination has not sent, about another flow, or damaged.
    world.assert_dropped(DropReason::IcmpErrorUnmatched, |world| {
        world.down6(too_big(udp(SERVER, HOST)))
    });
    let other = build::ipv6(HOST, SERVER).udp(5001, 53, b"");
    world.assert_dropped(DropReason::IcmpErrorUnmatched, |world| world.down6(too_big(other)));
    let mut damaged = too_big(udp(HOST, SERVER));
    *damaged.last_mut().unwrap() ^= 1;
    world.assert_dropped(DropReason::IcmpChecksum, |world| world.down6(damaged));
    // An error of the home about what it got.
    let unreachable = build::ipv6(HOST, SERVER).port_unreachable(udp(SERVER, HOST));
    assert_eq!(world.up6(HOME, &unreachable).into_internet6(), hopped(unreachable.clone()));
    world.assert_dropped(DropReason::ClaimConflict, |world| world.up6(OTHER_HOME, unreachable));
    // About an echo.
    let request = build::ipv6(HOST, SERVER).icmp6_echo_request(7, 1, b"ping");
    world.up6(HOME, &request).into_internet6();
    world.down6(too_big(request)).into_home6();
}

#[test]
fn packet_whose_hop_limit_ends_here_is_answered_by_the_worker() {
    let mut world = dual_stack();
    let probe = build::ipv6(HOST, SERVER).hop_limit(1).udp(5000, 33_434, b"probe");
    let (home, _, inner) = world.up6(HOME, &probe).into_home6();
    assert_eq!(home, address(HOME));
    let (ip, _) = ip6::parse(&inner).unwrap();
    assert_eq!(ip.source.get(), address6(WORKER));
    let (kind, code, _, quote) = error_of(&inner);
    assert_eq!((kind, code, quote), (icmp6::TIME_EXCEEDED, 0, &probe[..]));
    assert_eq!(world.dropped(DropReason::TtlExceeded), 1);
    // From the internet only about a flow that is there.
    let back = build::ipv6(SERVER, HOST).hop_limit(1).udp(53, 5000, b"");
    world.assert_dropped(DropReason::TtlExceeded, |world| world.down6(&back));
    world.up6(HOME, udp(HOST, SERVER));
    let answer = world.down6(&back).into_internet6();
    assert_eq!(error_of(&answer).0, icmp6::TIME_EXCEEDED);
    // No error about an error.
    let error = build::ipv6(HOST, SERVER).hop_limit(1).port_unreachable(udp(SERVER, HOST));
    world.assert_dropped(DropReason::TtlExceeded, |world| world.up6(HOME, error));
}

#[test]
fn sender_learns_the_mtu_of_the_tunnel_and_of_the_internet_side() {
    let mut world = dual_stack();
    let large = |from: &str, to: &str, ports: (u16, u16), len: usize| {
        build::ipv6(from, to).udp(ports.0, ports.1, vec![7; len - 48])
    };
    world.up6(HOME, udp(HOST, SERVER));
    world.down6(large(SERVER, HOST, (53, 5000), 1476)).into_home6();
    let answer = world.down6(large(SERVER, HOST, (53, 5000), 1477)).into_internet6();
    let (kind, _, mtu, quote) = error_of(&answer);
    assert_eq!((kind, mtu), (icmp6::PACKET_TOO_BIG, 1476));
    assert_eq!((answer.len(), quote.len()), (1280, 1280 - 48));
    assert_eq!(world.dropped(DropReason::DontFragment), 1);
    let mut config = with_ipv6(config());
    config.nat.delegation = Some(Delegation::Claim { hold_sec: 600 });
    config.internet.mtu = 1300;
    let mut world = ready6(config);
    world.up6(HOME, large(HOST, SERVER, (5000, 53), 1300)).into_internet6();
    let (_, _, inner) = world.up6(HOME, large(HOST, SERVER, (5000, 53), 1301)).into_home6();
    assert_eq!((error_of(&inner).0, error_of(&inner).2), (icmp6::PACKET_TOO_BIG, 1300));
}

/// Returns the fragments of a datagram of 3,000 bytes.
fn pieces(from: &str, to: &str) -> Vec<Vec<u8>> {
    let (source, destination) = if from == SERVER { (53, 5000) } else { (5000, 53) };
    let whole = build::ipv6(from, to).udp(source, destination, vec![9; 3000]);
    build::fragments6(whole, 1280, 77)
}

#[test]
fn fragments_follow_their_first_in_any_order() {
    let mut world = dual_stack();
    world.up6(HOME, udp(HOST, SERVER));
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let (up, down) = (pieces(HOST, SERVER), pieces(SERVER, HOST));
        let (mut sent, mut delivered) = (Out::default(), Out::default());
        for at in order {
            sent.extend(world.up6(HOME, &up[at]));
            delivered.extend(world.down6(&down[at]));
        }
        let hopped_all = |pieces: Vec<Vec<u8>>| {
            let mut pieces: Vec<_> = pieces.into_iter().map(hopped).collect();
            pieces.sort();
            pieces
        };
        let mut sent = sent.internet6();
        sent.sort();
        assert_eq!(sent, hopped_all(up));
        let mut inner: Vec<_> = delivered.access.iter().map(|it| decapsulate6(it).2).collect();
        inner.sort();
        assert_eq!(inner, hopped_all(down));
        // Another datagram.
        world.pass_sec(10);
        world.up6(HOME, udp(HOST, SERVER));
    }
}

#[test]
fn fragments_that_hide_the_headers_are_refused() {
    let mut world = dual_stack();
    world.up6(HOME, udp(HOST, SERVER));
    let tiny = build::ipv6(HOST, SERVER).fragment(5, 0, true).payload(17, [0; 0]);
    world.assert_dropped(DropReason::FragmentTiny, |world| world.up6(HOME, tiny));
    // A later fragment that overlaps the first one, before it and behind it.
    let [first, second, _] = &pieces(HOST, SERVER)[..] else { panic!("three fragments") };
    let mut overlapping = second.clone();
    let offset = u16::from_be_bytes([second[42], second[43]]) - 8;
    overlapping[42..44].copy_from_slice(&offset.to_be_bytes());
    world.up6(HOME, first).into_internet6();
    world.assert_dropped(DropReason::FragmentOverlap, |world| world.up6(HOME, &overlapping));
    world.up6(HOME, second).into_internet6();
    // An atomic fragment is a whole packet (RFC 6946).
    let udp = udp(HOST, SERVER);
    let atomic = build::ipv6(HOST, SERVER).fragment(6, 0, false).payload(17, &udp[Ipv6::LEN..]);
    assert_eq!(world.up6(HOME, &atomic).into_internet6(), hopped(atomic.clone()));
}

#[test]
fn packets_with_extension_headers_pass_within_bounds() {
    let mut world = dual_stack();
    let transport = udp(HOST, SERVER)[Ipv6::LEN..].to_vec();
    let with = |count: usize| {
        let mut packet = build::ipv6(HOST, SERVER);
        for _ in 0..count {
            packet = packet.destination_options(&[1, 4, 0, 0, 0, 0]);
        }
        packet.payload(17, &transport)
    };
    for count in [1, 8] {
        assert_eq!(world.up6(HOME, with(count)).into_internet6(), hopped(with(count)));
    }
    world.assert_dropped(DropReason::Ip6Extension, |world| world.up6(HOME, with(9)));
    let routed = build::ipv6(HOST, SERVER).routing(0, 1, &[0; 20]).payload(17, &transport);
    world.assert_dropped(DropReason::Ip6Extension, |world| world.up6(HOME, routed));
    let late = build::ipv6(HOST, SERVER)
        .destination_options(&[1, 4, 0, 0, 0, 0])
        .hop_by_hop(&[1, 4, 0, 0, 0, 0])
        .payload(17, &transport);
    world.assert_dropped(DropReason::Ip6Malformed, |world| world.up6(HOME, late));
    let mut long = udp(HOST, SERVER);
    long[5] += 1;
    world.assert_dropped(DropReason::Ip6Malformed, |world| world.up6(HOME, long));
    let esp = build::ipv6(HOST, SERVER).payload(ip6::PROTOCOL_ESP, [1; 24]);
    world.assert_dropped(DropReason::Protocol, |world| world.up6(HOME, esp));
}

#[test]
fn packets_with_impossible_addresses_are_martians() {
    let mut world = dual_stack();
    let impossible = [
        ("::", SERVER),
        ("::1", SERVER),
        ("ff02::1", SERVER),
        ("fe80::1", SERVER),
        ("::ffff:192.0.2.1", SERVER),
        ("fd00::1", SERVER),
        (HOST, "ff0e::1"),
        (HOST, "fe80::1"),
        (HOST, "::ffff:192.0.2.1"),
        (HOST, "fd00::1"),
        (HOST, HOST),
    ];
    for (from, to) in impossible {
        world.assert_dropped(DropReason::Martian, |world| world.up6(HOME, udp(from, to)));
    }
    for from in ["::1", "fe80::1", "ff0e::1", "fd00::1"] {
        world.assert_dropped(DropReason::Martian, |world| world.down6(udp(from, HOST)));
    }
}

#[test]
fn congestion_mark_of_the_tunnel_moves_inside() {
    let mut world = dual_stack();
    let packet = |class| build::ipv6(HOST, SERVER).traffic_class(class).udp(5000, 53, b"data");
    for _ in 0..2 {
        let outer = build::ipv4(HOME, ENDPOINT).ecn(0b11);
        let outer = outer.gre(build::gre().protocol(gre::PROTOCOL_IPV6), packet(0b10));
        let sent = world.packet(Side::Access, &outer).into_internet6();
        assert_eq!(sent, hopped(packet(0b11)));
        world.down6(udp(SERVER, HOST)).into_home6();
    }
    let outer = build::ipv4(HOME, ENDPOINT).ecn(0b11);
    let outer = outer.gre(build::gre().protocol(gre::PROTOCOL_IPV6), packet(0));
    world.assert_dropped(DropReason::EcnCongestion, |world| world.packet(Side::Access, &outer));
    let marked = build::ipv6(SERVER, HOST).traffic_class(0b1011_1010).udp(53, 5000, b"");
    let delivered = world.down6(marked).into_access();
    assert_eq!(delivered[1], 0b1011_1010, "the outer header has the class of the inner one");
}

#[test]
fn rule_opens_the_firewall_from_the_internet() {
    let mut world = dual_stack();
    load6(&mut world, FlowOrigin::Internet, RuleAction::Accept);
    world.assert_dropped(DropReason::NoMapping, |world| world.down6(syn(SERVER, HOST)));
    world.up6(HOME, udp(HOST, SERVER));
    let (home, _, inner) = world.down6(syn(SERVER, HOST)).into_home6();
    assert_eq!((home, &inner[..7]), (address(HOME), &syn(SERVER, HOST)[..7]));
    let answer = build::ipv6(HOST, SERVER).tcp(build::tcp(443, 5000).syn().ack());
    world.up6(HOME, answer).into_internet6();
    let request = build::ipv6(SERVER, HOST).icmp6_echo_request(7, 1, b"ping");
    world.down6(request).into_home6();
    let reply = build::ipv6(HOST, SERVER).icmp6_echo_reply(7, 1, b"ping");
    world.up6(HOME, reply).into_internet6();
}

#[test]
fn rejected_packets_are_answered_with_a_reset_or_an_error() {
    let mut world = dual_stack();
    load6(&mut world, FlowOrigin::Home, RuleAction::Reject);
    let (_, _, inner) = world.up6(HOME, syn(HOST, SERVER)).into_home6();
    let (ip, len) = ip6::parse(&inner).unwrap();
    assert_eq!((ip.source.get(), ip.destination.get()), (address6(SERVER), address6(HOST)));
    let segment = tcp::parse(&inner[Ipv6::LEN..len]).unwrap();
    assert_eq!(segment.flags, tcp::RST | tcp::ACK);
    assert_eq!((segment.source_port.get(), segment.destination_port.get()), (443, 5000));
    let (_, _, inner) = world.up6(HOME, udp(HOST, SERVER)).into_home6();
    assert_eq!(error_of(&inner).1, icmp6::CODE_ADMINISTRATIVELY_PROHIBITED);
    assert_eq!(world.dropped(DropReason::RuleReject), 2);
    load6(&mut world, FlowOrigin::Home, RuleAction::Bypass);
    world.up6(HOME, udp(HOST, SERVER)).into_internet6();
    assert_eq!(world.engine.nat().admin().gauges().flows6, 0);
}

/// A burst of both families keeps its order, and each packet is treated as if it had come alone.
#[test]
fn burst_of_both_families_keeps_its_order() {
    let mut world = dual_stack();
    let header = || build::gre().protocol(gre::PROTOCOL_IPV6);
    let mut frames = Vec::new();
    for n in 0..32_u16 {
        let inner = build::ipv6(HOST, SERVER).udp(6000 + n, 53, n.to_be_bytes());
        frames.push(build::ipv4(HOME, ENDPOINT).gre(header(), inner));
        let inner = build::ipv4("192.168.1.2", "192.0.2.1").udp(6000 + n, 53, n.to_be_bytes());
        frames.push(build::ipv4(HOME, ENDPOINT).gre(build::gre(), inner));
    }
    for round in 0..3 {
        let out = world.packets(Side::Access, &frames);
        let numbers = |packets: Vec<Vec<u8>>| -> Vec<u16> {
            let last = |packet: Vec<u8>| {
                u16::from_be_bytes(*packet.last_chunk::<2>().expect("two bytes of payload"))
            };
            packets.into_iter().map(last).collect()
        };
        assert_eq!(numbers(out.internet6()), (0..32).collect::<Vec<_>>(), "round {round}");
        assert_eq!(numbers(out.internet), (0..32).collect::<Vec<_>>(), "round {round}");
    }
    assert_eq!(world.drops(), 0);
}
