//! The worker thread's end of its link with the roles thread and the guard: commands in, events and
//! heartbeats out.
//!
//! The reports at the end of each slot go through rings and gauges that never make the worker wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rtrb::{Consumer, Producer, RingBuffer};
use weir_map::ShardId;
use weir_nat::ShardIndex;
use weir_replication::{Replication, WorkerCommand, WorkerEvent};
use weir_routes::Heartbeat;
use weir_stream::{PeerIndex, PeerSigns};
use weir_worker::{ClusterMember, PEERS_MAX, RolesLink};

use super::inbox::WorkerSender;
use crate::worker_stats::Gauge;

/// A worker's view of its peers, written by that worker alone.
#[derive(Debug)]
pub(crate) struct WorkerSigns {
    /// Heartbeats of each peer as the worker has last seen them, by the peer's index.
    peers: [PeerGauges; PEERS_MAX],
    /// Slots that have ended.
    pub slots: Gauge,
}

/// [`PeerSigns`] of one peer; `u64::MAX` means none. The gauges are stored one by one: a reader may
/// find one of them older than another by a slot.
#[derive(Debug)]
struct PeerGauges {
    silent_ms: Gauge,
    seen_ms: Gauge,
    is_witness: Gauge,
}

impl PeerGauges {
    /// Returns the gauges of an index without a peer.
    fn none() -> Self {
        let it = Self {
            silent_ms: Gauge::default(),
            seen_ms: Gauge::default(),
            is_witness: Gauge::default(),
        };
        it.set(None);
        it
    }

    fn set(&self, signs: Option<PeerSigns>) {
        self.silent_ms.set(signs.map_or(u64::MAX, |it| it.silent_ms));
        self.seen_ms.set(signs.and_then(|it| it.seen_ms).unwrap_or(u64::MAX));
        self.is_witness.set(signs.map_or(0, |it| it.is_witness.into()));
    }

    fn get(&self) -> Option<PeerSigns> {
        let some = |gauge: &Gauge| Some(gauge.get()).filter(|&value| value < u64::MAX);
        Some(PeerSigns {
            silent_ms: some(&self.silent_ms)?,
            seen_ms: some(&self.seen_ms),
            is_witness: self.is_witness.get() != 0,
        })
    }
}

impl WorkerSigns {
    fn none() -> Self {
        let peers = std::array::from_fn(|_| PeerGauges::none());
        Self { peers, slots: Gauge::default() }
    }

    /// Returns the heartbeats of the peers, each with its index.
    pub(super) fn peers(&self) -> impl Iterator<Item = (PeerIndex, PeerSigns)> {
        let peers = (0..).map(PeerIndex).zip(&self.peers);
        peers.filter_map(|(peer_index, gauges)| Some((peer_index, gauges.get()?)))
    }
}

/// The cluster side of a worker, with its link.
pub(crate) type ThreadMember = ClusterMember<ThreadLink>;

/// The end of the link in the worker's thread.
#[derive(Debug)]
pub(crate) struct ThreadLink {
    worker: usize,
    heartbeat: Heartbeat,
    commands: Receiver<WorkerCommand>,
    is_ordered: Arc<AtomicBool>,
    inbox: WorkerSender,
    signs: Arc<WorkerSigns>,
    /// Numbers of the shards that had packets in a slot.
    busy: Producer<u32>,
}

/// The end of the link outside the worker's thread.
#[derive(Debug)]
pub(super) struct WorkerLink {
    commands: Sender<WorkerCommand>,
    is_ordered: Arc<AtomicBool>,
    pub(super) signs: Arc<WorkerSigns>,
    pub(super) busy: Consumer<u32>,
}

/// Creates both ends of a worker's link. `shards_max`: shards that the worker has room for.
pub(super) fn thread_member(
    worker: usize,
    replication: Replication,
    heartbeat: Heartbeat,
    inbox: WorkerSender,
    shards_max: usize,
) -> (ThreadMember, WorkerLink) {
    // Commands are differences, so none may be left out; their number follows the changes of the
    // map.
    let (orders_in, commands) = channel();
    let is_ordered = Arc::new(AtomicBool::new(false));
    let signs = Arc::new(WorkerSigns::none());
    // Room for a few slots: the other end empties the ring once a slot.
    let (busy, busy_out) = RingBuffer::new(4 * shards_max + 64);
    let link = ThreadLink {
        worker,
        heartbeat,
        commands,
        is_ordered: Arc::clone(&is_ordered),
        inbox,
        signs: Arc::clone(&signs),
        busy,
    };
    let outside = WorkerLink { commands: orders_in, is_ordered, signs, busy: busy_out };
    (ClusterMember::new(replication, link), outside)
}

impl WorkerLink {
    /// Sends a command to the worker; one that has ended ignores it.
    pub(super) fn command(&self, command: WorkerCommand) {
        let _ = self.commands.send(command);
        self.is_ordered.store(true, Ordering::Release);
    }

    /// Returns a link, and the commands that a test sends over it.
    #[cfg(test)]
    pub(super) fn for_test() -> (Self, Receiver<WorkerCommand>) {
        let (commands, taken) = channel();
        let signs = Arc::new(WorkerSigns::none());
        let busy = RingBuffer::new(1).1;
        (Self { commands, is_ordered: Arc::default(), signs, busy }, taken)
    }
}

impl ThreadLink {
    /// Lets the guard see the end of the thread at once. Must be called by the worker's thread
    /// before its first turn.
    pub(crate) fn begin(&self) {
        if let Err(error) = self.heartbeat.begin() {
            tracing::warn!(
                event = "end-not-reported",
                worker = self.worker,
                %error,
                "if this thread ends, the guard will notice by its silence only"
            );
        }
    }
}

impl RolesLink for ThreadLink {
    #[inline]
    fn beat(&mut self) {
        self.heartbeat.beat();
    }

    #[inline]
    fn is_fenced(&self) -> bool {
        self.heartbeat.is_fenced()
    }

    #[cold]
    fn rejoin(&mut self, waited: usize) {
        let fence = self.heartbeat.acknowledge();
        self.inbox.rejoined(fence, waited);
    }

    #[inline]
    fn is_ordered(&self) -> bool {
        self.is_ordered.load(Ordering::Relaxed)
    }

    fn next_command(&mut self) -> Option<WorkerCommand> {
        // Cleared before the check, so that a command sent meanwhile sets it again.
        self.is_ordered.swap(false, Ordering::AcqRel);
        let command = self.commands.try_recv().ok()?;
        self.is_ordered.store(true, Ordering::Release);
        Some(command)
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        self.inbox.has_room()
    }

    fn send_event(&mut self, event: WorkerEvent, shard_index: Option<ShardIndex>) {
        self.inbox.send_event(event, shard_index);
    }

    fn busy(&mut self, shard: ShardId) {
        // If the ring is full, the roles thread has not read it for several slots; a shard that
        // stays busy is reported again in a later slot.
        let _ = self.busy.push(shard.0);
    }

    fn signs(&mut self, peer_index: PeerIndex, signs: Option<PeerSigns>) {
        self.signs.peers[usize::from(peer_index.0)].set(signs);
    }

    fn end_slot(&mut self) {
        self.signs.slots.set(self.signs.slots.get() + 1);
    }

    fn report(&mut self, replication: &Replication, now_us: u64) {
        // A report that finds the lock taken is dropped: the next one comes in a second.
        let _ = self.inbox.report(Box::new(replication.status(now_us)));
    }
}
