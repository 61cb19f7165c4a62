//! The verdict on a node: does it forward, and does anything need a look?

use weir_admin::api::{ShardStatus, SideStatus, ThreadStatus, Verdict, WorkerStatus};

/// A worker whose last loop turn is this long ago does not forward.
pub(crate) const HUNG_MS: u64 = 1000;
/// A table this full, in percent, is worth a look before it refuses flows.
const TABLE_WARN_PERCENT: u64 = 90;

/// Returns the verdict and the reasons why it is not OK, the gravest first.
///
/// `is_block_log_failing`: records were lost or could not be written in the last minutes.
/// `of_member`: further reasons, such as those of the node's membership in a cluster; none of them
/// stops the node from forwarding.
pub(crate) fn judge(
    workers: &[WorkerStatus],
    shards: &[ShardStatus],
    is_block_log_failing: bool,
    of_member: &[String],
) -> (Verdict, Vec<String>) {
    let mut reasons = Vec::new();
    let mut forwarding = 0;
    for worker in workers {
        let before = reasons.len();
        not_forwarding(worker, &mut reasons);
        forwarding += usize::from(reasons.len() == before);
    }
    for worker in workers {
        if worker.flows * 100 >= worker.flows_max * TABLE_WARN_PERCENT && worker.flows_max > 0 {
            let percent = worker.flows * 100 / worker.flows_max;
            reasons.push(format!("worker {}: flow table {percent} % full", worker.worker));
        }
        // Flows have their own line, and lines of shards report that homes or blocks run out.
        for table in worker.tables.iter().filter(|table| {
            !["flows", "homes", "blocks"].contains(&table.table.as_str())
                && table.max > 0
                && table.used * 100 >= table.max * TABLE_WARN_PERCENT
        }) {
            let percent = table.used * 100 / table.max;
            reasons
                .push(format!("worker {}: table {} {percent} % full", worker.worker, table.table));
        }
    }
    for shard in shards.iter().filter(|shard| shard.blocks_total > 0 && shard.blocks_free == 0) {
        reasons.push(format!("shard {}: no free port block", shard.shard));
    }
    for shard in shards.iter().filter(|shard| shard.subscribers >= shard.subscribers_max) {
        reasons.push(format!("shard {}: subscribers_max reached", shard.shard));
    }
    if is_block_log_failing {
        reasons.push("block log: records are being lost".into());
    }
    reasons.extend_from_slice(of_member);
    let verdict = match (forwarding, reasons.is_empty()) {
        (0, _) => Verdict::Down,
        (_, true) => Verdict::Ok,
        (_, false) => Verdict::Degraded,
    };
    (verdict, reasons)
}

/// Adds the reasons why a worker forwards nothing; none if it forwards.
fn not_forwarding(worker: &WorkerStatus, reasons: &mut Vec<String>) {
    let number = worker.worker;
    if worker.silent_ms >= HUNG_MS {
        reasons.push(format!("worker {number}: hangs for {} ms", worker.silent_ms));
    }
    for (name, side) in [("access", &worker.access), ("internet", &worker.internet)] {
        if !side.is_link_up {
            reasons.push(format!("worker {number}: {name} port {} has no link", side.device));
        } else if !side.is_gateway_up {
            reasons.push(format!("worker {number}: {name} {}", side.fault));
        }
    }
}

/// Returns a sentence for each thread that has stalled.
pub(crate) fn late_threads(threads: &[ThreadStatus]) -> impl Iterator<Item = String> + '_ {
    threads.iter().filter(|thread| thread.is_late).map(
        |ThreadStatus { thread, turn_age_ms, .. }| {
            let seconds = turn_age_ms / 1000;
            match thread.as_str() {
                "log" => format!("log: its reader has taken nothing for {seconds} s"),
                "block-log" => format!("block log: the disk has taken nothing for {seconds} s"),
                name => format!("thread {name}: has not turned for {seconds} s"),
            }
        },
    )
}

/// Whether a side can send.
pub(crate) fn is_side_up(side: &SideStatus) -> bool {
    side.is_link_up && side.is_gateway_up
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_admin::api::{TableStatus, WorkerRates};

    use super::*;

    pub(crate) fn side() -> SideStatus {
        SideStatus {
            device: "net_null0".into(),
            gateways: vec!["10.1.0.2".into()],
            is_link_up: true,
            is_gateway_up: true,
            ..SideStatus::default()
        }
    }

    pub(crate) fn worker(number: usize) -> WorkerStatus {
        WorkerStatus {
            worker: number,
            core: number,
            silent_ms: 0,
            busy_ratio: 0.0,
            flows: 0,
            flows6: 0,
            flows_max: 1000,
            subscribers: 0,
            generation: 0,
            memory_bytes: 0,
            record_page_bytes: 0,
            index_page_bytes: 0,
            tables: Vec::new(),
            rates: WorkerRates::default(),
            access: side(),
            internet: side(),
        }
    }

    fn shard() -> ShardStatus {
        ShardStatus {
            shard: 7,
            worker: 0,
            endpoint: None,
            public: Vec::new(),
            public6: Vec::new(),
            subscribers: 1,
            subscribers_max: 256,
            ports_used: 0,
            blocks_free: 5,
            blocks_total: 8,
        }
    }

    #[test]
    fn a_node_that_forwards_is_ok() {
        assert_eq!(judge(&[worker(0)], &[shard()], false, &[]), (Verdict::Ok, vec![]));
    }

    #[test]
    fn one_broken_worker_of_two_degrades_and_both_are_down() {
        let mut broken = worker(1);
        broken.internet.is_gateway_up = false;
        broken.internet.fault = "gateway 10.1.0.2 does not answer ARP".into();
        let (verdict, reasons) = judge(&[worker(0), broken.clone()], &[], false, &[]);
        assert_eq!(verdict, Verdict::Degraded);
        assert_eq!(reasons, ["worker 1: internet gateway 10.1.0.2 does not answer ARP"]);
        broken.access.is_link_up = false;
        let (verdict, reasons) = judge(&[broken], &[], false, &[]);
        assert_eq!(verdict, Verdict::Down);
        assert_eq!(reasons[0], "worker 1: access port net_null0 has no link");
    }

    #[test]
    fn a_hung_worker_does_not_forward() {
        let hung = WorkerStatus { silent_ms: 2500, ..worker(0) };
        let (verdict, reasons) = judge(&[hung], &[], false, &[]);
        assert_eq!((verdict, reasons), (Verdict::Down, vec!["worker 0: hangs for 2500 ms".into()]));
    }

    #[test]
    fn scarcity_degrades() {
        let full = WorkerStatus { flows: 900, ..worker(0) };
        let (verdict, reasons) = judge(&[full], &[], false, &[]);
        assert_eq!(
            (verdict, reasons),
            (Verdict::Degraded, vec!["worker 0: flow table 90 % full".into()])
        );
        let table = |table: &str, used| TableStatus { table: table.into(), used, max: 1000 };
        let tables = vec![table("sessions", 900), table("mappings", 899), table("homes", 1000)];
        let full = WorkerStatus { tables, ..worker(0) };
        let (verdict, reasons) = judge(&[full], &[], false, &[]);
        assert_eq!(
            (verdict, reasons),
            (Verdict::Degraded, vec!["worker 0: table sessions 90 % full".into()])
        );
        let empty = ShardStatus { blocks_free: 0, subscribers: 256, ..shard() };
        let (verdict, reasons) = judge(&[worker(0)], &[empty], true, &[]);
        assert_eq!(verdict, Verdict::Degraded);
        assert_eq!(reasons.len(), 3, "{reasons:?}");
    }

    #[test]
    fn a_member_at_risk_forwards_and_needs_a_look() {
        let risk = ["not heard: n2/0".to_owned()];
        let (verdict, reasons) = judge(&[worker(0)], &[], false, &risk);
        assert_eq!((verdict, reasons), (Verdict::Degraded, risk.to_vec()));
    }
}
