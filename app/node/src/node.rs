//! The control side's view of the process: its workers, their ports, shards and stats.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use weir_admin::api::{
    DropCount, ShardStatus, SideStatus, Status, TableStatus, ThreadStatus, WorkerStatus,
};
use weir_controller::records::NodeAnswer;
use weir_engine::{Direction, DropReason, Side};
use weir_nat::IpFamily;
use weir_nat_log::{BlockLogHandle, LogCounters};
use weir_process::Log;
use weir_process::http::HttpNumbers;

use crate::clock::Clock;
use crate::cluster::MemberSnapshot;
use crate::collectors::Collectors;
use crate::counted_rules::CountedRules;
use crate::generations::Generations;
use crate::member_verdict::{held_off, membership, troubles, unsaved_epochs};
use crate::rates::Rates;
use crate::request::Requester;
use crate::status::{judge, late_threads};
use crate::turns::{self, Turns};
use crate::worker_stats::{TableStats, WorkerStats};

/// The process as metrics, status and the admin API see it. Reading it never waits for a worker.
#[derive(Debug)]
pub(crate) struct Node {
    pub name: String,
    pub clock: Clock,
    /// Whether packet buffers and tables lie on huge pages.
    pub has_huge_pages: bool,
    pub workers: Vec<WorkerHandle>,
    pub block_log: Option<NodeBlockLog>,
    pub collectors: Collectors,
    pub log: Log,
    pub turns: Arc<Turns>,
    /// Bytes of the largest frame of any port.
    pub frame_max: usize,
    pub has_been_ready: AtomicBool,
    pub is_block_log_failing: AtomicBool,
    /// Settings that change while the node runs.
    pub generations: Generations,
    /// What each rule has decided, as the metrics show it.
    pub counted_rules: CountedRules,
    /// Rates of the workers.
    pub rates: Rates,
    /// Connections of the admin socket and the metrics address.
    pub http: Arc<HttpNumbers>,
    /// Set once the node takes part in a cluster.
    pub member: OnceLock<Arc<MemberSnapshot>>,
}

/// The block log and its path.
#[derive(Debug)]
pub(crate) struct NodeBlockLog {
    pub path: PathBuf,
    /// `None` once it is stopped.
    pub handle: Mutex<Option<BlockLogHandle>>,
}

/// One worker as the control side sees it.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub worker: usize,
    pub core: usize,
    pub stats: Arc<WorkerStats>,
    pub requester: Requester,
    /// Access, then internet.
    pub ports: [PortHandle; 2],
    pub shards: Arc<ShardHandles>,
}

/// The shards of a worker, by their index in its stats; in a cluster they come and go.
#[derive(Debug, Default)]
pub(crate) struct ShardHandles(Mutex<Vec<Option<ShardHandle>>>);

impl ShardHandles {
    pub(crate) fn new(shards: impl IntoIterator<Item = ShardHandle>) -> Self {
        Self(Mutex::new(shards.into_iter().map(Some).collect()))
    }

    /// Sets or removes the shard at an index.
    pub(crate) fn set(&self, index: usize, shard: Option<ShardHandle>) {
        let mut shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shards.len() <= index {
            shards.resize(index + 1, None);
        }
        shards[index] = shard;
    }

    /// Returns the present shards with their indexes.
    pub(crate) fn list(&self) -> Vec<(usize, ShardHandle)> {
        let shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let indexed = shards.iter().cloned().enumerate();
        indexed.filter_map(|(index, shard)| Some((index, shard?))).collect()
    }
}

/// The role of each worker for each shard at one moment.
#[derive(Debug, Default)]
pub(crate) struct RoleNames(HashMap<(usize, u32), String>);

impl RoleNames {
    pub(crate) fn of(&self, worker: usize, shard: u32) -> Option<String> {
        self.0.get(&(worker, shard)).cloned()
    }
}

/// One port as the control side sees it.
pub(crate) struct PortHandle {
    pub device: String,
    pub mac: String,
    /// The worker's address with its prefix length.
    pub address: String,
    pub gateways: Vec<String>,
    /// Those of IPv6.
    pub gateways6: Vec<String>,
    /// Advice for the other end of the link; empty if there is none.
    pub hint: String,
    /// Asks the device; may take microseconds.
    pub sample: Box<dyn Fn() -> PortSample + Send + Sync>,
}

/// Statistics of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortSample {
    pub is_link_up: bool,
    /// Frames the device had no room for.
    pub rx_missed_total: u64,
}

/// The fixed properties of one shard.
#[derive(Clone, Debug)]
pub(crate) struct ShardHandle {
    pub id: u32,
    pub endpoint: Option<Ipv4Addr>,
    pub public: Vec<String>,
    pub public6: Vec<String>,
    pub subscribers_max: u64,
}

impl std::fmt::Debug for PortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortHandle").field("device", &self.device).finish_non_exhaustive()
    }
}

impl NodeBlockLog {
    /// Returns for how long the disk has not taken the pending records.
    pub(crate) fn stalled(&self) -> Duration {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().map(BlockLogHandle::stalled).unwrap_or_default()
    }

    pub(crate) fn counters(&self) -> LogCounters {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().map(BlockLogHandle::counters).unwrap_or_default()
    }

    /// Closes the file and opens its path again, after a rotation.
    pub(crate) fn reopen(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handle.as_ref() {
            handle.reopen();
        }
    }

    /// Writes what is left. Later calls do nothing.
    pub(crate) fn stop(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            let _totals = handle.stop();
        }
    }
}

impl Node {
    /// Returns the node's state at this moment, with the verdict.
    pub(crate) fn status(&self) -> Status {
        let workers = self.worker_statuses();
        let is_failing = self.is_block_log_failing.load(Relaxed);
        let member = self.member.get().map(|snapshot| snapshot.status());
        let membership = member.as_ref().map(|member| membership(member));
        let risks = membership.iter().flat_map(|membership| membership.risks.clone());
        let troubles = member.iter().flat_map(|member| troubles(member));
        let of_member = risks.chain(troubles);
        let threads = self.threads();
        let of_collectors = self.collectors.troubles(Instant::now());
        let of_generations = self.generations.troubles(&self.workers, Instant::now());
        let others: Vec<String> = late_threads(&threads)
            .chain(of_member)
            .chain(of_collectors)
            .chain(of_generations)
            .collect();
        let (verdict, reasons) = judge(&workers, &self.shards(), is_failing, &others);
        Status {
            verdict,
            reasons,
            node: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            has_been_ready: self.has_been_ready.load(Relaxed),
            uptime_sec: self.clock.now().as_secs() - 1,
            has_huge_pages: self.has_huge_pages,
            block_log: self.block_log.as_ref().map(|log| log.path.display().to_string()),
            workers,
            threads,
            membership,
            generation: Some(self.generations.status()),
            waiting: None,
        }
    }

    /// Returns the answer to a controller: the state that the roles thread published, and the
    /// present faults, also those of the roles thread.
    pub(crate) fn answer(&self) -> Option<NodeAnswer> {
        let snapshot = self.member.get()?;
        let (status, answer) = (snapshot.status(), snapshot.answer());
        let threads = self.threads();
        let late = threads.iter().filter(|thread| thread.is_late);
        let late = late.map(|thread| format!("its thread {} stands still", thread.thread));
        let guard = status.guard_trouble.iter();
        let guard = guard.map(|trouble| format!("the guard of the routes {trouble}"));
        let held_off = held_off(&status);
        let epochs = unsaved_epochs(&status).map(|_| "epochs are not kept on its disk".to_owned());
        let is_failing = self.is_block_log_failing.load(Relaxed);
        let block_log = is_failing.then(|| "its block log loses records".to_owned());
        Some(NodeAnswer {
            generation: Some(self.generations.in_force(&self.workers)),
            is_still: answer.is_still || self.turns.stands_still(turns::Thread::Roles),
            troubles: late.chain(guard).chain(held_off).chain(epochs).chain(block_log).collect(),
            ..NodeAnswer::clone(&answer)
        })
    }

    /// Returns the status of the control threads that run.
    pub(crate) fn threads(&self) -> Vec<ThreadStatus> {
        let mut threads = self.turns.statuses();
        threads.push(turns::writer("log", self.log.reading().stalled));
        let block_log = self.block_log.as_ref();
        threads.extend(block_log.map(|log| turns::writer("block-log", log.stalled())));
        threads
    }

    pub(crate) fn worker_statuses(&self) -> Vec<WorkerStatus> {
        let now_ms = self.now_ms();
        self.workers.iter().map(|worker| worker.status(now_ms, &self.rates)).collect()
    }

    pub(crate) fn shards(&self) -> Vec<ShardStatus> {
        self.workers.iter().flat_map(WorkerHandle::shards).collect()
    }

    /// Returns the role of each worker for each shard; empty on a standalone node.
    pub(crate) fn roles(&self) -> RoleNames {
        let status = self.member.get().map(|snapshot| snapshot.status());
        let shards = status.iter().flat_map(|status| &status.shards);
        RoleNames(shards.map(|it| ((it.worker, it.shard), it.role.clone())).collect())
    }

    /// Returns the count of every reason of every worker, zeros included.
    pub(crate) fn drops(&self) -> Vec<DropCount> {
        let mut counts = Vec::new();
        for worker in &self.workers {
            counts.extend(DropReason::ALL.iter().map(|reason| DropCount {
                worker: worker.worker,
                reason: reason.name().into(),
                help: reason.help().into(),
                packets_total: worker.stats.engine.dropped(*reason),
            }));
        }
        counts
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).unwrap_or(u64::MAX)
    }
}

impl WorkerHandle {
    /// Whether a port has its link.
    pub(crate) fn is_link_up(&self, side: Side) -> bool {
        (self.ports[side as usize].sample)().is_link_up
    }

    fn status(&self, now_ms: u64, rates: &Rates) -> WorkerStatus {
        let stats = &self.stats;
        WorkerStatus {
            worker: self.worker,
            core: self.core,
            silent_ms: now_ms.saturating_sub(stats.seen_ms.get()),
            busy_ratio: stats.busy_ratio(),
            flows: stats.flows.get(),
            flows6: stats.family_flows[1].get(),
            flows_max: stats.flows_max.get(),
            subscribers: stats.subscribers.get(),
            generation: stats.generation.get(),
            memory_bytes: stats.memory_bytes.get(),
            record_page_bytes: stats.page_bytes[0].get(),
            index_page_bytes: stats.page_bytes[1].get().min(stats.page_bytes[2].get()),
            tables: stats.uses.iter().filter_map(table_status).collect(),
            rates: rates.of(self.worker),
            access: self.side_status(Side::Access),
            internet: self.side_status(Side::Internet),
        }
    }

    /// Returns why a side cannot forward although its link may be up; empty if it can.
    fn fault(&self, side: Side) -> String {
        let (port, counters) = (&self.ports[side as usize], &self.stats.engine);
        if counters.gateway_up(side) {
            return String::new();
        }
        if counters.address_conflict(side) {
            let (_, station) = counters.address_conflicts(side);
            return format!("IPv6 address is in use by another station, {station}");
        }
        let families = [
            (IpFamily::Ipv4, &port.gateways, "ARP"),
            (IpFamily::Ipv6, &port.gateways6, "neighbor discovery"),
        ];
        let silent = families.into_iter().filter(|(family, gateways, _)| {
            !gateways.is_empty() && !counters.family_up(side, *family)
        });
        let silent = silent.map(|(_, gateways, protocol)| {
            format!("gateway {} does not answer {protocol}", gateways.join(", "))
        });
        silent.collect::<Vec<_>>().join(", ")
    }

    fn side_status(&self, side: Side) -> SideStatus {
        let port = &self.ports[side as usize];
        let sample = (port.sample)();
        let counters = &self.stats.engine;
        let (arp_claims_refused_total, claimant) = counters.refused_claims(side);
        let (gateway_moves_total, moved_to) = counters.gateway_moves(side);
        let (address_conflicts_total, duplicate) = counters.address_conflicts(side);
        SideStatus {
            arp_claims_refused_total,
            arp_claimant: claimant.to_string(),
            gateway_moves_total,
            gateway_moved_to: moved_to.to_string(),
            address_conflicts_total,
            address_conflict_mac: duplicate.to_string(),
            fault: self.fault(side),
            checksums_wrong_total: counters.wrong_checksums(side),
            device: port.device.clone(),
            mac: port.mac.clone(),
            address: port.address.clone(),
            gateways: port.gateways.clone(),
            gateways6: port.gateways6.clone(),
            hint: port.hint.clone(),
            is_link_up: sample.is_link_up,
            is_gateway_up: counters.gateway_up(side),
            rx_packets_total: counters.packets(side, Direction::Receive),
            tx_packets_total: counters.packets(side, Direction::Transmit),
            rx_missed_total: sample.rx_missed_total,
            tx_dropped_total: self.stats.tx_dropped[side as usize].get(),
        }
    }

    fn shards(&self) -> Vec<ShardStatus> {
        let shards = self.shards.list().into_iter();
        shards
            .filter_map(|(index, shard)| Some((shard, self.stats.shards.get(index)?)))
            .map(|(shard, stats)| ShardStatus {
                shard: shard.id,
                worker: self.worker,
                endpoint: shard.endpoint,
                public: shard.public,
                public6: shard.public6,
                subscribers: stats.subscribers.get(),
                subscribers_max: shard.subscribers_max,
                ports_used: stats.ports_used.get(),
                blocks_free: stats.blocks_free.get(),
                blocks_total: stats.blocks_total.get(),
            })
            .collect()
    }
}
fn table_status(table: &TableStats) -> Option<TableStatus> {
    let name = (*table.name.get()?).to_owned();
    Some(TableStatus { table: name, used: table.used.get(), max: table.max.get() })
}

#[cfg(test)]
mod tests {
    use weir_admin::api::{MemberStatus, Verdict};

    use super::*;
    use crate::sample_node::sample_node;
    use crate::turns::Thread;

    #[test]
    fn a_node_whose_roles_thread_stalls_is_degraded_and_reports_it() {
        let (node, _mailbox) = sample_node();
        let mut node = Arc::into_inner(node).unwrap();
        let snapshot = Arc::<MemberSnapshot>::default();
        let well = MemberStatus { is_registered: true, ..MemberStatus::default() };
        snapshot.show(well.clone(), NodeAnswer::default());
        node.member.set(Arc::clone(&snapshot)).unwrap();
        let is_late = |status: &Status| status.threads.iter().any(|thread| thread.is_late);
        node.turns.turned(Thread::Roles);
        assert!(!is_late(&node.status()));
        assert_eq!(node.answer().unwrap().troubles, [""; 0]);

        // The roles thread's state stays as it was, but the thread turns no more.
        let later = Clock::started_before(Duration::from_secs(60));
        let turns = Turns::new(later, None);
        turns.turned_at(Thread::Roles, Duration::from_secs(31));
        node.turns = Arc::new(turns);
        let status = node.status();
        assert_ne!(status.verdict, Verdict::Ok);
        let reason = "thread roles: has not turned for 30 s".to_owned();
        assert!(status.reasons.contains(&reason), "{:?}", status.reasons);
        let answer = node.answer().unwrap();
        assert!(answer.is_still);
        assert_eq!(answer.troubles, ["its thread roles stands still"]);

        let guard_trouble = Some("stands still".to_owned());
        let epochs_error = Some("no storage space".to_owned());
        let ill = MemberStatus { guard_trouble, epochs_error, ..well };
        snapshot.show(ill, NodeAnswer::default());
        let answer = node.answer().unwrap();
        assert_eq!(
            answer.troubles[1..],
            ["the guard of the routes stands still", "epochs are not kept on its disk"]
        );
    }
}
