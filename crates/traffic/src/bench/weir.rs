//! The device under test: `weir run` on one core, with the shards of the scenario.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::metrics::{self, Busy};
use super::process::Process;
use super::{BenchError, Place, START_PATIENCE};
use crate::scenario::{SUBSCRIBERS_PER_SHARD, Scenario};

/// Ports of a home: one block of 256 while it has no more flows than that. A multiple of the port block.
fn ports_per_subscriber(scenario: &Scenario) -> u32 {
    // Ports are drawn at random from the open blocks: a home gets twice what it needs.
    (2 * scenario.flows_per_subscriber()).next_multiple_of(256)
}

#[derive(Debug)]
pub(super) struct Weir {
    process: Process,
    admin_socket: PathBuf,
}

impl Weir {
    pub(super) fn start(place: &Place<'_>, scenario: &Scenario) -> Result<Self, BenchError> {
        let admin_socket = place.folder.join("admin.sock");
        let config = place.folder.join("weir.toml");
        fs::write(&config, place.weir_config(scenario))
            .map_err(|source| BenchError::io(config.display().to_string(), source))?;
        let mut command = Command::new(&place.plan.weir);
        command.arg("run").arg("--config").arg(&config);
        let mut process = Process::start("weir", command, place.folder.join("weir.log"))?;
        let sockets = [place.access_socket(), place.internet_socket()];
        process.wait_until(place.plan, START_PATIENCE, |_| {
            sockets.iter().all(|socket| socket.exists())
                && metrics::get(&admin_socket, "/metrics").is_ok()
        })?;
        Ok(Weir { process, admin_socket })
    }

    pub(super) fn busy(&self) -> Result<Busy, BenchError> {
        let metrics = metrics::get(&self.admin_socket, "/metrics")
            .map_err(|source| BenchError::io("weir's metrics", source))?;
        Busy::parse(&metrics).ok_or_else(|| self.process.silent("how many cycles a packet took"))
    }
}

impl Place<'_> {
    /// The configuration that serves the scenario's homes.
    fn weir_config(&self, scenario: &Scenario) -> String {
        let mut text = format!(
            r#"[node]
name = "bench"
poll = "busy"
control_cores = [{control}]
admin_socket = "{folder}/admin.sock"

[[worker]]
core = {core}
access   = {{ device = "{access}", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }}
internet = {{ device = "{internet}", address = "10.2.0.1/24", gateway = "10.2.0.2" }}

[access]
mode = "gre"
subscribers = ["10.128.0.0/9"]

[nat]
ports_per_subscriber = {ports}
flows_max = {flows_max}
"#,
            control = self.plan.generator_core,
            folder = self.folder.display(),
            core = self.plan.device_core,
            access = self.server(0, &self.access_socket()),
            internet = self.server(1, &self.internet_socket()),
            ports = ports_per_subscriber(scenario),
            flows_max = flows_max(scenario),
        );
        for shard in 0..scenario.shards() {
            let (prefix, length) = scenario.public_prefix(shard);
            let _ = write!(
                text,
                "\n[[shard]]\nid = {}\nendpoint = \"{}\"\npublic = [\"{prefix}/{length}\"]\nsubscribers_max = {SUBSCRIBERS_PER_SHARD}\n",
                shard + 1,
                scenario.tunnel_endpoint(shard),
            );
        }
        text
    }
}

/// A quarter more than is used, so that the table is full but not at its limit.
fn flows_max(scenario: &Scenario) -> u32 {
    (scenario.flows() / 4 * 5).max(65_536)
}
