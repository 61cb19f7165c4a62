//! Public addresses that are taken out of service and given back while flows live on them.

use weir_nat::*;

use crate::world::pair::{pair, pair_config, replicate};
use crate::world::*;

fn set(world: &mut World, how: OutOfService, prefixes: &[&str]) {
    let prefixes = prefixes.iter().map(|text| text.parse().unwrap());
    let listed = prefixes.map(|prefix| PrefixOutOfService { prefix, how }).collect();
    let _former = world.nat.admin_mut().swap_out_of_service(listed);
    // One shard in each call.
    for _ in 0..2 {
        world.nat.expire(world.now, 1, 1);
    }
}

/// Returns the addresses that these homes' next mappings get.
fn addresses(world: &mut World, homes: std::ops::Range<u32>, port: u16) -> Vec<u32> {
    homes.map(|n| world.udp_out(home(n), inside(port), server(1)).unwrap().address).collect()
}

fn prefix_of(addresses: &[u32]) -> String {
    format!("{}/32", std::net::Ipv4Addr::from(addresses[0]))
}

#[test]
fn drained_address_keeps_its_flows_and_gets_no_others() {
    let mut world = World::new(config());
    let before = addresses(&mut world, 1..40, 0);
    let drained = prefix_of(&before);
    set(&mut world, OutOfService::Drained, &[&drained]);
    assert_eq!(addresses(&mut world, 1..40, 0), before, "live mappings go on");
    let next = addresses(&mut world, 1..80, 1);
    assert!(next.iter().all(|address| *address != before[0]));
    for (n, (then, now)) in before.iter().zip(&next).enumerate() {
        assert!(*then == before[0] || then == now, "home {n} keeps its paired address");
    }
    let again = addresses(&mut world, 1..80, 2);
    assert_eq!(next, again, "a home that moved is paired with its new address");
    assert!(world.udp_back(Endpoint::new(before[0], 1), server(1)).is_err());
    let left = |world: &World| {
        let gauges = world.nat.admin().shard_gauges(SHARD);
        (gauges.addresses_out_of_service, gauges.ports_out_of_service)
    };
    let live = before.iter().filter(|address| **address == before[0]).count() as u32;
    assert_eq!(left(&world), (1, live));
    world.nat.admin().audit();
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    assert_eq!(left(&world), (1, 0), "nobody uses it any more");
}

#[test]
fn quarantined_address_loses_its_flows_in_one_lap_of_the_walk() {
    let mut world = World::new(config());
    let publics: Vec<Endpoint> =
        (1..40).map(|n| world.udp_out(home(n), inside(0), server(1)).unwrap()).collect();
    for n in 1..40 {
        world.udp_out(home(n), inside(0), server(2)).unwrap();
    }
    let listed = prefix_of(&[publics[0].address]);
    set(&mut world, OutOfService::Quarantined, &[&listed]);
    world.wait_and_collect(1);
    let mut left = 0;
    for (public, n) in publics.iter().zip(1..) {
        let passes = world.udp_back(*public, server(1)).is_ok();
        assert_eq!(passes, public.address != publics[0].address);
        left += 2 * u32::from(passes);
        if !passes {
            let other = world.udp_out(home(n), inside(0), server(1)).unwrap();
            assert_ne!(other.address, publics[0].address, "its next packet opens it elsewhere");
            left += 1;
        }
    }
    assert_eq!(world.flows(), left);
    world.nat.admin().audit();
}

#[test]
fn address_that_is_given_back_serves_again() {
    for how in [OutOfService::Drained, OutOfService::Quarantined] {
        let mut world = World::new(config());
        let free = |world: &World| world.nat.admin().shard_gauges(SHARD);
        let (at_start, before) = (free(&world), addresses(&mut world, 1..3, 0));
        set(&mut world, how, &["203.0.113.0/30"]);
        assert_eq!((free(&world).blocks_free, free(&world).blocks_total), (0, 0));
        let refused = world.udp_out(home(1), inside(1), server(1));
        assert_eq!(refused, Err(Refusal::PortsExhausted), "all addresses are out of service");
        assert_eq!(world.udp_out(home(9), inside(1), server(1)), Err(Refusal::PortsExhausted));
        set(&mut world, how, &[]);
        assert_eq!(addresses(&mut world, 1..3, 1), before, "the homes are still paired with them");
        world.nat.admin().audit();
        world.wait_and_collect(300);
        world.wait_and_collect(300);
        assert_eq!(free(&world), at_start);
        world.assert_empty();
    }
}

#[test]
fn replica_of_a_quarantined_address_leaves_its_flows_to_the_owner_of_their_lanes() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(0), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    let listed = prefix_of(&[public.address]);
    set(&mut replica, OutOfService::Quarantined, &[&listed]);
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 1, "only the owner of a lane ends what is in it");
    set(&mut primary, OutOfService::Quarantined, &[&listed]);
    primary.wait_and_collect(1);
    replicate(&mut primary, &mut replica);
    assert_eq!((primary.flows(), replica.flows()), (0, 0));
    primary.nat.admin().audit();
    replica.nat.admin().audit();
}

#[test]
fn shard_that_is_added_later_takes_over_what_is_out_of_service() {
    let room = ShardRoom { shards: 3, public_addresses: 16, subscribers: 1000 };
    let mut world = World::new(NatConfig { room, ..config() });
    set(&mut world, OutOfService::Drained, &["198.18.0.0/31"]);
    let added = shard(13, "198.18.0.0/30");
    let index = world.nat.replica_mut().add_shard(&added, 0xff, world.now).unwrap();
    assert_eq!(world.nat.admin().shard_gauges(index).addresses_out_of_service, 2);
    for n in 0..20 {
        let home = Home { shard: index, ..home(n) };
        let public = world.udp_out(home, inside(0), server(1)).unwrap();
        assert!(public.address >= address("198.18.0.2"));
    }
    world.nat.replica_mut().begin_removal(index);
    world.wait_and_collect(1);
    world.wait_and_collect(1);
    assert!(world.nat.replica().is_removed(index));
    let open = shard(14, "198.18.0.4/30");
    let index = world.nat.replica_mut().add_shard(&open, 0xff, world.now).unwrap();
    assert_eq!(world.nat.admin().shard_gauges(index).addresses_out_of_service, 0);
}
