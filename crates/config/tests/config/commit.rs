//! Output commit: for a cluster, a pool, a shard.

use crate::cluster_file::{CLUSTER, check_errors, desired};

#[test]
fn commit_needs_copies_to_wait_for() {
    check_errors(
        CLUSTER,
        &[
            (
                "replicas = 1",
                "replicas = 0\ncommit = \"replicated\"",
                &["4:10: cluster.commit: \"replicated\" with replicas = 0"],
            ),
            (
                "replicas = 1",
                "replicas = 1\ncommit_replicas = 2",
                &["4:19: cluster.commit_replicas: 2 is more than cluster.replicas = 1"],
            ),
        ],
    );
    let text = CLUSTER
        .replace("replicas = 1", "replicas = 0")
        .replace("per_shard = 28", "per_shard = 28\ncommit = \"replicated\"");
    let errors = weir_config::parse_cluster(&text, "t.toml").expect_err("refused");
    assert_eq!(errors[0].key, "pool[0].commit");
}

#[test]
fn a_shard_may_commit_otherwise_than_its_cluster() {
    let text = CLUSTER.replace("id = 1000", "id = 1000\ncommit = \"replicated\"");
    let mixed = desired(&text);
    let committed = |id| mixed.is_committed(mixed.shard(id).expect("it is there"));
    assert!(committed(1000) && !committed(1));
    assert!(mixed.is_any_committed());
    assert_eq!(mixed.commit_replicas(), 1);
    let text = text.replace("replicas = 1", "replicas = 3\ncommit_replicas = 2");
    assert_eq!(desired(&text).commit_replicas(), 2);
    assert!(!desired(CLUSTER).is_any_committed());
}
