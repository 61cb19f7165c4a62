//! Output commit: for a cluster, a pool, a shard.

use crate::base::{assert_found, changed};
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
                &[
                    "4:19: cluster.commit_replicas: 2 is more than cluster.replicas = 1 (write at most 1, or remove it)",
                ],
            ),
        ],
    );
    check_errors(
        &CLUSTER.replace("replicas = 1", "replicas = 0"),
        &[
            (
                "per_shard = 28",
                "per_shard = 28\ncommit = \"replicated\"",
                &[
                    "16:10: pool[0].commit: \"replicated\" with replicas = 0: no copy to wait for (write replicas = 1 or more, or commit = \"async\")",
                ],
            ),
            (
                "id = 1000",
                "id = 1000\ncommit = \"replicated\"",
                &["19:10: shard[0].commit: \"replicated\" with replicas = 0"],
            ),
        ],
    );
}

#[test]
fn commit_is_one_of_two_words_in_the_cluster_a_pool_and_a_shard() {
    let or = "(must be one of \"async\", \"replicated\")";
    for (from, value, place, message) in [
        ("replicas = 1", "\"sync\"", "4:10: cluster", "\"sync\" is not valid"),
        ("replicas = 1", "true", "4:10: cluster", "a boolean is not valid here"),
        ("per_shard = 28", "\"replicate\"", "16:10: pool[0]", "\"replicate\" is not valid"),
        ("id = 1000", "1", "19:10: shard[0]", "an integer is not valid here"),
    ] {
        let text = changed(CLUSTER, from, &format!("{from}\ncommit = {value}"));
        let errors = weir_config::parse_cluster(&text, "t.toml").expect_err("refused");
        assert_found(value, &errors, &[&format!("{place}.commit: {message} {or}")]);
    }
}

#[test]
fn options_of_commit_have_limits_and_belong_in_the_cluster_section() {
    for (key, place, message) in [
        ("commit_replicas = 0", "4:19", "0 is out of range (must be an integer 1..=4 copies)"),
        ("commit_replicas = 5", "4:19", "5 is out of range (must be an integer 1..=4 copies)"),
        ("commit_timeout_ms = 0", "4:21", "0 is out of range (must be an integer 1..=10000 ms)"),
        ("commit_timeout_ms = 10001", "4:21", "10001 is out of range (must be an integer"),
        ("commit_timeout_ms = 0.5", "4:21", "a float is not valid here (must be an integer"),
        (
            "commit_on_timeout = \"wait\"",
            "4:21",
            "\"wait\" is not valid (must be one of \"release\"",
        ),
        ("commit_timout_ms = 20", "4:1", "unknown key (did you mean commit_timeout_ms?)"),
    ] {
        let text = changed(CLUSTER, "replicas = 1", &format!("replicas = 1\n{key}"));
        let errors = weir_config::parse_cluster(&text, "t.toml").expect_err("refused");
        let (name, _) = key.split_once(' ').expect("the key has a value");
        assert_found(key, &errors, &[&format!("{place}: cluster.{name}: {message}")]);
    }
    check_errors(
        CLUSTER,
        &[
            (
                "per_shard = 28",
                "per_shard = 28\ncommit_on_timeout = \"drop\"",
                &["16:1: pool[0].commit_on_timeout: unknown key"],
            ),
            (
                "id = 1000",
                "id = 1000\ncommit_replicas = 1",
                &["19:1: shard[0].commit_replicas: unknown key"],
            ),
            ("[nat]", "[nat]\ncommit = \"replicated\"", &["9:1: nat.commit: unknown key"]),
        ],
    );
}

#[test]
fn options_of_commit_are_warned_of_where_no_shard_commits() {
    let warnings = |text: &str| {
        let (_, warnings) = weir_config::parse_cluster(text, "t.toml").expect("valid");
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (key, column) in [
        ("commit_replicas = 1", 19),
        ("commit_timeout_ms = 20", 21),
        ("commit_on_timeout = \"drop\"", 21),
    ] {
        let (name, _) = key.split_once(' ').expect("the key has a value");
        let text = changed(CLUSTER, "replicas = 1\n", &format!("replicas = 1\n{key}\n"));
        let expected = format!(
            "t.toml:4:{column}: cluster.{name}: means nothing: no commit is \"replicated\" (write commit = \"replicated\", or remove it)"
        );
        assert_eq!(warnings(&text), [expected]);
        for (place, commit) in [
            ("replicas = 1\n", "replicas = 1\ncommit = \"replicated\"\n"),
            ("per_shard = 28\n", "per_shard = 28\ncommit = \"replicated\"\n"),
            ("id = 1000\n", "id = 1000\ncommit = \"replicated\"\n"),
        ] {
            assert!(warnings(&changed(&text, place, commit)).is_empty(), "{key}, {commit}");
        }
    }
}

#[test]
fn a_shard_may_commit_otherwise_than_its_cluster() {
    let text = CLUSTER.replace("id = 1000", "id = 1000\ncommit = \"replicated\"");
    let mixed = desired(&text);
    let committed = |id| mixed.is_committed(mixed.shard(id).expect("the shard exists"));
    assert!(committed(1000) && !committed(1));
    assert!(mixed.is_any_committed());
    assert_eq!(mixed.commit_replicas(), 1);
    let text = text.replace("replicas = 1", "replicas = 3\ncommit_replicas = 2");
    assert_eq!(desired(&text).commit_replicas(), 2);
    assert!(!desired(CLUSTER).is_any_committed());
}
