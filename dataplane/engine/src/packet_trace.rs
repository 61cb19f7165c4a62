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

use std::net::SocketAddr;

use weir_nat::{
    FamilyRange, Home, HomeSelector, HomeView, Inbound, Outbound, OuterAddress, Protocol,
    TracedLookUp,
};
use weir_wire::frame::{Frame, Pool};

use crate::engine::{Engine, Now};
use crate::flow_key::FlowKey;
use crate::packet_preview::{Preview, PreviewKey};
use crate::{DropReason, Output, Side};

/// Bytes of a frame that a trace keeps: all of it on most links.
const FRAME_BYTES: usize = 1600;
/// Frames that a trace keeps of those that leave for one packet.
pub const OUTPUTS_TRACED: usize = 2;

/// The packets that a trace is about: all of this fits. `None` fits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    pub side: Option<Side>,
    /// Inside IPv6 addresses also select packets from and to them that are of no home.
    pub subscriber: Option<HomeSelector>,
    pub protocol: Option<Protocol>,
    pub remote: Option<FamilyRange>,
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
    /// To translate it, or to forward it (IPv6).
    Translate,
    /// As [`Translate`](Self::Translate), of what another worker redirected here.
    Redirected,
    /// To answer or to take it itself: ARP, neighbor discovery, a ping, a GRE keepalive, a datagram
    /// of replication.
    Local,
    /// To hold a fragment of a tunnel packet until the packet is whole.
    Hold,
    /// To send an ICMP error because of its TTL, or its hop limit.
    TimeExceeded,
    /// To drop it.
    Drop(DropReason),
}

/// Kind of a packet that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedKind {
    Whole,
    FirstFragment,
    LaterFragment,
    IcmpError,
    IcmpReply,
}

/// The key of a packet to translate or to forward. A later fragment has ports 0; of an ICMPv6 echo
/// the port of the home is the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedFlow {
    pub kind: TracedKind,
    /// `None` of a later fragment that does not say it.
    pub protocol: Option<Protocol>,
    pub source: SocketAddr,
    pub destination: SocketAddr,
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
    /// The home: of a packet from homes as its tunnel or its address says, of others as their
    /// record or, in IPv6, their destination says.
    pub home: Option<HomeView>,
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
        let has_remote = |range: FamilyRange| {
            let remote = |flow: TracedFlow| match side {
                Side::Access => flow.destination,
                Side::Internet => flow.source,
            };
            preview.flow.is_some_and(|flow| range.has(remote(flow)))
        };
        let protocol = preview.flow.and_then(|flow| flow.protocol);
        filter.protocol.is_none_or(|wanted| protocol == Some(wanted))
            && filter.remote.is_none_or(has_remote)
            && filter.subscriber.is_none_or(|name| self.is_of_subscriber(side, &preview, name))
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
        let mut preview = self.preview(side, frame);
        if let Some(unknown) = preview.unknown.filter(|_| preview.step != TracedStep::Hold) {
            // A home gets its handle now, as it would when the packet is served.
            match self.nat.intern_outer(unknown.outer) {
                Some(_) => preview = self.preview(side, frame),
                None => preview.step = TracedStep::Drop(DropReason::NotSubscriber),
            }
        }
        let copy = FrameCopy::new(frame.data());
        let home = self.home_of(side, &preview).or_else(|| self.silent_home(side, &preview));
        let shown = self.home_shown(&preview, home);
        let outer = home.map(|home| self.nat.outer_address(&home));
        let before = self.look_up_traced(side, &preview, home, now);
        let rule = before.and_then(|before| before.rule);
        let hits = |engine: &Self| rule.map(|it| engine.nat.admin().rule_hits(it.rule));
        let hits_before = hits(self);
        let drops_before = self.drops();
        let (held_before, sent_before) = (self.frames_held(), out.lengths());
        self.receive(side, now, frames, pool, out);
        let drops = self.drops();
        let changed =
            |reason: &&DropReason| drops[**reason as usize] != drops_before[**reason as usize];
        let mut outputs = [None; OUTPUTS_TRACED];
        let sent = out.added(sent_before);
        for (output, (side, frame)) in outputs.iter_mut().zip(sent) {
            *output = Some(TracedOutput { side, frame: FrameCopy::new(frame.data()) });
        }
        let home = home.zip(outer).and_then(|(home, outer)| self.home_again(&home, outer));
        Some(PacketTrace {
            at_ms: now.ms,
            side,
            frame: copy,
            step: preview.step,
            home: shown,
            flow: preview.flow,
            before,
            after: self.look_up_traced(side, &preview, home, now),
            is_rule_counted: hits(self) != hits_before,
            dropped: DropReason::ALL.iter().find(changed).copied(),
            is_held: self.frames_held() > held_before,
            outputs,
            outputs_total: out.count(sent_before),
        })
    }

    /// Returns the home that has the inside address of an IPv6 packet from the internet, though it
    /// holds no state: rules are asked about it.
    fn silent_home(&mut self, side: Side, preview: &Preview) -> Option<Home> {
        let Some(PreviewKey::Ipv6(packet)) = preview.key.filter(|_| side == Side::Internet) else {
            return None;
        };
        let inside = packet.key.inside().address;
        let shard = self.nat.shard_of_inside6(inside)?;
        self.nat.admin_mut().home_with_inside6(shard, inside)
    }

    /// Returns a home as it is known now: one with a tunnel over IPv6 that held no state when a
    /// burst began has another handle since.
    fn home_again(&self, home: &Home, outer: OuterAddress) -> Option<Home> {
        match outer {
            OuterAddress::Ipv4(_) => Some(*home),
            OuterAddress::Ipv6(address) => {
                self.nat.find_outer(address).map(|outer| Home { outer, ..*home })
            }
        }
    }

    fn look_up_traced(
        &self,
        side: Side,
        preview: &Preview,
        home: Option<Home>,
        now: Now,
    ) -> Option<TracedLookUp> {
        let has_own_key = preview
            .flow
            .is_some_and(|flow| matches!(flow.kind, TracedKind::Whole | TracedKind::FirstFragment));
        if !has_own_key || preview.step != TracedStep::Translate {
            return None;
        }
        let (nat, now) = (self.nat.admin(), now.tick());
        Some(match (side, preview.key?) {
            (Side::Access, PreviewKey::Ipv4(key)) => {
                let FlowKey { source, destination, protocol, tcp_flags, .. } = key;
                let home = home?;
                let (inside, remote) = (source, destination);
                let hash = self.nat.outbound_hash(&home, inside, protocol);
                let packet = Outbound { home, inside, remote, protocol, tcp_flags };
                nat.trace_outbound(hash, &packet, now)
            }
            (Side::Internet, PreviewKey::Ipv4(key)) => {
                let FlowKey { source, destination, protocol, tcp_flags, .. } = key;
                let hash = self.nat.inbound_hash(destination, protocol);
                let packet = Inbound { public: destination, remote: source, protocol, tcp_flags };
                nat.trace_inbound(hash, &packet, now)
            }
            (Side::Access, PreviewKey::Ipv6(packet)) => nat.trace_outbound6(&packet, &home?, now),
            (Side::Internet, PreviewKey::Ipv6(packet)) => {
                nat.trace_inbound6(&packet, home.as_ref(), now)
            }
        })
    }

    fn drops(&self) -> [u64; DropReason::ALL.len()] {
        std::array::from_fn(|at| self.counters.dropped(DropReason::ALL[at]))
    }

    /// Returns the number of frames that wait for replicas or for other fragments.
    fn frames_held(&self) -> u64 {
        let fragments =
            self.fragments.early_fragments() + self.outer_fragments.cache.early_fragments();
        self.held.len() as u64 + fragments
    }
}
