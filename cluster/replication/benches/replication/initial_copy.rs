//! An initial copy: a worker with millions of flows gets a replica that has none of them, while
//! packets run.

use weir_engine::Side;
use weir_map::ShardId;
use weir_replication::WorkerEvent;

use crate::clock::Clock;
use crate::frame::BufferFrame;
use crate::worker::{BURST, Group, Room, Worker};
use crate::{median, upstream};

const FLOWS: u32 = 5_000_000;
const ROOM: Room = Room { flows_max: 6_000_000, homes: 4_000 };
/// Packets before the copy, to compare it with.
const PACKETS: u32 = 2_000_000;
/// Turns that are measured together.
const TURNS: usize = 64;
/// Coprime to `FLOWS`: packets meet their flows in no order.
const STRIDE: u32 = 1_000_003;

struct Case {
    worker: Worker,
    clock: Clock,
    packets: u32,
}

impl Case {
    /// Runs a turn of the worker with these flows' packets; returns its datagrams to the replica,
    /// and the nanoseconds.
    fn turn(
        &mut self,
        flows: impl Iterator<Item = u32>,
        mail: Vec<BufferFrame>,
    ) -> (Vec<BufferFrame>, u64) {
        let Self { worker, clock, .. } = self;
        let packets: Vec<_> = flows.map(|n| worker.filled(&upstream(1, n, ROOM.homes))).collect();
        worker.arrive(Side::Access, packets);
        worker.arrive(Side::Access, mail);
        let spent_ns = clock.time(|now_us| worker.turn(now_us));
        worker.answer();
        assert_eq!(worker.sent(Side::Internet).len(), BURST, "every packet passes");
        let datagrams = worker.take_datagrams();
        worker.clear();
        (datagrams, spent_ns)
    }

    /// Runs a turn with a burst of packets of existing flows.
    fn pass(&mut self, mail: Vec<BufferFrame>) -> (Vec<BufferFrame>, u64) {
        let first = self.packets;
        self.packets += BURST as u32;
        let flow = |n: u32| (u64::from(n) * u64::from(STRIDE) % u64::from(FLOWS)) as u32;
        self.turn((first..self.packets).map(flow), mail)
    }
}

/// Takes a burst of the waiting datagrams.
fn batch(mail: &mut Vec<BufferFrame>) -> Vec<BufferFrame> {
    mail.drain(..mail.len().min(BURST)).collect()
}

pub(crate) fn run(cycles: f64) {
    let clock = Clock::default();
    let worker = Worker::new(1, Group::PAIR, ROOM, clock.now_us());
    let mut case = Case { worker, clock, packets: 0 };
    for first in (0..FLOWS).step_by(BURST) {
        case.turn(first..first + BURST as u32, Vec::new());
    }
    let mut before = Vec::new();
    while case.packets < PACKETS {
        before.push(case.pass(Vec::new()).1 as f64);
    }

    let mut replica = Worker::new(2, Group::PAIR, ROOM, case.clock.now_us());
    let (mut to_worker, mut to_replica) = (Vec::new(), Vec::new());
    let (began_us, mut during, mut is_done) = (case.clock.now_us(), Vec::new(), false);
    while !is_done {
        let (sent, spent_ns) = case.pass(batch(&mut to_worker));
        during.push(spent_ns as f64);
        to_replica.extend(sent);
        replica.arrive(Side::Access, batch(&mut to_replica));
        case.clock.time(|now_us| replica.turn(now_us));
        replica.answer();
        to_worker.extend(replica.take_datagrams());
        is_done = replica.take_events().contains(&WorkerEvent::CopyDone(ShardId(1)));
    }
    let took_sec = (case.clock.now_us() - began_us) as f64 / 1e6;
    // The copy advances in some turns only. Medians, so that other load of the machine does not
    // count.
    let per_packet = |turns: Vec<f64>| {
        let mut sums: Vec<_> = turns.chunks_exact(TURNS).map(|turns| turns.iter().sum()).collect();
        median(&mut sums) / (TURNS * BURST) as f64 * cycles
    };
    let [before, during] = [before, during].map(per_packet);
    let flows = replica.flows();
    assert!(flows > FLOWS / 100 * 99, "the replica has {flows} flows");
    println!(
        "{:22} {during:7.1} during it, {before:5.1} before: rate {:.3} of it",
        "packet of a worker",
        before / during
    );
    println!("{:22} {FLOWS} flows in {took_sec:.1} s, both on one core", "initial copy");
}
