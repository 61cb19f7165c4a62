//! Copies a worker's gauges onto its board a few times a second, a bounded number of them per turn.

use std::time::Duration;

use weir_dpdk::tsc_hz;
use weir_engine::Engine;
use weir_nat::ShardIndex;
use weir_wire::frame::Frame;

use crate::board::Board;
use crate::longest_turn::LongestTurn;

/// Time between two copies of the same gauge.
const PERIOD: Duration = Duration::from_millis(100);
/// Time over which the busy ratio is averaged.
const RATIO_PERIOD: Duration = Duration::from_secs(1);

/// Progress of the copies, and the values at the last ones.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    published: Duration,
    /// The shard to copy in the next turn; equal to their number between two rounds.
    shard: usize,
    ratio_since: Duration,
    ratio_cycles: u64,
    ratio_busy: u64,
    longest_turn: LongestTurn,
}

impl Publisher {
    /// Copies the gauges that are due. Must be called once per turn. `cycles`: the timestamp
    /// counter at the turn's beginning; `has_work`: the turn counts.
    #[inline]
    pub(crate) fn publish<F: Frame>(
        &mut self,
        now: Duration,
        cycles: u64,
        has_work: bool,
        engine: &Engine<F>,
        board: &Board,
    ) {
        let now_ms = now.as_secs() * 1000 + u64::from(now.subsec_millis());
        board.seen_ms.set(now_ms);
        if let Some(took) = self.longest_turn.turn(cycles, has_work) {
            board.turns.enter(took);
        }
        if self.shard < board.shards.len() {
            publish_shard(self.shard, engine, board);
            self.shard += 1;
        }
        if now.saturating_sub(self.published) >= PERIOD {
            self.published = now;
            self.shard = 0;
            publish_worker(engine, board);
            self.publish_ratio(now, cycles, board);
            board.turn_max_ns.set(nanoseconds(self.longest_turn.within_last_minute(now), tsc_hz()));
        }
    }

    /// Notes that the worker rests from `cycles` on: the rest is no part of the turn.
    pub(crate) fn rest(&mut self, cycles: u64, board: &Board) {
        if let Some(took) = self.longest_turn.end(cycles) {
            board.turns.enter(took);
        }
    }

    /// Copies all gauges at once, at the start and at the end.
    pub(crate) fn publish_all<F: Frame>(&mut self, engine: &Engine<F>, board: &Board) {
        publish_worker(engine, board);
        for shard in 0..board.shards.len() {
            publish_shard(shard, engine, board);
        }
    }

    fn publish_ratio(&mut self, now: Duration, cycles: u64, board: &Board) {
        if now.saturating_sub(self.ratio_since) < RATIO_PERIOD {
            return;
        }
        let busy = board.busy_cycles.get();
        board.busy_ppm.set(busy_ppm(
            busy.wrapping_sub(self.ratio_busy),
            cycles.wrapping_sub(self.ratio_cycles),
        ));
        (self.ratio_since, self.ratio_cycles, self.ratio_busy) = (now, cycles, busy);
    }
}

/// Returns `busy` of `elapsed` cycles in millionths, at most 1,000,000.
fn busy_ppm(busy: u64, elapsed: u64) -> u64 {
    let ppm = u128::from(busy) * 1_000_000 / u128::from(elapsed.max(1));
    u64::try_from(ppm).unwrap_or(u64::MAX).min(1_000_000)
}

/// Converts `cycles` of a counter of `hz` cycles per second; 0 while the frequency is not known.
fn nanoseconds(cycles: u64, hz: u64) -> u64 {
    let ns = (u128::from(cycles) * 1_000_000_000).checked_div(u128::from(hz)).unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn publish_worker<F: Frame>(engine: &Engine<F>, board: &Board) {
    let gauges = engine.nat().admin().gauges();
    board.flows.set(gauges.flows.into());
    board.flows_max.set(gauges.flows_max.into());
    board.flow_creates.set(gauges.flow_creates_total);
    board.flow_expired.set(gauges.flow_expired_total);
    board.flow_superseded.set(gauges.flow_superseded_total);
    board.subscribers.set(gauges.subscribers.into());
    board.quarantined.set(gauges.quarantined.into());
    board.memory_bytes.set(gauges.memory_bytes as u64);
    for (gauge, (_, bytes)) in board.table_bytes.iter().zip(gauges.tables.named()) {
        gauge.set(bytes as u64);
    }
    for (board, table) in board.uses.iter().zip(engine.admin().table_uses()) {
        board.name.get_or_init(|| table.table);
        board.used.set(table.used);
        board.max.set(table.max);
    }
    board.homes_displaced.set(gauges.homes_displaced_total);
    board.held.set(engine.held() as u64);
    board.commits_alone.set(engine.nat().admin().commits_alone());
}

fn publish_shard<F: Frame>(shard: usize, engine: &Engine<F>, board: &Board) {
    let Ok(index) = u16::try_from(shard) else { return };
    let gauges = engine.nat().admin().shard_gauges(ShardIndex(index));
    let board = &board.shards[shard];
    board.subscribers.set(gauges.subscribers.into());
    board.ports_used.set(gauges.ports_used.into());
    board.blocks_free.set(gauges.blocks_free.into());
    board.blocks_total.set(gauges.blocks_total.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_become_time() {
        assert_eq!(nanoseconds(2_300, 2_300_000_000), 1_000);
        assert_eq!(nanoseconds(2_300, 0), 0);
        assert_eq!(nanoseconds(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn the_ratio_is_between_nothing_and_all() {
        assert_eq!(busy_ppm(0, 1000), 0);
        assert_eq!(busy_ppm(250, 1000), 250_000);
        assert_eq!(busy_ppm(2000, 1000), 1_000_000);
        assert_eq!(busy_ppm(5, 0), 1_000_000);
        assert_eq!(busy_ppm(u64::MAX, u64::MAX), 1_000_000);
    }
}
