//! The duties of a worker for a shard.

use weir_ids::Incarnation;
use weir_wire::Misses;

use super::metric::Metric;
use weir_map::Transition;
use weir_map::{Grant, LaneSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    None,
    /// A replica whose initial copy is under way.
    Syncing,
    /// A replica that needs a new copy.
    OutOfSync,
    /// A replica with a full copy that follows the changes.
    Synced,
    /// A synced replica that serves since the primary is silent.
    Acting,
    Primary,
    /// Not a member any more, but switches may still send: hits are served, misses redirected.
    Leaving,
}

/// The duties of one worker for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duties {
    pub role: Role,
    /// Lanes to write: open blocks, create, expire, log. No other worker writes them.
    pub lanes: LaneSet,
    pub misses: Misses<Incarnation>,
    /// Routes of the shard, on both sides. None: withdrawn.
    pub metric: Option<Metric>,
    /// Lanes that this worker has stopped writing.
    pub grants: Vec<Grant<Incarnation>>,
    /// The change of the entry that this worker wants, at the epoch that it holds.
    pub write: Option<Transition>,
}

impl Duties {
    /// The duties without a role, with which a worker begins.
    pub const NONE: Self = Self {
        role: Role::None,
        lanes: LaneSet::EMPTY,
        misses: Misses::Refuse,
        metric: None,
        grants: Vec::new(),
        write: None,
    };

    /// True if packets of known sessions are translated: in every role.
    pub fn serves_hits(&self) -> bool {
        self.role != Role::None
    }
}
