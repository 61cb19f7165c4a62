//! Entries on their way from etcd over the disk to the roles.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use weir_map::{BootId, Epoch, NodeId};
use weir_roles::{LocalWorker, RolesConfig, RolesOptions};
use weir_stream::Fingerprint;

use super::*;
use crate::known_map::KnownMap;
use crate::known_map::tests::entry;

struct Hand {
    now: Duration,
    queue: InputQueue,
    roles: Roles,
    keeper: MapKeeper,
}

impl Hand {
    fn new() -> Self {
        let replication = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7473);
        let roles = Roles::new(RolesConfig {
            node: NodeId::new("n1").unwrap(),
            workers: vec![LocalWorker { boot_id: BootId(1), replication, former: None }],
            known_epochs: BTreeMap::new(),
            options: RolesOptions::default(),
        });
        let keeper = MapKeeper::new(KnownMap::default());
        Self { now: Duration::from_secs(1), queue: InputQueue::default(), roles, keeper }
    }

    fn push(&mut self, input: RolesInput) {
        self.queue.push(self.now, input, &self.roles, &mut self.keeper);
        self.turn();
    }

    fn entry(&mut self, shard: u32, epoch: u64) {
        self.push(RolesInput::Entry { shard: ShardId(shard), entry: Box::new(entry(epoch)) });
    }

    /// Turns as the core does.
    fn turn(&mut self) {
        self.keeper.next_save(self.now);
        while let Some(input) = self.queue.next(self.now, &self.roles, &mut self.keeper) {
            self.roles.on(0, input);
            for (shard, epoch) in self.roles.take_epochs() {
                self.keeper.set_epoch(self.now, shard, epoch);
            }
        }
        self.keeper.next_save(self.now);
    }

    /// The disk ends the save that is under way.
    fn disk(&mut self, ended: Result<(), String>) {
        self.keeper.saved(ended);
        self.turn();
    }

    fn obeyed(&self, shard: u32) -> bool {
        // If it were handed in again, it would be nothing new.
        !self.roles.would_obey(ShardId(shard), &entry(self.known(shard)))
    }

    fn known(&self, shard: u32) -> u64 {
        self.keeper.map().epoch(ShardId(shard)).map_or(0, |epoch| epoch.0)
    }
}

#[test]
fn an_entry_is_obeyed_once_it_is_on_disk() {
    let mut hand = Hand::new();
    hand.entry(1, 2);
    assert!(!hand.obeyed(1));
    hand.now += Duration::from_millis(900);
    hand.turn();
    assert!(!hand.obeyed(1), "the disk takes its time");
    hand.disk(Ok(()));
    assert!(hand.obeyed(1));
}

#[test]
fn entries_that_come_during_a_save_are_saved_together_by_the_next() {
    let mut hand = Hand::new();
    hand.entry(1, 2);
    for shard in 2..100 {
        hand.entry(shard, 2);
    }
    hand.disk(Ok(()));
    assert!(hand.obeyed(1) && !hand.obeyed(2));
    hand.disk(Ok(()));
    assert!((2..100).all(|shard| hand.obeyed(shard)));
}

#[test]
fn an_entry_that_is_held_already_waits_for_nothing() {
    let mut hand = Hand::new();
    hand.entry(1, 2);
    hand.disk(Ok(()));
    hand.entry(1, 2);
    assert!(hand.queue.0.is_empty());
}

#[test]
fn an_entry_that_is_refused_is_not_kept() {
    let mut hand = Hand::new();
    hand.entry(1, 5);
    hand.disk(Ok(()));
    hand.entry(1, 3);
    assert!(hand.queue.0.is_empty(), "handed in, to be counted");
    assert_eq!(hand.roles.counters().entries_refused_total, 1);
    assert_eq!(hand.known(1), 5);
}

/// An input that reports the map complete follows all its entries.
#[test]
fn an_input_that_follows_an_entry_waits_for_it() {
    let mut hand = Hand::new();
    hand.entry(1, 2);
    hand.push(RolesInput::Fresh);
    assert!(!hand.roles.is_fresh());
    hand.disk(Ok(()));
    assert!(hand.roles.is_fresh() && hand.obeyed(1));
}

#[test]
fn a_stalled_disk_is_not_waited_for_longer_than_a_second() {
    let mut hand = Hand::new();
    hand.entry(1, 2);
    hand.now += Duration::from_secs(1);
    hand.turn();
    assert!(hand.obeyed(1));
    hand.entry(2, 2);
    assert!(hand.obeyed(2), "the next entry is not held up either");
    assert_eq!(hand.keeper.unsaved(hand.now), Duration::from_secs(1), "the age is shown");
}

#[test]
fn a_disk_that_refuses_holds_no_entry_up() {
    let mut hand = Hand::new();
    hand.entry(1, 2);
    hand.disk(Err("no storage space".into()));
    assert!(hand.obeyed(1));
    hand.entry(2, 2);
    assert!(hand.obeyed(2));
    assert!(hand.keeper.error().is_some());
}

/// A shard that ends is forgotten, also where an entry of its next incarnation is behind it.
#[test]
fn a_shard_that_starts_over_is_kept_with_its_new_entry() {
    let mut hand = Hand::new();
    hand.push(RolesInput::Desired { shards: Vec::new(), fingerprint: Fingerprint::default() });
    hand.entry(1, 5);
    hand.disk(Ok(()));
    // Another entry holds the queue up.
    hand.entry(9, 2);
    hand.push(RolesInput::EntryGone(ShardId(1)));
    hand.entry(1, 6);
    hand.disk(Ok(()));
    assert!(!hand.obeyed(1), "the entry on its way to the disk was forgotten with the shard");
    for _ in 0..2 {
        hand.disk(Ok(()));
    }
    assert!(hand.obeyed(1) && hand.queue.0.is_empty());
    assert_eq!(hand.known(1), 6);
    let kept: BTreeMap<_, _> = hand.keeper.map().epochs().collect();
    assert_eq!(kept, [(ShardId(1), Epoch(6)), (ShardId(9), Epoch(2))].into());
}
