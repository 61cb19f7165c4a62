//! The IPv6 prefixes that homes claim, as each owner of a lane logs them.

use weir_nat::*;

use crate::world::ipv6::*;
use crate::world::pair::replicate;
use crate::world::*;

#[test]
fn log_says_which_home_had_a_prefix() {
    let mut world = claiming();
    world.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    world.udp_out6(home(1), host6(1, 5001), server6(1)).unwrap();
    world.now.0 += Timeouts::default().udp + 1;
    world.wait_and_collect(0);
    world.now.0 += HOLD_SEC + 1;
    world.wait_and_collect(0);
    let prefix = HomePrefix {
        subscriber: home(1).outer.into(),
        gre_key: None,
        prefix64: host6(1, 0).prefix64(),
    };
    let kinds: Vec<_> = world.events().iter().map(|event| event.kind).collect();
    let logged = |change| BlockEventKind::Prefix(change, prefix);
    assert_eq!(kinds, [HoldingChange::Taken, HoldingChange::Released].map(logged));
}

/// Returns what a worker has logged: the lane, and what became of the claim of home 1.
fn logged_claims(world: &mut World) -> Vec<(u8, HoldingChange)> {
    let claim = |event: BlockEvent| match event.kind {
        BlockEventKind::Prefix(change, it) if it.prefix64 == host6(1, 0).prefix64() => {
            Some((event.lane, change))
        }
        _ => None,
    };
    world.events().into_iter().filter_map(claim).collect()
}

/// Lets the flows and claims of a worker end that have no packets.
fn end_claims(world: &mut World) {
    for sec in [Timeouts::default().udp + 1, HOLD_SEC + 1] {
        world.now.0 += sec;
        world.wait_and_collect(0);
    }
}

#[test]
fn workers_that_do_not_hear_each_other_log_a_claim_each_in_its_own_lane() {
    let (mut primary, mut replica) = pair6();
    primary.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    replicate(&mut primary, &mut replica);
    assert_eq!(logged_claims(&mut primary), [(0, HoldingChange::Taken)]);
    assert_eq!(logged_claims(&mut replica), [], "the flow is in a lane of the primary");
    replica.udp_out6(home(1), host6(1, 5001), server6(1)).unwrap();
    end_claims(&mut primary);
    assert_eq!(logged_claims(&mut primary), [(0, HoldingChange::Released)]);
    end_claims(&mut replica);
    assert_eq!(logged_claims(&mut replica), [(7, HoldingChange::Taken)], "it has the copy still");
    replicate(&mut primary, &mut replica);
    end_claims(&mut replica);
    assert_eq!(logged_claims(&mut replica), [(7, HoldingChange::Released)]);
}

#[test]
fn worker_that_carries_a_flow_of_another_lane_logs_its_claim_in_a_lane_of_its_own() {
    let (mut primary, mut replica) = pair6();
    primary.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    replicate(&mut primary, &mut replica);
    replica.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    replica.wait_and_collect(1);
    assert_eq!(logged_claims(&mut replica), [(7, HoldingChange::Taken)]);
    end_claims(&mut primary);
    let changes = [HoldingChange::Taken, HoldingChange::Released].map(|change| (0, change));
    assert_eq!(logged_claims(&mut primary), changes);
    replica.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    end_claims(&mut replica);
    assert_eq!(logged_claims(&mut replica), []);
}

#[test]
fn worker_that_takes_a_lane_lists_the_claims_of_its_flows() {
    let (mut primary, mut replica) = pair6();
    primary.udp_out6(home(1), host6(1, 5000), server6(1)).unwrap();
    replica.udp_out6(home(1), host6(1, 5001), server6(1)).unwrap();
    replicate(&mut primary, &mut replica);
    replicate(&mut replica, &mut primary);
    primary.events();
    replica.events();
    primary.nat.replica_mut().set_owned_lanes(SHARD, 0, primary.now);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    for lane in 0..7 {
        replica.nat.replica_mut().log_taken(SHARD, lane, Epoch(8), Some(Epoch(3)));
    }
    while replica.nat.admin_mut().is_listing_due() {
        replica.nat.admin_mut().list_blocks(1 << 20);
    }
    assert_eq!(logged_claims(&mut replica), [(0, HoldingChange::Listed)]);
    for _ in 0..2 {
        end_claims(&mut replica);
    }
    let released = [0, 7].map(|lane| (lane, HoldingChange::Released));
    assert_eq!(logged_claims(&mut replica), released);
    assert_eq!(logged_claims(&mut primary), [], "nothing is logged of another worker's lane");
}
