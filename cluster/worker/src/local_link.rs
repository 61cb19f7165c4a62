//! A link in ordinary memory: for drivers that act as roles thread and guard themselves.

use std::collections::{BTreeSet, VecDeque};

use weir_map::ShardId;
use weir_nat::ShardIndex;
use weir_replication::{Replication, WorkerCommand, WorkerEvent};
use weir_stream::{PeerIndex, PeerSigns};

use crate::link::{PEERS_MAX, RolesLink};

/// Both ends of the link: the driver fills and empties its fields between turns.
#[derive(Debug)]
pub struct LocalLink {
    pub commands: VecDeque<WorkerCommand>,
    pub events: Vec<WorkerEvent>,
    /// The most events that `events` may hold; the worker keeps the rest.
    pub room: usize,
    /// Shards that had packets since the driver last looked.
    pub busy: BTreeSet<ShardId>,
    /// Heartbeat state of each peer, by its index, at the end of the last slot.
    pub signs: [Option<PeerSigns>; PEERS_MAX],
    /// Slots that have ended.
    pub slots: u64,
    /// Turns that have begun.
    pub beat: u64,
    /// Count of the guard's fences: raised when it declares the worker dead.
    pub fence: u32,
    /// The fence after which the worker went on, and how many packets had waited, until the driver
    /// takes it.
    pub rejoined: Option<(u32, usize)>,
    acknowledged: u32,
}

impl Default for LocalLink {
    fn default() -> Self {
        Self {
            commands: VecDeque::new(),
            events: Vec::new(),
            room: usize::MAX,
            busy: BTreeSet::new(),
            signs: [None; PEERS_MAX],
            slots: 0,
            beat: 0,
            fence: 0,
            rejoined: None,
            acknowledged: 0,
        }
    }
}

impl RolesLink for LocalLink {
    #[inline]
    fn beat(&mut self) {
        self.beat += 1;
    }

    #[inline]
    fn is_fenced(&self) -> bool {
        self.fence != self.acknowledged
    }

    fn rejoin(&mut self, waited: usize) {
        self.acknowledged = self.fence;
        self.rejoined = Some((self.fence, waited));
    }

    #[inline]
    fn is_ordered(&self) -> bool {
        !self.commands.is_empty()
    }

    fn next_command(&mut self) -> Option<WorkerCommand> {
        self.commands.pop_front()
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        self.events.len() < self.room
    }

    fn send_event(&mut self, event: WorkerEvent, _shard_index: Option<ShardIndex>) {
        self.events.push(event);
    }

    fn busy(&mut self, shard: ShardId) {
        self.busy.insert(shard);
    }

    fn signs(&mut self, peer: PeerIndex, signs: Option<PeerSigns>) {
        self.signs[usize::from(peer.0)] = signs;
    }

    fn end_slot(&mut self) {
        self.slots += 1;
    }

    fn report(&mut self, _replication: &Replication, _now_us: u64) {}
}
