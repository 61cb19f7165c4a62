//! A node's files and process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use super::program::{text, wait_for};

pub(crate) const NODE: &str = env!("CARGO_BIN_EXE_weir-node");

/// Returns a command of `weir`, which another package builds beside the node's program.
pub(crate) fn weir() -> Command {
    let program = Path::new(NODE).with_file_name("weir");
    assert!(program.is_file(), "no {}: `cargo build -p weir` first", program.display());
    Command::new(program)
}

/// A folder with everything one node needs; the node is killed with it.
pub(crate) struct Lab {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) node: Option<Child>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), node: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a configuration on these two devices.
    pub(crate) fn configure(
        &self,
        name: &str,
        access: &str,
        internet: &str,
        node_keys: &str,
    ) -> PathBuf {
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

    /// Writes a configuration with tables for more than a million flows and the default kind of
    /// pages.
    pub(crate) fn configure_large(&self, name: &str) -> PathBuf {
        let file = self.configure(name, "net_null0", "net_null1", "");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replace("hugepages = \"never\"", "hugepages = \"auto\"");
        fs::write(&file, text.replace("flows_max = 10_000", "flows_max = 1_000_001")).unwrap();
        file
    }

    /// Writes a configuration with the largest tables for as many workers as there are core
    /// numbers: more memory than any machine has.
    pub(crate) fn configure_too_much(&self) -> PathBuf {
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

    /// Writes the file of a node of a cluster whose etcd does not run.
    pub(crate) fn configure_member(&self) -> PathBuf {
        let key = self.path("cluster.key");
        fs::write(&key, "1".repeat(64)).unwrap();
        fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let text = format!(
            r#"
            [node]
            name = "test-member-{}"
            admin_socket = "{}"
            hugepages = "never"

            [cluster]
            name = "north"
            etcd = ["http://127.0.0.1:1"]
            key_file = "{}"

            [[worker]]
            core = 0
            access = {{ device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }}
            internet = {{ device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }}
            "#,
            std::process::id(),
            self.path("n.sock").display(),
            key.display(),
        );
        let file = self.path("member.toml");
        fs::write(&file, text).unwrap();
        file
    }

    /// Returns a pcap device that receives its gateway's ARP answer over and over.
    pub(crate) fn gateway(&self, name: &str, gateway: [u8; 4], worker: [u8; 4]) -> String {
        let (rx, tx) = (self.path(&format!("{name}.rx")), self.path(&format!("{name}.tx")));
        fs::write(&rx, arp_answer(gateway, worker)).unwrap();
        format!("{name},rx_pcap={},tx_pcap={},infinite_rx=1", rx.display(), tx.display())
    }

    /// Starts the node and waits until it reports that it is ready.
    pub(crate) fn start(&mut self, config: &PathBuf) {
        let mut node = Command::new(NODE)
            .args(["run", "--config"])
            .arg(config)
            .env("STATE_DIRECTORY", self.path("state"))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        self.node = Some(node);
        let first = lines.next().unwrap_or_else(|| panic!("no line; log:\n{}", self.log()));
        assert_eq!(first.unwrap(), "ready");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.node.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let node = self.node.as_mut().unwrap();
        wait_for("the node's end", || node.try_wait().unwrap())
    }

    /// Runs a command that asks the node.
    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        weir().args(words).arg("--socket").arg(self.path("n.sock")).output().unwrap()
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

/// Returns a pcap file with one frame: `gateway` answers `worker`'s ARP request.
pub(crate) fn arp_answer(gateway: [u8; 4], worker: [u8; 4]) -> Vec<u8> {
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

/// Runs a node that cannot start; returns its exit code and its stderr.
pub(crate) fn fail(config: &PathBuf) -> (Option<i32>, String) {
    let output = Command::new(NODE).args(["run", "--config"]).arg(config).output().unwrap();
    assert_eq!(text(&output.stdout), "");
    (output.status.code(), text(&output.stderr))
}

pub(crate) fn ready_node(lab: &mut Lab, name: &str) {
    let access = lab.gateway("net_pcap0", [10, 1, 0, 2], [10, 1, 0, 1]);
    let internet = lab.gateway("net_pcap1", [10, 2, 0, 2], [10, 2, 0, 1]);
    let config = lab.configure(name, &access, &internet, "");
    lab.start(&config);
}
