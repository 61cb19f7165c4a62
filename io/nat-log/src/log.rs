//! Start, control and end of the block log.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crate::event::NodeLife;
use crate::sender::BlockLogSender;
use crate::writer::{BlockLogInlet, BlockLogWriter};

/// Records of a ring: at two records per flow, the set-up burst of a whole shard is a few thousand.
const RING_RECORDS: usize = 65_536;

/// How long the end of the log waits for its disk.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_POLL: Duration = Duration::from_millis(2);

/// The wall clock, as the writer thread sees it.
pub type WallClock = Box<dyn Fn() -> SystemTime + Send>;

/// The block log of a node.
#[derive(Debug)]
pub struct BlockLog;

/// Why the block log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BlockLogError {
    #[error("cannot open the block log {}: {source}", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("cannot start the thread of the block log: {0}")]
    Thread(std::io::Error),
}

/// Totals since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Lines written.
    pub written_total: u64,
    /// Records lost: a ring was full, or the process ended while the file could not be written.
    pub lost_total: u64,
    /// Failed writes and failed attempts to reopen the file.
    pub write_errors_total: u64,
}

/// Data shared by the handle and the writer thread.
#[derive(Debug)]
pub(crate) struct BlockLogShared {
    began: Instant,
    /// Milliseconds from `began` to the writer's last turn: a stalled disk delays it.
    turned_ms: AtomicU64,
    pub(crate) is_reopen_asked: AtomicBool,
    pub(crate) is_stop_asked: AtomicBool,
    pub(crate) written_total: AtomicU64,
    /// Lines that the writer has made, written or not.
    pub(crate) taken_total: AtomicU64,
    pub(crate) write_errors_total: AtomicU64,
    /// Lines that were made from the rings' records but never written.
    pub(crate) abandoned_total: AtomicU64,
}

impl BlockLogShared {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            turned_ms: AtomicU64::new(0),
            is_reopen_asked: AtomicBool::new(false),
            is_stop_asked: AtomicBool::new(false),
            written_total: AtomicU64::new(0),
            taken_total: AtomicU64::new(0),
            write_errors_total: AtomicU64::new(0),
            abandoned_total: AtomicU64::new(0),
        }
    }

    /// Marks the start of a turn of the writer.
    pub(crate) fn turned(&self) {
        self.turned_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// Controls the writer thread. Dropping it stops the thread as [`BlockLogHandle::stop`] does.
pub struct BlockLogHandle {
    shared: Arc<BlockLogShared>,
    lost: Vec<Arc<AtomicU64>>,
    thread: Option<JoinHandle<()>>,
}

impl BlockLog {
    /// Opens the file, records the start of the node, and starts the writer thread. Returns one
    /// sender for each of `workers`, in order. The thread inherits the CPU affinity of its caller.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn start(
        path: &Path,
        life: NodeLife<'_>,
        workers: usize,
        clock: WallClock,
    ) -> Result<(Vec<BlockLogSender>, BlockLogHandle), BlockLogError> {
        let shared = Arc::new(BlockLogShared::new());
        let (mut senders, mut inlets, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..workers {
            let (producer, consumer) = rtrb::RingBuffer::new(RING_RECORDS);
            let lost_total = Arc::new(AtomicU64::new(0));
            senders.push(BlockLogSender::new(producer, Arc::clone(&lost_total)));
            inlets.push(BlockLogInlet::new(consumer, Arc::clone(&lost_total)));
            lost.push(lost_total);
        }
        let writer = BlockLogWriter::open(path, life, inlets, Arc::clone(&shared), clock)
            .map_err(|source| BlockLogError::Open { path: path.to_owned(), source })?;
        let builder = std::thread::Builder::new().name("weir-block-log".to_owned());
        let thread = builder.spawn(move || writer.run()).map_err(BlockLogError::Thread)?;
        Ok((senders, BlockLogHandle { shared, lost, thread: Some(thread) }))
    }
}

impl BlockLogHandle {
    /// Asks the writer to close the file and open its path again: after a rotation, on SIGHUP.
    /// Returns at once.
    pub fn reopen(&self) {
        self.shared.is_reopen_asked.store(true, Ordering::Release);
        self.wake();
    }

    pub fn counters(&self) -> LogCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lost: u64 = self.lost.iter().map(|lost| load(lost)).sum();
        LogCounters {
            written_total: load(&self.shared.written_total),
            lost_total: lost + load(&self.shared.abandoned_total),
            write_errors_total: load(&self.shared.write_errors_total),
        }
    }

    /// Returns the time since the writer's last turn; it turns many times a second unless the disk
    /// stalls.
    pub fn stalled(&self) -> Duration {
        let turned = Duration::from_millis(self.shared.turned_ms.load(Ordering::Relaxed));
        self.shared.began.elapsed().saturating_sub(turned)
    }

    /// Writes the records that the senders have handed in so far, ends the thread, and returns the
    /// last totals. After five seconds a stalled disk is given up; the records that it did not take
    /// are lost.
    pub fn stop(mut self) -> LogCounters {
        self.join();
        self.counters()
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn join(&mut self) {
        self.shared.is_stop_asked.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let end = Instant::now() + END_PATIENCE;
            while !thread.is_finished() {
                if Instant::now() >= end {
                    return self.abandon();
                }
                std::thread::sleep(END_POLL);
            }
            // The panic hook has already reported a panic of the writer; the log ends in either
            // case.
            let _ = thread.join();
        }
    }
}

impl BlockLogHandle {
    /// Counts the lines that the writer has made and the disk has not taken as lost; records still
    /// in the rings cannot be counted.
    fn abandon(&self) {
        let shared = &self.shared;
        let taken = shared.taken_total.load(Ordering::Relaxed);
        let lost = taken.saturating_sub(shared.written_total.load(Ordering::Relaxed));
        shared.abandoned_total.fetch_add(lost, Ordering::Relaxed);
        tracing::error!(
            event = "block-log-failing",
            lost,
            "the disk takes nothing: the block log ends without its last records"
        );
    }
}

impl Drop for BlockLogHandle {
    fn drop(&mut self) {
        self.join();
    }
}

impl fmt::Debug for BlockLogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockLogHandle").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
