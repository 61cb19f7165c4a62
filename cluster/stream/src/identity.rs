//! Types of streams: a reign of a slab, a peer's place, a datagram's number, a stream's origin.

use serde::{Deserialize, Serialize};
use weir_ids::{Lane, PeerId};

/// The time in which one worker writes a slab. Versions go on from reign to reign only if the writer had all of the
/// reign before: otherwise they say nothing of each other, and who has the slab of another reign has to begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reign {
    /// A number that no other reign of the slab has. 0: there is nothing.
    pub now: u64,
    /// The reign that this one goes on from. 0: it began with nothing, or not with all.
    pub before: u64,
    /// Who tells of it.
    pub word: Word,
}

/// Whose word a copy of a slab is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Word {
    /// Of the worker that writes it or wrote it last, or of one that stands in for it.
    #[default]
    Writer,
    /// Of one of several that have heard the writer, each perhaps something else.
    PassedOn,
    /// The same, of one that has not all of the reign.
    PassedOnInPart,
}

impl Reign {
    pub fn is_passed_on(self) -> bool {
        self.word != Word::Writer
    }
}

/// A peer's place in the table of one [`Endpoint`](crate::Endpoint); used again after the peer was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerIndex(pub u16);

impl PeerIndex {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Number of a datagram of a stream, from 1 in each epoch. 0 = none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// Where a stream comes from, as a receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The sender's place in the receiver's table.
    pub peer: PeerIndex,
    /// The sender.
    pub worker: PeerId,
    /// The lane that the stream is about.
    pub lane: Lane,
    /// The stream's epoch; 0: its former epoch is void.
    pub epoch: u32,
}
