//! Random histories from seeds. At every step no lane has two workers that were ordered to write it, and who is
//! granted a lane has all of it; after a time of quiet the cluster is whole.

use crate::world::{Seen, World};

const NODES: u64 = 5;

/// One thing that happens to a node.
fn happen(world: &mut World) {
    let node = world.dice.below(NODES) as usize;
    match world.dice.below(11) {
        0 => world.kill(node),
        1 => {
            world.kill(node);
            world.start(node);
        }
        2 => world.pause(node),
        7 => {
            world.pause(node);
            let ms = world.dice.below(1_200);
            world.run(ms);
            world.resume(node);
        }
        3 => world.nodes[node].is_cut_off = true,
        4 => world.nodes[node].is_without_store = true,
        5 => world.nodes[node].is_drained ^= true,
        6 => world.is_controller_up ^= true,
        8 if world.dice.one_in(2) => restart_all(world),
        _ => heal(world, node),
    }
}

/// The whole site begins again, and knows nothing of the store.
fn restart_all(world: &mut World) {
    for node in 0..world.nodes.len() {
        world.kill(node);
        world.nodes[node].is_without_store = true;
    }
    (0..world.nodes.len()).for_each(|node| world.start(node));
    let ms = 10 * world.dice.below(250);
    world.run(ms);
}

fn heal(world: &mut World, node: usize) {
    world.resume(node);
    world.start(node);
    world.nodes[node].is_cut_off = false;
    world.nodes[node].is_without_store = false;
}

fn play(seed: u64) -> Seen {
    let workers = 1 + (seed % 2) as usize;
    let mut world = World::new(seed, 5, 1 + u8::from(seed.is_multiple_of(3)));
    for _ in 0..NODES {
        world.add_node(workers);
    }
    for _ in 0..40 {
        happen(&mut world);
        let ms = 10 * world.dice.below(150);
        world.run(ms);
    }
    for node in 0..world.nodes.len() {
        heal(&mut world, node);
        world.nodes[node].is_drained = false;
    }
    world.is_controller_up = true;
    world.run_until(60_000, &format!("whole after history {seed}"), World::is_whole);
    (0..world.nodes.len()).for_each(|node| world.kill(node));
    world.seen
}

#[test]
fn after_any_history_the_cluster_is_whole() {
    let mut all = Seen::default();
    for seed in 1..=60 {
        let seen = play(seed);
        all.acting += seen.acting;
        all.fenced += seen.fenced;
        all.promoted += seen.promoted;
        all.grants += seen.grants;
        all.lost_races += seen.lost_races;
        all.lanes_passed_on += seen.lanes_passed_on;
        all.removals += seen.removals;
        all.resumed += seen.resumed;
    }
    let Seen { acting, fenced, promoted, grants, lost_races, lanes_passed_on, removals, resumed } =
        all;
    let counts = [acting, fenced, promoted, grants, lost_races, lanes_passed_on, removals, resumed];
    assert!(counts.iter().all(|&count| count >= 5), "{all:?}");
}
