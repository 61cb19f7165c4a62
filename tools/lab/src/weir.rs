//! The weir under test: its process, its commands and their output.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::process::{Finished, Process};
use crate::weir_config::METRICS_PORT;

/// Time limit for weir to print `ready`: tables, ports, ARP.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Time limit for a command to answer.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// Returns the path of `weir`, commands and controller: `$WEIR_BIN`, or the one built beside this
/// program.
pub fn binary() -> Result<PathBuf> {
    built("weir", "WEIR_BIN")
}

/// Returns the path of `weir-node`: `$WEIR_NODE_BIN`, or the one built beside this program.
pub fn node_binary() -> Result<PathBuf> {
    built("weir-node", "WEIR_NODE_BIN")
}

/// Returns the path of `weir-lab`, which has the gateway of a home: `$WEIR_LAB_BIN`, or the one
/// built beside this program.
pub fn lab_binary() -> Result<PathBuf> {
    built("weir-lab", "WEIR_LAB_BIN")
}

fn built(name: &str, variable: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(PathBuf::from(path));
    }
    let program = std::env::current_exe()?;
    // target/<profile>/demo or target/<profile>/deps/<test>.
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("no program {name}: `cargo build -p {name}` first, or set {variable}")
        })
}

/// A weir node in its namespace.
#[derive(Debug)]
pub struct Weir {
    namespace: Namespace,
    node: PathBuf,
    commands: PathBuf,
    directory: PathBuf,
    process: Process,
}

impl Weir {
    /// Writes the configuration and starts `weir-node run`; does not wait.
    pub fn start(lab: &Lab, namespace: &Namespace, config: &str) -> Result<Self> {
        let (node, commands) = (node_binary()?, binary()?);
        let directory = lab.directory().to_owned();
        fs::write(directory.join("weir.toml"), config)?;
        let process = start_process(lab, namespace, &node, &directory)?;
        Ok(Self { namespace: namespace.clone(), node, commands, directory, process })
    }

    /// Waits for the line that reports that every port forwards.
    pub fn wait_ready(&self) -> Result<()> {
        self.process.wait_line("ready", READY_DEADLINE)?;
        Ok(())
    }

    /// Starts weir again after its end.
    pub fn restart(&mut self, lab: &Lab) -> Result<()> {
        self.process = start_process(lab, &self.namespace, &self.node, &self.directory)?;
        self.wait_ready()
    }

    /// Starts weir again after its end, with `log` as its standard error.
    pub fn restart_with_log(&mut self, lab: &Lab, log: &Path) -> Result<()> {
        let mut command = self.namespace.command("sh");
        command.args(["-c", "exec \"$0\" run --config \"$1\" 2> \"$2\""]);
        command.arg(&self.node).arg(self.config_path()).arg(log);
        self.process = lab.start("weir", &mut command)?;
        self.wait_ready()
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the path of the configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.directory.join("weir.toml")
    }

    /// Returns the path of the block log.
    pub fn block_log(&self) -> PathBuf {
        self.directory.join("blocks.jsonl")
    }

    /// Returns a command line that an operator can paste: `weir <words>` against this node.
    pub fn command_line(&self, words: &str) -> String {
        format!("{} {words} --socket {}", self.commands.display(), self.socket().display())
    }

    /// Runs `weir <args>` against this node's admin socket.
    pub fn cli(&self, args: &[&str]) -> Result<Finished> {
        let socket = self.socket();
        let socket = socket.to_string_lossy();
        self.offline(&[args, &["--socket", &socket]].concat())
    }

    /// Starts a second node with the same configuration, which should refuse; returns its output.
    pub fn second(&self) -> Result<Finished> {
        let config = self.config_path();
        let args = ["run", "--config", &config.to_string_lossy()];
        self.namespace.run(COMMAND_DEADLINE, &self.node.to_string_lossy(), &args)
    }

    /// Runs `weir <args>` without a socket: for commands that ask no node.
    pub fn offline(&self, args: &[&str]) -> Result<Finished> {
        self.namespace.run(COMMAND_DEADLINE, &self.commands.to_string_lossy(), args)
    }

    /// Returns the output of a command with `--json`: one value, or a list with a value per line.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let finished = self.cli(&[args, &["--json"]].concat())?.success()?;
        parse_json(&finished.stdout).with_context(|| format!("weir {}", args.join(" ")))
    }

    /// Returns the number of packets dropped for `reason`, all workers together.
    pub fn drops(&self, reason: &str) -> Result<u64> {
        let counts = self.json(&["drops"])?;
        let counts = counts.as_array().context("drops: no list")?;
        Ok(counts
            .iter()
            .filter(|count| count["reason"] == reason)
            .filter_map(|count| count["packets_total"].as_u64())
            .sum())
    }

    /// Returns the sessions; more arguments select some of them.
    pub fn sessions(&self, args: &[&str]) -> Result<Vec<Value>> {
        match self.json(&[&["sessions"], args].concat())? {
            Value::Array(sessions) => Ok(sessions),
            Value::Null => Ok(Vec::new()),
            one => Ok(vec![one]),
        }
    }

    /// Returns the whole `/metrics` page.
    pub fn metrics(&self) -> Result<String> {
        let url = format!("http://127.0.0.1:{METRICS_PORT}/metrics");
        let finished =
            self.namespace.run(COMMAND_DEADLINE, "curl", &["-sS", "--fail", &url])?.success()?;
        Ok(finished.stdout)
    }

    /// Starts a command of this node in the background (a capture).
    pub fn background(&self, lab: &Lab, name: &str, args: &[&str]) -> Result<Process> {
        let mut command = self.namespace.command(&self.commands.to_string_lossy());
        command.args(args).arg("--socket").arg(self.socket());
        lab.start(name, &mut command)
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("weir.sock")
    }
}

fn start_process(
    lab: &Lab,
    namespace: &Namespace,
    node: &Path,
    directory: &Path,
) -> Result<Process> {
    ensure!(node.is_file(), "no program at {}", node.display());
    let mut command = namespace.command(&node.to_string_lossy());
    command.args(["run", "--config"]);
    command.arg(directory.join("weir.toml")).env("STATE_DIRECTORY", directory);
    lab.start("weir", &mut command)
}

fn parse_json(text: &str) -> Result<Value> {
    if text.trim().is_empty() {
        return Ok(Value::Array(Vec::new()));
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    lines.map(Value::Array).with_context(|| format!("not JSON: {text}"))
}
