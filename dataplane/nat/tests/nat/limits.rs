//! The share of one home in common tables, and how a shard's capacity is kept for homes that exist.

use weir_nat::*;

use crate::world::pair::{pair, pair_config, replicate};
use crate::world::*;

const SESSIONS: u32 = 64;

/// A table of further sessions with room for sixteen homes that each use their whole limit.
fn limited() -> NatConfig {
    NatConfig {
        sessions_max: Some(16 * SESSIONS),
        sessions_per_subscriber: SESSIONS,
        ..pair_config()
    }
}

/// Sends from one port of the first home to this many remotes; returns how many got a session.
fn spray(world: &mut World, remotes: u32) -> usize {
    (0..remotes).filter(|&n| world.udp_out(home(1), inside(0), server(n)).is_ok()).count()
}

#[test]
fn a_home_with_100_000_remotes_leaves_the_session_table_to_others() {
    for (enabled, filtering) in [
        (true, Filtering::AddressAndPortDependent),
        (true, Filtering::AddressDependent),
        (false, Filtering::AddressAndPortDependent),
    ] {
        let mut config = NatConfig { enabled, filtering, ..limited() };
        if !enabled {
            config.replicas = 0;
            config.shards[0].public = vec!["192.168.0.0/16".parse().unwrap()];
        }
        let mut world = World::new(config);
        assert_eq!(spray(&mut world, 100_000), 1 + SESSIONS as usize);
        assert_eq!(
            world.udp_out(home(1), inside(0), server(99_999)),
            Err(Refusal::SessionsPerSubscriber)
        );
        for n in 2..16 {
            // Without translation an inside endpoint belongs to one home.
            let inside = Endpoint::new(inside(0).address + n, 5000);
            for remote in 0..=SESSIONS {
                world.udp_out(home(n), inside, server(remote)).unwrap();
            }
        }
        assert!(world.udp_out(home(1), inside(0), server(3)).is_ok(), "its sessions go on");
        world.wait_and_collect(300);
        assert_eq!(spray(&mut world, 100_000), 1 + SESSIONS as usize, "room comes back");
    }
}

#[test]
fn a_home_at_its_session_limit_leaves_a_replica_room_for_all_others() {
    let (mut primary, mut replica) = pair(&limited());
    spray(&mut primary, 100_000);
    replicate(&mut primary, &mut replica);
    // The replica itself gets packets of the same home: it knows how many sessions there are.
    let new =
        (0..100_000).filter(|&n| replica.udp_out(home(1), inside(0), server(200_000 + n)).is_ok());
    assert_eq!(new.count(), 0);
    for n in 2..16 {
        for remote in 0..=SESSIONS {
            primary.udp_out(home(n), inside(0), server(remote)).unwrap();
        }
        replicate(&mut primary, &mut replica);
    }
    assert_eq!(replica.nat.admin().mirror_gauges().changes_full_total, 0);
    assert_eq!(primary.flows(), replica.flows());
}

#[test]
fn remotes_get_half_of_the_sessions_of_a_home_and_none_of_its_tokens() {
    let mut world = World::new(NatConfig {
        filtering: Filtering::EndpointIndependent,
        new_flows_per_sec: 1,
        new_flows_burst: 40,
        inbound_sessions_max: 1000,
        ..limited()
    });
    let public = world.tcp_out(home(1), inside(0), server(0), SYN).unwrap();
    let opened = (1..1000).filter(|&n| world.tcp_back(public, server(n), SYN).is_ok()).count();
    assert_eq!(opened as u32, SESSIONS / 2);
    assert_eq!(world.tcp_back(public, server(999), SYN), Err(Refusal::SessionsPerSubscriber));
    let own = (0..1000)
        .filter(|&n| world.tcp_out(home(1), inside(0), server(5000 + n), SYN).is_ok())
        .count();
    assert_eq!(own as u32, SESSIONS / 2);
}

#[test]
fn a_home_begins_flows_at_its_pace_and_a_burst_after_a_rest() {
    let config = NatConfig { new_flows_per_sec: 5, new_flows_burst: 20, ..config() };
    let mut world = World::new(config);
    let mut next = 0;
    let mut begin = |world: &mut World, number: u32, tries: u16| {
        let begun = (0..tries).filter(|_| {
            next += 1;
            // Mappings and further sessions in turn.
            let from = if next % 2 == 0 { inside(0) } else { inside(next) };
            match world.udp_out(home(number), from, server(u32::from(next))) {
                Ok(_) => true,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::NewFlows);
                    false
                }
            }
        });
        begun.count()
    };
    assert_eq!(begin(&mut world, 1, 100), 20);
    assert_eq!(begin(&mut world, 2, 20), 20, "another home has tokens of its own");
    for _ in 0..4 {
        world.wait(1);
        assert_eq!(begin(&mut world, 1, 100), 5);
    }
    world.wait(2);
    assert_eq!(begin(&mut world, 1, 3), 3);
    world.wait(1);
    assert_eq!(begin(&mut world, 1, 100), 12, "unused tokens are left");
    assert!(world.udp_out(home(1), inside(1), server(1)).is_ok(), "existing flows go on");
    world.wait(1000);
    assert_eq!(begin(&mut world, 1, 100), 20);
}

#[test]
fn a_refused_flow_costs_the_home_no_token() {
    let mut world = World::new(NatConfig {
        new_flows_per_sec: 1,
        new_flows_burst: 3,
        flows_per_subscriber: 2,
        ..config()
    });
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.udp_out(home(1), inside(1), server(0)).unwrap();
    for n in 2..50 {
        let refused = world.udp_out(home(1), inside(n), server(0));
        assert_eq!(refused, Err(Refusal::FlowsPerSubscriber));
    }
    world.nat.admin_mut().flush_subscriber(home(1).outer, world.now);
    assert!(world.udp_out(home(1), inside(0), server(1)).is_ok());
    assert_eq!(world.udp_out(home(1), inside(1), server(1)), Err(Refusal::NewFlows));
}

/// Capacity of the shard, and homes that it admits in a second.
const CAPACITY: u32 = 64;
const PACE: u32 = 8;

fn small_shard() -> NatConfig {
    let mut config = NatConfig { new_homes_per_sec: Some(PACE), flows_max: 20_000, ..config() };
    config.port_block = 64;
    config.shards[0].public = vec!["203.0.113.0/28".parse().unwrap()];
    config.shards[0].subscribers_max = CAPACITY;
    config
}

/// A home sends a question and gets its answer, if it is let in.
fn ask(world: &mut World, number: u32) -> Result<(), Refusal> {
    let public = world.udp_out(home(number), inside(0), server(0))?;
    world.udp_back(public, server(0)).expect("the answer comes through");
    Ok(())
}

/// Lets a second pass in which this many forged homes, all different, send a packet each, and the
/// walk goes as far as it does in a second.
fn flood(world: &mut World, forged: u32, next: &mut u32) {
    world.wait(1);
    for _ in 0..forged {
        *next += 1;
        let _ = world.udp_out(home(1000 + *next), inside(0), server(0));
    }
    let slots = 20_000 / 4;
    world.nat.expire(world.now, slots, usize::MAX);
}

#[test]
fn real_homes_are_admitted_while_forged_ones_come_at_ten_times_the_pace() {
    let mut world = World::new(small_shard());
    let mut forged = 0;
    for _ in 0..30 {
        flood(&mut world, 10 * PACE, &mut forged);
    }
    assert_eq!(
        world.nat.admin().shard_gauges(SHARD).subscribers,
        CAPACITY,
        "forged homes fill the shard"
    );
    // For four minutes, every ten seconds another home, which sends once a second until it is
    // admitted.
    let mut longest = 0;
    for number in 0..24 {
        let mut tries = 0;
        while ask(&mut world, number).is_err() {
            tries += 1;
            assert!(tries <= 12, "home {number} waits");
            flood(&mut world, 10 * PACE, &mut forged);
        }
        longest = longest.max(tries);
        for _ in tries..10 {
            flood(&mut world, 10 * PACE, &mut forged);
        }
        for earlier in 0..=number {
            ask(&mut world, earlier).expect("an answered home stays admitted");
        }
    }
    assert!(longest <= 2, "{longest} s");
    assert!(world.nat.admin().shard_gauges(SHARD).subscribers <= CAPACITY);
    assert!(world.nat.admin().displaced(SHARD) <= CAPACITY / 2);
    for _ in 0..60 {
        world.wait_and_collect(10);
    }
    world.assert_empty();
}

#[test]
fn a_home_that_was_answered_before_does_not_wait_behind_forged_ones() {
    let mut world = World::new(small_shard());
    ask(&mut world, 1).unwrap();
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    world.assert_empty();
    let mut forged = 0;
    for _ in 0..30 {
        flood(&mut world, 10 * PACE, &mut forged);
    }
    assert!(ask(&mut world, 1).is_ok(), "at its first packet");
    assert_eq!(ask(&mut world, 2), Err(Refusal::SubscribersMax), "a stranger waits");
}

#[test]
fn strangers_are_admitted_at_the_pace_while_capacity_is_left() {
    let mut config = small_shard();
    config.shards[0].subscribers_max = 400;
    config.shards[0].public = vec!["203.0.113.0/26".parse().unwrap()];
    let mut world = World::new(config);
    let admitted =
        |world: &mut World, from: u32| (0..300).filter(|n| ask(world, from + n).is_ok()).count();
    assert_eq!(admitted(&mut world, 0), 200, "half of the capacity at once");
    assert_eq!(ask(&mut world, 299), Err(Refusal::NewHomes));
    world.wait(1);
    assert_eq!(admitted(&mut world, 1000), PACE as usize);
    assert_eq!((200..300).filter(|&n| ask(&mut world, n).is_ok()).count(), 100, "they come again");
}

#[test]
fn a_displaced_home_loses_no_answered_mapping_and_its_ports_rest() {
    let mut config = small_shard();
    config.shards[0].subscribers_max = 2;
    let mut world = World::new(config);
    let silent = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let late = world.udp_out(home(2), inside(0), server(0)).unwrap();
    assert_eq!(ask(&mut world, 3), Err(Refusal::SubscribersMax));
    world.wait(1);
    assert_eq!(ask(&mut world, 3), Err(Refusal::SubscribersMax), "homes have ten seconds");
    world.wait(10);
    ask(&mut world, 3).unwrap();
    assert_eq!(
        (world.nat.admin().displaced(SHARD), world.nat.admin().shard_gauges(SHARD).subscribers),
        (1, 2)
    );
    // The second home is answered before the walk comes by, after it was displaced, too.
    assert_eq!(ask(&mut world, 4), Err(Refusal::SubscribersMax));
    world.wait(1);
    assert_eq!(ask(&mut world, 4), Err(Refusal::SubscribersMax), "half of two may be displaced");
    world.wait_and_collect(0);
    assert_eq!(world.udp_back(silent, server(0)), Err(Refusal::NoMapping));
    assert_eq!(world.nat.admin().gauges().quarantined, 1, "its port rests");
    assert!(world.udp_back(late, server(0)).is_ok());
    world.wait_and_collect(119);
    assert_eq!(world.nat.admin().displaced(SHARD), 1);
    world.wait_and_collect(1);
    assert_eq!(world.nat.admin().displaced(SHARD), 0);
    assert_eq!(ask(&mut world, 4), Err(Refusal::SubscribersMax));
    world.wait_and_collect(1);
    assert_eq!(ask(&mut world, 4), Err(Refusal::SubscribersMax), "both were answered");
}

#[test]
fn an_answer_readmits_a_displaced_home() {
    for is_further in [false, true] {
        let mut config = small_shard();
        config.shards[0].subscribers_max = 2;
        let mut world = World::new(config);
        let first = world.udp_out(home(1), inside(0), server(0)).unwrap();
        world.udp_out(home(1), inside(0), server(1)).unwrap();
        world.wait(1);
        world.udp_out(home(2), inside(0), server(0)).unwrap();
        let _ = ask(&mut world, 3);
        world.wait(10);
        ask(&mut world, 3).unwrap();
        assert_eq!(world.nat.admin().displaced(SHARD), 1);
        world.udp_back(first, server(u32::from(is_further))).unwrap();
        world.wait_and_collect(0);
        assert_eq!(world.nat.admin().displaced(SHARD), 0);
        assert_eq!(
            world.nat.admin().shard_gauges(SHARD).subscribers,
            3,
            "one more than the capacity"
        );
        assert_eq!(world.flows(), 4, "nothing has ended");
        assert!(world.udp_back(first, server(0)).is_ok());
    }
}

#[test]
fn a_displaced_home_that_opens_a_flow_needs_admission_again() {
    let mut config = small_shard();
    config.shards[0].subscribers_max = 1;
    let mut world = World::new(config);
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    let _ = ask(&mut world, 2);
    world.wait(10);
    ask(&mut world, 2).unwrap();
    for from in [inside(1), inside(0)] {
        let refused = world.udp_out(home(1), from, server(7));
        assert_eq!(refused, Err(Refusal::SubscribersMax));
    }
    assert!(world.udp_out(home(1), inside(0), server(0)).is_ok(), "an existing flow goes on");
    world.nat.admin_mut().flush_subscriber(home(2).outer, world.now);
    world.wait_and_collect(120);
    assert!(world.udp_out(home(1), inside(1), server(7)).is_ok());
    assert_eq!(world.nat.admin().displaced(SHARD), 0);
}

#[test]
fn replicas_follow_when_homes_are_displaced_and_know_which_were_answered() {
    let mut config = NatConfig { replicas: 1, ..small_shard() };
    config.shards[0].subscribers_max = 8;
    let (mut primary, mut replica) = pair(&config);
    for number in 0..8 {
        primary.udp_out(home(number), inside(0), server(0)).unwrap();
    }
    ask(&mut primary, 0).unwrap();
    primary.wait_and_collect(10);
    let _ = (8..12).map(|number| ask(&mut primary, number)).collect::<Vec<_>>();
    primary.wait(1);
    for number in 8..12 {
        ask(&mut primary, number).unwrap();
    }
    // The ends of the displaced homes' mappings arrive after the homes that displaced them.
    replicate(&mut primary, &mut replica);
    primary.wait_and_collect(0);
    replicate(&mut primary, &mut replica);
    assert_eq!(replica.nat.admin().mirror_gauges().changes_full_total, 0);
    assert_eq!(replica.flows(), primary.flows());
    let gauges = (primary.nat.admin().gauges(), replica.nat.admin().gauges());
    assert_eq!((gauges.0.quarantined, gauges.0.subscribers), (4, 12));
    assert_eq!((gauges.1.quarantined, gauges.1.subscribers), (4, 12));
    primary.wait_and_collect(120);
    replicate(&mut primary, &mut replica);
    assert_eq!(replica.nat.admin().gauges().subscribers, primary.nat.admin().gauges().subscribers);

    // The primary fails. The replica makes room, but spares homes that were answered, even if only
    // the primary saw the answer.
    replica.now = primary.now;
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    replica.wait_and_collect(20);
    for _ in 0..20 {
        replica.wait_and_collect(1);
        let _ = (100..120).map(|number| ask(&mut replica, number)).collect::<Vec<_>>();
    }
    assert!(replica.nat.admin().displaced(SHARD) > 0);
    for number in [0, 8, 9, 10, 11] {
        assert!(replica.udp_out(home(number), inside(1), server(1)).is_ok(), "home {number}");
    }
}

#[test]
fn an_answer_seen_by_another_worker_is_reported_to_the_lane_owner() {
    let mut config = NatConfig { replicas: 1, ..small_shard() };
    config.shards[0].subscribers_max = 2;
    let (mut primary, mut replica) = pair(&config);
    let public = primary.udp_out(home(1), inside(0), server(0)).unwrap();
    primary.udp_out(home(2), inside(0), server(0)).unwrap();
    replicate(&mut primary, &mut replica);
    for _ in 0..20 {
        replica.udp_back(public, server(0)).unwrap();
        replica.udp_out(home(1), inside(0), server(0)).unwrap();
        for world in [&mut primary, &mut replica] {
            world.wait_and_collect(10);
        }
        replicate(&mut replica, &mut primary);
    }
    let _ = ask(&mut primary, 3);
    let _ = ask(&mut primary, 4);
    primary.wait(1);
    ask(&mut primary, 3).unwrap();
    assert_eq!(ask(&mut primary, 4), Err(Refusal::SubscribersMax));
    primary.wait_and_collect(1);
    assert!(primary.udp_out(home(1), inside(1), server(1)).is_ok(), "home 1 stays admitted");
    assert_eq!(primary.udp_out(home(2), inside(1), server(1)), Err(Refusal::SubscribersMax));
}
