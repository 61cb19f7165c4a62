//! The cost of output commit: packets a second at 5 % new flows, with it and without, at
//! replication factors 2 to 5, and the wait of first packets.
//!
//! ```text
//!   factor n: n workers, each the primary of its shard and a replica of all others';
//!             a packet waits for all n - 1 copies
//!   turn:     every worker takes a burst, and what the others sent in the turn before;
//!             as on cores of their own, the turn lasts as long as the slowest of them
//! ```
//!
//! Rounds with and without commit alternate, each as often first; figures are medians over many. A
//! packet's wait is counted from the start of the turn that took it to the end of the turn in which
//! it left. Between workers there is no network: add a round trip. At `full load` each turn has a
//! burst of 64 for every worker, 3 or 4 of them new; at `light load` one packet, new in one turn of
//! 20.

use std::collections::HashMap;

use weir_engine::Side;
use weir_wire::build;
use weir_wire::frame::Frame;

use crate::clock::Clock;
use crate::frame::BufferFrame;
use crate::median;
use crate::worker::{BURST, Group, Room, Worker, endpoint, gateway_mac, home, mac};

const ROOM: Room = Room { flows_max: 1 << 19, homes: 2_000 };
/// Flows of each worker that exist before the rounds.
const FLOWS: u32 = 20_000;
const ROUNDS: usize = 60;
const FIRST_ROUNDS: usize = 10;
const TURNS: u32 = 100;
const PACE_US: u64 = 120;
/// Turns without a packet between two packets at light load, and the extra time of each where real
/// ports are polled.
const IDLE_TURNS: usize = 20;
const IDLE_NS: u64 = 500;

/// Offsets in a frame of a datagram and of its kind.
const PAYLOAD_AT: usize = 14 + 20 + 8;
const KIND_AT: usize = PAYLOAD_AT + 3;

struct Cluster {
    workers: Vec<Worker>,
    mail: Vec<Vec<BufferFrame>>,
    clock: Clock,
    opened: u32,
    next: u32,
    /// Arrival time of each first packet, by worker and number.
    came_us: HashMap<(usize, u32), f64>,
    waits_us: Vec<f64>,
    sent: Sent,
}

/// Datagrams that the workers have sent to each other.
#[derive(Clone, Copy, Default)]
struct Sent {
    turns: f64,
    datagrams: f64,
    controls: f64,
    bytes: f64,
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { turns, datagrams, controls, bytes } = self;
        let (records, each) = ((datagrams - controls) / turns, bytes / datagrams);
        write!(f, "{records:.2} + {:.2} of {each:.0} bytes", controls / turns)
    }
}

/// Returns a packet of the n-th flow of a worker's homes, which carries its number.
fn packet(host: u32, n: u32) -> Vec<u8> {
    let inside = u32::from_be_bytes([192, 168, 1, 10]);
    let server = u32::from_be_bytes([198, 51, 100, 1]) + n % 7;
    let port = 10_000 + (n / ROOM.homes) as u16;
    let inner = build::ipv4(inside, server).udp(port, 443, n.to_be_bytes());
    let outer = home(host, n.wrapping_mul(613) % ROOM.homes);
    let outer = build::ipv4(outer, endpoint(host)).gre(build::gre(), inner);
    build::ethernet(mac(Side::Access, host), gateway_mac(Side::Access), &outer)
}

impl Cluster {
    fn new(workers: u32, is_committed: bool) -> Self {
        let commit_pace_us = is_committed.then_some(PACE_US);
        let (group, clock) = (Group { workers, commit_pace_us, is_copied: true }, Clock::default());
        let worker = |host| Worker::new(host, group, ROOM, clock.now_us());
        let mut cluster = Self {
            workers: (1..=workers).map(worker).collect(),
            mail: (0..workers).map(|_| Vec::new()).collect(),
            clock,
            opened: 0,
            next: 0,
            came_us: HashMap::new(),
            waits_us: Vec::new(),
            sent: Sent::default(),
        };
        let end_us = cluster.clock.now_us() + 500_000;
        while cluster.clock.now_us() < end_us {
            cluster.turn(0, 0);
            // As if the workers had rested.
            cluster.clock.pass(20_000);
        }
        while cluster.opened < FLOWS {
            cluster.turn(0, BURST as u32 / 4);
        }
        cluster.finish();
        cluster
    }

    /// Runs until no packet waits.
    fn finish(&mut self) {
        for _ in 0..500 {
            self.turn(0, 0);
            // An empty turn takes almost no time.
            self.clock.pass(2_000);
        }
        assert!(self.came_us.is_empty(), "{} packets never left", self.came_us.len());
        self.waits_us.clear();
    }

    /// Runs a turn of all workers, each with `old` packets of old flows and `new` of new ones;
    /// returns the nanoseconds of all.
    fn turn(&mut self, old: u32, new: u32) -> u64 {
        let (mut sum_ns, mut longest_ns) = (0, 0);
        for index in 0..self.workers.len() {
            let packets = self.packets(index, old, new);
            let (worker, mail) = (&mut self.workers[index], &mut self.mail[index]);
            worker.arrive(Side::Access, packets);
            worker.arrive(Side::Access, mail.drain(..mail.len().min(BURST)));
            let now_us = self.clock.now_us();
            let spent_ns = Clock::measure(|| worker.turn(now_us));
            worker.answer();
            sum_ns += spent_ns;
            longest_ns = longest_ns.max(spent_ns);
        }
        self.opened += new;
        self.next = self.next.wrapping_add(old);
        self.clock.pass(longest_ns);
        self.sent.turns += self.workers.len() as f64;
        self.deliver();
        sum_ns
    }

    fn packets(&mut self, index: usize, old: u32, new: u32) -> Vec<BufferFrame> {
        let (first, now_us) = (self.opened, self.clock.now_ns() as f64 / 1000.0);
        self.came_us.extend((first..first + new).map(|n| ((index, n), now_us)));
        let known = (self.next..self.next + old).map(|n| n.wrapping_mul(7_919) % FLOWS.min(first));
        let all: Vec<u32> = known.chain(first..first + new).collect();
        let worker = &mut self.workers[index];
        all.into_iter().map(|n| worker.filled(&packet(1 + index as u32, n))).collect()
    }

    /// Delivers datagrams to their receivers; counts the packets that left.
    fn deliver(&mut self) {
        let now_us = self.clock.now_ns() as f64 / 1000.0;
        for index in 0..self.workers.len() {
            let worker = &mut self.workers[index];
            for frame in worker.take_sent(Side::Internet) {
                let bytes = frame.data();
                let number = u32::from_be_bytes(bytes[42..46].try_into().expect("a number"));
                if let Some(came_us) = self.came_us.remove(&(index, number)) {
                    self.waits_us.push(now_us - came_us);
                }
                worker.give_back(frame);
            }
            for frame in worker.take_sent(Side::Access) {
                let to = (1..).zip(&mut self.mail);
                let mut to = to.filter(|(host, _)| frame.data()[..6] == mac(Side::Access, *host).0);
                if let Some((_, mail)) = to.next() {
                    self.sent.datagrams += 1.0;
                    self.sent.controls += f64::from(u8::from(frame.data()[KIND_AT] & 0x7f == 3));
                    self.sent.bytes += (frame.data().len() - PAYLOAD_AT) as f64;
                    mail.push(frame);
                }
            }
        }
    }

    /// Runs a round at full load; returns the nanoseconds of a worker's core per packet.
    fn full(&mut self) -> f64 {
        let (mut spent_ns, mut packets) = (0, 0);
        for turn in 0..TURNS {
            // 16 of 320 packets are new.
            let new = if turn % 5 == 0 { 4 } else { 3 };
            spent_ns += self.turn(BURST as u32 - new, new);
            packets += BURST * self.workers.len();
        }
        spent_ns as f64 / packets as f64
    }

    /// Runs a round at light load.
    fn light(&mut self) {
        for turn in 0..TURNS {
            let new = u32::from(turn % 20 == 0);
            self.turn(1 - new, new);
            for _ in 0..IDLE_TURNS {
                self.turn(0, 0);
                self.clock.pass(IDLE_NS);
            }
        }
    }
}

/// Returns median and 99th percentile.
fn percentiles(waits: &mut Vec<f64>) -> (f64, f64) {
    waits.sort_by(f64::total_cmp);
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    let both = (at(0.5), at(0.99));
    waits.clear();
    both
}

pub(crate) fn run() {
    println!("5 % new flows, {} rounds of {TURNS} turns of each in turn", ROUNDS - FIRST_ROUNDS);
    println!(
        "factor   ns a packet: async  replicated   rate, of async   wait of first packets, us: median, p99"
    );
    let mut first_rate = None;
    for workers in 2..=5 {
        let (mut without, mut with) = (Cluster::new(workers, false), Cluster::new(workers, true));
        let (mut spent, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        let mut waits = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            // The second cluster of a round finds the caches full of the first one's data.
            let (base, now) = match round % 2 {
                0 => (without.full(), with.full()),
                _ => {
                    let now = with.full();
                    (without.full(), now)
                }
            };
            if round >= FIRST_ROUNDS {
                spent[0].push(base);
                spent[1].push(now);
                ratios.push(base / now);
                waits[0].append(&mut without.waits_us);
                waits[1].append(&mut with.waits_us);
            }
            without.waits_us.clear();
            with.waits_us.clear();
            if round + 1 == FIRST_ROUNDS {
                (without.sent, with.sent) = Default::default();
            }
        }
        let [base, now] = spent.each_mut().map(|values| median(values));
        let ratio = median(&mut ratios);
        let rate = *first_rate.get_or_insert(now) / now;
        let [base_wait, full_wait] = waits.each_mut().map(percentiles);
        let sent = [without.sent, with.sent];
        with.finish();
        (0..100).for_each(|_| with.light());
        let light_wait = percentiles(&mut with.waits_us);
        println!(
            "{workers}                {base:12.1}  {now:10.1}   {ratio:14.3}   async {:.0}, {:.0}  full load {:.0}, {:.0}  \
             light load {:.0}, {:.0}   (rate of factor 2: {rate:.3})",
            base_wait.0, base_wait.1, full_wait.0, full_wait.1, light_wait.0, light_wait.1,
        );
        println!(
            "         datagrams of a worker in a turn, records + control: async {}, replicated {}",
            sent[0], sent[1]
        );
    }
}
