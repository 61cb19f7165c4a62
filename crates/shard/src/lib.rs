//! Which worker holds which shard: the shard map.
//!
//! Everything here is a pure function: nothing is read, written or random.
#![forbid(unsafe_code)]

mod identity;
mod lane;
pub mod map;

pub use identity::{BootId, Epoch, Incarnation, NameError, NodeId, Rank, ShardId, Term, WorkerId};
pub use lane::{LANES, LaneSet, Seat};
pub use map::{Lane, Member, MemberState, Move, Refused, ShardEntry, Transition, Violation};
