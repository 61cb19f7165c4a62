//! The cluster file on a real etcd: the first file, changes, races, and values that must not be
//! overwritten.

use weir_config::Desired;
use weir_controller::operate::{Comparison, OperateError, Operator};
use weir_controller::records::{Meta, OrderAuthor};
use weir_controller::run::{NoReports, Runner};
use weir_etcd::{EtcdCluster, Key, KeyRange, Outcome, Revision};
use weir_map::BootId;

use crate::etcd::{Etcd, wait_for};
use crate::processes::{cluster, node_record, options, record};

const IDENTITY: u128 = 0xabc;

fn file(shards: u32, more: &str) -> Desired {
    let mut text = format!(
        "[cluster]\nname = \"north\"\n[access]\nsubscribers = [\"10.200.0.0/16\"]\n{more}\n"
    );
    for shard in 1..=shards {
        text.push_str(&format!(
            "[[shard]]\nid = {shard}\nendpoint = \"10.100.0.{shard}\"\npublic = [\"198.18.{shard}.0/28\"]\n"
        ));
    }
    weir_config::parse_cluster(&text, "t.toml").expect("valid").0
}

struct Bench {
    _etcd: Etcd,
    cluster: EtcdCluster,
}

impl Bench {
    fn new() -> Self {
        let etcd = Etcd::start();
        let cluster = cluster(&etcd.endpoint());
        Self { _etcd: etcd, cluster }
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.cluster.handle().block_on(future)
    }

    fn operator(&self, by: &str) -> Operator {
        Operator::new(self.cluster.store(), by)
    }

    fn compare(&self, desired: &Desired) -> Comparison {
        self.wait(self.operator("ann").compare(desired.clone())).unwrap()
    }

    fn apply_as(
        &self,
        by: &str,
        comparison: &Comparison,
        force: bool,
    ) -> Result<Revision, OperateError> {
        self.wait(self.operator(by).apply(comparison, force, IDENTITY, 1_000))
    }

    fn apply(&self, desired: &Desired) -> Revision {
        self.apply_as("ann", &self.compare(desired), false).unwrap()
    }

    fn value(&self, key: &Key) -> Vec<u8> {
        self.wait(self.cluster.store().get(key)).unwrap().expect("the key exists").value
    }

    fn stored(&self) -> Desired {
        Desired::from_json(&String::from_utf8(self.value(&Key::Desired)).unwrap()).unwrap()
    }

    fn write(&self, key: Key, value: &str) {
        let store = self.cluster.store();
        let held = self.wait(store.get(&key)).unwrap().map(|held| held.mod_revision);
        let outcome = self.wait(store.put(key, held, value.into()));
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    fn keys(&self) -> usize {
        self.wait(self.cluster.store().list(KeyRange::All)).unwrap().1.len()
    }
}

#[test]
fn the_first_file_creates_the_cluster() {
    let bench = Bench::new();
    let desired = file(3, "");
    let first = bench.compare(&desired);
    assert!(first.is_first() && !first.is_same() && !first.needs_force());
    assert_eq!((bench.keys(), first.applied.clone()), (0, None), "a comparison writes nothing");
    bench.apply_as("ann", &first, false).unwrap();
    assert_eq!(bench.stored(), desired);
    let meta: Meta = serde_json::from_slice(&bench.value(&Key::Meta)).unwrap();
    assert_eq!((meta.format, meta.cluster_id), (1, format!("{IDENTITY:032x}")));
    let again = bench.compare(&desired);
    assert!(again.is_same());
    assert_eq!(again.applied, Some(OrderAuthor { by: "ann".into(), at_ms: 1_000 }));
}

#[test]
fn a_change_keeps_the_identity_and_is_refused_when_it_ends_flows() {
    let bench = Bench::new();
    bench.apply(&file(3, ""));
    let meta = bench.value(&Key::Meta);
    bench.apply(&file(4, ""));
    assert_eq!((bench.stored(), bench.value(&Key::Meta)), (file(4, ""), meta));
    let hard = bench.compare(&file(2, "[nat]\nport_block = 128"));
    assert_eq!((hard.changes.len(), hard.stranding()), (3, 3));
    let refused = bench.apply_as("ann", &hard, false).unwrap_err().to_string();
    assert!(refused.starts_with("live flows would end by 3 of these changes"), "{refused}");
    assert_eq!(bench.stored(), file(4, ""));
    bench.apply_as("ann", &hard, true).unwrap();
    assert_eq!(bench.stored().shards.len(), 2);
}

#[test]
fn a_file_applied_after_another_one_is_refused_and_names_its_operator() {
    let bench = Bench::new();
    let (one, two) = (bench.compare(&file(1, "")), bench.compare(&file(2, "")));
    bench.apply_as("ann", &one, false).unwrap();
    let lost = bench.apply_as("bob", &two, true).unwrap_err().to_string();
    assert!(lost.starts_with("ann has applied another cluster file meanwhile"), "{lost}");
    let (one, two) = (bench.compare(&file(3, "")), bench.compare(&file(4, "")));
    let revision = bench.apply_as("bob", &two, false).unwrap();
    let lost = bench.apply_as("ann", &one, false).unwrap_err();
    assert!(matches!(&lost, OperateError::Outrun { by } if by == "bob"), "{lost}");
    assert_eq!(bench.stored(), file(4, ""));
    bench.apply(&file(5, ""));
    let overtaken = bench.wait(bench.operator("bob").apply_progress(revision)).unwrap_err();
    assert!(matches!(&overtaken, OperateError::Outrun { by } if by == "ann"), "{overtaken}");
}

#[test]
fn a_value_of_a_newer_version_stays_and_an_unreadable_one_needs_force() {
    let bench = Bench::new();
    let other = bench.wait(bench.operator("ann").compare(Desired {
        cluster: weir_config::ClusterSettings { name: "south".into(), ..file(1, "").cluster },
        ..file(1, "")
    }));
    assert!(matches!(other, Err(OperateError::OtherCluster { .. })), "{other:?}");
    bench.write(Key::Desired, "{\"format\":1}");
    let blind = bench.compare(&file(1, ""));
    assert!(blind.needs_force() && !blind.is_same());
    let refused = bench.apply_as("ann", &blind, false);
    assert!(matches!(refused, Err(OperateError::Unreadable(_))), "{refused:?}");
    bench.apply_as("ann", &blind, true).unwrap();
    let newer_desired = weir_config::DESIRED_FORMAT + 1;
    for (key, name, format) in [(Key::Desired, "desired", newer_desired), (Key::Meta, "meta", 2)] {
        bench.write(key, &format!("{{\"format\":{format},\"cluster_id\":\"x\"}}"));
        let newer = bench.wait(bench.operator("ann").compare(file(1, "")));
        assert!(matches!(newer, Err(OperateError::Newer(it)) if it == name), "{newer:?}");
    }
}

#[test]
fn the_file_of_the_largest_cluster_fits_in_etcd() {
    let bench = Bench::new();
    let pool = |first: u32, public: &str, homes: &str, steer: &str| {
        format!(
            "[[pool]]\nfirst_id = {first}\npublic = \"{public}\"\nsubscribers = \"{homes}\"\nsteer = \"{steer}\"\n"
        )
    };
    let text = format!(
        "[cluster]\nname = \"north\"\n[access]\nmode = \"plain\"\nsubscribers = [\"100.64.0.0/10\"]\n{}{}",
        pool(4_000_000_000, "198.128.0.0/16", "100.64.0.0/12", "172.16.0.0/19"),
        pool(4_100_000_000, "198.192.0.0/16", "100.112.0.0/12", "172.31.0.0/19"),
    );
    let (desired, _) = weir_config::parse_cluster(&text, "t.toml").expect("valid");
    assert!(desired.shards.len() == 8_192 && desired.to_json().len() > 1 << 20);
    bench.apply(&desired);
    assert_eq!(bench.stored(), desired);
}

#[test]
fn the_controller_takes_an_applied_file_and_reports_it() {
    let bench = Bench::new();
    let operator = bench.operator("ann");
    let revision = bench.apply(&file(4, ""));
    let progress = bench.wait(operator.apply_progress(revision)).unwrap();
    assert_eq!((progress.is_taken, progress.wanted, progress.served), (false, 4, 0));
    assert!(progress.waits.starts_with("no controller leads"), "{progress:?}");
    let session = |node: u32| {
        let record = node_record(BootId(node.into()));
        bench.cluster.session(format!("n{node}").parse().unwrap(), &record)
    };
    let _nodes = [session(1), session(2)];
    let runner = Runner::start(&bench.cluster, &record("a"), options("a"), NoReports);
    wait_for("shards", || bench.wait(operator.apply_progress(revision)).unwrap().is_served());
    let revision = bench.apply(&file(6, ""));
    wait_for("more", || bench.wait(operator.apply_progress(revision)).unwrap().is_served());
    let events = bench.wait(operator.events()).unwrap();
    let taken: Vec<(&str, &str)> = events
        .iter()
        .filter(|event| event.what.contains("cluster file"))
        .map(|event| (event.what.as_str(), event.why.as_str()))
        .collect();
    assert_eq!(
        taken,
        [
            ("a cluster file is taken: shards: 4, replicas: 1", "applied by ann"),
            ("a cluster file is taken: shards: 6, replicas: 1", "applied by ann"),
        ]
    );
    // One shard less: its entry stays until it is retired, and the status says so.
    let fewer = bench.compare(&file(5, ""));
    assert_eq!(fewer.leftover, [6]);
    let revision = bench.apply_as("ann", &fewer, true).unwrap();
    wait_for("less", || bench.wait(operator.apply_progress(revision)).unwrap().is_served());
    let status = bench.wait(operator.status()).unwrap();
    let is_hint = |reason: &String| reason.contains("`weir controller retire 6`");
    assert!(status.reasons.iter().any(is_hint), "{status:?}");
    bench.wait(runner.stop()).unwrap();
}

#[test]
fn only_shards_that_exist_and_are_no_longer_wanted_are_retired() {
    let bench = Bench::new();
    let operator = bench.operator("ann");
    let _node = bench.cluster.session("n1".parse().unwrap(), &node_record(BootId(1)));
    let runner = Runner::start(&bench.cluster, &record("a"), options("a"), NoReports);
    let revision = bench.apply(&file(6, ""));
    wait_for("shards", || bench.wait(operator.apply_progress(revision)).unwrap().is_served());
    bench.apply_as("ann", &bench.compare(&file(5, "")), true).unwrap();
    let retire = |shards: &[u32]| bench.wait(operator.retire(shards)).map_err(|it| it.to_string());
    let is_served = |shard: u32| {
        let lines = bench.wait(operator.shards()).unwrap();
        lines.iter().any(|line| line.shard == shard)
    };
    // A request that also names a shard that does not exist retires none.
    let refused = retire(&[6, 7]).unwrap_err();
    let expected =
        "there is no shard 7, so nothing was written; served, and not in the cluster file: 6";
    assert_eq!(refused, expected);
    assert!(retire(&[5]).unwrap_err().contains("shard 5 is still desired"));
    assert!(is_served(6));
    retire(&[6]).unwrap();
    wait_for("the retired shard's end", || !is_served(6));
    assert!(retire(&[6]).unwrap_err().ends_with("not in the cluster file: none"));
    bench.wait(runner.stop()).unwrap();
}

#[test]
fn a_file_is_not_done_while_the_cluster_is_at_risk() {
    let bench = Bench::new();
    let operator = bench.operator("ann");
    let session = |node: u32| {
        let record = node_record(BootId(node.into()));
        bench.cluster.session(format!("n{node}").parse().unwrap(), &record)
    };
    let progress = |revision| bench.wait(operator.apply_progress(revision)).unwrap();
    let one = session(1);
    let runner = Runner::start(&bench.cluster, &record("a"), options("a"), NoReports);
    let revision = bench.apply(&file(4, ""));
    // One node cannot hold two copies of a shard, so the missing copies are no risk.
    wait_for("shards", || progress(revision).is_done());

    // A second node can hold a copy of each shard, so the file is not done: no worker runs here
    // that would finish a copy.
    let two = session(2);
    wait_for("a second node", || progress(revision).risk.is_some());
    let now = progress(revision);
    assert!(now.is_served() && !now.is_done(), "{now:?}");
    assert!(now.risk.unwrap().starts_with("4 of 4 shards lack a synced copy"));
    bench.wait(runner.stop()).unwrap();
    drop((one, two));
}
