//! Copies a worker's gauges into its stats a few times a second, a bounded number of them per turn.

use std::time::Duration;

use weir_dpdk::tsc_hz;
use weir_engine::Engine;
use weir_nat::ShardIndex;
use weir_wire::frame::Frame;

use crate::longest_turn::LongestTurn;
use crate::worker_stats::WorkerStats;

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
        stats: &WorkerStats,
    ) {
        let now_ms = now.as_secs() * 1000 + u64::from(now.subsec_millis());
        stats.seen_ms.set(now_ms);
        if let Some(took) = self.longest_turn.turn(cycles, has_work) {
            stats.turns.enter(took);
        }
        if self.shard < stats.shards.len() {
            publish_shard(self.shard, engine, stats);
            self.shard += 1;
        }
        if now.saturating_sub(self.published) >= PERIOD {
            self.published = now;
            self.shard = 0;
            publish_worker(engine, stats);
            self.publish_ratio(now, cycles, stats);
            stats.turn_max_ns.set(nanoseconds(self.longest_turn.within_last_minute(now), tsc_hz()));
        }
    }

    /// Notes that the worker rests from `cycles` on: the rest is no part of the turn.
    pub(crate) fn rest(&mut self, cycles: u64, stats: &WorkerStats) {
        if let Some(took) = self.longest_turn.end(cycles) {
            stats.turns.enter(took);
        }
    }

    /// Copies all gauges at once, at the start and at the end.
    pub(crate) fn publish_all<F: Frame>(&mut self, engine: &Engine<F>, stats: &WorkerStats) {
        publish_worker(engine, stats);
        for shard in 0..stats.shards.len() {
            publish_shard(shard, engine, stats);
        }
    }

    fn publish_ratio(&mut self, now: Duration, cycles: u64, stats: &WorkerStats) {
        if now.saturating_sub(self.ratio_since) < RATIO_PERIOD {
            return;
        }
        let busy = stats.busy_cycles.get();
        stats.busy_ppm.set(busy_ppm(
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

fn publish_worker<F: Frame>(engine: &Engine<F>, stats: &WorkerStats) {
    let gauges = engine.nat().admin().gauges();
    stats.flows.set(gauges.flows.into());
    stats.family_flows[0].set((gauges.flows - gauges.flows6).into());
    stats.family_flows[1].set(gauges.flows6.into());
    stats.flows_max.set(gauges.flows_max.into());
    stats.flow_creates.set(gauges.flow_creates_total);
    let creates6 = gauges.flow_creates6_total;
    stats.family_flow_creates[0].set(gauges.flow_creates_total - creates6);
    stats.family_flow_creates[1].set(creates6);
    stats.flow_expired.set(gauges.flow_expired_total);
    stats.flow_superseded.set(gauges.flow_superseded_total);
    stats.flow_rematched.set(gauges.flow_rematched_total);
    stats.subscribers.set(gauges.subscribers.into());
    stats.quarantined.set(gauges.quarantined.into());
    stats.memory_bytes.set(gauges.memory_bytes as u64);
    for (gauge, (_, bytes)) in stats.table_bytes.iter().zip(gauges.tables.named()) {
        gauge.set(bytes as u64);
    }
    for (gauge, (_, page)) in stats.page_bytes.iter().zip(gauges.pages.named()) {
        gauge.set(page.bytes() as u64);
    }
    for (stats, table) in stats.uses.iter().zip(engine.admin().table_uses()) {
        stats.name.get_or_init(|| table.table);
        stats.used.set(table.used);
        stats.max.set(table.max);
    }
    stats.homes_displaced.set(gauges.homes_displaced_total);
    stats.held.set(engine.held() as u64);
    stats.commits_alone.set(engine.nat().admin().commits_alone());
}

fn publish_shard<F: Frame>(shard: usize, engine: &Engine<F>, stats: &WorkerStats) {
    let Ok(index) = u16::try_from(shard) else { return };
    let gauges = engine.nat().admin().shard_gauges(ShardIndex(index));
    let stats = &stats.shards[shard];
    stats.subscribers.set(gauges.subscribers.into());
    stats.ports_used.set(gauges.ports_used.into());
    stats.blocks_free.set(gauges.blocks_free.into());
    stats.blocks_total.set(gauges.blocks_total.into());
    for ([free, total], pool) in stats.source_pools.iter().zip(&gauges.source_pools) {
        free.set(pool.free.into());
        total.set(pool.total.into());
    }
    stats.addresses_out_of_service.set(gauges.addresses_out_of_service.into());
    stats.ports_out_of_service.set(gauges.ports_out_of_service.into());
    stats.blocks_awaited.set(gauges.blocks_awaited.into());
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
