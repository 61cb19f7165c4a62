//! Mappings, port blocks, filtering, TCP tracking, timeouts: the policy of the NAT.
//!
//! [`Nat`] is the state of one worker. It knows no packet bytes, no clock and no I/O: the engine
//! passes in both endpoints of a packet and the current [`Tick`], and gets the translated endpoint
//! or a [`Refusal`].
//!
//! ```text
//!                     outbound index                              inbound index
//!   (shard, outer, inside endpoint, protocol) --> mapping <-- (public endpoint, protocol)
//!                                                 64 bytes, with its first session
//!                          session index             |
//!          (mapping, version, remote) --> session <--+ list of further sessions, 32 bytes each
//!
//!   subscriber --> paired address, blocks --> bitmaps of ports
//!                                             (accessed when mappings begin and end)
//! ```
//!
//! The folders hold the flows' records (`sessions`), what a new flow takes from its shard and its
//! home (`ports`, `subscribers`, `shards`), what is written of it (`logs`), the questions of
//! operators (`admin`), and, apart from all of these, the replication of the tables
//! (`replication`). The files beside them are the state (`nat.rs`) and the steps of a packet:
//! `fast_path.rs`, `outbound.rs`, `opening.rs`, `inbound.rs`, and at the end `expire.rs`. IPv6
//! flows, which are not translated, share the tables; their steps are in `ipv6`.
//!
//! [`Nat`] itself has the methods for packets and for the walk over the tables. All others belong
//! to one of its parts, so that a caller's type shows what it needs:
//!
//! ```text
//!   Nat::replica, replica_mut   shards, lanes, journal, batches, copies   for cluster/replication
//!   Nat::admin, admin_mut       listings, flushes, numbers, logs          for app/node
//! ```
//!
//! Invariants:
//! - No two inside endpoints hold the same public (address, port, protocol): a port has one bit,
//!   and each set bit one record, live or in quarantine.
//! - A record lies in the slab (shard, lane of its public port's block).
//! - Records begin, change and end here only in lanes that this worker owns; of other workers'
//!   lanes it holds copies (`replication/lane.rs`).
//! - Nothing is allocated after [`Nat::new`], except the vectors that admin calls return and a
//!   little for shards that are added at run time; the tables never grow.
#![forbid(unsafe_code)]

mod admin;
mod config;
mod config_check;
mod destination;
mod endpoint;
mod expire;
mod fast_path;
mod inbound;
mod ipv6;
mod live;
mod logs;
mod look_up;
mod nat;
mod opening;
mod outbound;
mod packet;
mod ports;
mod rematch;
mod replication;
mod rules;
mod sessions;
mod shards;
mod subscribers;
mod table_bytes;
mod table_pages;

#[cfg(any(test, feature = "audit"))]
mod audit;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod opening_tests;
/// The unit tests share the world of the tests in `tests/`, which names this crate from outside.
#[cfg(test)]
extern crate self as weir_nat;

pub use admin::facet::{Admin, AdminMut};
pub use admin::flow_trace::{
    BucketHit, RedirectedFlow, TracedFlow6, TracedLookUp, TracedMapping, TracedRecord,
    TracedSession,
};
pub use admin::flush::Flush;
pub use admin::gauges::{Gauges, MirrorGauges, ShardGauges, TableUse};
pub use admin::home_selector::{HomeSelector, HomeView};
pub use admin::session_filter::{
    EndpointRange, EndpointRange6, FamilyRange, IpFamily, SessionFilter,
};
pub use admin::session_view::{
    BlockView, ClaimView, HomeLimits, PageCursor, SESSION_STATES, SessionEnds, SessionEnds4,
    SessionEnds6, SessionView, SubscriberCursor, SubscriberPart, SubscriberView, subscriber_views,
};
pub use config::{Filtering, NatConfig, NatShardConfig, Pooling, ShardRoom};
pub use config_check::{
    FLOWS_MAX, FLOWS_MAX_REPLICATED, NatError, PORT_BLOCK_MAX, PORT_BLOCK_MIN,
    PUBLIC_ADDRESSES_MAX, REPLICAS_MAX, SHARDS_MAX, check_reserve_lanes,
};
pub use endpoint::{Endpoint, Home, OuterAddress, Protocol, ShardIndex, Tick, is_outer_handle};
pub use fast_path::{InboundKey, OutboundKey, Settled};
pub use ipv6::{
    DelegatedPrefix, Delegation, DelegationConflict, Delegations, Delivery6, Endpoint6, FlowKey6,
    Packet6,
};
pub use live::{LiveNatSettings, NeedsRestart};
pub use logs::block_event::{BlockEvent, BlockEventKind, HoldingChange, HomeBlock, HomePrefix};
pub use logs::rule_log::{FlowEnds, LoggedFlow, RULE_LOG_MAX};
pub use logs::session_log::{HomeLimit, HomeRefused, LoggedSubscriber, SessionEvent, SessionLog};
pub use look_up::{LookUp, PacketKey};
pub use nat::Nat;
pub use opening::{LikelySubscriber, Opening};
pub use packet::{Delivery, Inbound, NewFlow, Outbound, Refusal, Translated};
pub use ports::address_ranges::{AddressRanges, home_addresses};
pub use ports::out_of_service::PrefixOutOfService;
pub use ports::port_block::address_choice::BlockCount;
pub use ports::port_block::service::OutOfService;
pub use ports::shard_capacity::{ShardCapacity, shard_capacity};
pub use ports::static_mappings::{
    StaticConflict, StaticConflictKind, StaticMapping, StaticMappings, StaticScope,
};
pub use replication::change::{Applied, BODY_MAX, ChangeKind, LaneChange, SlotChange};
pub use replication::change_body::body_without_images;
pub use replication::commit::{Batch, Dependency};
pub use replication::facet::{Replica, ReplicaMut};
pub use rules::{ASKED_MAX, ActiveRules};
pub use sessions::checksum_deltas::ChecksumDeltas;
pub use sessions::class_timeouts::ClassSettings;
pub use sessions::timeouts::Timeouts;
pub use subscribers::allowance::HomeAllowance;
pub use subscribers::outer_addresses::HomePrefixes;
pub use subscribers::subscriber::SUBSCRIBERS_TOTAL_MAX;
pub use table_bytes::TableBytes;
pub use table_pages::TablePages;
pub use weir_flow::{Hash, PageSize, RecordId};
pub use weir_ids::{Epoch, ShardId};
pub use weir_rules::{
    CLASSES, DecidingRule, Destination, FlowClass, FlowPolicy, GROUPS, RuleAction, SOURCE_POOLS,
    SourcePool,
};
