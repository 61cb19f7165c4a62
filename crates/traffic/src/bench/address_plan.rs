//! What weir has to know of the generator's address plan: the homes, and one entry a shard.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::BenchError;
use super::load::{Access, Load};
use crate::scenario::{self, Scenario};

/// The prefix of all homes.
pub(super) const HOMES: &str = "10.128.0.0/9";
/// Draws the order of flows, which the addresses do not depend on.
const SEED: u64 = 1;

impl Load {
    /// Who talks to whom, all workers' flows together.
    pub(super) fn scenario(&self) -> Result<Scenario, BenchError> {
        let access = match self.access {
            Access::Gre => scenario::Access::Gre,
            Access::Plain => scenario::Access::Plain,
        };
        let new = || {
            Scenario::new(self.flows * self.workers as u32, self.flows_per_subscriber, SEED)?
                .with_subscribers_per_shard(self.subscribers_per_shard)?
                .with_new_flows(self.new_flows)?
                .with_access(access)
        };
        new().map_err(|error| BenchError::Scenario { error })
    }
}

/// The address of a home, counted from 0.
pub(super) fn home(scenario: &Scenario, subscriber: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(scenario.flow(subscriber * scenario.flows_per_subscriber()).home)
}

/// The `[[shard]]` sections that serve a load: the first worker's shards, the second's, ...
pub(super) fn shards(scenario: &Scenario, load: &Load, core_of: impl Fn(usize) -> usize) -> String {
    let of_one = scenario.shards().div_ceil(load.workers as u32);
    let mut text = String::new();
    for shard in 0..scenario.shards() {
        let (public, length) = scenario.public_prefix(shard);
        let _ = writeln!(
            text,
            "\n[[shard]]\nid = {}\nworker = {}\npublic = [\"{public}/{length}\"]\nsubscribers_max = {}",
            shard + 1,
            core_of((shard / of_one) as usize),
            load.subscribers_per_shard,
        );
        let _ = match load.access {
            Access::Gre => writeln!(text, "endpoint = \"{}\"", scenario.tunnel_endpoint(shard)),
            Access::Plain => {
                let (homes, length) = scenario.source_prefix(shard);
                writeln!(text, "subscribers = [\"{homes}/{length}\"]")
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(load: &Load) -> String {
        shards(&load.scenario().unwrap(), load, |worker| 1 + 2 * worker)
    }

    #[test]
    fn every_home_is_in_the_prefix_of_its_shard() {
        let load = Load { access: Access::Plain, ..Load::new(64 * 600, Duration::ZERO) };
        let text = text(&load);
        assert_eq!(text.matches("[[shard]]").count(), 3);
        assert!(text.contains("subscribers = [\"10.128.2.0/24\"]"), "{text}");
        assert!(!text.contains("endpoint"));
        assert_eq!(home(&load.scenario().unwrap(), 512).to_string(), "10.128.2.0");
    }

    #[test]
    fn each_worker_has_shards_of_its_own() {
        let text = text(&Load { workers: 2, ..Load::new(64 * 512, Duration::ZERO) });
        let workers: Vec<&str> = text.lines().filter(|line| line.starts_with("worker")).collect();
        assert_eq!(workers, ["worker = 1", "worker = 1", "worker = 3", "worker = 3"]);
        assert!(text.contains("endpoint = \"10.64.0.4\""));
    }

    #[test]
    fn flows_opened_under_load_belong_to_further_homes() {
        let load =
            Load { new_share: 1.0, new_flows: 64 * 256, ..Load::new(64 * 256, Duration::ZERO) };
        assert_eq!(text(&load).matches("[[shard]]").count(), 2);
    }

    #[test]
    fn what_does_not_fit_the_address_plan_is_an_error() {
        let load = Load { flows_per_subscriber: 1, ..Load::new(60_000_000, Duration::ZERO) };
        assert!(load.scenario().is_err());
    }
}
