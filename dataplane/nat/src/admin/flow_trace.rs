//! What the tables have for a packet, for a trace: reads only.

use weir_flow::{Candidate, Hash, Index, RecordId};
use weir_rules::{DecidingRule, FlowClass, FlowOrigin};

use crate::admin::facet::Admin;
use crate::admin::session_view::BlockView;
use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::packet::{Inbound, Outbound};
use crate::sessions::mapping::Remote;
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
    pub mapping: Option<TracedMapping>,
    /// Whether `nat.filtering` lets the remote of a packet from the internet in; `None`: it is not
    /// asked.
    pub is_let_in: Option<bool>,
    /// The rule that fits, if the packet begins a flow; none if no rule fits.
    pub rule: Option<DecidingRule>,
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
        TracedLookUp { bucket, mapping, is_let_in: None, rule }
    }

    /// Looks up the mapping of a packet to a public endpoint.
    pub fn trace_inbound(self, hash: Hash, packet: &Inbound, now: Tick) -> TracedLookUp {
        let found = self.nat.find_inbound(hash, packet.public, packet.protocol);
        let bucket = bucket_of(&self.nat.inbound_index, hash);
        let Some(id) = found else {
            return TracedLookUp { bucket, mapping: None, is_let_in: None, rule: None };
        };
        let mapping = self.traced_mapping(id, packet.remote, now);
        let is_stranger = mapping.session.is_none();
        let is_let_in = is_stranger.then(|| self.nat.lets_in(id, packet.remote, Some(now)));
        let ends = (mapping.inside, packet.remote);
        let rule = is_stranger
            .then(|| self.rule(FlowOrigin::Internet, packet.protocol, &mapping.home, ends))
            .flatten();
        TracedLookUp { bucket, mapping: Some(mapping), is_let_in, rule }
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
        let timeouts = &self.nat.policy.live.timeouts;
        let session = first.or_else(further).and_then(|(is_first, remote, slab)| {
            let lane = self.nat.lanes.get(slab);
            let remote: &Remote = remote;
            (!lane.has_run_out(remote, mapping.protocol, timeouts, now)).then(|| TracedSession {
                is_first,
                state: remote.state.phase(mapping.protocol).name(),
                idle_sec: lane.idle_sec(remote.last_seen, now),
                timeout_sec: remote.timeout_sec(mapping.protocol, timeouts),
                class: remote.state.class(),
            })
        });
        let public = mapping.public();
        let block = self.nat.policy.enabled.then(|| self.block_of(public)).flatten();
        let (home, inside) = (mapping.home(), mapping.inside());
        let destination = mapping.first.endpoint();
        let redirected = mapping.asked().map(|asked| RedirectedFlow { asked, destination });
        TracedMapping { record: id.0, home, inside, public, block, redirected, session }
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
