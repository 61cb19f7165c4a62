//! Flows to which a rule gives another destination.

use std::collections::HashSet;
use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowOrigin, Prefix, RuleFilter, RuleSet};

use crate::world::pair::{copy, pair, pair_config, replicate};
use crate::world::*;

const RESOLVER: &str = "198.18.0.53";

/// Where flows from homes to port 443 of servers 1 to 3 go; the port stays if there is none.
fn load_to(world: &mut World, port: Option<u16>, rematch: bool) {
    let kinds = [1, 6, 17].map(|protocol| FlowKind::new(FlowOrigin::Home, protocol).unwrap());
    let filter = |number: u32| RuleFilter {
        kinds: kinds.into_iter().collect(),
        remote: Prefix::new(server(number + 1).address, 32),
        ..RuleFilter::all(number)
    };
    let filters = [0, 1, 2].map(filter);
    let destination = Some(Destination { address: address(RESOLVER), port });
    let given = FlowPolicy { destination, ..FlowPolicy::NONE };
    let set = RuleSet::new(&filters, vec![RuleAction::Accept; 3], Vec::new()).unwrap();
    let set = set.with_policies(&[0, 1, 2].map(|rule| (rule, given)));
    let set = if rematch { set.with_rematch(vec![0]) } else { set };
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(Arc::new(set)))));
}

fn world() -> World {
    let mut world = World::new(config());
    load_to(&mut world, Some(53), false);
    world
}

fn resolver() -> Endpoint {
    Endpoint::new(address(RESOLVER), 53)
}

fn sent(world: &mut World, home: Home, remote: Endpoint, flags: u8) -> Translated<Endpoint> {
    let (inside, protocol) = (inside(0), if flags == 0 { Protocol::Udp } else { Protocol::Tcp });
    let hash = world.nat.outbound_hash(&home, inside, protocol);
    let packet = Outbound { home, inside, remote, protocol, tcp_flags: flags };
    world.nat.outbound(hash, &packet, world.now).unwrap()
}

fn received(
    world: &mut World,
    public: Endpoint,
    remote: Endpoint,
    flags: u8,
) -> Result<Translated<Delivery>, Refusal> {
    let protocol = if flags == 0 { Protocol::Udp } else { Protocol::Tcp };
    let hash = world.nat.inbound_hash(public, protocol);
    let packet = Inbound { public, remote, protocol, tcp_flags: flags };
    world.nat.inbound(hash, &packet, world.now)
}

fn delivery() -> Delivery {
    Delivery { home: home(1), inside: inside(0) }
}

#[test]
fn packets_go_to_the_destination_and_answers_come_from_the_asked_one() {
    let mut world = world();
    let mut publics = HashSet::new();
    for _ in 0..3 {
        for asked in [server(1), server(2), server(3)] {
            let out = sent(&mut world, home(1), asked, 0);
            assert_eq!(out.remote, Some(resolver()));
            publics.insert(out.to);
            let back = received(&mut world, out.to, resolver(), 0).unwrap();
            assert_eq!((back.to, back.remote), (delivery(), Some(asked)));
        }
        let plain = sent(&mut world, home(1), server(0), 0);
        assert_eq!(plain.remote, None);
        assert_eq!(received(&mut world, plain.to, server(0), 0).unwrap().remote, None);
        let direct = sent(&mut world, home(1), resolver(), 0);
        assert_eq!((direct.to, direct.remote), (plain.to, None), "it is of the other flows");
        assert_eq!(received(&mut world, plain.to, resolver(), 0).unwrap().remote, None);
    }
    assert_eq!(publics.len(), 3, "each has a public endpoint of its own");
    assert_eq!(world.flows(), 3 + 2);
    world.nat.admin().audit();
}

#[test]
fn only_the_destination_reaches_the_public_endpoint_whatever_filtering_says() {
    let config = NatConfig { filtering: Filtering::EndpointIndependent, ..config() };
    let mut world = World::new(config);
    load_to(&mut world, None, false);
    let out = sent(&mut world, home(1), server(1), 0);
    let destination = Endpoint { port: server(1).port, ..resolver() };
    assert_eq!(out.remote, Some(destination), "the port stays");
    for stranger in [server(0), server(1), resolver()] {
        let refused = received(&mut world, out.to, stranger, 0);
        assert_eq!(refused, Err(Refusal::Filtered), "{stranger}");
    }
    assert!(received(&mut world, out.to, destination, 0).is_ok());
}

#[test]
fn connection_is_tracked_from_its_first_segment_to_its_last() {
    let mut world = world();
    let public = sent(&mut world, home(1), server(1), SYN).to;
    received(&mut world, public, resolver(), SYN_ACK).unwrap();
    for _ in 0..3 {
        let out = sent(&mut world, home(1), server(1), ACK);
        assert_eq!((out.to, out.remote), (public, Some(resolver())));
    }
    let listed = world.list(&SessionFilter::default());
    assert_eq!((listed.len(), listed[0].state), (1, "established"));
    let ends = listed[0].ipv4().unwrap();
    assert_eq!((ends.remote, ends.asked), (resolver(), Some(server(1))));
    world.wait_and_collect(7000);
    assert_eq!(world.flows(), 1, "it has the timer of an established connection");
    sent(&mut world, home(1), server(1), FIN_ACK);
    received(&mut world, public, resolver(), FIN_ACK).unwrap();
    sent(&mut world, home(1), server(1), ACK);
    world.wait_and_collect(300);
    world.assert_empty();
}

#[test]
fn session_is_listed_by_either_destination() {
    let mut world = world();
    sent(&mut world, home(1), server(1), 0);
    sent(&mut world, home(2), server(0), 0);
    for (remote, found) in [(server(1), 1), (resolver(), 1), (server(0), 1), (server(2), 0)] {
        let filter = SessionFilter { remote: Some(remote.into()), ..SessionFilter::default() };
        assert_eq!(world.list(&filter).len(), found, "{remote}");
    }
}

#[test]
fn flow_ends_with_its_timer_and_its_port_rests() {
    let mut world = world();
    let public = sent(&mut world, home(1), server(1), 0).to;
    world.wait(301);
    assert_eq!(received(&mut world, public, resolver(), 0), Err(Refusal::NoMapping));
    let again = sent(&mut world, home(1), server(1), 0);
    assert_ne!(again.to, public, "the former port is in quarantine");
    assert_eq!(world.nat.admin().gauges().quarantined, 1);
    world.nat.admin().audit();
    world.wait_and_collect(301);
    world.wait_and_collect(121);
    world.assert_empty();
}

#[test]
fn one_inside_endpoint_may_ask_any_number_of_destinations() {
    let mut config = config();
    config.ports_per_subscriber = 1024;
    let mut world = World::new(config);
    let set = RuleSet::new(&[RuleFilter::all(0)], vec![RuleAction::Accept], Vec::new()).unwrap();
    let destination = Some(Destination { address: address(RESOLVER), port: Some(53) });
    let set = set.with_policies(&[(0, FlowPolicy { destination, ..FlowPolicy::NONE })]);
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(Arc::new(set)))));
    let asked: Vec<_> = (0..900).map(server).collect();
    let publics: Vec<_> =
        asked.iter().map(|&asked| sent(&mut world, home(1), asked, 0).to).collect();
    for (&asked, &public) in asked.iter().zip(&publics) {
        assert_eq!(sent(&mut world, home(1), asked, 0).to, public);
        let back = received(&mut world, public, resolver(), 0).unwrap();
        assert_eq!(back.remote, Some(asked));
    }
    world.nat.admin().audit();
}

#[test]
fn live_flows_keep_what_they_have_when_rules_change() {
    let mut world = World::new(config());
    let before = sent(&mut world, home(1), server(1), 0);
    load_to(&mut world, Some(53), false);
    assert_eq!(sent(&mut world, home(1), server(1), 0), before);
    let redirected = sent(&mut world, home(1), server(2), 0);
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::none())));
    assert_eq!(sent(&mut world, home(1), server(2), 0), redirected);
    assert_eq!(sent(&mut world, home(1), server(3), 0).to, before.to);
    world.nat.admin().audit();
}

/// RFC 5508 REQ-4, REQ-5: errors about the flow find it from either side.
#[test]
fn errors_about_the_flow_are_translated_with_both_its_ends() {
    let mut world = world();
    let public = sent(&mut world, home(1), server(1), 0).to;
    let quoted = world.nat.peek_inbound(public, resolver(), Protocol::Udp).unwrap();
    assert_eq!((quoted.to, quoted.remote), (delivery(), Some(server(1))));
    assert_eq!(world.nat.peek_inbound(public, server(1), Protocol::Udp), None);
    let quoted = world.nat.peek_outbound(&home(1), inside(0), server(1), Protocol::Udp).unwrap();
    assert_eq!((quoted.to, quoted.remote), (public, Some(resolver())));
    let direct = world.nat.peek_outbound(&home(1), inside(0), resolver(), Protocol::Udp);
    assert_eq!(direct, None, "no packet came from there for the home to see");
}

#[test]
fn copies_have_both_destinations_and_serve_after_a_take_over() {
    for is_whole_copy in [false, true] {
        let config = NatConfig { ports_per_subscriber: 128, ..pair_config() };
        let (mut primary, mut replica) = pair(&config);
        load_to(&mut primary, Some(53), false);
        let udp = [1, 2].map(|n| sent(&mut primary, home(1), server(n), 0).to);
        let tcp = sent(&mut primary, home(1), server(1), SYN).to;
        received(&mut primary, tcp, resolver(), SYN_ACK).unwrap();
        let plain = sent(&mut primary, home(1), server(0), 0).to;
        match is_whole_copy {
            true => copy(&primary, &mut replica, false),
            false => drop(replicate(&mut primary, &mut replica)),
        }
        replica.nat.admin().audit();
        let now = replica.now;
        replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, now);
        for (n, public) in [(1, udp[0]), (2, udp[1])] {
            let out = sent(&mut replica, home(1), server(n), 0);
            assert_eq!((out.to, out.remote), (public, Some(resolver())));
            let back = received(&mut replica, public, resolver(), 0).unwrap();
            assert_eq!(back.remote, Some(server(n)));
        }
        let out = sent(&mut replica, home(1), server(1), ACK);
        assert_eq!((out.to, out.remote), (tcp, Some(resolver())));
        assert_eq!(sent(&mut replica, home(1), server(0), 0).to, plain);
        replica.nat.admin().audit();
        replica.wait_and_collect(302);
        replica.wait_and_collect(600);
        assert_eq!(replica.flows(), 1, "the connection");
    }
}

#[test]
fn rule_about_the_asked_destination_ends_the_flow_where_it_says_so() {
    let mut world = world();
    let kept = sent(&mut world, home(1), server(2), 0).to;
    sent(&mut world, home(1), server(1), 0);
    let filter = RuleFilter { remote: Prefix::new(server(1).address, 32), ..RuleFilter::all(0) };
    let about_destination =
        RuleFilter { remote: Prefix::new(address(RESOLVER), 32), ..RuleFilter::all(1) };
    let actions = vec![RuleAction::Drop, RuleAction::Drop];
    let set = RuleSet::new(&[filter, about_destination], actions, Vec::new()).unwrap();
    let set = set.with_rematch(vec![0, 1]);
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(Arc::new(set)))));
    for _ in 0..1000 {
        world.nat.expire(world.now, 1, 1);
    }
    assert_eq!(world.flows(), 1);
    assert_eq!(received(&mut world, kept, resolver(), 0).unwrap().remote, Some(server(2)));
    world.nat.admin().audit();
}
