//! Shards that are added and removed: what they need, what they leave, and what a later shard of
//! the index must not see.

use weir_nat::*;

use crate::world::*;

/// Two shards at the start, of four addresses each, and room for two more.
fn roomy() -> NatConfig {
    let room = ShardRoom { shards: 4, public_addresses: 16, subscribers: 1024 };
    NatConfig { port_block: 64, ports_per_subscriber: 64, room, ..config() }
}

fn at_index(shard: ShardIndex, n: u32) -> Home {
    Home { shard, ..home(n) }
}

impl World {
    fn add(&mut self, shard: &NatShardConfig) -> Result<ShardIndex, NatError> {
        self.nat.replica_mut().add_shard(shard, 0xff, self.now)
    }

    /// Removes a shard without letting time pass: what ends, ends because of the removal.
    fn remove(&mut self, shard: ShardIndex) {
        self.nat.replica_mut().begin_removal(shard);
        assert!(!self.nat.replica().is_removed(shard));
        for _ in 0..10_000 {
            self.nat.expire(self.now, 64, 16);
        }
        assert!(self.nat.replica().is_removed(shard));
        assert_eq!(self.nat.admin().shard_gauges(shard), ShardGauges::default());
    }

    /// Returns the pending changes with their bodies.
    fn take_changes(&mut self) -> Vec<(SlotChange, Vec<u8>)> {
        let mut body = [0; BODY_MAX];
        std::iter::from_fn(|| {
            self.nat
                .replica_mut()
                .next_change(&mut body)
                .map(|(change, len)| (change, body[..len].to_vec()))
        })
        .collect()
    }
}

#[test]
fn a_shard_is_added_serves_and_is_removed_without_a_trace() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let mut world = World::new(NatConfig { filtering, ..roomy() });
        world.udp_out(home(1), inside(1), server(1)).unwrap();
        let tables = world.nat.admin().gauges().tables;
        for round in 0..3 {
            world.events();
            let index = world.add(&shard(13, "192.0.2.64/29")).unwrap();
            assert_eq!(index, ShardIndex(2), "the index is used again");
            let shards: Vec<_> = world.nat.admin().shards().collect();
            assert_eq!(shards[2], (index, ShardId(13)));
            assert!(world.nat.is_public(address("192.0.2.71")));
            let is_its = |public: Endpoint| public.address & !7 == address("192.0.2.64");
            for n in 0..40 {
                let public = world.udp_out(at_index(index, n), inside(1), server(round)).unwrap();
                assert!(is_its(public));
                for further in 10..14 {
                    world.udp_out(at_index(index, n), inside(1), server(further)).unwrap();
                }
                let back = world.udp_back(public, server(12)).unwrap();
                assert_eq!(back.home, at_index(index, n));
            }
            // Some ports rest, some flows live.
            world.wait_and_collect(301);
            world.udp_out(home(1), inside(1), server(1)).unwrap();
            for n in 20..60 {
                world.udp_out(at_index(index, n), inside(2), server(1)).unwrap();
            }
            assert_eq!(world.nat.admin().gauges().quarantined, 41);
            world.remove(index);
            assert!(!world.nat.is_public(address("192.0.2.64")));
            assert_eq!(world.nat.admin().shards().count(), 2);
            let events = world.events().into_iter().filter(|event| event.shard == ShardId(13));
            let (opened, released): (Vec<_>, Vec<_>) =
                events.partition(|event| matches!(event.kind, BlockEventKind::Allocated(_)));
            assert_eq!((opened.len(), released.len()), (60, 60));
            world.wait_and_collect(120);
            assert_eq!(world.nat.admin().gauges().quarantined, 0);
            assert_eq!(world.flows(), 1);
        }
        assert_eq!(world.nat.admin().gauges().tables, tables, "tables do not grow");
    }
}

#[test]
fn a_shard_that_does_not_fit_is_refused_with_the_reason() {
    let mut world = World::new(roomy());
    let mut refused = |change: fn(&mut NatShardConfig), wanted: &str| {
        let mut shard = shard(13, "192.0.2.64/29");
        change(&mut shard);
        let error =
            world.nat.replica_mut().add_shard(&shard, 0xff, world.now).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(world.nat.admin().shards().count(), 2);
    };
    refused(|shard| shard.id = ShardId(12), "shard id 12 is used twice");
    refused(|shard| shard.public.clear(), "shard 13 has no public prefix");
    refused(|shard| shard.subscribers_max = 0, "`subscribers_max` of shard 13 is 0");
    refused(
        |shard| shard.subscribers_max = 513,
        "513, and of those that room was made for at the start 512 are left",
    );
    refused(
        |shard| shard.public = vec!["192.0.2.64/28".parse().unwrap()],
        "16 public addresses, and of those that room was made for at the start 8 are left",
    );
    refused(|shard| shard.public = vec!["203.0.113.2/32".parse().unwrap()], "overlaps");
    assert_eq!(world.add(&shard(13, "192.0.2.64/30")), Ok(ShardIndex(2)));
    assert_eq!(world.add(&shard(14, "192.0.2.68/30")), Ok(ShardIndex(3)));
    let error = world.add(&shard(15, "192.0.2.72/30")).unwrap_err();
    assert_eq!(error, NatError::NoRoomForShard { id: ShardId(15), shards: 4 });
    // A shard that is being removed keeps what it has until it is gone.
    world.udp_out(home(1), inside(1), server(1)).unwrap();
    world.nat.replica_mut().begin_removal(SHARD);
    let again = world.add(&shard(11, "203.0.113.0/30"));
    assert_eq!(again, Err(NatError::ShardLeaving { id: ShardId(11) }));
    assert!(matches!(world.add(&shard(16, "203.0.113.0/30")), Err(NatError::PublicOverlap { .. })));
    world.wait_and_collect(0);
    assert_eq!(world.add(&shard(11, "203.0.113.0/30")), Ok(SHARD));
    let alone = World::new(config()).add(&shard(13, "192.0.2.64/30")).unwrap_err();
    assert_eq!(alone, NatError::NoRoomForShard { id: ShardId(13), shards: 2 }, "none by default");
}

/// A worker of a cluster begins without any shard.
#[test]
fn a_worker_may_begin_without_shards() {
    let none = NatConfig { shards: vec![], ..roomy() };
    let mut world = World::new(none.clone());
    assert_eq!(TableBytes::of(&none), world.nat.admin().gauges().tables);
    assert_eq!(world.udp_out(home(1), inside(1), server(1)), Err(Refusal::SubscribersMax));
    assert_eq!(world.add(&shard(7, "203.0.113.0/28")), Ok(SHARD), "all of the room at once");
    assert!(world.udp_out(home(1), inside(1), server(1)).is_ok());
    let error = Nat::new(NatConfig { room: ShardRoom::default(), ..none }).unwrap_err();
    assert_eq!(error, NatError::NoShard);
}

/// A call of `expire` removes no more records than it may end, and the other shard is not affected.
#[test]
fn a_shard_is_removed_in_pieces() {
    let mut world = World::new(NatConfig { ports_per_subscriber: 1024, ..roomy() });
    let second = ShardIndex(1);
    let stays = world.udp_out(at_index(second, 1), inside(1), server(1)).unwrap();
    for n in 0..500 {
        let public = world.udp_out(home(n % 7), inside(n as u16), server(1)).unwrap();
        assert_eq!(world.udp_out(home(n % 7), inside(n as u16), server(2)), Ok(public));
    }
    // One mapping with more sessions than a piece ends.
    for n in 0..100 {
        world.udp_out(home(8), inside(1), server(n)).unwrap();
    }
    world.nat.replica_mut().begin_removal(SHARD);
    world.nat.expire(world.now, 10, 0);
    assert_eq!(world.flows(), 1101);
    let mut pieces = 0;
    while !world.nat.replica().is_removed(SHARD) {
        let before = world.flows();
        world.nat.expire(world.now, 10, 16);
        assert!((before - world.flows()) <= 8, "half of a turn's ends, the other half is expiry's");
        pieces += 1;
    }
    assert!((1100 / 8..1100 / 4).contains(&pieces), "{pieces}");
    assert_eq!(world.flows(), 1);
    assert_eq!(world.udp_back(stays, server(1)).unwrap().inside, inside(1));
}

/// Several shards may be removed at once; each is emptied in its turn.
#[test]
fn all_shards_may_be_removed_at_once() {
    let mut world = World::new(roomy());
    for n in 0..100 {
        world.udp_out(at_index(ShardIndex((n % 2) as u16), n), inside(1), server(1)).unwrap();
    }
    for shard in [ShardIndex(1), SHARD] {
        world.nat.replica_mut().begin_removal(shard);
        world.nat.replica_mut().begin_removal(shard);
    }
    (0..100).for_each(|_| _ = world.nat.expire(world.now, 64, 64));
    assert!(world.nat.replica().is_removed(SHARD) && world.nat.replica().is_removed(ShardIndex(1)));
    world.assert_empty();
    assert_eq!(world.add(&shard(20, "198.51.100.0/28")), Ok(SHARD));
}

/// A large shard after small ones: its addresses lie where there is room, and all of them serve.
#[test]
fn addresses_of_a_shard_need_not_lie_together() {
    let room = ShardRoom { shards: 9, public_addresses: 8, subscribers: 2400 };
    let one = |n: u32| shard(n, &format!("203.0.113.{n}/32"));
    let shards = (0..8).map(one).collect();
    let mut world = World::new(NatConfig { room, replicas: 1, shards, ..roomy() });
    for n in [1, 2, 5, 7] {
        world.remove(ShardIndex(n));
    }
    let config = shard(20, "198.51.100.0/30");
    let index = world.add(&config).unwrap();
    let mut other = World::new(NatConfig { shards: vec![config], ..roomy() });
    let mut seen = std::collections::HashSet::new();
    for n in 0..200 {
        let public = world.udp_out(at_index(index, n), inside(1), server(1)).unwrap();
        let position = public.address - address("198.51.100.0");
        assert!(position < 4, "{public}");
        seen.insert(position);
        assert_eq!(world.udp_back(public, server(1)).unwrap().home, at_index(index, n));
    }
    assert_eq!(seen.len(), 4);
    let (split, whole) =
        (world.nat.admin().shard_gauges(index), other.nat.admin().shard_gauges(SHARD));
    assert_eq!(split.blocks_total, whole.blocks_total);
    world.remove(index);
    other.wait_and_collect(0);
    for n in [0, 3, 4, 6] {
        let public = world.udp_out(at_index(ShardIndex(n), 1), inside(1), server(1)).unwrap();
        assert_eq!(public.address, address("203.0.113.0") + u32::from(n));
    }
}

#[test]
fn no_change_of_a_shard_under_removal_is_sent_or_applied() {
    let config = NatConfig { replicas: 1, ..roomy() };
    let (mut primary, mut replica) = (World::new(config.clone()), World::new(config));
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0, replica.now);
    for world in [&mut primary, &mut replica] {
        world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    }
    for n in 0..20 {
        primary.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    let creates = primary.take_changes();
    assert_eq!(creates.len(), 20);
    for (change, body) in &creates {
        replica.nat.replica_mut().apply(change, body, replica.now);
    }
    for n in 0..20 {
        replica.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    // The owner's marks: changed, begun and ended. The replica's: owner updates.
    primary.wait_and_collect(300);
    primary.udp_out(home(2), inside(1), server(1)).unwrap();
    replica.nat.replica_mut().begin_removal(SHARD);
    replica.wait(100);
    replica.nat.expire(replica.now, usize::MAX, 2);
    assert!(!replica.nat.replica().is_removed(SHARD));
    primary.nat.replica_mut().begin_removal(SHARD);
    assert_eq!((primary.take_changes(), replica.take_changes()), (vec![], vec![]));
    assert_eq!(
        replica.nat.replica_mut().apply(&creates[0].0, &creates[0].1, replica.now),
        Applied::Invalid
    );
    for world in [&mut primary, &mut replica] {
        world.nat.replica_mut().set_owned_lanes(SHARD, 0xff, world.now);
        world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
        world.remove(SHARD);
        assert_eq!(
            world.nat.replica_mut().apply(&creates[0].0, &creates[0].1, world.now),
            Applied::Invalid
        );
        assert_eq!(world.add(&shard(13, "192.0.2.64/30")), Ok(SHARD));
        world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
        assert_eq!(
            world.take_changes(),
            [],
            "ends of the former shard are not sent as the new one's"
        );
        assert_eq!(world.nat.replica_mut().take_lost(), None);
    }
    let logged = replica.events().len();
    assert_eq!(logged, 0, "blocks of another worker's lanes are logged by their owner");
}

/// Ends name records by slot, so unread ones of a shard go with it.
#[test]
fn unread_ends_are_not_sent_for_the_next_shard_of_the_index() {
    let mut world = World::new(NatConfig { replicas: 1, ..roomy() });
    world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    for n in 0..20 {
        world.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    assert_eq!(world.take_changes().len(), 20);
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    assert_eq!(world.nat.admin().mirror_gauges().journal, 40, "each in quarantine, then ended");
    world.remove(SHARD);
    world.add(&shard(13, "192.0.2.64/30")).unwrap();
    world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    assert_eq!(world.take_changes(), []);
}

/// Copies all lanes of a shard to another worker; returns the latest version of a clear.
fn copy(from: &World, at: ShardIndex, to: &mut World, to_at: ShardIndex) -> u32 {
    let mut cleared = 0;
    for lane in 0..8 {
        to.nat.replica_mut().begin_copy(to_at, lane);
        let end = from.nat.replica().copy_lane(at, lane, 0..u32::MAX, u32::MAX, |change, body| {
            if change.kind == ChangeKind::Clear {
                cleared = cleared.max(change.version);
            }
            let applied =
                to.nat.replica_mut().apply(&SlotChange { shard: to_at, ..*change }, body, to.now);
            assert!(matches!(applied, Applied::Done | Applied::Old), "{applied:?}");
            true
        });
        assert_eq!(end, u32::MAX);
        let sum = |world: &World, shard| world.nat.replica().sum_lane(shard, lane, 0..u32::MAX);
        assert_eq!(sum(from, at), sum(to, to_at), "lane {lane}");
    }
    cleared
}

/// The versions of a lane are one sequence in the cluster, whichever worker writes it, and each
/// shard has its own.
#[test]
fn versions_follow_the_shard_and_not_its_index() {
    let config = NatConfig { replicas: 1, ports_per_subscriber: 512, ..roomy() };
    // Shard 11 is written here, after several take-overs: its versions are high.
    let mut here = World::new(config.clone());
    for _ in 0..3 {
        here.nat.replica_mut().set_owned_lanes(SHARD, 0, here.now);
        here.nat.replica_mut().set_owned_lanes(SHARD, 0xff, here.now);
    }
    here.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    for n in 0..200 {
        here.udp_out(home(n % 7), inside(n as u16), server(1)).unwrap();
    }
    let highest = here.take_changes().iter().map(|(change, _)| change.version).max().unwrap();
    assert!(highest > 3 << 20);
    // It moves to another worker, which continues above those versions.
    let mut other = World::new(NatConfig { shards: vec![], ..config.clone() });
    other.nat.replica_mut().add_shard(&shard(11, "203.0.113.0/30"), 0, other.now).unwrap();
    copy(&here, SHARD, &mut other, SHARD);
    other.nat.replica_mut().set_owned_lanes(SHARD, 0xff, other.now);
    other.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    here.remove(SHARD);
    // Its index here gets a shard that a third worker writes and whose versions are low. All of it
    // is applied, also in slots that the former shard used, and a relayed copy of it carries
    // nothing of the former shard.
    let mut third =
        World::new(NatConfig { shards: vec![shard(30, "192.0.2.64/30")], ..config.clone() });
    for n in 0..300 {
        third.udp_out(home(n % 7), inside(n as u16), server(1)).unwrap();
    }
    let index = here.nat.replica_mut().add_shard(&shard(30, "192.0.2.64/30"), 0, here.now).unwrap();
    assert_eq!((index, here.nat.replica().owned_lanes(index)), (SHARD, 0));
    let low = copy(&third, SHARD, &mut here, index);
    let mut fourth = World::new(NatConfig { shards: vec![], ..config });
    fourth.nat.replica_mut().add_shard(&shard(30, "192.0.2.64/30"), 0, fourth.now).unwrap();
    assert_eq!(copy(&here, index, &mut fourth, SHARD), low);
    assert!(low < 1000);
    // The first shard comes back, at another index: its former state here is old, the changes
    // written elsewhere count.
    let index =
        here.nat.replica_mut().add_shard(&shard(11, "203.0.113.0/30"), 0, here.now).unwrap();
    assert_eq!(index, ShardIndex(2));
    for n in 0..50 {
        other.udp_out(home(20), inside(n), server(1)).unwrap();
    }
    let later = other.take_changes().iter().map(|(change, _)| change.version).min().unwrap();
    assert!(later > highest);
    copy(&other, SHARD, &mut here, index);
    here.nat.replica_mut().set_owned_lanes(index, 0xff, here.now);
    here.nat.replica_mut().set_replicated_lanes(index, 0xff);
    here.udp_out(at_index(index, 30), inside(1), server(1)).unwrap();
    assert!(here.take_changes()[0].0.version > later);
}

/// Lanes that this worker owns from the start continue above all versions that their slabs have
/// had: no worker that remembers an old record takes a new one for it.
#[test]
fn versions_of_owned_lanes_never_go_back() {
    let mut world = World::new(NatConfig { replicas: 1, shards: vec![], ..roomy() });
    let mut last = 0;
    for _ in 0..5 {
        world.add(&shard(11, "203.0.113.0/30")).unwrap();
        world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
        // One lane is enough to reach its former versions again.
        world.nat.replica_mut().set_owned_lanes(SHARD, 1, world.now);
        for n in 0..30 {
            world.udp_out(home(1), inside(n), server(1)).unwrap();
        }
        let versions: Vec<_> =
            world.take_changes().iter().map(|(change, _)| change.version).collect();
        assert!(versions.iter().all(|&version| version > last), "{last}, then {versions:?}");
        last = versions.into_iter().max().unwrap();
        world.remove(SHARD);
    }
}

/// Without translation there are no ports; lanes and inside addresses are added and removed in the
/// same way.
#[test]
fn a_firewall_adds_and_removes_shards() {
    let mut world = World::new(NatConfig { enabled: false, ..roomy() });
    for _ in 0..3 {
        let index = world.add(&shard(13, "172.16.0.0/12")).unwrap();
        for n in 0..50 {
            let host = Endpoint::new(address("172.20.0.1") + n, 5000);
            assert_eq!(world.udp_out(at_index(index, n), host, server(1)), Ok(host));
            assert_eq!(world.udp_back(host, server(1)).unwrap().home, at_index(index, n));
        }
        world.remove(index);
        let host = Endpoint::new(address("172.20.0.1"), 5000);
        assert_eq!(world.udp_back(host, server(1)), Err(Refusal::NoMapping));
        world.assert_empty();
    }
}
