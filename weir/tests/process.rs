//! The whole process on devices that need no hardware: pcap files that play the gateways' ARP answers, and null.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// Far longer than any step takes, so that only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with everything one node needs; the node is killed with it.
struct Lab {
    folder: tempfile::TempDir,
    node: Option<Child>,
}

impl Lab {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), node: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A configuration on these two devices.
    fn configure(&self, name: &str, access: &str, internet: &str, node_keys: &str) -> PathBuf {
        let file = self.path(&format!("{name}.toml"));
        let text = format!(
            r#"
            [node]
            name = "test-{name}-{}"
            admin_socket = "{}"
            block_log = "{}"
            hugepages = "never"
            {node_keys}

            [[worker]]
            core = 0
            access = {{ device = "{access}", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }}
            internet = {{ device = "{internet}", address = "10.2.0.1/24", gateway = "10.2.0.2" }}

            [access]
            mode = "gre"
            subscribers = ["10.200.0.0/16"]

            [nat]
            flows_max = 10_000

            [[shard]]
            id = 7
            endpoint = "10.100.0.1"
            public = ["203.0.113.0/28"]
            "#,
            std::process::id(),
            self.path("n.sock").display(),
            self.path("blocks.jsonl").display(),
        );
        fs::write(&file, text).unwrap();
        file
    }

    /// The largest tables for as many workers as there are core numbers: more memory than any machine has.
    fn configure_too_much(&self) -> PathBuf {
        let worker = |n: u32| {
            let (third, fourth) = (n / 200, n % 200 + 2);
            format!(
                r#"
                [[worker]]
                core = {n}
                access = {{ device = "net_null{}", address = "10.1.{third}.{fourth}/16", gateway = "10.1.255.254", mtu = 1524 }}
                internet = {{ device = "net_null{}", address = "10.2.{third}.{fourth}/16", gateway = "10.2.255.254" }}

                [[shard]]
                id = {}
                endpoint = "10.100.{third}.{fourth}"
                public = ["203.{third}.{fourth}.0/28"]
                "#,
                2 * n,
                2 * n + 1,
                n + 1,
            )
        };
        let workers: String = (0..1000).map(worker).collect();
        let text = format!(
            r#"
            [node]
            name = "test-too-much-{}"
            admin_socket = "{}"
            hugepages = "never"

            [access]
            mode = "gre"
            subscribers = ["10.200.0.0/16"]

            [nat]
            flows_max = 200_000_000
            sessions_max = 200_000_000
            filtering = "address-dependent"
            {workers}
            "#,
            std::process::id(),
            self.path("n.sock").display(),
        );
        let file = self.path("too-much.toml");
        fs::write(&file, text).unwrap();
        file
    }

    /// A pcap device that hears its gateway's ARP answer over and over.
    fn gateway(&self, name: &str, gateway: [u8; 4], worker: [u8; 4]) -> String {
        let (rx, tx) = (self.path(&format!("{name}.rx")), self.path(&format!("{name}.tx")));
        fs::write(&rx, arp_answer(gateway, worker)).unwrap();
        format!("{name},rx_pcap={},tx_pcap={},infinite_rx=1", rx.display(), tx.display())
    }

    /// Starts the node and waits until it says that it is ready.
    fn start(&mut self, config: &PathBuf) {
        let mut node = Command::new(WEIR)
            .args(["run", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        self.node = Some(node);
        let first = lines.next().unwrap_or_else(|| panic!("no line; log:\n{}", self.log()));
        assert_eq!(first.unwrap(), "ready");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    fn signal(&self, name: &str) {
        let process = self.node.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        let node = self.node.as_mut().unwrap();
        wait_for("the node's end", || node.try_wait().unwrap())
    }

    /// A command to the node.
    fn ask(&self, words: &[&str]) -> Output {
        Command::new(WEIR).args(words).arg("--socket").arg(self.path("n.sock")).output().unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(node) = &mut self.node {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A pcap file with one frame: `gateway` answers `worker`'s ARP request.
fn arp_answer(gateway: [u8; 4], worker: [u8; 4]) -> Vec<u8> {
    let mac = [2, 0, 0, 0, 0, gateway[1]];
    let mut frame =
        [&[0xff; 6][..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &mac, &gateway].concat();
    frame.extend([0xff; 6]);
    frame.extend(worker);
    frame.resize(60, 0);
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 0, 0, 60, 60] {
        file.extend(word.to_le_bytes());
    }
    file.extend(frame);
    file
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a node that cannot start: its exit code and what it said.
fn fail(config: &PathBuf) -> (Option<i32>, String) {
    let output = Command::new(WEIR).args(["run", "--config"]).arg(config).output().unwrap();
    assert_eq!(text(&output.stdout), "");
    (output.status.code(), text(&output.stderr))
}

fn ready_node(lab: &mut Lab, name: &str) {
    let access = lab.gateway("net_pcap0", [10, 1, 0, 2], [10, 1, 0, 1]);
    let internet = lab.gateway("net_pcap1", [10, 2, 0, 2], [10, 2, 0, 1]);
    let config = lab.configure(name, &access, &internet, "");
    lab.start(&config);
}

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
        let said = text(&alone.stderr);
        assert!(
            said.starts_with("weir: this node is in no cluster: it announces no routes"),
            "{said}"
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
fn check_tells_valid_from_wrong_from_absent() {
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
    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"));
    let check = |names: &[&str]| {
        let files = names.iter().map(|name| examples.join(name));
        Command::new(WEIR).arg("check").args(files).output().unwrap()
    };
    let valid = check(&["cluster.toml", "node-1.toml", "node-2.toml", "node-3.toml"]);
    let said = text(&valid.stdout);
    assert_eq!(valid.status.code(), Some(0), "{said}");
    for line in [
        "shards 1..=256\nshard 100001\n",
        "public addresses: 4128, for 65664 homes at once",
        "reserve lanes: 1 of 8, whose ports are those of 516 addresses",
        "routes: 257 on the access switch, 257 on the internet switch",
        "cluster.toml: valid; cluster: edge, shards: 257, warnings: 0",
        "node-3.toml: worker 1: about 86 shards, copies included; 1,000,000 flows: ",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
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
    let said = text(&then.stdout);
    assert!(said.contains("subscriber 10.200.0.1"), "{said}");
    assert!(said.contains("until  2026-03-01T13:00:00.000Z"), "{said}");
    let later = who("2026-03-01T14:00:00Z");
    assert_eq!(later.status.code(), Some(1));
    assert!(text(&later.stdout).contains("nobody held 203.0.113.5:1100"));
    let beyond = who("2026-03-01T16:00:00Z");
    assert_eq!(beyond.status.code(), Some(3));
    let said = text(&beyond.stdout);
    assert!(said.contains("the logs cannot say") && said.contains("the log of n1 ends"), "{said}");
    for wrong in
        [["203.0.113.5:1100", "--log", "/missing/b.jsonl"], ["203.0.113.5:x", "--log", &log]]
    {
        let refused = Command::new(WEIR).arg("where").args(wrong).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
}
