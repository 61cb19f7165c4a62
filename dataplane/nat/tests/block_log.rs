//! What the owner of a lane tells the block log: statements in order, listings when it takes a lane and each hour.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use weir_nat::BlockEventKind::{Allocated, Held, Left, Listed, Released, Taken};
use weir_nat::*;
use world::pair::*;
use world::*;

type Lane = (ShardId, u8);

/// What the statements of all lanes add up to.
#[derive(Default)]
struct Log {
    held: BTreeMap<Lane, BTreeSet<(u32, u32, u16)>>,
    indexes: BTreeMap<(Lane, u64), u64>,
    /// What a listing has named so far, begun with the first statement after which one may have begun.
    since: BTreeMap<Lane, Vec<BlockEvent>>,
    listings: usize,
}

impl Log {
    fn read(&mut self, world: &mut World) {
        for event in world.events() {
            self.take(event);
        }
    }

    fn take(&mut self, event: BlockEvent) {
        let lane = (event.shard, event.lane);
        let index = self.indexes.entry((lane, event.epoch.0)).or_default();
        *index += 1;
        assert_eq!(event.index, *index, "statements are counted without a gap: {event:?}");
        let held = self.held.entry(lane).or_default();
        let name = |block: Block| (block.subscriber, block.public_address, block.port_first);
        match event.kind {
            Allocated(block) => assert!(held.insert(name(block)), "allocated twice: {block:?}"),
            Released(block) => assert!(held.remove(&name(block)), "not held: {block:?}"),
            Held(block) => assert!(held.contains(&name(block)), "listed and not held: {block:?}"),
            Taken { .. } | Left | Listed { .. } => {}
        }
        let since = self.since.entry(lane).or_default();
        since.push(event);
        if let Listed { blocks, from } = event.kind {
            self.listings += 1;
            let mut stated = BTreeSet::new();
            let statements = since.iter().filter(|it| it.index > from && it.epoch == event.epoch);
            let mut named = 0;
            for statement in statements {
                match statement.kind {
                    Allocated(block) => _ = stated.insert(name(block)),
                    Released(block) => _ = stated.remove(&name(block)),
                    Held(block) => {
                        named += 1;
                        stated.insert(name(block));
                    }
                    Taken { .. } | Left | Listed { .. } => {}
                }
            }
            assert_eq!(blocks, named);
            assert_eq!(&stated, held, "after a listing its statements alone tell what is held");
            since.clear();
        }
    }

    fn blocks(&self) -> usize {
        self.held.values().map(BTreeSet::len).sum()
    }
}

/// A connection that lasts for hours.
fn open(world: &mut World, n: u32) {
    let public = world.tcp_out(home(n), inside(0), server(0), SYN).unwrap();
    world.tcp_back(public, server(0), SYN_ACK).unwrap();
    world.tcp_out(home(n), inside(0), server(0), ACK).unwrap();
}

/// Until every lane was looked at.
fn list_all(world: &mut World) {
    for _ in 0..70 {
        world.wait_and_collect(1);
        while world.nat.is_listing_due() {
            world.nat.list_blocks(64);
        }
    }
}

#[test]
fn each_hour_every_lane_is_listed() {
    let mut world = World::new(config());
    let mut log = Log::default();
    for n in 0..50 {
        open(&mut world, n);
    }
    list_all(&mut world);
    log.read(&mut world);
    assert_eq!((log.listings, log.blocks()), (0, 50), "nothing is due in the first hour");
    world.wait_and_collect(3_600);
    list_all(&mut world);
    log.read(&mut world);
    assert_eq!((log.listings, log.blocks()), (16, 50), "each lane of both shards once");
    list_all(&mut world);
    log.read(&mut world);
    assert_eq!(log.listings, 16);
}

/// Whatever begins and ends between two pieces of a listing: its statements tell what is held when it is complete.
#[test]
fn a_listing_under_traffic_is_complete() {
    let config = NatConfig { port_block: 64, ports_per_subscriber: 64, ..config() };
    let mut world = World::new(config);
    let mut log = Log::default();
    for n in 0..40 {
        open(&mut world, n);
    }
    world.wait_and_collect(3_600);
    for turn in 0..60_000_u32 {
        if world.nat.is_listing_due() {
            world.nat.list_blocks(1 + turn % 5);
        }
        if turn % 500 == 0 {
            world.wait_and_collect(1);
        }
        if turn % 50 == 0 {
            // Of a pool of homes one begins, and what is over ends.
            let home = home(100 + turn / 50 % 97);
            let _ = world.udp_out(home, inside((turn % 7) as u16), server(0));
            if turn % 4_000 == 0 {
                world.wait_and_collect(301);
                world.wait_and_collect(120);
            }
        }
        log.read(&mut world);
    }
    assert!(log.listings >= 16, "{} listings", log.listings);
}

#[test]
fn a_lane_that_is_taken_is_told_with_the_ownership_before_and_listed() {
    let (mut primary, mut replica) = pair(&pair_config());
    for lane in 0..7 {
        primary.nat.tell_taken(SHARD, lane, Epoch(3), None);
    }
    for n in 0..30 {
        primary.udp_out(home(n), inside(0), server(1)).unwrap();
    }
    tell(&mut primary, &mut replica);
    primary.nat.set_owned_lanes(SHARD, 0, primary.now);
    let mut log = Log::default();
    let told = primary.events();
    let left = told.iter().filter(|event| event.kind == Left && event.epoch == Epoch(3)).count();
    assert_eq!(left, 7, "it says of each lane that it has it no longer: {told:?}");
    told.into_iter().for_each(|event| log.take(event));
    assert_eq!(log.blocks(), 30);

    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    for lane in 0..7 {
        replica.nat.tell_taken(SHARD, lane, Epoch(8), Some(Epoch(3)));
    }
    let taken = replica.events();
    let begin = |event: &BlockEvent| {
        (event.epoch, event.index, event.kind) == (Epoch(8), 1, Taken { before: Some(Epoch(3)) })
    };
    assert!(taken.len() == 7 && taken.iter().all(begin), "{taken:?}");
    taken.into_iter().for_each(|event| log.take(event));
    list_all(&mut replica);
    log.read(&mut replica);
    assert_eq!((log.listings, log.blocks()), (7, 30), "each lane that was taken, all its blocks");
    // What the one before gave out ends here, and is told here.
    for _ in 0..3 {
        replica.wait_and_collect(301);
    }
    log.read(&mut replica);
    assert_eq!(log.blocks(), 0);
    assert_eq!(primary.events(), [], "of a lane of another's nothing is told");
}

/// Without translation one lane speaks for all addresses: its owner tells of flows of ours and of copies.
#[test]
fn without_translation_one_lane_tells_who_has_an_address() {
    let firewall = NatConfig { enabled: false, replicas: 1, ..config() };
    let (mut primary, mut replica) = pair(&firewall);
    for lane in 0..7 {
        primary.nat.tell_taken(SHARD, lane, Epoch(3), None);
    }
    replica.nat.tell_taken(SHARD, 7, Epoch(2), None);
    let mut log = Log::default();
    let inside = |n: u16| Endpoint::new(address("203.0.113.1"), 5000 + n);
    let other = Endpoint::new(address("203.0.113.2"), 5000);
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    replica.udp_out(home(2), other, server(1)).unwrap();
    assert_eq!(replica.events(), [], "it does not own the lane that speaks");
    tell(&mut primary, &mut replica);
    tell(&mut replica, &mut primary);
    log.read(&mut primary);
    assert_eq!(log.blocks(), 2, "of its own flow, and of the copy");

    primary.nat.set_owned_lanes(SHARD, 0, primary.now);
    log.read(&mut primary);
    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    for lane in 0..7 {
        replica.nat.tell_taken(SHARD, lane, Epoch(8), Some(Epoch(3)));
    }
    list_all(&mut replica);
    log.read(&mut replica);
    assert_eq!((log.listings, log.blocks()), (1, 2));
    for _ in 0..3 {
        replica.wait_and_collect(301);
    }
    log.read(&mut replica);
    assert_eq!(log.blocks(), 0);
}
