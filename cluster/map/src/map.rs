//! The map: what is held for each shard, and the only ways to change it.
//!
//! An entry names the members of a shard in rank order and, for each of its eight lanes, the
//! **owner** and, while the lane moves, **from** whom. Entries are replaced by compare and swap on
//! the epoch, so they form one history; workers see it late, with gaps, and never go back.
//!
//! # Why a lane never has two writers
//!
//! Whoever may write a lane is its owner or `from` in the *newest* entry, however old the entry is
//! that it holds itself:
//!
//! 1. *A move begins* (owner B, from A) only where A owned a lane at rest. A writes until it sees
//!    that entry, and then never again. B writes only after A's grant **of this move**: a grant
//!    names the epoch that the move began at, so that one of an earlier move is worth nothing.
//! 2. *A move ends* (owner B) when B itself writes so, having taken the grant. It cannot turn to a
//!    third: until then the lane has this owner and this `from`, and either may be the writer.
//! 3. *A fence* is the certainty that an incarnation has ended. Its lanes, and those that it was
//!    giving, go to the rightful owner, and the only other possible writer, if there is one, gives
//!    first. Without a fence the lanes of a silent owner are **frozen**: hits are translated,
//!    nothing is created.
//! 4. *The store is set back*: entries that were obeyed are gone. Who has seen them obeys nothing until
//!    the newest of them, as far as anybody holds it, stands there again ([`rebase`] says why that is
//!    enough), under an epoch above all that was seen.
//! 5. A new incarnation of a worker has no seat until an entry names its boot id, and a member
//!    leaves the entry only when it is neither owner nor `from` of any lane.
//!
//! # Why a writer knows all that others translate
//!
//! What an owner wrote last may have reached some members and not others, and any that has heard of
//! a mapping translates it. So who takes a lane after a fence takes the copies of *all* other members
//! before it writes, each by a move of its own, whose `from` never wrote (`then` names those that
//! follow). Nobody writes meanwhile; the taker has its reserve lane. With one survivor there is nothing
//! to take.
//!
//! - A member that is silent may be cut off and still translate: the lane waits until it is heard, or
//!   is fenced itself. If one of those asked is fenced, all others are asked again, as it may have
//!   given them something.
//! - Who sits down anew in the seat of the only one that had ended asks the silent members, too.
//!
//! # Who should own a lane
//!
//! The primary owns every lane, except that a synced replica owns the lane of its seat. Every
//! transition only changes members; then each lane *at rest* whose owner is not the rightful one
//! begins to move. A lane that comes to rest with an owner who was rightful once moves on.
//!
//! This module does not know who is alive: that is [`crate::allocate`]'s.

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
pub use transition::{Refused, Transition};

#[cfg(test)]
mod transition_tests;
