//! An operator's view of sessions and subscribers.

use ipnet::Ipv6Net;
use weir_ids::ShardId;
use weir_rules::FlowClass;

use crate::admin::home_selector::HomeView;
use crate::endpoint::{Endpoint, Home, Protocol};
use crate::ipv6::Endpoint6;
use crate::sessions::session_state::SessionPhase;

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

/// A session: a mapping and one of its remotes, or an IPv6 flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub shard: ShardId,
    pub home: HomeView,
    pub protocol: Protocol,
    pub ends: SessionEnds,
    /// `established`, `syn-sent`, ..., `one-way` and `stream` (UDP), `query` (ICMP).
    pub state: &'static str,
    /// Seconds since the mapping or the flow was made.
    pub age_sec: u32,
    /// Seconds since the last packet that counts.
    pub idle_sec: u32,
    /// Idle time in seconds at which it ends.
    pub timeout_sec: u32,
    pub class: FlowClass,
}

/// The endpoints of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEnds {
    Ipv4(SessionEnds4),
    Ipv6(SessionEnds6),
}

/// The endpoints of a session of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionEnds4 {
    pub inside: Endpoint,
    pub public: Endpoint,
    pub remote: Endpoint,
    /// The destination that the home asks, if a rule gave the flow another one: `remote`.
    pub asked: Option<Endpoint>,
}

/// The endpoints of an IPv6 flow, which are not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionEnds6 {
    pub inside: Endpoint6,
    pub remote: Endpoint6,
}

impl SessionView {
    /// Returns the endpoints of a session of IPv4.
    pub fn ipv4(&self) -> Option<SessionEnds4> {
        match self.ends {
            SessionEnds::Ipv4(ends) => Some(ends),
            SessionEnds::Ipv6(_) => None,
        }
    }

    /// Returns the endpoints of an IPv6 flow.
    pub fn ipv6(&self) -> Option<SessionEnds6> {
        match self.ends {
            SessionEnds::Ipv4(_) => None,
            SessionEnds::Ipv6(ends) => Some(ends),
        }
    }
}

/// A home that holds state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberView {
    pub shard: ShardId,
    pub home: HomeView,
    /// The paired address; None without translation.
    pub public_address: Option<u32>,
    /// First and last port of each block, with the block's address: with soft pooling not all lie
    /// on `public_address`.
    pub blocks: Vec<BlockView>,
    /// The prefixes that it has claimed ([`Delegation::Claim`](crate::Delegation::Claim)).
    pub claims: Vec<ClaimView>,
    /// Leased ports of all protocols, those in quarantine included.
    pub ports_used: u32,
    /// Live mappings and ports in quarantine.
    pub mappings: u32,
    /// Mappings plus further sessions, and IPv6 flows.
    pub flows: u32,
    /// Part of `flows`: IPv6 flows.
    pub flows6: u32,
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

/// An IPv6 prefix that a home has claimed, and that no other home may use meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimView {
    /// 64 bits.
    pub prefix: Ipv6Net,
    /// Its flows, copies included; 0: the claim rests, and ends with its hold time.
    pub flows: u32,
}

/// A piece of the answer to "which homes have this name, and what do they hold?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberPart {
    /// A home, without its blocks and claims.
    Home(SubscriberView),
    /// A block of the last home.
    Block(BlockView),
    /// A prefix of the last home.
    Claim(ClaimView),
}

/// Joins all pieces: returns their homes in order, each with its blocks and claims sorted.
///
/// # Panics
/// If the first piece is no home.
pub fn subscriber_views(parts: impl IntoIterator<Item = SubscriberPart>) -> Vec<SubscriberView> {
    let mut views: Vec<SubscriberView> = Vec::new();
    for part in parts {
        match part {
            SubscriberPart::Home(view) => views.push(view),
            SubscriberPart::Block(block) => last_of(&mut views).blocks.push(block),
            SubscriberPart::Claim(claim) => last_of(&mut views).claims.push(claim),
        }
    }
    for view in &mut views {
        view.blocks.sort_unstable();
        // Drops a block that moved in the list between two pieces and was shown twice.
        view.blocks.dedup();
        view.claims.sort_unstable();
    }
    views
}

fn last_of(views: &mut [SubscriberView]) -> &mut SubscriberView {
    views.last_mut().expect("what a home holds follows it")
}

/// Position from which a question about the homes of one name continues. It stays valid
/// while the tables change: a home that is there throughout is shown once. A home that is added or
/// removed meanwhile may be missing, and so may a block that is opened or given back meanwhile, or
/// that takes the slot of such a block in its home's list, and so may a prefix that is claimed
/// meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCursor {
    /// A shard, or a slot if keys tell homes apart; 0 for a home that is named by IPv6 addresses.
    pub(crate) position: u32,
    /// Identity of the home that is being shown.
    pub(crate) home: Option<Home>,
    /// Number of its blocks that were shown.
    pub(crate) blocks: u32,
    /// Once all blocks were shown: the slot from which its claims are looked for.
    pub(crate) claims: Option<u32>,
}

/// Position from which a listing continues. It stays valid while the tables change: a session that
/// lives throughout is listed once, unless it became the first of its mapping meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCursor {
    pub(crate) stage: PageStage,
    pub(crate) slab: u32,
    pub(crate) slot: u32,
}

/// First sessions and IPv6 flows are listed from the mappings, then further sessions from their own
/// table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PageStage {
    #[default]
    First,
    Further,
    Done,
}
