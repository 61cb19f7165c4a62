//! The statements of a worker to the block log: the changes that the owner of a lane made to its
//! blocks.

use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

use crate::holding::Prefix64;

/// One statement of the owner of a lane.
///
/// `index` counts the statements of one ownership, 1, 2, 3, ..., in the order in which the worker
/// made them, including those that the log loses: a reader detects a loss by a gap in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// The operator's shard id.
    pub shard: u32,
    /// 0 to 7.
    pub lane: u8,
    /// Epoch of the shard's map entry since which the writer owns the lane; 0 on a standalone node.
    pub epoch: u64,
    pub index: u64,
    pub kind: BlockRecordKind,
}

/// Limits the size: it passes through a ring of 65,536 entries for each worker.
const _: () = assert!(size_of::<BlockRecord>() <= 80);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRecordKind {
    /// The worker starts to own the lane; a listing of the held blocks follows. Always index 1.
    Taken {
        /// Epoch of the previous ownership; `None` if the worker does not know it.
        before: Option<u64>,
    },
    /// The worker ceases to own the lane. A running process records this for every lane it loses,
    /// for any reason.
    Left,
    Allocated(AssignedBlock),
    Released(AssignedBlock),
    /// Part of a listing: the home holds the block at this time.
    Held {
        block: AssignedBlock,
        /// The time since which the home is known to have held it.
        since: Option<SystemTime>,
    },
    /// The home has claimed the prefix, and has flows from it in this lane.
    ///
    /// Two homes may hold one prefix at a time: workers that did not reach each other may each have
    /// let one in.
    PrefixClaimed(PrefixClaim),
    PrefixReleased(PrefixClaim),
    /// Part of a listing: the home holds the prefix at this time.
    PrefixHeld(PrefixClaim),
    /// A listing is complete. Each block or prefix that was held when it began, and still is, has a
    /// statement with an index above `from` and below this one; every other one of the lane was
    /// free when it began.
    Listed {
        /// Number of blocks and prefixes that the listing names.
        blocks: u32,
        /// Index of the last statement before the listing; 1 for a listing after `Taken`.
        from: u64,
        /// Whether the worker records a claim in each lane with flows of it: prefixes, and without
        /// translation addresses. False in lines of an earlier version, which recorded those of
        /// all lanes in lane 0, also those that another worker let in.
        are_claims_by_lane: bool,
    },
}

/// A port block and the home that it is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignedBlock {
    /// Outer source address in gre mode, inside address in plain mode.
    pub subscriber: IpAddr,
    /// Present if the key is part of the subscriber's identity.
    pub gre_key: Option<u32>,
    pub public: Ipv4Addr,
    pub port_first: u16,
    /// Inclusive.
    pub port_last: u16,
}

/// A /64 of IPv6 addresses and the home that has claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixClaim {
    /// Outer source address.
    pub subscriber: IpAddr,
    /// Present if the key is part of the subscriber's identity.
    pub gre_key: Option<u32>,
    pub prefix: Prefix64,
}

/// One incarnation of a node's process, as its log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLife<'a> {
    pub node: &'a str,
    /// Drawn at random when the process starts.
    pub boot: u128,
    /// True for a member of a cluster: its blocks may continue on another node when it ends.
    pub is_clustered: bool,
}
