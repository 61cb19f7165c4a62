//! What [`Roles`](crate::Roles) want done, beside orders, and what they tell.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::role::{Metric, Role};
use weir_map::{Epoch, Incarnation, NodeId, ShardEntry, ShardId, Term, Transition};

use super::input::DesiredShard;

/// A change of an entry, to be written if the store's entry is still at this epoch. It is answered
/// by `Input::Written`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub shard: ShardId,
    pub at: Epoch,
    pub transition: Transition,
}

/// A shard's routes on both sides of a worker.
#[derive(Clone, Debug)]
pub struct WantedRoute {
    pub shard: Arc<DesiredShard>,
    pub metric: Metric,
    /// No other member has a full copy: half a path is better than none.
    pub is_last_copy: bool,
    /// The worker stands still again and again: a last resort for a while.
    pub is_held_off: bool,
}

/// What shards would lose with a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtStake {
    /// It is primary of a shard, or acts as one.
    pub is_serving: bool,
    /// Of such a shard no other node has a full copy.
    pub is_only_copy: bool,
}

/// What the controller asks a node for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Of the nodes that this one copies with: whether one of their workers is heard.
    pub hears: BTreeMap<NodeId, bool>,
    /// Of the shards that this node is primary of.
    pub loads: Vec<(ShardId, u64)>,
    /// Where a worker of this node acts as primary, in the term of the entry that it holds.
    pub acting: Vec<(ShardId, Incarnation, Term)>,
}

/// A worker's part in a shard.
#[derive(Clone, Debug)]
pub struct ShardStatus<'a> {
    pub shard: ShardId,
    /// Position of the worker.
    pub worker: usize,
    pub role: Role,
    /// When the role began.
    pub since_ms: u64,
    /// The entry that is obeyed: epoch, term, members and how complete their copies are.
    pub entry: Option<&'a ShardEntry>,
    pub metric: Option<Metric>,
    /// Its routes are in the kernel as wanted.
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
    /// The store has no entry of a shard that is desired; what was obeyed before still is.
    EntryGone,
    /// The entry names a former life of the worker.
    Guest,
    /// So it does, and all other members have come back, too: in so many seconds the worker resumes its seat, if its copies
    /// are complete by then.
    Resumes {
        in_sec: u64,
    },
    /// The file has changed: the worker serves it as it was, until it starts anew.
    OldSetup,
}

/// The store has forgotten what this node has seen of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetBack {
    /// The newest epoch that was seen here.
    pub known: Epoch,
    /// What the store has. None: nothing.
    pub offered: Option<Epoch>,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDesired => f.write_str("the cluster's file has no such shard"),
            Self::NoRoom(why) => write!(f, "the worker has no room for it: {why}"),
            Self::SetBack(SetBack { known, offered: Some(offered) }) => write!(
                f,
                "the store was set back to epoch {offered}, but {known} was seen here: no entry of it is obeyed"
            ),
            Self::SetBack(SetBack { known, offered: None }) => {
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

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// A worker began to act since it did not hear the primary.
    pub failovers_silence_total: u64,
    /// A worker became primary since the former one had certainly ended.
    pub failovers_fenced_total: u64,
    /// A worker became primary in place of one that is still a member.
    pub failovers_promoted_total: u64,
    /// Entries not obeyed: older than what was seen, or of a store that was set back.
    pub entries_refused_total: u64,
    /// A worker was fenced again and again, and its routes were held off.
    pub hold_offs_total: u64,
    /// Changes handed out to be written.
    pub changes_total: u64,
    /// Those of them that were not taken.
    pub changes_failed_total: u64,
}
