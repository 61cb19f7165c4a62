//! Two workers of a cluster on one access network, A and B. Both have lanes of each shard: seven at
//! A, one at B.

use std::net::Ipv4Addr;

use weir_engine::{EngineConfig, Misses, Redirects, Side};
use weir_nat::{ShardIndex, Tick};
use weir_wire::build;
use weir_wire::ethernet::Mac;

use super::*;

pub const PORT: u16 = 7473;
pub const SHARD: ShardIndex = ShardIndex(0);
pub const A: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub const B: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);

pub struct Pair {
    pub a: World,
    pub b: World,
}

pub fn clustered(mut config: EngineConfig) -> EngineConfig {
    config.peers_max = 4;
    config.replication_port = Some(PORT);
    config.nat.replicas = 1;
    config
}

/// Returns the configuration of the second worker, made from that of the first.
pub fn second(mut config: EngineConfig) -> EngineConfig {
    (config.access.mac, config.internet.mac) = (build::mac(3), build::mac(4));
    config.access.address = "10.1.0.3/24".parse().unwrap();
    config.internet.address = "10.2.0.3/24".parse().unwrap();
    config.nat.seed = [5, 6, 7, 8];
    config
}

impl Pair {
    /// Makes two workers that know each other, have resolved each other, and redirect in the clear,
    /// as an earlier version does.
    pub fn new(config: EngineConfig) -> Self {
        let mut pair = Self::strangers(config);
        assert!(pair.a.engine.setup().add_peer(B) && pair.b.engine.setup().add_peer(A));
        pair.a.engine.setup().set_redirects(B, Redirects::Plain);
        pair.b.engine.setup().set_redirects(A, Redirects::Plain);
        pair.pass_sec(1);
        pair
    }

    pub fn strangers(config: EngineConfig) -> Self {
        Self::of_worlds(config, World::new)
    }

    /// Makes two workers that do not know each other; `make` makes each of them ready.
    pub fn of_worlds(config: EngineConfig, make: fn(EngineConfig) -> World) -> Self {
        let config = clustered(config);
        let mut pair = Self { a: make(config.clone()), b: make(second(config.clone())) };
        for (world, lanes) in [(&mut pair.a, 0x7f), (&mut pair.b, 0x80)] {
            let nat = world.engine.nat_mut();
            for (shard, _) in (0..).map(ShardIndex).zip(&config.shards) {
                nat.replica_mut().set_owned_lanes(shard, lanes, Tick(1));
            }
        }
        pair
    }

    /// Makes a pair in which A redirects packets without a mapping to B.
    pub fn redirecting() -> Self {
        let mut pair = Self::new(config());
        pair.a.engine.setup().set_misses(SHARD, Misses::Redirect(B));
        pair
    }

    /// Delivers the frames of A that are for B, and B's answers to A. Returns what B sent to
    /// others.
    pub fn deliver(&mut self, out: &Out) -> Out {
        let Self { a, b } = self;
        let (from_b, back) = exchange(a, b, out);
        assert!(back.is_nothing(), "nothing comes back from B");
        from_b
    }

    pub fn pass_sec(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            for is_a_first in [true, false] {
                let Self { a, b } = self;
                let (from, to) = if is_a_first { (a, b) } else { (b, a) };
                from.now.ms += 100;
                from.engine.tick(from.now, &mut from.pool, &mut from.out);
                let out = from.collect();
                exchange(from, to, &out);
            }
        }
    }

    pub fn drops(&self) -> u64 {
        self.a.drops() + self.b.drops()
    }
}

/// Delivers frames to their receiver, and its answers back; returns what each worker sent because
/// of them.
fn exchange(from: &mut World, to: &mut World, out: &Out) -> (Out, Out) {
    let mut answers = Out::default();
    for frame in on_link(out, to) {
        answers.extend(to.frame(Side::Access, &frame));
    }
    let mut back = Out::default();
    for frame in on_link(&answers, from) {
        back.extend(from.frame(Side::Access, &frame));
    }
    (answers, back)
}

/// Returns the frames of the access network that a worker receives.
fn on_link(out: &Out, to: &World) -> Vec<Vec<u8>> {
    let mac = to.macs[Side::Access as usize];
    let is_for = |frame: &&(Side, Vec<u8>)| {
        let Ok(header) = ethernet::parse(&frame.1) else { return false };
        frame.0 == Side::Access && [mac, Mac::BROADCAST].contains(&header.destination)
    };
    out.frames.iter().filter(is_for).map(|(_, frame)| frame.clone()).collect()
}
