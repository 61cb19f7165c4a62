//! Duplicate mappings of one inside endpoint, made on both sides of a network split: the one in use
//! stays.

use weir_nat::*;

use crate::world::pair::*;
use crate::world::*;

/// The replica makes a mapping while the primary's is under way: each flow keeps the one it has.
#[test]
fn duplicate_mappings_keep_their_flows() {
    let (mut primary, mut replica) = pair(&pair_config());
    let old = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let new = replica.udp_out(home(1), inside(1), server(2)).unwrap();
    assert_ne!(old, new);
    replicate(&mut primary, &mut replica);
    replicate(&mut replica, &mut primary);
    for world in [&mut primary, &mut replica] {
        for _ in 0..2 {
            assert_eq!(world.udp_out(home(1), inside(1), server(1)), Ok(old));
            assert_eq!(world.udp_out(home(1), inside(1), server(2)), Ok(new));
            assert_eq!(world.udp_back(old, server(1)).unwrap().inside, inside(1));
            assert_eq!(world.udp_back(new, server(2)).unwrap().inside, inside(1));
        }
    }
}

/// Two workers that did not reach each other have each made mappings of the same inside endpoints,
/// for the same server.
fn two_mappings_each(count: u16) -> (World, World, Vec<Endpoint>, Vec<Endpoint>) {
    let (mut primary, mut replica) = pair(&pair_config());
    let open = |world: &mut World| -> Vec<_> {
        (0..count).map(|n| world.udp_out(home(1), inside(n), server(1)).unwrap()).collect()
    };
    let (former, later) = (open(&mut primary), open(&mut replica));
    (primary, replica, former, later)
}

fn endpoints_of(world: &mut World, count: u16) -> Vec<Endpoint> {
    (0..count).map(|n| world.udp_out(home(1), inside(n), server(1)).unwrap()).collect()
}

/// A mapping without packets ends at its owner, whichever of the two comes first in an index: after
/// that, all workers use the one that is in use.
#[test]
fn the_duplicate_mapping_in_use_stays() {
    let (mut primary, mut replica, former, later) = two_mappings_each(50);
    for _ in 0..8 {
        primary.wait_and_collect(1);
        replica.wait_and_collect(1);
        assert_eq!(endpoints_of(&mut replica, 50), later);
    }
    // The workers reach each other again.
    replicate(&mut primary, &mut replica);
    assert_eq!(endpoints_of(&mut replica, 50), later, "a copy changes nothing");
    replicate(&mut replica, &mut primary);
    primary.wait_and_collect(1);
    replica.wait_and_collect(1);
    replicate(&mut replica, &mut primary);
    replicate(&mut primary, &mut replica);
    assert_eq!(primary.nat.admin().gauges().flow_superseded_total, 50);
    assert_eq!(endpoints_of(&mut primary, 50), later);
    for (n, (&former, &later)) in (0..).zip(former.iter().zip(&later)) {
        assert_eq!(replica.udp_back(later, server(1)).unwrap().inside, inside(n));
        assert_eq!(replica.udp_back(former, server(1)), Err(Refusal::NoMapping));
    }
    assert_eq!((primary.flows(), replica.flows()), (50, 50));
}

/// As long as both are in use, both stay, and each worker goes on with its own.
#[test]
fn duplicate_mappings_that_are_both_in_use_stay() {
    let (mut primary, mut replica, former, later) = two_mappings_each(20);
    for _ in 0..30 {
        replicate(&mut primary, &mut replica);
        replicate(&mut replica, &mut primary);
        assert_eq!(endpoints_of(&mut primary, 20), former);
        assert_eq!(endpoints_of(&mut replica, 20), later);
        primary.wait_and_collect(1);
        replica.wait_and_collect(1);
    }
    assert_eq!((primary.flows(), replica.flows()), (40, 40));
}

/// A third worker, which has seen packets of neither, decides as any other worker that has not.
#[test]
fn a_worker_that_used_neither_duplicate_takes_the_lower_endpoint() {
    let (mut primary, mut replica, former, later) = two_mappings_each(50);
    let lower: Vec<_> = former.iter().zip(&later).map(|(&one, &other)| one.min(other)).collect();
    let changes = |world: &mut World| -> Vec<_> {
        let mut body = [0; BODY_MAX];
        let next = || {
            world
                .nat
                .replica_mut()
                .next_change(&mut body)
                .map(|(change, len)| (change, body[..len].to_vec()))
        };
        std::iter::from_fn(next).collect()
    };
    let sent = [changes(&mut primary), changes(&mut replica)];
    for order in [[0, 1], [1, 0]] {
        let mut third = worker(pair_config(), 0);
        for (change, body) in order.iter().flat_map(|&from: &usize| &sent[from]) {
            assert_eq!(third.nat.replica_mut().apply(change, body, third.now), Applied::Done);
        }
        assert_eq!(endpoints_of(&mut third, 50), lower);
        // It stays with its choice.
        third.wait_and_collect(1);
        assert_eq!(endpoints_of(&mut third, 50), lower);
    }
}
