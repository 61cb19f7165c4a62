//! What the tables have for a packet, for a trace: reads only.

use weir_flow::{Candidate, Hash, Index, RecordId, SlabId};
use weir_rules::{DecidingRule, FlowClass, FlowOrigin, RuleAction};

use crate::admin::facet::Admin;
use crate::admin::home_selector::HomeView;
use crate::admin::session_view::BlockView;
use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::ipv6::{Endpoint6, FlowKey6, Packet6};
use crate::look_up::PacketKey;
use crate::packet::{Inbound, Outbound};
use crate::sessions::mapping::{Mapping, Remote};
use crate::sessions::session::SessionKey;

/// The part of the index in which a look-up finds a tag like that of the packet's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketHit {
    Primary,
    /// The primary bucket has overflowed.
    Alternate,
    None,
}

/// A mapping, as a packet meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedMapping {
    /// Number of its record.
    pub record: u32,
    pub home: Home,
    pub inside: Endpoint,
    pub public: Endpoint,
    /// The port block of the public endpoint; none without translation.
    pub block: Option<BlockView>,
    /// Present if a rule gave the mapping's flow another destination.
    pub redirected: Option<RedirectedFlow>,
    /// The session with the packet's remote, if there is one that has not run out.
    pub session: Option<TracedSession>,
}

/// The record of an IPv6 flow, as a packet meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedFlow6 {
    /// Number of its record.
    pub record: u32,
    pub inside: Endpoint6,
    pub remote: Endpoint6,
    /// None if the flow has run out, and is not collected yet.
    pub session: Option<TracedSession>,
}

/// A record, as a packet meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedRecord {
    Mapping(TracedMapping),
    Flow6(TracedFlow6),
}

impl TracedRecord {
    /// Returns the session with the packet's remote, if there is one that has not run out.
    pub fn session(&self) -> Option<TracedSession> {
        match self {
            Self::Mapping(mapping) => mapping.session,
            Self::Flow6(flow) => flow.session,
        }
    }
}

/// A flow to which a rule gave another destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedirectedFlow {
    /// The destination that the home asks.
    pub asked: Endpoint,
    /// The one that its packets go to.
    pub destination: Endpoint,
}

/// A session, as a packet meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedSession {
    /// Whether it is in the mapping's own record.
    pub is_first: bool,
    /// As [`SessionView::state`](crate::SessionView::state).
    pub state: &'static str,
    pub idle_sec: u32,
    pub timeout_sec: u32,
    pub class: FlowClass,
}

/// What the tables have for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedLookUp {
    pub bucket: BucketHit,
    pub record: Option<TracedRecord>,
    /// Whether a packet from the internet that is of no session is let in: in IPv4 by
    /// `nat.filtering`, in IPv6 by a rule. `None`: it is not asked.
    pub is_let_in: Option<bool>,
    /// The rule that fits, if the packet begins a flow; none if no rule fits.
    pub rule: Option<DecidingRule>,
    /// Of an IPv6 packet with another home's inside address: that home.
    pub other_home: Option<HomeView>,
}

impl Admin<'_> {
    /// Looks up the mapping of a packet from a home.
    pub fn trace_outbound(self, hash: Hash, packet: &Outbound, now: Tick) -> TracedLookUp {
        let redirected = self.nat.find_redirected(hash, packet);
        let found = redirected.or_else(|| self.nat.find_outbound_of(hash, packet));
        let bucket = bucket_of(&self.nat.outbound_index, hash);
        let mapping = found.map(|id| self.traced_mapping(id, packet.remote, now));
        let has_session = mapping.is_some_and(|mapping| mapping.session.is_some());
        let ends = (packet.inside, packet.remote);
        let rule = (!has_session)
            .then(|| self.rule(FlowOrigin::Home, packet.protocol, &packet.home, ends))
            .flatten();
        let record = mapping.map(TracedRecord::Mapping);
        TracedLookUp { bucket, record, is_let_in: None, rule, other_home: None }
    }

    /// Looks up the mapping of a packet to a public endpoint.
    pub fn trace_inbound(self, hash: Hash, packet: &Inbound, now: Tick) -> TracedLookUp {
        let found = self.nat.find_inbound(hash, packet.public, packet.protocol);
        let bucket = bucket_of(&self.nat.inbound_index, hash);
        let Some(id) = found else {
            let (record, is_let_in, rule, other_home) = (None, None, None, None);
            return TracedLookUp { bucket, record, is_let_in, rule, other_home };
        };
        let mapping = self.traced_mapping(id, packet.remote, now);
        let is_stranger = mapping.session.is_none();
        let is_let_in = is_stranger.then(|| self.nat.lets_in(id, packet.remote, Some(now)));
        let ends = (mapping.inside, packet.remote);
        let rule = is_stranger
            .then(|| self.rule(FlowOrigin::Internet, packet.protocol, &mapping.home, ends))
            .flatten();
        let record = Some(TracedRecord::Mapping(mapping));
        TracedLookUp { bucket, record, is_let_in, rule, other_home: None }
    }

    /// Looks up the flow of an IPv6 packet that `home` has sent.
    pub fn trace_outbound6(self, packet: &Packet6, home: &Home, now: Tick) -> TracedLookUp {
        self.trace_flow6(FlowOrigin::Home, packet, Some(home), now)
    }

    /// Looks up the flow of an IPv6 packet from the internet; `home` has its inside address, if one
    /// has it.
    pub fn trace_inbound6(self, packet: &Packet6, home: Option<&Home>, now: Tick) -> TracedLookUp {
        self.trace_flow6(FlowOrigin::Internet, packet, home, now)
    }

    fn trace_flow6(
        self,
        origin: FlowOrigin,
        packet: &Packet6,
        home: Option<&Home>,
        now: Tick,
    ) -> TracedLookUp {
        let hash = packet.key.hash(self.nat);
        let bucket = bucket_of(&self.nat.outbound_index, hash);
        let found = self.nat.find_flow6(hash, &packet.key);
        let flow = found.map(|id| self.traced_flow6(id, now));
        let is_stranger = flow.is_none_or(|flow| flow.session.is_none());
        let ask = |home| self.nat.find_rule6(origin, home, packet);
        let rule = home.filter(|_| is_stranger).and_then(ask);
        let lets_in =
            |it: DecidingRule| matches!(it.action, RuleAction::Accept | RuleAction::Bypass);
        let is_asked = is_stranger && origin == FlowOrigin::Internet;
        let has_it = |owner: &Home| home.is_some_and(|home| !self.is_same_home(owner, home));
        let other_home = self.home_behind6(&packet.key).filter(has_it);
        TracedLookUp {
            bucket,
            record: flow.map(TracedRecord::Flow6),
            is_let_in: is_asked.then(|| rule.is_some_and(lets_in)),
            rule,
            other_home: other_home.map(|home| self.view_of(&home)),
        }
    }

    fn traced_flow6(self, id: RecordId, now: Tick) -> TracedFlow6 {
        let record = self.nat.mappings.get(id);
        let slab = self.nat.mappings.slab_of(id);
        TracedFlow6 {
            record: id.0,
            inside: record.inside6(),
            remote: record.remote6(),
            session: self.traced_session(record, (true, &record.first, slab), now),
        }
    }

    /// Returns the home that an IPv6 packet from the internet is for: that of its flow, or else the
    /// one that has its inside address and holds state.
    pub fn home_behind6(self, key: &FlowKey6) -> Option<Home> {
        if let Some(id) = self.nat.find_flow6(key.hash(self.nat), key) {
            let subscriber = self.nat.mappings.get(id).subscriber;
            return Some(self.nat.subscribers.get(subscriber).home());
        }
        let inside = key.inside().address;
        self.nat.known_home_with_inside6(self.nat.shard_of_inside6(inside)?, inside)
    }

    /// Returns the home that a packet to a public endpoint is for.
    pub fn home_behind(self, public: Endpoint, protocol: Protocol) -> Option<Home> {
        let hash = self.nat.inbound_hash(public, protocol);
        let id = self.nat.find_inbound(hash, public, protocol)?;
        Some(self.nat.mappings.get(id).home())
    }

    /// Returns how many flows or packets a rule has decided on.
    pub fn rule_hits(self, rule: u32) -> u64 {
        self.nat.rules.hits.get(rule as usize).copied().unwrap_or(0)
    }

    fn traced_mapping(self, id: RecordId, remote: Endpoint, now: Tick) -> TracedMapping {
        let mapping = self.nat.mappings.get(id);
        let is_its = mapping.first.is(remote) || mapping.asked() == Some(remote);
        let is_first = is_its && !self.nat.has_first_run_out(id, now);
        let first = is_first.then(|| (true, &mapping.first, self.nat.mappings.slab_of(id)));
        let further = || {
            let session = self.nat.find_session(id, SessionKey::Remote(remote))?;
            let slab = self.nat.sessions.slab_of(session);
            Some((false, &self.nat.sessions.get(session).remote, slab))
        };
        let session = first.or_else(further);
        let session = session.and_then(|session| self.traced_session(mapping, session, now));
        let public = mapping.public();
        let block = self.nat.policy.enabled.then(|| self.block_of(public)).flatten();
        let (home, inside) = (mapping.home(), mapping.inside());
        let destination = mapping.first.endpoint();
        let redirected = mapping.asked().map(|asked| RedirectedFlow { asked, destination });
        TracedMapping { record: id.0, home, inside, public, block, redirected, session }
    }

    /// Returns a session of a record, unless it has run out. `is_first`: it is in the record
    /// itself.
    fn traced_session(
        self,
        record: &Mapping,
        (is_first, remote, slab): (bool, &Remote, SlabId),
        now: Tick,
    ) -> Option<TracedSession> {
        let (lane, timeouts) = (self.nat.lanes.get(slab), &self.nat.policy.live.timeouts);
        let protocol = record.protocol;
        (!lane.has_run_out(remote, protocol, timeouts, now)).then(|| TracedSession {
            is_first,
            state: remote.state.phase(protocol).name(),
            // As in a listing: a copy has been idle for as long as this worker knows it.
            idle_sec: lane.idle_sec(remote.last_seen, now).min(now.since(record.created)),
            timeout_sec: remote.timeout_sec(protocol, timeouts),
            class: remote.state.class(),
        })
    }

    fn block_of(self, public: Endpoint) -> Option<BlockView> {
        let address = self.nat.ports.position_of(public.address)?;
        let (port_first, port_last) =
            self.nat.ports.port_range(self.nat.ports.block_of(address, public.port));
        Some(BlockView { public_address: public.address, port_first, port_last })
    }

    fn rule(
        self,
        origin: FlowOrigin,
        protocol: Protocol,
        home: &Home,
        (inside, remote): (Endpoint, Endpoint),
    ) -> Option<DecidingRule> {
        let question = self.nat.question(origin, (protocol, home.outer, inside, remote));
        self.nat.rules.set.find(&question)
    }
}

fn bucket_of(index: &Index, hash: Hash) -> BucketHit {
    match index.candidate(hash) {
        Candidate::Found(_) => BucketHit::Primary,
        Candidate::Absent => BucketHit::None,
        Candidate::Elsewhere => match index.candidate_elsewhere(hash) {
            Some(_) => BucketHit::Alternate,
            None => BucketHit::None,
        },
    }
}
