//! The messages to the roles thread, and the ways to it. All are bounded, and no sender waits for the roles thread.
//!
//! ```text
//!   worker ------ ring of news (full: the news stay with the worker, which merges them by shard and peer) ---+
//!          ------ newest report of its copies ---------------------------------------------------------------+
//!   etcd mirror - queue (full: the mirror's task waits, and etcd keeps what is to come) ---------------------+--> roles thread
//!   all others -- one place for each state (a newer one replaces it); events of the guard in a short list ---+
//! ```
//!
//! A roles thread that stands still therefore finds the newest state of everything when it goes on, and memory does not
//! grow meanwhile. Lost, and counted, are only events that no later message repeats: those of the guard above
//! [`GUARD_EVENTS_MAX`], and a standstill of a worker that follows another unread one.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, PushError, RingBuffer};
use tokio::sync::mpsc;
use weir_cluster::MirrorEvent;
use weir_member::News;
use weir_member::replication::ReplicationStatus;
use weir_nat::ShardIndex;
use weir_node_core::{Event, GuardNews, Registration, Written};
use weir_replica::ClusterKeys;
use weir_shard::ShardId;
use weir_steer::{Fence, WorkerIndex};

use super::bird_thread::BirdSide;

/// News of a worker that wait in its ring.
const NEWS_MAX: usize = 1024;
/// Events of etcd that wait, besides those of the mirror's own queue.
const ETCD_EVENTS_MAX: usize = 1024;
/// Events of the guard that wait: many more than it has in the time that the roles thread may take.
const GUARD_EVENTS_MAX: usize = 256;

/// A message to the roles thread.
#[derive(Debug)]
pub(crate) enum Inbox {
    /// What the core is told as it is.
    Event(Event),
    /// How BIRD announces each side, as it counts; twice a second where it is watched.
    Bird(Vec<BirdSide>),
    Worker {
        worker: usize,
        news: News,
        /// Of a shard that was added.
        place: Option<ShardIndex>,
    },
    /// How a worker's copies stand; once a second.
    Replication { worker: usize, status: Box<ReplicationStatus> },
    /// The keys of replication from now on, or why the former ones go on.
    Keys(Result<ClusterKeys, String>),
}

/// A message of any thread but a worker and the mirror of etcd.
#[derive(Debug)]
pub(crate) enum Notice {
    Registration(Registration),
    ClusterFound(Result<(), String>),
    Saved(Result<(), String>),
    Written { shard: ShardId, how: Written },
    Guard(GuardNews),
    Bird(Vec<BirdSide>),
    Keys(Result<ClusterKeys, String>),
    HandOver,
    End,
}

/// The state that a notice tells of: a later notice of the same one replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Connection,
    Registration,
    Cluster,
    Disk,
    Write(ShardId),
    RoutesSet(WorkerIndex),
    RoutesNotSet(WorkerIndex),
    Bird,
    Keys,
    HandOver,
    End,
}

impl Notice {
    /// None: an event of the guard. What is said of its life is one order of events, and workers' fences are counted.
    fn state(&self) -> Option<State> {
        Some(match self {
            Self::Registration(Registration::Silent) => State::Connection,
            Self::Registration(_) => State::Registration,
            Self::ClusterFound(_) => State::Cluster,
            Self::Saved(_) => State::Disk,
            Self::Written { shard, .. } => State::Write(*shard),
            Self::Guard(GuardNews::Set { worker, .. }) => State::RoutesSet(*worker),
            Self::Guard(GuardNews::NotSet { worker, .. }) => State::RoutesNotSet(*worker),
            Self::Guard(_) => return None,
            Self::Bird(_) => State::Bird,
            Self::Keys(_) => State::Keys,
            Self::HandOver => State::HandOver,
            Self::End => State::End,
        })
    }
}

impl From<Notice> for Inbox {
    fn from(notice: Notice) -> Self {
        Self::Event(match notice {
            Notice::Registration(registration) => Event::Registration(registration),
            Notice::ClusterFound(found) => Event::ClusterFound(found),
            Notice::Saved(ended) => Event::Saved(ended),
            Notice::Written { shard, how } => Event::Written { shard, how },
            Notice::Guard(news) => Event::Guard(news),
            Notice::Bird(sides) => return Self::Bird(sides),
            Notice::Keys(keys) => return Self::Keys(keys),
            Notice::HandOver => Event::HandOver,
            Notice::End => Event::End,
        })
    }
}

/// Nobody reads any more: the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// Notices that wait, in the order in which the newest of each state came.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    notices: BTreeMap<u64, Notice>,
    states: HashMap<State, u64>,
    guard_events: usize,
}

impl Waiting {
    /// What is replaced; an event of the guard, if one was lost.
    fn push(&mut self, notice: Notice) -> Option<Notice> {
        let number = self.next;
        self.next += 1;
        let former = match notice.state() {
            Some(state) => self.states.insert(state, number),
            None if self.guard_events < GUARD_EVENTS_MAX => {
                self.guard_events += 1;
                None
            }
            // The oldest one goes: how the guard is comes from the newest.
            None => {
                let mut events =
                    self.notices.iter().filter(|(_, waiting)| waiting.state().is_none());
                events.next().map(|(&oldest, _)| oldest)
            }
        };
        self.notices.insert(number, notice);
        former.and_then(|former| self.notices.remove(&former))
    }

    fn pop(&mut self) -> Option<Notice> {
        let (_, notice) = self.notices.pop_first()?;
        match notice.state() {
            Some(state) => drop(self.states.remove(&state)),
            None => self.guard_events -= 1,
        }
        Some(notice)
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// Locked for one insertion or removal at a time; never by a worker.
    waiting: Mutex<Waiting>,
    /// Who reads, once it does.
    reader: OnceLock<Thread>,
    is_gone: AtomicBool,
    lost_total: AtomicU64,
}

impl Shared {
    /// A reader that does not sleep goes on looking; one that does is woken. Takes no lock.
    fn wake(&self) {
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}

/// The way of all threads but the workers.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    etcd: mpsc::Sender<MirrorEvent>,
}

impl Sender {
    /// # Errors
    /// When nobody reads any more.
    pub(crate) fn send(&self, notice: Notice) -> Result<(), Gone> {
        if self.shared.is_gone.load(Ordering::Relaxed) {
            return Err(Gone);
        }
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = waiting.push(notice);
        drop(waiting);
        if replaced.is_some_and(|replaced| replaced.state().is_none()) {
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake();
        Ok(())
    }

    /// Waits for room: for the mirror's task alone, behind which etcd keeps what is to come.
    ///
    /// # Errors
    /// When nobody reads any more.
    pub(crate) async fn send_etcd(&self, event: MirrorEvent) -> Result<(), Gone> {
        self.etcd.send(event).await.map_err(|_| Gone)?;
        self.shared.wake();
        Ok(())
    }
}

/// A message of a worker that is not replaced by a later one.
#[derive(Debug)]
enum FromWorker {
    News { news: News, place: Option<ShardIndex> },
    Rejoined { fence: Fence, waited: usize },
}

/// The place of a worker's newest report. Each side only tries to lock it.
type Report = Arc<Mutex<Option<Box<ReplicationStatus>>>>;

/// The way of a worker, which never waits: neither for room nor for a lock.
#[derive(Debug)]
pub(crate) struct WorkerSender {
    shared: Arc<Shared>,
    ring: Producer<FromWorker>,
    report: Report,
    /// It found no room, and goes before all news.
    rejoined: Option<(Fence, usize)>,
}

impl WorkerSender {
    /// Whether there is room for news. Without it the worker keeps them.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        if self.rejoined.is_some() {
            self.send_rejoined();
        }
        !self.ring.is_full()
    }

    /// To be called where there [is room](Self::has_room): news without room are lost, and counted.
    pub(crate) fn news(&mut self, news: News, place: Option<ShardIndex>) {
        if self.ring.push(FromWorker::News { news, place }).is_err() {
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake();
    }

    /// It goes on under this fence. Without room it is tried again with the next look for room, and the newest fence counts.
    pub(crate) fn rejoined(&mut self, fence: Fence, waited: usize) {
        let former = self.rejoined.replace((fence, waited));
        if let (Some((_, former)), Some((_, waited))) = (former, &mut self.rejoined) {
            *waited += former;
            self.shared.lost_total.fetch_add(1, Ordering::Relaxed);
        }
        self.send_rejoined();
    }

    #[cold]
    fn send_rejoined(&mut self) {
        let Some((fence, waited)) = self.rejoined else { return };
        match self.ring.push(FromWorker::Rejoined { fence, waited }) {
            Ok(()) => {
                self.rejoined = None;
                self.shared.wake();
            }
            Err(PushError::Full(_)) => {}
        }
    }

    /// Replaces the former report. False: the roles thread takes it at this moment, and the next one will do.
    pub(crate) fn report(&self, status: Box<ReplicationStatus>) -> bool {
        let Ok(mut report) = self.report.try_lock() else { return false };
        let former = report.replace(status);
        drop((report, former));
        self.shared.wake();
        true
    }
}

/// The end that the roles thread has.
#[derive(Debug)]
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    etcd: mpsc::Receiver<MirrorEvent>,
    workers: Vec<(Consumer<FromWorker>, Report)>,
    /// The way that is looked at first: each has its turn.
    turn: usize,
}

/// Both ends, without workers.
pub(crate) fn inbox() -> (Sender, Receiver) {
    let shared = Arc::<Shared>::default();
    let (etcd, etcd_out) = mpsc::channel(ETCD_EVENTS_MAX);
    let sender = Sender { shared: Arc::clone(&shared), etcd };
    (sender, Receiver { shared, etcd: etcd_out, workers: Vec::new(), turn: 0 })
}

impl Receiver {
    /// The way of the next worker.
    pub(crate) fn add_worker(&mut self) -> WorkerSender {
        let (ring, news) = RingBuffer::new(NEWS_MAX);
        let report = Report::default();
        self.workers.push((news, Arc::clone(&report)));
        WorkerSender { shared: Arc::clone(&self.shared), ring, report, rejoined: None }
    }

    /// Events that no message tells of any more.
    pub(crate) fn lost_total(&self) -> u64 {
        self.shared.lost_total.load(Ordering::Relaxed)
    }

    /// The next message, if there is one. No way waits for more than one message of each other.
    pub(crate) fn try_recv(&mut self) -> Option<Inbox> {
        let ways = self.workers.len() + 2;
        for _ in 0..ways {
            self.turn = (self.turn + 1) % ways;
            let message = match self.turn {
                0 => self.take_notice(),
                1 => self.etcd.try_recv().ok().map(Event::Mirror).map(Inbox::Event),
                worker => self.take_from_worker(worker - 2),
            };
            if message.is_some() {
                return message;
            }
        }
        None
    }

    fn take_notice(&self) -> Option<Inbox> {
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop().map(Inbox::from)
    }

    fn take_from_worker(&mut self, worker: usize) -> Option<Inbox> {
        let (news, report) = &mut self.workers[worker];
        match news.pop() {
            Ok(FromWorker::News { news, place }) => Some(Inbox::Worker { worker, news, place }),
            Ok(FromWorker::Rejoined { fence, waited }) => {
                Some(Inbox::Event(Event::Rejoined { worker, fence, waited }))
            }
            // The worker that puts one there at this moment wakes the reader afterwards.
            Err(_) => {
                let status = mem::take(&mut *report.try_lock().ok()?)?;
                Some(Inbox::Replication { worker, status })
            }
        }
    }

    /// The next message, waited for so long. All calls are to come from one thread.
    pub(crate) fn recv_timeout(&mut self, wait: Duration) -> Option<Inbox> {
        self.shared.reader.get_or_init(thread::current);
        let end = Instant::now() + wait;
        loop {
            // What comes after this look wakes.
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

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
