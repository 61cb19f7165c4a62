//! A node: weir under a supervisor, and BIRD beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

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
/// Time a node has to say `ready`: it makes its tables first, which may be large.
const READY_DEADLINE: Duration = Duration::from_secs(180);
const COMMAND_DEADLINE: Duration = Duration::from_secs(20);

/// A node of the cluster.
#[derive(Debug)]
pub struct ClusterNode {
    /// Its number, from 1.
    pub number: u8,
    namespace: Namespace,
    /// weir, started again when it ends.
    pub weir: Supervised,
    /// None: its routes are static.
    pub bird: Option<Bird>,
    socket: PathBuf,
    /// What its next start runs.
    binary: Arc<Mutex<PathBuf>>,
}

impl ClusterNode {
    /// Starts weir with a file of its own. With an interval of BFD it also runs BIRD.
    pub fn start(
        lab: &Lab,
        namespace: &Namespace,
        number: u8,
        file: &str,
        bfd: Option<Duration>,
    ) -> Result<Self> {
        let bird = bfd.map(|interval| start_bird(lab, namespace, number, interval)).transpose()?;
        let config = lab.directory().join(format!("node{number}.toml"));
        fs::write(&config, file)?;
        let binary = Arc::new(Mutex::new(weir::binary()?));
        let next_binary = Arc::clone(&binary);
        let (inside, state) = (namespace.clone(), lab.directory().to_owned());
        let weir = Supervised::start(lab, &format!("node{number}"), move || {
            // A worker has a core for itself; here it shares one, and must not stand still for what others do on it.
            let mut command = inside.command("nice");
            let binary = next_binary.lock().unwrap_or_else(PoisonError::into_inner);
            command.args(["-n", "-10"]).arg(&*binary).args(["run", "--config"]).arg(&config);
            command.env("STATE_DIRECTORY", &state);
            command
        })?;
        let socket = socket(lab.directory(), number);
        Ok(Self { number, namespace: namespace.clone(), weir, bird, socket, binary })
    }

    /// Its name in the cluster.
    pub fn name(&self) -> String {
        format!("node{}", self.number)
    }

    /// From its next start on it runs this weir.
    pub fn set_binary(&self, binary: &Path) {
        *self.binary.lock().unwrap_or_else(PoisonError::into_inner) = binary.to_owned();
    }

    /// Holds the thread of its worker for so long; whether the process ended meanwhile.
    pub fn hold_worker(&self, time: Duration) -> Result<bool> {
        hold_thread(self.weir.process()?.id(), "weir-worker-0", time)
    }

    /// Waits until weir has said that it is ready, in a start after the first `starts`.
    pub fn wait_ready(&self, starts: u32) -> Result<()> {
        self.weir.wait_line(starts, "ready", READY_DEADLINE)
    }

    /// Waits until BIRD has its sessions with both switches.
    pub fn wait_sessions(&self) -> Result<()> {
        let Some(bird) = &self.bird else { return Ok(()) };
        let mut last = String::new();
        let both = wait_for("two BGP sessions", SESSION_DEADLINE, || {
            last = bird.ask("show protocols").ok()?;
            (last.matches("Established").count() == 2).then_some(())
        });
        both.with_context(|| last)
    }

    /// Runs `weir <args>` against this node's admin socket.
    pub fn cli(&self, args: &[&str]) -> Result<Finished> {
        let socket = self.socket.to_string_lossy();
        let (command, arguments) = args.split_at(1);
        let args = [command, &["--socket", &socket], arguments].concat();
        self.namespace.run(COMMAND_DEADLINE, &weir::binary()?.to_string_lossy(), &args)
    }

    /// What its `/metrics` says.
    pub fn metrics(&self) -> Result<String> {
        Ok(self.cli(&["metrics"])?.success()?.stdout)
    }

    /// A command line an operator can paste.
    pub fn command_line(&self, words: &str) -> Result<String> {
        Ok(format!("{} {words} --socket {}", weir::binary()?.display(), self.socket.display()))
    }
}

fn socket(directory: &Path, number: u8) -> PathBuf {
    directory.join(format!("node{number}.sock"))
}

fn start_bird(lab: &Lab, namespace: &Namespace, number: u8, interval: Duration) -> Result<Bird> {
    let [access, internet] =
        [Network::Access, Network::Internet].map(|side| side.address(number).to_string());
    let settings =
        [("ROUTER_ID", &*access), ("ACCESS_ADDRESS", &access), ("INTERNET_ADDRESS", &internet)];
    let config = with_settings(&packaged("bird/weir.conf")?, &settings)?;
    let interval = format!("interval {} ms;", interval.as_millis());
    let config = with_bfd(&config, "interval 50 ms;", &interval)?;
    Bird::start(lab, namespace, &format!("bird{number}"), &config)
}
