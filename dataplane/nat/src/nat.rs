//! The state of one worker: tables, indexes, pool. The steps that a packet takes are in
//! `outbound.rs`, `opening.rs` and `inbound.rs`, the ends of records in `expire.rs`.

use std::sync::Arc;

use weir_flow::{Cursor, Hash, HashKey, Index, RecordId, Slabs};
use weir_rules::GROUPS;

use crate::config::{Filtering, NatConfig};
use crate::config_check::NatError;
use crate::endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
use crate::fast_path::{inbound_word, outbound_words};
use crate::ipv6::{Delegations, PrefixRanges};
use crate::live::LiveNatSettings;
use crate::logs::block_event::{BlockEventKind, BlockEvents, HomeBlock};
use crate::logs::rule_log::RuleLog;
use crate::logs::session_log::{SessionEvents, SessionLog};
use crate::ports::address_ranges::{AddressRanges, home_addresses, public_addresses};
use crate::ports::out_of_service::PrefixOutOfService;
use crate::ports::port_block::{BlockId, PortBlocks};
use crate::ports::random::Random;
use crate::ports::shard_capacity::{
    blocks_usable, quota_blocks as quota_blocks_of, shard_capacity,
};
use crate::ports::static_mappings::StaticMappings;
use crate::rematch::Rematch;
use crate::replication::commit::Commits;
use crate::replication::journal::Journal;
use crate::replication::lane::{Lanes, slab_of};
use crate::rules::ActiveRules;
use crate::sessions::mapping::Mapping;
use crate::sessions::session::{FurtherSession, SessionKey};
use crate::shards::shard_table::ShardTable;
use crate::subscribers::address_owner::{AddressOwners, OwnersRoom};
use crate::subscribers::subscriber::{BLOCK_LISTS_MAX, Subscribers};
use crate::table_bytes::SlotCounts;

/// Records looked at between two rounds of removals.
pub(crate) const WALK_STEP: usize = 256;

/// The scalar part of the configuration, as the data path reads it.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) live: LiveNatSettings,
    pub(crate) enabled: bool,
    pub(crate) by_key: bool,
    /// Whether a mapping has, or had, a home that sends a GRE key.
    pub(crate) has_keyed: bool,
    /// Whether the tables have a record for each remote address of further sessions, as
    /// address-dependent filtering needs.
    pub(crate) counts_addresses: bool,
    /// Whether other workers copy the lanes owned here, and this worker copies theirs.
    pub(crate) is_replicated: bool,
    /// Whether an inside endpoint may have several mappings in the outbound index by the same key:
    /// with replicas ([duplicates](crate::replication::duplicate)), and once there were source
    /// pools.
    pub(crate) has_several: bool,
    /// Whether some block of a home may not serve a flow of it: an address is, or was, out of
    /// service or in a source pool.
    pub(crate) has_special_addresses: bool,
    /// Whether a flow may have another destination than the home asked (`destination.rs`).
    pub(crate) has_redirected: bool,
    /// Whether the worker translates, has no replicas and logs no sessions: nearly every mapping is
    /// made under this policy.
    pub(crate) is_plain: bool,
    pub(crate) session_log: SessionLog,
    /// Whether there are static mappings.
    pub(crate) has_static: bool,
    /// The bits of the first half of an inside IPv6 address that name its home, where homes have no
    /// tunnel ([`Delegation::Prefix`]); else 0.
    pub(crate) home_mask: u64,
}

impl Policy {
    fn new(config: &NatConfig, live: LiveNatSettings) -> Self {
        Self {
            live,
            enabled: config.enabled,
            by_key: config.tells_homes_by_key(),
            has_keyed: config.gre_key_identifies_home,
            counts_addresses: config.filtering == Filtering::AddressDependent,
            is_replicated: config.replicas > 0,
            has_several: config.replicas > 0,
            has_special_addresses: false,
            has_redirected: false,
            is_plain: config.enabled
                && config.replicas == 0
                && config.session_log == SessionLog::None,
            session_log: config.session_log,
            has_static: false,
            home_mask: config.home_mask(),
        }
    }
}

/// Counts of what has happened so far.
#[derive(Debug, Default)]
pub(crate) struct NatTotals {
    pub(crate) flow_creates: u64,
    /// Part of `flow_creates`: IPv6 flows.
    pub(crate) flow_creates6: u64,
    pub(crate) flow_expired: u64,
    pub(crate) flow_superseded: u64,
    pub(crate) flow_rematched: u64,
    pub(crate) changes_applied: u64,
    pub(crate) changes_old: u64,
    pub(crate) changes_ours: u64,
    pub(crate) changes_invalid: u64,
    pub(crate) changes_full: u64,
}

/// Mappings, sessions, subscribers and ports of the shards of one worker. One thread owns it;
/// nothing is allocated after [`Nat::new`] except by the admin calls that return a `Vec` and for
/// shards that are added.
pub struct Nat {
    pub(crate) policy: Policy,
    pub(crate) rules: Box<ActiveRules>,
    pub(crate) rematch: Rematch,
    pub(crate) rule_log: RuleLog,
    pub(crate) shards: ShardTable,
    pub(crate) homes: AddressRanges,
    pub(crate) public: AddressRanges,
    /// The IPv6 prefixes of the shards.
    pub(crate) prefixes: PrefixRanges,
    pub(crate) delegations: Arc<Delegations>,
    outbound_key: HashKey,
    inbound_key: HashKey,
    session_key: HashKey,
    pub(crate) outbound_index: Index,
    pub(crate) inbound_index: Index,
    pub(crate) session_index: Index,
    pub(crate) mappings: Slabs<Mapping>,
    pub(crate) sessions: Slabs<FurtherSession>,
    pub(crate) ports: PortBlocks,
    pub(crate) subscribers: Subscribers,
    /// Holders of the inside addresses, without translation.
    pub(crate) owners: AddressOwners,
    /// Homes that have claimed inside IPv6 prefixes.
    pub(crate) claims: AddressOwners,
    pub(crate) random: Random,
    pub(crate) events: BlockEvents,
    pub(crate) session_events: SessionEvents,
    pub(crate) totals: NatTotals,
    pub(crate) lanes: Lanes,
    pub(crate) journal: Journal,
    pub(crate) commits: Commits,
    /// Whether the changes that are being applied are relayed: the relay may have missed what
    /// became of them.
    pub(crate) is_relayed: bool,
    /// Live mappings plus further sessions, and IPv6 flows.
    pub(crate) flows: u32,
    /// Part of `flows`: IPv6 flows.
    pub(crate) flows6: u32,
    pub(crate) quarantined: u32,
    pub(crate) now: Tick,
    pub(crate) mapping_cursor: Cursor,
    pub(crate) session_cursor: Cursor,
    /// Ids found by a step of a walk, to be processed after it.
    pub(crate) due: Vec<RecordId>,
    /// Duplicate mappings that the walk has found, empty between two steps.
    pub(crate) doubles: Vec<RecordId>,
    /// Mappings that the walk has found to be the first of their home with an answer, empty between
    /// two steps.
    pub(crate) answered: Vec<RecordId>,
    /// Mappings of displaced homes that the walk has found, empty between two steps.
    pub(crate) displaced: Vec<RecordId>,
    /// Mappings on quarantined addresses that the walk has found, empty between two steps.
    pub(crate) withdrawn: Vec<RecordId>,
    /// Records of static mappings that the walk has found, empty between two steps.
    pub(crate) statics_seen: Vec<RecordId>,
    /// Mappings of other workers' lanes that the walk has found in use here, empty between two
    /// steps.
    pub(crate) carried: Vec<RecordId>,
    pub(crate) statics: Arc<StaticMappings>,
    /// The prefixes that are out of service. Shards below `service_unnoted` do not know of the last
    /// change yet.
    pub(crate) out_of_service: Box<[PrefixOutOfService]>,
    pub(crate) service_unnoted: u16,
}

impl Nat {
    /// Builds the tables for `config`, all empty, on the caller's NUMA node.
    ///
    /// Slots: a mapping needs one from its first packet to the end of its quarantine; there are
    /// `flows_max` of them, and what part-filled extents of the slabs (shard, lane) can waste.
    /// Further sessions have [`NatConfig::sessions_max`] slots, with address-dependent filtering
    /// twice as many (one per remote address).
    ///
    /// # Errors
    /// [`NatError`] names the key that cannot work, or says that there is too little memory.
    pub fn new(config: NatConfig) -> Result<Self, NatError> {
        let live = LiveNatSettings::of(&config)?;
        let slots = SlotCounts::new(&config);
        let seed = config.seed;
        Ok(Self {
            policy: Policy::new(&config, live),
            rules: Box::new(ActiveRules::none()),
            rematch: Rematch::default(),
            rule_log: RuleLog::new(),
            shards: ShardTable::new(&config),
            homes: home_addresses(&config.subscribers),
            public: public_addresses(&config.shards),
            prefixes: PrefixRanges::new(
                config.shards.iter().zip(0..).map(|(it, at)| (&*it.public6, ShardIndex(at))),
            ),
            delegations: Arc::default(),
            outbound_key: HashKey::new([seed[0] ^ 0x6f75_7462, seed[1]]),
            inbound_key: HashKey::new([seed[0] ^ 0x696e_6264, seed[1]]),
            session_key: HashKey::new([seed[0] ^ 0x7365_7373, seed[1]]),
            outbound_index: Index::new(slots.mappings)?,
            inbound_index: Index::new(slots.mappings)?,
            session_index: Index::new(slots.sessions)?,
            mappings: Slabs::new(slots.mappings, slots.slabs)?,
            sessions: Slabs::new(slots.sessions, slots.session_slabs)?,
            ports: PortBlocks::new(&config)?,
            subscribers: Subscribers::new(&config, live.allowances.quota_blocks_max())?,
            owners: AddressOwners::new(OwnersRoom::of_addresses(&config))?,
            claims: AddressOwners::new(OwnersRoom::of_prefixes(&config))?,
            random: Random::new([seed[2], seed[3]]),
            events: BlockEvents::new(
                config.shards.iter().map(|shard| shard.id),
                config.shards_max(),
            ),
            session_events: SessionEvents::new(config.session_log),
            totals: NatTotals::default(),
            lanes: Lanes::new(config.shards.len(), config.shards_max()),
            journal: Journal::new(config.replicas > 0),
            commits: Commits::new(),
            is_relayed: false,
            flows: 0,
            flows6: 0,
            quarantined: 0,
            now: Tick(0),
            mapping_cursor: Cursor::default(),
            session_cursor: Cursor::default(),
            due: Vec::with_capacity(WALK_STEP),
            doubles: Vec::with_capacity(WALK_STEP),
            answered: Vec::with_capacity(WALK_STEP),
            displaced: Vec::with_capacity(WALK_STEP),
            withdrawn: Vec::with_capacity(WALK_STEP),
            statics_seen: Vec::with_capacity(WALK_STEP),
            carried: Vec::with_capacity(WALK_STEP),
            statics: Arc::new(StaticMappings::none()),
            out_of_service: Box::default(),
            service_unnoted: 0,
        })
    }

    /// Hash of the outbound key: (shard, outer, inside address, inside port, protocol) and, if it
    /// tells homes apart, the GRE key.
    #[inline(always)]
    pub fn outbound_hash(&self, home: &Home, inside: Endpoint, protocol: Protocol) -> Hash {
        self.hash_outbound_words(outbound_words(home, inside, protocol), home.gre_key)
    }

    /// Hash of an outbound key's words and the home's GRE key.
    #[inline(always)]
    pub(crate) fn hash_outbound_words(&self, words: [u64; 2], gre_key: Option<u32>) -> Hash {
        match gre_key {
            Some(key) if self.policy.by_key => {
                self.outbound_key.hash([words[0], words[1], 1 << 32 | u64::from(key)])
            }
            _ => self.hash_outbound(words),
        }
    }

    #[inline(always)]
    pub(crate) fn hash_outbound(&self, words: [u64; 2]) -> Hash {
        self.outbound_key.hash2(words)
    }

    /// Hash of the inbound key: (public address, port, protocol).
    #[inline(always)]
    pub fn inbound_hash(&self, public: Endpoint, protocol: Protocol) -> Hash {
        self.hash_inbound(inbound_word(public, protocol))
    }

    #[inline(always)]
    pub(crate) fn hash_inbound(&self, word: u64) -> Hash {
        self.inbound_key.hash2([word, 0])
    }

    /// Hash of the words that name an IPv6 flow.
    #[inline(always)]
    pub(crate) fn hash_flow6(&self, words: [u64; 5]) -> Hash {
        self.outbound_key.hash5(words)
    }

    /// Mapping and its version in one word, the remote in another: a session of a former user of
    /// the slot is never found.
    pub(crate) fn session_hash(&self, mapping: RecordId, version: u32, key: SessionKey) -> Hash {
        self.session_key.hash2([u64::from(mapping.0) << 32 | u64::from(version), key.word()])
    }

    /// Prefetches the index line.
    #[inline]
    pub(crate) fn prefetch_outbound(&self, hash: Hash) {
        self.outbound_index.prefetch(hash);
    }

    /// Prefetches the index line.
    #[inline]
    pub(crate) fn prefetch_inbound(&self, hash: Hash) {
        self.inbound_index.prefetch(hash);
    }

    #[inline]
    pub(crate) fn find_outbound(
        &self,
        hash: Hash,
        home: &Home,
        inside: Endpoint,
        protocol: Protocol,
    ) -> Option<RecordId> {
        let by_key = self.policy.by_key;
        self.outbound_index
            .find(hash, |id| {
                let mapping = self.mappings.get(RecordId(id));
                mapping.is_inside(home, inside, protocol, by_key) && !mapping.is_redirected()
            })
            .map(RecordId)
    }

    #[inline]
    pub(crate) fn find_inbound(
        &self,
        hash: Hash,
        public: Endpoint,
        protocol: Protocol,
    ) -> Option<RecordId> {
        self.inbound_index
            .find(hash, |id| {
                let mapping = self.mappings.get(RecordId(id));
                mapping.is_public(public, protocol) && mapping.kind.is_in_use()
            })
            .map(RecordId)
    }

    /// Whether this home may hold state. Asked on the slow path where it does something for a home
    /// before a mapping vouches for it: a spoofed outer source must not make the worker send or
    /// hold anything.
    pub fn is_subscriber(&self, home: &Home) -> bool {
        match self.prefix_of(home) {
            // Its shard has the prefix: that is how it was found.
            Some(_) => true,
            None => self.is_home_outer(home.outer),
        }
    }

    /// True if an outer address of a record is one of homes. Those of IPv6 have a handle only if
    /// they are.
    #[inline]
    pub(crate) fn is_home_outer(&self, outer: u32) -> bool {
        self.homes.contains(outer) || self.outer_ipv6(outer).is_some()
    }

    /// True if there is a home whose tunnel packets carry a GRE key. It stays true once a mapping
    /// has had one.
    #[inline]
    pub fn has_keyed_homes(&self) -> bool {
        self.policy.has_keyed
    }

    /// Returns the home without what does not tell it apart: the GRE key is only an echo unless it
    /// identifies homes.
    pub fn identity(&self, home: &Home) -> Home {
        Home { gre_key: home.gre_key.filter(|_| self.policy.by_key), ..*home }
    }

    /// Returns the shard that this public address belongs to, if it belongs to one of this worker's
    /// shards.
    #[inline]
    pub fn shard_of_public(&self, address: u32) -> Option<ShardIndex> {
        self.public.shard_of(address)
    }

    /// True if this is a public address of one of this worker's shards.
    #[inline]
    pub fn is_public(&self, address: u32) -> bool {
        self.public.contains(address)
    }

    /// Logs an event of a block that a subscriber has.
    pub(crate) fn push_block_event(
        &mut self,
        kind: impl FnOnce(HomeBlock) -> BlockEventKind,
        subscriber: u32,
        block: BlockId,
    ) {
        let home = self.subscribers.get(subscriber);
        let (port_first, port_last) = self.ports.port_range(block);
        let home_block = HomeBlock {
            subscriber: self.outer_of(home.outer),
            gre_key: home.gre_key().filter(|_| self.policy.by_key),
            public_address: self.ports.public_address(self.ports.address_of(block)),
            port_first,
            port_last,
        };
        let slab = slab_of(home.shard, self.ports.lane(block));
        self.events.push(slab, self.shards.id(home.shard), kind(home_block));
    }
}

impl std::fmt::Debug for Nat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nat")
            .field("policy", &self.policy)
            .field("flows", &self.flows)
            .field("quarantined", &self.quarantined)
            .finish_non_exhaustive()
    }
}

/// Returns the blocks in the quota of a home, by group; 0 without translation. No list is longer
/// than the blocks of the largest shard.
pub(crate) fn quota_blocks(config: &NatConfig) -> Result<[u32; GROUPS as usize], NatError> {
    if !config.enabled {
        return Ok([0; GROUPS as usize]);
    }
    let of_given =
        config.shards.iter().map(|shard| shard_capacity(shard, config).blocks_total).max();
    // A shard that is added later may be as large as the room.
    let of_later = u64::from(config.room.public_addresses) * u64::from(blocks_usable(config));
    let blocks_max = of_given.unwrap_or(0).max(of_later);
    let blocks_max = u32::try_from(blocks_max).unwrap_or(u32::MAX);
    let quotas: [u32; GROUPS as usize] = std::array::from_fn(|group| {
        quota_blocks_of(config, config.allowance(group as u8).ports).min(blocks_max)
    });
    let quota = quotas.iter().copied().max().unwrap_or(0);
    let subscribers = config.subscribers_max();
    if u64::from(quota) * u64::from(config.lists_per_home()) * subscribers > BLOCK_LISTS_MAX {
        return Err(NatError::QuotaTimesSubscribers { quota, subscribers });
    }
    Ok(quotas)
}
