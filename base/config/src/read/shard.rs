//! `[[shard]]`.

use std::collections::BTreeSet;

use crate::cluster_types::ClusterShard;
use crate::findings::Findings;
use crate::read::cluster::optional_commit;
use crate::read::{address, address6};
use crate::section::Section;
use crate::types::{ShardSettings, WorkerSettings};

/// Reads a shard; `index` is its position in the file.
pub(crate) fn read(
    section: &Section<'_>,
    index: usize,
    workers: &[WorkerSettings],
    findings: &mut Findings<'_>,
) -> ShardSettings {
    ShardSettings {
        id: section.integer("id", findings),
        endpoint: address::unicast(section, "endpoint", findings),
        endpoint6: address6::unicast(section, "endpoint6", findings),
        subscribers: address::prefixes(section, "subscribers", findings),
        public: address::prefixes(section, "public", findings),
        public6: address6::prefixes(section, "public6", address6::PUBLIC6_BITS, findings),
        subscribers_max: section.integer("subscribers_max", findings),
        worker: owner(section, index, workers, findings),
    }
}

/// Reads a shard of the cluster file: the controller assigns it to a worker.
pub(crate) fn of_cluster(section: &Section<'_>, findings: &mut Findings<'_>) -> ClusterShard {
    ClusterShard {
        id: section.integer("id", findings),
        endpoint: address::unicast(section, "endpoint", findings),
        endpoint6: address6::unicast(section, "endpoint6", findings),
        steer: address::unicast(section, "steer", findings),
        subscribers: address::prefixes(section, "subscribers", findings),
        public: address::prefixes(section, "public", findings),
        steer6: address6::unicast(section, "steer6", findings),
        public6: address6::prefixes(section, "public6", address6::PUBLIC6_BITS, findings),
        subscribers_max: section.integer("subscribers_max", findings),
        commit: optional_commit(section, findings),
    }
}

/// Returns the worker on the core that the file names; otherwise the shards are assigned round
/// robin.
fn owner(
    section: &Section<'_>,
    index: usize,
    workers: &[WorkerSettings],
    findings: &mut Findings<'_>,
) -> usize {
    let round_robin = index % workers.len().max(1);
    let Some(core) = section.optional_integer::<usize>("worker", findings) else {
        return round_robin;
    };
    workers.iter().position(|worker| worker.core == core).unwrap_or_else(|| {
        let cores: BTreeSet<_> = workers.iter().map(|worker| worker.core).collect();
        let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
        let fix = format!("cores with a worker: {}", cores.join(", "));
        findings.error(&section.path_of("worker"), format!("no worker has core {core}"), fix);
        round_robin
    })
}
