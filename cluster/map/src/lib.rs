//! Which worker holds which shard in which role: shard map and allocator.
//!
//! ```text
//!    nodes, load --> allocate --> Transition --> [store: compare and swap] --> ShardEntry
//!                       ^                             ^                          |
//!                       |                             | Write                    v  watch
//!                       +-- acting ----------------- RoleMachine of each member, one per shard
//!                                                     |
//!                                                     +--> lanes, misses, route, grants
//! ```
//!
//! - [`map`]: the entry of each shard, [`ShardEntry`], and the only ways to change it,
//!   [`Transition`]. Its header says why a lane never has two writers.
//! - [`allocate`]: which transitions bring the map nearer to redundant and balanced.
//! - The role machine, what one worker does for one shard from what it has seen so far, is in the
//!   crate `weir-roles`.
//!
//! Everything here is a pure function or a plain state machine: the time and all events are
//! arguments, the order of every list is fixed, nothing is random. The crate does no I/O and moves
//! no packets and no records of flows.
#![forbid(unsafe_code)]

pub mod allocate;
mod lane;
pub mod map;
mod rank;

pub use lane::{Grant, LaneSet, MemberSlot, MemberSlotSet};
pub use map::{
    LaneEntry, Member, MemberState, Move, ShardEntry, Transition, TransitionRefusal, Violation,
};
pub use rank::Rank;
pub use weir_ids::{BootId, Epoch, Incarnation, LANES, NameError, NodeId, ShardId, Term, WorkerId};
