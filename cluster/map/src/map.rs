//! The map: the entry of each shard, and the only ways to change it.
//!
//! An entry names the members of a shard in rank order and, for each of its eight lanes, the
//! **owner** and, while the lane moves, the member that it moves **from**. Entries are replaced by
//! compare and swap on the epoch, so they form one history; workers see it late and with gaps, and
//! never go back.
//!
//! # Why a lane never has two writers
//!
//! A worker that may write a lane is the lane's owner or `from` in the *newest* entry, however old
//! the entry is that the worker itself holds:
//!
//! 1. *A move begins* (owner B, from A) only where A owned a lane at rest. A writes until it sees
//!    that entry, and never after that. B writes only after A's grant **of this move**: a grant
//!    names the epoch at which the move began, so the grant of an earlier move is void.
//! 2. *A move ends* (owner B) when B itself writes so, having taken the grant. The lane cannot turn
//!    to a third member: until then it has this owner and this `from`, and either may be the
//!    writer.
//! 3. *A fence* is the certainty that an incarnation has ended. The lanes that it owned, and those
//!    that it was giving, go to the rightful owner, and the only other possible writer, if there is
//!    one, gives first. Without a fence the lanes of a silent owner are **frozen**: hits are
//!    translated, and no mapping is created.
//! 4. *The store is set back*: entries that workers obeyed are gone. A worker that has seen them
//!    obeys nothing until the newest of them that any worker still holds stands in the store again
//!    ([`rebase`] says why that is enough), under an epoch above every epoch that was seen.
//! 5. A new incarnation of a worker has no slot until an entry names its boot id, and a member
//!    leaves the entry only when it is neither owner nor `from` of any lane.
//!
//! # Why a writer knows every mapping that other members translate
//!
//! The last records of an owner may have reached some members and not others, and any member that
//! has received a mapping translates it. So a member that takes a lane after a fence takes the
//! copies of *all* other members before it writes, each by a move of its own (`then` names the
//! members whose moves follow). The lane has no writer meanwhile; the new owner can write its
//! reserve lane. With one survivor there is nothing to take.
//!
//! - A silent member may be cut off and still translate: the lane waits until that member is heard,
//!   or is fenced itself. If the member whose copy is being taken is fenced, all others are asked
//!   again, since it may have sent them records.
//! - An incarnation that takes the slot of an ended primary while no other member runs asks the
//!   silent members, too.
//!
//! # Which member should own a lane
//!
//! The primary owns every lane, except that a synced replica owns the lane of its slot, and keeps
//! it when it falls out of sync. Every transition only changes members; then each lane *at rest*
//! whose owner is not the rightful one begins to move. A lane that comes to rest with an owner that
//! is not rightful any more moves on.
//!
//! This module does not know which workers are alive: that is up to [`crate::allocate`].

mod check;
mod entry;
mod guest;
mod json;
mod rebase;
mod transition;

pub use check::Violation;
pub use entry::{LaneEntry, MEMBERS_MAX, Member, MemberState, Move, ShardEntry};
pub use json::EntryError;
pub use rebase::{Doubt, NoBase, Rebased, Stand, Witness, needs_rebase, rebase};
pub use transition::{Transition, TransitionRefusal};

#[cfg(test)]
mod transition_tests;
