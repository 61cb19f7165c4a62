//! Hot. A packet from a home: find its mapping and note the packet; `opening.rs` makes the mapping
//! of a first packet.

use weir_flow::{Hash, RecordId};
use weir_rules::FlowPolicy;

use crate::endpoint::{Endpoint, Protocol, Tick};
use crate::nat::{Nat, Policy};
use crate::opening::Opening;
use crate::packet::{NewFlow, Outbound, Refusal, Translated};
use crate::replication::journal::MarkKind;
use crate::rules::AcceptingRule;
use crate::sessions::mapping::{Mapping, MappingKind, Remote};
use crate::sessions::session_state::{SentBy, SessionState};
use crate::sessions::tcp_state;
use crate::subscribers::subscriber::Subscriber;

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
    ) -> Option<Translated<Endpoint>> {
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
    ) -> Result<Option<Translated<Endpoint>>, Refusal> {
        if let Some(id) = self.find_redirected(hash, packet) {
            return Ok(self.outbound_redirected(id, packet, now));
        }
        let Some(id) = self.find_outbound_of(hash, packet) else { return Ok(None) };
        // RFC 4787 REQ-1, RFC 5382 REQ-1: "A NAT MUST have an "Endpoint-Independent Mapping"
        // behavior." The remote is no part of what was looked up.
        self.rely_on(id);
        let mapping = self.mappings.get_mut(id);
        if let Some(translated) = mapping.outbound_first(packet, &self.policy, now) {
            return Ok(Some(translated));
        }
        self.policy.has_keyed |= packet.home.gre_key.is_some();
        let mut mark = mapping.note_gre_key(packet.home.gre_key).then_some(MarkKind::Changed);
        let public = mapping.public();
        let mut class = None;
        if self.is_held_first(id, packet.remote, now) {
            let mapping = self.mappings.get_mut(id);
            class = Some(mapping.first.state.class());
            if note_outbound(&mut mapping.first, packet, now) {
                mark = Some(MarkKind::segment(SentBy::Inside, packet.tcp_flags));
            }
            mapping.keep_checksum_deltas();
        }
        if let Some(mark) = mark {
            self.note_mapping(mark, id);
        }
        match class {
            Some(class) => Ok(Some(Translated { to: public, class, remote: None })),
            None => self.outbound_further(id, packet, now),
        }
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
    ) -> Result<Translated<Endpoint>, Refusal> {
        if let Some(translated) = self.outbound_known(hash, packet, now)? {
            return Ok(translated);
        }
        self.check_opening_or_bypass(packet)?;
        let AcceptingRule { rule, policy } = self.ask_outbound(packet)?;
        let (flow, mut opening) = (NewFlow::from(packet), Opening::NONE);
        self.prepare_mapping(&flow, &policy, now, &mut opening)?;
        let translated = self.open_mapping(hash, &flow, &opening, &policy, now)?;
        self.count_rule(rule, &flow);
        Ok(translated)
    }

    /// Processes a packet to a remote that is not that of the first session, or of one that has run
    /// out. `Ok(None)`: its flow begins in a mapping of its own, which there is not yet.
    fn outbound_further(
        &mut self,
        id: RecordId,
        packet: &Outbound,
        now: Tick,
    ) -> Result<Option<Translated<Endpoint>>, Refusal> {
        let &Outbound { remote, protocol, tcp_flags, .. } = packet;
        if let Some(session) = self.live_session(id, remote, now) {
            let known = &mut self.sessions.get_mut(session).remote;
            let class = known.state.class();
            if note_outbound(known, packet, now) {
                self.note_session(MarkKind::segment(SentBy::Inside, tcp_flags), session);
            }
            let to = self.mappings.get(id).public();
            return Ok(Some(Translated { to, class, remote: None }));
        }
        self.check_opening_or_bypass(packet)?;
        let AcceptingRule { rule, policy } = self.ask_outbound(packet)?;
        let Some(id) = self.mapping_for(id, packet, &policy) else { return Ok(None) };
        let (to, class) = (self.mappings.get(id).public(), policy.class);
        let remote = Remote::opened(remote, protocol, SentBy::Inside, tcp_flags, class, now);
        self.open_session(id, remote, now)?;
        self.count_rule(rule, &NewFlow::from(packet));
        Ok(Some(Translated { to, class, remote: None }))
    }

    /// Returns the mapping in which a flow of this policy begins, of an inside endpoint that has
    /// the mapping `id`. None: there is none yet.
    #[inline]
    fn mapping_for(
        &mut self,
        id: RecordId,
        packet: &Outbound,
        policy: &FlowPolicy,
    ) -> Option<RecordId> {
        let has_one = *policy == FlowPolicy::NONE && !self.rules.set.has_source_pools();
        if has_one { Some(id) } else { self.find_mapping_for(id, packet, policy) }
    }

    #[cold]
    fn find_mapping_for(
        &mut self,
        id: RecordId,
        packet: &Outbound,
        policy: &FlowPolicy,
    ) -> Option<RecordId> {
        if policy.destination.is_some() {
            return None;
        }
        let &Outbound { home, inside, remote, protocol, .. } = packet;
        let is_of_pool = |other| self.is_of_source_pool(other, policy.source);
        if is_of_pool(id) {
            return Some(id);
        }
        let hash = self.outbound_hash(&home, inside, protocol);
        let ends = (inside, remote, None);
        let id = self.find_preferred(hash, &home, ends, protocol, is_of_pool)?;
        self.rely_on(id);
        if self.mappings.get_mut(id).note_gre_key(home.gre_key) {
            self.note_mapping(MarkKind::Changed, id);
        }
        Some(id)
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
        if self.flows >= self.policy.live.flows_max {
            return Err(Refusal::TableFull);
        }
        self.check_share(subscriber)?;
        let home = self.subscribers.get(subscriber);
        let sessions = self.allowance_of(home).home.sessions;
        let most = match opener {
            SentBy::Inside => sessions,
            // Sessions that remotes open leave the home its half.
            SentBy::Remote => sessions / 2,
        };
        if home.sessions >= most {
            return Err(Refusal::SessionsPerSubscriber);
        }
        Ok(())
    }

    /// RFC 6888 REQ-5: "A CGN SHOULD support limiting the amount of state memory allocated per
    /// mapping and per subscriber."
    #[inline]
    pub(crate) fn check_share(&self, subscriber: u32) -> Result<(), Refusal> {
        let home = self.subscribers.get(subscriber);
        if home.flows >= self.allowance_of(home).home.flows {
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
        self.note_group(subscriber);
        let tokens = self.tokens_at(self.subscribers.get(subscriber), now);
        let home = self.subscribers.get_mut(subscriber);
        home.tokens = tokens;
        home.refilled = now;
        if home.tokens == 0 { Err(Refusal::NewFlows) } else { Ok(()) }
    }

    /// Returns the tokens of a home, filled up for this moment.
    #[inline]
    pub(crate) fn tokens_at(&self, home: &Subscriber, now: Tick) -> u16 {
        let allowance = &self.allowance_of(home).home;
        let (per_sec, burst) = (allowance.new_flows_per_sec, allowance.new_flows_burst);
        let earned = per_sec.saturating_mul(now.since(home.refilled));
        let tokens = u32::from(home.tokens).saturating_add(earned).min(burst.into());
        if per_sec == u32::MAX { burst } else { tokens as u16 }
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
    ) -> Option<Translated<Endpoint>> {
        let first = &mut self.first;
        let is_its = first.is(packet.remote) && !first.state.has(SessionState::REDIRECTED);
        if !is_its || first.is_expired(packet.protocol, &policy.live.timeouts, now) {
            return None;
        }
        let (state, refresh) = seen_outbound(first, packet.protocol, packet.tcp_flags);
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
        self.keep_checksum_deltas();
        Some(Translated { to: self.public(), class: state.class(), remote: None })
    }
}

/// RFC 4787 REQ-6: "The NAT mapping Refresh Direction MUST have a "NAT Outbound refresh behavior"
/// of "True"." A RST in answer to an unsolicited segment is the exception, see `is_refreshed_by`.
///
/// Returns the state after the packet, and whether it refreshes.
#[inline(always)]
pub(crate) fn seen_outbound(
    remote: &Remote,
    protocol: Protocol,
    tcp_flags: u8,
) -> (SessionState, bool) {
    let refresh = protocol != Protocol::Tcp || remote.state.is_refreshed_by(tcp_flags);
    (remote.state.after(protocol, SentBy::Inside, tcp_flags), refresh)
}

/// Notes an outbound packet. Returns whether replicas must know of it: only of a change of TCP
/// state. For other protocols the next packet shows which sides have spoken.
#[inline]
pub(crate) fn note_outbound(remote: &mut Remote, packet: &Outbound, now: Tick) -> bool {
    let (state, refresh) = seen_outbound(remote, packet.protocol, packet.tcp_flags);
    remote.note(state, refresh, now) && packet.protocol == Protocol::Tcp
}
