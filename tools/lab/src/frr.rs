//! FRR's daemons as a switch, with the configuration that weir ships.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::condition::wait_for;
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::process::run;

/// Debian installs the daemons here.
const DAEMONS: &str = "/usr/lib/frr";
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
const START_DEADLINE: Duration = Duration::from_secs(20);

fn directory(lab: &Lab, name: &str) -> PathBuf {
    lab.directory().join(name)
}

/// Returns the JSON that the daemons of `name` print to a question of vtysh, which must end in
/// `json`.
pub fn ask(lab: &Lab, name: &str, question: &str) -> Result<serde_json::Value> {
    let mut command = Command::new("vtysh");
    command.arg("--vty_socket").arg(directory(lab, name)).args(["-c", question]);
    let answer = run(&mut command, ANSWER_DEADLINE)?.success()?.stdout;
    serde_json::from_str(&answer).with_context(|| format!("{question}: {answer}"))
}

/// Starts zebra, staticd, bfdd and bgpd in the namespace with one configuration for all; each reads
/// its part of it.
pub fn start(lab: &Lab, namespace: &Namespace, name: &str, config: &str) -> Result<()> {
    let directory = directory(lab, name);
    fs::create_dir_all(&directory)?;
    // The daemons give up root for a user of their own, which must be able to make sockets here.
    fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
    let config_path = directory.join("frr.conf");
    fs::write(&config_path, config)?;
    let zebra_socket = directory.join("zserv.api");
    for daemon in ["zebra", "staticd", "bfdd", "bgpd"] {
        let mut command = namespace.command(&format!("{DAEMONS}/{daemon}"));
        command.arg("--config_file").arg(&config_path);
        command.arg("--pid_file").arg(directory.join(format!("{daemon}.pid")));
        command.arg("--socket").arg(&zebra_socket);
        command.arg("--vty_socket").arg(&directory);
        // No TCP port for its command line; errors to standard output.
        command.args(["--vty_port", "0", "--log", "stdout", "--log-level", "warnings"]);
        if daemon == "bfdd" {
            command.arg("--bfdctl").arg(directory.join("bfdd.sock"));
        }
        lab.start(&format!("{name}-{daemon}"), &mut command)?;
        if daemon == "zebra" {
            wait_for("socket of zebra", START_DEADLINE, || zebra_socket.exists().then_some(()))?;
        }
    }
    Ok(())
}
