//! Numbers that a worker publishes: each has one writer, and any thread may read it at any time.
//!
//! Other threads never look into a worker's tables. The worker copies its gauges here a few times a
//! second, one shard per turn, so a thousand shards cost no more per turn than one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir_engine::{Counter, EngineCounters, TABLES};
use weir_nat::SOURCE_POOLS;

use crate::duration_histogram::DurationHistogram;

/// Shorter housekeeping found nothing to do, as in most turns of a loop that polls without rest.
const TICK_LEAST: Duration = Duration::from_micros(1);

/// A value with one writer.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One worker's numbers.
#[derive(Debug)]
pub(crate) struct WorkerStats {
    /// Counted by the engine.
    pub engine: Arc<EngineCounters>,
    /// Monotonic milliseconds of the worker's last loop turn.
    pub seen_ms: Gauge,
    /// Timestamp-counter cycles spent in loops that received packets.
    pub busy_cycles: Counter,
    /// Packets received in those loops.
    pub busy_packets: Counter,
    /// Share of the last second spent on packets, in millionths.
    pub busy_ppm: Gauge,
    /// Turns of the loop that had work.
    pub turns: DurationHistogram,
    /// The housekeeping alone, in those turns.
    pub ticks: DurationHistogram,
    /// The longest turn with work within the last minute, nanoseconds.
    pub turn_max_ns: Gauge,
    /// Frames the device did not take, by side.
    pub tx_dropped: [Gauge; 2],
    /// Frames a running capture had no room for.
    pub capture_dropped: Counter,
    /// Packets that had waited while the worker stalled, fenced by its guard or not, and that were
    /// handled as late ones.
    pub late_packets: Counter,
    /// Packets that had waited too long during a stall and were discarded.
    pub late_discarded: Counter,
    /// Number of the generation of settings in force.
    pub generation: Gauge,
    /// Packets that wait for copies.
    pub held: Gauge,
    /// Changes that should wait for copies, in shards that have none.
    pub commits_alone: Gauge,
    pub flows: Gauge,
    /// The parts of `flows`: IPv4, IPv6.
    pub family_flows: [Gauge; 2],
    pub flows_max: Gauge,
    pub flow_creates: Gauge,
    /// The parts of `flow_creates`: IPv4, IPv6.
    pub family_flow_creates: [Gauge; 2],
    pub flow_expired: Gauge,
    pub flow_superseded: Gauge,
    pub flow_rematched: Gauge,
    pub subscribers: Gauge,
    pub quarantined: Gauge,
    pub memory_bytes: Gauge,
    /// In the order of [`weir_nat::TableBytes::named`].
    pub table_bytes: [Gauge; 8],
    /// In the order of [`weir_nat::TablePages::named`].
    pub page_bytes: [Gauge; 3],
    /// In the order of [`weir_engine::EngineAdmin::table_uses`]: name, used, most.
    pub uses: [TableStats; TABLES],
    pub homes_displaced: Gauge,
    /// By the index of a shard at this worker.
    pub shards: Vec<ShardStats>,
}

/// How full a table is.
#[derive(Debug, Default)]
pub(crate) struct TableStats {
    /// Set with the first numbers.
    pub name: OnceLock<&'static str>,
    pub used: Gauge,
    pub max: Gauge,
}

/// One shard's numbers.
#[derive(Debug, Default)]
pub(crate) struct ShardStats {
    pub subscribers: Gauge,
    pub ports_used: Gauge,
    pub blocks_free: Gauge,
    pub blocks_total: Gauge,
    /// Free blocks and all blocks of each source pool, from number 1 on.
    pub source_pools: [[Gauge; 2]; SOURCE_POOLS as usize - 1],
    pub addresses_out_of_service: Gauge,
    pub ports_out_of_service: Gauge,
    pub blocks_awaited: Gauge,
}

impl WorkerStats {
    /// `tsc_hz`: cycles per second of the timestamp counter.
    pub(crate) fn new(engine: Arc<EngineCounters>, shards: usize, tsc_hz: u64) -> Self {
        Self {
            engine,
            seen_ms: Gauge::default(),
            busy_cycles: Counter::default(),
            busy_packets: Counter::default(),
            busy_ppm: Gauge::default(),
            turns: DurationHistogram::new(tsc_hz, Duration::ZERO),
            ticks: DurationHistogram::new(tsc_hz, TICK_LEAST),
            turn_max_ns: Gauge::default(),
            tx_dropped: Default::default(),
            capture_dropped: Counter::default(),
            late_packets: Counter::default(),
            late_discarded: Counter::default(),
            generation: Gauge::default(),
            held: Gauge::default(),
            commits_alone: Gauge::default(),
            flows: Gauge::default(),
            family_flows: Default::default(),
            flows_max: Gauge::default(),
            flow_creates: Gauge::default(),
            family_flow_creates: Default::default(),
            flow_expired: Gauge::default(),
            flow_superseded: Gauge::default(),
            flow_rematched: Gauge::default(),
            subscribers: Gauge::default(),
            quarantined: Gauge::default(),
            memory_bytes: Gauge::default(),
            table_bytes: Default::default(),
            page_bytes: Default::default(),
            uses: Default::default(),
            homes_displaced: Gauge::default(),
            shards: (0..shards).map(|_| ShardStats::default()).collect(),
        }
    }
    /// Share of the last second spent on packets, 0 to 1.
    pub(crate) fn busy_ratio(&self) -> f64 {
        self.busy_ppm.get() as f64 / 1e6
    }
}
