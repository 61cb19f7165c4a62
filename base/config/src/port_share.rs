//! The division of a shard's public addresses and their ports among its homes.

use std::fmt;

use crate::check::{AddressSet, addresses, blocks_of_primary, homes, quota_blocks};
use crate::policy_types::SourcePoolSettings;
use crate::types::{Config, NatSettings, ShardSettings};

use ipnet::Ipv4Net;

/// The share of one home in the public addresses of its shard. Displays as a line for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShare {
    /// Number of homes served at once.
    pub homes: u64,
    /// Number of public addresses that are in no source pool.
    pub addresses: u64,
    /// Ports per block.
    pub port_block: u16,
    /// Blocks per address that are not held in reserve.
    pub blocks_of_address: u64,
    /// Blocks that a home may open.
    pub quota_blocks: u64,
    /// Number of copies, each with a reserve lane.
    pub replicas: u8,
}

impl PortShare {
    pub(crate) fn of(
        nat: &NatSettings,
        replicas: u8,
        homes: u64,
        public: &[Ipv4Net],
        source_pools: &[SourcePoolSettings],
    ) -> Option<Self> {
        let pooled = AddressSet::pooled(source_pools).count_of(public);
        nat.enabled.then(|| Self {
            homes,
            addresses: addresses(public).saturating_sub(pooled),
            port_block: nat.port_block,
            blocks_of_address: blocks_of_primary(nat.port_block, replicas).into(),
            quota_blocks: quota_blocks(nat),
            replicas,
        })
    }

    /// Homes per address when all are present.
    pub fn homes_of_address(&self) -> u64 {
        self.homes.div_ceil(self.addresses.max(1))
    }

    /// Blocks per home when all need many.
    pub fn blocks_of_home(&self) -> u64 {
        self.blocks_of_address / self.homes_of_address().max(1)
    }
}

impl fmt::Display for PortShare {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (block, ports) = (self.port_block, |blocks: u64| blocks * u64::from(self.port_block));
        write!(
            out,
            "{} homes on {} public addresses, {} on each; an address has {} blocks of {block} ports",
            self.homes,
            self.addresses,
            self.homes_of_address(),
            self.blocks_of_address,
        )?;
        match self.replicas {
            0 => {}
            1 => write!(out, " beside the reserve lane")?,
            lanes => write!(out, " beside {lanes} reserve lanes")?,
        }
        let (blocks, quota) = (self.blocks_of_home(), self.quota_blocks);
        write!(
            out,
            ": when all homes are busy {blocks} blocks ({} ports) for each, at most its quota of {quota} ({} ports)",
            ports(blocks),
            ports(quota),
        )
    }
}

impl Config {
    /// Returns how the homes of a shard share its public addresses. `None` without translation.
    pub fn port_share(&self, shard: &ShardSettings) -> Option<PortShare> {
        let homes = homes(shard.subscribers_max, &shard.subscribers);
        PortShare::of(&self.nat, 0, homes, &shard.public, &self.policy.source_pools)
    }
}
