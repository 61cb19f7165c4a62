//! The actions that a node wants carried out.

use weir_config::Desired;
use weir_etcd::{NodeRecord, Revision};
use weir_map::{ShardEntry, ShardId};
use weir_replication::WorkerCommand;
use weir_routes::{Fence, Route, Stake};

use crate::known_map::KnownMap;

/// Something to be carried out by the driver of the [`Core`](crate::Core), in this order for each
/// worker.
#[derive(Debug)]
pub enum CoreAction {
    /// A worker is to obey this command, after all earlier ones.
    Command { worker: usize, command: WorkerCommand },
    /// A shard's entry is to be written if it still has this revision.
    /// [`CoreEvent::Written`](crate::CoreEvent::Written) answers.
    Write { shard: ShardId, expected: Revision, entry: Box<ShardEntry> },
    /// These routes, sorted, are to be all the routes of a worker. `GuardReport::Set` or `NotSet`
    /// answers; no answer comes if the worker has been fenced since: it goes on and reports that,
    /// or its process ends.
    SetRoutes { worker: usize, number: u64, fence: Fence, routes: Vec<Route> },
    /// The loss to shards if a worker ends: it decides how long the guard may wait for one that
    /// hangs.
    SetStake { worker: usize, stake: Stake },
    /// The map is to be written to disk. [`CoreEvent::Saved`](crate::CoreEvent::Saved) answers;
    /// until then no other save follows.
    Save(Box<KnownMap>),
    /// The keys of etcd are to be mirrored, and the node registered with this record.
    Join(Box<NodeRecord>),
    /// The node's record is to be replaced by this one.
    Register(Box<NodeRecord>),
    /// The workers are to take the settings of the cluster that change at run time, as generation
    /// `number`, the revision of the settings in etcd. A driver may skip one that is replaced.
    TakeSettings { number: u64, desired: Box<Desired> },
    /// Nothing is left to be handed over, or it takes too long: the node may end.
    HandedOver,
    /// Follows [`CoreEvent::End`](crate::CoreEvent::End): the map is on disk. Next, routes are
    /// withdrawn and workers ended, and then the shutdown notice is sent
    /// ([`ShutdownNotice`](crate::shutdown_notice::ShutdownNotice)).
    Ended,
}
