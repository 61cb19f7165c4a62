//! What an operator sees of a session and of a subscriber.

use crate::endpoint::{Endpoint, Protocol, ShardId};

/// Which sessions to list; `None` matches all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Outer address of the home.
    pub subscriber: Option<u32>,
    pub public: Option<Endpoint>,
    pub remote: Option<Endpoint>,
}

/// A session: a mapping and one of its remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub shard: ShardId,
    /// Outer address of the home.
    pub outer: u32,
    pub gre_key: Option<u32>,
    pub protocol: Protocol,
    pub inside: Endpoint,
    pub public: Endpoint,
    pub remote: Endpoint,
    /// `established`, `syn-sent`, ..., `one-way` and `stream` (UDP), `query` (ICMP).
    pub state: &'static str,
    /// Since the mapping was made.
    pub age_sec: u32,
    /// Since the last packet that counts.
    pub idle_sec: u32,
    /// Idle time at which it ends.
    pub timeout_sec: u32,
}

/// A home that holds state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberView {
    pub shard: ShardId,
    pub outer: u32,
    pub gre_key: Option<u32>,
    /// The address it is seated on; None without translation.
    pub public_address: Option<u32>,
    /// First and last port of each block, with the block's address: with soft pooling not all lie
    /// on `public_address`.
    pub blocks: Vec<BlockView>,
    /// Ports taken, of all protocols, those in quarantine included.
    pub ports_used: u32,
    /// Live mappings and ports in quarantine.
    pub mappings: u32,
    /// Mappings plus further sessions.
    pub flows: u32,
}

/// A block of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockView {
    pub public_address: u32,
    pub port_first: u16,
    pub port_last: u16,
}

/// Where a listing goes on. It stays valid while the tables change: a session that lives throughout
/// is listed once, unless it became the first of its mapping meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCursor {
    pub(crate) stage: PageStage,
    pub(crate) slab: u32,
    pub(crate) slot: u32,
}

/// First sessions are listed from the mappings, then further sessions from their own table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PageStage {
    #[default]
    First,
    Further,
    Done,
}
