//! A log alone answers who had address:port at a time, for every block ever given out: a random history of two nodes with
//! restarts, crashes and rotations, each moment compared with what really was.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use weir_records::BlockEventKind::{Allocated, Released};
use weir_records::{
    BlockEvent, BlockLog, BlockLogHandle, BlockLogSender, rotated_files, where_was_in_files,
};

use crate::folder::{Folder, TestClock, block, time, wait_until};

const STEPS: u64 = 600;
const WORKERS: u8 = 3;
/// A few, so that most are in use.
const BLOCKS: u64 = 4;
const STEP_MS: u64 = 10;

/// Where a subscriber was from when to when, milliseconds.
struct Truth {
    public: Ipv4Addr,
    ports: (u16, u16),
    subscriber: Ipv4Addr,
    from_ms: u64,
    until_ms: Option<u64>,
}

struct Node {
    name: &'static str,
    /// Its public addresses end in `10 * number + worker`.
    number: u8,
    path: PathBuf,
    clock: TestClock,
    running: Option<(Vec<BlockLogSender>, BlockLogHandle)>,
    /// (worker, block) -> event and the time it was given.
    open: BTreeMap<(u8, u16), (BlockEvent, u64)>,
    rotations: u32,
}

/// xorshift64*: a repeatable history from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

impl Node {
    fn new(name: &'static str, number: u8, folder: &Folder) -> Self {
        let path = folder.file(&format!("{name}.jsonl"));
        let (clock, open) = (TestClock::default(), BTreeMap::new());
        let mut node = Self { name, number, path, clock, running: None, open, rotations: 0 };
        node.start(0);
        node
    }

    fn start(&mut self, now_ms: u64) {
        self.clock.set(now_ms);
        let clock = self.clock.as_clock();
        let started = BlockLog::start(&self.path, self.name, usize::from(WORKERS), clock);
        self.running = Some(started.expect("started"));
    }

    fn step(&mut self, random: &mut Random, now_ms: u64, truth: &mut Vec<Truth>) {
        match random.below(100) {
            0 => self.restart(random, now_ms, truth),
            1 => self.rotate(),
            _ => self.toggle(random, now_ms, truth),
        }
    }

    /// A block is given or taken back.
    fn toggle(&mut self, random: &mut Random, now_ms: u64, truth: &mut Vec<Truth>) {
        let key = (random.below(u64::from(WORKERS)) as u8, random.below(BLOCKS) as u16);
        let event = match self.open.remove(&key) {
            Some((event, from_ms)) => {
                truth.push(Truth::of(&event, from_ms, Some(now_ms)));
                BlockEvent { kind: Released, ..event }
            }
            None => {
                let subscriber = random.below(250) as u8;
                let event = block(Allocated, subscriber, 10 * self.number + key.0, key.1);
                self.open.insert(key, (event, now_ms));
                event
            }
        };
        let (senders, _) = self.running.as_mut().expect("it runs");
        assert!(senders[usize::from(key.0)].push(event, time(now_ms)));
    }

    /// Everything given out ends; half of the time by a kill, which closes no log and cuts a line off.
    fn restart(&mut self, random: &mut Random, now_ms: u64, truth: &mut Vec<Truth>) {
        self.clock.set(now_ms);
        self.running = None;
        if random.below(2) == 0 {
            let mut text = std::fs::read(&self.path).expect("the log is there");
            let before_last = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n');
            text.truncate(before_last.map_or(0, |at| at + 1));
            text.extend(b"{\"time\":\"2026-03-01T12:0");
            std::fs::write(&self.path, text).expect("written");
        }
        for (event, from_ms) in std::mem::take(&mut self.open).into_values() {
            truth.push(Truth::of(&event, from_ms, Some(now_ms)));
        }
        self.start(now_ms);
    }

    fn rotate(&mut self) {
        self.rotations += 1;
        let old = format!("{}.{}", self.path.display(), self.rotations);
        std::fs::rename(&self.path, old).expect("rotated");
        let (_, log) = self.running.as_ref().expect("it runs");
        log.reopen();
        wait_until("the new file is there", || self.path.exists());
    }
}

impl Truth {
    fn of(event: &BlockEvent, from_ms: u64, until_ms: Option<u64>) -> Self {
        let ports = (event.port_first, event.port_last);
        Self { public: event.public, ports, subscriber: event.subscriber, from_ms, until_ms }
    }

    fn is_at(&self, public: Ipv4Addr, port: u16, at_ms: u64) -> bool {
        self.public == public
            && (self.ports.0..=self.ports.1).contains(&port)
            && self.from_ms < at_ms
            && self.until_ms.is_none_or(|until_ms| at_ms < until_ms)
    }
}

fn history(seed: u64, folder: &Folder) -> Vec<Truth> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut nodes = [Node::new("n1", 1, folder), Node::new("n2", 2, folder)];
    let mut truth = Vec::new();
    for step in 1..=STEPS {
        let node = &mut nodes[random.below(2) as usize];
        node.step(&mut random, step * STEP_MS, &mut truth);
    }
    for node in nodes {
        node.clock.set((STEPS + 1) * STEP_MS);
        truth.extend(node.open.values().map(|(event, from_ms)| Truth::of(event, *from_ms, None)));
    }
    truth
}

#[test]
fn the_log_alone_knows_every_holder() {
    for seed in 1..=4 {
        let folder = Folder::new(&format!("replay-{seed}"));
        let truth = history(seed, &folder);
        let mut files = Vec::new();
        for name in ["n1.jsonl", "n2.jsonl"] {
            files.extend(rotated_files(&folder.path().join(name)).expect("listed").plain);
        }
        let mut held = 0;
        for step in (0..=STEPS).step_by(7) {
            // Between two steps, where no event falls.
            let at_ms = step * STEP_MS + STEP_MS / 2;
            for public in [10, 11, 12, 20, 21, 22].map(|last| Ipv4Addr::new(203, 0, 113, last)) {
                let port = 1024 + (step % (256 * BLOCKS)) as u16 * 37 % (256 * BLOCKS as u16);
                let answer = where_was_in_files(&files, public, port, time(at_ms)).expect("read");
                let found: BTreeSet<_> =
                    answer.holders.iter().map(|holder| holder.subscriber).collect();
                let expected: BTreeSet<_> = truth
                    .iter()
                    .filter(|truth| truth.is_at(public, port, at_ms))
                    .map(|truth| truth.subscriber)
                    .collect();
                assert_eq!(found, expected, "seed {seed}: {public}:{port} at {at_ms} ms");
                assert_eq!(answer.records_lost, 0);
                held += expected.len();
            }
        }
        assert!(held > 100, "seed {seed}: the history is busy enough to mean something: {held}");
    }
}
