//! Lanes and incarnations in the logs of all nodes: where it is hard to know who had a block. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use serde_json::Value;

use super::log_times::time_ms;

/// A shard and a lane of it.
pub(super) type LaneId = (u64, u64);

/// A question is near a takeover when its lane got an owner within this time before or after.
const NEAR_MS: i64 = 1_000;
const MARK: &str = "\"event\":\"log-mark\"";

/// The content of all logs, with the times that their nodes wrote.
#[derive(Debug, Default)]
pub struct LogBook {
    /// Lane of each block, by its address and first port; the value begins with its last port.
    blocks: BTreeMap<(Ipv4Addr, u16), (u16, LaneId)>,
    /// Times at which each lane was taken.
    taken_ms: BTreeMap<LaneId, BTreeSet<i64>>,
    /// Listings of each lane: epoch and time.
    listed: BTreeMap<LaneId, Vec<(u64, i64)>>,
    ends: Vec<End>,
    /// Shards and epochs at which a lane got another owner.
    takeovers: BTreeSet<(u64, u64)>,
}

/// The incarnation of a node that ended without closing its log.
#[derive(Debug)]
struct End {
    /// Time up to which its log is complete.
    marked_ms: i64,
    /// Epoch of each lane that it owned.
    held: BTreeMap<LaneId, u64>,
}

impl LogBook {
    /// Adds the log of a node. `has_ended`: the node is gone.
    pub fn read(&mut self, log: &str, has_ended: bool) {
        let mut life: Option<End> = None;
        for line in log.lines() {
            // A line that a kill cut off is ignored.
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let Some(at_ms) = line["time"].as_str().and_then(time_ms) else { continue };
            match line["event"].as_str() {
                Some("log-opened") => {
                    let next = End { marked_ms: at_ms, held: BTreeMap::new() };
                    self.ends.extend(life.replace(next));
                }
                Some("log-closed") => life = None,
                Some("log-mark") => {
                    if let Some(life) = &mut life {
                        life.marked_ms = at_ms;
                    }
                }
                Some(event) => self.read_lane(event, at_ms, &line, life.as_mut()),
                None => {}
            }
        }
        if has_ended {
            self.ends.extend(life);
        }
    }

    fn read_lane(&mut self, event: &str, at_ms: i64, line: &Value, life: Option<&mut End>) {
        let number = |key: &str| line[key].as_u64();
        let Some((shard, (lane, epoch))) = number("shard").zip(number("lane").zip(number("epoch")))
        else {
            return;
        };
        let lane = (shard, lane);
        match event {
            "lane-taken" => {
                self.taken_ms.entry(lane).or_default().insert(at_ms);
                self.takeovers.insert((shard, epoch));
                life.map(|life| life.held.insert(lane, epoch));
            }
            "lane-left" => {
                life.map(|life| life.held.remove(&lane));
            }
            "lane-listed" => self.listed.entry(lane).or_default().push((epoch, at_ms)),
            _ => {
                if let Some((public, first, last)) = block(line) {
                    self.blocks.insert((public, first), (last, lane));
                }
            }
        }
    }

    /// Returns the lane of an endpoint. `None`: no record names its block.
    fn lane(&self, public: SocketAddrV4) -> Option<LaneId> {
        let address = *public.ip();
        let mut before = self.blocks.range((address, 0)..=(address, public.port()));
        let (_, (last, lane)) = before.next_back()?;
        (public.port() <= *last).then_some(*lane)
    }

    /// True if the lane of an endpoint was taken within a second of a time.
    pub fn is_near_takeover(&self, public: SocketAddrV4, at_us: u64) -> bool {
        let at_ms = (at_us / 1_000) as i64;
        let taken_ms = self.lane(public).and_then(|lane| self.taken_ms.get(&lane));
        taken_ms.is_some_and(|it| it.range(at_ms - NEAR_MS..=at_ms + NEAR_MS).next().is_some())
    }

    /// True if a record about that time by the owner of the endpoint's lane may be lost: from the
    /// last mark of an incarnation that ended without closing its log until the next owner has
    /// listed the lane, both plus or minus `slack_ms`.
    pub fn is_near_end(&self, public: SocketAddrV4, at_us: u64, slack_ms: i64) -> bool {
        let at_ms = (at_us / 1_000) as i64;
        let asked = self.lane(public);
        let is_unsure = |end: &End| {
            let held = end.held.iter().filter(|(lane, _)| asked.is_none_or(|it| it == **lane));
            let mut until_ms = held.map(|(lane, epoch)| self.listed_after_ms(*lane, *epoch));
            at_ms >= end.marked_ms - slack_ms
                && until_ms.any(|until_ms| until_ms.is_none_or(|it| at_ms <= it + slack_ms))
        };
        self.ends.iter().any(is_unsure)
    }

    /// Returns when an owner after `epoch` has listed the lane. `None`: none has.
    fn listed_after_ms(&self, lane: LaneId, epoch: u64) -> Option<i64> {
        let listed = self.listed.get(&lane).into_iter().flatten();
        listed.filter(|(other, _)| *other > epoch).map(|(_, at_ms)| *at_ms).min()
    }

    /// Returns the number of owner changes of lanes; those of a shard at one epoch count once.
    pub fn takeovers(&self) -> usize {
        self.takeovers.len()
    }

    /// Returns the number of incarnations that ended without closing their log.
    pub fn ends(&self) -> usize {
        self.ends.len()
    }
}

fn block(line: &Value) -> Option<(Ipv4Addr, u16, u16)> {
    let (first, last) = line["ports"].as_str()?.split_once('-')?;
    let public = line["public"].as_str()?.parse().ok()?;
    Some((public, first.parse().ok()?, last.parse().ok()?))
}

/// Returns the time up to which a log is marked complete, milliseconds since 1970.
pub fn last_mark_ms(log: &str) -> Option<i64> {
    let line = log.lines().rev().find(|line| line.contains(MARK) && line.ends_with('}'))?;
    let line: Value = serde_json::from_str(line).ok()?;
    line["time"].as_str().and_then(time_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;
    /// 2023-11-14T22:13:20Z.
    const BEGAN_SEC: u64 = 1_700_000_000;

    fn line(second: u64, event: &str, fields: &str) -> String {
        let time = jiff::Timestamp::from_second((BEGAN_SEC + second) as i64).unwrap();
        format!("{{\"time\":\"{time:.3}\",\"event\":\"{event}\"{fields}}}\n")
    }

    fn of_lane(second: u64, event: &str, lane: u64, epoch: u64) -> String {
        line(second, event, &format!(",\"shard\":1,\"lane\":{lane},\"epoch\":{epoch}"))
    }

    fn allocated(second: u64, lane: u64, ports: &str) -> String {
        let fields = format!(
            ",\"shard\":1,\"lane\":{lane},\"epoch\":1,\"public\":\"198.18.0.1\",\"ports\":\"{ports}\""
        );
        line(second, "block-allocated", &fields)
    }

    fn at(second: u64) -> u64 {
        (BEGAN_SEC + second) * SECOND_US
    }

    fn endpoint(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), port)
    }

    /// A node dies at 35 s with two lanes; another node takes lane 0 at 36 s and never lane 1.
    fn book() -> LogBook {
        let first = [
            line(0, "log-opened", ""),
            of_lane(1, "lane-taken", 0, 1),
            of_lane(1, "lane-taken", 1, 1),
            of_lane(1, "lane-taken", 2, 1),
            allocated(2, 0, "1024-1087"),
            allocated(2, 1, "1088-1151"),
            allocated(2, 2, "1152-1215"),
            of_lane(20, "lane-left", 2, 1),
            line(30, "log-mark", ""),
            "{\"time\":\"2023-11-1".into(),
        ];
        let second = [
            line(0, "log-opened", ""),
            of_lane(21, "lane-taken", 2, 2),
            of_lane(36, "lane-taken", 0, 3),
            of_lane(37, "lane-listed", 0, 3),
            line(50, "log-mark", ""),
        ];
        let mut book = LogBook::default();
        book.read(&first.concat(), true);
        book.read(&second.concat(), false);
        book
    }

    #[test]
    fn a_question_is_near_a_takeover_of_its_own_lane() {
        let book = book();
        let seconds = |port| {
            let is_near = |second: &u64| book.is_near_takeover(endpoint(port), at(*second));
            (3..60).filter(is_near).collect::<Vec<_>>()
        };
        assert_eq!(seconds(1024), [35, 36, 37]);
        assert_eq!(seconds(1200), [20, 21, 22]);
        assert!(seconds(1151).is_empty() && seconds(1216).is_empty());
        assert_eq!((book.takeovers(), book.ends()), (3, 1));
    }

    #[test]
    fn end_of_a_node_matters_from_its_last_mark_until_the_lane_is_listed() {
        let book = book();
        let seconds = |port| {
            let is_near = |second: &u64| book.is_near_end(endpoint(port), at(*second), 1_000);
            (3..60).filter(is_near).collect::<Vec<_>>()
        };
        assert_eq!(seconds(1087), (29..=38).collect::<Vec<_>>());
        assert_eq!(seconds(1088), (29..60).collect::<Vec<_>>(), "no node took the lane");
        assert!(seconds(1152).is_empty(), "the node had left that lane");
        assert_eq!(seconds(5000), (29..60).collect::<Vec<_>>(), "the lane is unknown");
    }

    #[test]
    fn a_log_is_complete_up_to_its_last_whole_mark() {
        let marks = [line(30, "log-mark", ""), line(40, "log-mark", ""), line(41, "lane-left", "")];
        let cut = marks.concat() + "{\"time\":\"2023-11-14T22:14:10.000Z\",\"event\":\"log-mark\",";
        assert_eq!(last_mark_ms(&cut), Some((at(40) / 1_000) as i64));
        assert_eq!(last_mark_ms(""), None);
    }
}
