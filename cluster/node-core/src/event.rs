//! What a node is told: everything that its decisions depend on, but the time.
//!
//! All of it can be written down and read again ([`recording`](crate::recording)).

use serde::{Deserialize, Serialize};
use weir_etcd::{ClaimEvent, MirrorEvent, Outcome};
use weir_map::ShardId;
use weir_replication::News;
use weir_routes::{Fence, WorkerIndex};
use weir_stream::{PeerIndex, PeerSigns};

/// Something that happened. Workers are named by their positions on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The keys of the cluster, in etcd's order.
    Mirror(MirrorEvent),
    /// The node's own registration.
    Registration(Registration),
    /// To a node that started without etcd: etcd answers, and holds the cluster that the node knows, or the one of this id.
    ClusterFound(Result<(), String>),
    /// How the write of a shard's entry ended ([`Action::Write`](crate::Action::Write)).
    Written {
        shard: ShardId,
        how: Written,
    },
    /// A save of the map has ended ([`Action::Save`](crate::Action::Save)): on disk, or why not.
    Saved(Result<(), String>),
    Guard(GuardNews),
    News {
        worker: usize,
        news: News,
    },
    /// A worker that the guard took for dead goes on: its routes are to be set under this fence.
    Rejoined {
        worker: usize,
        fence: Fence,
        /// Packets that had waited in its rings.
        waited: usize,
    },
    /// A slot of 10 ms has ended: what each worker shows.
    Slot(Vec<WorkerSlot>),
    /// The node is asked to end: it hands over what others can serve ([`Action::HandedOver`](crate::Action::HandedOver)).
    HandOver,
    /// It ends now.
    End,
}

impl Event {
    /// Workers that a node must have to be told of it.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::News { worker, .. } | Self::Rejoined { worker, .. } => worker.saturating_add(1),
            Self::Guard(
                GuardNews::Set { worker, .. }
                | GuardNews::NotSet { worker, .. }
                | GuardNews::Fenced { worker },
            ) => usize::from(*worker) + 1,
            Self::Slot(workers) => workers.len(),
            _ => 0,
        }
    }
}

/// What a worker shows at the end of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSlot {
    /// Slots that it has ended itself. The same as before: it stands still, and knows nothing of its peers' silence.
    pub slots: u64,
    /// Signs of life of its peers, by their places.
    pub peers: Vec<(PeerIndex, PeerSigns)>,
    /// Shards that had packets.
    pub busy: Vec<ShardId>,
    /// Port and gateway of each side.
    pub is_access_up: bool,
    pub is_internet_up: bool,
}

/// What became of the node's registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    Held,
    /// etcd does not answer.
    Silent,
    /// The lease has ended, or somebody took the key away.
    Gone,
    /// Another process has the node's name.
    HeldByOther {
        boot_id: String,
    },
}

impl Registration {
    /// None: nothing that counts.
    pub fn of(event: &ClaimEvent) -> Option<Self> {
        Some(match event {
            ClaimEvent::Connected => return None,
            ClaimEvent::Held { .. } => Self::Held,
            ClaimEvent::Lost { .. } => Self::Silent,
            ClaimEvent::Expired | ClaimEvent::TakenAway => Self::Gone,
            ClaimEvent::HeldByOther { boot_id } => Self::HeldByOther { boot_id: boot_id.clone() },
        })
    }
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Written {
    Done,
    /// It was not, or perhaps: the entry tells.
    NotDone,
    /// etcd refuses it for good.
    Refused(String),
}

impl Written {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done(_) => Self::Done,
            Outcome::Refused(error) => Self::Refused(error.to_string()),
            _ => Self::NotDone,
        }
    }
}

/// What the guard of the routes did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardNews {
    /// The list of this number is in the kernel.
    Set { worker: WorkerIndex, number: u64 },
    /// It is there in part, or not at all; it is set again in a while.
    NotSet { worker: WorkerIndex, number: u64, why: String },
    /// The guard took the worker for dead: its routes are withdrawn.
    Fenced { worker: WorkerIndex },
    /// The guard stands still: a worker's end withdraws nothing. It goes on, or is replaced.
    Silent,
    /// The guard goes on.
    Awake,
    /// There is no guard, and no route is announced.
    Absent { why: String },
    /// Another guard runs, or what it could not do.
    Said { text: String },
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use weir_etcd::Revision;

    use super::*;

    #[test]
    fn an_end_of_the_lease_and_a_deleted_key_unregister_the_node_and_silence_does_not() {
        assert_eq!(Registration::of(&ClaimEvent::Connected), None);
        let held = ClaimEvent::Held { create_revision: Revision(7) };
        assert_eq!(Registration::of(&held), Some(Registration::Held));
        let lost = ClaimEvent::Lost { since: Instant::now() };
        assert_eq!(Registration::of(&lost), Some(Registration::Silent));
        for gone in [ClaimEvent::Expired, ClaimEvent::TakenAway] {
            assert_eq!(Registration::of(&gone), Some(Registration::Gone));
        }
    }
}
