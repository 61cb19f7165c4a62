//! The turn of a worker's loop. Hot: no allocation, lock, system call or log line per packet.
//!
//! ```text
//!   rx internet -> engine -> rx access -> engine
//!   -> (a member: commands, datagrams, streams, events) -> timers -> tx both
//! ```
//!
//! Everything besides packets has a budget per turn.

use std::time::Duration;

use weir_engine::{BURST_MAX, Direction, Engine, Now, Output, Side};
use weir_replication::LATE_MAX_US;
use weir_wire::frame::Frame;

use crate::link::RolesLink;
use crate::member::ClusterMember;
use crate::ports::Ports;

/// Largest number of late bursts in a port's ring: more than fit into any.
const LATE_BURSTS_MAX: usize = 512;

/// An engine and the state that its turns need, besides the ports.
#[derive(Debug)]
pub struct Worker<F: Frame, L> {
    pub engine: Engine<F>,
    /// Its part in a cluster; none on a node of its own.
    pub member: Option<Box<ClusterMember<L>>>,
    frames: Vec<F>,
    /// One frame at most: a packet of which a trace records the way.
    traced: Vec<F>,
    out: Output<F>,
}

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Packets received, without those that were late.
    pub packets: usize,
    /// A side had a full burst: more packets may wait.
    pub is_full: bool,
    /// There were commands or events, so more may follow at once.
    pub is_busy: bool,
    /// Packets wait for replicas.
    pub is_holding: bool,
    /// Packets that waited while the worker stalled, and were handled as late.
    pub late: usize,
    /// Packets that waited for too long and were discarded.
    pub discarded: usize,
}

impl<F: Frame, L: RolesLink> Worker<F, L> {
    pub fn new(engine: Engine<F>, member: Option<Box<ClusterMember<L>>>) -> Self {
        let (frames, traced) = (Vec::with_capacity(BURST_MAX), Vec::with_capacity(1));
        Self { engine, member, frames, traced, out: Output::new() }
    }

    /// Announces the worker on both sides. Call once, when the ports are up.
    pub fn start(&mut self, now: Duration, ports: &mut impl Ports<Frame = F>) {
        self.engine.start(engine_now(now), ports.pool(), &mut self.out);
        self.send(now, ports);
    }

    /// Runs one turn of the loop.
    #[inline]
    pub fn turn(&mut self, now: Duration, ports: &mut impl Ports<Frame = F>) -> Turn {
        let mut turn = Turn::default();
        if let Some(member) = &mut self.member {
            let stall_us = member.stall_us(now);
            let is_fenced = member.link.is_fenced();
            if is_fenced || stall_us.is_some() {
                self.go_on(stall_us.unwrap_or_default(), is_fenced, ports, &mut turn);
            }
        }
        // The internet first: in a replay of capture files its gateway's ARP reply is there before
        // the homes' packets.
        let internet = self.receive(Side::Internet, now, ports);
        let access = self.receive(Side::Access, now, ports);
        (turn.packets, turn.is_full) = (internet + access, internet.max(access) >= BURST_MAX);
        let Self { engine, member, out, .. } = self;
        if let Some(member) = member {
            member.turn(now, engine, ports.pool(), out, &mut turn);
        }
        ports.run_timers(|pool| engine.tick(engine_now(now), pool, out));
        self.send(now, ports);
        turn
    }

    /// Sends all packets that wait for replicas: at the end of the worker.
    pub fn let_go(&mut self, now: Duration, ports: &mut impl Ports<Frame = F>) {
        let mut is_more = true;
        while is_more {
            is_more = self.engine.release_all(engine_now(now), &mut self.out);
            self.send(now, ports);
        }
    }

    /// Resumes after a stall, or after the guard declared the worker dead.
    #[cold]
    fn go_on(
        &mut self,
        stall_us: u64,
        is_fenced: bool,
        ports: &mut impl Ports<Frame = F>,
        turn: &mut Turn,
    ) {
        // Packets that waited for copies have been sent again by now; they count as drops.
        self.engine.discard_held(engine_now(ports.now()));
        match stall_us <= LATE_MAX_US {
            true => turn.late = self.forward_late(ports),
            false => turn.discarded = self.discard_waiting(ports),
        }
        if let Some(member) = self.member.as_mut().filter(|_| is_fenced) {
            member.link.rejoin(turn.late + turn.discarded);
        }
    }

    /// Forwards late packets from the rings. Other workers may serve the shards by now: packets
    /// with a mapping are translated, no flow begins. Returns how many packets there were.
    #[cold]
    fn forward_late(&mut self, ports: &mut impl Ports<Frame = F>) -> usize {
        let mut waited = 0;
        self.engine.begin_late();
        for side in [Side::Internet, Side::Access] {
            for _ in 0..LATE_BURSTS_MAX {
                let now = ports.now();
                let packets = self.receive(side, now, ports);
                let Self { engine, member, out, .. } = self;
                if let Some(member) = member {
                    member.take_datagrams(now, engine, ports.pool(), out);
                }
                self.send(now, ports);
                if packets == 0 {
                    break;
                }
                waited += packets;
            }
        }
        self.engine.end_late();
        waited
    }

    /// Discards packets in the rings that are too late for any receiver. Returns how many packets
    /// there were.
    #[cold]
    fn discard_waiting(&mut self, ports: &mut impl Ports<Frame = F>) -> usize {
        let mut discarded = 0;
        for side in Side::ALL {
            for _ in 0..LATE_BURSTS_MAX {
                let packets = ports.receive(side, &mut self.frames);
                if packets == 0 {
                    break;
                }
                discarded += packets;
                self.frames.clear();
            }
        }
        discarded
    }

    #[inline]
    fn receive(&mut self, side: Side, now: Duration, ports: &mut impl Ports<Frame = F>) -> usize {
        let packets = ports.receive(side, &mut self.frames);
        if packets == 0 {
            return 0;
        }
        if ports.observe(side, Direction::Receive, now, &self.frames) {
            self.trace(side, now, ports);
        }
        let Self { engine, frames, out, .. } = self;
        engine.receive(side, engine_now(now), frames, ports.pool(), out);
        packets
    }

    /// Takes the packets that a trace is about out of a burst, and processes each by itself, before
    /// the rest of the burst.
    #[cold]
    fn trace(&mut self, side: Side, now: Duration, ports: &mut impl Ports<Frame = F>) {
        let Self { engine, frames, traced, out, .. } = self;
        let now = engine_now(now);
        let mut at = 0;
        while at < frames.len() {
            let Some(filter) = ports.trace_filter() else { return };
            if !engine.is_traced(side, &frames[at], &filter) {
                at += 1;
                continue;
            }
            traced.push(frames.remove(at));
            if let Some(trace) = engine.receive_traced(side, now, traced, ports.pool(), out) {
                ports.take_trace(trace);
            }
        }
    }

    #[inline]
    fn send(&mut self, now: Duration, ports: &mut impl Ports<Frame = F>) {
        for side in Side::ALL {
            let frames = match side {
                Side::Access => &mut self.out.access,
                Side::Internet => &mut self.out.internet,
            };
            if frames.is_empty() {
                continue;
            }
            ports.observe(side, Direction::Transmit, now, frames);
            ports.send(side, frames);
        }
    }
}

#[inline]
pub(crate) fn engine_now(now: Duration) -> Now {
    Now { ms: now.as_secs() * 1000 + u64::from(now.subsec_millis()) }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
