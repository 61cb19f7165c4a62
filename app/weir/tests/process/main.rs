//! Tests the whole process on devices that need no hardware: pcap files that play the gateways' ARP
//! answers, and null.

mod lab;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weir_stream::ClusterKeys;

use lab::*;

#[test]
fn a_node_starts_answers_and_stops_cleanly() {
    let mut lab = Lab::new();
    ready_node(&mut lab, "whole");

    let status = lab.ask(&["status"]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status.stdout));
    assert!(text(&status.stdout).starts_with("OK  node test-whole"));
    assert!(text(&lab.ask(&["shards"]).stdout).contains("203.0.113.0/28"));
    let metrics = text(&lab.ask(&["metrics"]).stdout);
    assert!(metrics.contains("weir_gateway_up{worker=\"0\",side=\"access\"} 1.0"), "{metrics}");
    assert_eq!(lab.ask(&["sessions"]).status.code(), Some(0));
    for words in [&["routes"][..], &["routes", "--json"]] {
        let alone = lab.ask(words);
        assert_eq!((alone.status.code(), text(&alone.stdout).as_str()), (Some(3), ""));
        let printed = text(&alone.stderr);
        assert!(
            printed.starts_with("weir: this node is in no cluster: it announces no routes"),
            "{printed}"
        );
    }
    let file = lab.path("whole.toml");
    let by_file = Command::new(WEIR).args(["routes", "--config"]).arg(&file).output().unwrap();
    assert!(text(&by_file.stderr).contains("in no cluster"), "{}", text(&by_file.stderr));
    let nobody = lab.ask(&["subscriber", "show", "10.200.0.1"]);
    assert!(text(&nobody.stderr).contains("10.200.0.1 holds nothing"));

    let second = fail(&lab.path("whole.toml"));
    assert_eq!(second.0, Some(13), "{}", second.1);

    let log = lab.path("blocks.jsonl");
    fs::rename(&log, lab.path("blocks.jsonl.1")).unwrap();
    lab.signal("HUP");
    wait_for("the reopened block log", || log.exists().then_some(()));

    lab.signal("TERM");
    assert_eq!(lab.wait().code(), Some(0), "{}", lab.log());
    assert!(!lab.path("n.sock").exists());
    assert!(lab.log().contains("event=\"node-stopped\""));
    let gone = lab.ask(&["status"]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(text(&gone.stdout).starts_with("DOWN"));
}

#[test]
fn a_capture_can_be_read_again() {
    let mut lab = Lab::new();
    ready_node(&mut lab, "capture");
    let file = lab.path("arp.pcapng");
    let name = file.display().to_string();
    let done =
        lab.ask(&["capture", "--side", "access", "--filter", "arp[7] = 2", "-c", "3", "-w", &name]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("3 packets"));
    let mut capture = pcap::Capture::from_file(&file).unwrap();
    for _ in 0..3 {
        assert_eq!(capture.next_packet().unwrap().data[12..14], [8, 6]);
    }
    assert!(capture.next_packet().is_err());
}

#[test]
fn a_node_restarts_at_once_after_a_kill() {
    let mut lab = Lab::new();
    ready_node(&mut lab, "killed");
    lab.signal("KILL");
    assert_eq!(lab.wait().code(), None);
    assert!(lab.path("n.sock").exists());
    let config = lab.path("killed.toml");
    lab.start(&config);
    lab.signal("INT");
    assert_eq!(lab.wait().code(), Some(0));
}

#[test]
fn a_silent_gateway_is_named_and_the_node_is_not_ready() {
    let mut lab = Lab::new();
    let access = lab.gateway("net_pcap0", [10, 1, 0, 2], [10, 1, 0, 1]);
    let config = lab.configure("silent", &access, "net_null0,no-rx=1", "");
    let node = Command::new(WEIR)
        .args(["run", "--config"])
        .arg(&config)
        .stdout(fs::File::create(lab.path("out")).unwrap())
        .stderr(fs::File::create(lab.path("log")).unwrap())
        .spawn();
    lab.node = Some(node.unwrap());
    wait_for("the log line", || lab.log().contains("event=\"gateway-silent\"").then_some(()));
    let status = lab.ask(&["status"]);
    assert_eq!(status.status.code(), Some(2));
    assert!(text(&status.stdout).contains("internet gateway 10.2.0.2 does not answer ARP"));
    assert_eq!(fs::read_to_string(lab.path("out")).unwrap(), "");
    lab.signal("TERM");
    assert_eq!(lab.wait().code(), Some(0));
}

#[test]
fn a_node_waiting_for_etcd_says_so_and_a_stalled_node_times_out() {
    let mut lab = Lab::new();
    let node = Command::new(WEIR)
        .args(["run", "--config"])
        .arg(lab.configure_member())
        .env("STATE_DIRECTORY", lab.folder.path())
        .stdout(fs::File::create(lab.path("out")).unwrap())
        .stderr(fs::File::create(lab.path("log")).unwrap())
        .spawn();
    lab.node = Some(node.unwrap());
    let printed = wait_for("a status that names etcd", || {
        assert!(!lab.log().contains("start-failed"), "{}", lab.log());
        let status = lab.ask(&["status"]);
        assert_eq!(status.status.code(), Some(2));
        let printed = text(&status.stdout);
        printed.contains("has waited for etcd for ").then_some(printed)
    });
    assert!(printed.starts_with("DOWN  node test-member-"), "{printed}");
    assert!(printed.contains("\n  since 2"), "{printed}");
    let status = text(&lab.ask(&["status", "--json"]).stdout);
    assert!(status.contains("\"for\": \"etcd\""), "{status}");
    let metrics = text(&lab.ask(&["metrics"]).stdout);
    let is_counted = |line: &str| {
        line.strip_prefix("weir_waiting_seconds{for=\"etcd\"} ").is_some_and(|value| value != "0.0")
    };
    assert!(metrics.lines().any(is_counted), "{metrics}");
    for words in [&["shards"][..], &["sessions"], &["drops"], &["subscriber", "list"]] {
        let refused = lab.ask(words);
        assert_eq!(refused.status.code(), Some(1));
        let printed = text(&refused.stderr);
        assert!(printed.starts_with("weir: the node has waited for etcd for "), "{printed}");
    }

    lab.signal("STOP");
    let silent = lab.ask(&["status", "--timeout", "1"]);
    lab.signal("CONT");
    assert_eq!(silent.status.code(), Some(2));
    let printed = text(&silent.stdout);
    assert!(
        printed.starts_with("DOWN") && printed.contains("has said nothing for 1 s"),
        "{printed}"
    );
    lab.signal("TERM");
    lab.wait();
}

#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let lab = Lab::new();
    let config = lab.configure("journal", "net_af_xdp0,iface=no-such-if0", "net_null1", "");
    fs::write(lab.path("broken.toml"), "[node]\nnme = 1\n").unwrap();
    let run = |config: &PathBuf, is_journal: bool| {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut name = journal_stream(writer.try_clone().unwrap());
        if !is_journal {
            name.push('0');
        }
        let mut command = Command::new(WEIR);
        command.args(["run", "--config"]).arg(config).env("JOURNAL_STREAM", name).stderr(writer);
        let mut node = command.spawn().unwrap();
        // Closes this process's end of the pipe for writing.
        drop(command);
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        node.wait().unwrap();
        printed
    };
    let printed = run(&config, true);
    let mark = |event: &str| {
        let event = format!("event=\"{event}\"");
        let line = printed.lines().find(|line| line.contains(&event));
        line.unwrap_or_else(|| panic!("no {event} in {printed}"))[..3].to_owned()
    };
    assert_eq!(mark("node-starting"), "<6>");
    assert_eq!(mark("start-failed"), "<3>");
    assert!(run(&lab.path("broken.toml"), true).starts_with("<3>weir: "));
    for config in [&config, &lab.path("broken.toml")] {
        let printed = run(config, false);
        assert!(!printed.is_empty() && !printed.contains("<3>"), "{printed}");
    }
}

#[test]
fn a_controller_logs_for_the_journal_that_etcd_does_not_answer() {
    let mut lab = Lab::new();
    let log = fs::File::create(lab.path("log")).unwrap();
    let controller = Command::new(WEIR)
        .args(["controller", "--cluster", "north", "--etcd", "http://127.0.0.1:1"])
        .env("JOURNAL_STREAM", journal_stream(log.try_clone().unwrap()))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    lab.node = Some(controller.unwrap());
    let line = |event: &str| {
        let event = format!("event=\"{event}\"");
        lab.log().lines().find(|line| line.contains(&event)).map(str::to_owned)
    };
    assert!(wait_for("its first line", || line("controller-starting")).starts_with("<6>"));
    assert!(wait_for("the loss of etcd", || line("etcd-lost")).starts_with("<4>"));
    lab.signal("TERM");
    assert!(wait_for("its last line", || line("controller-stopped")).starts_with("<6>"));
    lab.wait();
    assert!(lab.log().lines().all(|line| line.starts_with('<')), "{}", lab.log());
}

#[test]
fn each_failure_to_start_has_its_line_and_exit_code() {
    let lab = Lab::new();
    let null = || ("net_null0", "net_null1");

    let config = lab.configure("device", "net_af_xdp0,iface=no-such-if0", null().1, "");
    let (code, log) = fail(&config);
    assert_eq!(code, Some(20), "{log}");
    let line = log.lines().find(|line| line.contains("start-failed")).unwrap();
    assert!(line.contains("no-such-if0") && line.contains("exit_code=20"), "{line}");

    let config = lab.configure("core", null().0, null().1, "control_cores = [1023]");
    let (code, log) = fail(&config);
    assert_eq!(code, Some(12), "{log}");

    let (code, log) = fail(&lab.configure_too_much());
    assert_eq!(code, Some(18), "{log}");
    let (_, rest) = log.split_once("needs ").expect(&log);
    let needed_mb: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(needed_mb > 20_000_000, "{log}");
    assert!(log.contains("(each worker: 200,000,000 flows: "), "{log}");
    assert!(log.contains("MiB free") && log.contains("add memory"), "{log}");

    let config = lab.configure("log", null().0, null().1, "");
    fs::remove_file(lab.path("blocks.jsonl")).unwrap();
    fs::create_dir(lab.path("blocks.jsonl")).unwrap();
    let (code, log) = fail(&config);
    assert_eq!(code, Some(16), "{log}");

    let _live = UnixListener::bind(lab.path("n.sock")).unwrap();
    let (code, log) = fail(&config);
    assert_eq!(code, Some(13), "{log}");

    assert_eq!(fail(&lab.path("absent.toml")).0, Some(10));
    fs::write(lab.path("broken.toml"), "[node]\nnme = 1\n").unwrap();
    let (code, log) = fail(&lab.path("broken.toml"));
    assert_eq!(code, Some(11));
    assert!(log.contains("broken.toml:2:1"), "{log}");
}

#[test]
fn check_distinguishes_valid_wrong_and_absent_files() {
    let lab = Lab::new();
    let config = lab.configure("check", "net_null0", "net_null1", "");
    let check = |file: &PathBuf| Command::new(WEIR).arg("check").arg(file).output().unwrap();
    let valid = check(&config);
    assert_eq!(valid.status.code(), Some(0), "{}", text(&valid.stdout));
    assert!(text(&valid.stdout).contains("valid; workers: 1, shards: 1"));
    assert!(text(&valid.stdout).contains("worker 0: 10,000 flows: "), "{}", text(&valid.stdout));
    fs::write(lab.path("wrong.toml"), "[node]\nnme = 1\n").unwrap();
    let wrong = check(&lab.path("wrong.toml"));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stdout).contains("wrong.toml:2:1"), "{}", text(&wrong.stdout));
    assert_eq!(check(&lab.path("absent.toml")).status.code(), Some(2));
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
    let mut run = Command::new(WEIR);
    let refused =
        run.args(["run", "--config"]).arg(examples.join("cluster.toml")).output().unwrap();
    assert_eq!(refused.status.code(), Some(11));
    assert!(text(&refused.stderr).contains("weir apply"), "{}", text(&refused.stderr));
}

#[test]
fn check_compares_the_files_of_a_cluster_in_any_order() {
    let lab = Lab::new();
    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let check = |files: &[PathBuf]| {
        let output = Command::new(WEIR).arg("check").args(files).output().unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let copy = |example: &str, name: &str, from: &str, to: &str| {
        let example = fs::read_to_string(examples.join(example)).unwrap();
        assert!(example.contains(from), "{from}");
        fs::write(lab.path(name), example.replace(from, to)).unwrap();
        lab.path(name)
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
    let lab = Lab::new();
    let new = |file: &PathBuf| Command::new(WEIR).args(["key", "new"]).arg(file).output().unwrap();
    let (one, other) = (lab.path("one.key"), lab.path("other.key"));
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
    symlink(&other, lab.path("link.key")).unwrap();
    assert_eq!(new(&lab.path("link.key")).status.code(), Some(1));
    assert!(!other.exists(), "a link is not followed");
    assert!(new(&other).status.success());
    assert_ne!(fs::read_to_string(&other).unwrap(), key);
    let nowhere = new(&lab.path("none/a.key"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("mkdir -p"), "{}", text(&nowhere.stderr));
}

#[test]
fn where_reads_the_log_and_its_rotated_files() {
    let lab = Lab::new();
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
    fs::write(lab.path("b.jsonl.1"), allocated).unwrap();
    let other = record("block-allocated", "2026-03-01T15:00:00.000Z", 3);
    fs::write(lab.path("b.jsonl"), released + &other.replace("1024-1279", "1280-1535")).unwrap();
    let log = lab.path("b.jsonl").display().to_string();
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
