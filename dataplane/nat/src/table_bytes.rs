//! Sizes of the tables: slots from the configuration, bytes before and after they are built.

use weir_flow::{Index, Slabs};

use crate::config::{Filtering, NatConfig};
use crate::nat::{Nat, quota_blocks};
use crate::ports::port_block::PortBlocks;
use crate::replication::lane::LANES;
use crate::sessions::mapping::Mapping;
use crate::sessions::session::FurtherSession;
use crate::subscribers::address_owner::OwnersRoom;
use crate::subscribers::subscriber::Subscribers;

/// Further sessions that a table has room for at least, unless `flows_max` is less.
const SESSIONS_MIN: u32 = 65_536;

/// Slots of the record tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotCounts {
    /// Mappings, those in quarantine included.
    pub(crate) mappings: usize,
    /// Further sessions and, with address-dependent filtering, remote addresses.
    pub(crate) sessions: usize,
    /// Slabs of each: one per lane of each shard that there is room for.
    pub(crate) slabs: usize,
    /// Slabs of the sessions: with replicas one more, for those that only this worker has.
    pub(crate) session_slabs: usize,
}

impl SlotCounts {
    pub(crate) fn new(config: &NatConfig) -> Self {
        let sessions = config.sessions_max() as usize;
        let slabs = config.shards_max() * LANES as usize;
        Self {
            mappings: config.flows_max as usize,
            sessions: match config.filtering {
                // Each session may be the only one of its remote address.
                Filtering::AddressDependent => 2 * sessions,
                Filtering::EndpointIndependent | Filtering::AddressAndPortDependent => sessions,
            },
            slabs,
            session_slabs: slabs + usize::from(config.replicas > 0),
        }
    }
}

impl NatConfig {
    /// Returns the further sessions (all but the first of each mapping) that the tables have room
    /// for: `sessions_max` if it is set, else a quarter of `flows_max`, but at least 65,536; never
    /// more than `flows_max`.
    pub fn sessions_max(&self) -> u32 {
        let default = (self.flows_max / 4).max(SESSIONS_MIN);
        self.sessions_max.unwrap_or(default).min(self.flows_max)
    }
}

/// Bytes of a worker's tables, whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBytes {
    /// Mapping records, 64 bytes each, with their slabs.
    pub mappings: usize,
    /// Part of `mappings`: the records alone, one region.
    pub mapping_records: usize,
    pub outbound_index: usize,
    pub inbound_index: usize,
    /// Records of further sessions, 32 bytes each, with their slabs.
    pub sessions: usize,
    /// Part of `sessions`: the records alone, one region.
    pub session_records: usize,
    pub session_index: usize,
    /// Port bitmaps and block owners: 27 KiB a public address with blocks of 256.
    pub ports: usize,
    pub subscribers: usize,
    /// Without translation: the table of which home an address belongs to.
    pub addresses: usize,
}

impl TableBytes {
    /// Returns what [`Nat::new`] will take for `config`, to the byte unless the machine has free
    /// pages of 1 GiB: the regions that lie on those take whole ones (see
    /// [`huge_for`](weir_flow::PageSize::huge_for)). Pure arithmetic, for a refusal before any
    /// memory is touched; `config` must have passed the checks of [`Nat::new`], or the numbers mean
    /// nothing.
    pub fn of(config: &NatConfig) -> Self {
        let slots = SlotCounts::new(config);
        let quotas = quota_blocks(config).unwrap_or_default();
        let quota_blocks = quotas.iter().copied().max().unwrap_or(0);
        Self {
            mappings: Slabs::<Mapping>::bytes_for(slots.mappings, slots.slabs),
            mapping_records: Slabs::<Mapping>::record_bytes_for(slots.mappings, slots.slabs),
            outbound_index: Index::bytes_for(slots.mappings),
            inbound_index: Index::bytes_for(slots.mappings),
            sessions: Slabs::<FurtherSession>::bytes_for(slots.sessions, slots.session_slabs),
            session_records: Slabs::<FurtherSession>::record_bytes_for(
                slots.sessions,
                slots.session_slabs,
            ),
            session_index: Index::bytes_for(slots.sessions),
            ports: PortBlocks::bytes_for(config),
            subscribers: Subscribers::bytes_for(config, quota_blocks),
            addresses: OwnersRoom::of_addresses(config).bytes()
                + OwnersRoom::of_prefixes(config).bytes(),
        }
    }

    /// Returns each table with its name, as metrics label it.
    pub const fn named(&self) -> [(&'static str, usize); 8] {
        [
            ("mappings", self.mappings),
            ("outbound-index", self.outbound_index),
            ("inbound-index", self.inbound_index),
            ("sessions", self.sessions),
            ("session-index", self.session_index),
            ("ports", self.ports),
            ("subscribers", self.subscribers),
            ("addresses", self.addresses),
        ]
    }

    /// Returns the sizes of the regions that the tables consist of, in the order in which they are
    /// mapped; the small ones of a table are one number.
    pub const fn regions(&self) -> [usize; 10] {
        [
            self.outbound_index,
            self.inbound_index,
            self.session_index,
            self.mapping_records,
            self.mappings - self.mapping_records,
            self.session_records,
            self.sessions - self.session_records,
            self.ports,
            self.subscribers,
            self.addresses,
        ]
    }

    /// Returns the bytes of all tables.
    pub fn total(&self) -> usize {
        self.named().iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Nat {
    /// Returns the bytes that the tables take.
    pub(crate) fn table_bytes(&self) -> TableBytes {
        TableBytes {
            mappings: self.mappings.bytes(),
            mapping_records: self.mappings.record_bytes(),
            outbound_index: self.outbound_index.bytes(),
            inbound_index: self.inbound_index.bytes(),
            sessions: self.sessions.bytes(),
            session_records: self.sessions.record_bytes(),
            session_index: self.session_index.bytes(),
            ports: self.ports.bytes(),
            subscribers: self.subscribers.bytes(),
            addresses: self.owners.bytes() + self.claims.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NatShardConfig, ShardRoom};
    use crate::ipv6::Delegation;
    use weir_ids::ShardId;

    fn config(flows_max: u32, shards: u32) -> NatConfig {
        NatConfig {
            flows_max,
            subscribers: vec!["10.128.0.0/9".parse().unwrap()],
            shards: (0..shards)
                .map(|shard| NatShardConfig {
                    id: ShardId(shard),
                    public: vec![format!("198.18.{shard}.0/28").parse().unwrap()],
                    public6: Vec::new(),
                    subscribers_max: 256,
                })
                .collect(),
            ..NatConfig::default()
        }
    }

    #[test]
    fn the_computed_table_sizes_equal_those_of_built_tables() {
        let base = config(300_000, 5);
        let room = ShardRoom { shards: 20, public_addresses: 100, subscribers: 5000 };
        let configs = [
            config(1024, 1),
            NatConfig { filtering: Filtering::AddressDependent, ..base.clone() },
            NatConfig { enabled: false, ..base.clone() },
            NatConfig { port_block: 64, ports_per_subscriber: 8192, ..base.clone() },
            NatConfig { port_block: 8192, sessions_max: Some(7000), ..base.clone() },
            NatConfig { replicas: 3, ..base.clone() },
            NatConfig { room, ..base.clone() },
            NatConfig { room, enabled: false, replicas: 1, shards: vec![], ..base.clone() },
            base,
        ];
        for config in configs {
            let built = Nat::new(config.clone()).unwrap().admin().gauges();
            assert_eq!(TableBytes::of(&config), built.tables, "{config:?}");
            assert_eq!(built.tables.total(), built.memory_bytes);
            assert_eq!(built.tables.regions().iter().sum::<usize>(), built.memory_bytes);
        }
    }

    /// 60 million flows of 29,440 homes with their whole quota of 2,048 ports, 31 homes an address.
    #[test]
    fn a_flow_costs_at_most_100_bytes_at_60_million() {
        let shards = 115;
        let mut config = config(60_000_000, shards);
        let bytes = TableBytes::of(&config).total();
        assert!(u64::from(shards) * 256 * 2048 > 60_000_000);
        assert!(bytes <= 60_000_000 * 100, "{bytes} bytes");
        config.sessions_max = Some(config.flows_max);
        assert!(TableBytes::of(&config).total() > 60_000_000 * 100, "a limit of its own is why");
    }

    /// Half of 60 million flows are of IPv6, in the records and the index of the others: homes have
    /// half of the ports, and claims of their prefixes. Without tunnels each home is two, one by
    /// its address and one by its prefix, and claims nothing.
    #[test]
    fn a_flow_of_either_family_costs_at_most_100_bytes_at_60_million() {
        let shards = 115;
        let mut config = config(60_000_000, shards);
        config.ports_per_subscriber = 1024;
        for (shard, number) in config.shards.iter_mut().zip(0..) {
            shard.public = vec![format!("198.18.{number}.0/29").parse().unwrap()];
            shard.public6 = vec![format!("2001:db8:{number:x}::/48").parse().unwrap()];
        }
        assert!(u64::from(shards) * 256 * 1024 > 30_000_000);
        let claimed = Some(Delegation::Claim { hold_sec: 3600 });
        for (delegation, homes) in
            [(claimed, 256), (Some(Delegation::Prefix { home_length: 56 }), 512)]
        {
            config.delegation = delegation;
            config.shards.iter_mut().for_each(|shard| shard.subscribers_max = homes);
            let bytes = TableBytes::of(&config).total();
            assert!(bytes <= 60_000_000 * 100, "{delegation:?}: {bytes} bytes");
        }
    }

    #[test]
    fn further_sessions_have_a_limit_of_their_own() {
        let of = |flows_max, sessions_max| {
            NatConfig { flows_max, sessions_max, ..NatConfig::default() }.sessions_max()
        };
        assert_eq!(of(4_000_000, None), 1_000_000);
        assert_eq!(of(200_000, None), 65_536);
        assert_eq!(of(1024, None), 1024);
        assert_eq!(of(4_000_000, Some(2000)), 2000);
        assert_eq!(of(4_000, Some(8000)), 4000);
    }
}
