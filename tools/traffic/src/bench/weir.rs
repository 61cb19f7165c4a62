//! The device under test: `weir-node run` with the shards of the load, one core per worker.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::address_plan::{self, DEVICE, GATEWAY};
use super::context::{BenchContext, EAL_OF_DEVICE};
use super::load::{Access, Load};
use super::metrics::{self, Reading};
use super::process::Process;
use super::{BenchError, BenchPlan};
use crate::scenario::HOME_LENGTH6;

/// Time limits for weir to be ready: a fixed part, one for each million flows of its tables, whose
/// memory is touched at start, and one for each 10,000 rules.
const START_PATIENCE: Duration = Duration::from_secs(30);
const START_PATIENCE_PER_MILLION: Duration = Duration::from_secs(2);
const START_PATIENCE_PER_10_K_RULES: Duration = Duration::from_secs(3);

/// MTU of the internet side.
const MTU: usize = 1500;

/// Its file, beside its socket.
const CONFIG: &str = "weir.toml";
/// Time limit of a change of the settings: the thread that compiles them has a small share of the
/// generator's core.
const RELOAD_PATIENCE: Duration = Duration::from_secs(60);

/// Deviations of a round from the default settings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// `flows_max`, if it is not that of the load.
    pub(super) flows_max: Option<u32>,
    /// Idle time of all UDP sessions; there is no quarantine of ports then.
    pub(super) idle_timeout_sec: Option<u64>,
    /// Collector that receives records of begun and ended mappings, over IPFIX.
    pub(super) collector: Option<SocketAddr>,
    pub(super) build: Build,
}

/// The binary that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Build {
    #[default]
    This,
    /// The build that this one is compared with.
    Other,
}

#[derive(Debug)]
pub(super) struct Weir {
    process: Process,
    admin_socket: PathBuf,
    metrics: SocketAddr,
}

impl Weir {
    pub(super) fn start(
        context: &BenchContext<'_>,
        load: &Load,
        settings: Settings,
    ) -> Result<Self, BenchError> {
        let admin_socket = context.folder.join("admin.sock");
        let config = context.folder.join(CONFIG);
        let metrics =
            free_address().map_err(|source| BenchError::io("a port for weir's metrics", source))?;
        fs::write(&config, context.weir_config(load, settings, metrics)?)
            .map_err(|source| BenchError::io(config.display().to_string(), source))?;
        let mut command = Command::new(context.plan.binary(settings.build));
        command.arg("run").arg("--config").arg(&config);
        command.env("STATE_DIRECTORY", context.folder);
        let mut process = Process::start("weir", command, context.folder.join("weir.log"))?;
        let patience = START_PATIENCE
            + START_PATIENCE_PER_MILLION * (load.flows_max() / 1_000_000)
            + START_PATIENCE_PER_10_K_RULES * (load.rules.count / 10_000);
        // weir also answers while it starts, but shows no workers then.
        process.wait_until(context.plan, patience, |_| {
            metrics::get(&admin_socket, "/metrics")
                .is_ok_and(|text| Reading::parse(&text).is_some())
        })?;
        Ok(Weir { process, admin_socket, metrics })
    }

    pub(super) fn admin_socket(&self) -> &Path {
        &self.admin_socket
    }

    /// Returns the address where it serves its metrics over TCP.
    pub(super) fn metrics_address(&self) -> SocketAddr {
        self.metrics
    }

    pub(super) fn reading(&self) -> Result<Reading, BenchError> {
        let metrics = metrics::get(&self.admin_socket, "/metrics")
            .map_err(|source| BenchError::io("weir's metrics", source))?;
        Reading::parse(&metrics).ok_or_else(|| self.process.silent("how many cycles a packet took"))
    }

    /// Ends all flows of a home.
    pub(super) fn flush(&self, home: IpAddr) -> Result<(), BenchError> {
        let path = format!("/subscriber/{home}/flush");
        metrics::post(&self.admin_socket, &path)
            .map(drop)
            .map_err(|source| BenchError::io("weir's flush", source))
    }

    /// Changes the action of a rule in its file, and returns when all workers have taken that.
    pub(super) fn change_rule(&self, rule: u32) -> Result<(), BenchError> {
        let failed = |source| BenchError::io("the change of a rule", source);
        let config = self.admin_socket.with_file_name(CONFIG);
        let text = fs::read_to_string(&config).map_err(failed)?;
        let (before, after) = text
            .split_once(&format!("name = \"r{rule}\"\n"))
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let after = after.replacen("action = \"drop\"", "action = \"reject\"", 1);
        fs::write(&config, format!("{before}name = \"r{rule}\"\n{after}")).map_err(failed)?;
        let answer = metrics::post_patiently(&self.admin_socket, "/reload", RELOAD_PATIENCE);
        let answer: Value = serde_json::from_str(&answer.map_err(failed)?)
            .map_err(|error| failed(io::Error::other(error)))?;
        let count = |key: &str| answer[key].as_array().map_or(0, Vec::len);
        match answer["outcome"] == "applied" && (count("changes"), count("lagging")) == (1, 0) {
            true => Ok(()),
            false => Err(failed(io::Error::other(answer.to_string()))),
        }
    }

    /// Returns weir's own end as the cause of an error around it, if it has ended; otherwise the
    /// error.
    pub(super) fn explain(&mut self, error: BenchError) -> BenchError {
        self.process.early_end().unwrap_or(error)
    }
}

impl BenchPlan {
    fn binary(&self, build: Build) -> &Path {
        match (build, &self.against) {
            (Build::Other, Some(other)) => other,
            _ => &self.node,
        }
    }
}

impl BenchContext<'_> {
    /// Returns the configuration that serves the homes of the load.
    fn weir_config(
        &self,
        load: &Load,
        settings: Settings,
        metrics: SocketAddr,
    ) -> Result<String, BenchError> {
        let folder = self.folder.display();
        let mut text = format!(
            "[node]\nname = \"bench\"\npoll = \"busy\"\ncontrol_cores = [{}]\nadmin_socket = \"{folder}/admin.sock\"\n\
             metrics = \"{metrics}\"\n\
             eal = [\"{EAL_OF_DEVICE}\"]\n",
            self.plan.generator_core,
        );
        if let Some(collector) = settings.collector {
            let _ = write!(
                text,
                "session_log = \"mappings\"\n\n[[collector]]\nname = \"bench\"\naddress = \"{collector}\"\n\
                 format = \"ipfix-tcp\"\n"
            );
        }
        for worker in 0..load.workers {
            let _ = write!(
                text,
                "\n[[worker]]\ncore = {}\n{}{}",
                self.plan.device_core_of(worker),
                self.side(load, worker, "access", 1, access_mtu(load)),
                self.side(load, worker, "internet", 2, MTU),
            );
        }
        text.push_str(&access(load));
        let flows_max = settings.flows_max.unwrap_or(load.flows_max());
        let _ = writeln!(text, "\n[nat]\nflows_max = {flows_max}");
        if settings.idle_timeout_sec.is_some() {
            let _ = writeln!(text, "quarantine_sec = 0");
        }
        if load.attacked.is_none() {
            let ports = load.scenario(0)?.ports_per_subscriber();
            // The worker is measured, not the rate limits of homes.
            let _ = writeln!(
                text,
                "ports_per_subscriber = {ports}\n\n[limits]\nflows = {}\nnew_flows_per_sec = 10_000_000\nnew_flows_burst = 65_535\nnew_homes_per_sec = 65_535\nslow_path_packets_per_sec = 100_000_000",
                (4 * load.flows_per_subscriber).max(1024),
            );
        }
        if load.families.has_ipv6() && load.access == Access::Plain {
            let _ = writeln!(text, "\n[ipv6]\nhome_length6 = {HOME_LENGTH6}");
        }
        if let Some(seconds) = settings.idle_timeout_sec {
            let _ = writeln!(text, "\n[timeouts]\nudp_sec = {seconds}\nudp_stream_sec = {seconds}");
        }
        text.push_str(&load.rules.text(&load.scenario(0)?));
        Ok(text + &address_plan::shards(load, |worker| self.plan.device_core_of(worker))?)
    }

    /// Returns the port of a worker on a side, a line.
    fn side(&self, load: &Load, worker: usize, side: &str, network: u16, mtu: usize) -> String {
        let device = self.device_port(load, worker, side);
        let ipv6 = match load.has_ipv6(side) {
            true => format!(
                ", address6 = \"{}/64\", gateways6 = \"{}\"",
                address_plan::link6(network, worker, DEVICE),
                address_plan::link6(network, worker, GATEWAY),
            ),
            false => String::new(),
        };
        format!(
            "{side} = {{ device = \"{device}\", address = \"10.{network}.{worker}.1/24\", \
             gateway = \"10.{network}.{worker}.2\", mtu = {mtu}{ipv6} }}\n"
        )
    }
}

/// Returns an address that is free at this time: weir binds it soon after.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Returns the section about homes.
fn access(load: &Load) -> String {
    let mode = match load.access {
        Access::Gre | Access::GreOverIpv6 => "gre",
        Access::Plain => "plain",
    };
    let homes = address_plan::HOMES;
    let mut text = format!("\n[access]\nmode = \"{mode}\"\nsubscribers = [\"{homes}\"]\n");
    if load.access == Access::GreOverIpv6 {
        let _ = writeln!(text, "subscribers6 = [\"{}\"]", address_plan::HOMES_OUTER6);
    }
    text
}

/// Returns the MTU: a full packet and the tunnel header fit it.
fn access_mtu(load: &Load) -> usize {
    MTU + load.access.of_scenario().tunnel_len()
}

#[cfg(test)]
mod tests {
    use weir_config::Config;

    use super::*;
    use crate::bench::tests::plan;
    use crate::families::Families;

    /// Returns the configuration for a load as weir reads it, without an error or a warning.
    fn read(load: &Load) -> Config {
        let plan = plan("gre6", None);
        let context = BenchContext { plan: &plan, folder: Path::new("/run/bench") };
        let metrics = SocketAddr::from(([127, 0, 0, 1], 9100));
        let text = context.weir_config(load, Settings::default(), metrics).unwrap();
        let (config, warnings) = weir_config::parse(&text, CONFIG).unwrap();
        assert_eq!(warnings, [], "{text}");
        config
    }

    #[test]
    fn configuration_of_every_way_of_access_and_family_is_one_that_weir_takes() {
        for access in [Access::Gre, Access::GreOverIpv6, Access::Plain] {
            for families in [Families::Ipv4, Families::Ipv6, Families::Both] {
                let load = Load { access, families, ..Load::new(64 * 600, Duration::ZERO) };
                let config = read(&load);
                assert_eq!(config.shards.len(), 3);
                let is_over_ipv6 = access == Access::GreOverIpv6;
                let has_endpoint6 = config.shards.iter().all(|shard| shard.endpoint6.is_some());
                assert_eq!(has_endpoint6, is_over_ipv6);
            }
        }
    }

    #[test]
    fn homes_with_tunnels_over_ipv6_are_served_on_a_link_with_ipv6_and_room_for_the_tunnel() {
        let load = Load { access: Access::GreOverIpv6, ..Load::new(64 * 600, Duration::ZERO) };
        let config = read(&load);
        let link = &config.workers[0].access;
        assert_eq!((link.mtu, config.workers[0].internet.mtu), (1544, 1500));
        assert!(link.ipv6.is_some() && config.workers[0].internet.ipv6.is_none());
        assert_eq!(config.access.subscribers6[0].to_string(), address_plan::HOMES_OUTER6);
    }
}
