//! Controllers as processes on a real etcd: killed, stopped, cut off by a restart of etcd. However
//! they end, no two of them write in turns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_cluster::{
    Cluster, Key, LeaderRecord, NodeName, NodeRecord, Options as EtcdOptions, Outcome, Range,
    Session, WorkerRecord,
};
use weir_controller::ask::HttpReports;
use weir_controller::operate::{OperateError, Operator, Verdict};
use weir_controller::records::{DoubtAnswer, Event, NodeAnswer};
use weir_controller::run::{NoReports, Runner};
use weir_controller::state::Options;
use weir_shard::map::Transition;
use weir_shard::{BootId, Incarnation, LaneSet, MemberState, NodeId, ShardEntry};

use crate::admin;
use crate::etcd::{Etcd, wait_for};

const ETCD: &str = "WEIR_TEST_ETCD";
const NAME: &str = "WEIR_TEST_NAME";

pub(crate) fn cluster(endpoint: &str) -> Cluster {
    let mut options = EtcdOptions::new("north".parse().unwrap(), vec![endpoint.to_owned()], 7);
    options.lease_ttl = Duration::from_secs(3);
    options.leader_margin = Duration::from_secs(1);
    options.request_timeout = Duration::from_secs(1);
    options.retry_max = Duration::from_millis(300);
    options.claim_interval = Duration::from_millis(100);
    options.progress_interval = Duration::from_millis(300);
    Cluster::start(options, || ()).unwrap()
}

pub(crate) fn options(name: &str) -> Options {
    Options { tick_ms: 50, moves_per_min: 1_000, balance_wait_ms: 500, ..Options::new(name, 1) }
}

pub(crate) fn record(name: &str) -> LeaderRecord {
    LeaderRecord { boot_id: format!("{name}-{}", std::process::id()), name: name.to_owned() }
}

/// Not a test: the process of a controller that the tests start, stop and kill.
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

/// A process; it dies with the test, however that ends.
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

/// Nodes whose workers do what the map asks of them, and the operator's view.
struct Bench {
    cluster: Cluster,
    sessions: Vec<Option<Session>>,
    records: Vec<NodeRecord>,
    boots: Vec<BootId>,
    alive: Arc<Mutex<BTreeSet<NodeId>>>,
    doubts: Arc<Mutex<Vec<DoubtAnswer>>>,
}

fn id(node: usize) -> NodeId {
    NodeId::new(&format!("n{node}")).unwrap()
}

fn name(node: usize) -> NodeName {
    format!("n{node}").parse().unwrap()
}

/// A node with one worker, which is in its first life too.
pub(crate) fn node_record(boot_id: BootId) -> NodeRecord {
    let worker = WorkerRecord {
        index: 0,
        boot_id: boot_id.to_string(),
        weight: 100,
        load_max: None,
        shards_max: None,
        replication: None,
    };
    NodeRecord {
        boot_id: boot_id.to_string(),
        version: "0".into(),
        rack: None,
        capacity: 1,
        workers: vec![worker],
        admin: None,
        is_stopping: false,
    }
}

/// The node answers that it hears those who are alive, and of what etcd has forgotten.
fn serve_report(
    node: usize,
    alive: Arc<Mutex<BTreeSet<NodeId>>>,
    doubts: Arc<Mutex<Vec<DoubtAnswer>>>,
) -> SocketAddr {
    admin::serve(move || {
        let doubts = doubts.lock().unwrap().clone();
        let alive = alive.lock().unwrap();
        let hears = (0..8).map(|other| (id(other).to_string(), alive.contains(&id(other))));
        let node = id(node).to_string();
        let answer = NodeAnswer {
            node,
            hears: hears.collect(),
            doubts_total: Some(doubts.len()),
            doubts,
            ..NodeAnswer::default()
        };
        admin::ok(&serde_json::to_string(&answer).unwrap())
    })
}

impl Bench {
    fn new(etcd: &Etcd, nodes: usize) -> Self {
        let cluster = cluster(&etcd.endpoint());
        let boots: Vec<BootId> = (0..nodes).map(|node| BootId(node as u128 + 1)).collect();
        let alive: Arc<Mutex<BTreeSet<NodeId>>> =
            Arc::new(Mutex::new((0..nodes).map(id).collect()));
        let doubts = Arc::<Mutex<Vec<DoubtAnswer>>>::default();
        let records = boots.iter().enumerate().map(|(node, &boot_id)| {
            let admin = Some(serve_report(node, Arc::clone(&alive), Arc::clone(&doubts)));
            NodeRecord { admin, ..node_record(boot_id) }
        });
        let records: Vec<NodeRecord> = records.collect();
        let sessions = records.iter().enumerate();
        let sessions = sessions.map(|(node, record)| Some(cluster.session(name(node), record)));
        Self { sessions: sessions.collect(), cluster, records, boots, alive, doubts }
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.cluster.handle().block_on(future)
    }

    fn operator(&self) -> Operator {
        Operator::new(self.cluster.store(), "ann")
    }

    fn desire(&self, shards: u32) {
        let shards: Vec<_> = (1..=shards).map(|id| serde_json::json!({"id": id})).collect();
        let desired = serde_json::json!({"format": 1, "cluster": {"replicas": 1}, "shard": shards});
        let store = self.cluster.store();
        wait_for("a new wish", || {
            let Ok(held) = self.wait(store.get(&Key::Desired)) else { return false };
            let expected = held.map(|held| held.mod_revision);
            let value = desired.to_string().into_bytes();
            matches!(self.wait(store.put(Key::Desired, expected, value)), Outcome::Done(_))
        });
    }

    fn entries(&self) -> Vec<ShardEntry> {
        self.map().into_values().collect()
    }

    /// By number; empty while etcd does not answer.
    fn map(&self) -> BTreeMap<u32, ShardEntry> {
        let found = self.wait(self.cluster.store().list(Range::Shards));
        let Ok((_, found)) = found else { return BTreeMap::new() };
        let entries = found.iter().filter_map(|(key, held)| match key {
            Key::Shard(id) => Some((*id, ShardEntry::from_json(&held.value).unwrap())),
            _ => None,
        });
        entries.collect()
    }

    fn runs(&self, who: &Incarnation) -> bool {
        let is_boot = |place: &usize| self.boots[*place] == who.boot_id;
        (0..self.boots.len()).find(is_boot).is_some_and(|it| self.sessions[it].is_some())
    }

    /// Every worker does one thing.
    fn work(&self) {
        let store = self.cluster.store();
        let Ok((_, found)) = self.wait(store.list(Range::Shards)) else { return };
        for (key, held) in found {
            let entry = ShardEntry::from_json(&held.value).unwrap();
            let Some(wish) = self.wish(&entry) else { continue };
            let next = entry.after(entry.epoch(), &wish).unwrap().to_json().into_bytes();
            // Whoever was faster, the next turn tries again.
            self.wait(store.put(key, Some(held.mod_revision), next));
        }
    }

    fn wish(&self, entry: &ShardEntry) -> Option<Transition> {
        let seated = |seat| &entry.at_seat(seat).unwrap().incarnation;
        for (index, lane) in entry.lanes().iter().enumerate() {
            let Some(moving) = lane.moving else { continue };
            if self.runs(seated(moving.from)) && self.runs(seated(lane.owner)) {
                let by = seated(lane.owner).clone();
                return Some(Transition::Settle { by, lanes: LaneSet::EMPTY.with(index) });
            }
        }
        let mut members = entry.members().iter();
        let copied =
            members.find(|it| it.state != MemberState::Synced && self.runs(&it.incarnation))?;
        Some(Transition::Synced(copied.incarnation.clone()))
    }

    fn is_whole(&self, shards: usize) -> bool {
        self.work();
        let entries = self.entries();
        let is_whole = |entry: &ShardEntry| {
            let synced = entry
                .members()
                .iter()
                .filter(|it| it.state == MemberState::Synced && self.runs(&it.incarnation));
            synced.count() == 2
        };
        entries.len() == shards && entries.iter().all(is_whole)
    }

    fn whole(&self, shards: usize) {
        wait_for("whole map", || self.is_whole(shards));
    }

    fn leader(&self) -> Option<String> {
        let held = self.wait(self.cluster.store().get(&Key::Leader)).ok()??;
        Some(serde_json::from_slice::<LeaderRecord>(&held.value).unwrap().name)
    }

    /// The events have no gap, and their writer changes only by an election.
    fn check_events(&self) -> Vec<Event> {
        let events = self.wait(self.operator().events()).unwrap();
        for pair in events.windows(2) {
            assert_eq!(pair[1].number, pair[0].number + 1);
            let is_election = pair[1].what == "this controller leads now";
            assert!(pair[0].by == pair[1].by || is_election, "{pair:?}");
        }
        events
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
fn a_leader_that_was_stopped_writes_no_more_when_it_goes_on() {
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
fn a_restart_of_etcd_interrupts_and_nothing_is_lost() {
    let mut etcd = Etcd::start();
    let bench = Bench::new(&etcd, 3);
    let _first = Process::start(&etcd, "a");
    let _second = Process::start(&etcd, "b");
    bench.desire(40);
    wait_for("work under way", || bench.entries().len() > 4);
    etcd.kill();
    std::thread::sleep(Duration::from_millis(500));
    etcd.run();
    bench.whole(40);
    bench.desire(50);
    bench.whole(50);
    bench.check_events();
}

#[test]
fn a_map_that_was_set_back_with_its_etcd_goes_on_with_what_nodes_hold() {
    let mut etcd = Etcd::start();
    let bench = Bench::new(&etcd, 3);
    bench.desire(12);
    let options = Options { rebase_after_ms: 1_000, ..options("a") };
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
    // Everything else waits for an operator.
    wait_for("no doubt", || {
        let status = bench.wait(operator.status()).ok();
        let report = status.and_then(|status| status.report);
        report.is_some_and(|it| it.in_doubt == 0 && it.why.contains("backup"))
    });
    bench.wait(runner.stop()).unwrap();
}

#[test]
fn an_operator_drains_fences_and_reads_what_happened() {
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
        status.verdict == Verdict::Ok && status.report.unwrap().whole == 12
    });
    let nobody = bench.wait(operator.fence(&node(0), false, 1));
    assert!(matches!(nobody, Err(OperateError::NoNode { .. })), "{nobody:?}");
    let events = bench.check_events();
    assert!(events.iter().any(|event| event.what.contains("its lanes are taken")));

    // A node stops in order: its roles go first, and its own fence frees its lanes.
    let last = NodeRecord { is_stopping: true, ..bench.records[1].clone() };
    bench.sessions[1].as_ref().unwrap().update(&last);
    let is_primary = |entry: &ShardEntry| entry.primary().incarnation.worker.node == id(1);
    wait_for("no roles", || !bench.entries().iter().any(is_primary));
    let is_member = |entry: &ShardEntry| {
        entry.members().iter().any(|member| member.incarnation.worker.node == id(1))
    };
    assert!(bench.entries().iter().any(is_member));
    bench.wait(operator.say_ended(&node(1), &[bench.boots[1]], 1)).unwrap();
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
    assert_eq!(bench.wait(operator.status()).unwrap().verdict, Verdict::AtRisk);
}
