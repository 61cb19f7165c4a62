//! IPv6 flows: a firewall for homes whose addresses are not translated.

use std::sync::Arc;

use weir_nat::*;
use weir_rules::FlowOrigin;

use crate::world::ipv6::*;
use crate::world::pair::{copy, pair_config, replicate, worker};
use crate::world::*;

#[test]
fn answers_reach_the_home_and_nothing_else_does() {
    let mut world = claiming();
    assert_eq!(world.udp_back6(host6(1, 5000), server6(1)), Err(Refusal::NoMapping));
    world.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    assert_eq!(world.udp_back6(host6(1, 5000), server6(1)), Ok(home(1)));
    let refused = Err(Refusal::NoMapping);
    assert_eq!(world.udp_back6(host6(1, 5000), server6(2)), refused, "another server");
    let other_port = Endpoint6 { port: 444, ..server6(1) };
    assert_eq!(world.udp_back6(host6(1, 5000), other_port), refused, "another port");
    assert_eq!(world.udp_back6(host6(1, 5001), server6(1)), refused, "another inside port");
    let other_host = Endpoint6 { address: host6(1, 0).address + 1, port: 5000 };
    assert_eq!(world.udp_back6(other_host, server6(1)), refused, "another host");
    assert_eq!(world.back6(host6(1, 5000), server6(1), Protocol::Tcp, SYN), refused);
    assert_eq!(world.flows6(), 1);
}

#[test]
fn tcp_needs_a_syn_to_begin_and_ends_with_its_timers() {
    let mut world = claiming();
    let segment = world.out6(home(1), host6(1, 5000), server6(1), Protocol::Tcp, ACK);
    assert_eq!(segment, Err(Refusal::TcpNotSyn));
    world.connect6(home(1), host6(1, 5000), server6(1));
    let timeouts = Timeouts::default();
    world.now.0 += timeouts.tcp_established - 1;
    world.wait_and_collect(0);
    assert_eq!(world.flows6(), 1);
    world.now.0 += 2;
    world.wait_and_collect(0);
    assert_eq!(world.flows6(), 0);
    world.connect6(home(1), host6(1, 5000), server6(1));
    world.out6(home(1), host6(1, 5000), server6(1), Protocol::Tcp, FIN_ACK).unwrap();
    world.back6(host6(1, 5000), server6(1), Protocol::Tcp, FIN_ACK).unwrap();
    world.now.0 += timeouts.tcp_close + 1;
    world.wait_and_collect(0);
    assert_eq!(world.flows6(), 0);
    world.now.0 += HOLD_SEC + 1;
    world.wait_and_collect(0);
    world.assert_empty_but_lanes();
}

/// A flow that has run out, and that the walk has not collected yet, lets nothing in.
#[test]
fn flow_that_has_run_out_lets_nothing_in() {
    let mut world = claiming();
    world.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    world.now.0 += Timeouts::default().udp + 1;
    assert_eq!(world.udp_back6(host6(1, 5000), server6(1)), Err(Refusal::NoMapping));
    assert_eq!(world.flows6(), 0);
}

#[test]
fn prefix_belongs_to_the_home_that_claimed_it_and_for_the_hold_time_after_its_flows() {
    let mut world = claiming();
    world.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    let conflict = Err(Refusal::AddressConflict);
    let other_host = Endpoint6 { address: host6(1, 0).address + 99, port: 1 };
    for inside in [host6(1, 5000), host6(1, 5001), other_host] {
        assert_eq!(world.udp_out6(home(2), inside, server6(1)), conflict, "{inside}");
        assert_eq!(world.udp_out6(home(2), inside, server6(2)), conflict, "{inside}");
    }
    assert_eq!(world.nat.admin().gauges().subscribers, 1, "a refused home holds nothing");
    world.udp_out6(home(2), host6(2, 5000), server6(1)).unwrap();
    world.udp_out6(home(1), host6(3, 5000), server6(1)).unwrap();
    world.now.0 += Timeouts::default().udp + 1;
    world.wait_and_collect(0);
    assert_eq!(world.flows6(), 0);
    assert_eq!(world.udp_out6(home(2), host6(1, 5000), server6(1)), conflict, "the prefix rests");
    world.now.0 += HOLD_SEC + 1;
    world.wait_and_collect(0);
    world.udp_out6(home(2), host6(1, 5000), server6(1)).unwrap();
    assert_eq!(world.flows6(), 1);
}

#[test]
fn addresses_outside_the_prefixes_of_the_shard_are_refused() {
    let mut world = claiming();
    let refused = Err(Refusal::InsideNotPublic);
    let of_other_shard = Endpoint6::new(0x2001_0db8_2000 << 80, 5000);
    assert_eq!(world.udp_out6(home(1), of_other_shard, server6(1)), refused);
    assert_eq!(world.udp_out6(home(1), server6(2), server6(1)), refused);
    let stranger = Home { outer: address("10.9.0.1"), ..home(1) };
    assert_eq!(world.udp_out6(stranger, host6(1, 5000), server6(1)), Err(Refusal::NotSubscriber));
    assert_eq!(world.flows6(), 0);
}

#[test]
fn home_has_the_prefixes_that_are_delegated_to_it_and_no_others() {
    let mut world = World::new(with_ipv6(config(), Delegation::Static));
    let none = world.udp_out6(home(1), host6(0x100, 1), server6(1));
    assert_eq!(none, Err(Refusal::InsideNotPublic), "nothing is delegated");
    let prefix = "2001:db8:1000:100::/56".parse().unwrap();
    let list = [DelegatedPrefix { prefix, outer: home(1).outer.into(), gre_key: None }];
    let mut list = Arc::new(Delegations::new(&list).unwrap());
    world.nat.admin_mut().swap_delegations(&mut list);
    assert!(list.is_empty());
    world.udp_out6(home(1), host6(0x100, 1), server6(1)).unwrap();
    world.udp_out6(home(1), host6(0x1ff, 1), server6(1)).unwrap();
    assert_eq!(world.udp_out6(home(2), host6(0x1fe, 1), server6(1)), Err(Refusal::AddressConflict));
    assert_eq!(world.udp_out6(home(1), host6(0x200, 1), server6(1)), Err(Refusal::InsideNotPublic));
    assert_eq!(world.udp_back6(host6(0x1ff, 1), server6(1)), Ok(home(1)));
}

#[test]
fn home_without_a_tunnel_is_its_prefix() {
    let config = with_ipv6(config(), Delegation::Prefix { home_length: 56 });
    let mut world = World::new(NatConfig { flows_per_subscriber: 2, ..config });
    let home_of =
        |world: &World, inside: Endpoint6| world.nat.home_of_inside6(SHARD, inside.address);
    let home = home_of(&world, host6(0x123, 0));
    assert_eq!(home.prefix(), Some(0x2001_0db8_1000_0100));
    assert_eq!(home, home_of(&world, host6(0x1ff, 0)));
    assert_ne!(home, home_of(&world, host6(0x200, 0)));
    world.udp_out6(home, host6(0x123, 1), server6(1)).unwrap();
    world.udp_out6(home, host6(0x1ff, 1), server6(1)).unwrap();
    assert_eq!(
        world.udp_out6(home, host6(0x1ff, 2), server6(1)),
        Err(Refusal::FlowsPerSubscriber),
        "both are of one home"
    );
    assert_eq!(world.udp_back6(host6(0x1ff, 1), server6(1)), Ok(home));
    assert_eq!(world.flows6(), 2);
    world.nat.note_refused(Refusal::FlowsPerSubscriber, &home, Protocol::Udp);
    let refused = world.nat.admin_mut().next_refusal().map(|refused| refused.subscriber);
    let prefix = LoggedSubscriber::Prefix { bits: 0x2001_0db8_1000_0100, length: 56 };
    assert_eq!(refused, Some(prefix));
    // An IPv4 home whose address is the upper half of the prefix is another home.
    let ipv4 = Home { outer: home.outer, gre_key: None, ..home };
    assert!(!world.nat.is_subscriber(&ipv4) && world.nat.is_subscriber(&home));
}

#[test]
fn flows_of_both_families_share_the_limits_of_their_home() {
    let config = NatConfig { flows_per_subscriber: 2, ..config() };
    let mut world = World::new(with_ipv6(config, Delegation::Claim { hold_sec: HOLD_SEC }));
    world.udp_out(home(1), inside(1), server(1)).unwrap();
    world.udp_out6(home(1), host6(1, 1), server6(1)).unwrap();
    let full = Err(Refusal::FlowsPerSubscriber);
    assert_eq!(world.udp_out6(home(1), host6(1, 2), server6(1)), full);
    assert_eq!(world.udp_out(home(1), inside(2), server(1)).err(), full.err());
    let gauges = world.nat.admin().gauges();
    assert_eq!((gauges.flows, gauges.flows6, gauges.subscribers), (2, 1, 1));
    let now = world.now;
    assert_eq!(world.nat.admin_mut().flush_subscriber(home(1).outer, now), 2);
    assert_eq!(world.flows6(), 0);
}

#[test]
fn rule_lets_the_internet_in_where_a_home_has_the_prefix() {
    let mut world = claiming();
    world.set_rule(FlowOrigin::Internet, RuleAction::Accept);
    let refused = Err(Refusal::NoMapping);
    assert_eq!(world.udp_back6(host6(1, 22), server6(1)), refused, "no home has the prefix");
    world.udp_out6(home(1), host6(1, 5000), server6(9)).unwrap();
    assert_eq!(world.udp_back6(host6(1, 22), server6(1)), Ok(home(1)));
    assert_eq!(world.back6(host6(1, 22), server6(1), Protocol::Tcp, ACK), Err(Refusal::TcpNotSyn));
    assert_eq!(world.back6(host6(1, 22), server6(1), Protocol::Tcp, SYN), Ok(home(1)));
    let stranger = Endpoint6::new(0x2001_0db8_8000 << 80, 443);
    assert_eq!(world.udp_back6(host6(1, 22), stranger), refused, "no rule is about it");
    assert_eq!(world.nat.admin().active_rules().hits[0], 2);
    assert_eq!(world.flows6(), 3);
}

#[test]
fn rule_keeps_homes_from_a_network_and_ends_their_live_flows_there() {
    let mut world = claiming();
    world.udp_out6(home(1), host6(1, 1), server6(1)).unwrap();
    let elsewhere = Endpoint6::new(0x2001_0db8_8000 << 80, 443);
    world.udp_out6(home(1), host6(1, 1), elsewhere).unwrap();
    world.set_rule(FlowOrigin::Home, RuleAction::Reject);
    assert_eq!(world.udp_out6(home(1), host6(1, 2), server6(1)), Err(Refusal::RuleReject));
    world.wait_and_collect(0);
    assert_eq!(world.flows6(), 1);
    assert_eq!(world.nat.admin().gauges().flow_rematched_total, 1);
    assert_eq!(world.udp_back6(host6(1, 1), server6(1)), Err(Refusal::NoMapping));
    assert_eq!(world.udp_back6(host6(1, 1), elsewhere), Ok(home(1)));
}

#[test]
fn bypass_lets_packets_pass_without_a_flow() {
    let mut world = claiming();
    world.set_rule(FlowOrigin::Home, RuleAction::Bypass);
    let sent = world.out6(home(1), host6(1, 1), server6(1), Protocol::Tcp, ACK);
    assert_eq!(sent, Err(Refusal::RuleBypass));
    assert_eq!(world.udp_out6(home(1), host6(1, 1), server6(1)), Err(Refusal::RuleBypass));
    assert_eq!(world.flows6(), 0);
}

#[test]
fn replica_serves_the_flows_of_its_primary_and_knows_the_claims() {
    let (mut primary, mut replica) = pair6();
    primary.connect6(home(1), host6(1, 5000), server6(1));
    primary.udp_out6(home(2), host6(2, 5000), server6(1)).unwrap();
    assert_eq!(replicate(&mut primary, &mut replica).len(), 2);
    assert_eq!(replica.flows6(), 2);
    let data = replica.back6(host6(1, 5000), server6(1), Protocol::Tcp, ACK);
    assert_eq!(data, Ok(home(1)));
    assert_eq!(replica.udp_back6(host6(2, 5000), server6(1)), Ok(home(2)));
    assert_eq!(
        replica.udp_out6(home(2), host6(1, 7), server6(1)),
        Err(Refusal::AddressConflict),
        "the prefix is the first home's"
    );
    replica.udp_out6(home(1), host6(1, 7), server6(1)).unwrap();
    // A segment that ends the connection is reported to the owner, which tells the replica.
    replica.back6(host6(1, 5000), server6(1), Protocol::Tcp, FIN_ACK).unwrap();
    replica.out6(home(1), host6(1, 5000), server6(1), Protocol::Tcp, FIN_ACK).unwrap();
    replicate(&mut replica, &mut primary);
    replicate(&mut primary, &mut replica);
    for world in [&mut primary, &mut replica] {
        world.now.0 += Timeouts::default().tcp_close + 1;
    }
    primary.wait_and_collect(0);
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Delete]);
    assert_eq!((primary.flows6(), replica.flows6()), (2, 2));
}

#[test]
fn copy_of_a_lane_has_its_ipv6_flows_and_the_same_sum() {
    let (mut primary, mut replica) = pair6();
    for n in 1..=50 {
        primary.udp_out6(home(u32::from(n) % 7), host6(n % 7, n), server6(n)).unwrap();
        primary.udp_out(home(u32::from(n) % 7), inside(n), server(1)).unwrap();
    }
    copy(&primary, &mut replica, false);
    assert_eq!((primary.flows6(), replica.flows6()), (50, 50));
    let sum = |world: &World, lane| world.nat.replica().sum_lane(SHARD, lane, 0..u32::MAX);
    for lane in 0..7 {
        assert_eq!(sum(&primary, lane), sum(&replica, lane), "lane {lane}");
    }
    let one = sum(&primary, 0);
    primary.udp_out6(home(1), host6(1, 99), server6(1)).unwrap();
    assert_ne!(sum(&primary, 0), one);
    // A copy that comes again changes nothing; what ended meanwhile goes.
    copy(&primary, &mut replica, false);
    assert_eq!(replica.flows6(), 51);
    for world in [&mut primary, &mut replica] {
        world.now.0 += Timeouts::default().udp + 1;
    }
    primary.wait_and_collect(0);
    copy(&primary, &mut replica, false);
    assert_eq!(replica.flows6(), 0);
}

#[test]
fn worker_that_takes_the_lanes_over_goes_on_with_their_flows() {
    let (mut primary, mut replica) = pair6();
    primary.connect6(home(1), host6(1, 5000), server6(1));
    replicate(&mut primary, &mut replica);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(replica.back6(host6(1, 5000), server6(1), Protocol::Tcp, ACK), Ok(home(1)));
    replica.now.0 += Timeouts::default().tcp_established + 1;
    replica.wait_and_collect(0);
    assert_eq!(replica.flows6(), 0);
}

/// Flows of prefixes that are not the worker's, or of homes of another kind, are refused.
#[test]
fn copy_that_cannot_be_of_the_shard_is_refused() {
    let config = with_ipv6(pair_config(), Delegation::Claim { hold_sec: HOLD_SEC });
    let mut primary = worker(config.clone(), 0x7f);
    primary.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    let mut body = [0; BODY_MAX];
    let (change, len) = primary.nat.replica_mut().next_change(&mut body).unwrap();
    let apply = |config: NatConfig, body: &[u8]| {
        let mut other = worker(config, 0x80);
        let applied = other.nat.replica_mut().apply(&change, body, other.now);
        other.nat.admin().audit();
        applied
    };
    assert_eq!(apply(config.clone(), &body[..len]), Applied::Done);
    let mut elsewhere = config.clone();
    elsewhere.shards[0].public6 = vec!["2001:db8:3000::/40".parse().unwrap()];
    assert_eq!(apply(elsewhere, &body[..len]), Applied::Invalid);
    let prefixes = with_ipv6(pair_config(), Delegation::Prefix { home_length: 64 });
    assert_eq!(apply(prefixes, &body[..len]), Applied::Invalid);
    assert_eq!(apply(pair_config(), &body[..len]), Applied::Invalid, "a worker without IPv6");
    for cut in 1..len {
        assert_eq!(apply(config.clone(), &body[..cut]), Applied::Invalid, "{cut} bytes");
    }
}

#[test]
fn packets_that_wait_for_replicas_depend_on_the_flow_that_they_began() {
    let mut primary =
        worker(with_ipv6(pair_config(), Delegation::Claim { hold_sec: HOLD_SEC }), 0x7f);
    primary.nat.replica_mut().keep_commits(64, false);
    primary.nat.replica_mut().set_commit(SHARD, true);
    primary.nat.begin_packet();
    primary.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    let Dependency::Batch(batch) = primary.nat.dependency() else { panic!("it waits") };
    primary.nat.begin_packet();
    assert_eq!(primary.udp_back6(host6(1, 5000), server6(1)), Ok(home(1)));
    assert_eq!(primary.nat.dependency(), Dependency::Batch(batch));
    primary.nat.replica_mut().close_batch();
    primary.nat.replica_mut().commit(batch);
    primary.nat.begin_packet();
    assert_eq!(primary.udp_back6(host6(1, 5000), server6(1)), Ok(home(1)));
    assert_eq!(primary.nat.dependency(), Dependency::Nothing);
    // A batch that is given up ends the flows that began with it.
    primary.nat.begin_packet();
    primary.udp_out6(home(1), host6(1, 5001), server6(1)).unwrap();
    let Dependency::Batch(batch) = primary.nat.dependency() else { panic!("it waits") };
    primary.nat.replica_mut().close_batch();
    primary.nat.replica_mut().give_up(batch, primary.now);
    assert_eq!(primary.flows6(), 1);
}

#[test]
fn shard_that_is_removed_leaves_no_ipv6_flow_and_no_prefix() {
    let mut world = claiming();
    for n in 0..300 {
        world.udp_out6(home(1), host6(n, 5000), server6(1)).unwrap();
    }
    world.nat.replica_mut().begin_removal(SHARD);
    for _ in 0..100 {
        world.wait_and_collect(0);
    }
    assert!(world.nat.replica().is_removed(SHARD));
    assert_eq!(world.flows6(), 0);
    assert_eq!(world.nat.shard_of_inside6(host6(1, 0).address), None);
}
