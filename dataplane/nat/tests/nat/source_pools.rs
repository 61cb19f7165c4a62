//! Source pools: addresses for the flows of a rule, and for no others.

use std::collections::HashSet;
use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowOrigin, Prefix, RuleFilter, RuleSet};

use crate::world::pair::{pair, pair_config, replicate};
use crate::world::*;

fn pool(number: u8) -> SourcePool {
    SourcePool::new(number).unwrap()
}

/// Gives flows to server `n` pool `n`; pool 1 has these addresses of the first shard.
fn load(world: &mut World, mail: &[&str]) {
    let kinds = [1, 6, 17].map(|protocol| FlowKind::new(FlowOrigin::Home, protocol).unwrap());
    let filter = |number: u32| RuleFilter {
        kinds: kinds.into_iter().collect(),
        remote: Prefix::new(server(number + 1).address, 32),
        ..RuleFilter::all(number)
    };
    let set = RuleSet::new(&[filter(0), filter(1)], vec![RuleAction::Accept; 2], Vec::new());
    let given = |number| FlowPolicy { source: pool(number), ..FlowPolicy::NONE };
    let pools = mail.iter().map(|it| (Prefix::new(address(it), 32), pool(1))).collect();
    let set = set.unwrap().with_policies(&[(0, given(1)), (1, given(2))]).with_source_pools(pools);
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(Arc::new(set)))));
}

const MAIL: &str = "203.0.113.2";

fn world() -> World {
    let mut world = World::new(config());
    load(&mut world, &[MAIL]);
    world
}

#[test]
fn flows_of_a_pool_have_its_addresses_and_no_other_flows_do() {
    let mut world = world();
    let mut others = HashSet::new();
    for n in 1..=64 {
        let mail = world.udp_out(home(n), inside(0), server(1)).unwrap();
        assert_eq!(mail.address, address(MAIL));
        let other = world.udp_out(home(n), inside(1), server(0)).unwrap();
        others.insert(other.address);
        for (public, end, remote) in [(mail, 0, 1), (other, 1, 0)] {
            let delivery = Delivery { home: home(n), inside: inside(end) };
            assert_eq!(world.udp_back(public, server(remote)), Ok(delivery));
        }
    }
    let all = ["203.0.113.0", "203.0.113.1", "203.0.113.3"].map(address);
    assert_eq!(others, HashSet::from(all));
    world.nat.admin().audit();
    world.wait_and_collect(301);
    world.wait_and_collect(121);
    world.assert_empty();
}

/// RFC 4787 REQ-1: endpoint-independent mapping holds among the flows of each pool.
#[test]
fn an_inside_endpoint_has_one_public_endpoint_in_each_pool() {
    let filtering = Filtering::AddressAndPortDependent;
    let mut world = World::new(NatConfig { filtering, ..config() });
    load(&mut world, &[MAIL]);
    let own = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let mail = world.udp_out(home(1), inside(0), server(1)).unwrap();
    assert_ne!(own, mail);
    for n in [3, 4, 0, 5] {
        assert_eq!(world.udp_out(home(1), inside(0), server(n)), Ok(own));
    }
    let other_port = Endpoint { port: 80, ..server(1) };
    for remote in [other_port, server(1), other_port] {
        assert_eq!(world.udp_out(home(1), inside(0), remote), Ok(mail));
    }
    for (public, remote) in [(own, server(5)), (mail, other_port)] {
        assert_eq!(world.udp_back(public, remote).unwrap().inside, inside(0));
    }
    assert_eq!(world.udp_back(own, server(1)), Err(Refusal::Filtered), "it is not of this mapping");
    assert_eq!(world.flows(), 4 + 2);
    world.nat.admin().audit();
}

/// Takes these addresses out of service for new blocks, and no others.
fn drain(world: &mut World, addresses: &[&str]) {
    let drained = |address: &&str| PrefixOutOfService {
        prefix: format!("{address}/32").parse().unwrap(),
        how: OutOfService::Drained,
    };
    let prefixes = addresses.iter().map(drained).collect();
    drop(world.nat.admin_mut().swap_out_of_service(prefixes));
    (0..10).for_each(|_| _ = world.nat.expire(world.now, 1, 1));
}

#[test]
fn home_has_one_address_in_a_pool_until_that_is_full() {
    let hard =
        NatConfig { port_block: 64, port_min: 62_000, ports_per_subscriber: 256, ..config() };
    let soft = NatConfig { pooling: Pooling::Soft, ..hard.clone() };
    for (config, may_move) in [(hard, false), (soft, true)] {
        let mut world = World::new(config);
        load(&mut world, &["203.0.113.1", MAIL]);
        drain(&mut world, &["203.0.113.1"]);
        let sent = |world: &mut World, home, ports: std::ops::Range<u16>| -> HashSet<u32> {
            let public = |n| world.udp_out(home, inside(n), server(1)).ok();
            ports.filter_map(public).map(|public| public.address).collect()
        };
        let own = HashSet::from([address(MAIL)]);
        assert_eq!(sent(&mut world, home(1), 0..100), own);
        for n in 2..=40 {
            sent(&mut world, home(n), 0..256);
        }
        drain(&mut world, &[]);
        let more = sent(&mut world, home(1), 100..256);
        assert_eq!(more.contains(&address("203.0.113.1")), may_move, "{more:?}");
        let others = sent(&mut world, home(50), 0..10);
        assert_eq!(others, HashSet::from([address("203.0.113.1")]), "a new home has the other one");
        world.nat.admin().audit();
    }
}

#[test]
fn pool_without_an_address_in_the_shard_refuses_and_other_flows_go_on() {
    let mut world = world();
    assert_eq!(world.udp_out(home(1), inside(0), server(2)), Err(Refusal::PortsExhausted));
    assert_eq!(world.nat.admin().gauges().subscribers, 0, "nothing is left of the attempt");
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    assert_eq!(world.udp_out(home(1), inside(0), server(2)), Err(Refusal::PortsExhausted));
    assert_eq!(world.udp_out(home(1), inside(0), server(3)), Ok(public));
    let elsewhere = Home { shard: ShardIndex(1), ..home(1) };
    assert_eq!(world.udp_out(elsewhere, inside(0), server(1)), Err(Refusal::PortsExhausted));
    world.nat.admin().audit();
}

#[test]
fn blocks_are_counted_by_pool() {
    let mut world = world();
    let counts = |world: &World| {
        let gauges = world.nat.admin().shard_gauges(SHARD);
        let pool = gauges.source_pools[0];
        ((gauges.blocks_free, gauges.blocks_total), (pool.free, pool.total))
    };
    let ((free, total), (own_free, own_total)) = counts(&world);
    assert_eq!((free, own_free), (total, own_total));
    assert_eq!(total, 3 * own_total, "three of four addresses are in no pool");
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    assert_eq!(counts(&world), ((total, total), (own_total - 1, own_total)));
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    assert_eq!(counts(&world), ((total - 1, total), (own_total - 1, own_total)));
    load(&mut world, &[]);
    assert_eq!(counts(&world), ((4 * own_total - 2, 4 * own_total), (0, 0)));
}

#[test]
fn quota_of_a_home_counts_the_blocks_of_all_pools() {
    let config = NatConfig { port_block: 64, ports_per_subscriber: 128, ..config() };
    let mut world = World::new(config);
    load(&mut world, &[MAIL]);
    let used = |world: &mut World, to: u32| {
        (0..200).filter(|&n| world.udp_out(home(1), inside(n), server(to)).is_ok()).count()
    };
    assert_eq!((used(&mut world, 1), used(&mut world, 0)), (128, 0));
    world.wait_and_collect(301);
    world.wait_and_collect(121);
    world.udp_out(home(1), inside(999), server(1)).unwrap();
    assert_eq!((used(&mut world, 0), used(&mut world, 1)), (64, 63));
}

#[test]
fn address_that_enters_a_pool_keeps_its_flows_and_gets_no_others() {
    let mut world = world();
    load(&mut world, &[]);
    let on_mail = (1..100)
        .map(home)
        .find(|&home| world.udp_out(home, inside(0), server(0)).unwrap().address == address(MAIL))
        .unwrap();
    let before = world.udp_out(on_mail, inside(0), server(0)).unwrap();
    load(&mut world, &[MAIL]);
    assert_eq!(world.udp_out(on_mail, inside(0), server(0)), Ok(before));
    assert_eq!(world.udp_back(before, server(0)).unwrap().inside, inside(0));
    let new = world.udp_out(on_mail, inside(1), server(0)).unwrap();
    assert_ne!(new.address, before.address, "the home is paired with another address");
    let further = world.udp_out(on_mail, inside(0), server(3)).unwrap();
    assert_eq!(further.address, new.address, "a further remote is of no pool");
    assert_eq!(world.udp_out(on_mail, inside(0), server(1)), Ok(before), "it is of the pool");
    load(&mut world, &[]);
    assert_eq!(world.udp_out(on_mail, inside(0), server(0)), Ok(before), "it has this session");
    world.nat.admin().audit();
}

#[test]
fn inside_endpoint_with_a_static_mapping_keeps_it_for_the_flows_of_all_pools() {
    let mut world = world();
    let public = at("203.0.113.3:8080");
    let forward = StaticMapping {
        outer: home(1).outer.into(),
        gre_key: None,
        inside: inside(0),
        public,
        scope: StaticScope::Port(Protocol::Udp),
    };
    let statics = Arc::new(StaticMappings::new(&[forward]).unwrap());
    drop(world.nat.admin_mut().swap_statics(statics));
    world.wait_and_collect(1);
    world.wait_and_collect(1);
    for n in [1, 0, 1] {
        assert_eq!(world.udp_out(home(1), inside(0), server(n)), Ok(public));
    }
    let mail = world.udp_out(home(1), inside(1), server(1)).unwrap();
    assert_eq!(mail.address, address(MAIL));
}

#[test]
fn copies_serve_both_mappings_of_an_inside_endpoint_after_a_take_over() {
    let config = NatConfig { ports_per_subscriber: 128, ..pair_config() };
    let (mut primary, mut replica) = pair(&config);
    for world in [&mut primary, &mut replica] {
        load(world, &[MAIL]);
    }
    let own = primary.udp_out(home(1), inside(0), server(0)).unwrap();
    let mail = primary.udp_out(home(1), inside(0), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    let now = replica.now;
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, now);
    for (n, public) in [(0, own), (1, mail), (3, own), (0, own), (1, mail)] {
        assert_eq!(replica.udp_out(home(1), inside(0), server(n)), Ok(public), "server {n}");
    }
    replica.wait_and_collect(20);
    assert_eq!(replica.flows(), 3, "neither has ended as a duplicate of the other");
    replica.nat.admin().audit();
}
