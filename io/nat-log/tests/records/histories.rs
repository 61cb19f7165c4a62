//! Random histories of a lane over several nodes: takeovers in order and after deaths, lanes that
//! come back at the same epoch, to the same process or a later one, lost records, listings, rotated
//! files, clocks that differ by up to a second. Whichever logs are left, an answer is never wrong;
//! and if no log or record is missing there is an answer.

use std::collections::BTreeSet;

use weir_nat_log::{About, LogQuestion, LogVerdict, search_logs};

use crate::folder::Random;
use crate::node_log::{LaneBlock, NodeLog, PUBLIC, homes, question};

const LANE: u8 = 3;
const NODES: u64 = 3;
const BLOCKS: u64 = 4;
const HOMES: u64 = 3;
const BEGIN_MS: u64 = 100_000;
const CLOCK_ERROR_MS: u64 = 1000;
/// Largest error of each clock, in either direction.
const SKEW_MS: u64 = 500;
const MARK_MS: u64 = 10_000;
/// Time that a worker needs to get a lost lane back.
const REJOIN_MS: u64 = 3000;
/// A home that held a block and is listed for it so soon after a death counts as having held it
/// throughout.
const PAUSE_MS: u64 = 30_000;

/// A time in which a home had a block, by a correct clock.
struct Truth {
    block: u16,
    home: u8,
    from_ms: u64,
    until_ms: u64,
}

struct World {
    random: Random,
    now_ms: u64,
    nodes: Vec<Node>,
    /// The node that owns the lane, if any.
    owner: Option<usize>,
    epoch: u64,
    /// For each block its home and the time since which the home has it.
    held: Vec<Option<(u8, u64)>>,
    truths: Vec<Truth>,
    /// True while no node has died and no record was lost.
    is_whole: bool,
    may_fail: bool,
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

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let may_fail = !random.is_one_in(3);
        let nodes = (0..NODES)
            .map(|number| {
                let skew_ms = random.below(2 * SKEW_MS + 1) as i64 - SKEW_MS as i64;
                let mut log = NodeLog::new(&format!("n{number}"), skew_ms);
                log.opened(BEGIN_MS, true);
                let noise_epoch = 10_000 + number;
                Node { log, files: vec![], marked_ms: BEGIN_MS, is_alive: true, noise_epoch }
            })
            .collect();
        let mut world = Self {
            random,
            now_ms: BEGIN_MS,
            nodes,
            owner: None,
            epoch: 1,
            held: vec![None; BLOCKS as usize],
            truths: Vec::new(),
            is_whole: true,
            may_fail,
        };
        world.take(0, None, None);
        world
    }

    fn lane_block(&self, block: u16) -> LaneBlock {
        LaneBlock { lane: LANE, epoch: self.epoch, block }
    }

    fn log(&mut self, node: usize) -> &mut NodeLog {
        &mut self.nodes[node].log
    }

    fn play(&mut self, steps: u64) {
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
        }
    }

    /// Assigns or releases a block.
    fn toggle(&mut self) {
        let Some(owner) = self.owner else { return };
        let block = self.random.below(BLOCKS) as u16;
        let (lane_block, now_ms) = (self.lane_block(block), self.now_ms);
        match self.held[usize::from(block)] {
            Some((home, _)) => {
                self.log(owner).released(now_ms, lane_block, home);
                self.end(block);
            }
            None => {
                let home = self.random.below(HOMES) as u8 + 1;
                self.log(owner).allocated(now_ms, lane_block, home);
                self.begin(block, home);
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
        let epoch = self.epoch;
        let from = self.log(owner).index(LANE, epoch);
        for block in 0..BLOCKS as u16 {
            if self.random.is_one_in(8) {
                self.now_ms += self.random.below(20);
                self.toggle();
            }
            if let Some((home, since_ms)) = self.held[usize::from(block)] {
                let may_omit = lost_from_ms.is_none_or(|lost_from_ms| since_ms < lost_from_ms);
                let since = (!may_omit || self.random.is_one_in(2)).then_some(since_ms);
                let (lane_block, now_ms) = (self.lane_block(block), self.now_ms);
                self.log(owner).held(now_ms, lane_block, home, since);
                if self.may_fail && self.random.is_one_in(20) {
                    self.is_whole = false;
                    self.log(owner).lose_last();
                }
            }
        }
        let now_ms = self.now_ms;
        self.log(owner).listed(now_ms, LANE, epoch, from);
    }

    fn take(&mut self, node: usize, before: Option<u64>, lost_from_ms: Option<u64>) {
        self.owner = Some(node);
        let (epoch, now_ms) = (self.epoch, self.now_ms);
        self.log(node).taken(now_ms, LANE, epoch, before);
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
        let (epoch, now_ms) = (self.epoch, self.now_ms);
        self.log(owner).left(now_ms, LANE, epoch);
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
            let (epoch, now_ms) = (self.epoch, self.now_ms);
            if self.random.is_one_in(2) {
                self.log(owner).left(now_ms, LANE, epoch);
            }
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
        let (epoch, now_ms) = (self.epoch, self.now_ms);
        self.log(owner).left(now_ms, LANE, epoch);
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

    /// Returns the logs, split into files.
    fn files(&self) -> Vec<Vec<u8>> {
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

    /// Returns the homes that had the block between these times, both included.
    fn had(&self, block: u16, from_ms: u64, until_ms: u64) -> BTreeSet<u8> {
        let is_it = |truth: &&Truth| {
            truth.block == block && truth.from_ms <= until_ms && from_ms <= truth.until_ms
        };
        self.truths.iter().filter(is_it).map(|truth| truth.home).collect()
    }

    /// Returns the home at an instant: at the instant of a change neither home is wrong.
    fn has(&self, block: u16, at_ms: u64) -> BTreeSet<u8> {
        let is_it = |truth: &&Truth| {
            truth.block == block && truth.from_ms < at_ms && at_ms < truth.until_ms
        };
        self.truths.iter().filter(is_it).map(|truth| truth.home).collect()
    }
}

impl World {
    /// Whether, after a death, the block was free for a short time and the home had it before and
    /// after.
    fn is_pause(&self, block: u16, at_ms: u64, home: &BTreeSet<u8>) -> bool {
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

#[derive(Default, Debug)]
struct Count {
    held: u32,
    nobody: u32,
    cannot_say: u32,
}

fn check(world: &World, files: &[&[u8]], block: u16, at_ms: u64, count: &mut Count, case: &str) {
    let port = LaneBlock { lane: LANE, epoch: 0, block }.port() + 7;
    let question: LogQuestion = question(About::Port(PUBLIC.into(), port), at_ms, at_ms);
    let answer = search_logs(files, &question).expect("memory is read");
    let case = format!("{case}, block {block} at {at_ms} ms: {answer:#?}");
    let named: BTreeSet<u8> = homes(&answer).into_iter().collect();
    let reach_ms = CLOCK_ERROR_MS + SKEW_MS + 1;
    match answer.verdict {
        LogVerdict::Held => {
            count.held += 1;
            assert_eq!(named.len(), 1, "{case}");
            assert!(world.has(block, at_ms).is_subset(&named), "a wrong home is named: {case}");
            let near = world.had(block, at_ms - reach_ms, at_ms + reach_ms);
            assert!(
                named.is_subset(&near) || world.is_pause(block, at_ms, &named),
                "the holder is not near that time: {case}"
            );
        }
        LogVerdict::Nobody => {
            count.nobody += 1;
            assert!(named.is_empty(), "{case}");
            assert_eq!(world.has(block, at_ms), BTreeSet::new(), "it was held: {case}");
        }
        LogVerdict::CannotSay => count.cannot_say += 1,
    }
}

#[test]
fn no_subset_of_the_logs_of_any_history_gives_a_wrong_answer() {
    let (mut all, mut some) = (Count::default(), Count::default());
    for seed in 1..=1200 {
        let mut world = World::new(seed);
        world.play(60);
        let files = world.files();
        let whole: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        for number in 0..10 {
            let span = world.now_ms - BEGIN_MS - 2 * (CLOCK_ERROR_MS + SKEW_MS);
            let at_ms = BEGIN_MS + CLOCK_ERROR_MS + SKEW_MS + world.random.below(span);
            let block = world.random.below(BLOCKS) as u16;
            check(&world, &whole, block, at_ms, &mut all, &format!("seed {seed}, all logs"));
            let share = 1 + world.random.below(8);
            let mut part = whole.clone();
            part.retain(|_| !world.random.is_one_in(share + 1));
            // In any order.
            let turn = world.random.below(part.len().max(1) as u64) as usize;
            part.rotate_left(turn);
            let case = format!("seed {seed}, question {number}, some logs");
            check(&world, &part, block, at_ms, &mut some, &case);
        }
    }
    // The histories are busy enough to be meaningful.
    assert!(all.held > 2000 && all.nobody > 1000 && all.cannot_say > 100, "{all:?}");
    assert!(some.held > 500 && some.nobody > 300 && some.cannot_say > 1000, "{some:?}");
}

#[test]
fn with_all_logs_and_no_death_every_question_has_an_answer() {
    let mut answers = 0;
    for seed in 1..=1200 {
        let mut world = World::new(seed);
        world.play(60);
        if !world.is_whole {
            continue;
        }
        let files = world.files();
        let whole: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        for _ in 0..10 {
            let margin = CLOCK_ERROR_MS + SKEW_MS;
            let span = world.now_ms - BEGIN_MS - 2 * margin;
            let at_ms = BEGIN_MS + margin + world.random.below(span);
            let block = world.random.below(BLOCKS) as u16;
            let port = LaneBlock { lane: LANE, epoch: 0, block }.port();
            let question = question(About::Port(PUBLIC.into(), port), at_ms, at_ms);
            let answer = search_logs(&whole, &question).expect("memory is read");
            let case = format!("seed {seed}, block {block} at {at_ms} ms: {answer:#?}");
            let is_named = world.truths.iter().any(|truth| truth.block == block);
            if answer.verdict == LogVerdict::CannotSay && is_named {
                // Two homes within the clock error, and no other reason.
                assert_eq!(answer.missing, [], "{case}");
                let reach_ms = margin + 1;
                let near = world.had(block, at_ms - reach_ms, at_ms + reach_ms);
                assert!(near.len() > 1, "{case}");
            } else {
                answers += 1;
            }
        }
    }
    assert!(answers > 2000, "{answers}");
}
