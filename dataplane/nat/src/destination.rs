//! Flows to which a rule gives another destination (destination NAT): the action redirect.
//!
//! ```text
//!   home        inside --> asked                 the destination that the home asks
//!   internet    public --> destination           the one that the rule gives, the record's remote
//! ```
//!
//! Such a flow has a mapping of its own, with a public endpoint of its own: two destinations that a
//! home asks may become one, whose answers only the public endpoint tells apart. So
//! endpoint-independent mapping holds for all other flows of the inside endpoint, and this record
//! has one session for good. The places of the further sessions, which it lacks, hold the asked
//! destination. In the outbound index it stands by that too: the mapping of the other flows is not
//! in its way, and one inside endpoint may have any number of these.
//!
//! The session has [`SessionState::REDIRECTED`], so it is never settled: the fast path finds no
//! such record.

use weir_flow::{Hash, RecordId};
use weir_rules::{Destination, FlowPolicy};

use crate::endpoint::{Endpoint, Protocol, Tick};
use crate::inbound::note_inbound;
use crate::nat::Nat;
use crate::outbound::note_outbound;
use crate::packet::{Delivery, Inbound, Outbound, Refusal, Translated};
use crate::replication::journal::MarkKind;
use crate::sessions::mapping::Mapping;
use crate::sessions::session_state::{SentBy, SessionState};

/// Returns where the packets of a flow go that a home begins to `asked`. An ICMP query has no port.
#[inline(always)]
pub(crate) fn remote_of(policy: &FlowPolicy, asked: Endpoint, protocol: Protocol) -> Endpoint {
    let Some(Destination { address, port }) = policy.destination else { return asked };
    let port = port.filter(|_| protocol != Protocol::Icmp);
    Endpoint::new(address, port.unwrap_or(asked.port))
}

impl Mapping {
    /// Whether a rule has given its flow another destination.
    #[inline(always)]
    pub(crate) fn is_redirected(&self) -> bool {
        self.first.state.has(SessionState::REDIRECTED)
    }

    /// Returns the destination that the home asks, if its flow has another one.
    #[inline]
    pub(crate) fn asked(&self) -> Option<Endpoint> {
        let asked = Endpoint::new(self.sessions_head.0, self.sessions_inbound);
        self.is_redirected().then_some(asked)
    }

    /// Sets the destination that the home asks, for a flow that has another one.
    pub(crate) fn set_asked(&mut self, asked: Endpoint) {
        self.sessions_head = RecordId(asked.address);
        self.sessions_inbound = asked.port;
    }
}

impl Nat {
    /// Whether flows may have another destination. It stays true once one could.
    #[inline(always)]
    pub fn has_redirected(&self) -> bool {
        self.policy.has_redirected
    }

    /// Returns the hash by which the outbound index has the mapping of a flow to `asked` that goes
    /// elsewhere; `hash` is that of its home, inside endpoint and protocol.
    pub(crate) fn redirected_hash(&self, hash: Hash, asked: Endpoint) -> Hash {
        self.hash_outbound([hash.0, u64::from(asked.address) << 16 | u64::from(asked.port)])
    }

    /// Returns the mapping of the packet's flow, if the flow has another destination. `hash` as in
    /// [`outbound_known`](Self::outbound_known).
    #[inline]
    pub(crate) fn find_redirected(&self, hash: Hash, packet: &Outbound) -> Option<RecordId> {
        if self.policy.has_redirected { self.search_redirected(hash, packet) } else { None }
    }

    #[cold]
    fn search_redirected(&self, hash: Hash, packet: &Outbound) -> Option<RecordId> {
        let &Outbound { home, inside, remote, protocol, .. } = packet;
        let ends = (inside, remote, Some(remote));
        let of_asked = self.redirected_hash(hash, remote);
        let id = self.find_preferred(of_asked, &home, ends, protocol, |_| true)?;
        // The flow began on two workers, which had not heard of each other and had other rules: the
        // mapping that was used last serves it, as of two duplicates.
        let other = self.find_outbound_to(hash, &home, inside, remote, protocol);
        let other_seen = other.and_then(|other| self.seen(other, remote));
        let idle_sec = self.now.since(self.mappings.get(id).first.last_seen);
        let is_other = other_seen.is_some_and(|seen| self.now.since(seen) < idle_sec);
        (!is_other).then_some(id)
    }

    /// Translates a packet from a home whose flow has another destination. None: the flow had run
    /// out, and has ended.
    #[cold]
    pub(crate) fn outbound_redirected(
        &mut self,
        id: RecordId,
        packet: &Outbound,
        now: Tick,
    ) -> Option<Translated<Endpoint>> {
        if self.has_first_run_out(id, now) {
            self.totals.flow_expired += 1;
            self.end_mapping(id, now);
            return None;
        }
        self.rely_on(id);
        self.policy.has_keyed |= packet.home.gre_key.is_some();
        let mapping = self.mappings.get_mut(id);
        let mut mark = mapping.note_gre_key(packet.home.gre_key).then_some(MarkKind::Changed);
        if note_outbound(&mut mapping.first, packet, now) {
            mark = Some(MarkKind::segment(SentBy::Inside, packet.tcp_flags));
        }
        let translated = mapping.redirected_out();
        if let Some(mark) = mark {
            self.note_mapping(mark, id);
        }
        Some(translated)
    }

    /// Translates a packet from the Internet to a mapping whose flow has another destination: from
    /// there, and from nowhere else.
    #[cold]
    pub(crate) fn inbound_redirected(
        &mut self,
        id: RecordId,
        packet: &Inbound,
        now: Tick,
    ) -> Result<Translated<Delivery>, Refusal> {
        if self.has_first_run_out(id, now) {
            return Err(Refusal::NoMapping);
        }
        let mapping = self.mappings.get_mut(id);
        if !mapping.first.is(packet.remote) {
            return Err(Refusal::Filtered);
        }
        let has_changed = note_inbound(&mut mapping.first, packet, &self.policy, now);
        let translated = mapping.redirected_in();
        if has_changed {
            self.note_mapping(MarkKind::segment(SentBy::Remote, packet.tcp_flags), id);
        }
        Ok(translated)
    }

    /// Returns what a mapping is looked up by in the outbound index: the hash of its home, inside
    /// endpoint and protocol, and the asked destination of a flow that has another.
    pub(crate) fn outbound_hash_of(&self, mapping: &Mapping) -> Hash {
        let hash = self.outbound_hash(&mapping.home(), mapping.inside(), mapping.protocol);
        mapping.asked().map_or(hash, |asked| self.redirected_hash(hash, asked))
    }
}

impl Mapping {
    /// Returns the translation of a packet of the home.
    pub(crate) fn redirected_out(&self) -> Translated<Endpoint> {
        let (class, remote) = (self.first.state.class(), Some(self.first.endpoint()));
        Translated { to: self.public(), class, remote }
    }

    /// Returns the translation of a packet to the home.
    pub(crate) fn redirected_in(&self) -> Translated<Delivery> {
        let class = self.first.state.class();
        Translated { to: self.delivery(), class, remote: self.asked() }
    }
}
