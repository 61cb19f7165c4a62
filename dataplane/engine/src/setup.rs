//! The part of [`Engine`] that is set from outside, at the start and at run time: links, shards,
//! the duties for each of them, and the other workers.

use std::net::Ipv4Addr;
use std::sync::Arc;

use weir_nat::{AddressRanges, Replica, ReplicaMut, ShardIndex};
use weir_wire::ethernet::Mac;
use weir_wire::frame::Frame;

use crate::engine::{Engine, Now};
use crate::frame_pattern::Patterns;
use crate::held::HeldFrames;
use crate::neighbor::RequestPace;
use crate::{CommitLimits, EngineError, Misses, Redirects, ShardConfig, Side, Uncommitted};

/// An engine as the configuration and the worker's roles set it: see [`Engine::setup`].
#[derive(Debug)]
pub struct EngineSetup<'a, F: Frame> {
    pub(crate) engine: &'a mut Engine<F>,
}

impl<F: Frame> Engine<F> {
    /// Returns the part that the configuration and the worker's roles set.
    #[inline]
    pub fn setup(&mut self) -> EngineSetup<'_, F> {
        EngineSetup { engine: self }
    }
}

impl<F: Frame> EngineSetup<'_, F> {
    /// Returns the tables as replication reads them.
    #[inline]
    pub fn replica(&self) -> Replica<'_> {
        self.engine.nat.replica()
    }

    /// Returns the tables as replication changes them.
    #[inline]
    pub fn replica_mut(&mut self) -> ReplicaMut<'_> {
        self.engine.nat.replica_mut()
    }

    /// Sets the public addresses of all shards of the cluster or node, whichever worker serves
    /// them: between homes with these addresses ICMP queries pass in both directions (RFC 5508
    /// REQ-7). Without a call, only this worker's own addresses count.
    pub fn set_all_public(&mut self, public: Arc<AddressRanges>) {
        self.engine.all_public = public;
    }

    /// Sets the MAC address of a port that was attached after the tables were built.
    pub fn set_mac(&mut self, side: Side, mac: Mac) {
        self.engine.link_mut(side).set_mac(mac);
        let [access, internet] = &self.engine.links;
        self.engine.patterns = Patterns::new([access, internet], self.engine.mode);
        if side == Side::Access {
            self.engine.peers.set_header(self.engine.link(side).header_to(Mac::ZERO));
        }
    }

    /// Makes the worker ask its gateways continuously: a worker that another can replace has to
    /// detect within 200 ms that one of its sides is cut off.
    pub fn watch_gateways(&mut self) {
        self.engine.links.iter_mut().for_each(|link| link.set_pace(RequestPace::WATCH));
    }

    /// Makes packets of shards whose changes are awaited ([`ReplicaMut::set_commit`]) wait until
    /// [`Engine::release_committed`] releases them. To be called once, before the
    /// first packet: allocates.
    pub fn hold_uncommitted(&mut self, limits: CommitLimits) {
        self.replica_mut().keep_commits(limits.changes_max, limits.policy == Uncommitted::Drop);
        self.engine.held = HeldFrames::new(limits);
    }

    /// Adds a shard; packets of its homes are accepted from then on. Both descriptions are of the
    /// same shard; `owned_lanes` has one bit for each of its lanes that this worker owns.
    /// [`weir_nat::NatConfig::room`] sets how many shards there is room for.
    ///
    /// # Errors
    /// The same errors as at the start, or there is no room; nothing is changed then. See
    /// [`ReplicaMut::add_shard`].
    pub fn add_shard(
        &mut self,
        shard: &ShardConfig,
        nat: &weir_nat::NatShardConfig,
        owned_lanes: u8,
        now: Now,
    ) -> Result<ShardIndex, EngineError> {
        self.engine.shards.check(shard)?;
        let index = self.replica_mut().add_shard(nat, owned_lanes, now.tick())?;
        self.engine.shards.add(shard, index);
        self.engine.shards.set_serving(index, self.engine.duties.serves(index));
        Ok(index)
    }

    /// Removes a shard: packets of its homes, and to its public addresses, belong to no shard from
    /// then on. [`Engine::tick`] removes its state piece by piece; once [`Replica::is_removed`]
    /// returns true, the index may be used again.
    ///
    /// # Panics
    /// Panics if there is no such shard.
    pub fn remove_shard(&mut self, shard: ShardIndex) {
        self.replica_mut().begin_removal(shard);
        self.engine.shards.remove(shard);
        self.engine.fragments.forget(shard);
    }

    /// Sets whether packets of the shard are translated and its endpoint answers; otherwise they
    /// are dropped as `not-serving`.
    pub fn set_serving(&mut self, shard: ShardIndex, is_serving: bool) {
        self.engine.duties.set_serving(shard, is_serving);
        self.engine.shards.set_serving(shard, is_serving);
    }

    /// Sets what happens to packets of the shard without a mapping.
    pub fn set_misses(&mut self, shard: ShardIndex, misses: Misses<Ipv4Addr>) {
        self.engine.duties.set_misses(shard, misses);
    }

    /// Starts to exchange packets with the worker that has this access address. False if there are
    /// [`peers_max`](crate::EngineConfig::peers_max) peers already.
    pub fn add_peer(&mut self, address: Ipv4Addr) -> bool {
        self.engine.peers.add(address)
    }

    /// Stops the exchange with this worker: packets from it are dropped.
    pub fn remove_peer(&mut self, address: Ipv4Addr) {
        self.engine.peers.remove(address);
    }

    /// Sets how redirected packets go to this worker and come from it; before the first call none
    /// do.
    pub fn set_redirects(&mut self, address: Ipv4Addr, redirects: Redirects) {
        self.engine.peers.set_redirects(address, redirects);
    }
}
