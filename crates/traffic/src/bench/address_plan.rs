//! What weir has to know of the generator's address plan: the homes, and one entry a shard.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::load::{Access, Load};
use crate::scenario::Scenario;

const HOMES: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);

/// The prefix of all homes.
pub(super) fn homes() -> String {
    format!("{HOMES}/9")
}

/// The address of a home, counted from 0.
pub(super) fn home(subscriber: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(HOMES.to_bits() + subscriber)
}

/// The `[[shard]]` sections that serve a load: the first worker's shards, the second's, ...
pub(super) fn shards(load: &Load, core_of: impl Fn(usize) -> usize) -> String {
    let of_one = load.shards();
    let mut text = String::new();
    for shard in 0..of_one * load.workers as u32 {
        let (public, length) = Scenario::public_prefix(shard);
        let _ = writeln!(
            text,
            "\n[[shard]]\nid = {}\nworker = {}\npublic = [\"{public}/{length}\"]\nsubscribers_max = {}",
            shard + 1,
            core_of((shard / of_one) as usize),
            load.subscribers_per_shard,
        );
        let _ = match load.access {
            Access::Gre => writeln!(text, "endpoint = \"{}\"", Scenario::tunnel_endpoint(shard)),
            Access::Plain => writeln!(text, "subscribers = [\"{}\"]", source_prefix(load, shard)),
        };
    }
    text
}

/// The homes of a shard in plain mode: neighbours, so many that they fill a prefix.
fn source_prefix(load: &Load, shard: u32) -> String {
    let size = load.subscribers_per_shard;
    debug_assert!(size.is_power_of_two(), "the homes of a shard fill a prefix");
    format!("{}/{}", home(shard * size), 32 - size.ilog2())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_home_is_in_the_prefix_of_its_shard() {
        let load = Load { access: Access::Plain, ..Load::new(64 * 600, Duration::ZERO) };
        let text = shards(&load, |_| 1);
        assert_eq!(text.matches("[[shard]]").count(), 3);
        assert!(text.contains("subscribers = [\"10.128.2.0/24\"]"), "{text}");
        assert!(!text.contains("endpoint"));
    }

    #[test]
    fn each_worker_has_shards_of_its_own() {
        let load = Load { workers: 2, ..Load::new(64 * 512, Duration::ZERO) };
        let text = shards(&load, |worker| 1 + 2 * worker);
        let workers: Vec<&str> = text.lines().filter(|line| line.starts_with("worker")).collect();
        assert_eq!(workers, ["worker = 1", "worker = 1", "worker = 3", "worker = 3"]);
        assert!(text.contains("endpoint = \"10.64.0.4\""));
    }
}
