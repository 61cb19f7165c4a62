//! What a trace records of IPv6 packets, and of packets in tunnels over IPv6.

use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::Ipv6Net;
use weir_engine::{
    DropReason, EngineConfig, PacketTrace, Side, TraceFilter, TracedFlow, TracedKind, TracedStep,
};
use weir_nat::{
    BucketHit, DelegatedPrefix, Delegation, Delegations, Endpoint6, EndpointRange6, FamilyRange,
    HomeSelector, HomeView, OuterAddress, Protocol, RuleAction, TracedFlow6, TracedLookUp,
    TracedMapping, TracedRecord,
};
use weir_rules::FlowOrigin;
use weir_wire::build;
use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::VecFrame;
use weir_wire::ndp::NdpPacket;

use crate::world::ipv6::{
    ENDPOINT6, address6, dual_stack, gre_header, over_ipv6, tunnelled, with_ipv6,
};
use crate::world::link6::{STRANGER, own6, ready6, station6};
use crate::world::rules::load6;
use crate::world::{Bits, ENDPOINT, HOME_A, HOME_B, PC, SERVER, World, plain};

const HOME6: &str = "2001:db8:e::1";
const OTHER_HOME6: &str = "2001:db8:e::2";
const STRANGER6: &str = "2001:db8:f::1";
const HOST: &str = "2001:db8:1000:1::7";
const SERVER6: &str = "2001:db8:9::1";
const STRANGE_SERVER6: &str = "2001:db8:9::2";

/// A home's packet in a tunnel over IPv4.
fn over4(home: &str, inner: impl AsRef<[u8]>) -> Vec<u8> {
    build::ipv4(home, ENDPOINT).gre(gre_header(None, inner.as_ref()), inner)
}

fn over6(home: &str, inner: impl AsRef<[u8]>) -> Vec<u8> {
    tunnelled(home, None, inner)
}

fn query() -> Vec<u8> {
    build::ipv6(HOST, SERVER6).udp(5000, 53, b"x")
}

fn query4() -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(5000, 53, b"x")
}

fn answer() -> Vec<u8> {
    build::ipv6(SERVER6, HOST).udp(53, 5000, b"y")
}

fn without_tunnels() -> World {
    let mut config = with_ipv6(plain());
    config.nat.delegation = Some(Delegation::Prefix { home_length: 56 });
    ready6(config)
}

/// A worker for homes with tunnels over either family.
fn both_tunnels() -> World {
    ready6(over_ipv6())
}

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn home4(outer: &str) -> HomeView {
    HomeView::Ipv4 { outer: outer.to_bits(), gre_key: None }
}

fn home6(outer: &str) -> HomeView {
    HomeView::TunnelIpv6 { outer: outer.parse().unwrap(), gre_key: None }
}

fn at(endpoint: &str) -> SocketAddr {
    endpoint.parse().unwrap()
}

fn key(trace: &PacketTrace) -> TracedFlow {
    trace.flow.expect("it has a key")
}

fn flow6(look_up: Option<TracedLookUp>) -> TracedFlow6 {
    match look_up.expect("it was looked up").record {
        Some(TracedRecord::Flow6(flow)) => flow,
        other => panic!("there is a flow, and not {other:?}"),
    }
}

fn mapping(look_up: Option<TracedLookUp>) -> TracedMapping {
    match look_up.expect("it was looked up").record {
        Some(TracedRecord::Mapping(mapping)) => mapping,
        other => panic!("there is a mapping, and not {other:?}"),
    }
}

fn state(look_up: Option<TracedLookUp>) -> Option<&'static str> {
    let session = look_up.expect("it was looked up").record.and_then(|it| it.session());
    session.map(|session| session.state)
}

impl World {
    fn up_traced(&mut self, packet: impl AsRef<[u8]>) -> PacketTrace {
        self.traced(Side::Access, packet.as_ref()).0
    }

    fn down_traced(&mut self, packet: impl AsRef<[u8]>) -> PacketTrace {
        self.traced(Side::Internet, packet.as_ref()).0
    }

    fn is_traced(&self, side: Side, packet: impl AsRef<[u8]>, filter: TraceFilter) -> bool {
        let frame = VecFrame::new(&self.ethernet(side, packet.as_ref()));
        self.engine.is_traced(side, &frame, &filter)
    }
}

/// Checks the first packet of a home, its answer, and its second packet.
fn check_flow(world: &mut World, up: &[u8], home: HomeView) {
    let (trace, out) = world.traced(Side::Access, up);
    assert_eq!((trace.step, trace.home), (TracedStep::Translate, Some(home)));
    let TracedFlow { kind, protocol, source, destination, .. } = key(&trace);
    assert_eq!((kind, protocol), (TracedKind::Whole, Some(Protocol::Udp)));
    assert_eq!((source, destination), (at("[2001:db8:1000:1::7]:5000"), at("[2001:db8:9::1]:53")));
    assert!(key(&trace).fits_fast_path);
    let before = trace.before.unwrap();
    assert_eq!((before.bucket, before.record, before.rule), (BucketHit::None, None, None));
    let after = flow6(trace.after);
    assert_eq!(after.inside, Endpoint6::new(address6(HOST), 5000));
    assert_eq!(after.remote, Endpoint6::new(address6(SERVER6), 53));
    assert_eq!(state(trace.after), Some("one-way"));
    assert_eq!((trace.dropped, trace.is_held, trace.outputs_total), (None, false, 1));
    let output = trace.outputs[0].unwrap();
    assert_eq!((output.side, output.frame.bytes()), (Side::Internet, &*out.frames[0].1));
    assert_eq!(out.into_internet6()[8..], query()[8..]);
    let trace = world.down_traced(answer());
    let TracedFlow { source, destination, hash, .. } = key(&trace);
    assert_eq!((source, destination), (at("[2001:db8:9::1]:53"), at("[2001:db8:1000:1::7]:5000")));
    assert_eq!((trace.home, trace.outputs[0].unwrap().side), (Some(home), Side::Access));
    let before = trace.before.unwrap();
    assert_eq!((before.bucket, before.is_let_in), (BucketHit::Primary, None));
    assert_eq!((state(trace.before), state(trace.after)), (Some("one-way"), Some("stream")));
    let trace = world.up_traced(up);
    assert_eq!(key(&trace).hash, hash, "a packet of either direction has one key");
    assert_eq!(flow6(trace.before).record, after.record);
    assert_eq!((state(trace.after), trace.outputs_total), (Some("stream"), 1));
}

#[test]
fn flows_of_homes_behind_tunnels_of_either_family_and_without_are_recorded() {
    check_flow(&mut dual_stack(), &over4(HOME_A, query()), home4(HOME_A));
    check_flow(&mut both_tunnels(), &over4(HOME_A, query()), home4(HOME_A));
    check_flow(&mut both_tunnels(), &over6(HOME6, query()), home6(HOME6));
    let prefix = HomeView::Ipv6(net("2001:db8:1000::/56"));
    check_flow(&mut without_tunnels(), &query(), prefix);
}

#[test]
fn ipv4_packets_of_homes_over_ipv6_are_recorded_with_their_mapping() {
    let mut world = both_tunnels();
    let trace = world.up_traced(over6(HOME6, query4()));
    assert_eq!((trace.step, trace.home), (TracedStep::Translate, Some(home6(HOME6))));
    assert_eq!(key(&trace).source, at("192.168.1.10:5000"));
    assert_eq!(trace.before.unwrap().record, None);
    let public = mapping(trace.after).public;
    assert_eq!((trace.outputs_total, state(trace.after)), (1, Some("one-way")));
    let trace = world.down_traced(build::ipv4(SERVER, public.address).udp(53, public.port, b"y"));
    assert_eq!((trace.home, trace.outputs_total), (Some(home6(HOME6)), 1));
    assert_eq!((state(trace.before), state(trace.after)), (Some("one-way"), Some("stream")));
    let trace = world.up_traced(over6(HOME6, query4()));
    assert_eq!((state(trace.before), state(trace.after)), (Some("stream"), Some("stream")));
}

#[test]
fn stranger_and_its_tunnel_are_named_though_no_home_is_known() {
    let mut world = both_tunnels();
    for inner in [query4(), query()] {
        let trace = world.up_traced(over6(STRANGER6, inner));
        assert_eq!(trace.step, TracedStep::Drop(DropReason::NotSubscriber));
        assert_eq!(trace.home, Some(home6(STRANGER6)));
        assert_eq!((trace.before, trace.after), (None, None));
        assert_eq!(trace.dropped, Some(DropReason::NotSubscriber));
    }
    let packet = build::ipv6("2001:db8:ffff::1", SERVER6).udp(1, 2, b"x");
    let trace = without_tunnels().up_traced(packet);
    assert_eq!((trace.step, trace.home), (TracedStep::Drop(DropReason::NotSubscriber), None));
    assert_eq!((trace.before, trace.dropped), (None, Some(DropReason::NotSubscriber)));
}

/// A home with a tunnel over IPv6 that begins nothing leaves no outer address behind.
#[test]
fn traced_packets_that_begin_nothing_leave_no_outer_address_behind() {
    let mut world = both_tunnels();
    let ack = build::ipv6(HOST, SERVER6).tcp(build::tcp(5000, 443).ack());
    let trace = world.up_traced(over6(HOME6, ack));
    assert_eq!((trace.home, trace.dropped), (Some(home6(HOME6)), Some(DropReason::TcpNotSyn)));
    assert_eq!(trace.after.unwrap().record, None);
    world.pass_ms(100);
    let uses = world.engine.nat().admin().table_uses();
    assert_eq!(uses.iter().find(|it| it.table == "outer-addresses").unwrap().used, 0);
}

#[test]
fn packet_with_another_homes_address_names_that_home() {
    let mut world = both_tunnels();
    world.up_traced(over4(HOME_A, query()));
    let (of_flow, of_prefix) = (query(), build::ipv6(HOST, SERVER6).udp(5001, 53, b"x"));
    for (packet, has_record) in [(of_flow, true), (of_prefix, false)] {
        let trace = world.up_traced(over6(HOME6, packet));
        let before = trace.before.unwrap();
        assert_eq!((trace.home, before.other_home), (Some(home6(HOME6)), Some(home4(HOME_A))));
        assert_eq!(before.record.is_some(), has_record);
        assert_eq!(trace.dropped, Some(DropReason::ClaimConflict));
        assert_eq!(trace.outputs_total, 1, "the sender gets an error");
    }
    let trace = world.up_traced(over4(HOME_A, query()));
    assert_eq!(trace.before.unwrap().other_home, None);
}

#[test]
fn firewall_and_rules_say_which_packets_from_the_internet_come_in() {
    let mut world = both_tunnels();
    let syn = |port| build::ipv6(SERVER6, HOST).tcp(build::tcp(port, 443).syn());
    let trace = world.down_traced(syn(6000));
    assert_eq!((trace.home, trace.dropped), (None, Some(DropReason::NoMapping)));
    assert_eq!(trace.before.unwrap().is_let_in, Some(false));
    world.up_traced(over6(HOME6, query()));
    let trace = world.down_traced(syn(6000));
    assert_eq!((trace.home, trace.dropped), (Some(home6(HOME6)), Some(DropReason::NoMapping)));
    let cases =
        [(RuleAction::Drop, false, Some(DropReason::RuleDrop)), (RuleAction::Accept, true, None)];
    for (action, is_let_in, dropped) in cases {
        load6(&mut world, FlowOrigin::Internet, action);
        let trace = world.down_traced(syn(6000));
        let before = trace.before.unwrap();
        let rule = before.rule.map(|rule| (rule.rule, rule.action));
        assert_eq!((rule, before.is_let_in), (Some((0, action)), Some(is_let_in)));
        assert_eq!((trace.dropped, trace.is_rule_counted), (dropped, true));
    }
    let trace = world.down_traced(syn(6000));
    let before = trace.before.unwrap();
    assert_eq!((before.rule, before.is_let_in), (None, None), "no rule is asked for a live flow");
}

#[test]
fn rule_about_packets_of_homes_is_named() {
    let mut world = dual_stack();
    load6(&mut world, FlowOrigin::Home, RuleAction::Reject);
    let trace = world.up_traced(over4(HOME_A, query()));
    let rule = trace.before.unwrap().rule.unwrap();
    assert_eq!((rule.rule, rule.action, trace.is_rule_counted), (0, RuleAction::Reject, true));
    assert_eq!((trace.dropped, trace.outputs_total), (Some(DropReason::RuleReject), 1));
    assert_eq!(trace.after.unwrap().record, None);
}

/// A rule lets the internet reach a home with a tunnel over IPv6 that has sent nothing.
#[test]
fn rule_about_a_silent_home_is_named() {
    let mut config = over_ipv6();
    config.nat.delegation = Some(Delegation::Static);
    let outer = OuterAddress::of_ipv6(address6(HOME6));
    let delegated = DelegatedPrefix { prefix: net("2001:db8:1000::/56"), outer, gre_key: None };
    let mut delegations = Arc::new(Delegations::new(&[delegated]).unwrap());
    let mut world = ready6(config);
    world.engine.nat_mut().admin_mut().swap_delegations(&mut delegations);
    load6(&mut world, FlowOrigin::Internet, RuleAction::Accept);
    let trace = world.down_traced(build::ipv6(SERVER6, HOST).tcp(build::tcp(6000, 443).syn()));
    assert_eq!((trace.home, trace.dropped), (Some(home6(HOME6)), None));
    assert_eq!(trace.before.unwrap().rule.unwrap().action, RuleAction::Accept);
    assert_eq!((state(trace.after), trace.outputs_total), (Some("syn-received"), 1));
}

#[test]
fn fragments_errors_and_echoes_say_what_they_are() {
    let mut world = dual_stack();
    let whole = build::ipv6(HOST, SERVER6).tcp(build::tcp(5000, 443).syn().payload([7; 1300]));
    let pieces = build::fragments6(whole, 1280, 9);
    let trace = world.up_traced(over4(HOME_A, &pieces[1]));
    assert_eq!(
        (key(&trace).kind, key(&trace).protocol),
        (TracedKind::LaterFragment, Some(Protocol::Tcp))
    );
    assert_eq!((trace.before, trace.outputs_total, trace.is_held), (None, 0, true));
    let trace = world.up_traced(over4(HOME_A, &pieces[0]));
    assert_eq!((key(&trace).kind, trace.outputs_total), (TracedKind::FirstFragment, 2));
    assert_eq!((state(trace.after), trace.is_held), (Some("syn-sent"), false));

    let trace = world.up_traced(over4(HOME_A, query()));
    assert_eq!(trace.outputs_total, 1);
    let error = build::ipv6(SERVER6, HOST).port_unreachable(query());
    let trace = world.down_traced(error);
    assert_eq!(
        (key(&trace).kind, key(&trace).protocol),
        (TracedKind::IcmpError, Some(Protocol::Icmp))
    );
    assert_eq!((trace.before, trace.dropped, trace.outputs_total), (None, None, 1));
    assert_eq!(trace.home, Some(home4(HOME_A)), "by the delegation of its inside address");

    let echo = build::ipv6(HOST, SERVER6).icmp6_echo_request(7, 1, b"ping");
    let trace = world.up_traced(over4(HOME_A, echo));
    let TracedFlow { source, destination, fits_fast_path, .. } = key(&trace);
    assert_eq!((source, destination), (at("[2001:db8:1000:1::7]:7"), at("[2001:db8:9::1]:0")));
    assert!(!fits_fast_path);
}

#[test]
fn later_fragment_that_does_not_say_its_protocol_has_none() {
    let mut world = dual_stack();
    let packet = build::ipv6(HOST, SERVER6).fragment(9, 1232, false).payload(60, [0; 16]);
    let trace = world.up_traced(over4(HOME_A, &packet));
    assert_eq!((key(&trace).kind, key(&trace).protocol), (TracedKind::LaterFragment, None));
}

#[test]
fn hop_limit_that_ends_here_is_recorded_with_the_key() {
    let mut world = both_tunnels();
    let probe = build::ipv6(HOST, SERVER6).hop_limit(1).udp(5000, 33434, b"x");
    for packet in [over4(HOME_A, &probe), over6(HOME6, &probe)] {
        let trace = world.up_traced(packet);
        assert_eq!(trace.step, TracedStep::TimeExceeded);
        assert_eq!(key(&trace).destination, at("[2001:db8:9::1]:33434"));
        assert_eq!((trace.before, trace.dropped), (None, Some(DropReason::TtlExceeded)));
        let output = trace.outputs[0].expect("the home gets an error");
        assert_eq!((output.side, trace.outputs_total), (Side::Access, 1));
    }
}

#[test]
fn fragments_of_tunnel_packets_over_ipv6_wait_for_each_other() {
    let mut world = both_tunnels();
    let inner = build::ipv6(HOST, SERVER6).udp(5000, 53, [7; 800]);
    let pieces = build::fragments6(over6(HOME6, inner), 600, 77);
    let trace = world.up_traced(&pieces[0]);
    assert_eq!((trace.step, trace.home), (TracedStep::Hold, Some(home6(HOME6))));
    assert_eq!((trace.outputs_total, trace.is_held, trace.dropped), (0, true, None));
    let trace = world.up_traced(&pieces[1]);
    assert_eq!((trace.step, trace.outputs_total, trace.is_held), (TracedStep::Hold, 1, false));
}

#[test]
fn neighbor_discovery_and_pings_are_for_the_worker_itself() {
    let mut world = both_tunnels();
    let side = Side::Internet;
    let ask = NdpPacket::solicitation(station6(), STRANGER, own6(side));
    let to = ask.multicast_mac().unwrap();
    let frame = build::ethernet_of(ETHERTYPE_IPV6, to, STRANGER, ask.as_bytes());
    let (trace, out) = world.frame_traced(side, &frame);
    assert_eq!((trace.step, trace.home, trace.flow), (TracedStep::Local, None, None));
    assert_eq!((trace.dropped, trace.outputs_total, out.frames.len()), (None, 1, 1));
    let ping = build::ipv6(HOME6, ENDPOINT6).icmp6_echo_request(7, 1, b"ping");
    let trace = world.up_traced(ping);
    assert_eq!((trace.step, trace.outputs_total), (TracedStep::Local, 1));
}

#[test]
fn malformed_packets_are_dropped_by_their_headers() {
    let mut world = both_tunnels();
    let routed = build::ipv6(HOST, SERVER6).routing(0, 1, &[0; 20]).udp(1, 2, b"x");
    let from_group = build::ipv6("ff02::1", SERVER6).udp(1, 2, b"x");
    let cases = [(routed, DropReason::Ip6Extension), (from_group, DropReason::Martian)];
    for (inner, reason) in cases {
        for (packet, home) in
            [(over4(HOME_A, &inner), home4(HOME_A)), (over6(HOME6, &inner), home6(HOME6))]
        {
            let trace = world.up_traced(packet);
            assert_eq!((trace.step, trace.home), (TracedStep::Drop(reason), Some(home)));
            assert_eq!((trace.dropped, trace.flow), (Some(reason), None));
        }
    }
}

fn of(subscriber: HomeSelector) -> TraceFilter {
    TraceFilter { subscriber: Some(subscriber), ..TraceFilter::default() }
}

fn named6(text: &str) -> TraceFilter {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().map(Ipv6Net::from);
    of(HomeSelector::Ipv6(text.parse().or_else(|_| address(text)).unwrap()))
}

/// A home's first packet has it already, when nothing of the home is known.
#[test]
fn filter_by_outer_address_selects_packets_of_both_families() {
    let mut world = both_tunnels();
    let [of_a, of_b] = [HOME_A, HOME_B].map(|outer| of(HomeSelector::Ipv4(outer.to_bits())));
    let other_host = "2001:db8:1000:2::7";
    type Tunnel = fn(&[u8]) -> Vec<u8>;
    let cases: [(Tunnel, &str, [TraceFilter; 2]); 2] = [
        (|inner| over4(HOME_A, inner), HOST, [of_a, of_b]),
        (|inner| over6(HOME6, inner), other_host, [named6(HOME6), named6(OTHER_HOME6)]),
    ];
    for (tunnel, host, [itself, other]) in cases {
        let query6 = build::ipv6(host, SERVER6).udp(5000, 53, b"x");
        for inner in [query4(), query6] {
            let packet = tunnel(&inner);
            for round in ["first", "second"] {
                assert!(world.is_traced(Side::Access, &packet, itself), "{host}, {round}");
                assert!(!world.is_traced(Side::Access, &packet, other), "{host}, {round}");
                world.up_traced(&packet);
            }
        }
        let answer = build::ipv6(SERVER6, host).udp(53, 5000, b"y");
        assert!(world.is_traced(Side::Internet, &answer, itself));
        assert!(!world.is_traced(Side::Internet, &answer, other));
    }
}

#[test]
fn filter_by_inside_addresses_selects_the_home_that_has_them() {
    let mut world = both_tunnels();
    let [prefix, host] = ["2001:db8:1000:1::/64", HOST].map(named6);
    let other = named6("2001:db8:1000:2::/64");
    let packet = over6(HOME6, query());
    for _ in 0..2 {
        assert!(world.is_traced(Side::Access, &packet, prefix));
        assert!(world.is_traced(Side::Access, &packet, host));
        assert!(world.is_traced(Side::Internet, answer(), prefix));
        assert!(!world.is_traced(Side::Access, &packet, other));
        world.up_traced(&packet);
    }
    assert!(world.is_traced(Side::Access, over6(HOME6, query4()), prefix), "its IPv4 packets");
    assert!(!world.is_traced(Side::Access, over6(OTHER_HOME6, query4()), prefix));
    assert!(world.is_traced(Side::Access, over6(OTHER_HOME6, query()), prefix), "its address");
}

#[test]
fn filter_selects_homes_without_tunnels_by_their_prefix_or_an_address_in_it() {
    let world = without_tunnels();
    let elsewhere = build::ipv6("2001:db8:1000:ff::9", SERVER6).udp(1, 2, b"x");
    for name in ["2001:db8:1000::/56", HOST, "2001:db8:1000:7::/64"] {
        for packet in [&query(), &elsewhere] {
            assert!(world.is_traced(Side::Access, packet, named6(name)), "{name}");
        }
        assert!(world.is_traced(Side::Internet, answer(), named6(name)), "{name}");
    }
    let other = named6("2001:db8:1000:100::/56");
    assert!(!world.is_traced(Side::Access, query(), other));
    assert!(!world.is_traced(Side::Internet, answer(), other));
    // The first half of a prefix is no IPv4 address.
    let half = of(HomeSelector::Ipv4(0x2001_0db8));
    assert!(!world.is_traced(Side::Access, query(), half));
}

#[test]
fn filter_by_protocol_remote_and_side_selects_packets_of_ipv6() {
    let world = both_tunnels();
    let all = TraceFilter::default();
    let protocol = |protocol| TraceFilter { protocol: Some(protocol), ..all };
    let remote = |range: FamilyRange| TraceFilter { remote: Some(range), ..all };
    let prefix = |text: &str| {
        let net = net(text);
        let (network, mask) = (net.network().to_bits(), net.netmask().to_bits());
        remote(EndpointRange6 { network, mask, port: None }.into())
    };
    let endpoint = |address: &str, port| remote(Endpoint6::new(address6(address), port).into());
    let echo = build::ipv6(HOST, SERVER6).icmp6_echo_request(7, 1, b"ping");
    for (side, packet) in [
        (Side::Access, over4(HOME_A, query())),
        (Side::Access, over6(HOME6, query())),
        (Side::Internet, answer()),
    ] {
        let fits = |filter| world.is_traced(side, &packet, filter);
        assert!(fits(all) && fits(TraceFilter { side: Some(side), ..all }));
        assert!(!fits(TraceFilter { side: Some(Side::ALL[1 - side as usize]), ..all }));
        assert!(fits(protocol(Protocol::Udp)) && !fits(protocol(Protocol::Icmp)));
        assert!(fits(prefix("2001:db8:9::/48")) && !fits(prefix("2001:db8:8::/48")));
        assert!(fits(endpoint(SERVER6, 53)) && !fits(endpoint(SERVER6, 54)));
        assert!(!fits(endpoint(STRANGE_SERVER6, 53)) && !fits(endpoint(HOST, 5000)));
        assert!(!fits(remote(weir_nat::Endpoint::new(SERVER.to_bits(), 53).into())));
    }
    let icmp = protocol(Protocol::Icmp);
    assert!(world.is_traced(Side::Access, over6(HOME6, echo), icmp));
}

/// A worker without IPv6 sees a frame of IPv6 as any other that it does not know.
#[test]
fn frame_of_ipv6_on_a_worker_without_it_is_dropped_by_its_ethertype() {
    let mut world = World::default();
    let trace = world.down_traced(answer());
    assert_eq!(trace.step, TracedStep::Drop(DropReason::EtherType));
    assert_eq!(trace.dropped, Some(DropReason::EtherType));
}

#[test]
fn packets_of_tagged_links_are_recorded() {
    let mut config: EngineConfig = over_ipv6();
    config.access.vlan = Some(7);
    let mut world = World::unstarted(config);
    world.start();
    for packet in [over4(HOME_A, query()), over6(HOME6, query()), over6(HOME6, query4())] {
        let tagged = build::vlan(7, world.ethernet(Side::Access, &packet));
        let (trace, _) = world.frame_traced(Side::Access, &tagged);
        assert_eq!(trace.step, TracedStep::Translate);
        assert!(trace.after.unwrap().record.is_some() && trace.home.is_some());
    }
}
