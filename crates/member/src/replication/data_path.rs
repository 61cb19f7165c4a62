//! What orders do to the rest of the worker.

use std::net::Ipv4Addr;
use std::sync::Arc;

use weir_engine::{Engine, Misses, Now};
use weir_nat::{AddressRanges, Nat, ShardIndex};
use weir_wire::frame::Frame;

use crate::order::ShardSetup;

/// The data path of the worker, which serves what the cluster decides. All but the NAT's part may be done again.
pub trait DataPath {
    fn nat(&mut self) -> &mut Nat;

    /// Knows the address on the access side, or knows it no longer. False: there is no room for another.
    fn add_peer(&mut self, address: Ipv4Addr) -> bool;
    fn remove_peer(&mut self, address: Ipv4Addr);

    /// Makes room for a shard without lanes, which is not served.
    ///
    /// # Errors
    /// Why there is none, in words for an operator.
    fn add_shard(&mut self, setup: &ShardSetup, now_ms: u64) -> Result<ShardIndex, String>;

    /// Begins to forget a shard; [`Nat::is_removed`] tells the end.
    fn remove_shard(&mut self, shard: ShardIndex);

    /// Whether packets of the shard are translated.
    fn set_serving(&mut self, shard: ShardIndex, is_serving: bool);

    /// What becomes of its packets without a mapping.
    fn set_misses(&mut self, shard: ShardIndex, misses: Misses<Ipv4Addr>);

    /// Knows the public addresses of all shards, whichever worker serves them.
    fn set_all_public(&mut self, public: Arc<AddressRanges>);
}

impl<F: Frame> DataPath for Engine<F> {
    fn nat(&mut self) -> &mut Nat {
        self.nat_mut()
    }

    fn add_peer(&mut self, address: Ipv4Addr) -> bool {
        Engine::add_peer(self, address)
    }

    fn remove_peer(&mut self, address: Ipv4Addr) {
        Engine::remove_peer(self, address);
    }

    fn add_shard(&mut self, setup: &ShardSetup, now_ms: u64) -> Result<ShardIndex, String> {
        let now = Now { ms: now_ms };
        Engine::add_shard(self, &setup.engine, &setup.nat, 0, now)
            .map_err(|error| error.to_string())
    }

    fn remove_shard(&mut self, shard: ShardIndex) {
        Engine::remove_shard(self, shard);
    }

    fn set_serving(&mut self, shard: ShardIndex, is_serving: bool) {
        Engine::set_serving(self, shard, is_serving);
    }

    fn set_misses(&mut self, shard: ShardIndex, misses: Misses<Ipv4Addr>) {
        Engine::set_misses(self, shard, misses);
    }

    fn set_all_public(&mut self, public: Arc<AddressRanges>) {
        Engine::set_all_public(self, public);
    }
}
