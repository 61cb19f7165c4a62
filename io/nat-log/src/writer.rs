//! The thread that writes the block log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backlog::Backlog;
use crate::event::NodeLife;
use crate::line::{BlockLogLine, Content, MARK_MARGIN_MS, unix_ms};
use crate::log::{BlockLogShared, WallClock};
use crate::log_file;
use crate::sender::QueuedRecord;

/// Most records taken from one ring before the next ring has its turn.
const TURN_RECORDS: usize = 1024;
/// Pause after a turn in which all rings were empty.
const IDLE_PAUSE: Duration = Duration::from_millis(20);
/// Pause before a failed write is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Longest time between two marks, which state how far the log is complete.
const MARK_INTERVAL_MS: u64 = 10_000;

/// The reading end of one sender's ring.
#[derive(Debug)]
pub(crate) struct BlockLogInlet {
    ring: rtrb::Consumer<QueuedRecord>,
    lost_total: Arc<AtomicU64>,
    /// Number of lost records that the log has reported.
    lost_reported: u64,
}

impl BlockLogInlet {
    pub(crate) fn new(ring: rtrb::Consumer<QueuedRecord>, lost_total: Arc<AtomicU64>) -> Self {
        Self { ring, lost_total, lost_reported: 0 }
    }
}

pub(crate) struct BlockLogWriter {
    path: PathBuf,
    file: File,
    node: String,
    boot: u128,
    inlets: Vec<BlockLogInlet>,
    shared: Arc<BlockLogShared>,
    clock: WallClock,
    backlog: Backlog,
    /// Records of this node since its start, including lost ones.
    sequence: u64,
    /// Time of the last mark.
    marked_ms: u64,
    is_failing: bool,
}

impl BlockLogWriter {
    /// Opens the file and records the start of the process.
    pub(crate) fn open(
        path: &Path,
        life: NodeLife<'_>,
        inlets: Vec<BlockLogInlet>,
        shared: Arc<BlockLogShared>,
        clock: WallClock,
    ) -> std::io::Result<Self> {
        let (file, last) = log_file::open(path)?;
        let now_ms = unix_ms(clock());
        let mut writer = Self {
            path: path.to_owned(),
            file,
            node: life.node.to_owned(),
            boot: life.boot,
            inlets,
            shared,
            clock,
            backlog: Backlog::default(),
            sequence: 0,
            marked_ms: now_ms,
            is_failing: false,
        };
        let boot_before = last.and_then(|line| line.boot);
        let is_clustered = life.is_clustered;
        writer.append(now_ms, Content::Opened { is_clustered, boot_before });
        Ok(writer)
    }

    pub(crate) fn run(mut self) {
        loop {
            // Read before the rings: so records that were handed in before the request are written.
            self.shared.turned();
            let is_stop_asked = self.shared.is_stop_asked.load(Ordering::Acquire);
            let now_ms = unix_ms((self.clock)());
            let (taken, is_all) = self.take_all();
            if is_all {
                self.mark(now_ms);
            }
            if self.shared.is_reopen_asked.swap(false, Ordering::AcqRel) {
                self.write();
                self.reopen();
            }
            self.write();
            if is_stop_asked && (taken == 0 || self.is_failing) {
                return self.end();
            }
            match (self.is_failing, taken) {
                (true, _) => std::thread::park_timeout(RETRY_PAUSE),
                (false, 0) => std::thread::park_timeout(IDLE_PAUSE),
                (false, _) => {}
            }
        }
    }

    /// Moves records from the rings to the backlog, as many as it has room for. Returns their
    /// number, and whether each ring was seen empty.
    fn take_all(&mut self) -> (usize, bool) {
        let mut inlets = std::mem::take(&mut self.inlets);
        let (mut taken, mut is_all) = (0, true);
        for inlet in &mut inlets {
            let (count, is_empty) = self.take(inlet);
            taken += count;
            is_all &= is_empty;
        }
        self.inlets = inlets;
        (taken, is_all)
    }

    fn take(&mut self, inlet: &mut BlockLogInlet) -> (usize, bool) {
        for taken in 0..TURN_RECORDS {
            if !self.backlog.has_room() {
                return (taken, false);
            }
            // Read before the ring is seen empty: these records were lost before any later one.
            let lost_total = inlet.lost_total.load(Ordering::Relaxed);
            match inlet.ring.pop() {
                Ok(entry) => {
                    self.report_lost(inlet, entry.lost_before, entry.at_ms);
                    self.append(entry.at_ms, Content::Lane(entry.event));
                }
                Err(rtrb::PopError::Empty) => {
                    let now_ms = unix_ms((self.clock)());
                    self.report_lost(inlet, lost_total, now_ms);
                    return (taken, true);
                }
            }
        }
        (TURN_RECORDS, false)
    }

    /// Writes a mark from time to time, which states how far the log is complete; for a moment at
    /// which each ring has been seen empty after `now_ms`. A record of one worker shows nothing
    /// about the others, whose rings may lag behind.
    fn mark(&mut self, now_ms: u64) {
        let is_set_back = now_ms < self.marked_ms;
        if is_set_back || now_ms - self.marked_ms >= MARK_INTERVAL_MS {
            self.marked_ms = now_ms;
            self.append(now_ms.saturating_sub(MARK_MARGIN_MS), Content::Mark);
        }
    }

    /// Records that records are missing here.
    fn report_lost(&mut self, inlet: &mut BlockLogInlet, lost_total: u64, at_ms: u64) {
        let count = lost_total.saturating_sub(inlet.lost_reported);
        if count > 0 {
            inlet.lost_reported = lost_total;
            self.sequence += count - 1;
            self.append(at_ms, Content::Lost(count));
        }
    }

    fn append(&mut self, time_ms: u64, content: Content) {
        self.sequence += 1;
        self.shared.taken_total.fetch_add(1, Ordering::Relaxed);
        let (node, boot) = (self.node.clone(), Some(self.boot));
        let line = BlockLogLine { time_ms, node, boot, sequence: self.sequence, content };
        line.emit(self.backlog.bytes());
    }

    fn write(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        let (lines, result) = self.backlog.write_to(&mut self.file);
        self.shared.written_total.fetch_add(lines, Ordering::Relaxed);
        match result {
            Err(error) => self.failed(&error),
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                let path = self.path.display();
                tracing::info!(event = "block-log-recovered", %path, "the block log is written again");
            }
            Ok(()) => {}
        }
    }

    fn reopen(&mut self) {
        match log_file::open(&self.path) {
            Ok((file, _)) => {
                self.file = file;
                self.backlog.begin_line_again();
            }
            // The old file stays in use: a failed rotation loses nothing.
            Err(error) => {
                self.shared.write_errors_total.fetch_add(1, Ordering::Relaxed);
                let path = self.path.display();
                tracing::error!(event = "block-log-reopen-failed", %path, %error, "the old file stays in use");
            }
        }
    }

    /// Counts each failure and reports the first of a series.
    fn failed(&mut self, error: &std::io::Error) {
        self.shared.write_errors_total.fetch_add(1, Ordering::Relaxed);
        if !self.is_failing {
            self.is_failing = true;
            let path = self.path.display();
            tracing::error!(event = "block-log-failing", %path, %error, "the block log cannot be written; trying again");
        }
    }

    /// Writes the last record. Records that cannot be written at this point are lost, and counted.
    fn end(mut self) {
        if !self.is_failing {
            self.append(unix_ms((self.clock)()), Content::Closed);
            self.write();
        }
        let in_rings: usize = self.inlets.iter().map(|inlet| inlet.ring.slots()).sum();
        let count = self.backlog.lines() + in_rings as u64;
        self.shared.abandoned_total.fetch_add(count, Ordering::Relaxed);
    }
}
