//! The output of [`Roles`](crate::Roles) besides commands: changes, routes, reports.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::role::{Metric, Role};
use weir_map::{Epoch, Incarnation, NodeId, ShardEntry, ShardId, Term, Transition};

use super::input::DesiredShard;

/// A change of an entry, to be written if the store's entry is still at this epoch. It is answered
/// by `RolesInput::Written`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    pub shard: ShardId,
    pub at: Epoch,
    pub transition: Transition,
}

/// A shard's routes on both sides of a worker.
#[derive(Clone, Debug)]
pub struct WantedRoute {
    pub shard: Arc<DesiredShard>,
    pub metric: Metric,
    /// Whether no other member has a full copy: half a path is better than none.
    pub is_last_copy: bool,
    /// Whether the worker stalls again and again: its route is a last resort for a while.
    pub is_held_off: bool,
}

/// The loss to shards if a worker ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtStake {
    /// Whether the worker is primary of a shard, or acts as one.
    pub is_serving: bool,
    /// Whether no other node has a full copy of such a shard.
    pub is_only_copy: bool,
}

/// A node's answer to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolesReport {
    /// By node that this one copies with: whether one of its workers is heard.
    pub hears: BTreeMap<NodeId, bool>,
    /// Loads of the shards that this node is primary of.
    pub loads: Vec<(ShardId, u64)>,
    /// Shards in which a worker of this node acts as primary, in the term of the entry that it
    /// holds.
    pub acting: Vec<(ShardId, Incarnation, Term)>,
}

/// The state of a worker's shard role.
#[derive(Clone, Debug)]
pub struct ShardRoleStatus<'a> {
    pub shard: ShardId,
    /// Index of the worker.
    pub worker: usize,
    pub role: Role,
    /// When the role began.
    pub since_ms: u64,
    /// The entry that is obeyed: epoch, term, members and how complete their copies are.
    pub entry: Option<&'a ShardEntry>,
    pub metric: Option<Metric>,
    /// Whether its routes are in the kernel as wanted.
    pub is_route_out: bool,
    pub trouble: Option<Trouble>,
}

/// Why a shard is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The entry names a worker here, but the cluster's file has no such shard.
    NotDesired,
    NoRoom(String),
    SetBack(SetBack),
    /// The store has no entry of a desired shard; the entry obeyed before still is.
    EntryGone,
    /// The entry names a former incarnation of the worker.
    Guest,
    /// As `Guest`, and all other members have come back, too: in this many seconds the worker
    /// resumes its member slot, if its copies are complete by then.
    Resumes {
        in_sec: u64,
    },
    /// The file has changed: the worker serves the shard by the old setup until it restarts.
    OldSetup,
}

/// The store has forgotten what this node has seen of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetBack {
    /// The newest epoch that was seen here.
    pub known: Epoch,
    /// The epoch that the store has. None: it has no entry.
    pub stored: Option<Epoch>,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDesired => f.write_str("the cluster's file has no such shard"),
            Self::NoRoom(why) => write!(f, "the worker has no room for it: {why}"),
            Self::SetBack(SetBack { known, stored: Some(stored) }) => write!(
                f,
                "the store was set back to epoch {stored}, but {known} was seen here: no entry of it is obeyed"
            ),
            Self::SetBack(SetBack { known, stored: None }) => {
                write!(
                    f,
                    "the store was set back and has no entry, but epoch {known} was seen here"
                )
            }
            Self::EntryGone => f.write_str("its entry is gone from the store; served as before"),
            Self::Guest => f.write_str(
                "the map names it as it was before its start: it translates copies and makes no new flows",
            ),
            Self::Resumes { in_sec } => write!(
                f,
                "all its members have come back without the store: it makes new flows in {in_sec} s, when its ports are free for certain"
            ),
            Self::OldSetup => f.write_str("the cluster's file has changed: restart to serve it so"),
        }
    }
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolesCounters {
    /// Takeovers by a worker that acts because it does not hear the primary.
    pub failovers_silence_total: u64,
    /// Takeovers by a worker that became primary after the former one had certainly ended.
    pub failovers_fenced_total: u64,
    /// Takeovers by a worker that became primary in place of one that is still a member.
    pub failovers_promoted_total: u64,
    /// Entries not obeyed: older than what was seen, or of a store that was set back.
    pub entries_refused_total: u64,
    /// Times that a worker was fenced again and again, and its routes were held off.
    pub hold_offs_total: u64,
    /// Changes handed out to be written.
    pub changes_total: u64,
    /// Handed-out changes that were not taken.
    pub changes_failed_total: u64,
}
