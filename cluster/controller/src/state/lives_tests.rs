//! The liveness of nodes, their trials, and cut-offs.

use super::super::event::{NodeDoubts, NodeTroubles};
use super::cut_off::CutOffChange;
use super::*;

fn at(ms: u64) -> ControllerTime {
    ControllerTime { monotonic_ms: ms, unix_ms: ms }
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn options() -> ControllerOptions {
    ControllerOptions::new("c", 1)
}

fn record(boot_id: &str) -> NodeRecord {
    NodeRecord {
        boot_id: boot_id.into(),
        version: String::new(),
        rack: None,
        capacity: 1,
        workers: vec![WorkerRecord {
            index: 0,
            boot_id: format!("{:032x}", 7),
            resumes: None,
            weight: 100,
            load_max: None,
            shards_max: None,
            replication: None,
        }],
        admin: None,
        is_stopping: false,
        has_copies: false,
    }
}

fn report(from: &str, about: &str, is_heard: bool) -> NodeReport {
    let hears = [(node(about), is_heard)].into();
    NodeReport {
        node: node(from),
        hears,
        loads: Vec::new(),
        broken: Vec::new(),
        bird_down: Vec::new(),
        acting: Vec::new(),
        doubts: NodeDoubts::default(),
        generation: None,
        troubles: NodeTroubles::default(),
    }
}

/// Returns the lives after `n1` was registered at 0 ms and gone at 1,000 ms.
fn lost() -> Lives {
    let mut lives = Lives::default();
    lives.registered(&node("n1"), Some(&record("a")), &options(), at(0));
    lives.gone(&node("n1"), true, &options(), at(1_000));
    lives
}

fn liveness(lives: &Lives, peers: &[&str], ms: u64) -> Liveness {
    let peers = peers.iter().map(|peer| node(peer)).collect();
    lives.standing(&node("n1"), &peers, &options(), at(ms)).liveness
}

#[test]
fn a_node_with_an_expired_lease_alone_stays_suspect() {
    let lives = lost();
    assert_eq!(liveness(&lives, &["n2"], 500_000), Liveness::Suspect);
}

#[test]
fn a_node_is_dead_once_every_peer_reports_it_silent() {
    let mut lives = lost();
    lives.on_report(&report("n2", "n1", false), at(4_000));
    assert_eq!(liveness(&lives, &["n2", "n3"], 4_000), Liveness::Suspect, "n3 has not reported");
    lives.on_report(&report("n3", "n1", true), at(4_000));
    assert_eq!(liveness(&lives, &["n2", "n3"], 4_000), Liveness::Suspect, "n3 hears it");
    lives.on_report(&report("n3", "n1", false), at(5_000));
    assert_eq!(liveness(&lives, &["n2", "n3"], 5_000), Liveness::Dead);
    assert_eq!(liveness(&lives, &["n2", "n3"], 9_500), Liveness::Suspect, "n2's report is old");
}

#[test]
fn a_report_from_before_the_loss_does_not_count() {
    let mut lives = Lives::default();
    lives.registered(&node("n1"), Some(&record("a")), &options(), at(0));
    lives.on_report(&report("n2", "n1", false), at(900));
    lives.gone(&node("n1"), true, &options(), at(1_000));
    assert_eq!(liveness(&lives, &["n2"], 3_500), Liveness::Suspect);
}

#[test]
fn a_lost_node_without_peers_is_dead_after_the_wait() {
    assert_eq!(liveness(&lost(), &[], 2_999), Liveness::Suspect);
    assert_eq!(liveness(&lost(), &[], 3_000), Liveness::Dead);
}

#[test]
fn an_absence_counts_from_the_end_of_the_last_gap_in_watching() {
    let mut lives = lost();
    assert_eq!(liveness(&lives, &[], 3_000), Liveness::Dead);
    lives.forget_absences(at(100_000));
    assert_eq!(liveness(&lives, &[], 101_999), Liveness::Suspect);
    assert_eq!(liveness(&lives, &[], 102_000), Liveness::Dead);
}

#[test]
fn a_flapping_node_waits_longer_each_time_up_to_a_limit_and_is_forgiven_after_calm() {
    let options = options();
    let mut lives = Lives::default();
    let mut ms = options.calm_ms;
    let mut trial = |lives: &mut Lives, pause_ms: u64| {
        ms += pause_ms;
        lives.gone(&node("n1"), true, &options, at(ms));
        lives.registered(&node("n1"), Some(&record("a")), &options, at(ms + 1));
        lives.all[&node("n1")].trial_until_ms - (ms + 1)
    };
    lives.registered(&node("n1"), Some(&record("a")), &options, at(0));
    let waits: Vec<u64> = (0..9).map(|_| trial(&mut lives, 60_000) / 1_000).collect();
    assert_eq!(waits, [0, 30, 60, 120, 240, 480, 900, 900, 900]);
    assert_eq!(trial(&mut lives, options.calm_ms), 0);
}

#[test]
fn an_orderly_restart_begins_no_new_trial() {
    let (mut lives, n1) = (Lives::default(), node("n1"));
    for (ms, boot_id) in [(0, "a"), (10, "b"), (20, "c")] {
        lives.registered(&n1, Some(&record(boot_id)), &options(), at(ms));
    }
    let until_ms = lives.all[&n1].trial_until_ms;
    let stopping = NodeRecord { is_stopping: true, ..record("c") };
    lives.registered(&n1, Some(&stopping), &options(), at(1_000));
    lives.gone(&n1, true, &options(), at(2_000));
    lives.registered(&n1, Some(&record("d")), &options(), at(3_000));
    assert_eq!(lives.all[&n1].trial_until_ms, until_ms);
}

#[test]
fn a_restart_without_an_observed_absence_counts_as_a_loss() {
    let mut lives = Lives::default();
    for (ms, boot_id) in [(0, "a"), (10, "b"), (20, "c")] {
        lives.registered(&node("n1"), Some(&record(boot_id)), &options(), at(ms));
    }
    assert!(lives.is_on_trial(&node("n1"), at(21)));
}

/// Lets `n2` report each second of `ms` that it hears `n3`, and whether it hears `n1`. Returns the
/// changes of cut-offs.
fn watch(lives: &mut Lives, is_heard: bool, ms: std::ops::Range<u64>) -> Vec<CutOffChange> {
    let mut changes = Vec::new();
    for ms in ms.step_by(1_000) {
        for (about, is_heard) in [("n1", is_heard), ("n3", true)] {
            lives.on_report(&report("n2", about, is_heard), at(ms));
        }
        changes.extend(lives.cut_off_changes(&options(), at(ms)));
    }
    changes
}

/// Returns three nodes, of which `n1` is silent from 20 s on and counts as cut off.
fn silent() -> Lives {
    let mut lives = Lives::default();
    for name in ["n1", "n2", "n3"] {
        lives.registered(&node(name), Some(&record("a")), &options(), at(0));
    }
    assert_eq!(watch(&mut lives, true, 0..20_000), []);
    assert_eq!(watch(&mut lives, false, 20_000..26_000).len(), 1, "cut off");
    lives
}

/// Silence, expiry of the lease, and a return that is not heard at once are one loss.
#[test]
fn a_node_that_dies_is_lost_once() {
    let mut lives = silent();
    lives.gone(&node("n1"), true, &options(), at(26_000));
    watch(&mut lives, false, 26_000..30_000);
    lives.registered(&node("n1"), Some(&record("b")), &options(), at(30_000));
    assert_eq!(watch(&mut lives, false, 30_000..36_000), [], "no peer has retried yet");
    assert_eq!(watch(&mut lives, true, 36_000..40_000), []);
    assert!(!lives.is_on_trial(&node("n1"), at(40_000)));
    lives.gone(&node("n1"), true, &options(), at(50_000));
    lives.registered(&node("n1"), Some(&record("c")), &options(), at(51_000));
    assert!(lives.is_on_trial(&node("n1"), at(80_000)), "the second time");
    assert!(!lives.is_on_trial(&node("n1"), at(82_000)), "for half a minute");
}

/// A worker that flaps is lost at each return, although its node never ended.
#[test]
fn each_return_of_a_cut_off_worker_counts_as_one_loss() {
    let mut lives = silent();
    assert_eq!(watch(&mut lives, true, 26_000..27_000).len(), 1, "back");
    assert!(!lives.is_on_trial(&node("n1"), at(27_000)));
    assert_eq!(watch(&mut lives, false, 27_000..31_000).len(), 1, "cut off again");
    assert_eq!(watch(&mut lives, true, 31_000..32_000).len(), 1, "and back again");
    assert!(lives.is_on_trial(&node("n1"), at(60_000)));
    assert!(!lives.is_on_trial(&node("n1"), at(62_000)));
}

/// With two nodes there is no third reporter: neither counts as cut off, but the operator is
/// notified.
#[test]
fn a_node_unheard_by_its_only_peer_is_reported_but_not_cut_off() {
    let mut lives = Lives::default();
    for name in ["n1", "n2"] {
        lives.registered(&node(name), Some(&record("a")), &options(), at(0));
    }
    let mut silences_at = |ms: u64, is_heard| {
        lives.on_report(&report("n2", "n1", is_heard), at(ms));
        assert_eq!(lives.cut_off_changes(&options(), at(ms)), []);
        lives.silences(&options(), at(ms)).collect::<Vec<_>>()
    };
    for ms in (20_000..23_000).step_by(1_000) {
        assert_eq!(silences_at(ms, false), [""; 0], "at {ms}");
    }
    let named = ["n1 is not heard by n2: one of them stands still or is cut off"];
    assert_eq!(silences_at(23_000, false), named);
    assert_eq!(silences_at(24_000, true), [""; 0]);
}

/// A node that is never heard is cut off, however new it is.
#[test]
fn a_node_that_is_not_heard_for_long_after_it_came_is_cut_off() {
    let mut lives = Lives::default();
    for name in ["n1", "n2", "n3"] {
        lives.registered(&node(name), Some(&record("a")), &options(), at(0));
    }
    assert_eq!(watch(&mut lives, false, 0..20_000).len(), 1);
}

#[test]
fn unreadable_workers_are_not_taken_for_an_empty_list() {
    let mut bad = record("a").workers;
    bad[0].boot_id = "x".into();
    assert_eq!(worker_views(&bad), None);
    assert_eq!(worker_views(&[]), None);
    assert!(worker_views(&record("a").workers).is_some());
}
