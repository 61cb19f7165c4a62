//! The statements of a worker to the block log: what the owner of a lane did with its blocks.

use std::net::Ipv4Addr;
use std::time::SystemTime;

/// One statement of the owner of a lane.
///
/// `index` counts the statements of one ownership, 1, 2, 3, ..., in the order in which the worker decided them, those
/// that the log loses included: a gap in it is how a reader sees a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// The operator's shard id.
    pub shard: u32,
    /// 0 to 7.
    pub lane: u8,
    /// Epoch of the shard's map entry since which the writer owns the lane; 0 on a node of its own.
    pub epoch: u64,
    pub index: u64,
    pub kind: BlockEventKind,
}

/// It goes through a ring of 65,536 entries for each worker.
const _: () = assert!(size_of::<BlockEvent>() <= 72);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEventKind {
    /// The worker owns the lane from now on; a listing of what it holds follows. Always index 1.
    Taken {
        /// Epoch of the ownership before this one; `None` where the worker does not know it.
        before: Option<u64>,
    },
    /// The worker owns the lane no longer. A process that goes on says so of every lane it loses, however it lost it.
    Left,
    Allocated(Block),
    Released(Block),
    /// Part of a listing: the home holds the block now.
    Held {
        block: Block,
        /// The home is known to have held it since then.
        since: Option<SystemTime>,
    },
    /// A listing is complete. Each block that was held when it began, and still is, has a statement with an index
    /// above `from` and below this one; every other block of the lane was free when it began.
    Listed {
        /// Blocks that the listing names.
        blocks: u32,
        /// Index of the last statement before the listing; a listing after `Taken` has 1.
        from: u64,
    },
}

/// A port block and the home it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Outer source address in gre mode, inside address in plain mode.
    pub subscriber: Ipv4Addr,
    /// Given where the key is part of the subscriber's identity.
    pub gre_key: Option<u32>,
    pub public: Ipv4Addr,
    pub port_first: u16,
    /// Inclusive.
    pub port_last: u16,
}

/// One life of a node's process, as its log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLife<'a> {
    pub node: &'a str,
    /// Drawn at random when the process starts.
    pub boot: u128,
    /// A member of a cluster: what it has given out may go on with another node when it ends.
    pub is_clustered: bool,
}
