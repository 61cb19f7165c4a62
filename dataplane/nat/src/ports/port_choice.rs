//! Choice of the public port of a new mapping, and of its block and address.
//!
//! A block is opened only when the home's blocks are full for the protocol: few blocks use the
//! addresses best and log least (RFC 6888 REQ-13, REQ-14). Block and port are random (REQ-15): an
//! outsider who does not know a home's blocks has the whole range to guess, one who does has
//! `port_block` ports per block; a larger block buys a larger guess for more addresses.

use weir_rules::SourcePool;

use crate::config::Pooling;
use crate::endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
use crate::logs::block_event::BlockEventKind;
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::ports::port_block::{BlockId, TakenPort};
use crate::replication::lane::ALL_LANES;
use crate::subscribers::subscriber::HeldBlock;

/// A port leased for a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLease {
    pub(crate) subscriber: u32,
    pub(crate) block: BlockId,
    pub(crate) public: Endpoint,
}

impl Nat {
    /// Returns the subscriber of a home, and makes the home a subscriber if it may be one. `own`:
    /// the position of a public address that it has by a static mapping, so that it needs no block.
    #[inline(never)]
    pub(crate) fn admit_home(
        &mut self,
        home: &Home,
        own: Option<u32>,
        now: Tick,
    ) -> Result<u32, Refusal> {
        if let Some(slot) = self.subscribers.find(home) {
            self.note_group(slot);
            return Ok(slot);
        }
        // Whatever the tunnel says, a spoofed outer source must not take a port block.
        if !self.is_subscriber(home) {
            return Err(Refusal::NotSubscriber);
        }
        self.admit(home, now)?;
        // A home that is an IPv6 prefix has no IPv4 flows.
        let paired_address = if self.policy.enabled && self.prefix_of(home).is_none() {
            let address = self.least_loaded(home.shard, SourcePool::COMMON);
            address.or(own).ok_or(Refusal::PortsExhausted)?
        } else {
            crate::subscribers::subscriber::NO_ADDRESS
        };
        self.subscribers.create(home, self.home_start(home, paired_address), now)
    }

    /// Returns a block of the subscriber for the next port of a protocol in a source pool, read
    /// from the home's list alone: the block may have filled up, and then
    /// [`take_port`](Self::take_port) notes that. None if every block of the list is known to be
    /// full, or if there is no such subscriber.
    #[inline(always)]
    pub(crate) fn likely_block(
        &mut self,
        subscriber: u32,
        protocol: Protocol,
        pool: SourcePool,
    ) -> Option<BlockId> {
        let home = self.subscribers.try_get(subscriber)?;
        let held = home.first_block;
        // The home's only block: there is no choice.
        if home.blocks == 1
            && !held.is_full(protocol)
            && self.may_open_in(home.shard, held.block())
            && !self.policy.has_special_addresses
        {
            return Some(held.block());
        }
        if home.blocks == 0 { None } else { self.choose_block(subscriber, protocol, pool) }
    }

    /// Returns a random block of the subscriber in a source pool that is not known to be full, lies
    /// in a lane that this worker owns, and is in service; None if there is none. The home's paired
    /// address comes first: with soft pooling other addresses serve only what does not fit there.
    #[inline(never)]
    fn choose_block(
        &mut self,
        subscriber: u32,
        protocol: Protocol,
        pool: SourcePool,
    ) -> Option<BlockId> {
        let (home, blocks) = self.subscribers.with_blocks(subscriber);
        let (paired_address, lanes) = (home.paired_address, self.ports.lanes(home.shard));
        let are_special = self.policy.has_special_addresses;
        let mut next = self.random.below(blocks.len() as u32) as usize;
        let mut elsewhere = None;
        for _ in 0..blocks.len() {
            let held = blocks[next];
            next = if next + 1 == blocks.len() { 0 } else { next + 1 };
            if held.is_full(protocol) {
                continue;
            }
            let block = held.block();
            if lanes >> self.ports.lane(block) & 1 == 0 {
                continue;
            }
            let address = self.ports.address_of(block);
            if are_special && !self.may_choose(address, pool) {
                continue;
            }
            if address == paired_address {
                return Some(block);
            }
            elsewhere = elsewhere.or(Some(block));
        }
        elsewhere
    }

    /// True if the block, which is of this shard, lies in a lane that this worker owns.
    #[inline]
    fn may_open_in(&self, shard: ShardIndex, block: BlockId) -> bool {
        self.lanes.are_all_owned || self.ports.is_ours(shard, block)
    }

    /// Leases a port for a subscriber, in any of its blocks in a source pool; opens a block if all
    /// are full. Nothing is changed on refusal.
    ///
    /// RFC 4787 REQ-3: "A NAT MUST NOT have a "Port assignment" behavior of "Port overloading"." A
    /// full quota refuses.
    pub(crate) fn take_port(
        &mut self,
        subscriber: u32,
        protocol: Protocol,
        pool: SourcePool,
    ) -> Result<PortLease, Refusal> {
        // Each round but the last finds one more block of the list to be full.
        let (block, public) = loop {
            let Some(block) = self.likely_block(subscriber, protocol, pool) else {
                let block = self.open_block(subscriber, pool)?;
                let public = self.ports.take(block, subscriber, protocol, &mut self.random);
                break (
                    block,
                    public.expect("a block that was just opened has a free port").public,
                );
            };
            let taken = self.ports.take(block, subscriber, protocol, &mut self.random);
            if let Some(TakenPort { public, .. }) = taken {
                break (block, public);
            }
            self.subscribers.note_full(subscriber, block, protocol);
        };
        self.subscribers.get_mut(subscriber).ports_used[protocol.space()] += 1;
        Ok(PortLease { subscriber, block, public })
    }

    #[inline(never)]
    fn open_block(&mut self, subscriber: u32, pool: SourcePool) -> Result<BlockId, Refusal> {
        if self.has_all_its_blocks(subscriber) {
            return Err(Refusal::PortsExhausted);
        }
        let home = *self.subscribers.get(subscriber);
        if self.rules.set.has_source_pools() && self.source_pool_at(home.paired_address) != pool {
            return self.open_block_of_pool(subscriber, home.shard, pool);
        }
        if self.ports.is_any_set_apart() && self.ports.gives_no_block(home.paired_address) {
            return self.open_block_elsewhere(subscriber, home.shard, pool);
        }
        let mut block = self.ports.open(home.paired_address, subscriber, &mut self.random);
        // RFC 7857 section 4: with paired pooling an implementation may refuse (hard) or use
        // another address (soft).
        if block.is_none() && self.policy.live.pooling == Pooling::Soft {
            block = self
                .least_loaded(home.shard, pool)
                .and_then(|address| self.ports.open(address, subscriber, &mut self.random));
        }
        let block = block.ok_or(Refusal::PortsExhausted)?;
        self.subscribers.add_block(subscriber, block);
        Ok(block)
    }

    /// Pairs a home with another address, as its own gives no blocks, and opens a block there.
    #[cold]
    pub(crate) fn open_block_elsewhere(
        &mut self,
        subscriber: u32,
        shard: ShardIndex,
        pool: SourcePool,
    ) -> Result<BlockId, Refusal> {
        let address = self.least_loaded(shard, pool);
        let address = address.ok_or(Refusal::PortsExhausted)?;
        let block = self.ports.open(address, subscriber, &mut self.random);
        let block = block.ok_or(Refusal::PortsExhausted)?;
        self.subscribers.get_mut(subscriber).paired_address = address;
        self.subscribers.add_block(subscriber, block);
        Ok(block)
    }

    /// RFC 6888 REQ-4: "A CGN MUST support limiting the number of external ports (or, equivalently,
    /// "identifiers" for ICMP) that are assigned per subscriber."
    pub(crate) fn has_all_its_blocks(&self, subscriber: u32) -> bool {
        let (home, blocks) = self.subscribers.with_blocks(subscriber);
        let lanes = self.ports.lanes(home.shard);
        // Blocks in other workers' lanes do not count: what their owners gave does not keep a home
        // from being served here.
        let ours = match lanes {
            ALL_LANES => home.blocks,
            _ => {
                let is_ours = |held: &&HeldBlock| lanes >> self.ports.lane(held.block()) & 1 != 0;
                blocks.iter().filter(is_ours).count() as u32
            }
        };
        ours >= self.allowance_of(home).quota_blocks || self.subscribers.is_list_full(subscriber)
    }

    /// Gives a port back; its block goes with its last port.
    pub(crate) fn give_port_back(&mut self, lease: &PortLease, protocol: Protocol) {
        self.subscribers.get_mut(lease.subscriber).ports_used[protocol.space()] -= 1;
        if self.ports.is_full(lease.block, protocol) {
            self.subscribers.note_room(lease.subscriber, lease.block, protocol);
        }
        if !self.ports.put(lease.block, protocol, lease.public.port) {
            return;
        }
        self.subscribers.remove_block(lease.subscriber, lease.block);
        // A block that was opened for mappings that failed was never logged; in another worker's
        // lane its owner logs it.
        let shard = self.subscribers.get(lease.subscriber).shard;
        let is_ours = self.ports.lanes(shard) >> self.ports.lane(lease.block) & 1 != 0;
        if self.ports.release(lease.block) && is_ours {
            self.push_block_event(BlockEventKind::Released, lease.subscriber, lease.block);
        }
    }

    /// Removes the subscriber of a home when no record of it is left.
    pub(crate) fn dismiss_home(&mut self, subscriber: u32) {
        if self.subscribers.get(subscriber).records == 0 {
            self.subscribers.remove(subscriber);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NatConfig, NatShardConfig};
    use crate::endpoint::ShardIndex;
    use weir_ids::ShardId;

    /// Makes a NAT with one address in blocks of 64 ports, four for each home, and a home.
    fn nat_with_home() -> (Nat, u32) {
        let mut nat = Nat::new(NatConfig {
            flows_max: 1000,
            port_block: 64,
            ports_per_subscriber: 256,
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            shards: vec![NatShardConfig {
                id: ShardId(1),
                public: vec!["203.0.113.1/32".parse().unwrap()],
                public6: Vec::new(),
                subscribers_max: 2,
            }],
            ..NatConfig::default()
        })
        .unwrap();
        let subscriber = nat.admit_home(&HOME, None, Tick(0)).unwrap();
        (nat, subscriber)
    }

    const HOME: Home = Home { shard: ShardIndex(0), outer: 0x0ac8_0001, gre_key: None };

    /// Leases every port that the home may have.
    fn fill(nat: &mut Nat, home: u32) -> Vec<PortLease> {
        let leases: Vec<_> =
            std::iter::from_fn(|| nat.take_port(home, Protocol::Udp, SourcePool::COMMON).ok())
                .collect();
        assert_eq!(leases.len(), 256);
        leases
    }

    #[test]
    fn ports_given_back_to_full_blocks_are_given_again_and_no_others() {
        let (mut nat, home) = nat_with_home();
        let leases = fill(&mut nat, home);
        let given_back: Vec<_> = leases.iter().step_by(5).collect();
        given_back.iter().for_each(|lease| nat.give_port_back(lease, Protocol::Udp));
        let sorted = |mut ports: Vec<u16>| {
            ports.sort_unstable();
            ports
        };
        let again =
            std::iter::from_fn(|| nat.take_port(home, Protocol::Udp, SourcePool::COMMON).ok());
        let again = sorted(again.map(|lease| lease.public.port).collect());
        assert_eq!(again, sorted(given_back.iter().map(|lease| lease.public.port).collect()));
        assert!(
            nat.take_port(home, Protocol::Tcp, SourcePool::COMMON).is_ok(),
            "each protocol has its own ports"
        );
    }

    /// RFC 6056: whoever knows one port of a home has all blocks with room to guess the next in.
    #[test]
    fn ports_are_chosen_from_all_blocks_with_room() {
        let (mut nat, home) = nat_with_home();
        let leases = fill(&mut nat, home);
        leases.iter().step_by(2).for_each(|lease| nat.give_port_back(lease, Protocol::Udp));
        let mut chosen: std::collections::HashMap<BlockId, u32> = Default::default();
        for _ in 0..1000 {
            let lease = nat.take_port(home, Protocol::Udp, SourcePool::COMMON).unwrap();
            *chosen.entry(lease.block).or_default() += 1;
            nat.give_port_back(&lease, Protocol::Udp);
        }
        assert_eq!(chosen.len(), 4);
        assert!(chosen.values().all(|count| (180..320).contains(count)), "{chosen:?}");
    }

    #[test]
    fn a_block_opened_for_a_mapping_that_failed_leaves_no_trace() {
        let (mut nat, subscriber) = nat_with_home();
        let lease = nat.take_port(subscriber, Protocol::Udp, SourcePool::COMMON).unwrap();
        nat.give_port_back(&lease, Protocol::Udp);
        nat.dismiss_home(subscriber);
        assert_eq!(nat.admin_mut().next_event(), None);
        let gauges = nat.admin().shard_gauges(HOME.shard);
        assert_eq!((gauges.subscribers, gauges.ports_used), (0, 0));
        assert_eq!(gauges.blocks_free, gauges.blocks_total);
    }
}
