//! Numbers for metrics and `weir status`: the cost of reading them is negligible.

use weir_rules::SOURCE_POOLS;

use crate::admin::facet::Admin;
use crate::endpoint::ShardIndex;
use crate::ports::port_block::address_choice::BlockCount;
use crate::table_bytes::TableBytes;
use crate::table_pages::TablePages;

/// The state of a worker's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Mappings plus further sessions.
    pub flows: u32,
    /// Part of `flows`: IPv6 flows.
    pub flows6: u32,
    pub flows_max: u32,
    pub flow_creates_total: u64,
    /// Part of `flow_creates_total`: IPv6 flows.
    pub flow_creates6_total: u64,
    /// Flows whose timer ran out.
    pub flow_expired_total: u64,
    /// Flows that were ended because their inside endpoint had a duplicate mapping that was in use.
    pub flow_superseded_total: u64,
    /// Live flows that a rule with rematch has ended.
    pub flow_rematched_total: u64,
    pub subscribers: u32,
    /// Ports that rest before they are given again.
    pub quarantined: u32,
    /// Homes that were displaced by others, none of which had had an answered flow.
    pub homes_displaced_total: u64,
    /// Memory of each table.
    pub tables: TableBytes,
    /// Memory of all tables.
    pub memory_bytes: usize,
    /// Sizes of the pages under the tables that every packet reads.
    pub pages: TablePages,
}

/// How full a bounded table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableUse {
    /// Name of the table as metrics label it.
    pub table: &'static str,
    pub used: u64,
    pub max: u64,
}

impl TableUse {
    pub const fn new(table: &'static str, used: u64, max: u64) -> Self {
        Self { table, used, max }
    }
}

/// The state of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardGauges {
    pub subscribers: u32,
    /// Leased ports of all protocols, those in quarantine included.
    pub ports_used: u32,
    /// Of the addresses that are in no source pool.
    pub blocks_free: u32,
    pub blocks_total: u32,
    /// Of each source pool, from number 1 on.
    pub source_pools: [BlockCount; SOURCE_POOLS as usize - 1],
    pub addresses_out_of_service: u32,
    /// Leased ports there: at 0 these addresses are unused.
    pub ports_out_of_service: u32,
    /// Blocks that homes still hold, so that static mappings wait for them.
    pub blocks_awaited: u32,
}

/// Changes on their way to and from other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorGauges {
    /// Marks of changes that were not read yet.
    pub journal: usize,
    pub changes_applied_total: u64,
    /// Changes of which the same or something newer was known.
    pub changes_old_total: u64,
    /// Changes of lanes that this worker owns.
    pub changes_ours_total: u64,
    /// Changes that are no record of their lane, or of a shard that is not here.
    pub changes_invalid_total: u64,
    /// Copies that no table had room for.
    pub changes_full_total: u64,
}

impl Admin<'_> {
    pub fn mirror_gauges(self) -> MirrorGauges {
        let nat = self.nat;
        MirrorGauges {
            journal: nat.journal.len(),
            changes_applied_total: nat.totals.changes_applied,
            changes_old_total: nat.totals.changes_old,
            changes_ours_total: nat.totals.changes_ours,
            changes_invalid_total: nat.totals.changes_invalid,
            changes_full_total: nat.totals.changes_full,
        }
    }

    pub fn gauges(self) -> Gauges {
        let nat = self.nat;
        let tables = nat.table_bytes();
        Gauges {
            flows: nat.flows,
            flows6: nat.flows6,
            flows_max: nat.policy.live.flows_max,
            flow_creates_total: nat.totals.flow_creates,
            flow_creates6_total: nat.totals.flow_creates6,
            flow_expired_total: nat.totals.flow_expired,
            flow_superseded_total: nat.totals.flow_superseded,
            flow_rematched_total: nat.totals.flow_rematched,
            subscribers: nat.subscribers.len() as u32,
            quarantined: nat.quarantined,
            homes_displaced_total: nat.subscribers.displaced_total,
            tables,
            memory_bytes: tables.total(),
            pages: nat.table_pages(),
        }
    }

    /// Returns the number of changes so far of shards that were to wait for replicas and that no
    /// worker copied.
    #[inline]
    pub fn commits_alone(self) -> u64 {
        self.nat.commits.alone
    }

    /// Returns how full the tables are that all homes share, always in the same order.
    pub fn table_uses(self) -> [TableUse; 8] {
        let nat = self.nat;
        let (admitted, capacity) = nat.subscribers.admitted();
        let (blocks, blocks_total) = nat.ports.blocks_in_use();
        let displaced = nat.subscribers.displaced.into();
        let outers = &nat.subscribers.outers;
        [
            TableUse::new("flows", nat.flows.into(), nat.policy.live.flows_max.into()),
            TableUse::new("mappings", nat.mappings.live() as u64, nat.mappings.capacity() as u64),
            TableUse::new("sessions", nat.sessions.live() as u64, nat.sessions.capacity() as u64),
            TableUse::new("homes", admitted, capacity),
            TableUse::new("displaced-homes", displaced, nat.subscribers.spare()),
            TableUse::new("blocks", blocks, blocks_total),
            TableUse::new("claims", nat.claims.used() as u64, nat.claims.capacity().into()),
            TableUse::new("outer-addresses", outers.len() as u64, outers.capacity()),
        ]
    }

    /// Returns the gauges of the shard at this index of the configuration.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn shard_gauges(self, shard: ShardIndex) -> ShardGauges {
        let nat = self.nat;
        let (addresses_out_of_service, ports_out_of_service) = nat.ports.out_of_service_in(shard);
        let [common, source_pools @ ..] = nat.blocks_by_source_pool(shard);
        ShardGauges {
            subscribers: nat.subscribers.count(shard),
            ports_used: nat.ports.ports_used(shard),
            blocks_free: common.free,
            blocks_total: common.total,
            source_pools,
            addresses_out_of_service,
            ports_out_of_service,
            blocks_awaited: nat.ports.blocks_awaited(shard),
        }
    }

    /// Returns the number of displaced homes of a shard, which still hold ports.
    #[inline]
    pub fn displaced(self, shard: ShardIndex) -> u32 {
        self.nat.subscribers.displaced(shard)
    }
}
