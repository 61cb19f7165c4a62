//! What the allocator is told.

use weir_ids::{BootId, Incarnation, NodeId, ShardId, Term};

use crate::map::ShardEntry;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocateOptions {
    /// Copies of a shard beside the primary, 0 to 4.
    pub replicas: u8,
    /// Copies under way, and role changes of one step, that are no answer to a failure.
    pub moves_max: usize,
    /// Balance by load, not only by number.
    pub by_load: bool,
    /// Say which workers could not carry what the loss of a node would give them.
    pub room_for_loss: bool,
    /// A copy may move to another worker of its node: for a while two members of the shard are there.
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

/// What is known of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// Registered.
    Alive,
    /// Registered, and about to end by itself: it keeps its copies, gives its roles away and gets none.
    Stopping,
    /// Its registration has expired, but some worker still hears it: nothing is decided on it.
    Suspect,
    /// Expired, and nobody hears it. It may still run.
    Dead,
    /// It has certainly ended: the operator or a power switch says so.
    Fenced,
}

impl Liveness {
    /// It runs, and says so.
    pub fn is_registered(self) -> bool {
        matches!(self, Self::Alive | Self::Stopping)
    }

    /// It runs, as far as anybody can say.
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
    /// It is to be emptied.
    pub is_drained: bool,
    /// It keeps what it has, and gets no more yet, unless the others are too few for all copies: it has come back so often
    /// lately.
    pub is_on_trial: bool,
    /// Its workers have copies of shards that only former lives of theirs are members of.
    pub has_copies: bool,
    /// As the node registered them last.
    pub workers: Vec<WorkerView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    pub index: u16,
    pub boot_id: BootId,
    /// The former life whose seats it goes on with, while entries may name that one: it has not ended as far as they go.
    pub resumes: Option<BootId>,
    /// Its share, relative to others. 0: none.
    pub weight: u32,
    /// What it can carry, in the unit of [`ShardView::load`]. None: not known.
    pub load_max: Option<u64>,
    /// Shards that it has room for, copies included. None: not known.
    pub shards_max: Option<u32>,
    /// It runs, but one of its sides is down, or no other worker hears it: what it holds counts as no copy. It keeps
    /// its seats until its lanes are granted.
    pub is_cut_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    pub id: ShardId,
    /// None: it is still to be created.
    pub entry: Option<ShardEntry>,
    /// Packets per second, or flows: any unit that is the same for all shards.
    pub load: u64,
    pub acting: Option<Acting>,
}

/// A replica that says it is acting primary, in the term of the entry that it holds. What is said
/// of an earlier term than the entry's is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    pub incarnation: Incarnation,
    pub term: Term,
}
