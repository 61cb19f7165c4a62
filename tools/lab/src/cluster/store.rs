//! etcd and the controllers, in the management network.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::files::{CLUSTER, ClusterFiles, ETCD};
use super::network::ClusterNetwork;
use super::supervisor::Supervised;
use crate::condition::wait_for;
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::process::Finished;
use crate::weir;

/// Time limit for etcd and the controllers to start.
const START_DEADLINE: Duration = Duration::from_secs(30);
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);
const PEERS: &str = "http://127.0.0.1:2380";

/// etcd with the cluster's configuration in it, and two controllers.
#[derive(Debug)]
pub struct ControlPlane {
    namespace: Namespace,
    directory: PathBuf,
    /// The etcd process.
    pub etcd: Supervised,
    /// The controllers: one leads, the other waits.
    pub controllers: Vec<Supervised>,
}

impl ControlPlane {
    /// Starts etcd, writes the cluster's files and starts the controllers.
    pub fn start(lab: &Lab, network: &ClusterNetwork, files: ClusterFiles) -> Result<Self> {
        let namespace = network.management.clone();
        let data = lab.directory().join("etcd");
        let inside = namespace.clone();
        let etcd = Supervised::start(lab, "etcd", move || {
            let mut command = inside.command("etcd");
            command.args(["--name", "one", "--data-dir"]).arg(&data);
            command.args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]);
            command.args(["--listen-peer-urls", PEERS, "--initial-advertise-peer-urls", PEERS]);
            command.args(["--initial-cluster", &format!("one={PEERS}")]);
            command
        })?;
        let directory = lab.directory().to_owned();
        let key = directory.join("cluster.key");
        fs::write(&key, format!("{}\n", "5a".repeat(32)))?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        let mut control = Self { namespace, directory, etcd, controllers: Vec::new() };
        control.wait_store()?;
        control.apply(files)?;
        for number in 1..=2 {
            let inside = control.namespace.clone();
            let binary = weir::binary()?;
            let controller = Supervised::start(lab, &format!("controller{number}"), move || {
                let mut command = inside.command(&binary.to_string_lossy());
                command.args(["controller", "--cluster", CLUSTER, "--etcd", ETCD]);
                command.args(["--name", &format!("controller{number}")]);
                command
            })?;
            controller.wait_line(0, "running", START_DEADLINE)?;
            control.controllers.push(controller);
        }
        Ok(control)
    }

    /// Applies a new configuration of the cluster.
    pub fn apply(&self, files: ClusterFiles) -> Result<()> {
        let file = self.directory.join("cluster.toml");
        fs::write(&file, files.cluster())?;
        self.weir(&["apply", &file.to_string_lossy()])?.success()?;
        Ok(())
    }

    /// Runs `weir <args>` as an operator at the management network.
    pub fn weir(&self, args: &[&str]) -> Result<Finished> {
        let (command, arguments) = args.split_first().context("no command")?;
        let address = ["--cluster", CLUSTER, "--etcd", ETCD];
        let args = [&[*command][..], &address[..], arguments].concat();
        self.namespace.run(COMMAND_DEADLINE, &weir::binary()?.to_string_lossy(), &args)
    }

    /// Returns a command line that an operator can paste.
    pub fn command_line(&self, words: &str) -> Result<String> {
        let (binary, name) = (weir::binary()?, self.namespace.name());
        Ok(format!(
            "ip netns exec {name} {} {words} --cluster {CLUSTER} --etcd {ETCD}",
            binary.display()
        ))
    }

    /// Kills etcd without a restart.
    pub fn kill_store(&self) -> Result<()> {
        self.etcd.end(Signal::SIGKILL)
    }

    /// Starts etcd again with its old data.
    pub fn restart_store(&self) -> Result<()> {
        self.etcd.resume()?;
        self.wait_store()
    }

    fn wait_store(&self) -> Result<()> {
        wait_for("answer of etcd", START_DEADLINE, || {
            let args = ["--endpoints", ETCD, "endpoint", "health"];
            let output = self.namespace.run(COMMAND_DEADLINE, "etcdctl", &args).ok()?;
            output.status.success().then_some(())
        })
    }
}
