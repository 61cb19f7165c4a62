//! Nodes that hear each other: what happens to them and their lanes, and what each logs.

use std::collections::BTreeSet;

use crate::folder::Random;
use crate::node_log::{LaneBlock, LanePrefix, NodeLog};

use super::{BEGIN_MS, BLOCKS, Kind, SKEW_MS};

const NODES: u64 = 3;
const HOMES: u64 = 3;
const MARK_MS: u64 = 10_000;
/// Time that a worker needs to get a lost lane back.
const REJOIN_MS: u64 = 3000;
/// A home that held a block and is listed for it so soon after a death counts as having held it
/// throughout. A block rests for as long before another home gets it (`quarantine_sec`).
const PAUSE_MS: u64 = 30_000;
/// A prefix or address rests for so long before another home can claim it.
const HOLD_MS: u64 = 16_000;

/// A change of what a home holds, or a line of a listing with the time since which the home has it.
#[derive(Clone, Copy)]
enum Change {
    Begin,
    End,
    Listed(Option<u64>),
}

/// A time in which a home had a block or prefix, by a correct clock.
pub(super) struct Truth {
    pub(super) block: u16,
    home: u8,
    from_ms: u64,
    until_ms: u64,
}

/// Nodes that hear each other, and their lanes, which change hands together.
pub(super) struct Side {
    kind: Kind,
    lanes: &'static [u8],
    random: Random,
    pub(super) now_ms: u64,
    nodes: Vec<Node>,
    /// The node that owns the lanes, if any.
    owner: Option<usize>,
    epoch: u64,
    /// For each block its home and the time since which the home has it.
    held: Vec<Option<(u8, u64)>>,
    /// For each block the lanes in which its home has flows.
    used: Vec<Vec<u8>>,
    /// For each block the home that had it last, and until when.
    last: Vec<Option<(u8, u64)>>,
    pub(super) truths: Vec<Truth>,
    /// True while no node has died and no record was lost.
    is_whole: bool,
    pub(super) may_fail: bool,
}

struct Node {
    log: NodeLog,
    /// Line numbers at which a file ends and the next one begins.
    files: Vec<usize>,
    marked_ms: u64,
    is_alive: bool,
    /// Epoch of the ownership of the other lane, which adds unrelated records.
    noise_epoch: u64,
}

impl Side {
    pub(super) fn new(
        kind: Kind,
        lanes: &'static [u8],
        name: &str,
        may_fail: bool,
        mut random: Random,
    ) -> Self {
        let nodes = (0..NODES)
            .map(|number| {
                let skew_ms = random.below(2 * SKEW_MS + 1) as i64 - SKEW_MS as i64;
                let mut log = NodeLog::new(&format!("{name}{number}"), skew_ms);
                log.opened(BEGIN_MS, true);
                let noise_epoch = 10_000 + number;
                Node { log, files: vec![], marked_ms: BEGIN_MS, is_alive: true, noise_epoch }
            })
            .collect();
        let mut side = Self {
            kind,
            lanes,
            random,
            now_ms: BEGIN_MS,
            nodes,
            owner: None,
            epoch: 1,
            held: vec![None; BLOCKS as usize],
            used: vec![Vec::new(); BLOCKS as usize],
            last: vec![None; BLOCKS as usize],
            truths: Vec::new(),
            is_whole: true,
            may_fail,
        };
        side.take(0, None, None);
        side
    }

    /// Records a change of a block or prefix in a lane.
    fn record(&mut self, owner: usize, lane: u8, (block, home): (u16, u8), change: Change) {
        let (epoch, now_ms) = (self.epoch, self.now_ms);
        let at = LaneBlock { lane, epoch, block };
        let prefix = LanePrefix { lane, epoch, prefix: block };
        let log = &mut self.nodes[owner].log;
        match (self.kind, change) {
            (Kind::Blocks, Change::Begin) => log.allocated(now_ms, at, home),
            (Kind::Blocks, Change::End) => log.released(now_ms, at, home),
            (Kind::Blocks, Change::Listed(since)) => log.held(now_ms, at, home, since),
            (Kind::Prefixes, Change::Begin) => log.claimed(now_ms, prefix, home),
            (Kind::Prefixes, Change::End) => log.prefix_released(now_ms, prefix, home),
            (Kind::Prefixes, Change::Listed(_)) => log.prefix_held(now_ms, prefix, home),
            (Kind::Addresses, change) => {
                let event = match change {
                    Change::Begin => "block-allocated",
                    Change::End => "block-released",
                    Change::Listed(_) => "block-held",
                };
                log.address(now_ms, event, at, home);
            }
        }
    }

    fn log(&mut self, node: usize) -> &mut NodeLog {
        &mut self.nodes[node].log
    }

    pub(super) fn play(&mut self, steps: u64) {
        for _ in 0..steps {
            self.pass(3000);
            match self.random.below(40) {
                0 | 1 => self.hand_over(),
                2 if self.may_fail => self.die(),
                3 if self.may_fail => self.lose(),
                4 => self.restart_another(),
                5 | 6 => {
                    if let Some(owner) = self.owner {
                        self.list(owner, None);
                    }
                }
                7 => {
                    let node = self.random.below(NODES) as usize;
                    let end = self.nodes[node].log.lines.len();
                    self.nodes[node].files.push(end);
                }
                8..=12 => self.noise(),
                13 => self.resume(),
                14 => self.regain(),
                _ => self.toggle(),
            }
        }
        self.pass(3000);
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_alive {
                let now_ms = self.now_ms;
                self.log(node).mark(now_ms);
            }
        }
        for block in 0..BLOCKS as u16 {
            self.end(block);
        }
    }

    /// Advances the time; the nodes that are alive mark their logs.
    fn pass(&mut self, up_to_ms: u64) {
        self.now_ms += self.random.below(up_to_ms);
        let now_ms = self.now_ms;
        for node in self.nodes.iter_mut().filter(|node| node.is_alive) {
            if now_ms - node.marked_ms >= MARK_MS {
                node.marked_ms = now_ms;
                node.log.mark(now_ms);
            }
        }
    }

    fn begin(&mut self, block: u16, home: u8) {
        self.held[usize::from(block)] = Some((home, self.now_ms));
    }

    fn end(&mut self, block: u16) {
        if let Some((home, from_ms)) = self.held[usize::from(block)].take() {
            self.truths.push(Truth { block, home, from_ms, until_ms: self.now_ms });
            self.last[usize::from(block)] = Some((home, self.now_ms));
        }
    }

    /// Assigns or releases a block, or begins a flow from a prefix in another lane than before.
    fn toggle(&mut self) {
        let Some(owner) = self.owner else { return };
        let block = self.random.below(BLOCKS) as u16;
        let lane = match self.lanes {
            [lane] => *lane,
            lanes => lanes[self.random.below(lanes.len() as u64) as usize],
        };
        let used = self.used[usize::from(block)].clone();
        match self.held[usize::from(block)] {
            Some((home, _)) if !used.contains(&lane) => {
                self.record(owner, lane, (block, home), Change::Begin);
                self.used[usize::from(block)].push(lane);
            }
            Some((home, _)) => {
                for lane in used {
                    self.record(owner, lane, (block, home), Change::End);
                }
                self.end(block);
            }
            None => {
                let home = self.random.below(HOMES) as u8 + 1;
                let rest_ms = if self.kind == Kind::Blocks { PAUSE_MS } else { HOLD_MS };
                let resting = self.last[usize::from(block)]
                    .filter(|(_, until_ms)| self.now_ms - until_ms < rest_ms);
                let home = resting.map_or(home, |(last, _)| last);
                self.record(owner, lane, (block, home), Change::Begin);
                self.begin(block, home);
                self.used[usize::from(block)] = vec![lane];
            }
        }
    }

    /// Adds a record to the other lane of a node.
    fn noise(&mut self) {
        let node = self.random.below(NODES) as usize;
        if self.nodes[node].is_alive {
            let lane_block = LaneBlock { lane: 6, epoch: self.nodes[node].noise_epoch, block: 0 };
            let now_ms = self.now_ms;
            self.log(node).allocated(now_ms, lane_block, 9);
        }
    }

    /// Lists every block that is held, while changes continue. `lost_from_ms`: after a death a home
    /// is listed without a time only if it had its block before records were lost.
    fn list(&mut self, owner: usize, lost_from_ms: Option<u64>) {
        for &lane in self.lanes {
            self.list_lane(owner, lane, lost_from_ms);
        }
    }

    fn list_lane(&mut self, owner: usize, lane: u8, lost_from_ms: Option<u64>) {
        let epoch = self.epoch;
        let from = self.log(owner).index(lane, epoch);
        for block in 0..BLOCKS as u16 {
            if self.random.is_one_in(8) {
                self.now_ms += self.random.below(20);
                self.toggle();
            }
            if !self.used[usize::from(block)].contains(&lane) {
                continue;
            }
            if let Some((home, since_ms)) = self.held[usize::from(block)] {
                let may_omit = lost_from_ms.is_none_or(|lost_from_ms| since_ms < lost_from_ms);
                let since = (!may_omit || self.random.is_one_in(2)).then_some(since_ms);
                self.record(owner, lane, (block, home), Change::Listed(since));
                if self.may_fail && self.random.is_one_in(20) {
                    self.is_whole = false;
                    self.log(owner).lose_last();
                }
            }
        }
        let now_ms = self.now_ms;
        self.log(owner).listed(now_ms, lane, epoch, from);
    }

    fn take(&mut self, node: usize, before: Option<u64>, lost_from_ms: Option<u64>) {
        self.owner = Some(node);
        let (epoch, now_ms) = (self.epoch, self.now_ms);
        for &lane in self.lanes {
            self.log(node).taken(now_ms, lane, epoch, before);
        }
        self.list(node, lost_from_ms);
    }

    /// Chooses another node that is alive.
    fn other(&mut self, than: usize) -> Option<usize> {
        let others: Vec<usize> = (0..self.nodes.len())
            .filter(|node| *node != than && self.nodes[*node].is_alive)
            .collect();
        let chosen = self.random.below(others.len().max(1) as u64) as usize;
        others.get(chosen).copied()
    }

    fn leave(&mut self, owner: usize) {
        let (epoch, now_ms) = (self.epoch, self.now_ms);
        for &lane in self.lanes {
            self.log(owner).left(now_ms, lane, epoch);
        }
    }

    fn next_epoch(&mut self) -> Option<u64> {
        let before = self.epoch;
        self.epoch += 1 + self.random.below(3);
        // A previous epoch that directly precedes this one may be left out.
        let may_omit = self.epoch == before + 1 && self.random.is_one_in(2);
        (!may_omit).then_some(before)
    }

    /// Hands the lane over in order; half of the time the owner stops, as by SIGTERM, and starts
    /// again later.
    fn hand_over(&mut self) {
        let Some(owner) = self.owner else { return };
        let Some(next) = self.other(owner) else { return };
        self.leave(owner);
        self.now_ms += self.random.below(50);
        let before = self.next_epoch();
        self.take(next, before, None);
        if self.random.is_one_in(2) {
            let now_ms = self.now_ms;
            self.log(owner).closed(now_ms);
            self.nodes[owner].is_alive = false;
        }
    }

    /// Kills the owner and cuts off the last lines of its log. Its last new blocks may have been on
    /// no other node.
    fn die(&mut self) {
        let Some(owner) = self.owner else { return };
        let Some(next) = self.other(owner) else { return };
        let lost_from_ms = self.now_ms.saturating_sub(3 * MARK_MS);
        self.cut_off(owner);
        self.owner = None;
        for block in 0..BLOCKS as u16 {
            let held = self.held[usize::from(block)];
            if held.is_some_and(|(_, from_ms)| from_ms >= lost_from_ms) && self.random.is_one_in(2)
            {
                self.end(block);
            }
        }
        self.pass(20_000);
        let before = self.next_epoch();
        // A home that had its block before the lost records had it throughout.
        self.take(next, before, Some(lost_from_ms));
    }

    /// Ends the owner's process and cuts off the last lines of its log: at most those since its
    /// last mark but one.
    fn cut_off(&mut self, owner: usize) {
        self.is_whole = false;
        let lines = &self.nodes[owner].log.lines;
        let marks: Vec<usize> =
            (0..lines.len()).filter(|at| lines[*at].contains("log-mark")).collect();
        let least = marks.iter().rev().nth(1).map_or(0, |at| at + 1);
        let opened = lines.iter().rposition(|line| line.contains("log-opened")).unwrap_or(0);
        let lost = self.random.below((lines.len() - least.max(opened + 1)) as u64 + 1) as usize;
        let kept = lines.len() - lost;
        let node = &mut self.nodes[owner];
        node.log.lines.truncate(kept);
        if lost > 0 {
            node.log.lines.push("{\"time\":\"1970-01\n".to_owned());
        }
        node.is_alive = false;
    }

    /// Starts a site without its store: the owner resumes the lane at the same epoch, without any
    /// block.
    fn resume(&mut self) {
        let Some(owner) = self.owner else { return };
        if self.may_fail && self.random.is_one_in(2) {
            self.cut_off(owner);
        } else {
            if self.random.is_one_in(2) {
                self.leave(owner);
            }
            let now_ms = self.now_ms;
            self.log(owner).closed(now_ms);
            self.nodes[owner].is_alive = false;
        }
        self.pass(20_000);
        for block in 0..BLOCKS as u16 {
            self.end(block);
        }
        if self.random.is_one_in(2) {
            let end = self.nodes[owner].log.lines.len();
            self.nodes[owner].files.push(end);
        }
        self.start(owner);
        let before = self.random.is_one_in(2).then_some(self.epoch);
        self.take(owner, before, None);
    }

    /// The owner loses the lane and gets it back at the same epoch, with some of its blocks.
    fn regain(&mut self) {
        let Some(owner) = self.owner else { return };
        self.leave(owner);
        for block in 0..BLOCKS as u16 {
            if self.random.is_one_in(3) {
                self.end(block);
            }
        }
        self.now_ms += REJOIN_MS;
        self.pass(5000);
        self.list(owner, None);
    }

    /// Loses a record of the owner on its way to the log.
    fn lose(&mut self) {
        let Some(owner) = self.owner else { return };
        self.is_whole = false;
        let lines = self.nodes[owner].log.lines.len();
        self.toggle();
        let (now_ms, is_reported) = (self.now_ms, self.random.is_one_in(2));
        if self.nodes[owner].log.lines.len() > lines {
            match is_reported {
                true => self.log(owner).lose_last_reported(now_ms),
                false => self.log(owner).lose_last(),
            }
        }
    }

    fn restart_another(&mut self) {
        let dead = (0..self.nodes.len()).find(|node| !self.nodes[*node].is_alive);
        if let Some(node) = dead {
            self.start(node);
        }
    }

    fn start(&mut self, node: usize) {
        let now_ms = self.now_ms;
        self.log(node).opened(now_ms, true);
        let node = &mut self.nodes[node];
        (node.is_alive, node.marked_ms) = (true, now_ms);
        node.noise_epoch += NODES;
    }

    pub(super) fn files(&self) -> Vec<Vec<u8>> {
        let mut files = Vec::new();
        for node in &self.nodes {
            let mut begin = 0;
            for end in node.files.iter().copied().chain([node.log.lines.len()]) {
                // A death may have removed more than the last file.
                let end = end.clamp(begin, node.log.lines.len());
                files.push(node.log.lines[begin..end].concat().into_bytes());
                begin = end;
            }
        }
        files
    }

    pub(super) fn had(&self, block: u16, from_ms: u64, until_ms: u64) -> BTreeSet<u8> {
        let is_it = |truth: &&Truth| {
            truth.block == block && truth.from_ms <= until_ms && from_ms <= truth.until_ms
        };
        self.truths.iter().filter(is_it).map(|truth| truth.home).collect()
    }

    pub(super) fn has(&self, block: u16, at_ms: u64) -> BTreeSet<u8> {
        let is_it = |truth: &&Truth| {
            truth.block == block && truth.from_ms < at_ms && at_ms < truth.until_ms
        };
        self.truths.iter().filter(is_it).map(|truth| truth.home).collect()
    }

    pub(super) fn is_pause(&self, block: u16, at_ms: u64, home: &BTreeSet<u8>) -> bool {
        let truths = || self.truths.iter().filter(|truth| truth.block == block);
        let before = truths().filter(|truth| truth.until_ms <= at_ms).max_by_key(|it| it.until_ms);
        let after = truths().filter(|truth| truth.from_ms >= at_ms).min_by_key(|it| it.from_ms);
        let is_pause = before.zip(after).is_some_and(|(before, after)| {
            home.iter().all(|home| [before.home, after.home] == [*home; 2])
                && after.from_ms - before.until_ms <= PAUSE_MS
        });
        is_pause && !self.is_whole && self.had(block, at_ms, at_ms).is_empty()
    }
}
