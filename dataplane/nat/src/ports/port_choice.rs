//! Choice of the public port of a new mapping, and of its block and address.
//!
//! A block is opened only when the home's blocks are full for the protocol: few blocks use the
//! addresses best and log least (RFC 6888 REQ-13, REQ-14). Block and port are random (REQ-15): an
//! outsider who does not know a home's blocks has the whole range to guess, one who does has
//! `port_block` ports per block; a larger block buys a larger guess for more addresses.

use crate::config::Pooling;
use crate::endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
use crate::logs::block_event::BlockEventKind;
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::ports::port_block::BlockId;
use crate::replication::lane::ALL_LANES;

/// A port leased for a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLease {
    pub(crate) subscriber: u32,
    pub(crate) block: BlockId,
    pub(crate) public: Endpoint,
}

impl Nat {
    /// Returns the subscriber of a home, and makes the home a subscriber if it may be one.
    #[inline(never)]
    pub(crate) fn admit_home(&mut self, home: &Home, now: Tick) -> Result<u32, Refusal> {
        if let Some(slot) = self.subscribers.find(home) {
            return Ok(slot);
        }
        // Whatever the tunnel says, a spoofed outer source must not take a port block.
        if !self.homes.contains(home.outer) {
            return Err(Refusal::NotSubscriber);
        }
        self.admit(home, now)?;
        let seat = if self.policy.enabled {
            self.ports.least_loaded(home.shard, &mut self.random).ok_or(Refusal::PortsExhausted)?
        } else {
            crate::subscribers::subscriber::NO_ADDRESS
        };
        self.subscribers.create(home, seat, now)
    }

    /// Leases a port for a subscriber. Nothing is changed on refusal.
    ///
    /// RFC 4787 REQ-3: "A NAT MUST NOT have a "Port assignment" behavior of "Port overloading"." A
    /// full quota refuses.
    #[inline]
    pub(crate) fn take_port(
        &mut self,
        subscriber: u32,
        protocol: Protocol,
    ) -> Result<PortLease, Refusal> {
        let (home, blocks) = self.subscribers.with_blocks(subscriber);
        let has_room = home.ports_used[protocol.space()] < home.capacity;
        let block = match *blocks {
            // The home's only block: there is no choice.
            [block] if has_room && self.may_open_in(home.shard, block) => block,
            _ if has_room => match self.block_with_room(subscriber, protocol) {
                Some(block) => block,
                None => self.open_block(subscriber)?,
            },
            _ => self.open_block(subscriber)?,
        };
        let public = self
            .ports
            .take(block, protocol, &mut self.random)
            .expect("a block with room has a free port");
        self.subscribers.get_mut(subscriber).ports_used[protocol.space()] += 1;
        Ok(PortLease { subscriber, block, public })
    }

    /// True if the block, which is of this shard, lies in a lane that this worker owns.
    #[inline]
    fn may_open_in(&self, shard: ShardIndex, block: BlockId) -> bool {
        self.lanes.are_all_owned || self.ports.is_ours(shard, block)
    }

    /// Returns a random block of the subscriber that has a free port and lies in a lane that this
    /// worker owns; None if no such block has one. The home's paired address comes first: with soft
    /// pooling other addresses serve only what does not fit there.
    #[inline(never)]
    fn block_with_room(&mut self, subscriber: u32, protocol: Protocol) -> Option<BlockId> {
        let (home, blocks) = self.subscribers.with_blocks(subscriber);
        let (seat, lanes) = (home.seat, self.ports.lanes(home.shard));
        let start = self.random.below(blocks.len() as u32) as usize;
        let (before, from) = blocks.split_at(start);
        let mut elsewhere = None;
        for &block in from.iter().chain(before) {
            let is_ours = lanes >> self.ports.lane(block) & 1 != 0;
            if !is_ours || self.ports.is_full(block, protocol) {
                continue;
            }
            if self.ports.address_of(block) == seat {
                return Some(block);
            }
            elsewhere = elsewhere.or(Some(block));
        }
        elsewhere
    }

    #[inline(never)]
    fn open_block(&mut self, subscriber: u32) -> Result<BlockId, Refusal> {
        if self.has_all_its_blocks(subscriber) {
            return Err(Refusal::PortsExhausted);
        }
        let home = *self.subscribers.get(subscriber);
        let mut block = self.ports.open(home.seat, subscriber, &mut self.random);
        // RFC 7857 section 4: with paired pooling an implementation may refuse (hard) or use
        // another address (soft).
        if block.is_none() && self.policy.pooling == Pooling::Soft {
            block = self
                .ports
                .least_loaded(home.shard, &mut self.random)
                .and_then(|address| self.ports.open(address, subscriber, &mut self.random));
        }
        let block = block.ok_or(Refusal::PortsExhausted)?;
        let capacity = self.ports.capacity(block);
        self.subscribers.add_block(subscriber, block, capacity);
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
                let is_ours = |block: &&BlockId| lanes >> self.ports.lane(**block) & 1 != 0;
                blocks.iter().filter(is_ours).count() as u32
            }
        };
        self.subscribers.is_at_quota(ours) || self.subscribers.is_list_full(subscriber)
    }

    /// Gives a port back; its block goes with its last port.
    pub(crate) fn give_port_back(&mut self, seat: &PortLease, protocol: Protocol) {
        self.subscribers.get_mut(seat.subscriber).ports_used[protocol.space()] -= 1;
        if !self.ports.put(seat.block, protocol, seat.public.port) {
            return;
        }
        let capacity = self.ports.capacity(seat.block);
        self.subscribers.remove_block(seat.subscriber, seat.block, capacity);
        // A block that was opened for mappings that failed was never logged; in another worker's
        // lane its owner logs it.
        let shard = self.subscribers.get(seat.subscriber).shard;
        let is_ours = self.ports.lanes(shard) >> self.ports.lane(seat.block) & 1 != 0;
        if self.ports.release(seat.block) && is_ours {
            self.push_block_event(BlockEventKind::Released, seat.subscriber, seat.block);
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
    use crate::config::{NatConfig, ShardConfig};
    use crate::endpoint::ShardIndex;
    use weir_ids::ShardId;

    #[test]
    fn a_block_opened_for_a_mapping_that_failed_leaves_no_trace() {
        let mut nat = Nat::new(NatConfig {
            flows_max: 10,
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            shards: vec![ShardConfig {
                id: ShardId(1),
                public: vec!["203.0.113.1/32".parse().unwrap()],
                subscribers_max: 1,
            }],
            ..NatConfig::default()
        })
        .unwrap();
        let home = Home { shard: ShardIndex(0), outer: 0x0ac8_0001, gre_key: None };
        let subscriber = nat.admit_home(&home, Tick(0)).unwrap();
        let seat = nat.take_port(subscriber, Protocol::Udp).unwrap();
        nat.give_port_back(&seat, Protocol::Udp);
        nat.dismiss_home(subscriber);
        assert_eq!(nat.admin_mut().next_event(), None);
        let gauges = nat.admin().shard_gauges(home.shard);
        assert_eq!((gauges.subscribers, gauges.ports_used), (0, 0));
        assert_eq!(gauges.blocks_free, gauges.blocks_total);
    }
}
