//! The block log of a lane's owner: events in order, listings when it takes a lane and each hour.

use std::collections::{BTreeMap, BTreeSet};

use weir_nat::BlockEventKind::{Allocated, Held, Left, Listed, Released, Taken};
use weir_nat::*;

use crate::world::pair::*;
use crate::world::*;

type Lane = (ShardId, u8);

/// The sum of the events of all lanes.
#[derive(Default)]
struct Log {
    held: BTreeMap<Lane, BTreeSet<(OuterAddress, u32, u16)>>,
    indexes: BTreeMap<(Lane, u64), u64>,
    /// Events since the earliest one after which a listing may have begun.
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
        assert_eq!(event.index, *index, "events are counted without a gap: {event:?}");
        let held = self.held.entry(lane).or_default();
        let name = |block: HomeBlock| (block.subscriber, block.public_address, block.port_first);
        match event.kind {
            Allocated(block) => assert!(held.insert(name(block)), "allocated twice: {block:?}"),
            Released(block) => assert!(held.remove(&name(block)), "not held: {block:?}"),
            Held(block) => assert!(held.contains(&name(block)), "listed and not held: {block:?}"),
            Taken { .. } | Left | Listed { .. } => {}
            BlockEventKind::Prefix(..) => panic!("no home has IPv6"),
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
                    Taken { .. } | Left | Listed { .. } | BlockEventKind::Prefix(..) => {}
                }
            }
            assert_eq!(blocks, named);
            assert_eq!(&stated, held, "the events since a listing began name all that is held");
            since.clear();
        }
    }

    fn blocks(&self) -> usize {
        self.held.values().map(BTreeSet::len).sum()
    }
}

/// Opens a connection that lasts for hours.
fn open(world: &mut World, n: u32) {
    let public = world.tcp_out(home(n), inside(0), server(0), SYN).unwrap();
    world.tcp_back(public, server(0), SYN_ACK).unwrap();
    world.tcp_out(home(n), inside(0), server(0), ACK).unwrap();
}

/// Lets time pass until every lane was looked at.
fn list_all(world: &mut World) {
    for _ in 0..70 {
        world.wait_and_collect(1);
        while world.nat.admin_mut().is_listing_due() {
            world.nat.admin_mut().list_blocks(64);
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

/// Blocks begin and end between two pieces of a listing: when it is complete, its events name all
/// that is held.
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
        if world.nat.admin_mut().is_listing_due() {
            world.nat.admin_mut().list_blocks(1 + turn % 5);
        }
        if turn % 500 == 0 {
            world.wait_and_collect(1);
        }
        if turn % 50 == 0 {
            // One home of a pool begins a flow, and flows that are over end.
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
fn a_lane_that_is_taken_is_logged_with_the_former_epoch_and_listed() {
    let (mut primary, mut replica) = pair(&pair_config());
    for lane in 0..7 {
        primary.nat.replica_mut().log_taken(SHARD, lane, Epoch(3), None);
    }
    for n in 0..30 {
        primary.udp_out(home(n), inside(0), server(1)).unwrap();
    }
    replicate(&mut primary, &mut replica);
    primary.nat.replica_mut().set_owned_lanes(SHARD, 0, primary.now);
    let mut log = Log::default();
    let logged = primary.events();
    let left = logged.iter().filter(|event| event.kind == Left && event.epoch == Epoch(3)).count();
    assert_eq!(left, 7, "the worker logs that it has left each lane: {logged:?}");
    logged.into_iter().for_each(|event| log.take(event));
    assert_eq!(log.blocks(), 30);

    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    for lane in 0..7 {
        replica.nat.replica_mut().log_taken(SHARD, lane, Epoch(8), Some(Epoch(3)));
    }
    let taken = replica.events();
    let begin = |event: &BlockEvent| {
        (event.epoch, event.index, event.kind) == (Epoch(8), 1, Taken { before: Some(Epoch(3)) })
    };
    assert!(taken.len() == 7 && taken.iter().all(begin), "{taken:?}");
    taken.into_iter().for_each(|event| log.take(event));
    list_all(&mut replica);
    log.read(&mut replica);
    assert_eq!((log.listings, log.blocks()), (7, 30), "all blocks of each taken lane");
    // Blocks that the former owner gave out end here, and their ends are logged here.
    for _ in 0..3 {
        replica.wait_and_collect(301);
    }
    log.read(&mut replica);
    assert_eq!(log.blocks(), 0);
    assert_eq!(primary.events(), [], "nothing is logged of another worker's lane");
}

/// Without translation each worker logs the homes of the flows in its lanes, not those of copies.
#[test]
fn without_translation_each_lane_logs_the_homes_that_have_flows_in_it() {
    let firewall = NatConfig { enabled: false, replicas: 1, ..config() };
    let (mut primary, mut replica) = pair(&firewall);
    for lane in 0..7 {
        primary.nat.replica_mut().log_taken(SHARD, lane, Epoch(3), None);
    }
    replica.nat.replica_mut().log_taken(SHARD, 7, Epoch(2), None);
    let mut log = Log::default();
    let inside = |n: u16| Endpoint::new(address("203.0.113.1"), 5000 + n);
    let other = Endpoint::new(address("203.0.113.2"), 5000);
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    replica.udp_out(home(2), other, server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    replicate(&mut replica, &mut primary);
    log.read(&mut primary);
    assert_eq!(log.blocks(), 1, "the primary's own flow");
    log.read(&mut replica);
    assert_eq!(log.blocks(), 2, "and that of the replica");
    let held: Vec<usize> = log.held.values().map(BTreeSet::len).collect();
    assert_eq!(held, [1, 0, 0, 0, 0, 0, 0, 1], "by lane");

    primary.nat.replica_mut().set_owned_lanes(SHARD, 0, primary.now);
    log.read(&mut primary);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    for lane in 0..7 {
        replica.nat.replica_mut().log_taken(SHARD, lane, Epoch(8), Some(Epoch(3)));
    }
    list_all(&mut replica);
    log.read(&mut replica);
    assert_eq!((log.listings, log.blocks()), (8, 2));
    for _ in 0..3 {
        replica.wait_and_collect(301);
    }
    log.read(&mut replica);
    assert_eq!(log.blocks(), 0);
}
