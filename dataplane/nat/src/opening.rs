//! Hot. The first packet of an inside endpoint: its home, its port and its mapping, step by step
//! for all new flows of a burst.

use weir_flow::{Hash, RecordId, SlabId};
use weir_rules::{FlowPolicy, SourcePool};

use crate::destination::remote_of;
use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::logs::block_event::BlockEventKind;
use crate::logs::session_log::SessionLog;
use crate::nat::Nat;
use crate::packet::{NewFlow, Refusal, Translated};
use crate::ports::port_block::{BlockId, TakenPort};
use crate::ports::port_choice::PortLease;
use crate::replication::lane::{lane_of, slab_of};
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
pub struct Opening {
    inbound_hash: Hash,
    /// The leased port. A static endpoint has no block. Without translation the endpoint is the
    /// inside one, and there is no block either.
    lease: PortLease,
    /// As [`Mapping::address`].
    address: u32,
    slab: SlabId,
    /// As [`Mapping::flags`].
    flags: u16,
    /// Whether the block is known to be in the log.
    is_logged: bool,
}

impl Opening {
    /// The public endpoint of the mapping.
    #[inline(always)]
    pub fn public(&self) -> Endpoint {
        self.lease.public
    }

    /// Makes it the mapping of a static endpoint, which has no block to be logged.
    pub(crate) fn set_static(&mut self, flags: u16) {
        self.flags = flags | Mapping::STATIC;
        self.is_logged = true;
    }

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
        flags: 0,
        is_logged: false,
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
    #[inline(always)]
    pub fn prefetch_block(&mut self, subscriber: &mut LikelySubscriber, protocol: Protocol) {
        if let Some(block) = self.likely_block(subscriber.slot, protocol, SourcePool::COMMON) {
            subscriber.block = block;
            self.ports.prefetch_take(block, protocol);
        }
    }

    /// True if there is room for so many flows more.
    #[inline]
    pub fn has_room(&self, flows: usize) -> bool {
        let flows_max = self.policy.live.flows_max as usize;
        // Quarantined records need slots too.
        self.flows as usize + flows <= flows_max
            && self.mappings.live() + flows <= self.mappings.capacity()
    }

    /// Step 4, the first packet of an inside endpoint, which passed
    /// [`check_opening`](Self::check_opening) and for which there [is room](Self::has_room): leases
    /// its port and prefetches the lines that [`open_mapping`](Self::open_mapping) will write.
    /// `likely` is the result of steps 2 and 3. What is to be opened is written to `opening`.
    ///
    /// False, and nothing changed, unless the packet is of the home that was found likely, which
    /// may begin a flow and has room in the block that was chosen: see
    /// [`prepare_mapping`](Self::prepare_mapping).
    #[inline(always)]
    pub fn prepare_likely(
        &mut self,
        flow: &NewFlow,
        likely: LikelySubscriber,
        now: Tick,
        opening: &mut Opening,
    ) -> bool {
        let LikelySubscriber { slot: subscriber, block } = likely;
        let by_key = self.policy.by_key;
        if self.policy.has_static && self.statics.may_have(flow.key.home().outer) {
            return false;
        }
        let Some(home) = self.subscribers.try_get_mut(subscriber) else { return false };
        let is_ready = home.is_live()
            && home.is(&flow.home(), by_key)
            && home.flows < self.policy.live.allowances.of(home.group).home.flows
            && home.tokens > 0
            && home.refilled == now;
        if !is_ready {
            return false;
        }
        let taken = self.ports.take(block, subscriber, flow.protocol, &mut self.random);
        let Some(TakenPort { public, is_logged }) = taken else { return false };
        home.ports_used[flow.protocol.space()] += 1;
        home.count_prepared();
        opening.flags = home.mapping_flags();
        opening.is_logged = is_logged;
        self.lease_in_block(PortLease { subscriber, block, public }, flow, opening);
        true
    }

    /// Step 4 for any packet that passed [`check_opening`](Self::check_opening).
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    #[inline(never)]
    pub fn prepare_mapping(
        &mut self,
        flow: &NewFlow,
        policy: &FlowPolicy,
        now: Tick,
        opening: &mut Opening,
    ) -> Result<(), Refusal> {
        // RFC 6888 REQ-11: no existing mapping is deleted to make room.
        if !self.has_room(1) {
            return Err(Refusal::TableFull);
        }
        let may_be_static = self.policy.has_static && policy.destination.is_none();
        if may_be_static && self.prepare_static(flow, now, opening)? {
            return Ok(());
        }
        let own = self.address_of_source_pool(flow.key.shard(), policy.source);
        let subscriber = self.admit_home(&flow.home(), own, now)?;
        if let Err(refusal) = self.prepare_for(subscriber, flow, policy.source, now, opening) {
            self.dismiss_home(subscriber);
            return Err(refusal);
        }
        let home = self.subscribers.get_mut(subscriber);
        home.count_prepared();
        opening.flags = home.mapping_flags();
        opening.is_logged = false;
        Ok(())
    }

    /// Prepares the mapping of an inside endpoint that has a static one. False, and nothing
    /// changed, if it has none that is free.
    #[cold]
    #[inline(never)]
    fn prepare_static(
        &mut self,
        flow: &NewFlow,
        now: Tick,
        opening: &mut Opening,
    ) -> Result<bool, Refusal> {
        if !self.statics.may_have(flow.key.home().outer) {
            return Ok(false);
        }
        let fixed = self.static_of_inside(&flow.home(), flow.key.inside(), flow.protocol);
        let Some(public) = fixed else { return Ok(false) };
        let own = self.ports.position_of(public.address);
        let subscriber = self.admit_home(&flow.home(), own, now)?;
        let leased = self
            .check_share(subscriber)
            .and_then(|()| self.check_tokens(subscriber, now))
            .and_then(|()| self.lease_static(subscriber, public, flow, opening));
        if let Err(refusal) = leased {
            self.dismiss_home(subscriber);
            return Err(refusal);
        }
        let home = self.subscribers.get_mut(subscriber);
        home.count_prepared();
        opening.set_static(home.mapping_flags());
        Ok(true)
    }

    /// Leases the public endpoint of a static mapping, in any lane that this worker owns.
    pub(crate) fn lease_static(
        &mut self,
        subscriber: u32,
        public: Endpoint,
        flow: &NewFlow,
        opening: &mut Opening,
    ) -> Result<(), Refusal> {
        let (shard, address) = (flow.key.shard(), self.ports.position_of(public.address));
        let lanes = self.ports.lanes(shard);
        let (Some(address), true) = (address, lanes != 0) else {
            return Err(Refusal::PortsExhausted);
        };
        opening.address = address;
        opening.slab = slab_of(shard, lanes.trailing_zeros());
        self.lease(PortLease { subscriber, block: BlockId::NONE, public }, flow, opening);
        Ok(())
    }

    fn prepare_for(
        &mut self,
        subscriber: u32,
        flow: &NewFlow,
        pool: SourcePool,
        now: Tick,
        opening: &mut Opening,
    ) -> Result<(), Refusal> {
        self.check_share(subscriber)?;
        self.check_tokens(subscriber, now)?;
        if self.policy.enabled {
            let lease = self.take_port(subscriber, flow.protocol, pool)?;
            self.lease_in_block(lease, flow, opening);
            return Ok(());
        }
        // Without blocks any lane that this worker owns will do.
        let lanes = self.ports.lanes(flow.key.shard());
        let lane = (lanes != 0).then(|| lanes.trailing_zeros());
        let lane = lane.ok_or(Refusal::PortsExhausted)?;
        opening.address = self.claim_address(&flow.home(), flow.key.inside().address)?;
        opening.slab = slab_of(flow.key.shard(), lane);
        let lease = PortLease { subscriber, block: BlockId::NONE, public: flow.key.inside() };
        self.lease(lease, flow, opening);
        Ok(())
    }

    #[inline(always)]
    fn lease_in_block(&mut self, lease: PortLease, flow: &NewFlow, opening: &mut Opening) {
        let (address, lane) = self.ports.address_and_lane(lease.block);
        opening.address = address;
        // A lane of a shard has its own records.
        opening.slab = slab_of(flow.key.shard(), lane);
        self.lease(lease, flow, opening);
    }

    /// Counts a flow whose endpoint is leased, and prefetches the lines that
    /// [`open_mapping`](Self::open_mapping) will write.
    #[inline(always)]
    fn lease(&mut self, lease: PortLease, flow: &NewFlow, opening: &mut Opening) {
        self.flows += 1;
        opening.inbound_hash = self.hash_inbound(flow.key.inbound_word(lease.public));
        opening.lease = lease;
        self.inbound_index.prefetch(opening.inbound_hash);
        self.mappings.prefetch_next(opening.slab);
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

    /// Step 6: makes a prepared mapping and returns the translation of its first packet. `hash` is
    /// [`outbound_hash`](Self::outbound_hash) of the packet, `policy` what a rule gives its flow.
    ///
    /// # Errors
    /// A [`Refusal`]; what was prepared is then undone.
    #[inline(always)]
    pub fn open_mapping(
        &mut self,
        hash: Hash,
        flow: &NewFlow,
        opening: &Opening,
        policy: &FlowPolicy,
        now: Tick,
    ) -> Result<Translated<Endpoint>, Refusal> {
        if !self.policy.enabled {
            self.check_inside_is_free(flow, now)
                .inspect_err(|_| self.undo(opening, flow.protocol))?;
        }
        let hash = match policy.destination {
            None => hash,
            Some(_) => self.redirected_hash(hash, flow.key.remote()),
        };
        let Some(id) = self.write_mapping(hash, flow, opening, policy, now) else {
            self.undo(opening, flow.protocol);
            return Err(Refusal::TableFull);
        };
        self.totals.flow_creates += 1;
        if !self.policy.is_plain {
            self.announce(id, opening, now);
        } else if !opening.is_logged {
            self.note_block_use(opening);
        }
        let remote =
            policy.destination.map(|_| remote_of(policy, flow.key.remote(), flow.protocol));
        Ok(Translated { to: opening.lease.public, class: policy.class, remote })
    }

    /// Marks a mapping that was opened for replicas, and logs it and its block, as configured.
    #[inline]
    fn announce(&mut self, id: RecordId, opening: &Opening, now: Tick) {
        if self.lanes.is_any_marked {
            self.mark_begun(opening.slab, id);
        }
        if self.policy.session_log != SessionLog::None {
            self.log_mapping(true, id);
        }
        if !self.policy.enabled {
            self.note_address_use(opening, now);
        } else if !opening.is_logged {
            self.note_block_use(opening);
        }
    }

    /// Records that a mapping without translation stands, and logs its address if it is the first
    /// in its lane.
    #[cold]
    #[inline(never)]
    fn note_address_use(&mut self, opening: &Opening, now: Tick) {
        let (_, lane) = lane_of(opening.slab);
        self.owners.note_use(opening.address, lane, now, &mut self.events);
    }

    /// Records that a mapping stands in a block, and logs the block if it is the first.
    #[cold]
    #[inline(never)]
    fn note_block_use(&mut self, opening: &Opening) {
        let PortLease { subscriber, block, .. } = opening.lease;
        if self.ports.note_use(block) {
            self.push_block_event(BlockEventKind::Allocated, subscriber, block);
        }
    }

    /// Takes back what was prepared for a mapping that was not opened.
    #[cold]
    fn undo(&mut self, opening: &Opening, protocol: Protocol) {
        self.flows -= 1;
        let home = self.subscribers.get_mut(opening.lease.subscriber);
        home.records -= 1;
        home.flows -= 1;
        home.tokens = home.tokens.saturating_add(1);
        if opening.lease.block != BlockId::NONE {
            self.give_port_back(&opening.lease, protocol);
        } else if !self.policy.enabled {
            self.release_address(opening.address);
        }
        self.dismiss_home(opening.lease.subscriber);
    }

    /// Fills a record and enters it into both indexes; None, and nothing changed, if one of the
    /// three has no room.
    #[inline(always)]
    fn write_mapping(
        &mut self,
        hash: Hash,
        flow: &NewFlow,
        opening: &Opening,
        policy: &FlowPolicy,
        now: Tick,
    ) -> Option<RecordId> {
        let (id, mapping) = self.mappings.alloc_mut(opening.slab)?;
        fill(mapping, flow, opening, policy, now);
        if flow.gre_key.is_some() {
            self.policy.has_keyed = true;
        }
        if self.outbound_index.insert(hash, id.0).is_err() {
            self.mappings.free(id);
            return None;
        }
        if self.inbound_index.insert(opening.inbound_hash, id.0).is_err() {
            self.outbound_index.remove(hash, id.0);
            self.mappings.free(id);
            return None;
        }
        Some(id)
    }

    /// Without translation an inside endpoint can have one mapping only. The home owns its address
    /// already.
    #[inline(never)]
    fn check_inside_is_free(&mut self, flow: &NewFlow, now: Tick) -> Result<(), Refusal> {
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

/// Fills everything but the version.
#[inline(always)]
fn fill(mapping: &mut Mapping, flow: &NewFlow, opening: &Opening, policy: &FlowPolicy, now: Tick) {
    let (home, inside, asked) = (flow.key.home(), flow.key.inside(), flow.key.remote());
    let (remote, class) = (remote_of(policy, asked, flow.protocol), policy.class);
    let PortLease { subscriber, public, .. } = opening.lease;
    mapping.public_address = public.address;
    mapping.outer = home.outer;
    mapping.inside_address = inside.address;
    mapping.inside_port = inside.port;
    mapping.shard = home.shard;
    mapping.protocol = flow.protocol;
    mapping.kind = MappingKind::Live;
    mapping.public_port = public.port;
    mapping.first =
        Remote::opened(remote, flow.protocol, SentBy::Inside, flow.tcp_flags, class, now);
    if policy.destination.is_some() {
        mapping.first.state = mapping.first.state.redirected();
        mapping.set_asked(asked);
    }
    mapping.address = opening.address;
    mapping.subscriber = subscriber;
    mapping.created = now;
    mapping.flags = opening.flags;
    if let Some(key) = flow.gre_key {
        mapping.gre_key = key;
        mapping.flags |= Mapping::KEYED;
    }
}
