//! Output commit needs copies to wait for.

use crate::cluster_types::{ClusterFile, Commit};
use crate::findings::Findings;

const REPLICAS: &str = "cluster.commit_replicas";
/// The keys that configure output commit where it is used.
const HOW: [&str; 3] = [REPLICAS, "cluster.commit_timeout_ms", "cluster.commit_on_timeout"];

pub(super) fn check(file: &ClusterFile, findings: &mut Findings<'_>) {
    let replicas = file.cluster.replicas;
    let awaiting = awaiting(file);
    if awaiting.is_empty() {
        let message = "means nothing: no commit is \"replicated\"";
        let fix = "write commit = \"replicated\", or remove it";
        for key in HOW {
            if findings.is_given(key) {
                findings.warning(key, message, fix);
            }
        }
    }
    if !findings.is_good("cluster.replicas") {
        return;
    }
    if replicas == 0 {
        let fix = "write replicas = 1 or more, or commit = \"async\"";
        for key in awaiting {
            findings.error(&key, "\"replicated\" with replicas = 0: no copy to wait for", fix);
        }
    }
    let Some(wanted) = file.cluster.commit_replicas.filter(|_| findings.is_good(REPLICAS)) else {
        return;
    };
    if wanted > replicas {
        let message = format!("{wanted} is more than cluster.replicas = {replicas}");
        findings.error(REPLICAS, message, format!("write at most {replicas}, or remove it"));
    }
}

/// Returns the keys that turn output commit on.
fn awaiting(file: &ClusterFile) -> Vec<String> {
    let is_replicated = |commit: Option<Commit>| commit == Some(Commit::Replicated);
    let pools = file.pools.iter().map(|pool| pool.commit).enumerate();
    let pools = pools.map(|(index, commit)| (format!("pool[{index}].commit"), commit));
    let shards = file.shards.iter().map(|shard| shard.commit).enumerate();
    let shards = shards.map(|(index, commit)| (format!("shard[{index}].commit"), commit));
    let own = [("cluster.commit".to_owned(), Some(file.cluster.commit))];
    let all = own.into_iter().chain(pools).chain(shards);
    all.filter(|(_, commit)| is_replicated(*commit)).map(|(key, _)| key).collect()
}
