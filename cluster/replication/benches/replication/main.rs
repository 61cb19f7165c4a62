//! The cost of replication: time-stamp counter cycles per new flow and per established packet, with
//! it and without.
//!
//! ```text
//!   with      worker 1: primary of shard 1, replica of shard 2
//!             <--datagrams-->   worker 2: the other way round
//!   without   worker 1: shard 1
//!                               worker 2: shard 2
//! ```
//!
//! `cargo bench -p weir-replication --bench replication`. Each flow is made by one worker and, with
//! replication, appended, sealed, sent, opened, stored and indexed by the other. One thread does it
//! all, in bursts of 64, in short alternating rounds with and without replication, and medians over
//! many, so that the machine's speed and its other load cancel out. As much is on its way when a
//! round ends as when it began. Then the first copy of a large worker to an empty replica, see
//! `initial_copy.rs`.
//!
//! `cargo bench -p weir-replication --bench replication -- commit`: the cost of output commit, see
//! `commit.rs`. `-- copy`: the first copy alone.
//!
//! The workers' clock counts the time that they spend: their core is busy, and packets are made in
//! no time.

mod clock;
mod commit;
mod frame;
mod initial_copy;
mod worker;

use weir_engine::Side;
use weir_wire::build;
use weir_wire::frame::Frame;

use clock::Clock;
use frame::BufferFrame;
use worker::{BURST, Group, Room, Worker, endpoint, gateway_mac, home, mac};

const ROOM: Room = Room { flows_max: 1 << 20, homes: 2_000 };
const ROUNDS: usize = 140;
/// The first rounds touch memory for the first time, and fill the streams.
const FIRST_ROUNDS: usize = 20;
/// New flows of each worker in a round.
const FLOWS: u32 = 2_048;
/// Passes of the packets of these flows in a round of established ones: a few milliseconds, so that
/// a round has its share of rare work.
const PASSES: u32 = 16;

struct Pair {
    workers: [Worker; 2],
    /// Frames for each worker from the other.
    mail: [Vec<BufferFrame>; 2],
    clock: Clock,
    opened: u32,
}

/// Returns a packet of the n-th flow of a worker's homes.
fn upstream(host: u32, n: u32, homes: u32) -> Vec<u8> {
    let inside = u32::from_be_bytes([192, 168, 1, 10]);
    let server = u32::from_be_bytes([198, 51, 100, 1]) + n % 7;
    let port = 10_000 + (n / homes) as u16;
    let inner = build::ipv4(inside, server).udp(port, 443, b"request");
    // The order of homes is scattered, so that the next one is in no cache.
    let number = n.wrapping_mul(613) % homes;
    let outer = build::ipv4(home(host, number), endpoint(host)).gre(build::gre(), inner);
    build::ethernet(mac(Side::Access, host), gateway_mac(Side::Access), &outer)
}

impl Pair {
    fn new(is_replicated: bool) -> Self {
        let clock = Clock::default();
        let group = if is_replicated { Group::PAIR } else { Group::ALONE };
        let mut pair = Self {
            workers: [1, 2].map(|host| Worker::new(host, group, ROOM, clock.now_us())),
            mail: [Vec::new(), Vec::new()],
            clock,
            opened: 0,
        };
        // Runs until both have copied the other's empty lanes.
        let end_us = pair.clock.now_us() + 500_000;
        while is_replicated && pair.clock.now_us() < end_us {
            pair.turns(Side::Access, [Vec::new(), Vec::new()]);
        }
        pair
    }

    /// Runs a turn of each worker; returns the nanoseconds that they took.
    fn turns(&mut self, side: Side, packets: [Vec<BufferFrame>; 2]) -> u64 {
        let mut spent_ns = 0;
        for (index, packets) in packets.into_iter().enumerate() {
            let (worker, mail) = (&mut self.workers[index], &mut self.mail[index]);
            worker.arrive(side, packets);
            // A turn takes at most a burst of the waiting frames.
            worker.arrive(Side::Access, mail.drain(..mail.len().min(BURST)));
            spent_ns += self.clock.time(|now_us| worker.turn(now_us));
            worker.answer();
            let datagrams = worker.take_datagrams();
            self.mail[1 - index].extend(datagrams);
        }
        spent_ns
    }

    fn clear(&mut self) {
        self.workers.iter_mut().for_each(Worker::clear);
    }

    fn packets(&mut self, first: u32) -> [Vec<BufferFrame>; 2] {
        std::array::from_fn(|index| {
            let host = 1 + index as u32;
            let worker = &mut self.workers[index];
            (first..first + BURST as u32)
                .map(|n| worker.filled(&upstream(host, n, ROOM.homes)))
                .collect()
        })
    }

    /// Opens flows at both workers; returns nanoseconds per flow.
    fn open(&mut self) -> f64 {
        let mut spent_ns = 0;
        for first in (self.opened..self.opened + FLOWS).step_by(BURST) {
            let packets = self.packets(first);
            spent_ns += self.turns(Side::Access, packets);
            for worker in &self.workers {
                assert_eq!(worker.sent(Side::Internet).len(), BURST, "every packet passes");
            }
            self.clear();
        }
        self.opened += FLOWS;
        spent_ns as f64 / f64::from(2 * FLOWS)
    }

    /// Sends packets of the flows opened in the last round, both ways; returns nanoseconds per
    /// packet.
    fn pass(&mut self) -> f64 {
        let (mut spent_ns, mut count) = (0, 0);
        for first in (self.opened - FLOWS..self.opened).step_by(BURST) {
            let packets = self.packets(first);
            spent_ns += self.turns(Side::Access, packets);
            let answers = self.answers();
            self.clear();
            count += answers.iter().map(|answers| answers.len() + BURST).sum::<usize>();
            spent_ns += self.turns(Side::Internet, answers);
            for worker in &self.workers {
                assert_eq!(worker.sent(Side::Access).len(), BURST);
            }
            self.clear();
        }
        spent_ns as f64 / count as f64
    }

    /// Runs without packets until all changes are sent, stored and acknowledged.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.clock.pass(100_000);
            self.turns(Side::Access, [Vec::new(), Vec::new()]);
            self.clear();
        }
    }

    /// Returns the servers' answers to the packets that were just sent.
    fn answers(&mut self) -> [Vec<BufferFrame>; 2] {
        std::array::from_fn(|index| {
            let worker = &mut self.workers[index];
            let answer = |frame: &BufferFrame| {
                let ip = &frame.data()[14..];
                let word =
                    |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
                let port = u16::from_be_bytes([ip[20], ip[21]]);
                let packet = build::ipv4(word(16), word(12)).udp(443, port, b"answer");
                let host = 1 + index as u32;
                build::ethernet(mac(Side::Internet, host), gateway_mac(Side::Internet), &packet)
            };
            let answers: Vec<_> = worker.sent(Side::Internet).iter().map(answer).collect();
            answers.iter().map(|answer| worker.filled(answer)).collect()
        })
    }
}

/// Returns the cycles of the time-stamp counter per nanosecond, from the kernel's figure.
fn cycles_per_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz"));
    let mhz = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    mhz.map_or(1.0, |mhz| mhz / 1000.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, pairs: &mut [(f64, f64)], cycles: f64) {
    let mut ratios: Vec<_> = pairs.iter().map(|(with, without)| without / with).collect();
    let [mut with, mut without]: [Vec<_>; 2] = [
        pairs.iter().map(|pair| pair.0 * cycles).collect(),
        pairs.iter().map(|pair| pair.1 * cycles).collect(),
    ];
    let (with, without) = (median(&mut with), median(&mut without));
    println!(
        "{name:22} {with:7.1} with, {without:7.1} without: {:6.1} more, rate {:.3} of it",
        with - without,
        median(&mut ratios)
    );
}

fn main() {
    let cycles = cycles_per_ns();
    let is_asked = |part: &str| std::env::args().any(|word| word == part);
    if is_asked("commit") {
        return commit::run();
    }
    if is_asked("copy") {
        return initial_copy::run(cycles);
    }
    let mut with = Pair::new(true);
    let mut without = Pair::new(false);
    let (mut new, mut answered, mut established) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let opened = (with.open(), without.open());
        // Their first answers change the state of sessions, which is replicated.
        let first = (with.pass(), without.pass());
        if round >= FIRST_ROUNDS {
            new.push(opened);
            answered.push(first);
        }
    }
    // Later packets change nothing.
    with.settle();
    for _ in FIRST_ROUNDS..ROUNDS {
        let mut spent_ns = [0.0; 2];
        for _ in 0..PASSES {
            for (spent_ns, pair) in spent_ns.iter_mut().zip([&mut with, &mut without]) {
                *spent_ns += pair.pass() / f64::from(PASSES);
            }
        }
        established.push(spent_ns.into());
    }
    println!(
        "cycles of the time-stamp counter ({:.0} MHz), medians of {} rounds",
        cycles * 1000.0,
        ROUNDS - FIRST_ROUNDS
    );
    report("new flow", &mut new, cycles);
    report("first answered packet", &mut answered, cycles);
    report("established packet", &mut established, cycles);
    for (host, worker) in (1..).zip(&with.workers) {
        let flows = worker.flows();
        assert!(
            f64::from(flows) > 1.99 * f64::from(with.opened),
            "worker {host} has {flows} flows"
        );
    }
    drop((with, without));
    initial_copy::run(cycles);
}
