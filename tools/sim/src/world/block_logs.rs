//! The block logs of all nodes, as on their disks, and the answers they give when a history is
//! over.
//!
//! For some packets that left, the home that had the public endpoint, or had claimed the IPv6
//! prefix, at that time is remembered. Asked afterwards, the logs of all nodes name this home, or
//! answer that they cannot say; so does any subset of them. They never name another home, and never
//! answer that no home had the endpoint or the prefix. Clocks of the nodes differ by up to half a
//! second, and a process that is killed loses the lines that its log's thread has not written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::time::{Duration, UNIX_EPOCH};

use weir_nat::BlockEvent;
use weir_nat_log::{About, LogQuestion, LogVerdict, NodeLife, Scribe, search_logs};
use weir_worker::to_log;

use super::World;
use crate::dice::Dice;

/// Wall-clock time at which a history begins.
const BEGAN_MS: u64 = 1_700_000_000_000;
/// Largest error of a clock.
const AHEAD_MAX_MS: u64 = 500;
/// Clock error in the questions: it covers the clocks of two nodes.
const CLOCK_ERROR: Duration = Duration::from_millis(1_000);
/// Interval between marks of completeness. The product writes one every ten seconds; a history is
/// short.
const MARK_US: u64 = 2_000_000;
/// Most questions after a history, each to all logs and to a part of them.
const QUESTIONS_MAX: usize = 48;

/// A home's use of a public endpoint or of an IPv6 address.
#[derive(Clone, Copy, Debug)]
struct Use {
    at_us: u64,
    public: SocketAddr,
    home: Ipv4Addr,
}

/// How many questions the logs answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Questions, each to all logs, and to a part of them.
    pub asked: u64,
    /// Questions that all logs together answered.
    pub answered: u64,
    pub answered_by_parts: u64,
}

impl AddAssign for LogCounts {
    fn add_assign(&mut self, other: Self) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.answered_by_parts += other.answered_by_parts;
    }
}

#[derive(Debug)]
struct NodeLog {
    text: Vec<u8>,
    /// Lines that the log's thread has not written yet.
    unwritten: Vec<u8>,
    scribe: Option<Scribe>,
    /// Milliseconds by which its wall clock is ahead of the true time.
    ahead_ms: u64,
    marked_us: u64,
}

impl NodeLog {
    fn time_ms(&self, now_us: u64) -> u64 {
        BEGAN_MS + now_us / 1_000 + self.ahead_ms
    }
}

#[derive(Debug)]
pub(super) struct BlockLogs {
    nodes: Vec<NodeLog>,
    uses: Vec<Use>,
    seen: u64,
    dice: Dice,
    counts: LogCounts,
}

impl BlockLogs {
    pub(super) fn new(nodes: usize, mut dice: Dice) -> Self {
        let node = |_| NodeLog {
            text: Vec::new(),
            unwritten: Vec::new(),
            scribe: None,
            ahead_ms: dice.below(AHEAD_MAX_MS + 1),
            marked_us: 0,
        };
        let nodes = (0..nodes).map(node).collect();
        Self { nodes, uses: Vec::new(), seen: 0, dice, counts: LogCounts::default() }
    }

    /// Records the start of a process.
    pub(super) fn open(&mut self, now_us: u64, node: usize, name: &str, boot: u128) {
        let log = &mut self.nodes[node];
        let time_ms = log.time_ms(now_us);
        let mut scribe = Scribe::new(NodeLife { node: name, boot, is_clustered: true });
        scribe.opened(&mut log.text, time_ms, None);
        (log.scribe, log.marked_us) = (Some(scribe), now_us);
    }

    pub(super) fn take(&mut self, now_us: u64, node: usize, event: &BlockEvent) {
        let log = &mut self.nodes[node];
        let time_ms = log.time_ms(now_us);
        if let Some(scribe) = &mut log.scribe {
            scribe.record(&mut log.unwritten, time_ms, to_log(event));
        }
    }

    /// Writes the lines that wait, and a mark if it is due.
    pub(super) fn write(&mut self, now_us: u64, node: usize) {
        let log = &mut self.nodes[node];
        log.text.append(&mut log.unwritten);
        let time_ms = log.time_ms(now_us);
        if let Some(scribe) = log.scribe.as_mut().filter(|_| now_us - log.marked_us >= MARK_US) {
            scribe.mark(&mut log.text, time_ms);
            log.marked_us = now_us;
        }
    }

    /// Records the orderly end of a process.
    pub(super) fn close(&mut self, now_us: u64, node: usize) {
        self.write(now_us, node);
        let log = &mut self.nodes[node];
        let time_ms = log.time_ms(now_us);
        if let Some(mut scribe) = log.scribe.take() {
            scribe.closed(&mut log.text, time_ms);
        }
    }

    /// Drops the lines that a killed process has not written.
    pub(super) fn cut(&mut self, node: usize) {
        let log = &mut self.nodes[node];
        log.unwritten.clear();
        log.scribe = None;
    }

    /// Notes that a packet of this home has left from a public endpoint.
    pub(super) fn note_use(&mut self, at_us: u64, public: SocketAddr, home: Ipv4Addr) {
        let used = Use { at_us, public, home };
        self.seen += 1;
        // Each packet of the history is kept with the same probability.
        match self.dice.below(self.seen) as usize {
            _ if self.uses.len() < QUESTIONS_MAX => self.uses.push(used),
            index if index < QUESTIONS_MAX => self.uses[index] = used,
            _ => {}
        }
    }

    /// Returns whether the logs of these nodes name the home.
    ///
    /// # Errors
    /// The answer of the logs is wrong.
    fn ask(&self, used: Use, is_asked: impl Fn(usize) -> bool) -> Result<bool, String> {
        let all = self.nodes.iter().enumerate();
        let logs: Vec<&[u8]> =
            all.filter(|(node, _)| is_asked(*node)).map(|(_, log)| &log.text[..]).collect();
        let at = UNIX_EPOCH + Duration::from_millis(BEGAN_MS + used.at_us / 1_000);
        let question = LogQuestion {
            about: match used.public.ip() {
                IpAddr::V4(address) => About::Port(address, used.public.port()),
                IpAddr::V6(address) => About::Ipv6(address),
            },
            time: Some((at, at)),
            clock_error: CLOCK_ERROR,
        };
        let answer = search_logs(&logs, &question).expect("logs in memory are readable");
        let home = used.home;
        let is_right = match answer.verdict {
            LogVerdict::CannotSay => return Ok(false),
            LogVerdict::Nobody => false,
            LogVerdict::Held => answer.holders.iter().all(|holder| holder.subscriber == home),
        };
        if is_right {
            return Ok(true);
        }
        let (public, verdict) = (used.public, answer.verdict);
        let holders: Vec<_> = answer.holders.iter().map(|it| it.subscriber).collect();
        Err(format!(
            "home {home} sent from {public} at {} us, and the block logs say {verdict:?} {holders:?}",
            used.at_us
        ))
    }
}

impl World {
    pub(crate) fn log_counts(&self) -> LogCounts {
        self.block_logs.counts
    }

    /// Asks the logs, when the history is over, which homes had the public endpoints that were
    /// seen.
    pub(crate) fn ask_block_logs(&mut self) {
        for node in 0..self.nodes.len() {
            self.block_logs.write(self.now_us, node);
        }
        let mut wrong = None;
        for used in self.block_logs.uses.clone() {
            let subset = self.block_logs.dice.draw();
            let all = self.block_logs.ask(used, |_| true);
            let part = self.block_logs.ask(used, |node| subset >> node & 1 != 0);
            match (all, part) {
                (Ok(all), Ok(part)) => {
                    let counts = &mut self.block_logs.counts;
                    counts.asked += 1;
                    counts.answered += u64::from(all);
                    counts.answered_by_parts += u64::from(part);
                }
                (Err(why), _) => wrong = Some(why),
                (_, Err(why)) => wrong = Some(format!("{why}, of nodes {subset:b}")),
            }
        }
        if let Some(why) = wrong {
            self.fail(why);
        }
    }
}
