//! Tests the operator's commands on a cluster whose nodes only register: a real etcd, a controller,
//! the program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use weir_etcd::{EtcdCluster, EtcdOptions, NodeRecord, NodeSession, WorkerRecord};

#[path = "../../../cluster/etcd/tests/cluster/etcd.rs"]
#[allow(dead_code, reason = "some of it serves the other crate's tests only")]
mod etcd;

use etcd::{Etcd, wait_for};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// Far longer than anything takes, so that only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(120);

struct Bench {
    etcd: Etcd,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { etcd: Etcd::start(), folder: tempfile::tempdir().unwrap() }
    }

    /// Writes the cluster file with so many shards.
    fn file(&self, shards: u32, more: &str) -> PathBuf {
        let mut text = format!(
            "[cluster]\nname = \"north\"\nreplicas = 0\n[access]\nsubscribers = [\"10.200.0.0/16\"]\n{more}\n"
        );
        for shard in 1..=shards {
            text.push_str(&format!(
                "[[shard]]\nid = {shard}\nendpoint = \"10.100.0.{shard}\"\npublic = [\"198.18.{shard}.0/28\"]\n"
            ));
        }
        let file = self.folder.path().join("cluster.toml");
        fs::write(&file, text).unwrap();
        file
    }

    /// Writes a node's file that names this etcd.
    fn node_file(&self) -> PathBuf {
        let text = format!(
            r#"
            [node]
            name = "n1"
            [cluster]
            name = "north"
            etcd = ["{}"]
            key_file = "/nonexistent"
            [[worker]]
            core = 1
            access = {{ device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2" }}
            internet = {{ device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }}
            "#,
            self.etcd.endpoint()
        );
        let file = self.folder.path().join("node.toml");
        fs::write(&file, text).unwrap();
        file
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(WEIR);
        command.args(words).env("WEIR_CLUSTER", "north").env("WEIR_ETCD", self.etcd.endpoint());
        command.env("SUDO_USER", "ann").stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        outcome(self.command(words).output().unwrap())
    }

    fn apply(&self, file: &PathBuf, words: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(&["apply"]).arg(file).args(words).output().unwrap();
        outcome(output)
    }

    /// Starts a process that keeps running; it is killed with the test, however the test ends.
    fn start(&self, words: &[&str]) -> Running {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", WEIR]).args(words);
        command.env("WEIR_CLUSTER", "north").env("WEIR_ETCD", self.etcd.endpoint());
        Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }
}

fn outcome(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Registers a node that does nothing else.
fn register(etcd: &Etcd) -> (EtcdCluster, NodeSession, NodeRecord) {
    let options = EtcdOptions::new("north".parse().unwrap(), vec![etcd.endpoint()], 7);
    let cluster = EtcdCluster::start(options, || ()).unwrap();
    let boot_id = format!("{:032x}", 1);
    let record = NodeRecord {
        boot_id: boot_id.clone(),
        version: "0".into(),
        rack: None,
        capacity: 1,
        workers: vec![WorkerRecord {
            index: 0,
            boot_id,
            resumes: None,
            weight: 100,
            load_max: None,
            shards_max: None,
            replication: None,
        }],
        admin: None,
        is_stopping: false,
        has_copies: false,
    };
    let session = cluster.session("n1".parse().unwrap(), &record);
    (cluster, session, record)
}

#[test]
fn a_cluster_file_is_applied_and_its_exit_code_tells_what_it_does() {
    let bench = Bench::new();
    let dry = |file: &PathBuf| bench.apply(file, &["--dry-run"]);
    let (code, out, _) = dry(&bench.file(2, ""));
    assert_eq!((code, out.as_str()), (Some(3), "cluster north is new: shards: 2, replicas: 0\n"));
    let (code, out, err) = bench.apply(&bench.file(2, ""), &[]);
    assert_eq!((code, out.lines().last()), (Some(0), Some("applied")), "{err}");
    assert!(err.contains("warning: ") && err.contains("no copies"), "{err}");
    let (code, out, _) = dry(&bench.file(2, ""));
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "cluster north is to be so already: nothing to change\n")
    );

    let (code, out, _) = dry(&bench.file(3, ""));
    assert_eq!(code, Some(3));
    assert!(out.starts_with("cluster north: changes: 1; before, ann@"), "{out}");
    assert!(out.ends_with("  shard 3: added with 198.18.3.0/28 (flows go on)\n"), "{out}");

    let hard = bench.file(1, "[nat]\nport_block = 128");
    let (code, out, _) = dry(&hard);
    assert_eq!(code, Some(4));
    assert!(out.contains("\n! nat.port_block: 256 -> 128 (ends all flows)\n"), "{out}");
    assert!(out.contains("\n! shard 2: removed (strands all flows of shard 2)\n"), "{out}");
    let (code, _, err) = bench.apply(&hard, &[]);
    assert_eq!(code, Some(1));
    assert!(
        err.contains("by 2 of these changes, so nothing was written; accept it with --force"),
        "{err}"
    );
    assert_eq!(dry(&hard).0, Some(4), "the refused file was not written");
    assert_eq!(bench.apply(&hard, &["--force"]).0, Some(0));
    assert_eq!(dry(&hard).0, Some(0));
}

#[test]
fn a_file_that_is_wrong_or_of_another_cluster_is_refused() {
    let bench = Bench::new();
    let (code, _, err) = bench.apply(&bench.file(1, "[nat]\nport_block = 100"), &[]);
    assert_eq!(code, Some(1));
    assert!(
        err.contains("cluster.toml:7:14: nat.port_block") && err.contains("nothing was written"),
        "{err}"
    );
    let (code, _, err) = bench.apply(&bench.file(1, ""), &["--cluster", "south"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("the file is of cluster north, but cluster south is asked for"), "{err}");
    let (code, _, err) = bench.apply(&bench.node_file(), &[]);
    assert_eq!(code, Some(1));
    assert!(err.contains("belongs to one node"), "{err}");
    let nothing = bench.etcd.control(&["get", "--prefix", "/weir/"]);
    assert_eq!(nothing, "");
}

#[test]
fn output_commit_of_a_cluster_and_of_its_shards_is_shown_before_it_is_applied() {
    let bench = Bench::new();
    let keys = |cluster: &str, shard: &str| {
        let file = bench.file(2, "");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replacen("replicas = 0", cluster, 1);
        fs::write(&file, text.replacen("id = 2\n", &format!("id = 2\n{shard}\n"), 1)).unwrap();
        file
    };
    let (code, _, err) = bench.apply(&keys("replicas = 1", ""), &[]);
    assert_eq!(code, Some(0), "{err}");
    let dry = |file: &PathBuf| bench.apply(file, &["--dry-run"]);
    let one = keys("replicas = 1", "commit = \"replicated\"");
    let (code, out, _) = dry(&one);
    assert_eq!(code, Some(3));
    let change = "  shard 2: commit as the cluster -> replicated (for new flows; each node takes it when it restarts)\n";
    assert!(out.ends_with(change), "{out}");
    assert_eq!(bench.apply(&one, &[]).0, Some(0), "no live flow ends");

    let all = "replicas = 1\ncommit = \"replicated\"\ncommit_replicas = 1\ncommit_timeout_ms = 20\n\
               commit_on_timeout = \"drop\"";
    let (code, out, _) = dry(&keys(all, "commit = \"async\""));
    assert_eq!(code, Some(3));
    for line in [
        "  cluster.commit: \"async\" -> \"replicated\" (for new flows; each node takes it when it restarts)\n",
        "  cluster.commit_replicas: not set -> 1 (for new flows; each node takes it when it restarts)\n",
        "  cluster.commit_timeout_ms: 100 -> 20 (flows go on; each node takes it when it restarts)\n",
        "  cluster.commit_on_timeout: \"release\" -> \"drop\" (flows go on; each node takes it when it restarts)\n",
        "  shard 2: commit replicated -> async (for new flows; each node takes it when it restarts)\n",
    ] {
        assert!(out.contains(line), "{line}{out}");
    }

    for (cluster, shard, place) in [
        (
            "replicas = 0",
            "commit = \"replicated\"",
            "shard[1].commit: \"replicated\" with replicas = 0",
        ),
        ("replicas = 1\ncommit_replicas = 2", "", "cluster.commit_replicas: 2 is more than"),
        ("replicas = 1\ncommit = \"always\"", "", "cluster.commit: \"always\" is not valid"),
    ] {
        let (code, _, err) = dry(&keys(cluster, shard));
        assert_eq!(code, Some(1), "{place}: {err}");
        assert!(err.contains(place) && err.contains("nothing was written"), "{place}\n{err}");
    }
    let one = keys("replicas = 1", "commit = \"replicated\"");
    assert_eq!(dry(&one).0, Some(0), "refused files and dry runs changed nothing");
}

#[test]
fn a_member_of_etcd_that_is_down_does_not_stop_a_command() {
    let bench = Bench::new();
    bench.apply(&bench.file(1, ""), &[]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let members = format!("http://{nobody},{}", bench.etcd.endpoint());
    for _ in 0..4 {
        let (code, _, err) = bench.run(&["shards", "--etcd", &members]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
    }
    let (code, _, err) = bench.run(&["shards", "--etcd", &format!("http://{nobody}")]);
    assert_eq!(code, Some(1));
    assert!(err.contains(&nobody.to_string()), "{err}");
}

#[test]
fn decisions_of_the_controller_are_shown_by_the_commands() {
    let bench = Bench::new();
    let (cluster, session, record) = register(&bench.etcd);
    let _controller = bench.start(&["controller", "--name", "c1"]);
    let node_file = bench.node_file();
    let config = node_file.to_str().unwrap();

    let mut watch = bench.start(&["shards", "--watch", "--json"]);
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = |is_it: &dyn Fn(&serde_json::Value) -> bool| loop {
        let line = received.recv_timeout(PATIENCE).expect("the watch prints another line");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if is_it(&line) {
            return line;
        }
    };
    let file = bench.file(3, "");
    let output =
        Command::new(WEIR).args(["apply", "--wait", "--config", config]).arg(&file).output();
    let (code, out, err) = outcome(output.unwrap());
    assert_eq!(code, Some(0), "{err}");
    assert!(out.ends_with("the controller has taken it, 3 of 3 shards are served\n"), "{out}");
    let created = next(&|line| line["shard"] == 3 && line["epoch"] == 1);
    assert_eq!(created["what"][0], "created, n1/0 is primary");
    assert_eq!(created["members"][0]["life"], "alive");

    let (code, out, err) = bench.run(&["shards", "--config", config]);
    assert_eq!(code, Some(0), "{err}");
    let rows: Vec<&str> = out.lines().collect();
    assert_eq!(rows[0], "3 shards: 3 whole");
    assert_eq!(rows[3], "    1  whole  n1/0     -            1      1");
    let (code, out, _) = bench.run(&["cluster", "status"]);
    assert_eq!((code, out.lines().next()), (Some(0), Some("OK  c1 leads, at rest")), "{out}");

    session.update(&NodeRecord { is_stopping: true, ..record });
    let stopping = next(&|line| line["node"] == "n1");
    assert_eq!(stopping["what"][0], "is about to end");
    wait_for("the state of the node", || bench.run(&["cluster", "status"]).1.contains("stopping"));
    cluster.handle().block_on(session.close()).unwrap();
    let gone = next(&|line| line["node"] == "n1");
    assert_eq!(gone["what"][0], "is not registered any more");
    let (_, out, _) = bench.run(&["shards", "--cluster", "north", "--json"]);
    let shards: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shards[2]["state"], "no-primary");

    let (code, out, _) = bench.apply(&bench.file(2, ""), &["--force"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("`weir controller retire 3`"), "{out}");

    let (code, out, err) = bench.run(&["controller", "retire", "9"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("there is no shard 9") && err.ends_with("cluster file: 3\n"), "{err}");
    let (code, out, err) = bench.run(&["events", "--node", "n7"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("weir: there is no node n7; there are: "), "{err}");
    let (code, out, _) = bench.run(&["events", "--node", "n1"]);
    assert!(code == Some(0) && out.contains("n1"), "{out}");
}
