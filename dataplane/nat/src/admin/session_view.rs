//! An operator's view of sessions and subscribers.

use weir_ids::ShardId;
use weir_rules::FlowClass;

use crate::endpoint::{Endpoint, Protocol, ShardIndex};
use crate::sessions::session_state::SessionPhase;

/// Which sessions to list; `None` matches all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Outer address of the home.
    pub subscriber: Option<u32>,
    pub inside: Option<EndpointRange>,
    /// One endpoint alone is looked up in the index; others are searched for.
    pub public: Option<EndpointRange>,
    pub remote: Option<EndpointRange>,
    pub protocol: Option<Protocol>,
    /// One of [`SESSION_STATES`].
    pub state: Option<&'static str>,
    /// Least age of the mapping.
    pub age_min_sec: Option<u32>,
    /// Greatest age of the mapping.
    pub age_max_sec: Option<u32>,
}

impl SessionFilter {
    pub(crate) fn public_endpoint(&self) -> Option<Endpoint> {
        self.public.and_then(|range| range.single())
    }
}

/// Endpoints of a network, with any port or with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRange {
    pub network: u32,
    /// Bits of an address that must be those of `network`.
    pub mask: u32,
    pub port: Option<u16>,
}

impl From<Endpoint> for EndpointRange {
    /// This endpoint alone.
    fn from(endpoint: Endpoint) -> Self {
        Self { network: endpoint.address, mask: u32::MAX, port: Some(endpoint.port) }
    }
}

impl EndpointRange {
    /// Returns the endpoint, if the range is one endpoint alone.
    pub(crate) fn single(&self) -> Option<Endpoint> {
        let port = self.port.filter(|_| self.mask == u32::MAX)?;
        Some(Endpoint::new(self.network, port))
    }

    pub(crate) fn has(&self, endpoint: Endpoint) -> bool {
        endpoint.address & self.mask == self.network & self.mask
            && self.port.is_none_or(|port| port == endpoint.port)
    }
}

/// All values of [`SessionView::state`].
pub const SESSION_STATES: [&str; SessionPhase::COUNT] = {
    let mut names = [""; SessionPhase::COUNT];
    let mut at = 0;
    while at < SessionPhase::COUNT {
        names[at] = SessionPhase::ALL[at].name();
        at += 1;
    }
    names
};

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
    /// The destination that the home asks, if a rule gave the flow another one: `remote`.
    pub asked: Option<Endpoint>,
    /// `established`, `syn-sent`, ..., `one-way` and `stream` (UDP), `query` (ICMP).
    pub state: &'static str,
    /// Seconds since the mapping was made.
    pub age_sec: u32,
    /// Seconds since the last packet that counts.
    pub idle_sec: u32,
    /// Idle time in seconds at which it ends.
    pub timeout_sec: u32,
    pub class: FlowClass,
}

/// A home that holds state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberView {
    pub shard: ShardId,
    pub outer: u32,
    pub gre_key: Option<u32>,
    /// The paired address; None without translation.
    pub public_address: Option<u32>,
    /// First and last port of each block, with the block's address: with soft pooling not all lie
    /// on `public_address`.
    pub blocks: Vec<BlockView>,
    /// Leased ports of all protocols, those in quarantine included.
    pub ports_used: u32,
    /// Live mappings and ports in quarantine.
    pub mappings: u32,
    /// Mappings plus further sessions.
    pub flows: u32,
    /// Further sessions.
    pub sessions: u32,
    /// Number of blocks, also where `blocks` does not list them.
    pub blocks_held: u32,
    /// Flows that it may still begin in this second.
    pub new_flows_left: u32,
    /// Packets that would have begun flows, and were refused for want of room: the home, or all
    /// homes together, had reached a limit.
    pub refused_total: u32,
    pub limits: HomeLimits,
}

/// Limits of one home; `u32::MAX`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeLimits {
    /// Blocks that this worker may give it.
    pub blocks: u32,
    pub flows: u32,
    pub sessions: u32,
    pub new_flows_per_sec: u32,
}

/// A block of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockView {
    pub public_address: u32,
    pub port_first: u16,
    pub port_last: u16,
}

/// A piece of the answer to "which homes have this outer address, and what do they hold?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberPart {
    /// A home, without its blocks.
    Home(SubscriberView),
    /// A block of the last home.
    Block(BlockView),
}

/// Joins all pieces: returns their homes in order, each with its blocks sorted.
pub fn subscriber_views(parts: impl IntoIterator<Item = SubscriberPart>) -> Vec<SubscriberView> {
    let mut views: Vec<SubscriberView> = Vec::new();
    for part in parts {
        match part {
            SubscriberPart::Home(view) => views.push(view),
            SubscriberPart::Block(block) => {
                let view = views.last_mut().expect("a block follows its home");
                view.blocks.push(block);
            }
        }
    }
    for view in &mut views {
        view.blocks.sort_unstable();
        // Drops a block that moved in the list between two pieces and was shown twice.
        view.blocks.dedup();
    }
    views
}

/// Position from which a question about the homes of one outer address continues. It stays valid
/// while the tables change: a home that is there throughout is shown once. A home that is added or
/// removed meanwhile may be missing, and so may a block that is opened or given back meanwhile, or
/// that takes the slot of such a block in its home's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCursor {
    /// A shard, or a slot if keys tell homes apart.
    pub(crate) position: u32,
    /// Identity of the home that is being shown.
    pub(crate) home: Option<(ShardIndex, Option<u32>)>,
    /// Number of its blocks that were shown.
    pub(crate) blocks: u32,
}

/// Position from which a listing continues. It stays valid while the tables change: a session that
/// lives throughout is listed once, unless it became the first of its mapping meanwhile.
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
