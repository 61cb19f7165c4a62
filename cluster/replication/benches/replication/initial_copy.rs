//! The first copy of a worker with millions of flows to a replica that has none of them.
//!
//! ```text
//!   busy      each worker has more packets than it can handle: each turn takes a full burst
//!   not busy  turns of half a burst, and no packet waits
//! ```
//!
//! Both workers share one core and one clock; each counts its own time. Turns without the copy are
//! measured just before, with the same packets at both, so that the difference is the copy.

use weir_engine::Side;
use weir_map::ShardId;
use weir_replication::WorkerEvent;

use crate::clock::Clock;
use crate::frame::BufferFrame;
use crate::upstream;
use crate::worker::{BURST, Group, Room, Worker};

/// Flows of the worker, which are copied, and of the replica.
const FLOWS: [u32; 2] = [5_000_000, 250_000];
const ROOM: Room = Room { flows_max: 6_000_000, homes: 4_000 };
/// Turns that are measured before the copy of a busy worker, and during it.
const TURNS_MEASURED: usize = 131_072;
/// Turns that are measured together: what is done in some turns only is in each sum.
const TURNS: usize = 512;
/// Coprime to `FLOWS`: packets meet their flows in no order.
const STRIDE: u64 = 1_000_003;

/// Packets that come between two turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Another full burst always waits.
    Busy,
    /// Half a burst.
    NotBusy,
}

/// A worker under load.
struct Case {
    worker: Worker,
    flows: u32,
    host: u32,
    load: Load,
    next: u64,
    /// Frames that wait in the port.
    waiting: usize,
    /// Nanoseconds and packets of each turn.
    turns: Vec<(u64, usize)>,
}

impl Case {
    fn new(index: usize, load: Load, clock: &mut Clock) -> Self {
        let host = 1 + index as u32;
        let worker = Worker::new(host, Group::PAIR, ROOM, clock.now_us());
        let (flows, turns) = (FLOWS[index], Vec::new());
        let mut case = Self { worker, flows, host, load, next: 0, waiting: 0, turns };
        for first in (0..flows).step_by(BURST) {
            for n in first..first + BURST as u32 {
                case.arrive(n);
            }
            case.turn(clock);
        }
        case
    }

    fn arrive(&mut self, flow: u32) {
        let frame = self.worker.filled(&upstream(self.host, flow, ROOM.homes));
        self.worker.arrive(Side::Access, [frame]);
        self.waiting += 1;
    }

    /// Runs a turn; returns its datagrams to the other worker.
    fn turn(&mut self, clock: &mut Clock) -> Vec<BufferFrame> {
        let spent_ns = clock.time(|now_us| self.worker.turn_once(now_us));
        self.waiting -= self.waiting.min(BURST);
        self.worker.answer();
        self.turns.push((spent_ns, self.worker.sent(Side::Internet).len()));
        let datagrams = self.worker.take_datagrams();
        self.worker.clear();
        datagrams
    }

    /// Runs a turn with packets of existing flows and with datagrams of the other worker.
    fn pass(&mut self, mail: &mut Vec<BufferFrame>, clock: &mut Clock) -> Vec<BufferFrame> {
        let (burst, ahead) = match self.load {
            Load::Busy => (BURST, BURST),
            Load::NotBusy => (BURST / 2, 0),
        };
        let arrived = mail.len().min(burst / 2);
        self.worker.arrive(Side::Access, mail.drain(..arrived));
        self.waiting += arrived;
        while self.waiting < burst + ahead {
            let flow = self.next * STRIDE % u64::from(self.flows);
            self.next += 1;
            self.arrive(flow as u32);
        }
        self.turn(clock)
    }

    /// Takes the cycles per packet of the turns since the last call: the lowest fifth of the sums is
    /// below it, since other load of the machine only adds.
    fn cycles_per_packet(&mut self, cycles: f64) -> f64 {
        let turns = std::mem::take(&mut self.turns);
        let mut sums: Vec<_> = turns
            .chunks_exact(TURNS)
            .map(|turns| {
                let spent_ns: u64 = turns.iter().map(|turn| turn.0).sum();
                spent_ns as f64 / turns.iter().map(|turn| turn.1).sum::<usize>() as f64
            })
            .collect();
        sums.sort_by(f64::total_cmp);
        sums[sums.len() / 5] * cycles
    }
}

/// Two workers; the first copies its flows to the second.
struct Copying {
    cases: [Case; 2],
    clock: Clock,
    mail: [Vec<BufferFrame>; 2],
}

impl Copying {
    fn new(load: Load) -> Self {
        let mut clock = Clock::default();
        let mut cases = [0, 1].map(|index| Case::new(index, load, &mut clock));
        cases.iter_mut().for_each(|case| case.turns.clear());
        Self { cases, clock, mail: [Vec::new(), Vec::new()] }
    }

    /// Runs turns of workers that do not hear each other.
    fn run_apart(&mut self) {
        for _ in 0..TURNS_MEASURED {
            for case in &mut self.cases {
                let unheard = case.pass(&mut Vec::new(), &mut self.clock);
                unheard.into_iter().for_each(|frame| case.worker.give_back(frame));
            }
        }
    }

    /// Runs a turn of each worker. Returns whether the copy is complete.
    fn run_together(&mut self) -> bool {
        for (index, case) in self.cases.iter_mut().enumerate() {
            let datagrams = case.pass(&mut self.mail[index], &mut self.clock);
            self.mail[1 - index].extend(datagrams);
        }
        self.cases[1].worker.take_events().contains(&WorkerEvent::CopyDone(ShardId(1)))
    }

    fn copied(&self) -> u32 {
        self.cases[1].worker.flows() - FLOWS[1]
    }

    fn cycles_per_packet(&mut self, cycles: f64) -> [f64; 2] {
        self.cases.each_mut().map(|case| case.cycles_per_packet(cycles))
    }
}

pub(crate) fn run(cycles: f64) {
    copy_between_busy_workers(cycles);
    copy_between_workers_with_room();
}

fn copy_between_busy_workers(cycles: f64) {
    let mut pair = Copying::new(Load::Busy);
    pair.run_apart();
    let before = pair.cycles_per_packet(cycles);
    let began_us = pair.clock.now_us();
    for _ in 0..TURNS_MEASURED {
        if pair.run_together() {
            break;
        }
    }
    let during = pair.cycles_per_packet(cycles);
    let took_sec = (pair.clock.now_us() - began_us) as f64 / 1e6;
    let in_all_sec = took_sec * f64::from(FLOWS[0]) / f64::from(pair.copied());
    println!("first copy of {} flows, both workers on one core", FLOWS[0]);
    println!("  busy: {in_all_sec:.1} s at the pace of the first {} flows", pair.copied());
    for (role, (before, during)) in ["sender", "receiver"].iter().zip(before.iter().zip(&during)) {
        println!(
            "    packet of the {role:8} {during:7.1} during it, {before:5.1} before: rate {:.3} \
             of it",
            before / during
        );
    }
}

fn copy_between_workers_with_room() {
    let mut pair = Copying::new(Load::NotBusy);
    let began_us = pair.clock.now_us();
    while !pair.run_together() {}
    let took_sec = (pair.clock.now_us() - began_us) as f64 / 1e6;
    let flows = pair.copied();
    assert!(flows > FLOWS[0] / 100 * 99, "the replica has {flows} flows");
    println!("  not busy: {took_sec:.1} s");
}
