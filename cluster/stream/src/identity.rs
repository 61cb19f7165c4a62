//! Types of streams: a slab's lineage, a peer's index, a datagram's number, a stream's origin.

use serde::{Deserialize, Serialize};
use weir_ids::{Lane, PeerId};

/// A lineage: one uninterrupted history of one writer of a slab. Versions continue from lineage to
/// lineage only if the writer had all of the former one: otherwise they are not comparable, and a
/// worker with the slab of another lineage has to start again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lineage {
    /// A number that no other lineage of the slab has. 0: there is nothing.
    pub now: u64,
    /// The lineage that this one continues. 0: it began with nothing, or not with all.
    pub before: u64,
    /// Provenance of the copy.
    pub provenance: Provenance,
}

/// Provenance of a slab's copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// The worker that writes the slab or wrote it last, or one that stands in for it.
    #[default]
    Writer,
    /// A relay: one of several workers that heard the writer, each perhaps something else.
    Relay,
    /// A relay that does not have all of the lineage.
    PartialRelay,
}

impl Lineage {
    pub fn is_relayed(self) -> bool {
        self.provenance != Provenance::Writer
    }
}

/// A peer's index in the table of one [`StreamEndpoint`](crate::StreamEndpoint); reused after the
/// peer was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerIndex(pub u16);

impl PeerIndex {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Number of a datagram of a stream, from 1 in each epoch. 0: none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// Origin of a stream, as a receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The sender's index in the receiver's table.
    pub peer: PeerIndex,
    /// The sender.
    pub worker: PeerId,
    /// The lane of the stream.
    pub lane: Lane,
    /// The stream's epoch; 0: its former epoch is void.
    pub epoch: u32,
}
