//! What a worker has to do for a shard now.

use weir_ids::{Epoch, Incarnation};

use super::metric::Metric;
use crate::lane::LaneSet;
use crate::map::Transition;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    None,
    /// A replica whose initial copy is under way.
    Syncing,
    /// A replica that needs a new copy.
    OutOfSync,
    /// A replica with a full copy that follows.
    Synced,
    /// A synced replica that serves since the primary is silent.
    Acting,
    Primary,
    /// No member any more, but switches may still send: hits are served, misses redirected.
    Leaving,
}

/// What becomes of a packet from inside without a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misses {
    /// A mapping is created in a lane of one's own.
    Create,
    /// The packet goes to this worker, once.
    Redirect(Incarnation),
    Refuse,
}

/// A lane to be given: flush its stream to the end, then send `GRANT(lane, since, sequence)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub lane: usize,
    /// Epoch of the entry that began the move.
    pub since: Epoch,
    pub to: Incarnation,
}

/// The duties of one worker for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duties {
    pub role: Role,
    /// Translate packets of known sessions.
    pub serves_hits: bool,
    /// Lanes to write: open blocks, create, expire, log. Nobody else writes them.
    pub lanes: LaneSet,
    pub misses: Misses,
    /// Routes of the shard, on both sides. None: withdrawn.
    pub metric: Option<Metric>,
    /// Lanes that this worker has stopped writing.
    pub grants: Vec<Grant>,
    /// Ask the primary for the initial copy.
    pub wants_copy: bool,
    /// The change of the entry that this worker wants, at the epoch it holds.
    pub write: Option<Transition>,
}

impl Duties {
    /// No role: what a worker begins with.
    pub const NONE: Self = Self {
        role: Role::None,
        serves_hits: false,
        lanes: LaneSet::EMPTY,
        misses: Misses::Refuse,
        metric: None,
        grants: Vec::new(),
        wants_copy: false,
        write: None,
    };
}
