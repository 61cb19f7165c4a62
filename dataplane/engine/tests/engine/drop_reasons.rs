//! Every drop reason is provoked, and each packet is counted under exactly one.

use std::collections::HashSet;

use weir_engine::{DropReason, Side};
use weir_wire::frame::VecFrame;
use weir_wire::{build, gre, ipv4};

use crate::world::*;

fn access(packet: impl AsRef<[u8]>) -> Vec<u8> {
    build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), packet)
}

fn tunnel(inner: impl AsRef<[u8]>) -> Vec<u8> {
    access(build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner))
}

fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

/// Returns an inner packet with one byte of its header changed and the checksum corrected.
fn inner_with(at: usize, byte: u8) -> Vec<u8> {
    let mut packet = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    packet[at] = byte;
    packet[10..12].fill(0);
    let sum = weir_wire::checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A loose source route over 192.0.2.1 (RFC 791 section 3.1).
const ROUTE: [u8; 7] = [131, 7, 4, 192, 0, 2, 1];

#[test]
fn rfc7126_source_routes_pass_only_if_configured_and_other_options_always() {
    // Router alert; a source route behind the end of the list; a length that points nowhere.
    let harmless: [&[u8]; 3] = [&[148, 4, 0, 0], &[1, 0, 131, 3], &[7, 0, 131, 3]];
    let mut world = World::default();
    for options in harmless {
        let packet = build::ipv4(PC, SERVER).options(options).udp(5000, 53, b"x");
        let sent = world.up(HOME_A, packet).into_internet();
        let answer = build::ipv4(SERVER, ends(&sent).0);
        world.down(answer.options(options).udp(53, ends(&sent).1, b"y")).into_home();
    }
    let mut config = config();
    config.forward_source_routes = true;
    let mut world = World::new(config);
    let packet = build::ipv4(PC, SERVER).options(&ROUTE).udp(5000, 53, b"x");
    let sent = world.up(HOME_A, packet).into_internet();
    assert_eq!(sent[20..27], ROUTE);
    let public = ends(&sent);
    let answer = build::ipv4(SERVER, public.0).options(&ROUTE).udp(53, public.1, b"y");
    world.down(answer).into_home();
    assert_eq!(world.drops(), 0);
}

#[test]
fn packets_from_the_access_side_are_dropped_for_one_reason_each() {
    use DropReason::*;
    let good = || build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let arp = weir_wire::arp::Arp::request(build::mac(9), 1, 2);
    let cases: Vec<(DropReason, Vec<u8>)> = vec![
        (FrameTruncated, vec![0; 13]),
        (NotOurMac, build::ethernet(build::mac(99), build::mac(98), good())),
        (NotOurMac, build::ethernet(weir_wire::ethernet::Mac::BROADCAST, build::mac(98), good())),
        (Vlan, build::vlan(5, access(good()))),
        (EtherType, build::ethernet_of(0x86dd, worker_mac(Side::Access), build::mac(1), [0; 40])),
        (ArpMalformed, with(build::arp(arp), 14, 9)),
        (IpMalformed, access([0x45; 10])),
        (IpMalformed, with(tunnel(good()), 14, 0x65)),
        (IpMalformed, with(tunnel(good()), 14, 0x44)),
        (IpMalformed, with(tunnel(good()), 16, 0xff)),
        (IpChecksum, with(tunnel(good()), 24, 0xff)),
        (NotLocal, access(build::ipv4(HOME_A, "10.100.9.9").gre(build::gre(), good()))),
        (LocalProtocol, access(build::ipv4(HOME_A, WORKER_ACCESS).udp(1, 2, b"x"))),
        (
            OuterFragment,
            access(build::ipv4(HOME_A, ENDPOINT).fragment(0, true).payload(47, [0; 61])),
        ),
        (
            OuterFragment,
            access(build::ipv4(HOME_A, ENDPOINT).fragment(65_528, false).payload(47, [0; 9])),
        ),
        (OuterProtocol, access(build::ipv4(HOME_A, ENDPOINT).udp(1, 2, b"x"))),
        (TunnelIcmp, access(build::ipv4("10.9.9.9", ENDPOINT).port_unreachable(good()))),
        (GreMalformed, access(build::ipv4(HOME_A, ENDPOINT).payload(47, [0; 3]))),
        (GreMalformed, access(build::ipv4(HOME_A, ENDPOINT).payload(47, [0x20, 0, 8, 0, 1]))),
        (
            GreMalformed,
            access(build::ipv4(HOME_A, ENDPOINT).payload(47, [0x40, 0, 8, 0, 1, 1, 1, 1])),
        ),
        (GreMalformed, access(build::ipv4(HOME_A, ENDPOINT).payload(47, [0, 1, 8, 0, 1, 1, 1, 1]))),
        (
            GreProtocol,
            access(build::ipv4(HOME_A, ENDPOINT).gre(build::gre().protocol(0x6558), [0; 40])),
        ),
        (EcnCongestion, access(build::ipv4(HOME_A, ENDPOINT).tos(3).gre(build::gre(), good()))),
        (InnerMalformed, tunnel([0x45; 10])),
        (InnerMalformed, tunnel(inner_with(2, 0x7f))),
        (InnerMalformed, tunnel([])),
        (InnerChecksum, tunnel(with(good(), 10, 0xee))),
        (Martian, tunnel(build::ipv4("127.0.0.1", SERVER).udp(1, 2, b"x"))),
        (Martian, tunnel(build::ipv4(PC, "224.0.0.251").udp(1, 2, b"x"))),
        (Martian, tunnel(build::ipv4(PC, "255.255.255.255").udp(1, 2, b"x"))),
        (Martian, tunnel(build::ipv4("0.0.0.0", SERVER).udp(1, 2, b"x"))),
        (Martian, tunnel(build::ipv4(SERVER, SERVER).tcp(build::tcp(80, 80).syn()))),
        (Protocol, tunnel(inner_with(9, 132))),
        (Protocol, tunnel(build::ipv4(PC, SERVER).gre(build::gre(), good()))),
        (TransportMalformed, tunnel(build::ipv4(PC, SERVER).payload(17, [0; 7]))),
        (
            TransportMalformed,
            tunnel(build::ipv4(PC, SERVER).payload(17, [0, 1, 0, 1, 0, 99, 0, 0])),
        ),
        (TransportMalformed, tunnel(build::ipv4(PC, SERVER).payload(6, [1; 19]))),
        (TransportMalformed, tunnel(build::ipv4(PC, SERVER).payload(1, [8; 7]))),
        // RFC 768: "If not used, a value of zero is inserted."
        (PortZero, tunnel(build::ipv4(PC, SERVER).udp(0, 53, b"x"))),
        (PortZero, tunnel(build::ipv4(PC, SERVER).udp(53, 0, b"x"))),
        (PortZero, tunnel(build::ipv4(PC, SERVER).tcp(build::tcp(0, 80).syn()))),
        (PortZero, tunnel(build::ipv4(PC, SERVER).fragment(0, true).payload(17, [0; 16]))),
        (SourceRoute, tunnel(build::ipv4(PC, SERVER).options(&ROUTE).udp(5000, 53, b"x"))),
        (
            SourceRoute,
            tunnel(build::ipv4(PC, SERVER).options(&[1, 137, 3, 4]).ttl(1).udp(5000, 53, b"x")),
        ),
        (
            SourceRoute,
            tunnel(build::ipv4(PC, SERVER).options(&[148, 4, 0, 0, 131, 3, 4]).udp(5000, 53, b"x")),
        ),
        (IcmpKind, tunnel(build::ipv4(PC, SERVER).icmp(17, 0, [0; 4], [0; 8]))),
        (IcmpUnsolicited, tunnel(build::ipv4(PC, SERVER).icmp_echo_reply(7, 1, b"x"))),
        (NotSubscriber, access(build::ipv4("10.201.0.1", ENDPOINT).gre(build::gre(), good()))),
        (TcpNotSyn, tunnel(build::ipv4(PC, SERVER).tcp(build::tcp(1, 2).ack()))),
        (FragmentTiny, tunnel(build::ipv4(PC, SERVER).fragment(0, true).payload(17, [0; 4]))),
    ];
    for (index, (reason, frame)) in cases.into_iter().enumerate() {
        let mut world = World::default();
        let out = world.frame(Side::Access, &frame);
        assert!(out.is_nothing(), "case {index} {reason:?} sent {out:?}");
        assert_eq!((world.dropped(reason), world.drops()), (1, 1), "case {index} {reason:?}");
        assert_eq!(world.pool.alive(), 0);
    }
}

#[test]
fn packets_from_the_internet_side_are_dropped_for_one_reason_each() {
    use DropReason::*;
    let cases: Vec<(DropReason, Vec<u8>)> = vec![
        (NotLocal, build::ipv4(SERVER, "192.0.2.1").udp(1, 2, b"x")),
        (Martian, build::ipv4("127.0.0.1", "203.0.113.1").udp(1, 2, b"x")),
        (Martian, build::ipv4("203.0.113.1", "203.0.113.1").tcp(build::tcp(80, 80).syn())),
        (NoMapping, build::ipv4(SERVER, "203.0.113.1").udp(1, 2, b"x")),
        (OwnSource, build::ipv4("203.0.113.9", "203.0.113.1").udp(1, 2, b"x")),
        (PortZero, build::ipv4(SERVER, "203.0.113.1").udp(0, 2, b"x")),
        (SourceRoute, build::ipv4(SERVER, "203.0.113.1").options(&ROUTE).udp(1, 2, b"x")),
        (Protocol, build::ipv4(SERVER, "203.0.113.1").gre(build::gre(), [0; 4])),
        (IcmpUnsolicited, build::ipv4(SERVER, "203.0.113.1").icmp_echo_request(1, 1, b"x")),
        (NoMapping, build::ipv4(SERVER, "203.0.113.1").icmp_echo_reply(1, 1, b"x")),
        (LocalProtocol, build::ipv4(SERVER, WORKER_INTERNET).tcp(build::tcp(1, 22).syn())),
    ];
    for (index, (reason, packet)) in cases.into_iter().enumerate() {
        let mut world = World::default();
        let out = world.down(&packet);
        assert!(out.is_nothing(), "case {index} {reason:?} sent {out:?}");
        assert_eq!((world.dropped(reason), world.drops()), (1, 1), "case {index} {reason:?}");
    }
}

#[test]
fn subscribers_ports_and_buffers_run_out_one_by_one() {
    let mut limited = config();
    limited.nat.shards[0].subscribers_max = 1;
    limited.nat.ports_per_subscriber = 256;
    let mut world = World::new(limited);
    let packet = |port| build::ipv4(PC, SERVER).udp(port, 53, b"x");
    world.up(HOME_A, packet(5000)).into_internet();
    world.up(HOME_B, packet(5000));
    assert_eq!(world.dropped(DropReason::SubscribersMax), 1);
    for port in 5001..5256 {
        world.up(HOME_A, packet(port)).into_internet();
    }
    world.up(HOME_A, packet(6000)).into_home();
    assert_eq!(world.dropped(DropReason::PortsExhausted), 1);
    world.up(HOME_A, packet(5100)).into_internet();

    let chained = VecFrame::new(&tunnel(packet(5000))).into_chained();
    assert!(world.frames(Side::Access, vec![chained]).is_nothing());
    assert_eq!(world.dropped(DropReason::FrameSegmented), 1);

    world.pool = weir_wire::frame::VecPool::with_limit(0);
    let big = build::ipv4(PC, SERVER).udp(5000, 53, vec![0; 2000]);
    world.up(HOME_A, big);
    assert_eq!(world.dropped(DropReason::NoBuffer), 1);
}

#[test]
fn filtering_and_the_inbound_session_limit_drop_packets() {
    let mut world = World::default();
    let public =
        ends(&world.up(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x")).into_internet());
    world.down(build::ipv4(SERVER_2, public.0).udp(53, public.1, b"y"));
    assert_eq!(world.dropped(DropReason::Filtered), 1);

    let mut open = config();
    open.nat.filtering = weir_nat::Filtering::EndpointIndependent;
    open.nat.inbound_sessions_max = 2;
    let mut world = World::new(open);
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(5000, 80).syn());
    let public = ends(&world.up(HOME_A, syn).into_internet());
    for port in 1..=3 {
        world.down(build::ipv4(SERVER_2, public.0).tcp(build::tcp(port, public.1).syn()));
    }
    assert_eq!(world.dropped(DropReason::InboundSessionsMax), 1);
}

#[test]
fn a_home_may_not_take_the_whole_table() {
    let mut limited = config();
    limited.nat.flows_per_subscriber = 2;
    let mut world = World::new(limited);
    let packet = |port| build::ipv4(PC, SERVER).udp(port, 53, b"x");
    world.up(HOME_A, packet(5000)).into_internet();
    world.up(HOME_A, packet(5001)).into_internet();
    world.up(HOME_A, packet(5002)).into_home();
    assert_eq!(world.dropped(DropReason::FlowsPerSubscriber), 1);
    world.up(HOME_B, packet(5002)).into_internet();
}

#[test]
fn home_over_its_limits_gets_icmp_errors_and_others_are_served() {
    let mut limited = config();
    limited.nat.sessions_per_subscriber = 2;
    limited.nat.new_flows_per_sec = 1;
    limited.nat.new_flows_burst = 5;
    let mut world = World::new(limited);
    let packet = |port, remote| build::ipv4(PC, SERVER).udp(port, remote, b"x");
    for remote in 53..56 {
        world.up(HOME_A, packet(5000, remote)).into_internet();
    }
    world.up(HOME_A, packet(5000, 56)).into_home();
    assert_eq!(world.dropped(DropReason::SessionsPerSubscriber), 1);
    world.up(HOME_A, packet(5001, 53)).into_internet();
    world.up(HOME_A, packet(5002, 53)).into_internet();
    world.up(HOME_A, packet(5003, 53)).into_home();
    assert_eq!(world.dropped(DropReason::NewFlows), 1);
    world.up(HOME_A, packet(5000, 54)).into_internet();
    for remote in 53..56 {
        world.up(HOME_B, packet(5000, remote)).into_internet();
    }
}

/// No error is sent to a source that may be forged.
#[test]
fn new_homes_are_admitted_at_the_rate_of_their_shard() {
    let mut paced = config();
    paced.nat.new_homes_per_sec = Some(1);
    paced.nat.shards[0].subscribers_max = 3;
    let mut world = World::new(paced);
    let packet = || build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    world.up(HOME_A, packet()).into_internet();
    world.up(HOME_B, packet()).into_internet();
    let third = "10.200.7.7";
    assert!(world.up(third, packet()).is_nothing());
    assert_eq!(world.dropped(DropReason::NewHomes), 1);
    world.pass_sec(1);
    world.up(third, packet()).into_internet();
}

#[test]
fn foreign_addresses_are_dropped_in_firewall_mode() {
    let mut firewall = config();
    firewall.nat.enabled = false;
    let mut world = World::new(firewall);
    let packet = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    assert!(world.up(HOME_A, packet).is_nothing());
    assert_eq!(world.dropped(DropReason::InsideNotPublic), 1);
}

/// A reason that no test of this crate names is a reason that no packet provokes.
#[test]
fn every_drop_reason_is_named_by_a_test() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine");
    let tests: String = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    let words: HashSet<_> = tests.split(|c: char| !c.is_alphanumeric()).collect();
    for reason in DropReason::ALL {
        let is_named = words.contains(format!("{reason:?}").as_str());
        assert!(is_named, "nothing provokes {}", reason.name());
    }
}

#[test]
fn gre_in_gre_is_dropped_and_ethernet_padding_is_not_forwarded() {
    let mut world = World::default();
    let inner = build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let nested = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), &inner);
    assert!(world.up(HOME_A, nested).is_nothing());
    assert_eq!(world.dropped(DropReason::Protocol), 1);
    // Ethernet pads short frames; the padding must not be forwarded.
    let mut padded = tunnel(&inner);
    padded.extend([0xaa; 20]);
    let sent = world.frame(Side::Access, &padded).into_internet();
    assert_eq!(ipv4::parse(&sent).unwrap().2, inner.len());
    assert_eq!(gre::header_len(None), 4);
}
