//! The generator's address plan as configuration for weir: the homes, and one entry for each shard.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::BenchError;
use super::load::{Access, Load};
use crate::scenario::{self, Scenario, outer6};

/// The prefix of all homes, and of their outer addresses if their tunnels are over IPv6.
pub(super) const HOMES: &str = "10.128.0.0/9";
pub(super) const HOMES_OUTER6: &str = "3fff:0:a80::/41";
/// Seed for the order of flows, on which the addresses do not depend.
const SEED: u64 = 1;

impl Load {
    /// Returns the scenario of a worker, counted from 0. The shards of a worker follow those of the
    /// previous one.
    pub(super) fn scenario(&self, worker: usize) -> Result<Scenario, BenchError> {
        let access = self.access.of_scenario();
        let new = || {
            Scenario::new(self.flows, self.flows_per_subscriber, SEED)?
                .with_subscribers_per_shard(self.subscribers_per_shard)?
                .with_first_shard(self.first_shard(worker))?
                .with_new_flows(self.new_flows)?
                .with_access(access)?
                .with_families(self.families)
        };
        let new = || match self.attacked {
            Some(_) => new()?.with_new_flows_in_known_homes(),
            None => new(),
        };
        new().map_err(|error| BenchError::Scenario { error })
    }

    /// Returns the first shard of a worker in the address plan.
    pub(super) fn first_shard(&self, worker: usize) -> u32 {
        worker as u32 * self.shards()
    }
}

/// Last parts of the addresses on a link.
pub(super) const DEVICE: u16 = 1;
pub(super) const GATEWAY: u16 = 2;

/// Returns the IPv6 address of a station on a link of a worker: `network` is 1 on the access side
/// and 2 on the internet side.
pub(super) fn link6(network: u16, worker: usize, station: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, network, worker as u16, 0, 0, 0, 0, station)
}

/// Returns the address by which weir knows a home, counted from 0.
pub(super) fn home(scenario: &Scenario, subscriber: u32) -> IpAddr {
    let address = scenario.flow(subscriber * scenario.flows_per_subscriber()).home;
    match scenario.access() {
        scenario::Access::GreOverIpv6 => outer6(address).into(),
        scenario::Access::Gre | scenario::Access::Plain => Ipv4Addr::from_bits(address).into(),
    }
}

/// Returns the `[[shard]]` sections for a load: the first worker's shards, then the second's, and
/// so on.
pub(super) fn shards(load: &Load, core_of: impl Fn(usize) -> usize) -> Result<String, BenchError> {
    let mut text = String::new();
    for worker in 0..load.workers {
        let scenario = load.scenario(worker)?;
        for shard in 0..scenario.shards() {
            let (public, length) = scenario.public_prefix(shard);
            let _ = writeln!(
                text,
                "\n[[shard]]\nid = {}\nworker = {}\npublic = [\"{public}/{length}\"]\nsubscribers_max = {}",
                scenario.first_shard() + shard + 1,
                core_of(worker),
                load.homes_of_a_shard(),
            );
            if load.families.has_ipv6() {
                let (public6, length) = scenario.public6_prefix(shard);
                let _ = writeln!(text, "public6 = [\"{public6}/{length}\"]");
            }
            let endpoint = scenario.tunnel_endpoint(shard);
            let _ = match load.access {
                Access::Gre => writeln!(text, "endpoint = \"{endpoint}\""),
                // A shard has both endpoints, or that of IPv4 alone.
                Access::GreOverIpv6 => {
                    let endpoint6 = outer6(endpoint.to_bits());
                    writeln!(text, "endpoint = \"{endpoint}\"\nendpoint6 = \"{endpoint6}\"")
                }
                Access::Plain => {
                    let (homes, length) = scenario.source_prefix(shard);
                    writeln!(text, "subscribers = [\"{homes}/{length}\"]")
                }
            };
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::families::Families;

    fn text(load: &Load) -> String {
        shards(load, |worker| 1 + 2 * worker).unwrap()
    }

    #[test]
    fn every_home_is_in_the_prefix_of_its_shard() {
        let load = Load { access: Access::Plain, ..Load::new(64 * 600, Duration::ZERO) };
        let text = text(&load);
        assert_eq!(text.matches("[[shard]]").count(), 3);
        assert!(text.contains("subscribers = [\"10.128.2.0/24\"]"), "{text}");
        assert!(!text.contains("endpoint"));
        assert_eq!(home(&load.scenario(0).unwrap(), 512).to_string(), "10.128.2.0");
    }

    /// The homes fill their last shard only in part: the next worker's homes begin with a new
    /// shard.
    #[test]
    fn each_worker_has_shards_of_its_own_and_all_that_its_generator_needs() {
        let load = Load { workers: 2, ..Load::new(64 * 300, Duration::ZERO) };
        let text = text(&load);
        let workers: Vec<&str> = text.lines().filter(|line| line.starts_with("worker")).collect();
        assert_eq!(workers, ["worker = 1", "worker = 1", "worker = 3", "worker = 3"]);
        let sections: Vec<&str> = text.split("[[shard]]").skip(1).collect();
        for (worker, core) in [(0, 1), (1, 3)] {
            let scenario = load.scenario(worker).unwrap();
            assert_eq!(scenario.first_shard(), load.first_shard(worker));
            for created in (0..scenario.flows()).step_by(64) {
                let endpoint = Ipv4Addr::from_bits(scenario.flow(created).tunnel);
                let endpoint = format!("endpoint = \"{endpoint}\"\n");
                let section = sections.iter().find(|section| section.contains(&endpoint)).unwrap();
                assert!(section.contains(&format!("worker = {core}\n")), "{section}");
            }
        }
        for id in ["id = 1\n", "id = 2\n", "id = 3\n", "id = 4\n"] {
            assert_eq!(text.matches(id).count(), 1, "{id}");
        }
    }

    #[test]
    fn shards_have_an_ipv6_prefix_if_the_flows_have_ipv6() {
        let ipv4 = Load::new(64 * 300, Duration::ZERO);
        assert!(!text(&ipv4).contains("public6"));
        let both = text(&Load { families: Families::Both, ..ipv4 });
        assert!(both.contains("public6 = [\"2001:db8::/48\"]"), "{both}");
        assert!(both.contains("public6 = [\"2001:db8:1::/48\"]"), "{both}");
    }

    #[test]
    fn homes_with_tunnels_over_ipv6_have_endpoints_and_one_prefix_of_their_own() {
        let load = Load { access: Access::GreOverIpv6, ..Load::new(64 * 600, Duration::ZERO) };
        let (text, scenario) = (text(&load), load.scenario(0).unwrap());
        assert!(text.contains("endpoint = \"10.64.0.3\"\nendpoint6 = \"3fff:0:a40:3::1\"\n"));
        let (network, length) = HOMES_OUTER6.split_once('/').unwrap();
        let network = network.parse::<Ipv6Addr>().unwrap().to_bits();
        let is_home = |address: Ipv6Addr| {
            address.to_bits() >> (128 - length.parse::<u32>().unwrap()) == network >> 87
        };
        assert_eq!(home(&scenario, 512), outer6(0x0a80_0200));
        for bits in [0x0a80_0000, scenario.flow(64 * 600 - 1).home, 0x0aff_ffff] {
            assert!(is_home(outer6(bits)));
        }
        for bits in [0x0a7f_ffff, 0x0b00_0000, scenario.tunnel_endpoint(0).to_bits()] {
            assert!(!is_home(outer6(bits)));
        }
    }

    #[test]
    fn flows_opened_under_load_belong_to_further_homes() {
        let load =
            Load { new_share: 1.0, new_flows: 64 * 256, ..Load::new(64 * 256, Duration::ZERO) };
        assert_eq!(text(&load).matches("[[shard]]").count(), 2);
    }

    #[test]
    fn load_beyond_the_address_plan_is_an_error() {
        let load = Load { flows_per_subscriber: 1, ..Load::new(60_000_000, Duration::ZERO) };
        assert!(load.scenario(0).is_err());
    }
}
