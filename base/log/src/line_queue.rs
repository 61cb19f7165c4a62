//! The queue and its writer thread.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most lines that may wait.
const LINES_MAX: usize = 4096;
/// Most bytes that may wait.
const BYTES_MAX: usize = 1 << 20;

/// A queue of lines with its own writer thread. The thread ends with the process, or when the last
/// handle is dropped and all lines are written.
#[derive(Clone, Debug)]
pub struct LineQueue(Arc<Handle>);

/// Detects the drop of the last handle: the writer thread holds the queue, not a handle.
#[derive(Debug)]
struct Handle(Arc<Queue>);

/// How well the reader keeps up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderProgress {
    /// Lines that were lost because the queue was full, or their writing failed.
    pub lost_total: u64,
    /// Time for which the reader has not taken the line that is being written; 0 while there is
    /// none.
    pub stalled: Duration,
}

/// A queue as an [`io::Write`]; each call writes one line.
#[derive(Clone, Debug)]
pub struct LineWriter(LineQueue);

struct Queue {
    state: Mutex<QueueState>,
    /// Signaled when a line is pushed, or the last handle is dropped.
    has_work: Condvar,
    /// Signaled when the last line has been written.
    is_idle: Condvar,
    /// Makes the line that replaces a number of lost ones.
    lost_line: Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    lost_total: u64,
    /// Lines lost after the last line of the queue, and not reported yet.
    unreported: u64,
    /// Start of the write of the current line.
    writing: Option<Instant>,
    is_closed: bool,
}

impl LineQueue {
    /// Starts a thread, named `name`, that writes to `writer`. `lost_line` makes the line that
    /// replaces a number of lost ones; `on_start` runs first on the thread, to keep it off the
    /// cores of workers.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(
        name: &str,
        writer: impl Write + Send + 'static,
        lost_line: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
        on_start: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            has_work: Condvar::new(),
            is_idle: Condvar::new(),
            lost_line: Box::new(lost_line),
        });
        let its_queue = Arc::clone(&queue);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            on_start();
            its_queue.run(writer);
        })?;
        Ok(Self(Arc::new(Handle(queue))))
    }

    /// Queues a line, which includes its line end. Never waits for the writer. False: the queue is
    /// full and the line is lost.
    pub fn push(&self, line: &[u8]) -> bool {
        self.queue().push(line)
    }

    /// Returns how well the reader keeps up.
    pub fn reading(&self) -> ReaderProgress {
        let state = self.queue().lock();
        let stalled = state.writing.map(|since| since.elapsed()).unwrap_or_default();
        ReaderProgress { lost_total: state.lost_total, stalled }
    }

    /// Waits until all lines are written, at most for `patience`. False: some are not.
    pub fn flush(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.queue().lock();
        while !state.is_idle() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.queue().is_idle.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Returns a writer of lines.
    pub fn writer(&self) -> LineWriter {
        LineWriter(self.clone())
    }

    fn queue(&self) -> &Queue {
        &self.0.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.has_work.notify_one();
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A lost line is only counted: the writer of the line could do nothing about the loss.
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) -> bool {
        let mut state = self.lock();
        if !state.has_room(line.len()) {
            state.lost_total += 1;
            state.unreported += 1;
            return false;
        }
        let unreported = std::mem::take(&mut state.unreported);
        if unreported > 0 {
            state.append((self.lost_line)(unreported));
        }
        state.append(line.to_owned());
        drop(state);
        self.has_work.notify_one();
        true
    }

    fn run(&self, mut writer: impl Write) {
        while let Some(line) = self.next() {
            let written = writer.write_all(&line).and_then(|()| writer.flush());
            let mut state = self.lock();
            state.writing = None;
            state.bytes -= line.len();
            // The reader is gone: the loss can only be counted.
            state.lost_total += u64::from(written.is_err());
            if state.is_idle() {
                self.is_idle.notify_all();
            }
        }
    }

    /// Waits for the next line to write. None: there is none, and the queue is closed.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if state.lines.is_empty() && state.unreported > 0 {
                let unreported = std::mem::take(&mut state.unreported);
                state.append((self.lost_line)(unreported));
            }
            if let Some(line) = state.lines.pop_front() {
                state.writing = Some(Instant::now());
                return Some(line);
            }
            if state.is_closed {
                return None;
            }
            state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl QueueState {
    /// Whether a line fits. After a loss half of the queue must be free, so that a gap is reported
    /// once and not per line.
    fn has_room(&self, bytes: usize) -> bool {
        let share = if self.unreported > 0 { 2 } else { 1 };
        self.lines.len() < LINES_MAX / share && self.bytes + bytes <= BYTES_MAX / share
    }

    fn append(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.unreported == 0 && self.writing.is_none()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("state", &*self.lock()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn lost_line(lost: u64) -> Vec<u8> {
        format!("lost {lost}\n").into_bytes()
    }

    /// Returns a queue that writes to a pipe, which is read only by the test.
    fn pipe() -> (LineQueue, BufReader<PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = LineQueue::start("test-log", writer, lost_line, || ()).unwrap();
        (queue, BufReader::new(reader))
    }

    fn line(number: usize) -> String {
        format!("{number:0>200}\n")
    }

    /// More lines than a pipe (64 KiB) and the queue (1 MiB) hold together.
    const LINES: usize = 10_000;

    #[test]
    fn a_full_pipe_loses_whole_lines_and_the_gap_states_their_number() {
        let (queue, mut reader) = pipe();
        // The pushes complete although the pipe is not read.
        let taken = (0..LINES).filter(|&number| queue.push(line(number).as_bytes())).count();
        assert!(taken < LINES);
        assert_eq!(queue.reading().lost_total, (LINES - taken) as u64);
        assert!(!queue.flush(Duration::from_millis(1)));
        assert!(!queue.reading().stalled.is_zero());
        for number in 0..taken {
            let mut text = String::new();
            reader.read_line(&mut text).unwrap();
            assert_eq!(text, line(number));
        }
        // The gap is reported although no further line comes.
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, format!("lost {}\n", LINES - taken));
        assert!(queue.flush(PATIENCE));
        assert!(queue.push(b"after\n"));
        text.clear();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, "after\n");
        assert_eq!(queue.reading().lost_total, (LINES - taken) as u64, "no more lines are lost");
    }

    #[test]
    fn a_gap_is_reported_before_the_line_that_follows_it() {
        let (queue, mut reader) = pipe();
        let mut sent = 0;
        while queue.push(line(sent).as_bytes()) {
            sent += 1;
        }
        let mut lost = 1;
        let mut read = 0;
        let mut text = String::new();
        // The reader continues, but slower than lines come.
        while !queue.push(b"after\n") {
            lost += 1;
            reader.read_line(&mut text).unwrap();
            read += 1;
        }
        for _ in read..sent {
            reader.read_line(&mut text).unwrap();
        }
        text.clear();
        reader.read_line(&mut text).unwrap();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, format!("lost {lost}\nafter\n"));
    }

    #[test]
    fn lines_for_a_closed_pipe_are_lost_and_the_thread_goes_on() {
        let (queue, reader) = pipe();
        drop(reader);
        for _ in 0..3 {
            queue.push(b"nobody reads this\n");
        }
        assert!(queue.flush(PATIENCE));
        assert_eq!(queue.reading(), ReaderProgress { lost_total: 3, stalled: Duration::ZERO });
    }

    #[test]
    fn pushed_lines_are_written_after_the_last_handle_is_dropped() {
        let (queue, reader) = pipe();
        queue.push(b"one\n");
        queue.push(b"two\n");
        drop(queue);
        // The lines end when the thread has dropped its end of the pipe.
        let lines: Vec<String> = reader.lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_line_larger_than_the_queue_is_lost_alone() {
        let (queue, mut reader) = pipe();
        assert!(!queue.push(&vec![b'x'; BYTES_MAX + 1]));
        assert!(queue.push(b"small\n"));
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, "lost 1\nsmall\n");
    }
}
