//! What a worker tells the block log.

use std::net::Ipv4Addr;

/// One port block given to a subscriber or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub kind: BlockEventKind,
    /// The operator's shard id.
    pub shard: u32,
    /// Outer source address in gre mode, inside address in plain mode.
    pub subscriber: Ipv4Addr,
    /// Given where the key is part of the subscriber's identity.
    pub gre_key: Option<u32>,
    pub public: Ipv4Addr,
    pub port_first: u16,
    /// Inclusive.
    pub port_last: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEventKind {
    Allocated,
    Released,
}
