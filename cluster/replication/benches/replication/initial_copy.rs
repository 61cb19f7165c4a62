//! The first copy of a worker with millions of flows to a replica that has none of them.
//!
//! ```text
//!   busy      each worker has more packets than it can handle: each turn takes a full burst
//!   not busy  turns of half a burst, and no packet waits
//! ```
//!
//! Both workers share one core and one clock; each counts its own time. Two more workers hear each
//! other and pass the same packets without a copy, in alternating rounds, so that the machine's
//! speed and its other load cancel out.

use weir_engine::Side;
use weir_map::ShardId;
use weir_replication::WorkerEvent;

use crate::clock::Clock;
use crate::frame::BufferFrame;
use crate::worker::{BURST, Group, Room, Worker};
use crate::{report, upstream};

/// Flows of the worker, which are copied, and of the replica.
const FLOWS: [u32; 2] = [5_000_000, 250_000];
const ROOM: Room = Room { flows_max: 6_000_000, homes: 4_000 };
/// Rounds of busy workers, of this many turns each: some pieces of the copy are in each.
const ROUNDS: usize = 400;
const TURNS: usize = 256;
/// A turn that takes longer was interrupted by the machine: it does not count.
const TURN_MAX_NS: u64 = 200_000;
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
    /// Nanoseconds and packets of the turns of a round.
    spent_ns: u64,
    passed: usize,
}

impl Case {
    fn new(index: usize, group: Group, load: Load, clock: &mut Clock) -> Self {
        let host = 1 + index as u32;
        let worker = Worker::new(host, group, ROOM, clock.now_us());
        let flows = FLOWS[index];
        let mut case =
            Self { worker, flows, host, load, next: 0, waiting: 0, spent_ns: 0, passed: 0 };
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
        let now_us = clock.now_us();
        let spent_ns = Clock::measure(|| self.worker.turn_once(now_us));
        self.waiting -= self.waiting.min(BURST);
        self.worker.answer();
        if spent_ns < TURN_MAX_NS {
            clock.pass(spent_ns);
            self.spent_ns += spent_ns;
            self.passed += self.worker.sent(Side::Internet).len();
        }
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

    /// Returns the nanoseconds per packet since the last call.
    fn take_ns_per_packet(&mut self) -> f64 {
        let (spent_ns, passed) = (self.spent_ns, self.passed);
        (self.spent_ns, self.passed) = (0, 0);
        spent_ns as f64 / passed as f64
    }
}

/// Two workers; the first copies its flows to the second.
struct Copying {
    cases: [Case; 2],
    clock: Clock,
    mail: [Vec<BufferFrame>; 2],
}

impl Copying {
    fn new(group: Group, load: Load) -> Self {
        let mut clock = Clock::default();
        let cases = [0, 1].map(|index| Case::new(index, group, load, &mut clock));
        Self { cases, clock, mail: [Vec::new(), Vec::new()] }
    }

    /// Runs a turn of each worker. Returns whether the copy is complete.
    fn run_together(&mut self) -> bool {
        for (index, case) in self.cases.iter_mut().enumerate() {
            let datagrams = case.pass(&mut self.mail[index], &mut self.clock);
            self.mail[1 - index].extend(datagrams);
        }
        self.cases[1].worker.take_events().contains(&WorkerEvent::CopyDone(ShardId(1)))
    }

    fn set_load(&mut self, load: Load) {
        self.cases.iter_mut().for_each(|case| case.load = load);
    }

    /// Runs turns with room until the worker has the flows of the replica, so that one copy is
    /// under way.
    fn copy_back(&mut self) {
        self.set_load(Load::NotBusy);
        while !self.cases[0].worker.take_events().contains(&WorkerEvent::CopyDone(ShardId(2))) {
            self.run_together();
        }
        self.set_load(Load::Busy);
    }

    fn copied(&self) -> u32 {
        self.cases[1].worker.flows() - FLOWS[1]
    }

    fn take_ns_per_packet(&mut self) -> [f64; 2] {
        self.cases.each_mut().map(Case::take_ns_per_packet)
    }
}

pub(crate) fn run(cycles: f64) {
    println!("first copy of {} flows, both workers on one core", FLOWS[0]);
    copy_between_busy_workers(cycles);
    copy_between_workers_with_room();
}

fn copy_between_busy_workers(cycles: f64) {
    let mut with = Copying::new(Group::PAIR, Load::Busy);
    let mut without = Copying::new(Group { is_copied: false, ..Group::PAIR }, Load::Busy);
    with.copy_back();
    for pair in [&mut with, &mut without] {
        (0..TURNS).for_each(|_| _ = pair.run_together());
        pair.take_ns_per_packet();
    }
    let copied_before = with.copied();
    let mut costs = [Vec::new(), Vec::new()];
    let (began_us, mut is_done) = (with.clock.now_us(), false);
    while !is_done && costs[0].len() < ROUNDS {
        for _ in 0..TURNS {
            is_done |= with.run_together();
            without.run_together();
        }
        let both = [&mut with, &mut without].map(Copying::take_ns_per_packet);
        for (worker, costs) in costs.iter_mut().enumerate() {
            costs.push((both[0][worker], both[1][worker]));
        }
    }
    let took_sec = (with.clock.now_us() - began_us) as f64 / 1e6;
    let copied = f64::from(with.copied() - copied_before);
    let in_all_sec = took_sec * f64::from(FLOWS[0]) / copied;
    let packets = (costs[0].len() * TURNS * BURST) as f64;
    println!(
        "busy: {in_all_sec:.1} s at the pace of {:.2} M of them, one flow with {:.1} packets",
        copied / 1e6,
        packets / copied
    );
    for (name, costs) in ["packet of the sender", "packet of the receiver"].iter().zip(&mut costs) {
        report(name, costs, cycles);
    }
}

fn copy_between_workers_with_room() {
    let mut pair = Copying::new(Group::PAIR, Load::NotBusy);
    let began_us = pair.clock.now_us();
    while !pair.run_together() {}
    let took_sec = (pair.clock.now_us() - began_us) as f64 / 1e6;
    let flows = pair.copied();
    assert!(flows > FLOWS[0] / 100 * 99, "the replica has {flows} flows");
    println!("not busy: {took_sec:.1} s");
}
