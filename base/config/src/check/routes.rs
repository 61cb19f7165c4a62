//! The switches can hold the cluster's routes.

use crate::cluster_types::{ClusterFile, ClusterShard, PoolSettings};
use crate::findings::Findings;

/// Checks routes; `are_cut` is whether the sizes of the pools are known.
pub(crate) fn check(file: &ClusterFile, are_cut: bool, findings: &mut Findings<'_>) {
    const KEY: &str = "cluster.max_routes";
    let Some(max) = file.cluster.max_routes.filter(|_| are_cut && findings.is_good(KEY)) else {
        return;
    };
    // A shard of a pool has one route of each family that the pool has.
    let of_pools = |has_ipv6: fn(&PoolSettings) -> bool| -> u64 {
        file.pools.iter().map(|pool| pool.shard_count() * (1 + u64::from(has_ipv6(pool)))).sum()
    };
    let of_shards = |routes: fn(&ClusterShard) -> usize| -> u64 {
        file.shards.iter().map(|shard| routes(shard) as u64).sum()
    };
    let access = of_pools(|pool| !pool.steer6.is_empty() || !pool.endpoints6.is_empty())
        + of_shards(|shard| 1 + usize::from(shard.access6().is_some()));
    let internet = of_pools(|pool| !pool.public6.is_empty())
        + of_shards(|shard| shard.public.len() + shard.public6.len());
    let sides = [("access", "endpoints", access), ("internet", "public prefixes", internet)];
    for (side, what, routes) in sides {
        if routes > u64::from(max) {
            let message = format!("the {side} switch gets {routes} routes, to the shards' {what}");
            findings.error(KEY, message, "make shards larger, or use a larger switch");
        }
    }
}
