//! Hot. Packets of IPv6 flows that are there.

use weir_flow::{Hash, RecordId};
use weir_rules::FlowClass;

use crate::endpoint::{Home, Protocol, ShardIndex, Tick};
use crate::inbound::seen_inbound;
use crate::ipv6::flow_key::FlowKey6;
use crate::look_up::PacketKey;
use crate::nat::Nat;
use crate::outbound::seen_outbound;
use crate::packet::Refusal;
use crate::replication::journal::MarkKind;
use crate::sessions::mapping::Mapping;
use crate::sessions::session_state::{SentBy, SessionState};

/// A packet of an IPv6 flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet6 {
    pub key: FlowKey6,
    pub protocol: Protocol,
    /// Byte 13 of the TCP header; 0 for other protocols.
    pub tcp_flags: u8,
}

/// Where a packet from the internet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery6 {
    /// The home, with the GRE key to put into its tunnel header: the key it used last.
    pub home: Home,
    /// Class of the packet's flow.
    pub class: FlowClass,
}

impl Nat {
    /// Step 4 of a burst: `candidate` is the record of this ordinary packet's flow, which is
    /// settled. With `TUNNEL` the packet must be of `home`, with its key. Notes the packet and
    /// returns the flow's shard. Otherwise returns None and changes nothing; `RecordId::NONE` is no
    /// record.
    #[inline(always)]
    pub fn outbound6_settled<const TUNNEL: bool>(
        &mut self,
        candidate: RecordId,
        key: &FlowKey6,
        home: &Home,
        now: Tick,
    ) -> Option<ShardIndex> {
        let Self { mappings, subscribers, policy, .. } = self;
        let record = mappings.try_get_mut(candidate)?;
        let is_found = key.differs_from_settled(record) == 0
            && (!TUNNEL || subscribers.get(record.subscriber).is(home, true));
        if !is_found || !record.note_settled(policy, now, true) {
            return None;
        }
        Some(record.shard)
    }

    /// As [`outbound6_settled`](Self::outbound6_settled), for a packet from the internet. Returns
    /// the home; without `TUNNEL` only its shard counts.
    #[inline(always)]
    pub fn inbound6_settled<const TUNNEL: bool>(
        &mut self,
        candidate: RecordId,
        key: &FlowKey6,
        now: Tick,
    ) -> Option<Home> {
        let Self { mappings, subscribers, policy, .. } = self;
        let record = mappings.try_get_mut(candidate)?;
        let refreshes = policy.live.udp_inbound_refresh;
        let is_found = key.differs_from_settled(record) == 0;
        if !is_found || !record.note_settled(policy, now, refreshes) {
            return None;
        }
        match TUNNEL {
            true => Some(subscribers.get(record.subscriber).home()),
            false => Some(Home { shard: record.shard, outer: 0, gre_key: None }),
        }
    }

    /// Returns the record of a packet's flow. `hash` is the key's.
    #[inline]
    pub(crate) fn find_flow6(&self, hash: Hash, key: &FlowKey6) -> Option<RecordId> {
        let is_it = |id| key.differs(self.mappings.get(RecordId(id))) == 0;
        self.outbound_index.find(hash, is_it).map(RecordId)
    }

    /// Notes a packet of a home, whatever its flow's state, and returns the class of the flow.
    /// `Ok(None)`: the flow is not there, see [`open_outbound6`](Self::open_outbound6).
    ///
    /// # Errors
    /// [`Refusal::AddressConflict`], if the flow is another home's. The tables are then as before.
    pub fn outbound6_known(
        &mut self,
        hash: Hash,
        home: &Home,
        packet: &Packet6,
        now: Tick,
    ) -> Result<Option<FlowClass>, Refusal> {
        let Some(id) = self.live_flow6(hash, &packet.key, now) else { return Ok(None) };
        let subscriber = self.mappings.get(id).subscriber;
        if !self.subscribers.is_of(subscriber, home) {
            return Err(Refusal::AddressConflict);
        }
        self.note_home_key(subscriber, home);
        let first = self.mappings.get(id).first;
        let seen = seen_outbound(&first, packet.protocol, packet.tcp_flags);
        self.note_flow6(id, seen, SentBy::Inside, packet, now);
        Ok(Some(first.state.class()))
    }

    /// As [`outbound6_known`](Self::outbound6_known), for a packet from the internet.
    pub fn inbound6_known(&mut self, hash: Hash, packet: &Packet6, now: Tick) -> Option<Delivery6> {
        let id = self.live_flow6(hash, &packet.key, now)?;
        let first = self.mappings.get(id).first;
        let seen = seen_inbound(&first, packet.protocol, packet.tcp_flags, &self.policy);
        self.note_flow6(id, seen, SentBy::Remote, packet, now);
        Some(self.delivery6(id))
    }

    /// Returns where a packet from the internet with this key goes, if there is its flow. It
    /// creates and refreshes nothing.
    pub fn peek_flow6(&self, key: &FlowKey6) -> Option<Delivery6> {
        let id = self.find_flow6(key.hash(self), key)?;
        (!self.has_first_run_out(id, self.now)).then(|| self.delivery6(id))
    }

    pub(crate) fn delivery6(&self, id: RecordId) -> Delivery6 {
        let Mapping { subscriber, first, .. } = *self.mappings.get(id);
        Delivery6 { home: self.subscribers.get(subscriber).home(), class: first.state.class() }
    }

    /// Returns the record of a flow, on which the packet in hand then depends. One that has run out
    /// and that the walk has not collected yet is ended.
    fn live_flow6(&mut self, hash: Hash, key: &FlowKey6, now: Tick) -> Option<RecordId> {
        let id = self.find_flow6(hash, key)?;
        if self.has_first_run_out(id, now) {
            self.totals.flow_expired += 1;
            self.end_flow6(id);
            return None;
        }
        self.rely_on(id);
        Some(id)
    }

    fn note_flow6(
        &mut self,
        id: RecordId,
        (state, refresh): (SessionState, bool),
        sender: SentBy,
        packet: &Packet6,
        now: Tick,
    ) {
        let first = &mut self.mappings.get_mut(id).first;
        let has_changed = first.note(state, refresh, now);
        // Replicas need only changes of TCP: of other protocols the next packet shows which sides
        // have spoken.
        if has_changed && packet.protocol == Protocol::Tcp {
            self.note_mapping(MarkKind::segment(sender, packet.tcp_flags), id);
        }
    }

    /// Remembers the GRE key that a home uses now, to be echoed.
    pub(crate) fn note_home_key(&mut self, subscriber: u32, home: &Home) {
        self.policy.has_keyed |= home.gre_key.is_some() && self.policy.home_mask == 0;
        self.subscribers.get_mut(subscriber).note_gre_key(home.gre_key);
    }
}
