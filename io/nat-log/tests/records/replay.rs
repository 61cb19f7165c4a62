//! The writer and the search together, on standalone nodes: a random history with restarts, crashes
//! and rotations, each moment compared with the true state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use weir_nat_log::BlockRecordKind::{Allocated, Released};
use weir_nat_log::{
    About, AssignedBlock, BlockLog, BlockLogHandle, BlockLogSender, BlockRecord, BlockRecordKind,
    LogQuestion, LogVerdict, NodeLife, rotated_files, search_files,
};

use crate::folder::{Folder, Random, TestClock, block, time, wait_until};

const STEPS: u64 = 600;
const WORKERS: u8 = 3;
/// Few, so that most are in use.
const BLOCKS: u64 = 4;
const STEP_MS: u64 = 10;

/// A block of a subscriber and the time in which it had it, in milliseconds.
struct Truth {
    block: AssignedBlock,
    from_ms: u64,
    until_ms: Option<u64>,
}

struct Node {
    name: &'static str,
    /// Its public addresses end in `10 * number + worker`.
    number: u8,
    boot: u128,
    path: PathBuf,
    clock: TestClock,
    running: Option<(Vec<BlockLogSender>, BlockLogHandle)>,
    /// (worker, block) -> the block with its holder, and the time of its assignment.
    open: BTreeMap<(u8, u16), (AssignedBlock, u64)>,
    /// For each worker the last index and its time; a worker has a shard with one lane in use.
    last: [(u64, u64); WORKERS as usize],
    rotations: u32,
}

/// The time for which a killed node's log lost records of a worker's address: from the last record
/// to the next start.
struct Lost {
    public: Ipv4Addr,
    from_ms: u64,
    until_ms: u64,
}

#[derive(Default)]
struct World {
    truth: Vec<Truth>,
    lost: Vec<Lost>,
}

impl Node {
    fn new(name: &'static str, number: u8, folder: &Folder) -> Self {
        let path = folder.file(&format!("{name}.jsonl"));
        let mut node = Self {
            name,
            number,
            boot: u128::from(number) << 64,
            path,
            clock: TestClock::default(),
            running: None,
            open: BTreeMap::new(),
            last: Default::default(),
            rotations: 0,
        };
        node.start(0);
        node
    }

    fn start(&mut self, now_ms: u64) {
        self.clock.set(now_ms);
        self.boot += 1;
        self.last = [(0, now_ms); WORKERS as usize];
        let life = NodeLife { node: self.name, boot: self.boot, is_clustered: false };
        let clock = self.clock.as_clock();
        let started = BlockLog::start(&self.path, life, usize::from(WORKERS), clock);
        self.running = Some(started.expect("started"));
    }

    fn public(&self, worker: u8) -> u8 {
        10 * self.number + worker
    }

    fn step(&mut self, random: &mut Random, now_ms: u64, world: &mut World) {
        match random.below(100) {
            0 => self.restart(random, now_ms, world),
            1 => self.rotate(),
            _ => self.toggle(random, now_ms, world),
        }
    }

    /// Assigns or releases a block.
    fn toggle(&mut self, random: &mut Random, now_ms: u64, world: &mut World) {
        let key = (random.below(u64::from(WORKERS)) as u8, random.below(BLOCKS) as u16);
        let kind = match self.open.remove(&key) {
            Some((block, from_ms)) => {
                world.truth.push(Truth { block, from_ms, until_ms: Some(now_ms) });
                Released(block)
            }
            None => {
                let block = block(random.below(250) as u8, self.public(key.0), key.1);
                self.open.insert(key, (block, now_ms));
                Allocated(block)
            }
        };
        self.push(key.0, kind, now_ms);
    }

    fn push(&mut self, worker: u8, kind: BlockRecordKind, now_ms: u64) {
        let index = self.last[usize::from(worker)].0 + 1;
        self.last[usize::from(worker)] = (index, now_ms);
        let (shard, lane) = (u32::from(self.public(worker)), worker);
        let event = BlockRecord { shard, lane, epoch: 0, index, kind };
        let (senders, _) = self.running.as_mut().expect("the node runs");
        assert!(senders[usize::from(worker)].push(event, time(now_ms)));
    }

    /// Restarts the node, which ends all assignments; half of the time by a kill, which closes no
    /// log and cuts a line off.
    fn restart(&mut self, random: &mut Random, now_ms: u64, world: &mut World) {
        self.clock.set(now_ms);
        self.running = None;
        if random.is_one_in(2) {
            let mut text = std::fs::read(&self.path).expect("the log is there");
            let before_last = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n');
            text.truncate(before_last.map_or(0, |at| at + 1));
            text.extend(b"{\"time\":\"2026-03-01T12:0");
            std::fs::write(&self.path, text).expect("written");
            for (worker, (_, from_ms)) in (0..).zip(self.last) {
                let public = Ipv4Addr::new(203, 0, 113, self.public(worker));
                world.lost.push(Lost { public, from_ms, until_ms: now_ms });
            }
        }
        for (block, from_ms) in std::mem::take(&mut self.open).into_values() {
            world.truth.push(Truth { block, from_ms, until_ms: Some(now_ms) });
        }
        self.start(now_ms);
    }

    fn rotate(&mut self) {
        self.rotations += 1;
        let old = format!("{}.{}", self.path.display(), self.rotations);
        std::fs::rename(&self.path, old).expect("rotated");
        let (_, log) = self.running.as_ref().expect("the node runs");
        log.reopen();
        wait_until("the new file is there", || self.path.exists());
    }
}

impl Truth {
    fn is_at(&self, public: Ipv4Addr, port: u16, at_ms: u64) -> bool {
        self.block.public == public
            && (self.block.port_first..=self.block.port_last).contains(&port)
            && self.from_ms < at_ms
            && self.until_ms.is_none_or(|until_ms| at_ms < until_ms)
    }
}

fn history(seed: u64, folder: &Folder) -> World {
    let (mut random, mut world) = (Random::new(seed), World::default());
    let mut nodes = [Node::new("n1", 1, folder), Node::new("n2", 2, folder)];
    for step in 1..=STEPS {
        let node = &mut nodes[random.below(2) as usize];
        node.step(&mut random, step * STEP_MS, &mut world);
    }
    for node in nodes {
        node.clock.set((STEPS + 1) * STEP_MS);
        let open = node.open.values();
        world.truth.extend(open.map(|(block, from_ms)| Truth {
            block: *block,
            from_ms: *from_ms,
            until_ms: None,
        }));
    }
    world
}

#[test]
fn a_search_of_the_log_finds_every_holder() {
    for seed in 1..=4 {
        let folder = Folder::new(&format!("replay-{seed}"));
        let world = history(seed, &folder);
        let mut files = Vec::new();
        for name in ["n1.jsonl", "n2.jsonl"] {
            files.extend(rotated_files(&folder.path().join(name)).expect("listed").readable);
        }
        let (mut held, mut unknown) = (0, 0);
        for step in (1..STEPS).step_by(7) {
            // Between two steps, where no event occurs.
            let at_ms = step * STEP_MS + STEP_MS / 2;
            for public in [10, 11, 12, 20, 21, 22].map(|last| Ipv4Addr::new(203, 0, 113, last)) {
                let port = 1024 + (step % (256 * BLOCKS)) as u16 * 37 % (256 * BLOCKS as u16);
                let question = LogQuestion {
                    about: About::Port(public, port),
                    time: Some((time(at_ms), time(at_ms))),
                    clock_error: Duration::ZERO,
                };
                let answer = search_files(&files, &question).expect("read");
                let found: BTreeSet<_> =
                    answer.holders.iter().map(|holder| holder.subscriber).collect();
                let expected: BTreeSet<_> = world
                    .truth
                    .iter()
                    .filter(|truth| truth.is_at(public, port, at_ms))
                    .map(|truth| truth.block.subscriber)
                    .collect();
                let case = format!("seed {seed}: {public}:{port} at {at_ms} ms: {answer:?}");
                match answer.verdict {
                    LogVerdict::CannotSay => {
                        let is_lost = |lost: &Lost| {
                            lost.public == public && (lost.from_ms..=lost.until_ms).contains(&at_ms)
                        };
                        assert!(world.lost.iter().any(is_lost), "{case}");
                        unknown += 1;
                    }
                    LogVerdict::Held | LogVerdict::Nobody => assert_eq!(found, expected, "{case}"),
                }
                assert_eq!(answer.records_lost, 0);
                held += found.len();
            }
        }
        assert!(held > 100, "seed {seed}: too few tenancies found to be meaningful: {held}");
        assert!(unknown < held, "seed {seed}: {unknown}");
    }
}
