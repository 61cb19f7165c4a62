//! The NAT against a naive one: random homes, remotes, packets and pauses, from a seed.
//!
//! The model keeps for each inside endpoint its public one and when each remote was last sent to.
//! It answers exactly which UDP and ICMP packets pass. For TCP it checks what holds whatever the
//! segments are: no public endpoint is shared, and in the end everything comes back.

#[path = "../tests/nat/world/mod.rs"]
pub(crate) mod world;

use std::collections::{HashMap, HashSet};

use weir_nat::*;
use world::*;

use crate::audit::audit;

const QUARANTINE_SEC: u32 = 120;

/// xorshift64*: the test must not depend on the generator under test.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(bound)) as u32
    }
}

type InsideKey = (u32, Endpoint, Protocol);

#[derive(Debug)]
struct NaiveMapping {
    public: Endpoint,
    /// Last packet from inside, by remote.
    remotes: HashMap<Endpoint, Tick>,
}

#[derive(Default)]
struct Model {
    mappings: HashMap<InsideKey, NaiveMapping>,
    /// By public endpoint: its last user, and when the user's last session ends at the earliest.
    users: HashMap<(Endpoint, Protocol), (InsideKey, u32)>,
}

fn timeout_sec(protocol: Protocol) -> u32 {
    match protocol {
        Protocol::Udp => 300,
        Protocol::Icmp => 60,
        Protocol::Tcp => unreachable!("the model does not time TCP"),
    }
}

fn is_live(last: Tick, protocol: Protocol, now: Tick) -> bool {
    now.0 - last.0 < timeout_sec(protocol)
}

impl Model {
    /// Notes the public endpoint that a packet from inside got.
    fn sent(&mut self, key: InsideKey, remote: Endpoint, public: Endpoint, now: Tick) {
        let protocol = key.2;
        let is_held = |mapping: &&NaiveMapping| {
            mapping.remotes.values().any(|&last| is_live(last, protocol, now))
        };
        if let Some(mapping) = self.mappings.get(&key).filter(is_held) {
            assert_eq!(mapping.public, public, "U-1: a live mapping keeps its endpoint");
        }
        let former = self.users.get(&(public, protocol));
        if let Some(&(user, end)) = former.filter(|(user, _)| *user != key) {
            assert!(now.0 >= end + QUARANTINE_SEC, "C-8: {public} of {user:?} went to {key:?}");
        }
        self.users.insert((public, protocol), (key, now.0 + timeout_sec(protocol)));
        let mapping = self
            .mappings
            .entry(key)
            .or_insert_with(|| NaiveMapping { public, remotes: HashMap::new() });
        if mapping.public != public {
            *mapping = NaiveMapping { public, remotes: HashMap::new() };
        }
        mapping.remotes.retain(|_, last| is_live(*last, protocol, now));
        mapping.remotes.insert(remote, now);
    }

    /// Returns the inside endpoint that gets a packet from outside, if there is one.
    fn receiver(
        &self,
        public: Endpoint,
        protocol: Protocol,
        remote: Endpoint,
        filtering: Filtering,
        now: Tick,
    ) -> Option<InsideKey> {
        let (key, _) = self.users.get(&(public, protocol))?;
        let mapping = self.mappings.get(key).filter(|mapping| mapping.public == public)?;
        let mut live = mapping
            .remotes
            .iter()
            .filter(|(_, last)| is_live(**last, protocol, now))
            .map(|(remote, _)| *remote);
        let passes = match filtering {
            Filtering::EndpointIndependent => live.next().is_some(),
            Filtering::AddressDependent => live.any(|known| known.address == remote.address),
            Filtering::AddressAndPortDependent => live.any(|known| known == remote),
        };
        passes.then_some(*key)
    }
}

/// How crowded a play is.
#[derive(Clone, Copy)]
struct Crowd {
    homes: u32,
    /// Inside endpoints per home.
    insides: u32,
    pause_sec_max: u32,
    flows_max: u32,
    flows_per_subscriber: u32,
}

/// Few endpoints with many remotes each: the table is full most of the time.
const MANY_SESSIONS: Crowd =
    Crowd { homes: 7, insides: 6, pause_sec_max: 40, flows_max: 60, flows_per_subscriber: 14 };
/// Two homes that use up their ports.
const MANY_MAPPINGS: Crowd =
    Crowd { homes: 2, insides: 200, pause_sec_max: 6, flows_max: 4000, flows_per_subscriber: 4000 };

/// One public address per shard and a quota of 64 ports.
fn tight(filtering: Filtering, crowd: Crowd, seed: u64) -> NatConfig {
    NatConfig {
        filtering,
        port_block: 64,
        ports_per_subscriber: 64,
        flows_max: crowd.flows_max,
        quarantine_sec: QUARANTINE_SEC,
        room: ShardRoom { shards: 3, public_addresses: 3, subscribers: 768 },
        inbound_sessions_max: 2,
        flows_per_subscriber: crowd.flows_per_subscriber,
        shards: vec![shard(11, "203.0.113.1/32"), shard(12, "198.51.100.1/32")],
        seed: [seed, 2, 3, 4],
        ..config()
    }
}

struct Play {
    world: World,
    model: Model,
    dice: Dice,
    filtering: Filtering,
    crowd: Crowd,
    refusals: HashSet<Refusal>,
    /// Public endpoints seen, for packets from outside.
    publics: Vec<Endpoint>,
    /// The index that the guest, a third shard, had last, and the state of its stay.
    guest: (ShardIndex, Guest),
    /// Stays of the guest that are over.
    stays: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Guest {
    Away,
    Here,
    Leaving,
}

/// The homes of the guest have numbers of their own.
const GUESTS: u32 = 100;

impl Play {
    fn new(filtering: Filtering, crowd: Crowd, seed: u64) -> Self {
        Self {
            world: World::new(tight(filtering, crowd, seed)),
            crowd,
            refusals: HashSet::new(),
            model: Model::default(),
            dice: Dice(seed + 1),
            filtering,
            publics: vec![at("203.0.113.1:1024")],
            guest: (ShardIndex(2), Guest::Away),
            stays: 0,
        }
    }

    fn protocol(&mut self) -> Protocol {
        Protocol::ALL[self.dice.below(3) as usize]
    }

    fn remote(&mut self, protocol: Protocol) -> Endpoint {
        let address = address("192.0.2.1") + self.dice.below(3);
        let port = if protocol == Protocol::Icmp { 0 } else { 50 + self.dice.below(3) as u16 };
        Endpoint::new(address, port)
    }

    fn tcp_flags(&mut self) -> u8 {
        [SYN, SYN, SYN_ACK, ACK, ACK, FIN_ACK, RST][self.dice.below(7) as usize]
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..55 => self.send(),
            55..90 => self.receive(),
            90 => self.move_guest(),
            91..96 => {
                let seconds = self.dice.below(self.crowd.pause_sec_max);
                self.world.wait(seconds);
                // A filter that asks for any session of an address or mapping may lag by a round of
                // the walk.
                if self.filtering != Filtering::AddressAndPortDependent {
                    self.world.wait_and_collect(0);
                    self.world.wait_and_collect(0);
                }
            }
            96..98 => {
                self.world.nat.expire(self.world.now, 200, 20);
            }
            98 => self.flush(),
            _ => self.check_uniqueness(),
        }
    }

    fn send(&mut self) {
        let (guest, stay) = self.guest;
        let homes = self.crowd.homes + if stay == Guest::Here { 2 } else { 0 };
        let (n, shard) = match self.dice.below(homes) {
            n if n < self.crowd.homes => (n, ShardIndex((n % 2) as u16)),
            n => (GUESTS + n, guest),
        };
        let home = Home { shard, ..home(n) };
        let inside = inside(self.dice.below(self.crowd.insides) as u16);
        let protocol = self.protocol();
        let remote = self.remote(protocol);
        let flags = self.tcp_flags();
        match self.world.out(home, inside, remote, protocol, flags) {
            Ok(public) => {
                self.publics.push(public);
                if protocol != Protocol::Tcp {
                    self.model.sent((n, inside, protocol), remote, public, self.world.now);
                }
            }
            Err(refusal) => {
                self.refusals.insert(refusal);
            }
        }
    }

    fn receive(&mut self) {
        // Mostly one of the newest; sometimes one that may have ended long ago.
        let known = self.publics.len() as u32;
        let recent = if self.dice.below(8) == 0 { known } else { known.min(100) };
        let public = self.publics[(known - 1 - self.dice.below(recent)) as usize];
        if !self.world.nat.is_public(public.address) {
            assert_eq!(public.address, address("192.0.2.128"), "the guest is not here");
            return;
        }
        let protocol = self.protocol();
        let remote = self.remote(protocol);
        let flags = self.tcp_flags();
        let verdict = self.world.back(public, remote, protocol, flags);
        if protocol == Protocol::Tcp {
            return;
        }
        let now = self.world.now;
        let receiver = self.model.receiver(public, protocol, remote, self.filtering, now);
        let got = verdict.ok().map(|delivery| (delivery.home.outer, delivery.inside));
        assert_eq!(got, receiver.map(|(n, inside, _)| (home(n).outer, inside)), "to {public}");
    }

    /// Sometimes flushes a home, as an operator may; the model forgets it, its ports still rest.
    fn flush(&mut self) {
        let n = self.dice.below(7);
        if self.dice.below(4) > 0 {
            return;
        }
        self.world.nat.admin_mut().flush_subscriber(home(n).outer, self.world.now);
        self.model.mappings.retain(|key, _| key.0 != n);
        let now = self.world.now.0;
        for (user, end) in self.model.users.values_mut().filter(|(user, _)| user.0 == n) {
            assert_eq!(user.0, n);
            *end = (*end).min(now);
        }
    }

    /// Adds the third shard, begins to remove it, or finds that it is gone.
    fn move_guest(&mut self) {
        let (index, stay) = self.guest;
        let stay = match stay {
            Guest::Away => {
                let config = shard(13, "192.0.2.128/32");
                let index =
                    self.world.nat.replica_mut().add_shard(&config, 0xff, self.world.now).unwrap();
                assert_eq!(index, self.guest.0);
                Guest::Here
            }
            Guest::Here => {
                self.world.nat.replica_mut().begin_removal(index);
                self.model.mappings.retain(|key, _| key.0 < GUESTS);
                self.model.users.retain(|_, (user, _)| user.0 < GUESTS);
                Guest::Leaving
            }
            Guest::Leaving if self.world.nat.replica().is_removed(index) => {
                self.stays += 1;
                Guest::Away
            }
            Guest::Leaving => Guest::Leaving,
        };
        self.guest.1 = stay;
    }

    fn check_uniqueness(&self) {
        audit(&self.world.nat);
        let mut holders = HashMap::new();
        for session in self.world.list(&SessionFilter::default()) {
            let ends = session.ipv4().unwrap();
            let inside = (session.shard, session.home.ipv4(), ends.inside);
            let holder = holders.entry((ends.public, session.protocol)).or_insert(inside);
            assert_eq!(*holder, inside, "{} is shared", ends.public);
            assert!(ends.public.port >= 1024);
        }
        let insides: HashSet<_> = holders.iter().map(|((_, protocol), i)| (protocol, i)).collect();
        assert_eq!(insides.len(), holders.len(), "an inside endpoint has one public endpoint");
    }

    fn finish(mut self) {
        self.check_uniqueness();
        for _ in 0..20 {
            self.world.wait_and_collect(7440);
        }
        self.world.assert_empty();
        audit(&self.world.nat);
        let mut open = HashSet::new();
        assert_eq!(self.world.nat.admin().events_lost(), 0);
        for event in self.world.events() {
            match event.kind {
                BlockEventKind::Allocated(block) => assert!(open.insert(block), "allocated twice"),
                BlockEventKind::Released(block) => assert!(open.remove(&block), "not held"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(open, HashSet::new());
    }
}

fn play(filtering: Filtering) {
    let (mut refusals, mut stays) = (HashSet::new(), 0);
    for seed in 0..12 {
        println!("seed {seed}");
        let crowd = if seed % 2 == 0 { MANY_SESSIONS } else { MANY_MAPPINGS };
        let mut play = Play::new(filtering, crowd, seed);
        for _ in 0..6000 {
            play.step();
        }
        refusals.extend(play.refusals.drain());
        stays += play.stays;
        play.finish();
    }
    let expected = [
        Refusal::TableFull,
        Refusal::FlowsPerSubscriber,
        Refusal::PortsExhausted,
        Refusal::TcpNotSyn,
    ];
    assert_eq!(refusals, HashSet::from(expected), "the plays are crowded enough");
    assert!(stays > 100, "the guest came and went {stays} times");
}

#[test]
fn u3_t7_matches_the_model_with_address_and_port_dependent_filtering() {
    play(Filtering::AddressAndPortDependent);
}

#[test]
fn u3_t7_matches_the_model_with_address_dependent_filtering() {
    play(Filtering::AddressDependent);
}

#[test]
fn u3_t7_matches_the_model_with_endpoint_independent_filtering() {
    play(Filtering::EndpointIndependent);
}

/// Without translation the model only tracks which home owns each endpoint and address: conflicts,
/// ends and counts.
#[test]
fn a_crowded_firewall_loses_nothing() {
    for seed in 0..6 {
        println!("seed {seed}");
        let base = tight(Filtering::AddressDependent, MANY_SESSIONS, seed);
        let mut world = World::new(NatConfig {
            enabled: false,
            flows_max: 300,
            shards: vec![shard(11, "203.0.113.0/30"), shard(12, "198.51.100.0/30")],
            ..base
        });
        let mut dice = Dice(seed + 1);
        let mut refusals = HashSet::new();
        let mut owners: HashMap<u32, (Home, Tick)> = HashMap::new();
        for step in 0..6000 {
            let host = Endpoint::new(address("203.0.113.0") + dice.below(5), dice.below(8) as u16);
            let home = home(dice.below(3));
            let remote = Endpoint::new(address("192.0.2.1") + dice.below(3), dice.below(2) as u16);
            let protocol = Protocol::ALL[dice.below(3) as usize];
            let flags = [SYN, ACK, FIN_ACK, RST][dice.below(4) as usize];
            match world.out(home, host, remote, protocol, flags) {
                Ok(public) => {
                    assert_eq!(public, host);
                    let former = owners.insert(host.address, (home, world.now));
                    let (owner, last) = former.unwrap_or((home, world.now));
                    let is_free = world.now.since(last) >= QUARANTINE_SEC;
                    assert!(owner == home || is_free, "{owner:?} has the address of {home:?}");
                }
                Err(refusal) => _ = refusals.insert(refusal),
            }
            if let Ok(delivery) = world.back(host, remote, protocol, flags) {
                assert_eq!(delivery.inside, host);
            }
            if dice.below(4) == 0 {
                world.wait(dice.below(20));
                world.nat.expire(world.now, 50, usize::MAX);
            }
            if step % 100 == 0 {
                audit(&world.nat);
            }
        }
        for wanted in [Refusal::AddressConflict, Refusal::InsideNotPublic, Refusal::TcpNotSyn] {
            assert!(refusals.contains(&wanted), "{refusals:?}");
        }
        for _ in 0..20 {
            world.wait_and_collect(7440);
        }
        world.assert_empty();
        audit(&world.nat);
    }
}
