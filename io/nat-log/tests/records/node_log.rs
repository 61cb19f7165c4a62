//! Logs written as text by hand, without the writer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use jiff::Timestamp;
use weir_nat_log::{About, BlockHolder, Holding, LogAnswer, LogQuestion, LogVerdict, search_logs};

use crate::folder::time;

pub(crate) const PUBLIC: [u8; 4] = [203, 0, 113, 1];
/// Ports of a block here; the lane is the block's number modulo 8.
pub(crate) const BLOCK_PORTS: u16 = 256;

/// The log of a node.
#[derive(Clone)]
pub(crate) struct NodeLog {
    pub(crate) name: String,
    /// Milliseconds by which its clock is ahead.
    pub(crate) skew_ms: i64,
    pub(crate) lines: Vec<String>,
    lives: u32,
    pub(crate) sequence: u64,
    indexes: BTreeMap<(u8, u64), u64>,
}

impl NodeLog {
    pub(crate) fn new(name: &str, skew_ms: i64) -> Self {
        Self {
            name: name.to_owned(),
            skew_ms,
            lines: Vec::new(),
            lives: 0,
            sequence: 0,
            indexes: BTreeMap::new(),
        }
    }

    /// Creates the log of a node "r" that owns all lanes but these, in which no home has flows.
    pub(crate) fn of_others(lanes: &[u8], begin_ms: u64, end_ms: u64) -> Self {
        let mut log = Self::new("r", 0);
        log.opened(begin_ms, true);
        for lane in (0..8).filter(|lane| !lanes.contains(lane)) {
            log.taken(begin_ms, lane, 1, None);
            log.listed(begin_ms, lane, 1, 1);
        }
        log.mark(end_ms);
        log
    }

    fn boot(&self) -> String {
        let number = self.name.bytes().fold(0_u64, |sum, byte| sum * 256 + u64::from(byte));
        format!("{number:024x}{:08x}", self.lives)
    }

    /// Formats the time that this node's clock shows.
    pub(crate) fn clock(&self, ms: u64) -> String {
        let ms = ms as i64 + self.skew_ms;
        format!("{:.3}", Timestamp::from_millisecond(ms).expect("a time"))
    }

    fn write(&mut self, ms: u64, event: &str, fields: &str) {
        self.sequence += 1;
        self.lines.push(format!(
            "{{\"time\":\"{}\",\"event\":\"{event}\",{fields}\"node\":\"{}\",\"boot\":\"{}\",\"sequence\":{}}}\n",
            self.clock(ms),
            self.name,
            self.boot(),
            self.sequence,
        ));
    }

    /// Records the start of the process.
    pub(crate) fn opened(&mut self, ms: u64, is_clustered: bool) {
        let before = (self.lives > 0).then(|| format!("\"boot_before\":\"{}\",", self.boot()));
        (self.lives, self.sequence) = (self.lives + 1, 0);
        self.indexes.clear();
        let before = before.unwrap_or_default();
        self.write(ms, "log-opened", &format!("\"clustered\":{is_clustered},{before}"));
    }

    pub(crate) fn closed(&mut self, ms: u64) {
        self.write(ms, "log-closed", "");
    }

    pub(crate) fn mark(&mut self, ms: u64) {
        self.write(ms, "log-mark", "");
    }

    /// Returns the last index of a lane under an ownership.
    pub(crate) fn index(&self, lane: u8, epoch: u64) -> u64 {
        self.indexes.get(&(lane, epoch)).copied().unwrap_or(0)
    }

    fn lane(&mut self, ms: u64, event: &str, lane: u8, epoch: u64, fields: &str) {
        let index = self.indexes.entry((lane, epoch)).or_default();
        *index += 1;
        let lane = format!("\"shard\":1,\"lane\":{lane},\"epoch\":{epoch},\"index\":{index},");
        self.write(ms, event, &(lane + fields));
    }

    pub(crate) fn taken(&mut self, ms: u64, lane: u8, epoch: u64, before: Option<u64>) {
        let before = before.map(|before| format!("\"before\":{before},")).unwrap_or_default();
        self.lane(ms, "lane-taken", lane, epoch, &before);
    }

    pub(crate) fn left(&mut self, ms: u64, lane: u8, epoch: u64) {
        self.lane(ms, "lane-left", lane, epoch, "");
    }

    pub(crate) fn listed(&mut self, ms: u64, lane: u8, epoch: u64, from: u64) {
        let blocks = self.index(lane, epoch) - from;
        let fields = format!("\"blocks\":{blocks},\"from\":{from},\"claims_by_lane\":true,");
        self.lane(ms, "lane-listed", lane, epoch, &fields);
    }

    fn block(&mut self, ms: u64, event: &str, at: LaneBlock, home: u8, more: &str) {
        let fields = format!("{}{more}", at.fields(home));
        self.lane(ms, event, at.lane, at.epoch, &fields);
    }

    pub(crate) fn allocated(&mut self, ms: u64, at: LaneBlock, home: u8) {
        self.block(ms, "block-allocated", at, home, "");
    }

    pub(crate) fn released(&mut self, ms: u64, at: LaneBlock, home: u8) {
        self.block(ms, "block-released", at, home, "");
    }

    /// `since` is a time of the world's clock.
    pub(crate) fn held(&mut self, ms: u64, at: LaneBlock, home: u8, since: Option<u64>) {
        let since = since.map(|since| format!("\"since\":\"{}\",", self.clock(since)));
        self.block(ms, "block-held", at, home, &since.unwrap_or_default());
    }

    /// Counts a statement of the worker that never became a record.
    pub(crate) fn skip_index(&mut self, lane: u8, epoch: u64) {
        *self.indexes.entry((lane, epoch)).or_default() += 1;
    }

    /// Loses a record on its way to the file.
    pub(crate) fn lose_last(&mut self) {
        self.lines.pop();
    }

    /// Loses a record on its way to the writer, which records the loss.
    pub(crate) fn lose_last_reported(&mut self, ms: u64) {
        self.lose_last();
        self.sequence -= 1;
        self.write(ms, "records-lost", "\"count\":1,");
    }

    fn prefix(&mut self, ms: u64, event: &str, at: LanePrefix, home: u8) {
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0x1000, at.prefix, 0, 0, 0, 0);
        let fields = format!("\"subscriber\":\"10.200.0.{home}\",\"prefix\":\"{prefix}/64\",");
        self.lane(ms, event, at.lane, at.epoch, &fields);
    }

    pub(crate) fn claimed(&mut self, ms: u64, at: LanePrefix, home: u8) {
        self.prefix(ms, "prefix-claimed", at, home);
    }

    pub(crate) fn prefix_released(&mut self, ms: u64, at: LanePrefix, home: u8) {
        self.prefix(ms, "prefix-released", at, home);
    }

    pub(crate) fn prefix_held(&mut self, ms: u64, at: LanePrefix, home: u8) {
        self.prefix(ms, "prefix-held", at, home);
    }

    /// Writes a record of an address with all its ports.
    pub(crate) fn address(&mut self, ms: u64, event: &str, at: LaneBlock, home: u8) {
        let public = whole_address(at.block);
        let fields = format!(
            "\"subscriber\":\"10.200.0.{home}\",\"public\":\"{public}\",\"ports\":\"0-65535\","
        );
        self.lane(ms, event, at.lane, at.epoch, &fields);
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        self.lines.concat().into_bytes()
    }
}

/// Returns the address without translation that has this number.
pub(crate) fn whole_address(number: u16) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 10 + number as u8)
}

/// A block under an ownership.
#[derive(Clone, Copy)]
pub(crate) struct LaneBlock {
    pub(crate) lane: u8,
    pub(crate) epoch: u64,
    /// Number of the block among those of the lane.
    pub(crate) block: u16,
}

/// A /64 under an ownership of a lane with flows from it.
#[derive(Clone, Copy)]
pub(crate) struct LanePrefix {
    pub(crate) lane: u8,
    pub(crate) epoch: u64,
    /// Its last 16 bits.
    pub(crate) prefix: u16,
}

impl LanePrefix {
    /// Returns an address in the prefix.
    pub(crate) fn address(self) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 0x1000, self.prefix, 0, 0, 0, 7)
    }
}

impl LaneBlock {
    pub(crate) fn port(self) -> u16 {
        1024 + BLOCK_PORTS * (8 * self.block + u16::from(self.lane))
    }

    fn fields(self, home: u8) -> String {
        let (first, last) = (self.port(), self.port() + BLOCK_PORTS - 1);
        format!(
            "\"subscriber\":\"10.200.0.{home}\",\"public\":\"203.0.113.1\",\"ports\":\"{first}-{last}\","
        )
    }
}

pub(crate) fn question(about: About, from_ms: u64, until_ms: u64) -> LogQuestion {
    let time = Some((time(from_ms), time(until_ms)));
    LogQuestion { about, time, clock_error: Duration::from_secs(1) }
}

/// Returns the holders of a port at a time, each as the last number of the home's address.
pub(crate) fn ask(logs: &[NodeLog], port: u16, at_ms: u64) -> (LogVerdict, Vec<u8>) {
    let answer = answer(logs, port, at_ms);
    (answer.verdict, homes(&answer))
}

pub(crate) fn answer(logs: &[NodeLog], port: u16, at_ms: u64) -> LogAnswer {
    answer_about(logs, About::Port(PUBLIC.into(), port), at_ms)
}

pub(crate) fn answer_about(logs: &[NodeLog], about: About, at_ms: u64) -> LogAnswer {
    let texts: Vec<Vec<u8>> = logs.iter().map(NodeLog::text).collect();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    search_logs(&texts, &question(about, at_ms, at_ms)).expect("read")
}

/// Returns the first port of a holder's block.
pub(crate) fn first_port(holder: &BlockHolder) -> u16 {
    match holder.holding {
        Holding::Ports { first, .. } => first,
        Holding::Prefix(prefix) => panic!("{prefix} has no ports"),
    }
}

pub(crate) fn homes(answer: &LogAnswer) -> Vec<u8> {
    let last = |subscriber: IpAddr| match subscriber {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => panic!("homes of the test have IPv4"),
    };
    answer.holders.iter().map(|holder| last(holder.subscriber)).collect()
}
