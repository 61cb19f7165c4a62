//! The homes of IPv6 prefixes: a worker with flows of a home knows that the home has their prefix,
//! and no two homes have flows from one prefix. So a replica that takes over refuses what its
//! primary refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

use super::World;
use super::checks::{Table, Tables};
use crate::site::{self, WorkerPosition};

/// Returns the prefixes of the IPv6 flows in a table, each with an address of it and the home
/// of the flow.
fn prefixes(table: &Table) -> impl Iterator<Item = (Ipv6Net, Ipv6Addr, Ipv4Addr)> {
    table.keys().filter_map(|(home, inside, ..)| match inside.ip() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => {
            Some((site::claimed_prefix_of(address), address, Ipv4Addr::from_bits(*home)))
        }
    })
}

impl World {
    /// Checks the prefixes of the IPv6 flows in all tables.
    pub(super) fn check_prefixes(&mut self, tables: &Tables) {
        let mut homes: BTreeMap<Ipv6Net, Ipv4Addr> = BTreeMap::new();
        let mut wrong = None;
        for (&position, table) in tables {
            let WorkerPosition { node, worker } = position;
            let nat = self.worker(position).engine().nat().admin();
            for (prefix, address, home) in prefixes(table) {
                let other = *homes.entry(prefix).or_insert(home);
                if other != home {
                    wrong = Some(format!("{other} and {home} have flows from {prefix}"));
                }
                // The flows of a shard that is removed go piece by piece, after its prefixes.
                let Some(holder) = nat.holder_of_inside6(address.to_bits()) else { continue };
                let holder = holder.map(Ipv4Addr::from_bits);
                if holder != Some(home) {
                    wrong = Some(format!(
                        "n{node}/{worker} has flows of {home} from {prefix}, which is of {holder:?}"
                    ));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }
}
