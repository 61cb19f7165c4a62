//! Hot. Copies of mappings that are stored but not yet found: what follows from a record is made a few at a time, with
//! the cache misses of many overlapped.
//!
//! ```text
//!   apply: record in its slot, WAITING  -->  backlog  -->  attach: home, block, port, both indexes
//! ```
//!
//! A look-up that misses drains the backlog first, so nobody notices. A record that goes while it waits leaves its id
//! behind, which is passed over: the flag decides.

use weir_flow::{Hash, RecordId};

use crate::change::Applied;
use crate::endpoint::{Home, Protocol};
use crate::lane::slab_of;
use crate::mapping::{Kind, Mapping};
use crate::mirror::Exit;
use crate::nat::{Nat, WALK_STEP};
use crate::port_block::BlockId;
use crate::port_choice::Seat;

/// Copies that can wait, a power of two: two milliseconds of changes at the rate that a core makes flows would be 5,000.
pub(crate) const BACKLOG_MAX: usize = 65_536;

/// Copies attached together.
const STEP: usize = 32;

/// Where a copy will be found, and the block of its port.
#[derive(Clone, Copy, Debug)]
struct Keys {
    outbound: Hash,
    inbound: Hash,
    block: BlockId,
}

impl Keys {
    const NONE: Self = Self { outbound: Hash(0), inbound: Hash(0), block: BlockId::NONE };
}

/// The ring of ids.
#[derive(Debug)]
pub(crate) struct Backlog {
    ring: Box<[RecordId]>,
    /// Ids taken out and put in so far.
    first: usize,
    next: usize,
    /// A look-up that missed has drained it: others of the same burst may have missed before.
    has_missed: bool,
}

impl Backlog {
    /// `capacity` ids, a power of two: 0 on a worker without replicas.
    pub(crate) fn new(capacity: usize) -> Self {
        let ring = vec![RecordId::NONE; capacity].into();
        Self { ring, first: 0, next: 0, has_missed: false }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.ring.len()
    }

    /// There must be room.
    #[inline]
    pub(crate) fn push(&mut self, id: RecordId) {
        let place = self.next & (self.ring.len() - 1);
        self.ring[place] = id;
        self.next += 1;
    }

    /// The id that is the `number`-th from the oldest on.
    #[inline]
    fn get(&self, number: usize) -> RecordId {
        self.ring[(self.first + number) & (self.ring.len() - 1)]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.next - self.first
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
        self.backlog.ring.len() - self.backlog.len()
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
                self.mappings.prefetch(self.backlog.get(place));
            }
            for (place, keys) in keys[..step].iter_mut().enumerate() {
                *keys = self.prefetch_attach(self.backlog.get(place));
            }
            for keys in &keys[..step] {
                self.prefetch_owner(keys.block);
            }
            for keys in &keys[..step] {
                let id = self.backlog.get(0);
                self.backlog.first += 1;
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
        if mapping.flags & Mapping::WAITING == 0 {
            return Keys::NONE;
        }
        let keys = self.keys_of(mapping);
        self.prefetch_outbound(keys.outbound);
        self.prefetch_inbound(keys.inbound);
        if keys.block != BlockId::NONE {
            self.ports.prefetch(keys.block, mapping.protocol, mapping.public_port);
        }
        keys
    }

    /// Asks for the home that has the block.
    #[inline]
    fn prefetch_owner(&self, block: BlockId) {
        if block != BlockId::NONE {
            if let Some(owner) = self.ports.owner(block) {
                self.subscribers.prefetch(owner);
            }
        }
    }

    #[inline]
    fn keys_of(&self, mapping: &Mapping) -> Keys {
        let (outbound, inbound) = self.hashes_of(mapping);
        let block = match self.policy.enabled {
            true => self.ports.block_of(mapping.address, mapping.public_port),
            false => BlockId::NONE,
        };
        Keys { outbound, inbound, block }
    }

    /// Makes a waiting copy a mapping like any other. If there is no room for what belongs to it, it is forgotten.
    pub(crate) fn attach(&mut self, id: RecordId) -> Applied {
        let keys = self.keys_of(self.mappings.get(id));
        self.attach_by(id, &keys)
    }

    #[inline]
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
    #[inline]
    fn try_attach(&mut self, id: RecordId, mapping: &Mapping, keys: &Keys) -> Option<()> {
        let is_live = mapping.kind == Kind::Live;
        if is_live && self.flows >= self.policy.flows_max {
            return None;
        }
        let subscriber = match self.policy.enabled {
            true => self.hold_port(id, mapping, keys.block)?,
            false => self.hold_address(id, mapping)?,
        };
        if !self.index(id, is_live, keys) {
            self.give_up_port(mapping);
            self.dismiss_home(subscriber);
            return None;
        }
        let record = self.mappings.get_mut(id);
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

    /// Takes the mapping's port in its block, which becomes the home's; returns the home's slot.
    #[inline]
    fn hold_port(&mut self, id: RecordId, mapping: &Mapping, block: BlockId) -> Option<u32> {
        let place = self.ports.place_of(block, mapping.protocol, mapping.public_port);
        if self.ports.is_taken(place) {
            self.evict_holder(id, mapping);
        }
        let home = mapping.home();
        let subscriber = match self.ports.owner(block) {
            Some(owner) if self.subscribers.is_of(owner, &home) => owner,
            former => self.claim(mapping, &home, block, former)?,
        };
        self.ports.take_at(place, block, mapping.shard, mapping.protocol);
        self.subscribers.get_mut(subscriber).ports_used[mapping.protocol.space()] += 1;
        Some(subscriber)
    }

    /// Without translation nobody else may have the inside endpoint.
    #[cold]
    fn hold_address(&mut self, id: RecordId, mapping: &Mapping) -> Option<u32> {
        self.evict_holder(id, mapping);
        self.find_or_seat(&mapping.home(), mapping.subscriber)
    }

    fn find_or_seat(&mut self, home: &Home, seat: u32) -> Option<u32> {
        match self.subscribers.find(home) {
            Some(slot) => Some(slot),
            None => self.subscribers.create(home, seat).ok(),
        }
    }

    /// The block is not the home's yet: it becomes so.
    #[inline(never)]
    fn claim(
        &mut self,
        mapping: &Mapping,
        home: &Home,
        block: BlockId,
        former: Option<u32>,
    ) -> Option<u32> {
        let subscriber = self.find_or_seat(home, mapping.subscriber)?;
        if let Some(former) = former {
            self.evict(former, block);
        }
        if self.subscribers.is_list_full(subscriber) {
            self.dismiss_home(subscriber);
            return None;
        }
        let capacity = self.ports.capacity(block);
        self.ports.claim(block, subscriber);
        self.subscribers.add_block(subscriber, block, capacity);
        Some(subscriber)
    }

    /// Both indexes, or none.
    #[inline]
    fn index(&mut self, id: RecordId, is_live: bool, keys: &Keys) -> bool {
        if self.inbound_index.insert(keys.inbound, id.0).is_err() {
            return false;
        }
        if is_live && self.outbound_index.insert(keys.outbound, id.0).is_err() {
            self.inbound_index.remove(keys.inbound, id.0);
            return false;
        }
        true
    }

    /// The former mapping's end has not come here yet.
    #[cold]
    fn evict_holder(&mut self, id: RecordId, mapping: &Mapping) {
        let slab = self.mappings.slab_of(id);
        if let Some(former) = self.find_holder(slab, mapping.public(), mapping.protocol) {
            self.remove_mapping(former, Exit::Forgotten);
        }
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
