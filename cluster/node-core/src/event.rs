//! The events of a node: everything that its decisions depend on, except the time.
//!
//! All events can be written down and read again ([`recording`](crate::recording)).

use serde::{Deserialize, Serialize};
use weir_etcd::{ClaimEvent, MirrorEvent, Outcome};
use weir_map::ShardId;
use weir_replication::WorkerEvent;
use weir_routes::{Fence, WorkerIndex};
use weir_stream::{PeerIndex, PeerSigns};

/// An event. Workers are named by their indices on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreEvent {
    /// The keys of the cluster, in etcd's order.
    Mirror(MirrorEvent),
    /// The node's own registration.
    Registration(Registration),
    /// For a node that started without etcd: etcd answers, and holds the cluster that the node
    /// knows, or the one of this id.
    ClusterFound(Result<(), String>),
    /// The result of the write of a shard's entry
    /// ([`CoreAction::Write`](crate::CoreAction::Write)).
    Written {
        shard: ShardId,
        how: WriteResult,
    },
    /// A save of the map has ended ([`CoreAction::Save`](crate::CoreAction::Save)): it is on disk,
    /// or failed for this reason.
    Saved(Result<(), String>),
    Guard(GuardReport),
    Worker {
        worker: usize,
        event: WorkerEvent,
    },
    /// A worker that the guard counted as dead goes on: its routes are to be set under this fence.
    Rejoined {
        worker: usize,
        fence: Fence,
        /// Packets that had waited in its rings.
        waited: usize,
    },
    /// A slot of 10 ms has ended: what each worker shows.
    Slot(Vec<WorkerSlot>),
    /// The node is asked to end: it hands over what other nodes can serve
    /// ([`CoreAction::HandedOver`](crate::CoreAction::HandedOver)).
    HandOver,
    /// The node ends now.
    End,
}

impl CoreEvent {
    /// Returns the number of workers that a node must have to be handed the event.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::Worker { worker, .. } | Self::Rejoined { worker, .. } => worker.saturating_add(1),
            Self::Guard(
                GuardReport::Set { worker, .. }
                | GuardReport::NotSet { worker, .. }
                | GuardReport::Fenced { worker },
            ) => usize::from(*worker) + 1,
            Self::Slot(workers) => workers.len(),
            _ => 0,
        }
    }
}

/// The state that a worker shows at the end of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSlot {
    /// Slots that it has ended itself. If the number is the same as before, it stalls, and knows
    /// nothing of its peers' silence.
    pub slots: u64,
    /// Heartbeats of its peers, by their indices.
    pub peers: Vec<(PeerIndex, PeerSigns)>,
    /// Shards that had packets.
    pub busy: Vec<ShardId>,
    /// Port and gateway of each side.
    pub is_access_up: bool,
    pub is_internet_up: bool,
}

/// The state of the node's registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    Held,
    /// etcd does not answer.
    Silent,
    /// The lease has ended, or the key was deleted.
    Gone,
    /// Another process has the node's name.
    HeldByOther {
        boot_id: String,
    },
}

impl Registration {
    /// Returns the registration that an event reports, or `None` if it reports none.
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

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteResult {
    Done,
    /// The entry was not written, or perhaps it was: the entry itself shows that.
    NotDone,
    /// etcd refuses the write permanently.
    Refused(String),
}

impl WriteResult {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done(_) => Self::Done,
            Outcome::Refused(error) => Self::Refused(error.to_string()),
            _ => Self::NotDone,
        }
    }
}

/// Events of the guard of the routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuardReport {
    /// The list of this number is in the kernel.
    Set { worker: WorkerIndex, number: u64 },
    /// The list is there in part, or not at all; it is set again in a while.
    NotSet { worker: WorkerIndex, number: u64, why: String },
    /// The guard counted the worker as dead: its routes are withdrawn.
    Fenced { worker: WorkerIndex },
    /// The guard stalls: a worker's end withdraws nothing. It goes on, or is replaced.
    Silent,
    /// The guard goes on.
    Awake,
    /// There is no guard, and no route is announced.
    Absent { why: String },
    /// Another guard runs, or this one reports what it could not do.
    Log { text: String },
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
