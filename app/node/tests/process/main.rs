//! Tests the whole process on devices that need no hardware: pcap files that play the gateways' ARP
//! answers, and null.

mod lab;
mod program;
mod reload;

use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use lab::*;
use program::{journal_stream, text, wait_for};

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
    let by_file = weir().args(["routes", "--config"]).arg(&file).output().unwrap();
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
    let node = Command::new(NODE)
        .args(["run", "--config"])
        .arg(&config)
        .env("STATE_DIRECTORY", lab.folder.path())
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
    let node = Command::new(NODE)
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
        let mut command = Command::new(NODE);
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
    assert!(run(&lab.path("broken.toml"), true).starts_with("<3>weir-node: "));
    for config in [&config, &lab.path("broken.toml")] {
        let printed = run(config, false);
        assert!(!printed.is_empty() && !printed.contains("<3>"), "{printed}");
    }
}

/// Without transparent and without free reserved huge pages, tables lie on pages of 4 KiB.
#[test]
fn tables_of_more_than_a_million_flows_on_pages_of_4_kib_are_refused() {
    if weir_dpdk::free_huge_pages_mb() > 0 {
        eprintln!("skipped: this machine has free huge pages");
        return;
    }
    let lab = Lab::new();
    let config = lab.configure_large("large");
    // The processes that this one starts from here on inherit it.
    nix::sys::prctl::set_thp_disable(true).unwrap();
    let (code, log) = fail(&config);
    nix::sys::prctl::set_thp_disable(false).unwrap();
    assert_eq!(code, Some(18), "{log}");
    assert!(log.contains("nat.flows_max = 1000001") && log.contains("pages of 4 KiB"), "{log}");
    assert!(log.contains("node.hugepages"), "{log}");
    let (_, rest) = log.split_once("reserve ").expect(&log);
    let pages: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((40..400).contains(&pages), "{log}");
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

    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let (code, log) = fail(&examples.join("cluster.toml"));
    assert_eq!(code, Some(11));
    assert!(log.contains("weir apply"), "{log}");
}
