//! The way of one packet, recorded for an operator: what it is, what the tables have for it, what
//! they have afterwards, and what leaves.
//!
//! ```text
//!   frame -> read: tunnel, key, step -> look up -> receive, as a burst of one -> look up again
//!                                                      |
//!                                                      +-> drops counted, frames sent or held
//! ```
//!
//! A traced packet takes the same steps as any other, alone: what the trace says is read before and
//! after them, and the steps do not know of it. So nothing is on the way of other packets. No
//! allocation: a [`PacketTrace`] has a fixed size, and text is made of it elsewhere.

use weir_nat::{Endpoint, EndpointRange, Home, Inbound, OuterAddress, Protocol, TracedLookUp};
use weir_wire::frame::{Frame, Pool};

use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::{Engine, Now};
use crate::flow_key::{FlowKey, PacketKind};
use crate::upstream::{Upstream, UpstreamStep};
use crate::{DropReason, Output, Side};

/// Bytes of a frame that a trace keeps: all of it on most links.
const FRAME_BYTES: usize = 1600;
/// Frames that a trace keeps of those that leave for one packet.
pub const OUTPUTS_TRACED: usize = 2;

/// The packets that a trace is about: all of this fits. `None` fits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    pub side: Option<Side>,
    /// Outer address of the home, or its inside address where there is no tunnel.
    pub subscriber: Option<OuterAddress>,
    pub protocol: Option<Protocol>,
    pub remote: Option<EndpointRange>,
}

/// The front of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameCopy {
    bytes: [u8; FRAME_BYTES],
    kept: u16,
    /// Length of the whole frame in bytes.
    pub len: u16,
}

/// What the worker is to do with a packet, from its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedStep {
    /// To translate it.
    Translate,
    /// To translate what another worker redirected here.
    Redirected,
    /// To answer or to take it itself: ARP, a ping, a GRE keepalive, a datagram of replication.
    Local,
    /// To hold a fragment of a tunnel packet until the packet is whole.
    Hold,
    /// To send the home an ICMP error because of its TTL.
    TimeExceeded,
    /// To drop it.
    Drop(DropReason),
}

/// Kind of a packet to translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedKind {
    Whole,
    FirstFragment,
    LaterFragment,
    IcmpError,
    IcmpReply,
}

/// The key of a packet to translate. A later fragment has ports 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedFlow {
    pub kind: TracedKind,
    pub protocol: Protocol,
    pub source: Endpoint,
    pub destination: Endpoint,
    /// Byte 13 of the TCP header.
    pub tcp_flags: u8,
    pub hash: u64,
    /// Whether its headers let it take the fast path.
    pub fits_fast_path: bool,
}

/// A frame that left for a packet.
#[derive(Clone, Copy, Debug)]
pub struct TracedOutput {
    pub side: Side,
    pub frame: FrameCopy,
}

/// The way of one packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketTrace {
    pub at_ms: u64,
    pub side: Side,
    pub frame: FrameCopy,
    pub step: TracedStep,
    /// The home: of a packet from homes as its tunnel says, of others as their mapping says.
    pub home: Option<Home>,
    /// The outer address of the home.
    pub outer: Option<OuterAddress>,
    pub flow: Option<TracedFlow>,
    /// What the tables had for the packet; `None` of packets that are not looked up by their own
    /// key: later fragments, ICMP errors.
    pub before: Option<TracedLookUp>,
    /// What the tables have for it now.
    pub after: Option<TracedLookUp>,
    /// Whether the rule that fits has counted the packet.
    pub is_rule_counted: bool,
    /// The reason for which a packet was dropped.
    pub dropped: Option<DropReason>,
    /// Whether the packet waits for replicas or for its other fragments.
    pub is_held: bool,
    /// The first frames that left.
    pub outputs: [Option<TracedOutput>; OUTPUTS_TRACED],
    /// Number of all frames that left.
    pub outputs_total: u64,
}

/// What is read of a frame before it is processed.
#[derive(Clone, Copy)]
struct Preview {
    step: TracedStep,
    home: Option<Home>,
    key: FlowKey,
    hash: weir_nat::Hash,
    fits_fast_path: bool,
}

impl FrameCopy {
    /// Copies the front of a frame.
    pub fn new(bytes: &[u8]) -> Self {
        let kept = bytes.len().min(FRAME_BYTES);
        let mut copy = Self { bytes: [0; FRAME_BYTES], kept: kept as u16, len: bytes.len() as u16 };
        copy.bytes[..kept].copy_from_slice(&bytes[..kept]);
        copy
    }

    /// Returns the front of the frame, from its Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.kept)]
    }
}

impl<F: Frame> Engine<F> {
    /// Whether a trace is about the packet of a frame. Changes nothing.
    #[cold]
    pub fn is_traced(&self, side: Side, frame: &F, filter: &TraceFilter) -> bool {
        if filter.side.is_some_and(|only| only != side) {
            return false;
        }
        let preview = self.preview(side, frame);
        let remote = match side {
            Side::Access => preview.key.destination,
            Side::Internet => preview.key.source,
        };
        let has_key = preview.has_key();
        let is_of = |protocol| has_key && preview.key.protocol == protocol;
        let home = || self.home_of(side, &preview).map(|home| self.nat.outer_address(&home));
        filter.protocol.is_none_or(is_of)
            && filter.remote.is_none_or(|range| has_key && has(&range, remote))
            && filter.subscriber.is_none_or(|outer| home() == Some(outer))
    }

    /// Processes one frame as [`receive`](Self::receive) does, and records its way.
    #[cold]
    pub fn receive_traced<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        now: Now,
        frames: &mut Vec<F>,
        pool: &mut P,
        out: &mut Output<F>,
    ) -> Option<PacketTrace> {
        let frame = frames.first()?;
        if side == Side::Access && self.preview_step(frame) == UpstreamStep::UnknownHome {
            // A home gets its handle now, as it would when the packet is served.
            let _ = self.intern_home(frame);
        }
        let copy = FrameCopy::new(frame.data());
        let preview = self.preview(side, frame);
        let before = self.look_up_traced(side, &preview, now);
        let rule = before.and_then(|before| before.rule);
        let hits = |engine: &Self| rule.map(|it| engine.nat.admin().rule_hits(it.rule));
        let hits_before = hits(self);
        let drops_before = self.drops();
        let (held_before, sent_before) = (self.frames_held(), out.lengths());
        let home = self.home_of(side, &preview);
        let outer = home.map(|home| self.nat.outer_address(&home));
        self.receive(side, now, frames, pool, out);
        let drops = self.drops();
        let changed =
            |reason: &&DropReason| drops[**reason as usize] != drops_before[**reason as usize];
        let mut outputs = [None; OUTPUTS_TRACED];
        let sent = out.added(sent_before);
        for (output, (side, frame)) in outputs.iter_mut().zip(sent) {
            *output = Some(TracedOutput { side, frame: FrameCopy::new(frame.data()) });
        }
        Some(PacketTrace {
            at_ms: now.ms,
            side,
            frame: copy,
            step: preview.step,
            home,
            outer,
            flow: preview.has_key().then(|| preview.flow()),
            before,
            after: self.look_up_traced(side, &preview, now),
            is_rule_counted: hits(self) != hits_before,
            dropped: DropReason::ALL.iter().find(changed).copied(),
            is_held: self.frames_held() > held_before,
            outputs,
            outputs_total: out.count(sent_before),
        })
    }

    fn preview_step(&self, frame: &F) -> UpstreamStep {
        let step = self.access_input(frame, &mut { Upstream::EMPTY });
        step.unwrap_or_else(UpstreamStep::Discard)
    }

    /// Reads the headers of a frame.
    fn preview(&self, side: Side, frame: &F) -> Preview {
        match side {
            Side::Access => {
                let mut packet = Upstream::EMPTY;
                let step = self.access_input(frame, &mut packet);
                let step = step.unwrap_or_else(UpstreamStep::Discard);
                let has_home = packet.home != Upstream::EMPTY.home;
                Preview {
                    step: up_step(step),
                    home: has_home.then_some(packet.home),
                    key: packet.key,
                    hash: packet.hash,
                    fits_fast_path: packet.fits_fast_path,
                }
            }
            Side::Internet => {
                let mut packet = Downstream::EMPTY;
                let step = self.internet_input(frame, &mut packet);
                let step = step.unwrap_or_else(DownstreamStep::Discard);
                Preview {
                    step: down_step(step),
                    home: None,
                    key: packet.key,
                    hash: packet.hash,
                    fits_fast_path: packet.fits_fast_path,
                }
            }
        }
    }

    fn home_of(&self, side: Side, preview: &Preview) -> Option<Home> {
        match side {
            Side::Access => preview.home,
            Side::Internet if !preview.has_key() => None,
            Side::Internet => {
                let FlowKey { destination, protocol, .. } = preview.key;
                self.nat.admin().home_behind(destination, protocol)
            }
        }
    }

    fn look_up_traced(&self, side: Side, preview: &Preview, now: Now) -> Option<TracedLookUp> {
        let has_own_key =
            matches!(preview.key.kind, PacketKind::Session | PacketKind::FirstFragment);
        if !has_own_key || preview.step != TracedStep::Translate {
            return None;
        }
        let (nat, now) = (self.nat.admin(), now.tick());
        let FlowKey { source, destination, protocol, tcp_flags, .. } = preview.key;
        Some(match side {
            Side::Access => {
                let packet = Upstream { home: preview.home?, key: preview.key, ..Upstream::EMPTY };
                nat.trace_outbound(preview.hash, &packet.outbound(), now)
            }
            Side::Internet => {
                let packet = Inbound { public: destination, remote: source, protocol, tcp_flags };
                nat.trace_inbound(preview.hash, &packet, now)
            }
        })
    }

    fn drops(&self) -> [u64; DropReason::ALL.len()] {
        std::array::from_fn(|at| self.counters.dropped(DropReason::ALL[at]))
    }

    /// Returns the number of frames that wait for replicas or for other fragments.
    fn frames_held(&self) -> u64 {
        let fragments: u64 = self.fragments.uses().iter().skip(3).map(|table| table.used).sum();
        self.held.len() as u64 + fragments
    }
}

impl Preview {
    /// Whether the headers were read as far as the key.
    fn has_key(&self) -> bool {
        self.step == TracedStep::Translate
    }

    fn flow(&self) -> TracedFlow {
        let FlowKey { kind, protocol, source, destination, tcp_flags } = self.key;
        TracedFlow {
            kind: match kind {
                PacketKind::Session => TracedKind::Whole,
                PacketKind::FirstFragment => TracedKind::FirstFragment,
                PacketKind::LaterFragment => TracedKind::LaterFragment,
                PacketKind::IcmpError => TracedKind::IcmpError,
                PacketKind::IcmpReply => TracedKind::IcmpReply,
            },
            protocol,
            source,
            destination,
            tcp_flags,
            hash: self.hash.0,
            fits_fast_path: self.fits_fast_path,
        }
    }
}

fn up_step(step: UpstreamStep) -> TracedStep {
    match step {
        UpstreamStep::Translate => TracedStep::Translate,
        UpstreamStep::Stray | UpstreamStep::StrayDown => TracedStep::Redirected,
        UpstreamStep::Arp
        | UpstreamStep::Pong
        | UpstreamStep::KeepaliveBack
        | UpstreamStep::Datagram => TracedStep::Local,
        // No home may have this address.
        UpstreamStep::UnknownHome => TracedStep::Drop(DropReason::NotSubscriber),
        UpstreamStep::OuterFragment => TracedStep::Hold,
        UpstreamStep::TimeExceeded => TracedStep::TimeExceeded,
        UpstreamStep::Discard(reason) => TracedStep::Drop(reason),
    }
}

fn down_step(step: DownstreamStep) -> TracedStep {
    match step {
        DownstreamStep::Translate => TracedStep::Translate,
        DownstreamStep::Stray | DownstreamStep::Hairpin => TracedStep::Redirected,
        DownstreamStep::Arp | DownstreamStep::Pong => TracedStep::Local,
        DownstreamStep::Discard(reason) => TracedStep::Drop(reason),
    }
}

fn has(range: &EndpointRange, endpoint: Endpoint) -> bool {
    (endpoint.address ^ range.network) & range.mask == 0
        && range.port.is_none_or(|port| port == endpoint.port)
}
