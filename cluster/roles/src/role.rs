//! The role of one worker for one shard: state and events in, duties out.
//!
//! ```text
//!              entry: added              entry: synced          entry: promoted, term + 1
//!    none ------------------> syncing ------------------> synced ------------------------> primary
//!     ^                        ^    \                    ^  |  ^                             |  ^
//!     |                        |     \ stream lost      /   |  |  entry: another is promoted |  |
//!     |    entry: copies again |      v                /    |  +-----------------------------+  |
//!     |                        +-- out of sync -------+     |                                   |
//!     |                                ^       entry: synced|  primary silent >= 30 ms and      |
//!     |                                |                    |  packets in 3 slots running       |
//!     | quiet for 1 s                  |                    v                                   |
//!   leaving <-- entry: not a member    +-------------- acting primary --------------------------+
//!               (from synced, acting,  entry: out of sync      entry: promoted, term + 1
//!                primary)
//!
//!    acting primary, too, without packets: the primary's node heard by no node for >= 200 ms
//! ```
//!
//! - The machine obeys only entries that name its own boot id, and never one older than it has
//!   seen.
//! - It writes a lane only if its newest entry names it the owner and the lane rests, or if it
//!   holds the grant of that very move and no other grant is to follow. So two primaries after a
//!   split do no harm: each creates in its own lanes.
//! - A synced replica does not wait for the store: it becomes acting primary, serves, then
//!   announces a better route. It does not step back when the primary is heard again (no automatic
//!   fail-back): only a new entry ends the role.
//! - The former primary keeps its route as it is until the new one has reported that its own is
//!   out.
//! - A worker of which the entry names only a former incarnation is a guest: syncing, then synced,
//!   but it writes nothing, never acts and wants no change. A newer entry ends that.
//! - Duties are levels, not edges: a lost message is repaired by performing them again.
//!
//! The machine does not copy, flush or announce, does not know why packets come, and reads no
//! clock.

mod duties;
mod event;
mod guest;
mod machine;
mod metric;

pub use duties::{Duties, Role};
pub use event::{PortHealth, RoleEvent};
pub use machine::{RoleMachine, RoleOptions};
pub use metric::Metric;
pub use weir_map::Grant;
pub use weir_wire::Misses;

#[cfg(test)]
mod guest_tests;
#[cfg(test)]
mod machine_tests;
