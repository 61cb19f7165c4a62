//! The public addresses of the shards and the addresses that weir answers for, of either kind of
//! file: what source pools and redirects must fit.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::check::interfaces;
use crate::cluster_types::ClusterFile;
use crate::findings::Findings;
use crate::policy_types::SourcePoolSettings;
use crate::types::{Access, Config};

/// A prefix and its key.
pub(crate) struct PlannedPrefix {
    pub(crate) key: String,
    pub(crate) net: Ipv4Net,
}

/// The public prefixes of a shard.
pub(crate) struct PlannedShard {
    /// Those of the shard; of a shard that is cut from a pool, those of the pool.
    pub(crate) key: String,
    pub(crate) id: u32,
    pub(crate) public: Vec<Ipv4Net>,
}

pub(crate) struct AddressPlan<'f> {
    pub(crate) access: &'f Access,
    pub(crate) is_translated: bool,
    /// `None` if a pool cannot be cut.
    pub(crate) shards: Option<Vec<PlannedShard>>,
    /// In order of addresses, as `own`.
    public: Vec<PlannedPrefix>,
    own: Vec<PlannedPrefix>,
}

impl<'f> AddressPlan<'f> {
    pub(crate) fn single(config: &'f Config, findings: &Findings<'_>) -> Self {
        let (mut public, mut own, mut shards) = (Vec::new(), Vec::new(), Vec::new());
        for (index, shard) in config.shards.iter().enumerate() {
            let key = format!("shard[{index}].public");
            public.extend(planned(&key, &shard.public, findings));
            own.extend(at(format!("shard[{index}].endpoint"), shard.endpoint));
            shards.push(PlannedShard { key, id: shard.id, public: shard.public.clone() });
        }
        for (path, side) in interfaces(&config.workers) {
            own.extend(at(format!("{path}.address"), Some(side.address.addr())));
        }
        Self::new(&config.access, config.nat.enabled, Some(shards), public, own)
    }

    pub(crate) fn cluster(file: &'f ClusterFile, are_cut: bool, findings: &Findings<'_>) -> Self {
        let (mut public, mut own, mut shards) = (Vec::new(), Vec::new(), Vec::new());
        for (index, pool) in file.pools.iter().enumerate() {
            let path = |name: &str| format!("pool[{index}].{name}");
            public.extend(planned(&path("public"), &pool.public, findings));
            own.extend(planned(&path("endpoints"), &pool.endpoints, findings));
            own.extend(planned(&path("steer"), &pool.steer, findings));
            if are_cut {
                let key = || path("public");
                let cut = pool.shards();
                shards.extend(cut.map(|it| PlannedShard {
                    key: key(),
                    id: it.id,
                    public: it.public,
                }));
            }
        }
        for (index, shard) in file.shards.iter().enumerate() {
            let key = format!("shard[{index}].public");
            public.extend(planned(&key, &shard.public, findings));
            own.extend(at(format!("shard[{index}].endpoint"), shard.endpoint));
            own.extend(at(format!("shard[{index}].steer"), shard.steer));
            shards.push(PlannedShard { key, id: shard.id, public: shard.public.clone() });
        }
        Self::new(&file.access, file.nat.enabled, are_cut.then_some(shards), public, own)
    }

    fn new(
        access: &'f Access,
        is_translated: bool,
        shards: Option<Vec<PlannedShard>>,
        mut public: Vec<PlannedPrefix>,
        mut own: Vec<PlannedPrefix>,
    ) -> Self {
        let are_good = |shard: &PlannedShard| !shard.public.is_empty();
        let shards = shards.filter(|shards| shards.iter().all(are_good));
        for list in [&mut public, &mut own] {
            list.sort_by_key(|it| it.net.network());
        }
        Self { access, is_translated, shards, public, own }
    }

    /// Returns the public addresses of all shards.
    pub(crate) fn public_addresses(&self) -> AddressSet {
        AddressSet::of(self.public.iter().map(|it| it.net))
    }

    /// Returns the public prefix that has an address.
    pub(crate) fn public_prefix(&self, address: Ipv4Addr) -> Option<&PlannedPrefix> {
        find(&self.public, address)
    }

    /// Returns the address of weir, or its range of them, that has an address.
    pub(crate) fn own_address(&self, address: Ipv4Addr) -> Option<&PlannedPrefix> {
        find(&self.own, address)
    }
}

/// Prefixes of a valid file do not overlap, so the last that begins before an address may have it.
fn find(sorted: &[PlannedPrefix], address: Ipv4Addr) -> Option<&PlannedPrefix> {
    let behind = sorted.partition_point(|it| it.net.network() <= address);
    sorted[..behind].last().filter(|it| it.net.contains(&address))
}

fn planned(
    key: &str,
    nets: &[Ipv4Net],
    findings: &Findings<'_>,
) -> impl Iterator<Item = PlannedPrefix> {
    nets.iter()
        .enumerate()
        .map(|(at, net)| PlannedPrefix { key: findings.element(key, at), net: *net })
}

fn at(key: String, address: Option<Ipv4Addr>) -> Option<PlannedPrefix> {
    address.map(|address| PlannedPrefix { key, net: address.into() })
}

/// Addresses, as disjoint prefixes in order.
#[derive(Debug)]
pub(crate) struct AddressSet(Vec<Ipv4Net>);

impl AddressSet {
    pub(crate) fn of(nets: impl Iterator<Item = Ipv4Net>) -> Self {
        Self(Ipv4Net::aggregate(&nets.collect()))
    }

    /// Returns the addresses of all source pools.
    pub(crate) fn pooled(pools: &[SourcePoolSettings]) -> Self {
        Self::of(pools.iter().flat_map(|pool| &pool.public).copied())
    }

    /// Number of addresses of `nets`, which must not overlap each other, that are in the set.
    pub(crate) fn count_of(&self, nets: &[Ipv4Net]) -> u64 {
        nets.iter().map(|net| self.count_of_one(*net)).sum()
    }

    fn count_of_one(&self, net: Ipv4Net) -> u64 {
        let first = self.0.partition_point(|held| held.broadcast() < net.network());
        let touching = self.0[first..].iter().take_while(|held| held.network() <= net.broadcast());
        // Of two prefixes that touch one contains the other.
        touching.map(|held| 1 << (32 - held.prefix_len().max(net.prefix_len()))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_counts_the_addresses_of_prefixes_that_it_has() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let nets = ["203.0.113.8/30", "203.0.113.12/30", "203.0.113.32/32", "198.51.100.0/24"];
        let set = AddressSet::of(nets.into_iter().map(net));
        let count = |text: &str| set.count_of(&[net(text)]);
        assert_eq!(count("203.0.113.0/24"), 9);
        assert_eq!(count("203.0.113.10/31"), 2);
        assert_eq!(count("203.0.113.0/29"), 0);
        assert_eq!(count("203.0.113.33/32"), 0);
        assert_eq!(set.count_of(&[net("198.51.100.128/25"), net("203.0.113.0/28")]), 128 + 8);
        assert_eq!(AddressSet::of([].into_iter()).count_of(&[net("203.0.113.0/24")]), 0);
    }
}
