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
//! Invariants:
//! - No two inside endpoints hold the same public (address, port, protocol): a port has one bit,
//!   and each set bit one record, live or in quarantine.
//! - A record lies in the slab (shard, lane of its public port's block).
//! - Records begin, change and end here only in lanes that this worker owns; of other workers'
//!   lanes it holds copies (`lane.rs`).
//! - Nothing is allocated after [`Nat::new`], except the vectors that admin calls return and a
//!   little for shards that are added at run time; the tables never grow.
#![forbid(unsafe_code)]

mod address_owner;
mod address_ranges;
mod admin;
mod admission;
mod attach;
mod block_event;
mod block_listing;
mod change;
mod change_body;
mod commit;
mod config;
mod config_check;
mod duplicate;
mod endpoint;
mod expire;
mod filtering;
mod flush;
mod gauges;
mod inbound;
mod journal;
mod lane;
mod lane_copy;
mod lane_forget;
mod mapping;
mod mirror;
mod mirror_clear;
mod mirror_session;
mod nat;
mod outbound;
mod owner_update;
mod ownership;
mod packet;
mod port_block;
mod port_choice;
mod random;
mod replica_lookup;
mod session;
mod session_list;
mod session_log;
mod session_state;
mod session_view;
mod shard_capacity;
mod shard_change;
mod shard_table;
mod subscriber;
mod table_bytes;
mod tcp_state;
mod timeouts;

#[cfg(test)]
mod admission_tests;
#[cfg(any(test, feature = "audit"))]
mod audit;
#[cfg(test)]
mod mirror_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod opening_tests;
/// The unit tests share the world of the tests in `tests/`, which names this crate from outside.
#[cfg(test)]
extern crate self as weir_nat;

pub use address_ranges::AddressRanges;
pub use block_event::{BlockEvent, BlockEventKind, HomeBlock};
pub use change::{Applied, BODY_MAX, ChangeKind, SlotChange};
pub use commit::{Batch, Dependency};
pub use config::{Filtering, NatConfig, NatShardConfig, Pooling, ShardRoom};
pub use config_check::{
    FLOWS_MAX, FLOWS_MAX_REPLICATED, NatError, PORT_BLOCK_MAX, PORT_BLOCK_MIN,
    PUBLIC_ADDRESSES_MAX, REPLICAS_MAX, SHARDS_MAX, check_reserve_lanes,
};
pub use endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
pub use flush::Flush;
pub use gauges::{Gauges, MirrorGauges, ShardGauges, TableUse};
pub use nat::Nat;
pub use outbound::{Opening, SubscriberSlot};
pub use packet::{Delivery, Inbound, Outbound, Refusal};
pub use session_log::{HomeLimit, HomeRefused, LoggedSubscriber, SessionEvent, SessionLog};
pub use session_view::{
    BlockView, EndpointRange, HomeLimits, PageCursor, SESSION_STATES, SessionFilter, SessionView,
    SubscriberCursor, SubscriberPart, SubscriberView, subscriber_views,
};
pub use shard_capacity::{ShardCapacity, shard_capacity};
pub use subscriber::SUBSCRIBERS_TOTAL_MAX;
pub use table_bytes::TableBytes;
pub use timeouts::Timeouts;
pub use weir_flow::{Hash, RecordId};
pub use weir_ids::{Epoch, ShardId};
