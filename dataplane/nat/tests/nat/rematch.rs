//! Rules that end live flows.

use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowOrigin, Prefix, RuleFilter, RuleSet};

use crate::world::pair::{pair, pair_config, replicate};
use crate::world::*;

/// A rule about what a side begins with one of the servers.
fn rule(number: u32, from: FlowOrigin, protocol: u8, remote: u32) -> RuleFilter<u32> {
    let kinds = FlowKind::new(from, protocol).into_iter().collect();
    RuleFilter { kinds, remote: Prefix::new(server(remote).address, 32), ..RuleFilter::all(number) }
}

/// Puts rules in force. `rematch`: the numbers of those that end live flows.
fn load(world: &mut World, filters: &[RuleFilter<u32>], actions: &[RuleAction], rematch: &[u32]) {
    let set = RuleSet::new(filters, actions.to_vec(), Vec::new()).unwrap();
    let set = set.with_rematch(rematch.to_vec());
    let rules = Box::new(ActiveRules::new(Arc::new(set)));
    drop(world.nat.admin_mut().swap_rules(rules));
}

/// Drops flows of homes to server 1.
fn block_one(world: &mut World, rematch: &[u32]) {
    load(world, &[rule(0, FlowOrigin::Home, 17, 1)], &[RuleAction::Drop], rematch);
}

/// Lets the walk come to every record.
fn walk(world: &mut World) {
    for _ in 0..1000 {
        world.nat.expire(world.now, 1, 1);
    }
}

fn ended(world: &World) -> u64 {
    world.nat.admin().gauges().flow_rematched_total
}

fn hits(world: &World) -> Vec<u64> {
    world.nat.admin().active_rules().hits.to_vec()
}

#[test]
fn live_flows_end_only_under_a_rule_that_says_so() {
    for (rematch, left) in [(&[][..], 200), (&[0][..], 100)] {
        let mut world = World::new(config());
        for n in 0..100 {
            world.udp_out(home(1), inside(n), server(0)).unwrap();
            world.udp_out(home(2), inside(n), server(1)).unwrap();
        }
        block_one(&mut world, rematch);
        walk(&mut world);
        assert_eq!(world.flows(), left);
        let refused = u64::from(200 - left);
        assert_eq!((ended(&world), hits(&world)), (refused, vec![refused]));
        assert_eq!(world.udp_out(home(2), inside(500), server(1)), Err(Refusal::RuleDrop));
        let again = world.udp_out(home(2), inside(0), server(1));
        assert_eq!(again.is_ok(), rematch.is_empty(), "{again:?}");
        assert!(world.udp_out(home(1), inside(0), server(0)).is_ok());
        world.wait_and_collect(1000);
        world.wait_and_collect(1000);
        world.assert_empty();
    }
}

#[test]
fn session_that_is_refused_ends_and_its_mapping_goes_on_with_the_others() {
    // The refused remote is the first of the mapping, a further one, or each of its remotes.
    for (remotes, left) in
        [(&[1, 0, 2][..], 2), (&[0, 1, 2][..], 2), (&[0, 2, 1][..], 2), (&[1][..], 0)]
    {
        let mut world = World::new(config());
        let public = world.udp_out(home(1), inside(0), server(remotes[0])).unwrap();
        for &remote in remotes {
            assert_eq!(world.udp_out(home(1), inside(0), server(remote)), Ok(public));
        }
        block_one(&mut world, &[0]);
        walk(&mut world);
        assert_eq!((world.flows(), ended(&world)), (left, 1), "{remotes:?}");
        let refused = if left == 0 { Refusal::NoMapping } else { Refusal::Filtered };
        assert_eq!(world.udp_back(public, server(1)), Err(refused), "{remotes:?}");
        for &remote in remotes.iter().filter(|&&remote| remote != 1) {
            assert!(world.udp_back(public, server(remote)).is_ok(), "{remotes:?}");
        }
    }
}

#[test]
fn first_rule_that_fits_decides_on_a_live_flow_and_its_origin_is_asked_about() {
    let mut world = World::new(NatConfig { filtering: Filtering::EndpointIndependent, ..config() });
    let public = world.connect(inside(0), server(0));
    world.tcp_back(public, server(1), SYN).unwrap();
    world.tcp_out(home(1), inside(0), server(2), SYN).unwrap();
    assert_eq!(world.flows(), 3);
    // The accepting rule decides on server 2, and what the homes may not begin the internet may.
    let filters = [
        rule(0, FlowOrigin::Home, 6, 2),
        rule(1, FlowOrigin::Home, 6, 1),
        RuleFilter { remote: Prefix::all(), ..rule(2, FlowOrigin::Home, 6, 0) },
    ];
    let actions = [RuleAction::Accept, RuleAction::Reject, RuleAction::Reject];
    load(&mut world, &filters, &actions, &[1, 2]);
    walk(&mut world);
    assert_eq!((world.flows(), hits(&world)), (2, vec![0, 0, 1]));
    load(&mut world, &[rule(0, FlowOrigin::Internet, 6, 1)], &[RuleAction::Drop], &[0]);
    walk(&mut world);
    assert_eq!((world.flows(), ended(&world)), (1, 2));
    assert_eq!(world.list(&SessionFilter::default())[0].ipv4().unwrap().remote, server(2));
}

#[test]
fn owner_ends_flows_of_its_lanes_and_a_copy_follows_until_it_is_taken_over() {
    let (mut primary, mut replica) = pair(&pair_config());
    for n in 0..20 {
        primary.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    replicate(&mut primary, &mut replica);
    block_one(&mut replica, &[0]);
    walk(&mut replica);
    assert_eq!((replica.flows(), ended(&replica)), (20, 0), "its owner decides");
    // The owner is lost before it has asked.
    let now = replica.now;
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, now);
    walk(&mut replica);
    assert_eq!((replica.flows(), ended(&replica)), (0, 20));
    block_one(&mut primary, &[0]);
    walk(&mut primary);
    assert_eq!(primary.flows(), 0);
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(0), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    block_one(&mut primary, &[0]);
    walk(&mut primary);
    replicate(&mut primary, &mut replica);
    assert_eq!((primary.flows(), replica.flows()), (0, 0));
}

#[test]
fn questions_are_bounded_in_each_call() {
    let mut world = World::new(config());
    for n in 0..1000 {
        world.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    block_one(&mut world, &[0]);
    let mut flows = world.flows();
    while flows > 0 {
        world.nat.expire(world.now, 0, 0);
        let ended = flows - world.flows();
        assert!(ended < 32, "{ended} in a call");
        flows -= ended;
    }
}
