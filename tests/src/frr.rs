//! FRR's daemons as a switch, with the configuration that weir ships.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::Result;

use crate::condition::wait_for;
use crate::lab::Lab;
use crate::namespace::Namespace;

/// Debian puts the daemons here.
const DAEMONS: &str = "/usr/lib/frr";
const START_DEADLINE: Duration = Duration::from_secs(20);

/// Starts zebra, bfdd and bgpd in the namespace with one configuration for all; each takes its part of it.
pub fn start(lab: &Lab, namespace: &Namespace, name: &str, config: &str) -> Result<()> {
    let directory = lab.directory().join(name);
    fs::create_dir_all(&directory)?;
    // The daemons give up root for a user of their own, who has to make sockets here.
    fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
    let config_path = directory.join("frr.conf");
    fs::write(&config_path, config)?;
    let zebra_socket = directory.join("zserv.api");
    for daemon in ["zebra", "bfdd", "bgpd"] {
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
