//! Hot. The first packet of an inside endpoint: its home, its port and its mapping, step by step
//! for all new flows of a burst.

use weir_flow::{Hash, RecordId, SlabId};

use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::logs::block_event::BlockEventKind;
use crate::logs::session_log::SessionLog;
use crate::nat::Nat;
use crate::packet::{NewFlow, Refusal};
use crate::ports::port_block::BlockId;
use crate::ports::port_choice::PortLease;
use crate::replication::lane::slab_of;
use crate::sessions::mapping::{Mapping, MappingKind, Remote};
use crate::sessions::session_state::SentBy;

/// The subscriber that a packet probably belongs to, and the block for its port, if there are such.
/// Valid until anything is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikelySubscriber {
    pub(crate) slot: u32,
    block: BlockId,
}

impl LikelySubscriber {
    pub const NONE: Self = Self { slot: NO_SUBSCRIBER, block: BlockId::NONE };
}

const NO_SUBSCRIBER: u32 = u32::MAX;

/// A mapping that is about to be made: its port is leased and counted. It must be opened, once.
#[derive(Clone, Copy, Debug)]
#[must_use = "what was prepared must be opened, or its port is lost"]
pub struct Opening {
    inbound_hash: Hash,
    /// The leased port. Without translation the endpoint is the inside one, and there is no block.
    lease: PortLease,
    /// As [`Mapping::address`].
    address: u32,
    slab: SlabId,
}

impl Opening {
    /// No mapping: what stands where none is prepared yet.
    pub const NONE: Self = Self {
        inbound_hash: Hash(0),
        lease: PortLease {
            subscriber: NO_SUBSCRIBER,
            block: BlockId::NONE,
            public: Endpoint::new(0, 0),
        },
        address: 0,
        slab: SlabId(0),
    };
}

impl Nat {
    /// Step 1 of the new flows of a burst: prefetches what is known of a home and returns its hash.
    /// Each step is for all new flows before the next, so that their misses overlap.
    #[inline]
    pub fn prefetch_home(&self, home: &Home) -> Hash {
        let hash = self.subscribers.hash(home);
        self.subscribers.prefetch_home(hash);
        hash
    }

    /// Step 2: prefetches the subscriber that the home's hash leads to. It may be another home's.
    #[inline]
    pub fn prefetch_subscriber(&self, home: Hash) -> LikelySubscriber {
        let slot = self.subscribers.candidate(home).unwrap_or(NO_SUBSCRIBER);
        LikelySubscriber { slot, ..LikelySubscriber::NONE }
    }

    /// Step 3: chooses the block that the port will probably be of, and prefetches it.
    #[inline]
    pub fn prefetch_block(&mut self, subscriber: &mut LikelySubscriber, protocol: Protocol) {
        if subscriber.slot == NO_SUBSCRIBER {
            return;
        }
        if let Some(block) = self.likely_block(subscriber.slot, protocol) {
            subscriber.block = block;
            self.ports.prefetch_take(block, protocol);
        }
    }

    /// Step 4, the first packet of an inside endpoint: leases its port and prefetches the lines
    /// that [`open_mapping`](Self::open_mapping) will write. `likely` is the result of steps 2 and
    /// 3.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    #[inline]
    pub fn prepare_mapping(
        &mut self,
        flow: &NewFlow,
        likely: LikelySubscriber,
        now: Tick,
    ) -> Result<Opening, Refusal> {
        self.check_opening(flow.protocol, flow.tcp_flags)?;
        // RFC 6888 REQ-11: no existing mapping is deleted to make room. Quarantined records need
        // slots too.
        if self.flows >= self.policy.flows_max || self.mappings.live() >= self.mappings.capacity() {
            return Err(Refusal::TableFull);
        }
        match self.prepare_likely(likely, flow, now) {
            Some(opening) => Ok(opening),
            None => self.prepare_any(flow, now),
        }
    }

    /// Step 4 for a packet of the home that was found likely, which may begin a flow and has room
    /// in the block that was chosen. None, and nothing changed, in any other case.
    #[inline(always)]
    fn prepare_likely(
        &mut self,
        likely: LikelySubscriber,
        flow: &NewFlow,
        now: Tick,
    ) -> Option<Opening> {
        let LikelySubscriber { slot: subscriber, block } = likely;
        if block == BlockId::NONE {
            return None;
        }
        let by_key = self.policy.by_key;
        let home = self.subscribers.get_mut(subscriber);
        let is_ready = home.is_live()
            && home.is(&flow.home(), by_key)
            && home.flows < self.policy.flows_per_subscriber
            && home.tokens > 0
            && home.refilled == now;
        if !is_ready {
            return None;
        }
        let public = self.ports.take(block, subscriber, flow.protocol, &mut self.random)?;
        home.ports_used[flow.protocol.space()] += 1;
        home.count_prepared();
        let lease = PortLease { subscriber, block, public };
        Some(self.opening_in_block(lease, flow))
    }

    /// Step 4 for any packet.
    #[inline(never)]
    fn prepare_any(&mut self, flow: &NewFlow, now: Tick) -> Result<Opening, Refusal> {
        let subscriber = self.admit_home(&flow.home(), now)?;
        let prepared = self.prepare_for(subscriber, flow, now);
        match prepared {
            Ok(_) => self.subscribers.get_mut(subscriber).count_prepared(),
            Err(_) => self.dismiss_home(subscriber),
        }
        prepared
    }

    fn prepare_for(
        &mut self,
        subscriber: u32,
        flow: &NewFlow,
        now: Tick,
    ) -> Result<Opening, Refusal> {
        self.check_share(subscriber)?;
        self.check_tokens(subscriber, now)?;
        if self.policy.enabled {
            let lease = self.take_port(subscriber, flow.protocol)?;
            return Ok(self.opening_in_block(lease, flow));
        }
        // Without blocks any lane that this worker owns will do.
        let lanes = self.ports.lanes(flow.key.shard());
        let lane = (lanes != 0).then(|| lanes.trailing_zeros());
        let lane = lane.ok_or(Refusal::PortsExhausted)?;
        let address = self.claim_address(&flow.home(), flow.key.inside().address)?;
        let lease = PortLease { subscriber, block: BlockId::NONE, public: flow.key.inside() };
        Ok(self.opening(lease, address, slab_of(flow.key.shard(), lane), flow.protocol))
    }

    #[inline(always)]
    fn opening_in_block(&mut self, lease: PortLease, flow: &NewFlow) -> Opening {
        let (address, lane) = self.ports.address_and_lane(lease.block);
        // A lane of a shard has its own records.
        self.opening(lease, address, slab_of(flow.key.shard(), lane), flow.protocol)
    }

    /// Counts a flow whose endpoint is leased, and prefetches the lines that
    /// [`open_mapping`](Self::open_mapping) will write.
    #[inline(always)]
    fn opening(
        &mut self,
        lease: PortLease,
        address: u32,
        slab: SlabId,
        protocol: Protocol,
    ) -> Opening {
        self.flows += 1;
        let inbound_hash = self.inbound_hash(lease.public, protocol);
        self.inbound_index.prefetch(inbound_hash);
        self.mappings.prefetch_next(slab);
        Opening { inbound_hash, lease, address, slab }
    }

    /// True if step 5 is worth its instructions: in a table that is half empty few buckets are
    /// full.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        2 * self.mappings.live() > self.mappings.capacity()
    }

    /// Step 5: prefetches the lines that are also read and written where a bucket of an index is
    /// full. `hash` as in [`open_mapping`](Self::open_mapping).
    #[inline]
    pub fn prefetch_opening(&self, hash: Hash, opening: &Opening) {
        self.outbound_index.prefetch_insert(hash);
        self.inbound_index.prefetch_insert(opening.inbound_hash);
    }

    /// Step 6: makes a prepared mapping and returns its public endpoint. `hash` is
    /// [`outbound_hash`](Self::outbound_hash) of the packet.
    ///
    /// # Errors
    /// A [`Refusal`]; what was prepared is then undone.
    #[inline]
    pub fn open_mapping(
        &mut self,
        hash: Hash,
        flow: &NewFlow,
        opening: &Opening,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        let is_free = match self.policy.is_plain {
            true => Ok(()),
            false => self.check_inside_is_free(flow, now),
        };
        let written = is_free
            .and_then(|()| self.write_mapping(hash, flow, opening, now).ok_or(Refusal::TableFull));
        let id = match written {
            Ok(id) => id,
            Err(refusal) => {
                self.undo(opening, flow.protocol);
                return Err(refusal);
            }
        };
        self.totals.flow_creates += 1;
        let PortLease { subscriber, block, public } = opening.lease;
        if self.lanes.is_any_marked {
            self.mark_begun(opening.slab, id);
        }
        if self.policy.session_log != SessionLog::None {
            self.log_mapping(true, id);
        }
        if block == BlockId::NONE {
            self.note_address_use(opening.address, now);
        } else if self.ports.note_use(block) {
            self.push_block_event(BlockEventKind::Allocated, subscriber, block);
        }
        Ok(public)
    }

    /// Takes back what was prepared for a mapping that was not opened.
    #[cold]
    fn undo(&mut self, opening: &Opening, protocol: Protocol) {
        self.flows -= 1;
        let home = self.subscribers.get_mut(opening.lease.subscriber);
        home.records -= 1;
        home.flows -= 1;
        home.tokens = home.tokens.saturating_add(1);
        if self.policy.enabled {
            self.give_port_back(&opening.lease, protocol);
        } else {
            self.release_address(opening.address);
        }
        self.dismiss_home(opening.lease.subscriber);
    }

    /// Fills a record and enters it into both indexes; None, and nothing changed, if one of the
    /// three has no room.
    #[inline]
    fn write_mapping(
        &mut self,
        hash: Hash,
        flow: &NewFlow,
        opening: &Opening,
        now: Tick,
    ) -> Option<RecordId> {
        let id = self.mappings.alloc(opening.slab)?;
        if self.outbound_index.insert(hash, id.0).is_err() {
            self.mappings.free(id);
            return None;
        }
        if self.inbound_index.insert(opening.inbound_hash, id.0).is_err() {
            self.outbound_index.remove(hash, id.0);
            self.mappings.free(id);
            return None;
        }
        let mapping = self.mappings.get_mut(id);
        fill(mapping, flow, opening.lease.public, now);
        self.policy.has_keyed |= flow.gre_key.is_some();
        mapping.subscriber = opening.lease.subscriber;
        mapping.address = opening.address;
        if self.subscribers.get(opening.lease.subscriber).is_answered() {
            mapping.flags |= Mapping::ANSWERED;
        }
        Some(id)
    }

    /// Without translation an inside endpoint can have one mapping only. The home owns its address
    /// already.
    fn check_inside_is_free(&mut self, flow: &NewFlow, now: Tick) -> Result<(), Refusal> {
        if self.policy.enabled {
            return Ok(());
        }
        let hash = self.inbound_hash(flow.key.inside(), flow.protocol);
        let Some(holder) = self.find_inbound(hash, flow.key.inside(), flow.protocol) else {
            return Ok(());
        };
        if !self.is_mapping_over(holder, now) {
            return Err(Refusal::AddressConflict);
        }
        self.totals.flow_expired += 1;
        self.end_mapping(holder, now);
        Ok(())
    }
}

/// Fills everything but the version, the subscriber and the position of the address.
#[inline]
fn fill(mapping: &mut Mapping, flow: &NewFlow, public: Endpoint, now: Tick) {
    let (home, inside, remote) = (flow.key.home(), flow.key.inside(), flow.key.remote());
    mapping.outer = home.outer;
    mapping.inside_address = inside.address;
    mapping.inside_port = inside.port;
    mapping.shard = home.shard;
    mapping.public_address = public.address;
    mapping.public_port = public.port;
    mapping.protocol = flow.protocol;
    mapping.kind = MappingKind::Live;
    mapping.first = Remote::opened(remote, flow.protocol, SentBy::Inside, flow.tcp_flags, now);
    mapping.created = now;
    if let Some(key) = flow.gre_key {
        mapping.gre_key = key;
        mapping.flags = Mapping::KEYED;
    }
}
