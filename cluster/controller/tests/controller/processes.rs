//! Controllers as processes on a real etcd: killed, stopped, cut off by a restart of etcd. However
//! they end, two of them never write alternately.

mod bench;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_controller::ask::HttpReports;
use weir_controller::operate::{MapVerdict, OperateError};
use weir_controller::records::DoubtAnswer;
use weir_controller::run::{NoReports, Runner};
use weir_controller::state::ControllerOptions;
use weir_etcd::{EtcdCluster, EtcdOptions, LeaderRecord, NodeRecord};
use weir_map::ShardEntry;

use crate::etcd::{Etcd, wait_for};
pub(crate) use bench::node_record;
use bench::{Bench, id, name};

const ETCD: &str = "WEIR_TEST_ETCD";
const NAME: &str = "WEIR_TEST_NAME";

pub(crate) fn cluster(endpoint: &str) -> EtcdCluster {
    let mut options = EtcdOptions::new("north".parse().unwrap(), vec![endpoint.to_owned()], 7);
    options.lease_ttl = Duration::from_secs(3);
    options.leader_margin = Duration::from_secs(1);
    options.request_timeout = Duration::from_secs(1);
    options.retry_max = Duration::from_millis(300);
    options.claim_interval = Duration::from_millis(100);
    options.progress_interval = Duration::from_millis(300);
    EtcdCluster::start(options, || ()).unwrap()
}

pub(crate) fn options(name: &str) -> ControllerOptions {
    ControllerOptions {
        tick_ms: 50,
        moves_per_min: 1_000,
        balance_wait_ms: 500,
        ..ControllerOptions::new(name, 1)
    }
}

pub(crate) fn record(name: &str) -> LeaderRecord {
    LeaderRecord { boot_id: format!("{name}-{}", std::process::id()), name: name.to_owned() }
}

/// The process of a controller that the tests start, stop and kill; not a test.
#[test]
#[ignore = "started by the tests of this file"]
fn controller_process() {
    let (Ok(endpoint), Ok(name)) = (std::env::var(ETCD), std::env::var(NAME)) else { return };
    let cluster = cluster(&endpoint);
    let _runner = Runner::start(&cluster, &record(&name), options(&name), NoReports);
    loop {
        std::thread::park();
    }
}

/// A child process; it dies with the test, however the test ends.
struct Process(Child);

impl Process {
    fn start(etcd: &Etcd, name: &str) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::controller_process", "--ignored"]);
        command.env(ETCD, etcd.endpoint()).env(NAME, name);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_controller_goes_on_when_the_leader_is_killed() {
    let etcd = Etcd::start();
    let bench = Bench::new(&etcd, 3);
    bench.desire(6);
    let first = Process::start(&etcd, "a");
    wait_for("leader", || bench.leader().as_deref() == Some("a"));
    let _second = Process::start(&etcd, "b");
    bench.whole(6);
    bench.desire(60);
    wait_for("work under way", || bench.entries().len() > 8);
    first.signal(Signal::SIGKILL);
    bench.whole(60);
    let events = bench.check_events();
    assert_eq!(events.last().unwrap().by, "b");
}

#[test]
fn a_leader_that_was_stalled_writes_nothing_when_it_continues() {
    let etcd = Etcd::start();
    let bench = Bench::new(&etcd, 3);
    bench.desire(6);
    let first = Process::start(&etcd, "a");
    wait_for("leader", || bench.leader().as_deref() == Some("a"));
    let _second = Process::start(&etcd, "b");
    bench.desire(60);
    wait_for("work under way", || bench.entries().len() > 8);
    first.signal(Signal::SIGSTOP);
    wait_for("another leader", || bench.leader().as_deref() == Some("b"));
    first.signal(Signal::SIGCONT);
    bench.whole(60);
    bench.desire(80);
    bench.whole(80);
    let events = bench.check_events();
    let led: BTreeSet<&str> = events.iter().map(|event| event.by.as_str()).collect();
    assert_eq!(led, ["a", "b"].into());
    assert_eq!(events.last().unwrap().by, "b");
}

#[test]
fn a_restart_of_etcd_interrupts_the_controller_and_loses_nothing() {
    let mut etcd = Etcd::start();
    let bench = Bench::new(&etcd, 3);
    let _first = Process::start(&etcd, "a");
    let _second = Process::start(&etcd, "b");
    bench.desire(40);
    wait_for("work under way", || bench.entries().len() > 4);
    etcd.kill();
    wait_for("etcd to be missed", || bench.leader().is_none());
    etcd.run();
    bench.whole(40);
    bench.desire(50);
    bench.whole(50);
    bench.check_events();
}

#[test]
fn a_map_set_back_with_its_etcd_continues_with_the_entries_of_its_nodes() {
    let mut etcd = Etcd::start();
    let bench = Bench::new(&etcd, 3);
    bench.desire(12);
    let options = ControllerOptions { rebase_after_ms: 1_000, ..options("a") };
    let runner = Runner::start(&bench.cluster, &record("a"), options, HttpReports);
    bench.whole(12);
    let (old, backup) = (bench.map(), etcd.back_up());
    let operator = bench.operator();
    bench.wait(operator.drain(&name(0), false, 1)).unwrap();
    wait_for("empty node", || {
        bench.work();
        bench.wait(operator.drain_progress(&name(0))).unwrap().left == 0
    });
    let new = bench.map();
    let forgotten = || new.iter().filter(|(shard, entry)| old[*shard] != **entry);
    let doubts = forgotten().map(|(&shard, entry)| DoubtAnswer {
        shard,
        known: entry.epoch(),
        entry: Some(serde_json::from_str(&entry.to_json()).unwrap()),
    });
    let doubts: Vec<DoubtAnswer> = doubts.collect();
    assert!(!doubts.is_empty());
    etcd.restore(&backup);
    *bench.doubts.lock().unwrap() = doubts;
    wait_for("what nodes hold", || {
        let map = bench.map();
        let goes_on = |(shard, seen): (&u32, &ShardEntry)| {
            map.get(shard).is_some_and(|entry| entry.rebased() > Some(seen.epoch()))
        };
        !map.is_empty() && forgotten().all(goes_on)
    });
    for (shard, entry) in bench.map() {
        assert_eq!(entry.members(), new[&shard].members());
        assert_eq!(entry.term(), new[&shard].term());
    }
    // All other changes wait for an operator.
    wait_for("no doubt", || {
        let status = bench.wait(operator.status()).ok();
        let report = status.and_then(|status| status.report);
        report.is_some_and(|it| it.in_doubt == 0 && it.why.contains("backup"))
    });
    bench.wait(runner.stop()).unwrap();
}

#[test]
fn an_operator_drains_and_fences_nodes_and_reads_the_events() {
    let etcd = Etcd::start();
    let mut bench = Bench::new(&etcd, 4);
    bench.desire(12);
    let runner = Runner::start(&bench.cluster, &record("a"), options("a"), HttpReports);
    bench.whole(12);
    let operator = bench.operator();
    let node = name;

    let fence = bench.wait(operator.fence(&node(1), true, 1));
    assert!(matches!(fence, Err(OperateError::StillRegistered(_))), "{fence:?}");
    let unknown = bench.wait(operator.drain(&node(9), false, 1)).unwrap_err().to_string();
    assert_eq!(unknown, "there is no node n9; there are: n0, n1, n2, n3");
    let unknown = bench.wait(operator.events_of(&node(9))).unwrap_err().to_string();
    assert_eq!(unknown, "there is no node n9; there are: n0, n1, n2, n3");
    bench.wait(operator.drain(&node(1), false, 1)).unwrap();
    wait_for("empty node", || {
        bench.work();
        bench.wait(operator.drain_progress(&node(1))).unwrap().left == 0
    });
    bench.wait(operator.undrain(&node(1))).unwrap();
    bench.whole(12);

    // A node dies: its copies are repaired, and its lanes wait for a fence.
    bench.alive.lock().unwrap().remove(&id(0));
    let session = bench.sessions[0].take().unwrap();
    bench.wait(session.close()).unwrap();
    bench.whole(12);
    let status = bench.wait(operator.status()).unwrap();
    assert!(status.reasons.iter().any(|it| it.contains("weir fence n0")), "{status:?}");
    let lives = bench.wait(operator.fence(&node(0), false, 1)).unwrap();
    assert_eq!(lives, 1);
    wait_for("rest", || {
        bench.work();
        let status = bench.wait(operator.status()).unwrap();
        status.verdict == MapVerdict::Ok && status.report.unwrap().whole == 12
    });
    let nobody = bench.wait(operator.fence(&node(0), false, 1));
    assert!(matches!(nobody, Err(OperateError::NoNode { .. })), "{nobody:?}");
    let events = bench.check_events();
    assert!(events.iter().any(|event| event.what.contains("its lanes are taken")));

    // A node stops in an orderly way: its roles move first, and its own fence frees its lanes.
    let last = NodeRecord { is_stopping: true, ..bench.records[1].clone() };
    bench.sessions[1].as_ref().unwrap().update(&last);
    let is_primary = |entry: &ShardEntry| entry.primary().incarnation.worker.node == id(1);
    wait_for("no roles", || !bench.entries().iter().any(is_primary));
    let is_member = |entry: &ShardEntry| {
        entry.members().iter().any(|member| member.incarnation.worker.node == id(1))
    };
    assert!(bench.entries().iter().any(is_member));
    bench.wait(operator.declare_ended(&node(1), &[bench.boots[1]], 1)).unwrap();
    let session = bench.sessions[1].take().unwrap();
    bench.wait(session.close()).unwrap();
    wait_for("no copies", || {
        bench.work();
        !bench.entries().iter().any(is_member)
    });
    bench.whole(12);

    bench.wait(operator.freeze("maintenance", 1)).unwrap();
    wait_for("freeze", || {
        let status = bench.wait(operator.status()).unwrap();
        status.reasons.iter().any(|it| it.contains("frozen by ann: maintenance"))
    });
    bench.wait(operator.unfreeze()).unwrap();

    let stopped_at = Instant::now();
    bench.wait(runner.stop()).unwrap();
    assert_eq!(bench.leader(), None);
    assert!(stopped_at.elapsed() < Duration::from_secs(30));
    assert_eq!(bench.wait(operator.status()).unwrap().verdict, MapVerdict::AtRisk);
}
