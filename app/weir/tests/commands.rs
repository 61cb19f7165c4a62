//! Tests the commands that ask no node, and the controller without etcd, as processes.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use weir_stream::ClusterKeys;

#[path = "../../node/tests/process/program.rs"]
mod program;

use program::{journal_stream, text, wait_for};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

const NODE_FILE: &str = r#"
[[worker]]
core = 0
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }

[access]
mode = "gre"
subscribers = ["10.200.0.0/16"]

[nat]
flows_max = 10_000

[[shard]]
id = 7
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
"#;

/// A folder for the files of one test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A process that is killed with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn moved_commands_say_where_they_went_whatever_follows() {
    for (words, sentence) in [
        ("run", "`weir run` is now `weir-node run --config /etc/weir/NODE.toml`"),
        ("run --config n1.toml", "`weir run` is now `weir-node run --config n1.toml`"),
        ("run --help", "`weir run` is now `weir-node run --help`"),
        ("run --version", "`weir run` is now `weir-node run --version`"),
        ("guard", "`weir guard` is now `weir-node guard`"),
        ("traffic bench --short", "`weir traffic` is now `weir-lab traffic bench --short`"),
        ("traffic -h nothing", "`weir traffic` is now `weir-lab traffic -h nothing`"),
        ("cpe --route", "`weir cpe` is now `weir-lab cpe --route`"),
    ] {
        let output = Command::new(WEIR).args(words.split(' ')).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{words}");
        assert_eq!(text(&output.stderr), format!("weir: {sentence}\n"));
    }
    let help = text(&Command::new(WEIR).arg("--help").output().unwrap().stdout);
    let commands = help.lines().filter_map(|line| line.split_whitespace().next());
    assert!(!commands.into_iter().any(|name| ["run", "guard", "traffic", "cpe"].contains(&name)));
}

#[test]
fn a_controller_logs_for_the_journal_that_etcd_does_not_answer() {
    let folder = Folder::new();
    let path = folder.path("log");
    let log = fs::File::create(&path).unwrap();
    let controller = Command::new(WEIR)
        .args(["controller", "--cluster", "north", "--etcd", "http://127.0.0.1:1"])
        .env("JOURNAL_STREAM", journal_stream(log.try_clone().unwrap()))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let mut controller = Running(controller.unwrap());
    let log = || fs::read_to_string(&path).unwrap();
    let line = |event: &str| {
        let event = format!("event=\"{event}\"");
        log().lines().find(|line| line.contains(&event)).map(str::to_owned)
    };
    assert!(wait_for("its first line", || line("controller-starting")).starts_with("<6>"));
    assert!(wait_for("the loss of etcd", || line("etcd-lost")).starts_with("<4>"));
    let process = controller.0.id().to_string();
    assert!(Command::new("kill").arg(&process).status().unwrap().success());
    assert!(wait_for("its last line", || line("controller-stopped")).starts_with("<6>"));
    wait_for("its end", || controller.0.try_wait().unwrap());
    assert!(log().lines().all(|line| line.starts_with('<')), "{}", log());
}

#[test]
fn check_distinguishes_valid_wrong_and_absent_files() {
    let folder = Folder::new();
    let config = folder.path("node.toml");
    fs::write(&config, NODE_FILE).unwrap();
    let check = |file: &PathBuf| Command::new(WEIR).arg("check").arg(file).output().unwrap();
    let valid = check(&config);
    assert_eq!(valid.status.code(), Some(0), "{}", text(&valid.stdout));
    assert!(text(&valid.stdout).contains("valid; workers: 1, shards: 1"));
    assert!(text(&valid.stdout).contains("worker 0: 10,000 flows: "), "{}", text(&valid.stdout));
    fs::write(folder.path("wrong.toml"), "[node]\nnme = 1\n").unwrap();
    let wrong = check(&folder.path("wrong.toml"));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stdout).contains("wrong.toml:2:1"), "{}", text(&wrong.stdout));
    assert_eq!(check(&folder.path("absent.toml")).status.code(), Some(2));
}

#[test]
fn check_reads_a_cluster_and_its_nodes_together() {
    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let check = |names: &[&str]| {
        let files = names.iter().map(|name| examples.join(name));
        Command::new(WEIR).arg("check").args(files).output().unwrap()
    };
    let valid = check(&["cluster.toml", "node-1.toml", "node-2.toml", "node-3.toml"]);
    let printed = text(&valid.stdout);
    assert_eq!(valid.status.code(), Some(0), "{printed}");
    for line in [
        "shards 1..=256\nshard 100001\n",
        "public addresses: 4128, for 65664 homes at once",
        "reserve lanes: 1 of 8, whose ports are those of 516 addresses",
        "routes: 257 on the access switch, 257 on the internet switch",
        "cluster.toml: valid; cluster: edge, shards: 257, warnings: 0",
        "node-3.toml: worker 1: about 86 shards, copies included; 1,000,000 flows: ",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    for line in [
        "ports of each of the shards 1..=256: 256 homes on 16 public addresses, 16 on each; an address has 220 blocks of 256 ports",
        "ports of shard 100001: 128 homes on 32 public addresses, 4 on each; ",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    let both = check(&["ipv6-cluster.toml", "ipv6-node-1.toml", "ipv6-node-2.toml"]);
    let printed = text(&both.stdout);
    assert_eq!(both.status.code(), Some(0), "{printed}");
    for line in [
        "IPv6 shards: 32, prefixes: 32; a /56 is one home\n",
        "routes: 64 on the access switch, 64 on the internet switch\n",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    let single = text(&check(&["ipv6.toml"]).stdout);
    let line = "IPv6 shards: 1, prefixes: 1; homes have 2 static prefixes\n";
    assert!(single.contains(line), "{single}");
    let plain = check(&["plain-node-2.toml", "plain-node-1.toml", "plain-cluster.toml"]);
    let printed = text(&plain.stdout);
    assert!(plain.status.code() == Some(0) && !printed.contains("warning: "), "{printed}");
    assert!(
        printed.contains("up to 1500 bytes go whole, 68 less than the access MTU"),
        "{printed}"
    );
    let twice = check(&["cluster.toml", "node-1.toml", "node-1.toml"]);
    assert_eq!(twice.status.code(), Some(1));
    assert!(text(&twice.stdout).contains("node.name: edge1 is also the name in"));
}

#[test]
fn check_compares_the_files_of_a_cluster_in_any_order() {
    let folder = Folder::new();
    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let check = |files: &[PathBuf]| {
        let output = Command::new(WEIR).arg("check").args(files).output().unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let copy = |example: &str, name: &str, from: &str, to: &str| {
        let example = fs::read_to_string(examples.join(example)).unwrap();
        assert!(example.contains(from), "{from}");
        fs::write(folder.path(name), example.replace(from, to)).unwrap();
        folder.path(name)
    };
    let example = |name: &str| examples.join(name);
    let (cluster, one, two, three) = (
        example("cluster.toml"),
        example("node-1.toml"),
        example("node-2.toml"),
        example("node-3.toml"),
    );
    let all = [&one, &two, &cluster, &three].map(Clone::clone);
    let (code, printed) = check(&all);
    assert!(
        code == Some(0) && printed.contains("node-1.toml: worker 0: about 86 shards"),
        "{printed}"
    );

    let other = copy("node-1.toml", "other.toml", "name = \"edge\"", "name = \"north\"");
    for files in [[&other, &cluster], [&cluster, &other]] {
        let (code, printed) = check(&files.map(Clone::clone));
        let error =
            "other.toml:14:8: cluster.name: \"north\" is another cluster than \"edge\" (use";
        assert!(code == Some(1) && printed.contains(error), "{printed}");
    }

    // A finding about all files together is reported for the file that is to be changed, and counts
    // there.
    let vlan = copy("node-2.toml", "vlan.toml", "vlan = 100", "vlan = 101");
    let (code, printed) = check(&[vlan, one.clone(), three, cluster.clone()]);
    assert_eq!(code, Some(0), "{printed}");
    let warning = "vlan.toml:25:92: worker[0].access.vlan: VLAN 101, others are VLAN 100 (";
    assert!(printed.contains(warning), "{printed}");
    assert!(
        printed.contains("vlan.toml: valid; node of cluster edge, workers: 2, warnings: 1"),
        "{printed}"
    );
    let (_, printed) = check(&[cluster.clone(), one.clone()]);
    let warning = "cluster.toml:11:12: cluster.replicas: a primary and 1 copy need 2 nodes";
    assert!(printed.contains(warning), "{printed}");

    let note = "note: each node's file was checked alone: there is no valid cluster file";
    for files in
        [[&one, &two], [&one, &copy("cluster.toml", "broken.toml", "replicas = 1", "replicas = 9")]]
    {
        let (_, printed) = check(&files.map(Clone::clone));
        assert!(printed.contains(note), "{printed}");
    }
    let (code, printed) =
        check(&[cluster.clone(), one, copy("cluster.toml", "second.toml", "edge", "edge")]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("second.toml:1:1: cluster: ")
            && printed.contains("is the cluster file of these nodes already"),
        "{printed}"
    );
}

#[test]
fn a_new_key_is_for_its_owner_alone_and_never_written_over() {
    let folder = Folder::new();
    let new = |file: &PathBuf| Command::new(WEIR).args(["key", "new"]).arg(file).output().unwrap();
    let (one, other) = (folder.path("one.key"), folder.path("other.key"));
    let made = new(&one);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let printed = text(&made.stdout);
    assert!(
        printed.contains("one.key: a new cluster key, mode 0600") && printed.contains("every node")
    );
    assert_eq!(fs::metadata(&one).unwrap().mode() & 0o7777, 0o600);
    let key = fs::read_to_string(&one).unwrap();
    let names = ClusterKeys::parse(&key).unwrap().names();
    assert!(printed.contains(&names[0]) && !printed.contains(key.trim()), "{printed}");

    let again = new(&one);
    assert_eq!((again.status.code(), text(&again.stdout).as_str()), (Some(1), ""));
    assert!(text(&again.stderr).contains("one.key exists"), "{}", text(&again.stderr));
    assert_eq!(fs::read_to_string(&one).unwrap(), key);
    symlink(&other, folder.path("link.key")).unwrap();
    assert_eq!(new(&folder.path("link.key")).status.code(), Some(1));
    assert!(!other.exists(), "a link is not followed");
    assert!(new(&other).status.success());
    assert_ne!(fs::read_to_string(&other).unwrap(), key);
    let nowhere = new(&folder.path("none/a.key"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("mkdir -p"), "{}", text(&nowhere.stderr));
}

#[test]
fn where_reads_the_log_and_its_rotated_files() {
    let folder = Folder::new();
    let record = |event: &str, time: &str, sequence: u32| {
        format!(
            concat!(
                r#"{{"time":"{}","event":"{}","node":"n1","sequence":{},"shard":7,"#,
                r#""subscriber":"10.200.0.1","public":"203.0.113.5","ports":"1024-1279"}}"#,
                "\n"
            ),
            time, event, sequence
        )
    };
    let allocated = record("block-allocated", "2026-03-01T12:00:00.000Z", 1);
    let released = record("block-released", "2026-03-01T13:00:00.000Z", 2);
    fs::write(folder.path("b.jsonl.1"), allocated).unwrap();
    let other = record("block-allocated", "2026-03-01T15:00:00.000Z", 3);
    fs::write(folder.path("b.jsonl"), released + &other.replace("1024-1279", "1280-1535")).unwrap();
    let log = folder.path("b.jsonl").display().to_string();
    let who = |at: &str| {
        let words = ["where", "203.0.113.5:1100", "--at", at, "--log", &log];
        Command::new(WEIR).args(words).output().unwrap()
    };
    let then = who("2026-03-01T13:30:00+01:00");
    assert!(then.status.success(), "{}", text(&then.stderr));
    let printed = text(&then.stdout);
    assert!(printed.contains("subscriber 10.200.0.1"), "{printed}");
    assert!(printed.contains("until  2026-03-01T13:00:00.000Z"), "{printed}");
    let later = who("2026-03-01T14:00:00Z");
    assert_eq!(later.status.code(), Some(1));
    assert!(text(&later.stdout).contains("nobody held 203.0.113.5:1100"));
    let beyond = who("2026-03-01T16:00:00Z");
    assert_eq!(beyond.status.code(), Some(3));
    let printed = text(&beyond.stdout);
    assert!(
        printed.contains("the logs cannot say") && printed.contains("the log of n1 ends"),
        "{printed}"
    );
    for wrong in
        [["203.0.113.5:1100", "--log", "/missing/b.jsonl"], ["203.0.113.5:x", "--log", &log]]
    {
        let refused = Command::new(WEIR).arg("where").args(wrong).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
}
