//! The load of workers: the public ports in use of the shards that each is primary of.

use std::collections::BTreeMap;

use weir_map::WorkerId;
use weir_map::allocate::NodeView;

use super::Controller;
use crate::records::{LeaderReport, WorkerReport};

/// Difference of a load that is never reported.
const WAVER: u64 = 100;

impl Controller {
    /// The load of each worker that is primary of a shard.
    pub(super) fn worker_loads(&self) -> BTreeMap<&WorkerId, u64> {
        let mut loads: BTreeMap<&WorkerId, u64> = BTreeMap::new();
        for (id, entry) in self.view.entries() {
            let load = self.loads.get(&id).copied().unwrap_or(0);
            let sum = loads.entry(&entry.primary().incarnation.worker).or_default();
            *sum = sum.saturating_add(load);
        }
        loads
    }
}

/// Returns the loads of a node's workers. A load close to that of the report `before` keeps its
/// value: a report is written when it has changed, and a load changes with every flow.
pub(super) fn worker_reports(
    node: &NodeView,
    loads: &BTreeMap<&WorkerId, u64>,
    before: Option<&LeaderReport>,
) -> Vec<WorkerReport> {
    let before = before
        .and_then(|report| report.nodes.iter().find(|before| before.node == node.name.as_str()));
    let workers = node.workers.iter().map(|worker| {
        let id = WorkerId { node: node.name.clone(), index: worker.index };
        let load = loads.get(&id).copied().unwrap_or(0);
        let mut known = before.into_iter().flat_map(|node| &node.workers);
        let known = known.find(|known| known.worker == worker.index).map_or(0, |it| it.load);
        let load = if load.abs_diff(known) <= (known / 8).max(WAVER) { known } else { load };
        WorkerReport { worker: worker.index, load, load_max: worker.load_max }
    });
    workers.collect()
}
