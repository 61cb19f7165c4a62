//! The messages to the roles thread, and the channels for them. All are bounded, and only the
//! mirror's task ever waits for room.
//!
//! ```text
//!   worker -------- ring of events (full: the worker keeps and merges them by shard and peer) --+
//!          -------- newest report of its copies ------------------------------------------------+
//!   etcd mirror --- queue (full: the mirror's task waits, and etcd keeps later changes) --------+
//!   all others ---- one slot for each state (newer replaces older); short list of guard events -+
//!                                                                                               v
//!                                                                                    roles thread
//! ```
//!
//! `node-core/src/waiting.rs` decides which notice replaces which, which events are lost, and the
//! order between the channels; this file has the threads, locks and rings around it. So a roles
//! thread that has stalled finds the newest state of everything when it goes on, and memory does
//! not grow meanwhile.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, PushError, RingBuffer};
use tokio::sync::mpsc;
use weir_etcd::MirrorEvent;
use weir_nat::ShardIndex;
use weir_node_core::{CoreEvent, InTurn, Notices, StallEnd};
use weir_replication::ReplicationReport;
use weir_replication::WorkerEvent;
use weir_routes::Fence;
use weir_stream::ClusterKeys;

use super::bird_thread::BirdSide;

pub(crate) use weir_node_core::Notice;

/// Most events of a worker that wait in its ring.
const WORKER_EVENTS_MAX: usize = 1024;
/// Most events of etcd that wait, besides those in the mirror's own queue.
const ETCD_EVENTS_MAX: usize = 1024;

/// A message to the roles thread.
#[derive(Debug)]
pub(crate) enum Inbox {
    /// An event that goes to the core unchanged.
    Event(CoreEvent),
    /// How BIRD announces each side, in the state in effect; twice a second if BIRD is watched.
    Bird(Vec<BirdSide>),
    Worker {
        worker: usize,
        event: WorkerEvent,
        /// The index of a shard that was added.
        shard_index: Option<ShardIndex>,
    },
    /// State of a worker's copies, once a second.
    Replication { worker: usize, status: Box<ReplicationReport> },
    /// The new keys of replication, or the reason why the former ones stay in use.
    Keys(Result<ClusterKeys, String>),
}

/// The inbox has no reader any more, because the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// The waiting messages of all threads but the workers and the mirror of etcd.
#[derive(Debug, Default)]
struct WaitingInputs {
    notices: Notices,
    /// How BIRD announces each side, if that was reported since the last read.
    bird: Option<Vec<BirdSide>>,
    keys: Option<Result<ClusterKeys, String>>,
}

impl WaitingInputs {
    fn pop(&mut self) -> Option<Inbox> {
        if let Some(sides) = self.bird.take() {
            return Some(Inbox::Bird(sides));
        }
        if let Some(keys) = self.keys.take() {
            return Some(Inbox::Keys(keys));
        }
        self.notices.pop().map(CoreEvent::from).map(Inbox::Event)
    }
}

#[derive(Debug, Default)]
struct InboxShared {
    /// Locked for one insertion or removal at a time; never by a worker.
    waiting: Mutex<WaitingInputs>,
    /// The thread that reads, once it does.
    reader: OnceLock<Thread>,
    is_gone: AtomicBool,
    lost_total: AtomicU64,
}

impl InboxShared {
    fn waiting(&self) -> MutexGuard<'_, WaitingInputs> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a reader that sleeps; one that does not will look again. Takes no lock.
    fn wake(&self) {
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}

/// The channel of all threads but the workers.
#[derive(Clone, Debug)]
pub(crate) struct InboxSender {
    shared: Arc<InboxShared>,
    etcd: mpsc::Sender<MirrorEvent>,
}

impl InboxSender {
    /// # Errors
    /// When the inbox has no reader any more.
    pub(crate) fn send(&self, notice: Notice) -> Result<(), Gone> {
        self.put(|waiting| waiting.notices.push(notice))
    }

    /// Reports how BIRD announces each side.
    ///
    /// # Errors
    /// When the inbox has no reader any more.
    pub(crate) fn send_bird(&self, sides: Vec<BirdSide>) -> Result<(), Gone> {
        self.put(|waiting| {
            waiting.bird = Some(sides);
            false
        })
    }

    /// Sends the new keys of replication, or the reason why the former ones stay in use.
    ///
    /// # Errors
    /// When the inbox has no reader any more.
    pub(crate) fn send_keys(&self, keys: Result<ClusterKeys, String>) -> Result<(), Gone> {
        self.put(|waiting| {
            waiting.keys = Some(keys);
            false
        })
    }

    /// Changes what waits; `put` returns whether it lost an event.
    fn put(&self, put: impl FnOnce(&mut WaitingInputs) -> bool) -> Result<(), Gone> {
        if self.shared.is_gone.load(Ordering::Relaxed) {
            return Err(Gone);
        }
        if put(&mut self.shared.waiting()) {
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake();
        Ok(())
    }

    /// Sends an event of the mirror and waits for room. Only the mirror's task may wait, because
    /// etcd keeps later changes meanwhile.
    ///
    /// # Errors
    /// When the inbox has no reader any more.
    pub(crate) async fn send_etcd(&self, event: MirrorEvent) -> Result<(), Gone> {
        self.etcd.send(event).await.map_err(|_| Gone)?;
        self.shared.wake();
        Ok(())
    }
}

/// A message of a worker that is not replaced by a later one.
#[derive(Debug)]
enum FromWorker {
    WorkerEvent { event: WorkerEvent, shard_index: Option<ShardIndex> },
    Rejoined { fence: Fence, waited: usize },
}

/// The slot of a worker's newest report. Each side only tries to lock it.
type ReportSlot = Arc<Mutex<Option<Box<ReplicationReport>>>>;

/// The channel of a worker, which never waits for room or for a lock.
#[derive(Debug)]
pub(crate) struct WorkerSender {
    shared: Arc<InboxShared>,
    ring: Producer<FromWorker>,
    report: ReportSlot,
    /// The end of a stall that found no room; it goes before all events.
    stall: StallEnd,
}

impl WorkerSender {
    /// True if there is room for an event. Without room the worker keeps its events.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        if self.stall.is_waiting() {
            self.send_rejoined();
        }
        !self.ring.is_full()
    }

    /// Sends an event. Call it only if there [is room](Self::has_room): an event without room is
    /// lost, and counted.
    pub(crate) fn send_event(&mut self, event: WorkerEvent, shard_index: Option<ShardIndex>) {
        if self.ring.push(FromWorker::WorkerEvent { event, shard_index }).is_err() {
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake();
    }

    /// Reports that the worker goes on under this fence after a stall, with the number of packets
    /// that had waited. Without room the next check for room tries again, and the newest fence
    /// counts.
    pub(crate) fn rejoined(&mut self, fence: Fence, waited: usize) {
        if self.stall.add(fence, waited) {
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
        self.send_rejoined();
    }

    #[cold]
    fn send_rejoined(&mut self) {
        let Some((fence, waited)) = self.stall.take() else { return };
        match self.ring.push(FromWorker::Rejoined { fence, waited }) {
            Ok(()) => self.shared.wake(),
            Err(PushError::Full(_)) => {
                self.stall.add(fence, waited);
            }
        }
    }

    /// Replaces the former report. Returns false if the roles thread is taking it at this moment;
    /// the next report makes up for it.
    pub(crate) fn report(&self, status: Box<ReplicationReport>) -> bool {
        let Ok(mut report) = self.report.try_lock() else { return false };
        let former = report.replace(status);
        drop((report, former));
        self.shared.wake();
        true
    }
}

/// The roles thread's end.
#[derive(Debug)]
pub(crate) struct InboxReceiver {
    shared: Arc<InboxShared>,
    etcd: mpsc::Receiver<MirrorEvent>,
    workers: Vec<(Consumer<FromWorker>, ReportSlot)>,
    in_turn: InTurn,
}

/// Creates both ends, without workers.
pub(crate) fn inbox() -> (InboxSender, InboxReceiver) {
    let shared = Arc::<InboxShared>::default();
    let (etcd, etcd_out) = mpsc::channel(ETCD_EVENTS_MAX);
    let sender = InboxSender { shared: Arc::clone(&shared), etcd };
    (
        sender,
        InboxReceiver { shared, etcd: etcd_out, workers: Vec::new(), in_turn: InTurn::default() },
    )
}

impl InboxReceiver {
    /// Adds the channel of the next worker.
    pub(crate) fn add_worker(&mut self) -> WorkerSender {
        let (ring, ring_end) = RingBuffer::new(WORKER_EVENTS_MAX);
        let report = ReportSlot::default();
        self.workers.push((ring_end, Arc::clone(&report)));
        WorkerSender { shared: Arc::clone(&self.shared), ring, report, stall: StallEnd::default() }
    }

    /// Returns the number of lost events.
    pub(crate) fn lost_total(&self) -> u64 {
        self.shared.lost_total.load(Ordering::Relaxed)
    }

    /// Returns the next message, if there is one. No channel waits for more than one message of
    /// each other channel.
    pub(crate) fn try_recv(&mut self) -> Option<Inbox> {
        let Self { shared, etcd, workers, in_turn } = self;
        in_turn.next(workers.len() + 2, |way| match way {
            0 => shared.waiting().pop(),
            1 => etcd.try_recv().ok().map(CoreEvent::Mirror).map(Inbox::Event),
            way => take_from_worker(way - 2, &mut workers[way - 2]),
        })
    }

    /// Returns the next message; waits up to `wait` for it. All calls must come from one thread.
    pub(crate) fn recv_timeout(&mut self, wait: Duration) -> Option<Inbox> {
        self.shared.reader.get_or_init(thread::current);
        let end = Instant::now() + wait;
        loop {
            // A message that comes after this check wakes the thread.
            if let Some(message) = self.try_recv() {
                return Some(message);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

fn take_from_worker(
    worker: usize,
    (ring_end, report): &mut (Consumer<FromWorker>, ReportSlot),
) -> Option<Inbox> {
    match ring_end.pop() {
        Ok(FromWorker::WorkerEvent { event, shard_index }) => {
            Some(Inbox::Worker { worker, event, shard_index })
        }
        Ok(FromWorker::Rejoined { fence, waited }) => {
            Some(Inbox::Event(CoreEvent::Rejoined { worker, fence, waited }))
        }
        // A worker that stores a report at this moment wakes the reader afterwards.
        Err(_) => {
            let status = mem::take(&mut *report.try_lock().ok()?)?;
            Some(Inbox::Replication { worker, status })
        }
    }
}

impl Drop for InboxReceiver {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
