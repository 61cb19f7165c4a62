//! Hot. A packet to a public address: find the mapping, ask the filter, note the packet.

use weir_flow::{Hash, RecordId};
use weir_rules::{FlowClass, FlowOrigin, FlowPolicy};

use crate::endpoint::{Protocol, Tick};
use crate::fast_path::OutboundKey;
use crate::nat::{Nat, Policy};
use crate::opening::Opening;
use crate::packet::{Delivery, Inbound, NewFlow, Refusal, Translated};
use crate::ports::static_mappings::StaticHolder;
use crate::replication::journal::MarkKind;
use crate::rules::AcceptingRule;
use crate::sessions::mapping::{Mapping, MappingKind, Remote};
use crate::sessions::session_state::{SentBy, SessionState};
use crate::sessions::tcp_state;

impl Nat {
    /// Step 4 of a burst, the fast path: `candidate`, the record of step 2 or 3, is this packet's
    /// mapping, and the packet belongs to the mapping's first session. Otherwise returns None and
    /// changes nothing: call [`inbound`](Self::inbound).
    #[inline(always)]
    pub fn inbound_established(
        &mut self,
        candidate: RecordId,
        packet: &Inbound,
        now: Tick,
    ) -> Option<Translated<Delivery>> {
        let mapping = self.mappings.get_mut(candidate);
        let is_it =
            mapping.kind == MappingKind::Live && mapping.is_public(packet.public, packet.protocol);
        if is_it { mapping.inbound_first(packet, &self.policy, now) } else { None }
    }

    /// Translates a packet from the Internet: finds the inside endpoint that it is for and whether
    /// its sender may reach that endpoint.
    ///
    /// `hash` is [`inbound_hash`](Self::inbound_hash) of the packet's public endpoint and protocol.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before, except that sessions that had run out may be
    /// gone.
    pub fn inbound(
        &mut self,
        hash: Hash,
        packet: &Inbound,
        now: Tick,
    ) -> Result<Translated<Delivery>, Refusal> {
        let found = self.find_inbound(hash, packet.public, packet.protocol);
        let id = found.ok_or(Refusal::NoMapping)?;
        self.rely_on(id);
        let mapping = self.mappings.get_mut(id);
        if let Some(translated) = mapping.inbound_first(packet, &self.policy, now) {
            return Ok(translated);
        }
        if mapping.is_redirected() {
            return self.inbound_redirected(id, packet, now);
        }
        let to = mapping.delivery();
        if self.is_held_first(id, packet.remote, now) {
            let mapping = self.mappings.get_mut(id);
            let class = mapping.first.state.class();
            let has_changed = note_inbound(&mut mapping.first, packet, &self.policy, now);
            mapping.keep_checksum_deltas();
            if has_changed {
                self.note_mapping(MarkKind::segment(SentBy::Remote, packet.tcp_flags), id);
            }
            return Ok(Translated { to, class, remote: None });
        }
        let class = self.inbound_further(id, packet, now)?;
        Ok(Translated { to, class, remote: None })
    }

    /// Whether there are static mappings: [`inbound_static`](Self::inbound_static) is then to be
    /// asked about packets without a mapping.
    #[inline]
    pub fn has_static(&self) -> bool {
        self.policy.has_static
    }

    /// Makes the mapping of a static public endpoint for a packet from the Internet that has none.
    ///
    /// # Errors
    /// A [`Refusal`]; the tables are then as before.
    #[cold]
    pub fn inbound_static(
        &mut self,
        packet: &Inbound,
        now: Tick,
    ) -> Result<Translated<Delivery>, Refusal> {
        let &Inbound { public, remote, protocol, tcp_flags } = packet;
        let fixed = self.static_holder(public, protocol)?;
        let StaticHolder { home, inside } = fixed;
        self.check_opening(protocol, tcp_flags)?;
        let AcceptingRule { rule, policy } = self.ask_static(protocol, &fixed, remote)?;
        let policy = FlowPolicy::of_class(policy.class);
        self.check_replicas(home.shard)?;
        if !self.has_room(1) {
            return Err(Refusal::TableFull);
        }
        let own = self.ports.position_of(public.address);
        let subscriber = self.admit_home(&home, own, now)?;
        let key = OutboundKey::new(&home, protocol as u8, inside, remote, true);
        let flow = NewFlow { key, gre_key: home.gre_key, protocol, tcp_flags };
        let mut opening = Opening::NONE;
        let leased = self
            .check_share(subscriber)
            .and_then(|()| self.lease_static(subscriber, public, &flow, &mut opening));
        if let Err(refusal) = leased {
            self.dismiss_home(subscriber);
            return Err(refusal);
        }
        let record = self.subscribers.get_mut(subscriber);
        record.records += 1;
        record.flows += 1;
        opening.set_static(record.mapping_flags());
        let hash = self.outbound_hash(&home, inside, protocol);
        self.open_mapping(hash, &flow, &opening, &policy, now)?;
        let hash = self.inbound_hash(public, protocol);
        let id = self.find_inbound(hash, public, protocol).ok_or(Refusal::NoMapping)?;
        let mapping = self.mappings.get_mut(id);
        let class = policy.class;
        mapping.first = Remote::opened(remote, protocol, SentBy::Remote, tcp_flags, class, now);
        mapping.sessions_inbound = 1;
        let to = mapping.delivery();
        let asked = (protocol, home.outer, inside, remote);
        self.count_accepted(rule, FlowOrigin::Internet, asked);
        Ok(Translated { to, class, remote: None })
    }

    /// Processes a packet of a remote that is not that of the first session, or of one that has run
    /// out. Returns the class of its session, or what the rule gives a packet without one.
    fn inbound_further(
        &mut self,
        id: RecordId,
        packet: &Inbound,
        now: Tick,
    ) -> Result<FlowClass, Refusal> {
        let &Inbound { remote, protocol, tcp_flags, .. } = packet;
        if let Some(session) = self.live_session(id, remote, now) {
            let known = &mut self.sessions.get_mut(session).remote;
            let class = known.state.class();
            if note_inbound(known, packet, &self.policy, now) {
                self.note_session(MarkKind::segment(SentBy::Remote, tcp_flags), session);
            }
            return Ok(class);
        }
        // What comes for a static endpoint begins in the record that is over.
        if self.is_mapping_over(id, now) && !self.mappings.get(id).is_static() {
            return Err(Refusal::NoMapping);
        }
        let AcceptingRule { rule, policy } = self.admit_remote(id, packet, now)?;
        let class = policy.class;
        if protocol != Protocol::Tcp {
            // Let in without state: the mapping lives on what the inside sends, and a flood fills
            // no table.
            self.count_accepted(rule, FlowOrigin::Internet, self.asked_to(id, remote));
            return Ok(class);
        }
        // RFC 7857 section 13: with endpoint-independent filtering the number of sessions that
        // remotes open on a mapping should have a limit, or a flood of them exhausts the state.
        if self.mappings.get(id).sessions_inbound >= self.policy.live.inbound_sessions_max {
            return Err(Refusal::InboundSessionsMax);
        }
        let opened = Remote::opened(remote, protocol, SentBy::Remote, tcp_flags, class, now);
        self.open_session(id, opened, now)?;
        self.count_accepted(rule, FlowOrigin::Internet, self.asked_to(id, remote));
        Ok(class)
    }

    /// Checks whether a remote without a session may begin one, or send a packet without one. The
    /// rules decide, and filtering where none fits.
    fn admit_remote(
        &mut self,
        id: RecordId,
        packet: &Inbound,
        now: Tick,
    ) -> Result<AcceptingRule, Refusal> {
        let mapping = self.mappings.get(id);
        if mapping.is_static() && !self.is_static_still(mapping) {
            return Err(Refusal::Filtered);
        }
        let deciding = self.find_inbound_rule(id, packet.remote);
        if deciding.is_none() && !self.lets_in(id, packet.remote, Some(now)) {
            return Err(Refusal::Filtered);
        }
        // No rule is about a segment that cannot open a session. Another worker may know its
        // connection.
        if packet.protocol == Protocol::Tcp && !tcp_state::is_opening(packet.tcp_flags) {
            return Err(Refusal::TcpNotSyn);
        }
        AcceptingRule::of(deciding).map_err(|refusing| {
            let asked = self.asked_to(id, packet.remote);
            self.count_refused(refusing, FlowOrigin::Internet, asked)
        })
    }
}

impl Mapping {
    #[inline]
    pub(crate) fn delivery(&self) -> Delivery {
        Delivery { home: self.home(), inside: self.inside() }
    }

    /// Notes a packet of the first session; None, and nothing changed, if the packet belongs to
    /// another session, if the session has run out, or if replicas must know of the packet.
    #[inline(always)]
    fn inbound_first(
        &mut self,
        packet: &Inbound,
        policy: &Policy,
        now: Tick,
    ) -> Option<Translated<Delivery>> {
        let first = &mut self.first;
        let is_its = first.is(packet.remote) && !first.state.has(SessionState::REDIRECTED);
        if !is_its || first.is_expired(packet.protocol, &policy.live.timeouts, now) {
            return None;
        }
        let (state, refresh) = seen_inbound(first, packet.protocol, packet.tcp_flags, policy);
        if state != first.state && policy.is_replicated {
            return None;
        }
        first.note(state, refresh, now);
        self.keep_checksum_deltas();
        Some(Translated { to: self.delivery(), class: state.class(), remote: None })
    }
}

/// The effect of an inbound packet on a session. These packets keep it alive:
/// - TCP: those of a connection that the inside has a part in; a remote alone keeps nothing alive.
/// - UDP and ICMP: RFC 4787 REQ-6a: "The NAT mapping Refresh Direction MAY have a "NAT Inbound
///   refresh behavior" of "True"."
///
/// Returns the state after the packet, and whether it refreshes.
#[inline(always)]
pub(crate) fn seen_inbound(
    remote: &Remote,
    protocol: Protocol,
    tcp_flags: u8,
    policy: &Policy,
) -> (SessionState, bool) {
    let state = remote.state.after(protocol, SentBy::Remote, tcp_flags);
    let refresh = match protocol {
        Protocol::Tcp => state.is_joined_by_inside(),
        Protocol::Udp | Protocol::Icmp => policy.live.udp_inbound_refresh,
    };
    (state, refresh)
}

/// Notes an inbound packet. Returns whether replicas must know of it: only of a change of TCP
/// state. For other protocols the next packet shows which sides have spoken.
#[inline]
pub(crate) fn note_inbound(
    remote: &mut Remote,
    packet: &Inbound,
    policy: &Policy,
    now: Tick,
) -> bool {
    let (state, refresh) = seen_inbound(remote, packet.protocol, packet.tcp_flags, policy);
    remote.note(state, refresh, now) && packet.protocol == Protocol::Tcp
}
