//! A node: weir under a supervisor, and BIRD beside it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::ipv6;
use super::supervisor::Supervised;
use crate::bird::{Bird, packaged, with_settings};
use crate::condition::wait_for;
use crate::held_thread::hold_thread;
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::process::Finished;
use crate::steering::{Network, with_bfd};
use crate::weir;

const SESSION_DEADLINE: Duration = Duration::from_secs(30);
/// Time limit for a node to print `ready`: it makes its tables first, which may be large.
const READY_DEADLINE: Duration = Duration::from_secs(180);
/// Time limit for a node to register once etcd answers.
const REGISTERED_DEADLINE: Duration = Duration::from_secs(120);
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// A node of the cluster.
#[derive(Debug)]
pub struct ClusterNode {
    /// Its number, from 1.
    pub number: u8,
    namespace: Namespace,
    /// The weir process, restarted when it ends.
    pub weir: Supervised,
    /// BIRD beside it. None: the routes are static.
    pub bird: Option<Bird>,
    has_ipv6: bool,
    socket: PathBuf,
    next: Arc<Mutex<NextStart>>,
}

/// The binary that the next start of a node runs, and the destination of its log.
#[derive(Debug)]
struct NextStart {
    binary: PathBuf,
    /// The node speaks the replication protocol up to its earlier version.
    is_earlier: bool,
    unread_log: Option<UnreadLog>,
}

/// A full pipe without a reader.
#[derive(Debug)]
struct UnreadLog {
    path: PathBuf,
    /// Holds the pipe open: a writer blocks until there is room, instead of getting an error
    /// because no reader exists.
    _pipe: File,
}

impl UnreadLog {
    fn create(path: PathBuf) -> Result<Self> {
        if !path.exists() {
            mkfifo(&path, Mode::S_IRWXU)?;
        }
        let mut options = File::options();
        let options = options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let mut pipe = options.open(&path)?;
        for piece in [&[b'x'; 4096][..], b"x"] {
            let full = loop {
                if let Err(error) = pipe.write_all(piece) {
                    break error;
                }
            };
            if full.kind() != ErrorKind::WouldBlock {
                return Err(full).with_context(|| path.display().to_string());
            }
        }
        Ok(Self { path, _pipe: pipe })
    }
}

impl ClusterNode {
    /// Starts weir with its own configuration file. With an interval of BFD it also runs BIRD, with
    /// the sessions for IPv6 if `has_ipv6`.
    pub fn start(
        lab: &Lab,
        namespace: &Namespace,
        number: u8,
        file: &str,
        bfd: Option<Duration>,
        has_ipv6: bool,
    ) -> Result<Self> {
        let bird = |interval| start_bird(lab, namespace, number, interval, has_ipv6);
        let bird = bfd.map(bird).transpose()?;
        let config = lab.directory().join(format!("node{number}.toml"));
        fs::write(&config, file)?;
        let next = NextStart { binary: weir::node_binary()?, is_earlier: false, unread_log: None };
        let next = Arc::new(Mutex::new(next));
        let started = Arc::clone(&next);
        let (inside, state) = (namespace.clone(), lab.directory().to_owned());
        let weir = Supervised::start(lab, &format!("node{number}"), move || {
            // A worker normally has a core to itself; here it shares one, and other processes on it
            // must not stall the worker.
            let mut command = inside.command("nice");
            command.args(["-n", "-10"]);
            lock(&started).add_to(&mut command, &config);
            command.env("STATE_DIRECTORY", &state);
            command
        })?;
        let socket = socket(lab.directory(), number);
        let namespace = namespace.clone();
        Ok(Self { number, namespace, weir, bird, has_ipv6, socket, next })
    }

    /// Its name in the cluster.
    pub fn name(&self) -> String {
        format!("node{}", self.number)
    }

    /// Sets whether the node speaks the replication protocol only up to its earlier version, from
    /// its next start on.
    pub fn set_earlier(&self, is_earlier: bool) {
        lock(&self.next).is_earlier = is_earlier;
    }

    /// From the next start on, the node writes its log to a full pipe that has no reader.
    pub fn leave_log_unread(&self) -> Result<()> {
        let pipe = UnreadLog::create(self.socket.with_extension("log.fifo"))?;
        lock(&self.next).unread_log = Some(pipe);
        Ok(())
    }

    /// From the next start on, the node writes its log to a file again.
    pub fn read_log(&self) {
        lock(&self.next).unread_log = None;
    }

    /// Stops the thread of the node's worker for `time`. Returns whether the process ended
    /// meanwhile.
    pub fn hold_worker(&self, time: Duration) -> Result<bool> {
        hold_thread(self.weir.process()?.id(), "weir-worker-0", time)
    }

    /// Waits until weir has reported that it is ready, in a start after the first `starts`.
    pub fn wait_ready(&self, starts: u32) -> Result<()> {
        self.weir.wait_line(starts, "ready", READY_DEADLINE)
    }

    /// Waits until BIRD has its sessions: one with each switch, and one of IPv6 with the internet
    /// switch.
    pub fn wait_sessions(&self) -> Result<()> {
        let Some(bird) = &self.bird else { return Ok(()) };
        let wanted = if self.has_ipv6 { 3 } else { 2 };
        let mut last = String::new();
        let all = wait_for(&format!("{wanted} BGP sessions"), SESSION_DEADLINE, || {
            last = bird.ask("show protocols").ok()?;
            (last.matches("Established").count() == wanted).then_some(())
        });
        all.with_context(|| last)
    }

    /// Waits until the node is registered in etcd.
    pub fn wait_registered(&self) -> Result<()> {
        wait_for("a node that takes part", REGISTERED_DEADLINE, || {
            let member = self.get("/member").ok()?;
            (member["is_registered"].as_bool() == Some(true)).then_some(())
        })
        .with_context(|| self.name())
    }

    /// Returns the number of shards for which the node reports the primary role; None if it does
    /// not answer.
    pub fn primaries(&self) -> Option<usize> {
        let member = self.get("/member").ok()?;
        let shards = member["shards"].as_array()?;
        Some(shards.iter().filter(|shard| shard["role"].as_str() == Some("primary")).count())
    }

    /// Runs `weir <args>` against this node's admin socket.
    pub fn cli(&self, args: &[&str]) -> Result<Finished> {
        let socket = self.socket.to_string_lossy();
        let args = [args, &["--socket", &socket]].concat();
        self.namespace.run(COMMAND_DEADLINE, &weir::binary()?.to_string_lossy(), &args)
    }

    /// Returns the answer of the node's admin socket for a path.
    pub fn get(&self, path: &str) -> Result<serde_json::Value> {
        let (socket, url) = (self.socket.to_string_lossy(), format!("http://node{path}"));
        let args = ["-sS", "--fail", "--unix-socket", &socket, &url];
        let output = self.namespace.run(COMMAND_DEADLINE, "curl", &args)?.success()?.stdout;
        serde_json::from_str(&output).with_context(|| output.clone())
    }

    /// Returns the text of the node's `/metrics`.
    pub fn metrics(&self) -> Result<String> {
        Ok(self.cli(&["metrics"])?.success()?.stdout)
    }

    /// Returns a command line that an operator can paste.
    pub fn command_line(&self, words: &str) -> Result<String> {
        Ok(format!("{} {words} --socket {}", weir::binary()?.display(), self.socket.display()))
    }
}

impl NextStart {
    fn add_to(&self, command: &mut Command, config: &Path) {
        if self.is_earlier {
            command.env("WEIR_TEST_VERSION_MAX", "2");
        }
        match &self.unread_log {
            None => command.arg(&self.binary).args(["run", "--config"]).arg(config),
            Some(log) => {
                command.args(["sh", "-c", "exec \"$0\" run --config \"$1\" 2> \"$2\""]);
                command.arg(&self.binary).arg(config).arg(&log.path)
            }
        };
    }
}

fn lock(next: &Mutex<NextStart>) -> MutexGuard<'_, NextStart> {
    next.lock().unwrap_or_else(PoisonError::into_inner)
}

fn socket(directory: &Path, number: u8) -> PathBuf {
    directory.join(format!("node{number}.sock"))
}

fn start_bird(
    lab: &Lab,
    namespace: &Namespace,
    number: u8,
    interval: Duration,
    has_ipv6: bool,
) -> Result<Bird> {
    let [(access, access_switch), (internet, internet_switch)] =
        [Network::Access, Network::Internet]
            .map(|side| (side.address(number).to_string(), side.address(254).to_string()));
    let settings = [
        ("ROUTER_ID", &*access),
        ("ACCESS_ADDRESS", &access),
        ("ACCESS_SWITCH", &access_switch),
        ("INTERNET_ADDRESS", &internet),
        ("INTERNET_SWITCH", &internet_switch),
    ];
    let mut config = with_settings(&packaged("bird/weir.conf")?, &settings)?;
    if has_ipv6 {
        config += &ipv6::node_bird(number)?;
    }
    let interval = format!("interval {} ms;", interval.as_millis());
    let config = with_bfd(&config, "interval 50 ms;", &interval)?;
    Bird::start(lab, namespace, &format!("bird{number}"), &config)
}
