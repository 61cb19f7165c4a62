//! The node's numbers as OpenMetrics text. Never a series per subscriber; every series exists from
//! the start, at 0.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use weir_engine::{Direction, Side};
use weir_nat::{TableBytes, TablePages};
use weir_process::http::ConnectionRefusal;
use weir_process::metrics::{Family, Labels, NO_LABEL, build_info, encoded};

use crate::collector_metrics::collectors;
use crate::drop_metrics::drops;
use crate::duration_histogram::Durations;
use crate::generation_metrics::{generations, rules};
use crate::member_metrics::member;
use crate::node::{Node, WorkerHandle};
use crate::start_progress::{StartProgress, awaited_names};
use crate::worker_stats::{Gauge, ShardStats, TableStats, WorkerStats};

/// Returns all metrics at this moment.
pub(crate) fn text(node: &Arc<Node>) -> String {
    encoded(NodeScrape(Arc::clone(node)))
}

/// Returns the metrics of a node that starts.
pub(crate) fn text_of_start(progress: &StartProgress) -> String {
    encoded(StartScrape(progress.clone()))
}

#[derive(Debug)]
struct NodeScrape(Arc<Node>);

#[derive(Debug)]
struct StartScrape(StartProgress);

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        // The count is that of the buckets read, even while the worker goes on counting.
        encoder.encode_histogram::<NoLabelSet>(self.sum_sec, self.count(), &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// A worker with its number as a label value.
pub(crate) type Numbered<'a> = (String, &'a WorkerHandle);

impl Collector for NodeScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let node = &self.0;
        let workers: Vec<Numbered<'_>> =
            node.workers.iter().map(|worker| (worker.worker.to_string(), worker)).collect();
        let mut family = Family::new(&mut encoder);
        build_info(&mut family)?;
        waiting(&mut family, awaited_names().map(|name| (name, 0.0)))?;
        traffic(&mut family, &workers)?;
        drops(&mut family, &workers)?;
        tables(&mut family, &workers)?;
        load(&mut family, &workers)?;
        generations(&mut family, &node.generations, &workers)?;
        rules(&mut family, &node.counted_rules.last())?;
        ports(&mut family, &workers)?;
        shards(&mut family, &workers, &node.generations.source_pools())?;
        member(&mut family, node, &workers)?;
        http(&mut family, node)?;
        threads(&mut family, node)?;
        logs(&mut family, node)?;
        collectors(&mut family, &node.collectors.counters())
    }
}

impl Collector for StartScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut family = Family::new(&mut encoder);
        build_info(&mut family)?;
        waiting(&mut family, self.0.waiting_seconds())
    }
}

fn waiting(
    family: &mut Family<'_, '_>,
    seconds: impl IntoIterator<Item = (&'static str, f64)>,
) -> Result<(), Error> {
    let series = seconds
        .into_iter()
        .map(|(name, seconds)| (Labels([("for", name), NO_LABEL, NO_LABEL]), seconds));
    let help = "Since the start of the node waits for something; 0 once it has started.";
    family.gauge("weir_waiting_seconds", help, series)
}

fn traffic(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let series = |count: fn(&WorkerStats, Side, Direction) -> u64| {
        let mut series = Vec::new();
        for (number, worker) in workers {
            for side in Side::ALL {
                for (direction, dir) in [(Direction::Receive, "rx"), (Direction::Transmit, "tx")] {
                    let labels = Labels([("worker", number), ("side", side.name()), ("dir", dir)]);
                    series.push((labels, count(&worker.stats, side, direction)));
                }
            }
        }
        series
    };
    let packets = series(|stats, side, direction| stats.engine.packets(side, direction));
    family.counter("weir_packets", "Frames received and sent.", packets)?;
    let bytes = series(|stats, side, direction| stats.engine.bytes(side, direction));
    family.counter("weir_bytes", "Bytes of Ethernet frames received and sent, without FCS.", bytes)
}

pub(crate) fn per_worker<'a, V>(
    workers: &'a [Numbered<'_>],
    value: impl Fn(&WorkerStats) -> V + 'a,
) -> impl Iterator<Item = (Labels<'a>, V)> {
    workers.iter().map(move |(number, worker)| {
        (Labels([("worker", number.as_str()), NO_LABEL, NO_LABEL]), value(&worker.stats))
    })
}

fn tables(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let flows = per_worker(workers, |stats| stats.flows.get() as f64);
    family.gauge("weir_flows", "Flows in the table.", flows)?;
    let flows_max = per_worker(workers, |stats| stats.flows_max.get() as f64);
    family.gauge("weir_flows_max", "Flows the table can hold.", flows_max)?;
    let creates = per_worker(workers, |stats| stats.flow_creates.get());
    family.counter("weir_flow_creates", "Flows created.", creates)?;
    families(family, workers)?;
    let expired = per_worker(workers, |stats| stats.flow_expired.get());
    family.counter("weir_flow_expired", "Flows removed because they were idle.", expired)?;
    let superseded = per_worker(workers, |stats| stats.flow_superseded.get());
    family.counter(
        "weir_flow_superseded",
        "Flows removed because another mapping of their inside endpoint is in use.",
        superseded,
    )?;
    let rematched = per_worker(workers, |stats| stats.flow_rematched.get());
    family.counter(
        "weir_flow_rematched",
        "Live flows removed because a rule with rematch refuses them.",
        rematched,
    )?;
    let subscribers = per_worker(workers, |stats| stats.subscribers.get() as f64);
    family.gauge("weir_subscribers", "Homes that hold a public address.", subscribers)?;
    let quarantined = per_worker(workers, |stats| stats.quarantined.get() as f64);
    family.gauge(
        "weir_quarantined",
        "Ended mappings whose port is not yet given again.",
        quarantined,
    )?;
    let displaced = per_worker(workers, |stats| stats.homes_displaced.get());
    family.counter(
        "weir_homes_displaced",
        "Homes without any answered flow that gave way to another home.",
        displaced,
    )?;
    uses(family, workers)?;
    memory(family, workers)
}

/// Writes the parts of `weir_flows` and `weir_flow_creates_total` by address family, in families of
/// their own: a label there would be missing in `weir_flows_max`, which alerts divide by.
fn families(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let series = |of: fn(&WorkerStats) -> &[Gauge; 2]| {
        let mut series = Vec::new();
        for (number, worker) in workers {
            for (name, gauge) in ["4", "6"].into_iter().zip(of(&worker.stats)) {
                let labels = Labels([("worker", number), ("family", name), NO_LABEL]);
                series.push((labels, gauge.get()));
            }
        }
        series
    };
    let flows = series(|stats| &stats.family_flows).into_iter();
    let flows = flows.map(|(labels, value)| (labels, value as f64));
    family.gauge("weir_family_flows", "Flows in the table by address family.", flows)?;
    let creates = series(|stats| &stats.family_flow_creates);
    family.counter("weir_family_flow_creates", "Flows created, by address family.", creates)
}

fn uses(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let series = |of: fn(&TableStats) -> u64| {
        let mut series = Vec::new();
        for (number, worker) in workers {
            for table in &worker.stats.uses {
                let Some(name) = table.name.get() else { continue };
                let labels = Labels([("worker", number), ("table", name), NO_LABEL]);
                series.push((labels, of(table) as f64));
            }
        }
        series
    };
    let used = series(|table| table.used.get());
    family.gauge("weir_table_used", "Entries of each bounded table that are in use.", used)?;
    let max = series(|table| table.max.get());
    family.gauge("weir_table_max", "Entries that each bounded table has room for.", max)
}

fn memory(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let tables = TableBytes::default().named();
    let mut series = Vec::new();
    for (number, worker) in workers {
        for ((table, _), bytes) in tables.iter().zip(&worker.stats.table_bytes) {
            let labels = Labels([("worker", number), ("table", table), NO_LABEL]);
            series.push((labels, bytes.get() as f64));
        }
    }
    family.gauge("weir_memory_bytes", "Memory of the worker's tables.", series)?;
    let mut series = Vec::new();
    for (number, worker) in workers {
        let tables = TablePages::default().named();
        for ((table, _), bytes) in tables.iter().zip(&worker.stats.page_bytes) {
            let labels = Labels([("worker", number), ("table", table), NO_LABEL]);
            series.push((labels, bytes.get() as f64));
        }
    }
    family.gauge("weir_page_bytes", "Size of the pages that the table lies on.", series)?;
    let per_flow = per_worker(workers, |stats| {
        stats.memory_bytes.get() as f64 / stats.flows_max.get().max(1) as f64
    });
    let help = "Memory of all tables of the worker, shared out among weir_flows_max.";
    family.gauge("weir_bytes_per_flow", help, per_flow)
}

fn load(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let ratio = per_worker(workers, WorkerStats::busy_ratio);
    family.gauge("weir_worker_busy_ratio", "Share of the last second spent on packets.", ratio)?;
    let cycles = per_worker(workers, |stats| stats.busy_cycles.get());
    let help = "Timestamp-counter cycles spent in loops that received packets.";
    family.counter("weir_busy_cycles", help, cycles)?;
    let packets = per_worker(workers, |stats| stats.busy_packets.get());
    family.counter("weir_busy_packets", "Packets received in those loops.", packets)?;
    turns(family, workers)?;
    let capture = per_worker(workers, |stats| stats.capture_dropped.get());
    family.counter("weir_capture_dropped", "Frames a capture had no room for.", capture)
}

fn turns(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let turns = per_worker(workers, |stats| stats.turns.read());
    let help = "Turns of a worker's loop with work in them: packets, requests, housekeeping.";
    family.write("weir_turn_seconds", help, MetricType::Histogram, turns)?;
    let ticks = per_worker(workers, |stats| stats.ticks.read());
    let help = "Housekeeping within a turn, expiry above all, of one microsecond or longer.";
    family.write("weir_tick_seconds", help, MetricType::Histogram, ticks)?;
    let longest = per_worker(workers, |stats| stats.turn_max_ns.get() as f64 / 1e9);
    let help = "The longest turn with work within the last 30 to 60 seconds.";
    family.gauge("weir_turn_seconds_max", help, longest)
}

fn per_port<'a, V>(
    workers: &'a [Numbered<'_>],
    value: impl Fn(&WorkerHandle, Side) -> V + 'a,
) -> Vec<(Labels<'a>, V)> {
    let mut series = Vec::new();
    for (number, worker) in workers {
        for side in Side::ALL {
            let labels = Labels([("worker", number), ("side", side.name()), NO_LABEL]);
            series.push((labels, value(worker, side)));
        }
    }
    series
}

fn ports(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let samples = per_port(workers, |worker, side| (worker.ports[side as usize].sample)());
    let missed = samples.iter().map(|(labels, sample)| (labels.clone(), sample.rx_missed_total));
    family.counter("weir_rx_missed", "Frames the device had no room for.", missed)?;
    let links = samples
        .iter()
        .map(|(labels, sample)| (labels.clone(), f64::from(u8::from(sample.is_link_up))));
    family.gauge("weir_link_up", "1 while the port has its link.", links)?;
    let dropped = per_port(workers, |worker, side| worker.stats.tx_dropped[side as usize].get());
    family.counter("weir_tx_dropped", "Frames the device did not take in time.", dropped)?;
    let gateways =
        per_port(workers, |worker, side| f64::from(u8::from(worker.stats.engine.gateway_up(side))));
    family.gauge(
        "weir_gateway_up",
        "1 while a gateway of the side answers in each family that the side has.",
        gateways,
    )?;
    let claims = per_port(workers, |worker, side| worker.stats.engine.refused_claims(side).0);
    let help = "ARP messages that claimed a neighbour's address for a MAC that it does not have.";
    family.counter("weir_arp_claims_refused", help, claims)?;
    let moves = per_port(workers, |worker, side| worker.stats.engine.gateway_moves(side).0);
    family.counter("weir_gateway_moves", "Gateways found at another MAC than before.", moves)?;
    let conflicts = per_port(workers, |worker, side| worker.stats.engine.address_conflicts(side).0);
    let help = "Messages of other stations that have an IPv6 address of the worker.";
    family.counter("weir_address_conflicts", help, conflicts)?;
    let wrong = per_port(workers, |worker, side| worker.stats.engine.wrong_checksums(side));
    let help = "TCP SYNs with a wrong checksum, of those that were looked at, one in 64.";
    family.counter("weir_syn_checksums_wrong", help, wrong)
}

fn shards(
    family: &mut Family<'_, '_>,
    workers: &[Numbered<'_>],
    source_pools: &[String],
) -> Result<(), Error> {
    let ids: Vec<(String, &ShardStats)> = workers
        .iter()
        .flat_map(|(_, worker)| {
            let shards = worker.shards.list().into_iter();
            shards.filter_map(|(index, shard)| Some((shard.id, worker.stats.shards.get(index)?)))
        })
        .map(|(id, stats)| (id.to_string(), stats))
        .collect();
    let series = |value: fn(&ShardStats) -> u64| {
        ids.iter().map(move |(id, stats)| {
            (Labels([("shard", id.as_str()), NO_LABEL, NO_LABEL]), value(stats) as f64)
        })
    };
    let used = series(|stats| stats.ports_used.get());
    family.gauge("weir_ports_used", "Public ports that carry a mapping.", used)?;
    // A source pool that a shard has no address of has no series there.
    let of_pools = |which: usize| {
        ids.iter().flat_map(move |(id, stats)| {
            let pools = source_pools.iter().zip(&stats.source_pools);
            pools.filter(|(_, [_, total])| total.get() > 0).map(move |(name, pool)| {
                let labels = [("shard", id.as_str()), ("pool", name.as_str()), NO_LABEL];
                (Labels(labels), pool[which].get() as f64)
            })
        })
    };
    let free = series(|stats| stats.blocks_free.get()).chain(of_pools(0));
    family.gauge("weir_blocks_free", "Port blocks no home holds.", free)?;
    let total = series(|stats| stats.blocks_total.get()).chain(of_pools(1));
    family.gauge("weir_blocks", "Port blocks of the shard.", total)?;
    let closed = series(|stats| stats.addresses_out_of_service.get());
    let help = "Public addresses that are drained or quarantined.";
    family.gauge("weir_addresses_out_of_service", help, closed)?;
    let left = series(|stats| stats.ports_out_of_service.get());
    let help = "Public ports that carry a mapping on addresses that are drained or quarantined.";
    family.gauge("weir_ports_out_of_service", help, left)?;
    let awaited = series(|stats| stats.blocks_awaited.get());
    let help = "Port blocks of static mappings that homes still hold.";
    family.gauge("weir_static_blocks_awaited", help, awaited)?;
    let subscribers = series(|stats| stats.subscribers.get());
    family.gauge("weir_shard_subscribers", "Homes admitted to the shard.", subscribers)
}

fn http(family: &mut Family<'_, '_>, node: &Node) -> Result<(), Error> {
    let listeners = node.http.all();
    let open = listeners.iter().map(|(listener, numbers)| {
        (Labels([("listener", listener), NO_LABEL, NO_LABEL]), numbers.open() as f64)
    });
    let help = "Open connections of the admin socket and the metrics address.";
    family.gauge("weir_http_connections", help, open)?;
    let refusals = listeners.iter().flat_map(|(listener, numbers)| {
        ConnectionRefusal::ALL.into_iter().map(move |refusal| {
            let labels = Labels([("listener", listener), ("reason", refusal.name()), NO_LABEL]);
            (labels, numbers.refused(refusal))
        })
    });
    let help = "Connections and requests refused or ended by the server, by reason.";
    family.counter("weir_http_refusals", help, refusals)
}

fn threads(family: &mut Family<'_, '_>, node: &Node) -> Result<(), Error> {
    let workers = node.worker_statuses().into_iter();
    let workers = workers.map(|it| (format!("worker-{}", it.worker), it.silent_ms));
    let threads = node.threads().into_iter().map(|it| (it.thread, it.turn_age_ms));
    let ages: Vec<(String, u64)> = threads.chain(workers).collect();
    let series = ages.iter().map(|(thread, age_ms)| {
        (Labels([("thread", thread.as_str()), NO_LABEL, NO_LABEL]), *age_ms as f64 / 1e3)
    });
    family.gauge("weir_thread_turn_age_seconds", "Since the thread's last turn.", series)
}

fn logs(family: &mut Family<'_, '_>, node: &Node) -> Result<(), Error> {
    let block_log = node.block_log.as_ref().map(|log| log.counters()).unwrap_or_default();
    let log = |name| Labels([("log", name), NO_LABEL, NO_LABEL]);
    let lost = [(log("block"), block_log.lost_total), (log("operational"), node.log.suppressed())];
    family.counter("weir_log_lines_dropped", "Log lines lost or kept back.", lost)?;
    let lost = [(log("operational"), node.log.reading().lost_total)];
    let help = "Log lines lost because their reader stood still.";
    family.counter("weir_log_lines_lost", help, lost)?;
    let written = [(log("block"), block_log.written_total)];
    family.counter("weir_log_lines_written", "Log lines written.", written)?;
    let errors = [(log("block"), block_log.write_errors_total)];
    family.counter("weir_log_write_errors", "Failed writes, which are tried again.", errors)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
