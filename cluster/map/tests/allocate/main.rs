//! The allocator on examples: balance, racks, drains, losses, new nodes, few moves, limits.

mod fleet;
mod histories;

use fleet::{World, name};
use weir_map::allocate::*;
use weir_map::*;

fn world(nodes: usize, workers: usize, shards: u32) -> World {
    let mut world = World::new(shards, AllocateOptions::default());
    for _ in 0..nodes {
        world.add_node(&vec![100; workers], None);
    }
    world.settle();
    world
}

fn spread(shares: impl Iterator<Item = usize>) -> usize {
    let shares: Vec<usize> = shares.collect();
    shares.iter().max().expect("some") - shares.iter().min().expect("some")
}

fn check_even(world: &World) {
    let shares = world.shares();
    assert!(spread(shares.values().map(|share| share.0)) <= 1, "primaries {shares:?}");
    assert!(spread(shares.values().map(|share| share.1)) <= 2, "copies {shares:?}");
    for lost in 0..world.nodes.len() {
        let shares = world.shares_without(lost);
        assert!(spread(shares.values().copied()) <= 3, "without node {lost}: {shares:?}");
    }
}

/// Every shard has all its copies, synced and at rest.
fn check_whole(world: &World, copies: usize) {
    for shard in &world.shards {
        let entry = shard.entry.as_ref().expect("created");
        assert!(!entry.is_moving() && entry.members().len() == copies, "{entry:?}");
        assert!(entry.members().iter().all(|it| !it.is_yielding && !it.is_leaving), "{entry:?}");
        assert_eq!(world.synced(entry), copies, "{entry:?}");
    }
}

#[test]
fn a_new_map_is_even_also_after_any_loss() {
    for (nodes, workers, shards) in [(4, 4, 256), (3, 1, 10), (5, 2, 100), (7, 3, 500), (2, 1, 9)] {
        let world = world(nodes, workers, shards);
        check_even(&world);
        check_whole(&world, 2);
    }
}

#[test]
fn shares_follow_the_weights() {
    let mut world = World::new(600, AllocateOptions::default());
    for weights in [[100, 200], [300, 0], [150, 150], [100, 200]] {
        world.add_node(&weights, None);
    }
    world.settle();
    for (worker, (primaries, copies)) in world.shares() {
        let node = &world.nodes.iter().find(|node| node.name == worker.node).expect("it exists");
        let fair = 600 * node.workers[usize::from(worker.index)].weight as usize / 1200;
        assert!(primaries.abs_diff(fair) <= 2, "{worker}: {primaries}, fair is {fair}");
        assert!(copies.abs_diff(2 * fair) <= 2 + fair / 20, "{worker}: {copies}, of {fair}");
    }
}

fn racks_used_twice(world: &World) -> usize {
    let rack = |member: &Member| {
        let mut nodes = world.nodes.iter();
        let node = nodes.find(|node| node.name == member.incarnation.worker.node);
        node.expect("it exists").rack.clone()
    };
    let entries = world.shards.iter().filter_map(|shard| shard.entry.as_ref());
    entries.filter(|entry| rack(&entry.members()[0]) == rack(&entry.members()[1])).count()
}

#[test]
fn copies_are_in_different_racks_where_there_are_two() {
    let mut world = World::new(120, AllocateOptions::default());
    for _ in 0..3 {
        world.add_node(&[100], Some("r1"));
    }
    world.settle();
    assert_eq!(racks_used_twice(&world), 120);
    let racks_noted =
        |plan: &Plan| plan.notes.iter().filter(|it| matches!(it, Note::SameRack(_))).count();
    assert_eq!(racks_noted(&world.plan()), 120);
    for _ in 0..3 {
        world.add_node(&[100], Some("r2"));
    }
    world.settle();
    assert_eq!((racks_used_twice(&world), racks_noted(&world.plan())), (0, 0));
    let shares = world.shares();
    assert!(spread(shares.values().map(|share| share.0)) <= 2, "{shares:?}");
    // The roles that a node of the first rack hands over go to the second.
    let mut shares = world.shares_without(0);
    shares.retain(|worker, _| worker.node >= name(3));
    assert!(spread(shares.values().copied()) <= 3, "{shares:?}");
}

#[test]
fn a_drain_empties_a_node_and_moves_nothing_else() {
    let mut world = world(6, 2, 300);
    let on_node: usize = (0..2).map(|index| copies_on(&world, 2, index)).sum();
    world.adds = 0;
    world.nodes[2].is_drained = true;
    world.settle();
    assert_eq!((copies_on(&world, 2, 0), copies_on(&world, 2, 1)), (0, 0));
    check_whole(&world, 2);
    assert!(world.adds <= on_node + on_node / 10, "{} for {on_node}", world.adds);
}

fn copies_on(world: &World, node: usize, index: u16) -> usize {
    world.shares()[&WorkerId { node: name(node), index }].1
}

#[test]
fn a_new_node_is_filled_with_few_moves() {
    let mut world = world(7, 4, 1_000);
    world.adds = 0;
    let new = world.add_node(&[100; 4], None);
    world.settle();
    check_whole(&world, 2);
    let fair = 2 * 1_000 / 8;
    let got: usize = (0..4).map(|index| copies_on(&world, new, index)).sum();
    assert!(got >= fair - fair / 10, "{got} of {fair}");
    assert!(world.adds <= fair + fair / 10, "{} copies for {fair}", world.adds);
    let shares = world.shares();
    assert!(spread(shares.values().map(|share| share.0)) <= 2, "primaries {shares:?}");
}

/// The whole course of a node that dies and comes back.
#[test]
fn a_lost_node_is_replaced_fenced_and_filled_again() {
    let mut world = world(5, 2, 200);
    world.nodes[1].liveness = Liveness::Suspect;
    assert_eq!(world.plan().steps, [], "no step is based on a suspect node");
    world.nodes[1].liveness = Liveness::Dead;
    let plan = world.plan();
    let is_follow = |step: &PlanStep| {
        let PlannedChange::Apply { transition, .. } = &step.change else { return false };
        matches!(transition, Transition::Promote(_) | Transition::OutOfSync(_))
    };
    assert_eq!(plan.steps.iter().filter(|step| is_follow(step)).count(), 80, "primaries, replicas");
    world.settle();
    for entry in world.shards.iter().filter_map(|shard| shard.entry.as_ref()) {
        assert_eq!(world.synced(entry), 2);
        assert!(world.runs(&entry.primary().incarnation));
        // Lanes of the dead node wait for the fence.
        let dead = entry.members().iter().find(|it| it.incarnation.worker.node == name(1));
        assert!(dead.is_none_or(|dead| !entry.lanes_of(dead.slot).is_empty()));
    }
    world.restart(1);
    world.settle();
    check_whole(&world, 2);
    check_even(&world);
}

#[test]
fn a_node_that_is_back_at_once_keeps_its_shards() {
    let mut world = world(5, 2, 200);
    world.adds = 0;
    let before = world.shares();
    world.restart(1);
    let plan = world.plan();
    let restarts = plan.steps.iter().filter(|step| {
        let PlannedChange::Apply { transition, .. } = &step.change else { return false };
        matches!(transition, Transition::Restart { .. })
    });
    assert_eq!(restarts.count(), 80);
    world.settle();
    check_whole(&world, 2);
    let copies = |shares: std::collections::BTreeMap<WorkerId, (usize, usize)>| {
        shares.into_values().map(|share| share.1).collect::<Vec<_>>()
    };
    assert!(world.adds <= 10, "{}", world.adds);
    let pairs = copies(before).into_iter().zip(copies(world.shares()));
    assert!(pairs.into_iter().all(|(before, after)| before.abs_diff(after) <= 5));
}

#[test]
fn a_node_that_stops_gives_its_roles_away_at_once_and_keeps_its_copies() {
    let mut world = world(5, 2, 200);
    world.options.moves_max = 1;
    let primaries = |world: &World| {
        let entries = world.shards.iter().filter_map(|shard| shard.entry.as_ref());
        entries.filter(|it| it.primary().incarnation.worker.node == name(1)).count()
    };
    let copies = copies_on(&world, 1, 0) + copies_on(&world, 1, 1);
    let held = primaries(&world);
    assert!(held > 20);
    world.nodes[1].liveness = Liveness::Stopping;
    let plan = world.plan();
    let is_promotion = |step: &PlanStep| {
        let PlannedChange::Apply { transition, .. } = &step.change else { return false };
        matches!(transition, Transition::Promote(who) if who.worker.node != name(1))
    };
    assert_eq!((plan.steps.len(), plan.steps.iter().all(is_promotion)), (held, true));
    world.adds = 0;
    world.settle();
    assert_eq!((primaries(&world), world.adds), (0, 0));
    assert_eq!(copies_on(&world, 1, 0) + copies_on(&world, 1, 1), copies);
    // Roles went to workers with few roles, not all to one heir.
    let shares = world.shares();
    let others = shares.iter().filter(|(worker, _)| worker.node != name(1));
    assert!(spread(others.map(|(_, share)| share.0)) <= 8, "{shares:?}");
    // The node is back, empty: it keeps its shards, and the map gets even again.
    world.restart(1);
    world.settle();
    check_whole(&world, 2);
    check_even(&world);
    assert!(world.adds <= 20, "{}", world.adds);
}

#[test]
fn a_stopping_node_keeps_roles_that_no_other_node_can_take() {
    let mut world = world(2, 1, 10);
    world.nodes[0].liveness = Liveness::Stopping;
    world.settle();
    let on = |world: &World, node: usize| {
        let entries = world.shards.iter().filter_map(|shard| shard.entry.as_ref());
        entries.filter(|it| it.primary().incarnation.worker.node == name(node)).count()
    };
    assert_eq!((on(&world, 0), on(&world, 1)), (0, 10));
    // The other node stops too: no node is left to take over, and nothing goes back and forth.
    world.nodes[1].liveness = Liveness::Stopping;
    assert_eq!(world.plan().steps, []);
    // A node that is only heard does not take over either, since it would not learn of it.
    world.nodes[0].liveness = Liveness::Suspect;
    assert_eq!(world.plan().steps, []);
}

#[test]
fn an_operator_fences_a_lost_node() {
    let mut world = world(4, 1, 40);
    world.nodes[3].liveness = Liveness::Fenced;
    world.settle();
    check_whole(&world, 2);
    assert_eq!(copies_on(&world, 3, 0), 0);
}

#[test]
fn the_map_follows_a_replica_that_acts() {
    let mut world = world(4, 1, 40);
    let replica = world.shards[7].entry.as_ref().expect("created").members()[1].clone();
    let incarnation = replica.incarnation.clone();
    world.shards[7].acting = Some(Acting { incarnation, term: Term(1) });
    let steps = world.plan().steps;
    assert_eq!(steps.len(), 1);
    let promote = Transition::Promote(replica.incarnation);
    assert!(
        matches!(&steps[0].change, PlannedChange::Apply { transition, .. } if *transition == promote)
    );
    // The report of the replica is void once the term has ended.
    world.settle();
}

#[test]
fn nothing_moves_when_a_third_of_the_nodes_looks_gone() {
    let mut world = world(5, 1, 50);
    world.nodes[0].liveness = Liveness::Dead;
    world.nodes[1].liveness = Liveness::Suspect;
    let plan = world.plan();
    assert_eq!(plan.steps, []);
    assert!(plan.notes.contains(&Note::Halted { gone: 2, nodes: 5 }));
    // A fence is a fact, and is acted on even in a halt.
    world.restart(0);
    world.nodes[2].liveness = Liveness::Dead;
    let is_fence = |step: &PlanStep| {
        let PlannedChange::Apply { transition, .. } = &step.change else { return false };
        matches!(transition, Transition::Fence(_) | Transition::Restart { .. })
    };
    let steps = world.plan().steps;
    assert_eq!(steps.len(), copies_on(&world, 0, 0));
    assert!(steps.iter().all(is_fence), "{steps:?}");
    // A fleet of two nodes may lose one.
    let mut world = self::world(2, 1, 10);
    world.nodes[0].liveness = Liveness::Dead;
    assert_eq!(world.plan().steps.len(), 10);
}

/// A record under another boot id proves the end of the former incarnation, unless the record says
/// that it resumes that one's member slots.
#[test]
fn nothing_is_decided_on_a_shard_whose_member_has_resumed_its_slot() {
    let mut world = world(3, 1, 20);
    let formers: Vec<BootId> = world.nodes[0].workers.iter().map(|it| it.boot_id).collect();
    let copies = copies_on(&world, 0, 0);
    assert!(copies > 0);
    world.restart(0);
    assert_eq!(world.plan().steps.len(), copies);
    for (worker, former) in world.nodes[0].workers.iter_mut().zip(formers) {
        worker.resumes = Some(former);
    }
    assert_eq!(world.plan().steps, []);
    world.nodes[0].workers.iter_mut().for_each(|worker| worker.resumes = None);
    assert_eq!(world.plan().steps.len(), copies);
}

/// Both copies are gone: only a fence of the last primary frees its lanes.
#[test]
fn a_double_failure_waits_for_a_fence() {
    let mut world = world(7, 1, 60);
    let entry = world.shards[0].entry.clone().expect("created");
    let node_of = |world: &World, rank: usize| {
        let node = &entry.members()[rank].incarnation.worker.node;
        world.nodes.iter().position(|it| it.name == *node).expect("it exists")
    };
    let (first, second) = (node_of(&world, 0), node_of(&world, 1));
    world.nodes[first].liveness = Liveness::Dead;
    world.nodes[second].liveness = Liveness::Dead;
    world.settle();
    assert!(world.plan().notes.contains(&Note::Stuck(ShardId(1))));
    // The former primary is back, empty: it begins again, since no other member has a copy.
    world.restart(first);
    world.settle();
    let after = world.shards[0].entry.as_ref().expect("created");
    assert_eq!(after.primary().incarnation.worker, entry.primary().incarnation.worker);
    assert_eq!(after.term().0, entry.term().0 + 1);
    world.restart(second);
    world.settle();
    check_whole(&world, 2);
}

#[test]
fn any_number_of_replicas_from_none_to_four() {
    for replicas in 0..=4_u8 {
        let options = AllocateOptions { replicas, ..AllocateOptions::default() };
        let mut world = World::new(60, options);
        for _ in 0..7 {
            world.add_node(&[100], None);
        }
        world.settle();
        check_whole(&world, usize::from(replicas) + 1);
        world.nodes[0].is_drained = true;
        world.settle();
        check_whole(&world, usize::from(replicas) + 1);
        assert_eq!(copies_on(&world, 0, 0), 0);
        world.options.replicas = 1;
        world.settle();
        check_whole(&world, 2);
    }
    let mut world = World::new(6, AllocateOptions { replicas: 4, ..AllocateOptions::default() });
    world.add_node(&[100], None);
    world.add_node(&[100], None);
    world.settle();
    check_whole(&world, 2);
    assert!(world.plan().notes.contains(&Note::TooFewNodes { wanted: 5, nodes: 2 }));
}

#[test]
fn heavy_shards_are_spread_by_load() {
    let options = AllocateOptions { by_load: true, ..AllocateOptions::default() };
    let mut world = World::new(160, options);
    for _ in 0..4 {
        world.add_node(&[100, 100], None);
    }
    world.settle();
    let before = world.loads();
    // The shards of one worker become four times as heavy.
    let heavy = world.shards[0].entry.as_ref().expect("created").primary().incarnation.clone();
    for shard in &mut world.shards {
        let entry = shard.entry.as_ref().expect("created");
        shard.load = if entry.primary().incarnation == heavy { 40 } else { 10 };
    }
    let unbalanced = world.loads();
    world.settle();
    let after = world.loads();
    assert!(spread(before.into_values().map(|load| load as usize)) <= 1);
    assert!(spread(unbalanced.into_values().map(|load| load as usize)) >= 600);
    assert!(spread(after.values().map(|&load| load as usize)) <= 150, "{after:?}");
    // A load that fluctuates a little moves next to nothing.
    for (index, shard) in world.shards.iter_mut().enumerate() {
        shard.load += u64::from(index % 3 == 0);
    }
    assert!(world.plan().steps.len() <= 2, "{:?}", world.plan().steps);
}

#[test]
fn too_little_room_for_a_loss_is_noted() {
    let mut world = world(4, 1, 40);
    for node in &mut world.nodes {
        node.workers[0].load_max = Some(15);
    }
    let short =
        |plan: &Plan| plan.notes.iter().filter(|it| matches!(it, Note::NoRoom { .. })).count();
    assert_eq!(short(&world.plan()), 0, "10 and a third of 10");
    world.nodes[0].workers[0].load_max = Some(12);
    let plan = world.plan();
    assert!(short(&plan) >= 2, "{:?}", plan.notes);
    assert!(
        plan.notes.iter().all(|it| matches!(it, Note::NoRoom { worker, load, load_max: 12, .. }
        if worker.node == name(0) && *load > 12))
    );
    world.options.room_for_loss = false;
    assert_eq!(world.plan().notes, []);
}

/// Two nodes: a copy has nowhere to go but to another worker of its node.
#[test]
fn two_nodes_balance_among_their_own_workers() {
    for load in [|_: u32| 1, |id: u32| u64::from(id % 4 + 1)] {
        let options = AllocateOptions { by_load: load(2) > 1, ..AllocateOptions::default() };
        let mut world = World::new(240, options);
        world.shards.iter_mut().for_each(|shard| shard.load = load(shard.id.0));
        for _ in 0..2 {
            world.add_node(&[100, 100, 100, 0], None);
        }
        world.settle();
        world.adds = 0;
        // The fourth worker of each node gets a share here, three times that of the others.
        for node in &mut world.nodes {
            node.workers[3].weight = 300;
        }
        world.settle();
        check_whole(&world, 2);
        let loads = world.loads();
        let all: u64 = loads.values().sum();
        for (worker, (_, copies)) in world.shares() {
            let part = if worker.index == 3 { 4 } else { 12 };
            let off = loads[&worker].abs_diff(all / part);
            assert!(off <= all / 48, "{worker}: {off} off its part of {loads:?}");
            let fair = 480 / part as usize;
            assert!(world.options.by_load || copies.abs_diff(fair) <= 2, "{worker}: {copies}");
        }
        // Each of the two big workers gets 120 copies.
        assert!(world.adds <= 240 + 24, "{} copies", world.adds);
    }
}

#[test]
fn a_worker_that_is_to_be_emptied_gives_to_its_neighbours() {
    let mut world = world(2, 2, 40);
    world.nodes[1].workers[0].weight = 0;
    world.settle();
    check_whole(&world, 2);
    assert_eq!((copies_on(&world, 1, 0), copies_on(&world, 1, 1)), (0, 40));
    // While not every node supports moves within a node, no such move begins.
    let mut world = self::world(2, 2, 40);
    world.options.moves_within_nodes = false;
    world.nodes[1].workers[0].weight = 0;
    world.settle();
    assert!(copies_on(&world, 1, 0) > 0);
}

#[test]
fn both_ends_of_a_move_within_a_node_may_be_lost() {
    let mut world = world(3, 2, 30);
    world.nodes[1].workers[0].weight = 0;
    world.nodes[0].is_drained = true;
    // Copies have begun on the neighbours, and some are synced.
    for _ in 0..2 {
        world.apply(&world.plan());
    }
    world.work();
    world.restart(1);
    world.settle();
    check_whole(&world, 2);
    assert_eq!(copies_on(&world, 1, 0), 0);
}

#[test]
fn yielding_member_stays_when_its_replacement_is_fenced() {
    let mut world = world(2, 1, 30);
    world.add_node(&[100], None);
    let is_yielding = |world: &World| {
        let mut entries = world.shards.iter().filter_map(|shard| shard.entry.as_ref());
        entries.any(|entry| entry.members().iter().any(|member| member.is_yielding))
    };
    world.apply(&world.plan());
    assert!(is_yielding(&world), "copies for the balance have begun");
    world.nodes[2].liveness = Liveness::Fenced;
    world.settle();
    check_whole(&world, 2);
}

#[test]
fn no_worker_gets_more_than_it_has_room_for() {
    let mut world = World::new(40, AllocateOptions::default());
    for room in [10, 25, 30] {
        let node = world.add_node(&[100], None);
        world.nodes[node].workers[0].shards_max = Some(room);
    }
    world.settle();
    let full = |world: &World| {
        let notes = world.plan().notes;
        notes.iter().find_map(|note| match note {
            Note::Full { shards } => Some(*shards),
            _ => None,
        })
    };
    let copies: usize = world.shares().values().map(|share| share.1).sum();
    assert!(copies <= 65, "{copies}");
    assert_eq!(full(&world), Some(80 - copies));
    // The node's shards come back to it, and no others.
    world.restart(1);
    world.settle();
    assert!(full(&world).is_some());
    let node = world.add_node(&[100], None);
    world.nodes[node].workers[0].shards_max = Some(40);
    world.settle();
    check_whole(&world, 2);
    assert_eq!(full(&world), None);
}

#[test]
#[ignore = "prints how long a plan takes: cargo test --release -- --ignored --nocapture"]
fn how_long_a_plan_takes() {
    let mut world = world(16, 4, 4_000);
    let time = |world: &World, what: &str| {
        let start = std::time::Instant::now();
        let plan = world.plan();
        eprintln!("{what}: {:?}, {} steps", start.elapsed(), plan.steps.len());
    };
    time(&world, "at rest");
    world.add_node(&[100; 4], None);
    time(&world, "new node");
    world.nodes[3].is_drained = true;
    time(&world, "new node and drain");
    world.nodes[5].liveness = Liveness::Dead;
    time(&world, "and a loss");
    world.shards.iter_mut().for_each(|shard| shard.entry = None);
    time(&world, "all new");
}

#[test]
fn a_node_on_trial_keeps_what_it_has_and_gets_no_more() {
    let mut world = world(4, 1, 30);
    let before = world.shares();
    world.nodes[1].is_on_trial = true;
    assert_eq!(world.plan().steps, []);
    world.nodes[2].is_drained = true;
    world.settle();
    let worker = WorkerId { node: name(1), index: 0 };
    assert_eq!(world.shares()[&worker].1, before[&worker].1, "no further copy");
    world.nodes[1].is_on_trial = false;
    world.settle();
    check_whole(&world, 2);
}

#[test]
fn a_node_on_trial_gets_copies_that_no_other_node_could_hold() {
    let mut world = world(3, 1, 30);
    world.nodes[1].is_on_trial = true;
    world.nodes[2].is_drained = true;
    world.settle();
    check_whole(&world, 2);
    let worker = WorkerId { node: name(1), index: 0 };
    assert_eq!(world.shares()[&worker].1, 30, "a copy of every shard");
}

#[test]
fn the_only_open_node_takes_a_shard_of_which_it_held_a_lost_copy() {
    let mut world = world(2, 1, 4);
    (0..2).for_each(|node| world.restart(node));
    // No node has a copy any more, and one of the two nodes is to be emptied.
    world.nodes[1].is_drained = true;
    world.settle();
    check_whole(&world, 1);
    let worker = WorkerId { node: name(0), index: 0 };
    assert_eq!(world.shares()[&worker], (4, 4));
}

/// Both nodes come back at once, and one has taken copies before: it is a member again before the
/// last other member is fenced.
#[test]
fn the_restarted_node_that_has_copies_becomes_the_primary() {
    for has_copies in 0..2 {
        let mut world = world(2, 1, 10);
        world.restart(0);
        world.restart(1);
        world.nodes[has_copies].has_copies = true;
        let kept = name(has_copies);
        let back: Vec<BootId> = world.nodes.iter().map(|node| node.workers[0].boot_id).collect();
        let is_back = |member: &Member| back.contains(&member.incarnation.boot_id);
        while !world.shards.iter().all(|shard| {
            shard.entry.as_ref().is_some_and(|entry| entry.members().iter().all(is_back))
        }) {
            let before = world.shards.clone();
            world.apply(&world.plan());
            assert_ne!(world.shards, before, "a plan makes progress until every member is back");
        }
        for shard in &world.shards {
            let entry = shard.entry.as_ref().expect("it exists");
            let primary = &entry.primary().incarnation.worker.node;
            assert_eq!(*primary, kept, "{entry:?}");
        }
    }
}
