//! The switches can hold the cluster's routes.

use crate::cluster_types::{ClusterFile, PoolSettings};
use crate::findings::Findings;

/// Checks routes; `are_cut` is whether the sizes of the pools are known.
pub(crate) fn check(file: &ClusterFile, are_cut: bool, findings: &mut Findings<'_>) {
    const KEY: &str = "cluster.max_routes";
    let Some(max) = file.cluster.max_routes.filter(|_| are_cut && findings.is_good(KEY)) else {
        return;
    };
    let pools: u64 = file.pools.iter().map(PoolSettings::shard_count).sum();
    let explicit: usize = file.shards.iter().map(|shard| shard.public.len()).sum();
    let sides = [
        ("access", "endpoints", pools + file.shards.len() as u64),
        ("internet", "public prefixes", pools + explicit as u64),
    ];
    for (side, what, routes) in sides {
        if routes > u64::from(max) {
            let message = format!("the {side} switch gets {routes} routes, to the shards' {what}");
            findings.error(KEY, message, "make shards larger, or use a larger switch");
        }
    }
}
