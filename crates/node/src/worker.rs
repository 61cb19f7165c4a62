//! The worker's loop. Hot: no allocation, lock, system call or log line per packet.
//!
//! ```text
//!   now -> rx internet -> engine -> rx access -> engine -> (a member: datagrams, orders) -> tick -> tx both
//!       -> request -> events -> board -> rest
//! ```
//!
//! The clock is read once per turn, the timestamp counter also around the tick. Everything besides packets has a budget per turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use weir_config::Poll;
use weir_dpdk::{Mbuf, MbufPool, RxQueue, TxQueue, tsc};
use weir_engine::{BURST_MAX, Direction, Engine, Now, Output, Side};
use weir_member::LATE_MAX_US;
use weir_records::BlockLogSender;
use weir_wire::frame::Frame;

use crate::back_off::{BackOff, Rest};
use crate::block_events::to_log;
use crate::board::Board;
use crate::capture::Tap;
use crate::clock::Clock;
use crate::cluster::WorkerPart;
use crate::desk::Desk;
use crate::publisher::Publisher;

/// Block events handed to the log per turn.
const EVENTS_PER_TURN: usize = 64;

/// One side's port in the worker's hands.
#[derive(Debug)]
pub(crate) struct PortQueues {
    pub rx: RxQueue,
    pub tx: TxQueue,
}

/// Everything one worker owns.
#[derive(Debug)]
pub(crate) struct Worker {
    pub engine: Engine<Mbuf>,
    pub pool: MbufPool,
    pub access: PortQueues,
    pub internet: PortQueues,
    pub board: Arc<Board>,
    pub desk: Desk,
    pub publisher: Publisher,
    pub block_log: Option<BlockLogSender>,
    pub clock: Clock,
    pub poll: Poll,
    pub is_stopping: Arc<AtomicBool>,
    /// Its part in a cluster; none on a node of its own.
    pub part: Option<Box<WorkerPart>>,
}

/// Bursts that are late in a port's ring, at most: more than fit into any.
const LATE_BURSTS_MAX: usize = 512;

/// What a turn did.
struct Turn {
    packets: usize,
    /// Something else than packets wants the next turn soon.
    is_busy_elsewhere: bool,
}

impl Worker {
    /// Forwards until the node stops.
    pub(crate) fn run(mut self) {
        let mut frames = Vec::with_capacity(BURST_MAX);
        let mut out = Output::new();
        let now = self.clock.now();
        self.engine.start(engine_now(now), &mut self.pool, &mut out);
        self.send(now, &mut out);
        let mut back_off = BackOff::default();
        while !self.is_stopping.load(Relaxed) {
            let turn = self.turn(&mut frames, &mut out);
            if turn.is_busy_elsewhere || self.poll == Poll::Busy {
                back_off.wake();
                continue;
            }
            if turn.packets > 0 {
                back_off.found(turn.packets);
                continue;
            }
            self.publisher.rest(tsc(), &self.board);
            match back_off.rest() {
                Rest::Spin => std::hint::spin_loop(),
                Rest::Sleep(time) => std::thread::sleep(time),
            }
        }
        self.let_go(&mut out);
        self.publisher.publish_all(&self.engine, &self.board);
        self.log_blocks(usize::MAX);
    }

    /// The end: nothing waits for copies any more.
    fn let_go(&mut self, out: &mut Output<Mbuf>) {
        let now = self.clock.now();
        let mut is_more = true;
        while is_more {
            is_more = self.engine.release_all(engine_now(now), out);
            self.send(now, out);
        }
    }

    fn turn(&mut self, frames: &mut Vec<Mbuf>, out: &mut Output<Mbuf>) -> Turn {
        let cycles = tsc();
        let now = self.clock.now();
        if let Some(part) = &mut self.part {
            let standstill_us = part.standstill_us(now);
            let is_fenced = part.is_fenced();
            if is_fenced || standstill_us.is_some() {
                self.go_on(standstill_us.unwrap_or_default(), is_fenced, frames, out);
            }
        }
        // The internet first: in a replay of capture files its gateway's ARP reply is there before the homes' packets.
        let mut packets = self.receive(Side::Internet, now, frames, out);
        packets += self.receive(Side::Access, now, frames, out);
        let has_mail = match &mut self.part {
            Some(part) => part.turn(now, &mut self.engine, &mut self.pool, out),
            None => false,
        };
        let tick_began = tsc();
        self.engine.tick(engine_now(now), &mut self.pool, out);
        let has_ticked = self.board.ticks.enter(tsc().wrapping_sub(tick_began));
        self.send(now, out);
        if packets > 0 {
            self.board.busy_packets.add(packets as u64);
            self.board.busy_cycles.add(tsc().wrapping_sub(cycles));
        }
        let is_busy_elsewhere = self.desk.serve(self.engine.nat_mut(), now) || has_mail;
        self.log_blocks(EVENTS_PER_TURN);
        let has_work = packets > 0 || is_busy_elsewhere || has_ticked;
        self.publisher.publish(now, cycles, has_work, &self.engine, &self.board);
        Turn { packets, is_busy_elsewhere }
    }

    /// Goes on after it stood still, or after the guard took it for dead.
    #[cold]
    fn go_on(
        &mut self,
        standstill_us: u64,
        is_fenced: bool,
        frames: &mut Vec<Mbuf>,
        out: &mut Output<Mbuf>,
    ) {
        // What waited for copies has been sent again by now; it counts as a drop.
        self.engine.discard_held(engine_now(self.clock.now()));
        let waited = match standstill_us <= LATE_MAX_US {
            true => self.forward_late(frames, out),
            false => self.discard_waiting(frames),
        };
        if let Some(part) = self.part.as_mut().filter(|_| is_fenced) {
            part.rejoin(waited);
        }
    }

    /// What waits in its rings is late, and others may serve its shards by now: what has a mapping is translated, nothing
    /// begins. Returns how many packets there were.
    #[cold]
    fn forward_late(&mut self, frames: &mut Vec<Mbuf>, out: &mut Output<Mbuf>) -> usize {
        let mut waited = 0;
        self.engine.begin_late();
        for side in [Side::Internet, Side::Access] {
            for _ in 0..LATE_BURSTS_MAX {
                let now = self.clock.now();
                let packets = self.receive(side, now, frames, out);
                if let Some(part) = &mut self.part {
                    part.take_datagrams(now, &mut self.engine, &mut self.pool, out);
                }
                self.send(now, out);
                if packets == 0 {
                    break;
                }
                waited += packets;
            }
        }
        self.engine.end_late();
        self.board.late_packets.add(waited as u64);
        waited
    }

    /// What waits in its rings is too late for anybody. Returns how many packets there were.
    #[cold]
    fn discard_waiting(&mut self, frames: &mut Vec<Mbuf>) -> usize {
        let mut discarded = 0;
        for port in [&mut self.access, &mut self.internet] {
            for _ in 0..LATE_BURSTS_MAX {
                let packets = port.rx.burst(frames, BURST_MAX);
                if packets == 0 {
                    break;
                }
                discarded += packets;
                frames.clear();
            }
        }
        self.board.late_discarded.add(discarded as u64);
        discarded
    }

    fn receive(
        &mut self,
        side: Side,
        now: Duration,
        frames: &mut Vec<Mbuf>,
        out: &mut Output<Mbuf>,
    ) -> usize {
        let port = match side {
            Side::Access => &mut self.access,
            Side::Internet => &mut self.internet,
        };
        let packets = port.rx.burst(frames, BURST_MAX);
        if packets == 0 {
            return 0;
        }
        if let Some(tap) = self.desk.tap() {
            copy(tap, side, Direction::Receive, now, frames, &self.board);
        }
        self.engine.receive(side, engine_now(now), frames, &mut self.pool, out);
        packets
    }

    fn send(&mut self, now: Duration, out: &mut Output<Mbuf>) {
        for side in Side::ALL {
            let (port, frames) = match side {
                Side::Access => (&mut self.access, &mut out.access),
                Side::Internet => (&mut self.internet, &mut out.internet),
            };
            if frames.is_empty() {
                continue;
            }
            if let Some(tap) = self.desk.tap() {
                copy(tap, side, Direction::Transmit, now, frames, &self.board);
            }
            let offered = frames.len() as u64;
            let bytes: u64 = frames.iter().map(|frame| frame.data().len() as u64).sum();
            let sent = port.tx.burst(frames) as u64;
            // What the device did not take is freed already; its bytes are taken as average.
            self.board.engine.count(side, Direction::Transmit, sent, bytes * sent / offered);
            self.board.tx_dropped[side as usize].set(port.tx.dropped());
        }
    }

    /// Hands block events to the log's own thread; without a log they are only taken out of the NAT's ring.
    fn log_blocks(&mut self, events_max: usize) {
        let Some(first) = self.engine.next_event() else { return };
        let at = SystemTime::now();
        let mut next = Some(first);
        let mut events = 0;
        while let Some(event) = next {
            if let Some(log) = &mut self.block_log {
                // A full ring is counted by the log itself.
                let _ = log.push(to_log(&event), at);
            }
            events += 1;
            next = if events < events_max { self.engine.next_event() } else { None };
        }
    }
}

#[inline]
pub(crate) fn engine_now(now: Duration) -> Now {
    Now { ms: now.as_secs() * 1000 + u64::from(now.subsec_millis()) }
}

/// Off the straight path: only while a capture runs.
#[cold]
fn copy(
    tap: &mut Tap,
    side: Side,
    direction: Direction,
    now: Duration,
    frames: &[Mbuf],
    board: &Board,
) {
    let lost = tap.copy(side, direction, now, frames.iter().map(Frame::data));
    if lost > 0 {
        board.capture_dropped.add(lost);
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
