//! The queue and its writer thread.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines that may wait.
const LINES_MAX: usize = 4096;
/// Bytes that may wait.
const BYTES_MAX: usize = 1 << 20;

/// A queue of lines with a writer thread of its own. The thread ends with the process, or when the last handle is
/// dropped and all lines are written.
#[derive(Clone, Debug)]
pub struct LineQueue(Arc<Handle>);

/// Counts the handles: the writer thread holds the queue, not a handle.
#[derive(Debug)]
struct Handle(Arc<Queue>);

/// How the reader keeps up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Lines that were lost because the queue was full, or their writing failed.
    pub lost_total: u64,
    /// For so long the reader has not taken the line that is being written; 0 while there is none.
    pub stalled: Duration,
}

/// As an [`io::Write`], of which each call is a line.
#[derive(Clone, Debug)]
pub struct LineWriter(LineQueue);

struct Queue {
    state: Mutex<State>,
    /// Lines have come, or the last handle has gone.
    has_work: Condvar,
    /// The last line was written.
    is_idle: Condvar,
    /// The line that stands for lost ones.
    lost_line: Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    lost_total: u64,
    /// Lost after the last line of the queue, and not said yet.
    unsaid: u64,
    /// Since when a line is being written.
    writing: Option<Instant>,
    is_closed: bool,
}

impl LineQueue {
    /// Starts the thread, named `name`, that writes to `writer`. `lost_line` makes the line that stands for a number of
    /// lost ones; `on_start` runs first on the thread, to keep it off the cores of workers.
    ///
    /// # Errors
    /// When the system gives no thread.
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

    /// Hands a line in, its end of line included. Never waits for the writer. False: the queue is full and the line is
    /// lost.
    pub fn push(&self, line: &[u8]) -> bool {
        self.queue().push(line)
    }

    /// How the reader keeps up.
    pub fn reading(&self) -> Reading {
        let state = self.queue().lock();
        let stalled = state.writing.map(|since| since.elapsed()).unwrap_or_default();
        Reading { lost_total: state.lost_total, stalled }
    }

    /// Waits until all lines are written, `patience` at most. False: some are not.
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

    /// A writer of lines.
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
        // A lost line is counted: its writer can do nothing about it.
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) -> bool {
        let mut state = self.lock();
        if !state.has_room(line.len()) {
            state.lost_total += 1;
            state.unsaid += 1;
            return false;
        }
        let unsaid = std::mem::take(&mut state.unsaid);
        if unsaid > 0 {
            state.append((self.lost_line)(unsaid));
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
            // A reader that has gone: there is nobody to tell but the counter.
            state.lost_total += u64::from(written.is_err());
            if state.is_idle() {
                self.is_idle.notify_all();
            }
        }
    }

    /// The next line to write. None: there is none, and none will come.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if state.lines.is_empty() && state.unsaid > 0 {
                let unsaid = std::mem::take(&mut state.unsaid);
                state.append((self.lost_line)(unsaid));
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

impl State {
    /// Once lines were lost, half of the queue has to be free: a gap is then said once, not once a line.
    fn has_room(&self, bytes: usize) -> bool {
        let share = if self.unsaid > 0 { 2 } else { 1 };
        self.lines.len() < LINES_MAX / share && self.bytes + bytes <= BYTES_MAX / share
    }

    fn append(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.unsaid == 0 && self.writing.is_none()
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

    /// A pipe that nobody reads until the test does.
    fn pipe() -> (LineQueue, BufReader<PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = LineQueue::start("test-log", writer, lost_line, || ()).unwrap();
        (queue, BufReader::new(reader))
    }

    fn line(number: usize) -> String {
        format!("{number:0>200}\n")
    }

    /// A pipe holds 64 KiB and the queue a mebibyte: more than both together.
    const LINES: usize = 10_000;

    #[test]
    fn a_full_pipe_loses_lines_whole_and_the_gap_says_how_many() {
        let (queue, mut reader) = pipe();
        // Nobody reads, and this comes to its end all the same.
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
        // Said although no other line comes.
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, format!("lost {}\n", LINES - taken));
        assert!(queue.flush(PATIENCE));
        assert!(queue.push(b"after\n"));
        text.clear();
        reader.read_line(&mut text).unwrap();
        assert_eq!(text, "after\n");
        assert_eq!(queue.reading().lost_total, (LINES - taken) as u64, "and no more");
    }

    #[test]
    fn a_gap_is_said_before_the_line_that_comes_after_it() {
        let (queue, mut reader) = pipe();
        let mut sent = 0;
        while queue.push(line(sent).as_bytes()) {
            sent += 1;
        }
        let mut lost = 1;
        let mut read = 0;
        let mut text = String::new();
        // The reader goes on, but slower than lines come.
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
    fn a_reader_that_has_gone_costs_lines_and_no_thread() {
        let (queue, reader) = pipe();
        drop(reader);
        for _ in 0..3 {
            queue.push(b"nobody reads this\n");
        }
        assert!(queue.flush(PATIENCE));
        assert_eq!(queue.reading(), Reading { lost_total: 3, stalled: Duration::ZERO });
    }

    #[test]
    fn what_was_handed_in_is_written_after_the_last_handle_has_gone() {
        let (queue, reader) = pipe();
        queue.push(b"one\n");
        queue.push(b"two\n");
        drop(queue);
        // Ends when the thread has dropped its end of the pipe.
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
