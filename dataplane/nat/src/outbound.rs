//! Hot. A packet from a home: find its mapping, note the packet, or make the mapping.

use weir_flow::{Hash, RecordId, SlabId};

use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::logs::block_event::BlockEventKind;
use crate::logs::session_log::SessionLog;
use crate::nat::{Nat, Policy};
use crate::packet::{Outbound, Refusal};
use crate::ports::port_block::BlockId;
use crate::ports::port_choice::PortLease;
use crate::replication::journal::MarkKind;
use crate::replication::lane::slab_of;
use crate::sessions::mapping::{Mapping, MappingKind, Remote};
use crate::sessions::session_state::{SentBy, SessionState};
use crate::sessions::tcp_state;
use crate::subscribers::subscriber::Subscriber;

/// The subscriber that a packet probably belongs to, and the block for its port. Valid until
/// anything is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikelySubscriber {
    pub(crate) slot: u32,
    block: Option<BlockId>,
}

/// A mapping that is about to be made: its port is leased and counted. It must be opened, once.
#[derive(Debug)]
#[must_use = "what was prepared must be opened, or its port is lost"]
pub struct Opening {
    inbound_hash: Hash,
    /// The leased port. Without translation the endpoint is the inside one, and there is no block.
    lease: PortLease,
    /// As [`Mapping::address`].
    address: u32,
    slab: SlabId,
}

impl Nat {
    /// Step 4 of a burst, the fast path: `candidate`, the record of step 2 or 3, is this packet's
    /// mapping, and the packet belongs to the mapping's first session. Otherwise returns None and
    /// changes nothing: call [`outbound_known`](Self::outbound_known).
    #[inline(always)]
    pub fn outbound_established(
        &mut self,
        candidate: RecordId,
        packet: &Outbound,
        now: Tick,
    ) -> Option<Endpoint> {
        let mapping = self.mappings.get_mut(candidate);
        let is_it = mapping.kind == MappingKind::Live
            && mapping.is_inside(&packet.home, packet.inside, packet.protocol, self.policy.by_key);
        if is_it { mapping.outbound_first(packet, &self.policy, now) } else { None }
    }

    /// Translates a packet from a home that has its mapping, whatever its session: returns the
    /// public endpoint. `Ok(None)`: there is no mapping yet, see
    /// [`prepare_mapping`](Self::prepare_mapping).
    ///
    /// `hash` is [`outbound_hash`](Self::outbound_hash) of the packet's home, inside endpoint and
    /// protocol.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    pub fn outbound_known(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        now: Tick,
    ) -> Result<Option<Endpoint>, Refusal> {
        let Some(id) = self.find_outbound_of(hash, packet) else { return Ok(None) };
        // RFC 4787 REQ-1, RFC 5382 REQ-1: "A NAT MUST have an "Endpoint-Independent Mapping"
        // behavior." The remote is no part of what was looked up.
        self.rely_on(id);
        let mapping = self.mappings.get_mut(id);
        if let Some(public) = mapping.outbound_first(packet, &self.policy, now) {
            return Ok(Some(public));
        }
        self.policy.has_keyed |= packet.home.gre_key.is_some();
        let mut mark = mapping.note_gre_key(packet.home.gre_key).then_some(MarkKind::Changed);
        let public = mapping.public();
        let is_held = self.is_held_first(id, packet.remote, now);
        if is_held && note_outbound(&mut self.mappings.get_mut(id).first, packet, now) {
            mark = Some(MarkKind::segment(SentBy::Inside, packet.tcp_flags));
        }
        if let Some(mark) = mark {
            self.note_mapping(mark, id);
        }
        if !is_held {
            self.outbound_further(id, packet, now)?;
        }
        Ok(Some(public))
    }

    /// Translates a packet from a home, on its own instead of in a burst: finds or makes its
    /// mapping and session and returns the public endpoint.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    pub fn outbound(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        if let Some(public) = self.outbound_known(hash, packet, now)? {
            return Ok(public);
        }
        let opening = self.prepare_mapping(packet, None, now)?;
        self.open_mapping(hash, packet, &opening, now)
    }

    /// Processes a packet to a remote that is not that of the first session, or of one that has run
    /// out.
    fn outbound_further(
        &mut self,
        id: RecordId,
        packet: &Outbound,
        now: Tick,
    ) -> Result<(), Refusal> {
        if let Some(session) = self.live_session(id, packet.remote, now) {
            if note_outbound(&mut self.sessions.get_mut(session).remote, packet, now) {
                self.note_session(MarkKind::segment(SentBy::Inside, packet.tcp_flags), session);
            }
            return Ok(());
        }
        self.check_opening(packet.protocol, packet.tcp_flags)?;
        let remote =
            Remote::opened(packet.remote, packet.protocol, SentBy::Inside, packet.tcp_flags, now);
        self.open_session(id, remote, now)
    }

    /// Checks whether this packet may open a flow. "TCP not SYN" keeps segments of forgotten
    /// connections, and the scans that look like them, out.
    #[inline]
    pub fn check_opening(&self, protocol: Protocol, tcp_flags: u8) -> Result<(), Refusal> {
        if protocol == Protocol::Tcp && !tcp_state::is_opening(tcp_flags) {
            return Err(Refusal::TcpNotSyn);
        }
        Ok(())
    }

    /// Checks whether there is room for one more further session of this subscriber.
    pub(crate) fn check_room(&self, subscriber: u32, opener: SentBy) -> Result<(), Refusal> {
        if self.flows >= self.policy.flows_max {
            return Err(Refusal::TableFull);
        }
        self.check_share(subscriber)?;
        let most = match opener {
            SentBy::Inside => self.policy.sessions_per_subscriber,
            // Sessions that remotes open leave the home its half.
            SentBy::Remote => self.policy.sessions_per_subscriber / 2,
        };
        if self.subscribers.get(subscriber).sessions >= most {
            return Err(Refusal::SessionsPerSubscriber);
        }
        Ok(())
    }

    /// RFC 6888 REQ-5: "A CGN SHOULD support limiting the amount of state memory allocated per
    /// mapping and per subscriber."
    #[inline]
    fn check_share(&self, subscriber: u32) -> Result<(), Refusal> {
        if self.subscribers.get(subscriber).flows >= self.policy.flows_per_subscriber {
            return Err(Refusal::FlowsPerSubscriber);
        }
        Ok(())
    }

    /// Checks whether this subscriber may begin a flow. What it begins takes one of its tokens.
    #[inline]
    pub(crate) fn check_tokens(&mut self, subscriber: u32, now: Tick) -> Result<(), Refusal> {
        let home = self.subscribers.get(subscriber);
        match home.tokens > 0 && home.refilled == now {
            true => Ok(()),
            false => self.refill_tokens(subscriber, now),
        }
    }

    /// Called for the first flow of a home in a second, and for one more than it has tokens for.
    #[inline(never)]
    fn refill_tokens(&mut self, subscriber: u32, now: Tick) -> Result<(), Refusal> {
        if self.subscribers.get(subscriber).is_displaced() {
            self.admit_displaced(subscriber, now)?;
        }
        let tokens = self.tokens_at(self.subscribers.get(subscriber), now);
        let home = self.subscribers.get_mut(subscriber);
        home.tokens = tokens;
        home.refilled = now;
        if home.tokens == 0 { Err(Refusal::NewFlows) } else { Ok(()) }
    }

    /// Returns the tokens of a home, filled up for this moment.
    #[inline]
    pub(crate) fn tokens_at(&self, home: &Subscriber, now: Tick) -> u16 {
        let (per_sec, burst) = (self.policy.new_flows_per_sec, self.policy.new_flows_burst);
        let earned = per_sec.saturating_mul(now.since(home.refilled));
        let tokens = u32::from(home.tokens).saturating_add(earned).min(burst.into());
        if per_sec == u32::MAX { burst } else { tokens as u16 }
    }

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
    pub fn prefetch_subscriber(&self, home: Hash) -> Option<LikelySubscriber> {
        self.subscribers.candidate(home).map(|slot| LikelySubscriber { slot, block: None })
    }

    /// Step 3: chooses the block that the port will probably be of, and prefetches it.
    #[inline]
    pub fn prefetch_block(&mut self, subscriber: &mut LikelySubscriber, protocol: Protocol) {
        subscriber.block = self.likely_block(subscriber.slot, protocol);
        if let Some(block) = subscriber.block {
            self.ports.prefetch_take(block, protocol);
        }
    }

    /// Step 4, the first packet of an inside endpoint: leases its port and prefetches the lines
    /// that [`open_mapping`](Self::open_mapping) will write. `candidate` is the subscriber of step
    /// 2, if there was one.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    #[inline]
    pub fn prepare_mapping(
        &mut self,
        packet: &Outbound,
        candidate: Option<LikelySubscriber>,
        now: Tick,
    ) -> Result<Opening, Refusal> {
        self.check_opening(packet.protocol, packet.tcp_flags)?;
        // RFC 6888 REQ-11: no existing mapping is deleted to make room. Quarantined records need
        // slots too.
        if self.flows >= self.policy.flows_max || self.mappings.live() >= self.mappings.capacity() {
            return Err(Refusal::TableFull);
        }
        let (subscriber, block) = match candidate {
            Some(likely) if self.subscribers.is_of(likely.slot, &packet.home) => {
                (likely.slot, likely.block)
            }
            // Pass a copy: a reference would force `packet` out of registers.
            _ => (self.admit_home(&{ packet.home }, now)?, None),
        };
        let prepared = self.prepare_for(subscriber, block, packet, now);
        if prepared.is_err() {
            self.dismiss_home(subscriber);
        }
        prepared
    }

    #[inline]
    fn prepare_for(
        &mut self,
        subscriber: u32,
        block: Option<BlockId>,
        packet: &Outbound,
        now: Tick,
    ) -> Result<Opening, Refusal> {
        self.check_share(subscriber)?;
        self.check_tokens(subscriber, now)?;
        let (lease, address, lane) = if self.policy.enabled {
            let lease = self.take_port(subscriber, block, packet.protocol)?;
            (lease, self.ports.address_of(lease.block), self.ports.lane(lease.block))
        } else {
            let lanes = self.ports.lanes(packet.home.shard);
            let lease = PortLease { subscriber, block: BlockId::NONE, public: packet.inside };
            // Without blocks any lane that this worker owns will do.
            let lane = (lanes != 0).then(|| lanes.trailing_zeros());
            let lane = lane.ok_or(Refusal::PortsExhausted)?;
            (lease, self.claim_address(&{ packet.home }, packet.inside.address)?, lane)
        };
        let home = self.subscribers.get_mut(subscriber);
        home.records += 1;
        home.flows += 1;
        home.tokens -= 1;
        self.flows += 1;
        let inbound_hash = self.inbound_hash(lease.public, packet.protocol);
        self.inbound_index.prefetch(inbound_hash);
        // A lane of a shard has its own records.
        let slab = slab_of(packet.home.shard, lane);
        self.mappings.prefetch_next(slab);
        Ok(Opening { inbound_hash, lease, address, slab })
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
        packet: &Outbound,
        opening: &Opening,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        let is_free = match self.policy.is_plain {
            true => Ok(()),
            false => self.check_inside_is_free(&{ *packet }, now),
        };
        let written = is_free.and_then(|()| {
            self.write_mapping(hash, packet, opening, now).ok_or(Refusal::TableFull)
        });
        let id = match written {
            Ok(id) => id,
            Err(refusal) => {
                self.undo(opening, packet.protocol);
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

    /// Step 6 as a call.
    ///
    /// # Errors
    /// As [`open_mapping`](Self::open_mapping).
    #[inline(never)]
    pub fn open_prepared(
        &mut self,
        hash: Hash,
        packet: &Outbound,
        opening: &Opening,
        now: Tick,
    ) -> Result<Endpoint, Refusal> {
        self.open_mapping(hash, packet, opening, now)
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
        packet: &Outbound,
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
        fill(mapping, packet, opening.lease.public, now);
        self.policy.has_keyed |= packet.home.gre_key.is_some();
        mapping.subscriber = opening.lease.subscriber;
        mapping.address = opening.address;
        if self.subscribers.get(opening.lease.subscriber).is_answered() {
            mapping.flags |= Mapping::ANSWERED;
        }
        Some(id)
    }

    /// Without translation an inside endpoint can have one mapping only. The home owns its address
    /// already.
    fn check_inside_is_free(&mut self, packet: &Outbound, now: Tick) -> Result<(), Refusal> {
        if self.policy.enabled {
            return Ok(());
        }
        let hash = self.inbound_hash(packet.inside, packet.protocol);
        let Some(holder) = self.find_inbound(hash, packet.inside, packet.protocol) else {
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

impl Mapping {
    /// Notes a packet of the first session and returns the public endpoint; None, and nothing
    /// changed, if the packet belongs to another session, if the session has run out, or if
    /// replicas must know of the packet.
    #[inline(always)]
    fn outbound_first(
        &mut self,
        packet: &Outbound,
        policy: &Policy,
        now: Tick,
    ) -> Option<Endpoint> {
        let first = &mut self.first;
        if !first.is(packet.remote) || first.is_expired(packet.protocol, &policy.timeouts, now) {
            return None;
        }
        let (state, refresh) = seen_outbound(first, packet);
        if state != first.state && policy.is_replicated {
            return None;
        }
        if self.gre_key() != packet.home.gre_key {
            if policy.is_replicated || !policy.has_keyed {
                return None;
            }
            self.note_gre_key(packet.home.gre_key);
        }
        self.first.note(state, refresh, now);
        Some(self.public())
    }
}

/// RFC 4787 REQ-6: "The NAT mapping Refresh Direction MUST have a "NAT Outbound refresh behavior"
/// of "True"." A RST in answer to an unsolicited segment is the exception, see `is_refreshed_by`.
///
/// Returns the state after the packet, and whether it refreshes.
#[inline(always)]
fn seen_outbound(remote: &Remote, packet: &Outbound) -> (SessionState, bool) {
    let refresh =
        packet.protocol != Protocol::Tcp || remote.state.is_refreshed_by(packet.tcp_flags);
    (remote.state.after(packet.protocol, SentBy::Inside, packet.tcp_flags), refresh)
}

/// Notes an outbound packet. Returns whether replicas must know of it: only of a change of TCP
/// state. For other protocols the next packet shows which sides have spoken.
#[inline]
fn note_outbound(remote: &mut Remote, packet: &Outbound, now: Tick) -> bool {
    let (state, refresh) = seen_outbound(remote, packet);
    remote.note(state, refresh, now) && packet.protocol == Protocol::Tcp
}

/// Fills everything but the version, the subscriber and the position of the address.
#[inline]
fn fill(mapping: &mut Mapping, packet: &Outbound, public: Endpoint, now: Tick) {
    mapping.outer = packet.home.outer;
    mapping.shard = packet.home.shard;
    mapping.inside_address = packet.inside.address;
    mapping.inside_port = packet.inside.port;
    mapping.public_address = public.address;
    mapping.public_port = public.port;
    mapping.protocol = packet.protocol;
    mapping.kind = MappingKind::Live;
    mapping.first =
        Remote::opened(packet.remote, packet.protocol, SentBy::Inside, packet.tcp_flags, now);
    mapping.created = now;
    if let Some(key) = packet.home.gre_key {
        mapping.gre_key = key;
        mapping.flags = Mapping::KEYED;
    }
}
