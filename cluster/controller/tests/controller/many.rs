//! Thousands of shards: the number of transactions and decision rounds, counted in turns of virtual
//! time.

use weir_controller::state::ControllerOptions;
use weir_etcd::Key;
use weir_map::{MemberState, ShardId};

use crate::fleet::World;

const SHARDS: u32 = 2_000;

fn world(shards: u32) -> World {
    let mut world = World::new(2, shards, 1, ControllerOptions::new("c", 0xabc));
    world.elect(0);
    world
}

fn is_whole(world: &World) -> bool {
    let entries = world.entries();
    entries.len() == SHARDS as usize
        && entries.iter().all(|(_, entry)| {
            let is_synced = |it: &weir_map::Member| it.state == MemberState::Synced;
            entry.members().len() == 2 && entry.members().iter().all(is_synced)
        })
}

/// Returns the number of turns of 100 ms until every shard has its copies; nodes take one turn for
/// theirs.
fn turns_until_whole(world: &mut World) -> usize {
    let turns = (0..).take_while(|_| {
        world.turn_after(world.options.tick_busy_ms);
        !is_whole(world)
    });
    turns.take(1_000).count()
}

#[test]
fn a_new_cluster_of_many_shards_is_whole_within_seconds() {
    let mut world = world(SHARDS);
    let turns = turns_until_whole(&mut world);
    assert!(turns <= 30, "{turns} turns");
    let entries = world.entries_written;
    assert!(world.transactions * 30 <= entries, "{entries} in {}", world.transactions);
}

#[test]
fn a_node_that_comes_back_gets_all_copies_within_seconds() {
    let mut world = world(SHARDS);
    turns_until_whole(&mut world);
    world.turns(60_000);
    let transactions = world.transactions;
    world.kill(1);
    world.start(1);
    let turns = turns_until_whole(&mut world);
    assert!(turns <= 30, "{turns} turns");
    let transactions = world.transactions - transactions;
    assert!(transactions <= 120, "{transactions} transactions");
}

/// Nodes write some of the entries of a transaction: the other entries are still written in the
/// same round.
#[test]
fn a_lost_race_delays_only_the_entries_written_by_others() {
    let mut world = world(40);
    // The first round creates the shards, the second adds replicas: the mirror has not delivered
    // the nodes' writes yet.
    while world.entries().is_empty() {
        world.turn_after(500);
    }
    world.deliver(0, usize::MAX);
    assert!(world.entries().iter().all(|(_, entry)| entry.members().len() == 1));
    for shard in [3, 17, 40] {
        let value = world.etcd.value(&Key::Shard(ShardId(shard))).expect("it is there").to_vec();
        world.etcd.put(Key::Shard(ShardId(shard)), value);
    }
    world.ms += 500;
    world.handle(0, weir_controller::state::ControllerEvent::Tick);
    while world.answer(0) {}
    let added = world.entries().iter().filter(|(_, entry)| entry.members().len() == 2).count();
    assert!(added >= 37, "{added} of 40");
    world.turn_after(500);
    let added = world.entries().iter().filter(|(_, entry)| entry.members().len() == 2).count();
    assert_eq!(added, 40);
}
