//! Hot. Copies of mappings that are stored but not yet found: what follows from a record is made a few at a time, with
//! the cache misses of many overlapped.
//!
//! ```text
//!   apply: record in its slot, WAITING  -->  backlog  -->  attach: home, block, port, both indexes
//! ```
//!
//! A look-up that misses drains the backlog first, so nobody notices. A record that goes while it waits leaves its id
//! behind, which is passed over: the flag decides.

use std::collections::VecDeque;

use weir_flow::{Hash, RecordId};

use crate::change::Applied;
use crate::endpoint::Protocol;
use crate::lane::slab_of;
use crate::mapping::{Kind, Mapping};
use crate::mirror::Exit;
use crate::nat::{Nat, WALK_STEP};
use crate::port_block::BlockId;
use crate::port_choice::Seat;

/// Copies that can wait: two milliseconds of changes at the rate that a core makes flows would be 5,000.
pub(crate) const BACKLOG_MAX: usize = 65_536;

/// Copies attached together.
const STEP: usize = 32;

/// Where a copy will be found.
#[derive(Clone, Copy, Debug)]
struct Keys {
    outbound: Hash,
    inbound: Hash,
    home: Hash,
}

impl Keys {
    const NONE: Self = Self { outbound: Hash(0), inbound: Hash(0), home: Hash(0) };
}

/// The ring of ids.
#[derive(Debug)]
pub(crate) struct Backlog {
    ring: VecDeque<RecordId>,
    capacity: usize,
    /// A look-up that missed has drained it: others of the same burst may have missed before.
    has_missed: bool,
}

impl Backlog {
    /// `capacity` ids: 0 on a worker without replicas.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::with_capacity(capacity), capacity, has_missed: false }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.ring.len() >= self.capacity
    }

    /// There must be room.
    pub(crate) fn push(&mut self, id: RecordId) {
        self.ring.push_back(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }
}

impl Nat {
    /// Are there copies that a look-up does not find yet?
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.backlog.len() > 0
    }

    /// Copies that may be applied before one has to be made known to look-ups at once.
    pub fn backlog_room(&self) -> usize {
        self.backlog.capacity - self.backlog.len()
    }

    /// May a look-up of this burst have missed what is, or was until just now, in the backlog?
    #[inline]
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.backlog.has_missed) || self.has_backlog()
    }

    /// A look-up has missed while there were copies that it could not find.
    #[cold]
    pub(crate) fn drain_on_miss(&mut self) {
        self.backlog.has_missed = true;
        self.drain_backlog(usize::MAX);
    }

    /// Makes about `budget` copies known to look-ups. To be called once per poll with 64 or more. Returns how many
    /// still wait.
    pub fn drain_backlog(&mut self, budget: usize) -> usize {
        let mut left = budget.min(self.backlog.len());
        let mut keys = [Keys::NONE; STEP];
        while left > 0 {
            let step = left.min(STEP);
            for place in 0..step {
                self.mappings.prefetch(self.backlog.ring[place]);
            }
            for (place, keys) in keys[..step].iter_mut().enumerate() {
                *keys = self.prefetch_attach(self.backlog.ring[place]);
            }
            for keys in &keys[..step] {
                let id = self.backlog.ring.pop_front().expect("nobody else takes from the ring");
                self.attach_by(id, keys);
            }
            left -= step;
        }
        self.backlog.len()
    }

    /// Asks for the lines that [`attach`](Self::attach) reads first, and returns the keys.
    #[inline]
    fn prefetch_attach(&self, id: RecordId) -> Keys {
        let mapping = self.mappings.get(id);
        let keys = self.keys_of(mapping);
        if mapping.flags & Mapping::WAITING != 0 {
            self.prefetch_outbound(keys.outbound);
            self.prefetch_inbound(keys.inbound);
            self.subscribers.prefetch_home(keys.home);
            if self.policy.enabled {
                let block = self.ports.block_of(mapping.address, mapping.public_port);
                self.ports.prefetch(block, mapping.protocol, mapping.public_port);
            }
        }
        keys
    }

    #[inline]
    fn keys_of(&self, mapping: &Mapping) -> Keys {
        let (outbound, inbound) = self.hashes_of(mapping);
        Keys { outbound, inbound, home: self.subscribers.hash(&mapping.home()) }
    }

    /// Makes a waiting copy a mapping like any other. If there is no room for what belongs to it, it is forgotten.
    pub(crate) fn attach(&mut self, id: RecordId) -> Applied {
        let keys = self.keys_of(self.mappings.get(id));
        self.attach_by(id, &keys)
    }

    fn attach_by(&mut self, id: RecordId, keys: &Keys) -> Applied {
        let mapping = *self.mappings.get(id);
        if mapping.flags & Mapping::WAITING == 0 {
            return Applied::Old;
        }
        if self.try_attach(id, &mapping, keys).is_some() {
            return Applied::Done;
        }
        let slab = self.mappings.slab_of(id);
        self.remove_mapping(id, Exit::Forgotten);
        self.totals.changes_full += 1;
        self.lane_is_full(slab)
    }

    /// None, and nothing changed but what stood in the way, if there is no room.
    fn try_attach(&mut self, id: RecordId, mapping: &Mapping, keys: &Keys) -> Option<()> {
        let is_live = mapping.kind == Kind::Live;
        if is_live && self.flows >= self.policy.flows_max {
            return None;
        }
        if self.is_held(mapping) {
            self.evict_holder(id, mapping);
        }
        let seat = mapping.subscriber;
        let home = mapping.home();
        let subscriber = match self.subscribers.find_by(keys.home, &home) {
            Some(slot) => slot,
            None => self.subscribers.create(&home, seat).ok()?,
        };
        let attached =
            self.hold_port(subscriber, mapping).and_then(|()| self.index(id, mapping, keys));
        let record = self.mappings.get_mut(id);
        if attached.is_none() {
            self.dismiss_home(subscriber);
            return None;
        }
        record.flags &= !Mapping::WAITING;
        record.subscriber = subscriber;
        let home = self.subscribers.get_mut(subscriber);
        home.records += 1;
        if is_live {
            home.flows += 1;
            self.flows += 1;
        } else {
            self.quarantined += 1;
        }
        Some(())
    }

    /// May another mapping of this lane have the public endpoint? Without translation only a look-up can tell.
    #[inline]
    fn is_held(&self, mapping: &Mapping) -> bool {
        !self.policy.enabled || {
            let block = self.ports.block_of(mapping.address, mapping.public_port);
            self.ports.is_taken(block, mapping.protocol, mapping.public_port)
        }
    }

    /// The former mapping's end has not come here yet.
    #[cold]
    fn evict_holder(&mut self, id: RecordId, mapping: &Mapping) {
        let slab = self.mappings.slab_of(id);
        if let Some(former) = self.find_holder(slab, mapping.public(), mapping.protocol) {
            self.remove_mapping(former, Exit::Forgotten);
        }
    }

    /// Both indexes, or none.
    fn index(&mut self, id: RecordId, mapping: &Mapping, keys: &Keys) -> Option<()> {
        let Keys { outbound, inbound, .. } = *keys;
        let is_live = mapping.kind == Kind::Live;
        let mut is_indexed = self.inbound_index.insert(inbound, id.0).is_ok();
        if is_indexed && is_live && self.outbound_index.insert(outbound, id.0).is_err() {
            self.inbound_index.remove(inbound, id.0);
            is_indexed = false;
        }
        if !is_indexed {
            self.give_up_port(mapping);
        }
        is_indexed.then_some(())
    }

    /// Takes the mapping's port in its block, which becomes the home's.
    fn hold_port(&mut self, subscriber: u32, mapping: &Mapping) -> Option<()> {
        if !self.policy.enabled {
            return Some(());
        }
        let block = self.ports.block_of(mapping.address, mapping.public_port);
        if let Some(owner) = self.ports.owner(block).filter(|&owner| owner != subscriber) {
            self.evict(owner, block);
        }
        if self.ports.owner(block).is_none() {
            if self.subscribers.is_list_full(subscriber) {
                return None;
            }
            let capacity = self.ports.capacity(block);
            self.ports.claim(block, subscriber);
            self.subscribers.add_block(subscriber, block, capacity);
        }
        self.ports.take_at(block, mapping.protocol, mapping.public_port);
        self.subscribers.get_mut(subscriber).ports_used[mapping.protocol.space()] += 1;
        Some(())
    }

    fn give_up_port(&mut self, mapping: &Mapping) {
        if self.policy.enabled {
            let block = self.ports.block_of(mapping.address, mapping.public_port);
            let subscriber = self.ports.owner(block).expect("the block was claimed");
            let public = mapping.public();
            let seat = Seat { subscriber, block, public };
            self.give_port_back(&seat, mapping.protocol);
        }
    }

    /// The block's lane has given it to another home, and the ends of the former home's mappings have not come here.
    #[cold]
    fn evict(&mut self, former: u32, block: BlockId) {
        let lane = self.ports.lane(block);
        let slab = slab_of(self.subscribers.get(former).shard, lane);
        let mut holders = std::mem::take(&mut self.due);
        for protocol in Protocol::ALL {
            loop {
                self.ports.each_taken(block, protocol, |public| {
                    if holders.len() < WALK_STEP {
                        holders.extend(self.find_holder(slab, public, protocol));
                    }
                });
                if holders.is_empty() {
                    break;
                }
                for holder in holders.drain(..) {
                    self.remove_mapping(holder, Exit::Forgotten);
                }
            }
        }
        self.due = holders;
    }
}
