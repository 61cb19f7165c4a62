//! An etcd daemon of a test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) struct Etcd {
    directory: TempDir,
    /// Loopback address used by this process only: its ports stay free while the daemon is down.
    address: String,
    /// Port for clients; the next one is for peers.
    port: u32,
    scheme: &'static str,
    arguments: Vec<String>,
    /// Options of `etcdctl`.
    control: Vec<String>,
    data: PathBuf,
    child: Option<Child>,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let mut etcd = Self::new("http");
        etcd.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        etcd.run();
        etcd
    }

    /// Creates a daemon without starting it, so that its directory can be prepared.
    pub(crate) fn new(scheme: &'static str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let process = std::process::id();
        let [_, high, middle, low] = process.to_be_bytes();
        let address = format!("127.{}.{middle}.{low}", 64 + high % 64);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = TempDir::with_prefix_in("weir-etcd-", parent).unwrap();
        let data = directory.path().join("data");
        Self {
            directory,
            address,
            port: 2379 + 10 * number,
            scheme,
            arguments: Vec::new(),
            control: Vec::new(),
            data,
            child: None,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// Returns the endpoint for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}:{}", self.scheme, self.address, self.port)
    }

    pub(crate) fn argument(&mut self, name: &str, value: &Path) {
        self.arguments.push(format!("{name}={}", value.display()));
    }

    pub(crate) fn control_option(&mut self, option: String) {
        self.control.push(option);
    }

    /// Starts the daemon, and waits until it answers.
    pub(crate) fn run(&mut self) {
        assert!(self.child.is_none());
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("log"))
            .unwrap();
        let (client, peer) = (self.endpoint(), self.peer());
        // It dies with the test, however the test ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "etcd", "--name", "one", "--data-dir"])
            .arg(&self.data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("one={peer}")]);
        command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
        command.args(&self.arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().expect("setpriv and etcd-server are installed"));
        wait_for("answer of etcd", || self.try_control(&["endpoint", "health"]).is_ok());
    }

    fn peer(&self) -> String {
        format!("http://{}:{}", self.address, self.port + 1)
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().expect("etcd runs").id();
        kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
    }

    /// Kills the daemon with `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("etcd runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Runs `etcdctl` against this daemon. Returns its output.
    pub(crate) fn control(&self, arguments: &[&str]) -> String {
        self.try_control(arguments).unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    fn try_control(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint(), "--command-timeout", "10s"])
            .args(&self.control)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("etcd-client is installed");
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Runs `etcdctl` without the operator's options. Returns etcd's refusal.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint(), "--command-timeout", "10s"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("etcd-client is installed");
        assert!(!output.status.success(), "etcdctl {arguments:?} did it");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Returns the store's current revision.
    pub(crate) fn revision(&self) -> i64 {
        let status = self.control(&["endpoint", "status", "--write-out", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status[0]["Status"]["header"]["revision"].as_i64().unwrap()
    }

    pub(crate) fn back_up(&self) -> PathBuf {
        let file = self.directory.path().join("backup");
        self.control(&["snapshot", "save", file.to_str().unwrap()]);
        file
    }

    /// Kills the daemon and starts it again with the data of a backup.
    pub(crate) fn restore(&mut self, backup: &Path) {
        if self.child.is_some() {
            self.kill();
        }
        self.data = self.directory.path().join("restored");
        let (peer, data) = (self.peer(), self.data.display().to_string());
        self.control(&[
            "snapshot",
            "restore",
            backup.to_str().unwrap(),
            "--name",
            "one",
            "--initial-cluster",
            &format!("one={peer}"),
            "--initial-advertise-peer-urls",
            &peer,
            "--data-dir",
            &data,
        ]);
        self.run();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SIGKILL ends a stopped process too.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            let log = log.unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("etcd said last:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
        }
    }
}

/// Polls until `look` is true.
pub(crate) fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + START_TIMEOUT;
    while !look() {
        assert!(Instant::now() < end, "no {what} within {START_TIMEOUT:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
