//! Two NATs that share shards: random traffic at the owner of lanes, its changes delivered to the
//! other in any order, late, twice or not at all; then the other serves.

use std::collections::{HashMap, HashSet};

use weir_nat::*;

use crate::audit::audit;
use crate::model_tests::Dice;
use crate::model_tests::world::*;

/// Seven lanes for the primary, one in reserve.
const PRIMARY: u8 = 0x7f;
const RESERVE: u8 = 0x80;
const SHARDS: [ShardIndex; 2] = [ShardIndex(0), ShardIndex(1)];
/// More than a pair needs, but too few for either to be filled up by copies.
const HOMES: u32 = 24;

fn pair_config(filtering: Filtering, seed: u64) -> NatConfig {
    NatConfig {
        filtering,
        port_block: 64,
        ports_per_subscriber: 512,
        flows_max: 9000,
        quarantine_sec: 120,
        replicas: 1,
        shards: vec![shard(11, "203.0.113.0/31"), shard(12, "198.51.100.1/32")],
        seed: [seed, 2, 3, 4],
        ..config()
    }
}

/// A change on its way.
type SentChange = (SlotChange, Vec<u8>);

struct Pair {
    primary: World,
    replica: World,
    dice: Dice,
    /// From the primary to the replica, and back.
    down: Vec<SentChange>,
    up: Vec<SentChange>,
    /// Flows that were seen at the primary: home, inside, remote, protocol, public.
    flows: HashMap<Flow, Endpoint>,
}

type Flow = (u32, Endpoint, Endpoint, Protocol);

impl Pair {
    fn new(filtering: Filtering, seed: u64) -> Self {
        let mut pair = Self {
            primary: World::new(pair_config(filtering, seed)),
            // Secrets of its own: nothing that is replicated depends on them.
            replica: World::new(pair_config(filtering, seed + 1000)),
            dice: Dice(seed + 1),
            down: Vec::new(),
            up: Vec::new(),
            flows: HashMap::new(),
        };
        for shard in SHARDS {
            pair.primary.nat.replica_mut().set_owned_lanes(shard, PRIMARY, Tick(1000));
            pair.replica.nat.replica_mut().set_owned_lanes(shard, RESERVE, Tick(1000));
            for world in [&mut pair.primary, &mut pair.replica] {
                world.nat.replica_mut().set_replicated_lanes(shard, 0xff);
            }
        }
        pair
    }

    fn home(n: u32) -> Home {
        Home { shard: SHARDS[(n % 2) as usize], ..home(n) }
    }

    fn flow(&mut self) -> Flow {
        let protocol = Protocol::ALL[self.dice.below(3) as usize];
        let port = if protocol == Protocol::Icmp { 0 } else { 50 + self.dice.below(3) as u16 };
        let remote = Endpoint::new(address("192.0.2.1") + self.dice.below(3), port);
        (self.dice.below(HOMES), inside(self.dice.below(12) as u16), remote, protocol)
    }

    fn flags(&mut self) -> u8 {
        [SYN, SYN, SYN_ACK, ACK, ACK, FIN_ACK, RST][self.dice.below(7) as usize]
    }

    /// A packet from a home through the primary, and perhaps an answer.
    fn send(&mut self) {
        let (flow, flags) = (self.flow(), self.flags());
        let (n, inside, remote, protocol) = flow;
        let sent = self.primary.out(Self::home(n), inside, remote, protocol, flags);
        if let Ok(public) = sent {
            self.flows.insert(flow, public);
            let flags = self.flags();
            if self.dice.below(2) == 0 {
                _ = self.primary.back(public, remote, protocol, flags);
            }
        }
    }

    fn wait(&mut self, seconds: u32) {
        self.primary.wait_and_collect(seconds);
        self.replica.wait_and_collect(seconds);
    }

    /// Puts the pending changes of both workers on their way.
    fn send_changes(&mut self) {
        for (world, way) in [(&mut self.primary, &mut self.down), (&mut self.replica, &mut self.up)]
        {
            way.extend(changes(&mut world.nat));
            assert_eq!(world.nat.replica_mut().take_lost(), None);
        }
    }

    /// Delivers the changes that are on their way, in order.
    fn deliver(&mut self) {
        let length = 1 + self.dice.below(80) as usize;
        for changes in self.down.chunks(length) {
            deliver(&mut self.replica, changes);
        }
        for changes in self.up.chunks(length) {
            deliver(&mut self.primary, changes);
        }
        self.down.clear();
        self.up.clear();
    }

    /// Shuffles the changes on their way to the replica, loses some and duplicates some.
    fn scramble(&mut self) {
        let len = self.down.len() as u32;
        for _ in 0..len {
            let (a, b) = (self.dice.below(len), self.dice.below(len));
            self.down.swap(a as usize, b as usize);
        }
        let dice = &mut self.dice;
        let mut doubled = Vec::new();
        self.down.retain(|change| {
            if dice.below(6) == 0 {
                doubled.push(change.clone());
            }
            dice.below(6) != 0
        });
        self.down.extend(doubled);
    }

    /// Gives the replica a copy of the primary's lanes, in pieces, while traffic flows.
    fn copy(&mut self) {
        for shard in SHARDS {
            for lane in 0..7 {
                self.replica.nat.replica_mut().begin_copy(shard, lane);
                let mut from = 0;
                // Everything behind the primary's last slot has ended.
                while from < u32::MAX {
                    let (primary, replica) = (self.primary.nat.replica(), &mut self.replica);
                    let mut room = 1 + self.dice.below(40);
                    let budget = 1 + self.dice.below(3000);
                    from =
                        primary.copy_lane(shard, lane, from..u32::MAX, budget, |change, body| {
                            let has_room = room > 0;
                            if has_room {
                                room -= 1;
                                deliver(replica, &[(*change, body.to_vec())]);
                            }
                            has_room
                        });
                    for _ in 0..self.dice.below(3) {
                        self.send();
                    }
                    self.send_changes();
                    self.deliver();
                }
                assert!(!self.replica.nat.replica().is_copy_full(shard, lane));
            }
        }
    }

    /// Checks that the replica holds what the primary does, and finds every flow of it, both ways.
    fn check_equal(&mut self) {
        audit(&self.primary.nat);
        audit(&self.replica.nat);
        for shard in SHARDS {
            for lane in 0..7 {
                let (primary, replica) = (self.primary.nat.replica(), self.replica.nat.replica());
                let slots = primary.lane_slots(shard, lane);
                assert!(replica.lane_slots(shard, lane) <= slots.max(1 << 11 << 10));
                for first in (0..slots.max(4096)).step_by(1024) {
                    let sum = |nat: Replica<'_>| nat.sum_lane(shard, lane, first..first + 1024);
                    assert_eq!(
                        sum(primary),
                        sum(replica),
                        "{shard:?} lane {lane} slots from {first}"
                    );
                }
            }
        }
        let live = live_at(&self.primary);
        for (&flow, &public) in &live {
            let (n, inside, remote, protocol) = flow;
            let home = Self::home(n);
            let peeked = self.replica.nat.peek_outbound(&home, inside, remote, protocol);
            assert_eq!(peeked.map(|it| it.to), Some(public), "{flow:?}");
            let delivered = self.replica.nat.peek_inbound(public, remote, protocol);
            let delivered = delivered.map(|it| (it.to.home.outer, it.to.inside));
            assert_eq!(delivered, Some((home.outer, inside)), "{flow:?}");
        }
    }

    /// Checks that the replica serves the primary's flows as the primary does, whatever its own
    /// timers say.
    fn check_served(&mut self) {
        let live = live_at(&self.primary);
        for (&(n, inside, remote, protocol), &public) in &live {
            let packet = self.replica.out(Self::home(n), inside, remote, protocol, ACK);
            assert_eq!(packet, Ok(public), "home {n}, {inside} to {remote}");
            let packet = self.replica.back(public, remote, protocol, ACK);
            let delivered = packet.map(|delivery| (delivery.home.outer, delivery.inside));
            assert_eq!(delivered, Ok((Self::home(n).outer, inside)));
        }
        audit(&self.replica.nat);
    }
}

/// Returns the pending changes of a NAT.
fn changes(nat: &mut Nat) -> Vec<SentChange> {
    let mut body = [0; BODY_MAX];
    std::iter::from_fn(|| {
        let (change, len) = nat.replica_mut().next_change(&mut body)?;
        Some((change, body[..len].to_vec()))
    })
    .collect()
}

fn deliver(world: &mut World, changes: &[SentChange]) {
    let invalid = world.nat.admin().mirror_gauges().changes_invalid_total;
    let lane = |change: &SlotChange| (change.shard, change.lane);
    for burst in changes.chunk_by(|(one, _), (next, _)| lane(one) == lane(next)) {
        let at = lane(&burst[0].0);
        let burst = burst.iter().map(|(change, body)| (change.in_lane(), &body[..]));
        world.nat.replica_mut().apply_burst(at, burst, false, world.now);
    }
    assert_eq!(world.nat.admin().mirror_gauges().changes_invalid_total, invalid, "{changes:?}");
}

/// Returns the flows that a NAT lists in lanes of its own.
fn live_at(world: &World) -> HashMap<Flow, Endpoint> {
    let shard_of = |session: &SessionView| SHARDS[(session.shard.0 - 11) as usize];
    let sessions = world.list(&SessionFilter::default());
    let ours = sessions.into_iter().filter(|session| {
        let lane = u32::from(session.ipv4().unwrap().public.port) / 64 % 8;
        world.nat.replica().owned_lanes(shard_of(session)) >> lane & 1 != 0
    });
    ours.map(|session| {
        let (n, ends) = (session.home.ipv4().unwrap() - home(0).outer, session.ipv4().unwrap());
        ((n, ends.inside, ends.remote, session.protocol), ends.public)
    })
    .collect()
}

const FILTERINGS: [Filtering; 3] = [
    Filtering::EndpointIndependent,
    Filtering::AddressDependent,
    Filtering::AddressAndPortDependent,
];

fn plays(seeds: u64) -> impl Iterator<Item = Pair> {
    (0..seeds).flat_map(|seed| {
        FILTERINGS.map(|filtering| {
            println!("seed {seed}, {filtering:?}");
            Pair::new(filtering, seed)
        })
    })
}

/// Changes in order, with the delay of a stream.
#[test]
fn a_replica_follows_its_primary() {
    for mut pair in plays(4) {
        for step in 0..4000 {
            pair.send();
            if pair.dice.below(20) == 0 {
                let seconds = pair.dice.below(40);
                pair.wait(seconds);
            }
            if pair.dice.below(300) == 0 {
                pair.primary
                    .nat
                    .admin_mut()
                    .flush_subscriber(home(pair.dice.below(HOMES)).outer, pair.primary.now);
            }
            if pair.dice.below(10) == 0 {
                pair.send_changes();
                pair.deliver();
            }
            if step % 1000 == 999 {
                pair.send_changes();
                pair.deliver();
                pair.check_equal();
            }
        }
        pair.check_served();
        let gauges = pair.replica.nat.admin().mirror_gauges();
        assert!(gauges.changes_applied_total > 1000);
        assert_eq!((gauges.changes_invalid_total, gauges.changes_full_total), (0, 0));
    }
}

/// Delay, disorder, loss and duplicates: no invariant breaks, and a copy repairs the replica.
#[test]
fn a_copy_repairs_what_a_stream_has_lost() {
    for mut pair in plays(4) {
        for round in 0..3 {
            for _ in 0..1500 {
                pair.send();
                if pair.dice.below(20) == 0 {
                    let seconds = pair.dice.below(40);
                    pair.wait(seconds);
                }
                if pair.dice.below(20) == 0 {
                    pair.send_changes();
                    pair.scramble();
                    pair.deliver();
                }
            }
            audit(&pair.replica.nat);
            pair.copy();
            pair.send_changes();
            pair.deliver();
            pair.check_equal();
            if round == 2 {
                pair.check_served();
            }
        }
    }
}

/// A shard is removed from the replica, in pieces, while the primary goes on; then it is added and
/// copied again.
#[test]
fn a_shard_that_left_a_replica_comes_back() {
    for mut pair in plays(2) {
        for round in 0..4 {
            let index = SHARDS[round % 2];
            for step in 0..1200 {
                pair.send();
                if pair.dice.below(20) == 0 {
                    let seconds = pair.dice.below(40);
                    pair.wait(seconds);
                }
                if step == 700 {
                    pair.replica.nat.replica_mut().begin_removal(index);
                }
                if pair.dice.below(10) == 0 {
                    pair.send_changes();
                    let is_here = |shard| step < 700 || shard != index;
                    pair.down.retain(|(change, _)| is_here(change.shard));
                    pair.deliver();
                    let budget = pair.dice.below(400) as usize;
                    pair.replica.nat.expire(pair.replica.now, budget, 8);
                }
            }
            pair.wait(1);
            assert!(pair.replica.nat.replica().is_removed(index));
            audit(&pair.replica.nat);
            let config = pair_config(Filtering::default(), 0).shards.swap_remove(round % 2);
            let (mut replica, now) = (pair.replica.nat.replica_mut(), pair.replica.now);
            assert_eq!(replica.add_shard(&config, 0, now), Ok(index));
            replica.set_owned_lanes(index, RESERVE, now);
            replica.set_replicated_lanes(index, 0xff);
            pair.copy();
            pair.send_changes();
            pair.deliver();
            pair.check_equal();
        }
        pair.check_served();
    }
}

/// The order of changes of different slots is free: in any of them the replica ends as the primary.
#[test]
fn changes_of_different_slots_come_in_any_order() {
    for mut pair in plays(4) {
        for _ in 0..1500 {
            pair.send();
            if pair.dice.below(10) == 0 {
                let seconds = pair.dice.below(60);
                pair.wait(seconds);
                // Beginnings, changes and ends of a slot then arrive together.
                pair.send_changes();
            }
        }
        pair.send_changes();
        let changes = &mut pair.down[..];
        let slot_of = |change: &SentChange| (change.0.shard, change.0.lane, change.0.slot);
        let len = changes.len() as u32 - 1;
        for _ in 0..len * 20 {
            let at = pair.dice.below(len) as usize;
            if slot_of(&changes[at]) != slot_of(&changes[at + 1]) {
                changes.swap(at, at + 1);
            }
        }
        pair.deliver();
        audit(&pair.replica.nat);
        // A port that changed its mapping may have been reported taken before it was reported free:
        // then the last change was the end of the former mapping, and the scrub restores the
        // mapping that this end displaced.
        pair.copy();
        pair.send_changes();
        pair.deliver();
        pair.check_equal();
    }
}

/// Both serve all homes, each creating in its own lanes; then the primary fails, and later its
/// lanes are taken over. At no time is a public endpoint given to two inside endpoints.
#[test]
fn a_port_is_never_given_twice() {
    for mut pair in plays(4) {
        for step in 0..6000 {
            match pair.dice.below(10) {
                0..4 => pair.send(),
                4..7 => {
                    let ((n, inside, remote, protocol), flags) = (pair.flow(), pair.flags());
                    let sent = pair.replica.out(Pair::home(n), inside, remote, protocol, flags);
                    if let Ok(public) = sent {
                        _ = pair.replica.back(public, remote, protocol, ACK);
                    }
                }
                7 => {
                    let seconds = pair.dice.below(20);
                    pair.wait(seconds);
                }
                _ => {
                    pair.send_changes();
                    pair.deliver();
                }
            }
            if step % 200 == 0 {
                audit(&pair.primary.nat);
                audit(&pair.replica.nat);
                let live = [live_at(&pair.primary), live_at(&pair.replica)];
                assert_unique(live.iter().flatten());
            }
        }
        take_over(pair);
    }
}

/// Checks that no public endpoint belongs to two inside endpoints.
fn assert_unique<'a>(flows: impl Iterator<Item = (&'a Flow, &'a Endpoint)>) {
    let mut holders = HashMap::new();
    for (&(n, inside, _, protocol), &public) in flows {
        let holder = holders.entry((public, protocol)).or_insert((n, inside));
        assert_eq!(*holder, (n, inside), "{public} is shared");
    }
}

/// The primary fails mid-stream; its lanes become the replica's.
fn take_over(mut pair: Pair) {
    pair.send_changes();
    pair.deliver();
    let dead = live_at(&pair.primary);
    let before = pair.replica.nat.admin().gauges();
    pair.replica.wait_and_collect(7000);
    for shard in SHARDS {
        pair.replica.nat.replica_mut().set_owned_lanes(shard, 0xff, pair.replica.now);
    }
    let replica = &mut pair.replica;
    assert!(replica.nat.admin().gauges().quarantined >= before.quarantined, "quarantines are kept");
    // Timers start again in full: a flow that was idle for long here counts as just used.
    replica.wait_and_collect(50);
    for (&(n, inside, remote, protocol), &public) in &dead {
        assert_eq!(replica.out(Pair::home(n), inside, remote, protocol, ACK), Ok(public));
    }
    let mut flows = dead.clone();
    for number in 0..1500 {
        let (n, remote) = (number % HOMES, at("192.0.2.9:99"));
        let inside = inside(100 + (number / HOMES) as u16);
        if let Ok(public) = replica.udp_out(Pair::home(n), inside, remote) {
            flows.insert((n, inside, remote, Protocol::Udp), public);
        }
    }
    assert!(flows.len() > dead.len() + 500, "allocation goes on at once");
    assert_unique(flows.iter());
    audit(&replica.nat);
    for _ in 0..20 {
        replica.wait_and_collect(7440);
    }
    replica.assert_empty();
    audit(&replica.nat);
    // Every block that the log reports as released was opened before: by the replica or by the
    // failed primary.
    let mut open = HashSet::new();
    for event in pair.primary.events().into_iter().chain(pair.replica.events()) {
        match event.kind {
            BlockEventKind::Allocated(block) => _ = open.insert(block),
            BlockEventKind::Released(block) => assert!(open.remove(&block), "not held: {block:?}"),
            other => panic!("{other:?}"),
        }
    }
}
