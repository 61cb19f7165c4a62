//! The input of the allocator.

use weir_ids::{BootId, Incarnation, NodeId, ShardId, Term};

use crate::map::ShardEntry;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocateOptions {
    /// Copies of a shard beside the primary, 0 to 4.
    pub replicas: u8,
    /// Limit of copies under way, and of role changes of one plan, that do not answer a failure.
    pub moves_max: usize,
    /// Balance by load, not only by number.
    pub by_load: bool,
    /// Note which workers could not carry what the loss of a node would give them.
    pub room_for_loss: bool,
    /// A copy may move to another worker of its node: meanwhile two members of the shard are there.
    pub moves_within_nodes: bool,
}

impl Default for AllocateOptions {
    fn default() -> Self {
        Self {
            replicas: 1,
            moves_max: 64,
            by_load: false,
            room_for_loss: true,
            moves_within_nodes: true,
        }
    }
}

/// The state of a node, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// Registered.
    Alive,
    /// Registered, and about to end by itself: it keeps its copies, gives its roles away and gets
    /// none.
    Stopping,
    /// Its registration has expired, but some worker still hears it: no decision is based on it.
    Suspect,
    /// Its registration has expired, and no worker hears it. It may still run.
    Dead,
    /// It has certainly ended: the operator or a power switch says so.
    Fenced,
}

impl Liveness {
    /// True if the node runs and says so.
    pub fn is_registered(self) -> bool {
        matches!(self, Self::Alive | Self::Stopping)
    }

    /// True if the node runs, as far as any worker can say.
    pub fn runs(self) -> bool {
        matches!(self, Self::Alive | Self::Stopping | Self::Suspect)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: NodeId,
    /// None: nothing is known of racks.
    pub rack: Option<String>,
    pub liveness: Liveness,
    /// Whether the node is to be emptied.
    pub is_drained: bool,
    /// Whether the node keeps its shards but gets no more yet, unless the others are too few for
    /// all copies: it has restarted too often in a short time.
    pub is_on_trial: bool,
    /// Whether its workers have copies of shards that name only their former incarnations.
    pub has_copies: bool,
    /// The workers as the node registered them last.
    pub workers: Vec<WorkerView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    pub index: u16,
    pub boot_id: BootId,
    /// The former incarnation whose member slots the worker goes on with, while entries may still
    /// name that incarnation: for those entries it has not ended.
    pub resumes: Option<BootId>,
    /// Share relative to other workers. 0: none.
    pub weight: u32,
    /// Load that it can carry, in the unit of [`ShardView::load`]. None: not known.
    pub load_max: Option<u64>,
    /// Number of shards that it has room for, copies included. None: not known.
    pub shards_max: Option<u32>,
    /// Whether the worker runs, but one of its sides is down or no other worker hears it: its
    /// copies do not count. It keeps its member slots until its lanes are granted.
    pub is_cut_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    pub id: ShardId,
    /// None: the shard is still to be created.
    pub entry: Option<ShardEntry>,
    /// Packets per second, or flows: any unit that is the same for all shards.
    pub load: u64,
    pub acting: Option<Acting>,
}

/// A replica that reports itself as acting primary, in the term of the entry that it holds. A
/// report of an earlier term than the entry's is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    pub incarnation: Incarnation,
    pub term: Term,
}
