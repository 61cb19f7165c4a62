//! The allocator: from nodes, load and the current map to the next transitions.
//!
//! ```text
//!   nodes --> worker slots -----+
//!                               +--> target of each shard --> one next transition of each shard
//!   shards: entry, load, acting +     1 members there stay      1 events: a fence, a primary that
//!                                     2 too few: the best one     is gone or outdone
//!                                     3 too many: one goes      2 towards the target
//!                                     4 at rest: balance
//! ```
//!
//! - A pure function without memory: what is under way is read from the entries, which also mark
//!   the members that yield. Applied again and again, it comes to rest, and then returns no step
//!   until its input changes.
//! - Members of a shard are on different nodes, and in different racks where there is another rack;
//!   otherwise a note says so. A shard has two members on a node only while one moves to another
//!   worker of that node. Two members on a node count as one, whichever of them yields.
//! - No worker gets more shards than it has room for; where that leaves copies missing, a note says
//!   so.
//! - A worker's shares of primaries, of copies, and of what it would take over from each node are
//!   proportional to its weight, where nodes and racks let copies lie by weight. Where they do not
//!   (a small worker alone in one of two racks has a copy of every shard), the sum of `tally`
//!   weighs the three against each other. A member stays where it is unless a move lowers that sum.
//! - A node that is about to end keeps its copies, and its roles go to others at once.
//! - Balance waits until failures are repaired, moves have ended and no node is about to end. A
//!   role is moved before a copy, and a copy is not moved for an imbalance of one shard, unless
//!   that shard is a large part of a worker's share.
//! - A copy is given up only when all members that stay are synced; a shard moves for balance only
//!   when it is whole and at rest. Copies under way and moves of a step number `moves_max` at most.
//! - A change of balance is made of small transitions (add, wait until synced, promote, retire,
//!   remove), each one compare and swap and each leaving a valid map.
//! - When more than a third of the nodes, and at least two, look gone, the only steps are fences
//!   and the takeover from a node that itself says that it is about to end.
//!
//! The allocator does not measure, does not decide which nodes are dead, and does not write.

mod fleet;
mod input;
mod layout;
mod next;
mod plan;
mod room;
mod tally;

pub use input::{Acting, AllocateOptions, Liveness, NodeView, ShardView, WorkerView};
pub use plan::{Note, Plan, PlanStep, PlannedChange, allocate};
