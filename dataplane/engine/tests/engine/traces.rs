//! What a trace records of packets of each kind.

use std::sync::Arc;

use weir_engine::{DropReason, PacketTrace, Side, TraceFilter, TracedFlow, TracedKind, TracedStep};
use weir_nat::{
    ActiveRules, BucketHit, Endpoint, HomeSelector, HomeView, Protocol, TracedLookUp,
    TracedMapping, TracedRecord,
};
use weir_rules::{RuleAction, RuleFilter, RuleSet};
use weir_wire::build;
use weir_wire::frame::VecFrame;

use crate::world::*;

fn tunnelled(home: &str, inner: impl AsRef<[u8]>) -> Vec<u8> {
    build::ipv4(home, ENDPOINT).gre(build::gre(), inner)
}

fn query() -> Vec<u8> {
    tunnelled(HOME_A, build::ipv4(PC, SERVER).udp(5000, 53, b"x"))
}

fn mapping(look_up: Option<TracedLookUp>) -> TracedMapping {
    match look_up.expect("it was looked up").record {
        Some(TracedRecord::Mapping(mapping)) => mapping,
        other => panic!("there is a mapping, and not {other:?}"),
    }
}

fn shown(home: &str) -> Option<HomeView> {
    Some(HomeView::Ipv4 { outer: home.to_bits(), gre_key: None })
}

fn flow(trace: &PacketTrace) -> TracedFlow {
    trace.flow.expect("it has a key")
}

/// Opens a flow; returns the world and the flow's public endpoint.
fn open() -> (World, Endpoint) {
    let mut world = World::default();
    let (trace, _) = world.traced(Side::Access, &query());
    (world, mapping(trace.after).public)
}

fn answer(public: Endpoint, from: &str) -> Vec<u8> {
    build::ipv4(from, public.address).udp(53, public.port, b"y")
}

#[test]
fn first_packet_finds_no_record_and_leaves_a_mapping_with_its_block() {
    let mut world = World::default();
    let (trace, out) = world.traced(Side::Access, &query());
    assert_eq!(trace.step, TracedStep::Translate);
    assert_eq!(trace.home, shown(HOME_A));
    let TracedFlow { kind, protocol, source, destination, .. } = flow(&trace);
    assert_eq!((kind, protocol), (TracedKind::Whole, Some(Protocol::Udp)));
    assert_eq!(source, Endpoint::new(PC.to_bits(), 5000).into());
    assert_eq!(destination, Endpoint::new(SERVER.to_bits(), 53).into());
    let before = trace.before.unwrap();
    assert_eq!((before.bucket, before.record), (BucketHit::None, None));
    let after = mapping(trace.after);
    let block = after.block.unwrap();
    assert!((block.port_first..=block.port_last).contains(&after.public.port));
    assert_eq!(after.session.unwrap().state, "one-way");
    assert_eq!((trace.dropped, trace.is_held, trace.outputs_total), (None, false, 1));
    let output = trace.outputs[0].unwrap();
    assert_eq!((output.side, output.frame.bytes()), (Side::Internet, &*out.frames[0].1));
    let sent = out.into_internet();
    assert_eq!((ends(&sent).0, ends(&sent).1), (after.public.address, after.public.port));
}

#[test]
fn packets_of_a_known_session_find_it_in_the_primary_bucket() {
    let (mut world, public) = open();
    let (trace, _) = world.traced(Side::Internet, &answer(public, SERVER));
    let before = trace.before.unwrap();
    assert_eq!(before.bucket, BucketHit::Primary);
    assert_eq!((before.is_let_in, before.rule), (None, None));
    assert_eq!(trace.home, shown(HOME_A));
    assert_eq!(mapping(trace.before).session.unwrap().state, "one-way");
    assert_eq!(mapping(trace.after).session.unwrap().state, "stream");
    let output = trace.outputs[0].unwrap();
    assert_eq!(output.side, Side::Access);
    let (trace, _) = world.traced(Side::Access, &query());
    assert!(flow(&trace).fits_fast_path);
    assert_eq!(mapping(trace.after).session.unwrap().state, "stream");
}

#[test]
fn packets_without_a_mapping_or_kept_out_by_the_filter_say_so() {
    let (mut world, public) = open();
    let free = Endpoint::new(public.address, public.port ^ 1);
    let (trace, out) = world.traced(Side::Internet, &answer(free, SERVER));
    assert_eq!(trace.before.unwrap().record, None);
    assert_eq!((trace.dropped, trace.outputs_total), (Some(DropReason::NoMapping), 0));
    assert!(out.is_nothing());
    let (trace, _) = world.traced(Side::Internet, &answer(public, SERVER_2));
    let before = trace.before.unwrap();
    assert_eq!((mapping(trace.before).session, before.is_let_in), (None, Some(false)));
    assert_eq!(trace.dropped, Some(DropReason::Filtered));
}

#[test]
fn refusal_by_a_limit_is_recorded() {
    let mut config = config();
    config.nat.flows_per_subscriber = 1;
    let mut world = World::new(config);
    world.traced(Side::Access, &query());
    let other = tunnelled(HOME_A, build::ipv4(PC, SERVER).udp(5001, 53, b"x"));
    let (trace, _) = world.traced(Side::Access, &other);
    assert_eq!(trace.dropped, Some(DropReason::FlowsPerSubscriber));
    assert_eq!(trace.after.unwrap().record, None);
}

#[test]
fn hairpin_leaves_on_the_side_that_it_came_from() {
    let mut config = config();
    config.nat.filtering = weir_nat::Filtering::EndpointIndependent;
    let mut world = World::new(config);
    let public = mapping(world.traced(Side::Access, &query()).0.after).public;
    let hello = build::ipv4(PC, public.address).udp(6000, public.port, b"h");
    let (trace, _) = world.traced(Side::Access, &tunnelled(HOME_B, hello));
    assert_eq!((trace.outputs_total, trace.outputs[0].unwrap().side), (1, Side::Access));
}

#[test]
fn fragment_without_its_first_is_held() {
    let mut world = World::default();
    let datagram = build::ipv4(PC, SERVER).udp(5000, 53, [7; 64]);
    let pieces = build::fragments(&datagram, 60);
    let (trace, _) = world.traced(Side::Access, &tunnelled(HOME_A, &pieces[1]));
    assert_eq!(flow(&trace).kind, TracedKind::LaterFragment);
    assert_eq!((trace.before, trace.outputs_total, trace.is_held), (None, 0, true));
    let (trace, _) = world.traced(Side::Access, &tunnelled(HOME_A, &pieces[0]));
    assert_eq!(flow(&trace).kind, TracedKind::FirstFragment);
    assert_eq!((trace.outputs_total, trace.is_held), (2, false));
}

#[test]
fn icmp_error_about_a_known_session_reaches_its_home() {
    let (mut world, public) = open();
    let quoted = build::ipv4(public.address, SERVER).udp(public.port, 53, b"x");
    let error = build::ipv4(SERVER, public.address).port_unreachable(&quoted);
    let (trace, out) = world.traced(Side::Internet, &error);
    assert_eq!(flow(&trace).kind, TracedKind::IcmpError);
    assert_eq!((trace.before, trace.dropped, trace.outputs_total), (None, None, 1));
    assert_eq!(out.into_home().0, HOME_A.to_bits());
}

#[test]
fn rule_that_fits_a_new_flow_is_named() {
    let mut world = World::default();
    let rules = RuleSet::new(&[RuleFilter::all(0)], vec![RuleAction::Accept], Vec::new()).unwrap();
    let rules = Box::new(ActiveRules::new(Arc::new(rules)));
    let _ = world.engine.nat_mut().admin_mut().swap_rules(rules);
    let (trace, _) = world.traced(Side::Access, &query());
    let rule = trace.before.unwrap().rule.unwrap();
    assert_eq!((rule.rule, rule.action), (0, RuleAction::Accept));
    let (trace, _) = world.traced(Side::Access, &query());
    assert_eq!(trace.before.unwrap().rule, None, "no rule is asked for a live flow");
}

#[test]
fn filter_selects_packets_of_either_side() {
    let (world, public) = open();
    let frame = |side: Side, packet: &[u8]| {
        VecFrame::new(&build::ethernet(world.macs[side as usize], gateway_mac(side), packet))
    };
    let fits = |filter: TraceFilter, side: Side, packet: &[u8]| {
        world.engine.is_traced(side, &frame(side, packet), &filter)
    };
    let all = TraceFilter::default();
    let of_home = TraceFilter { subscriber: Some(HomeSelector::Ipv4(HOME_A.to_bits())), ..all };
    let of_other = TraceFilter { subscriber: Some(HomeSelector::Ipv4(HOME_B.to_bits())), ..all };
    let remote = Endpoint::new(SERVER.to_bits(), 53).into();
    let to_server = TraceFilter { remote: Some(remote), protocol: Some(Protocol::Udp), ..of_home };
    let tcp = TraceFilter { protocol: Some(Protocol::Tcp), ..all };
    let packets = [(Side::Access, query()), (Side::Internet, answer(public, SERVER))];
    for (side, packet) in &packets {
        assert!(fits(all, *side, packet) && fits(of_home, *side, packet));
        assert!(fits(to_server, *side, packet));
        assert!(!fits(of_other, *side, packet) && !fits(tcp, *side, packet));
        let other_side = TraceFilter { side: Some(Side::ALL[1 - *side as usize]), ..all };
        assert!(!fits(other_side, *side, packet));
    }
    let stranger = answer(public, SERVER_2);
    assert!(
        fits(of_home, Side::Internet, &stranger) && !fits(to_server, Side::Internet, &stranger)
    );
}
