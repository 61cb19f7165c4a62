//! The operational log: lines on stderr, text or JSON, each with an `event` field that names its
//! kind.
//!
//! The names are stable, operators alert on them; they are listed in [`EVENTS`](crate::EVENTS).
//! Each kind is rate-limited by itself.
//!
//! A line goes into a bounded queue, and a thread of its own writes it: a thread that logs never
//! waits for the reader of stderr. If that reader is systemd's journal, each line begins with its
//! priority.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use weir_config::{LogFormat, LogLevel};
use weir_log::{LineQueue, LineWriter, Priority, ReaderProgress, is_journal};

use crate::log_rate::LogRate;

/// The rate limit of the log, and its number of suppressed lines.
#[derive(Clone, Debug, Default)]
struct LogLimit(Arc<Mutex<LogRate>>);

impl LogLimit {
    /// Returns the number of lines suppressed since start.
    fn suppressed(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).suppressed()
    }

    fn admit(&self, kind: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(kind, Instant::now())
    }
}

/// Longest wait for the reader of the log when the process ends.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Handle of the process's log, for its numbers and its end.
#[derive(Clone, Debug, Default)]
pub struct Log {
    limit: LogLimit,
    /// None in tests without a log.
    queue: Option<LineQueue>,
}

impl Log {
    /// Returns the number of lines suppressed since start, because their kind came too often.
    pub fn suppressed(&self) -> u64 {
        self.limit.suppressed()
    }

    /// Returns how the reader of stderr keeps up.
    pub fn reading(&self) -> ReaderProgress {
        self.queue.as_ref().map(LineQueue::reading).unwrap_or_default()
    }

    /// Waits for the reader, but not long: to be called when the process ends.
    pub fn flush(&self) {
        if let Some(queue) = &self.queue {
            queue.flush(FLUSH_MAX);
        }
    }
}

/// Sends the log of the whole process to stderr, from a thread that begins with `on_start`. Only
/// the first call of a process has an effect.
///
/// # Errors
/// When the system gives no thread.
pub fn to_stderr(
    level: LogLevel,
    format: LogFormat,
    on_start: impl FnOnce() + Send + 'static,
) -> io::Result<Log> {
    let is_journal = is_journal(io::stderr());
    let lost_line = move |lost| lost_line(format, is_journal, lost);
    let queue = LineQueue::start("weir-log", own_stderr(), lost_line, on_start)?;
    let limit = LogLimit::default();
    let writer = Marked { writer: writer_of(&queue), is_journal };
    let subscriber = subscriber(level, format, limit.clone(), writer);
    // Fails only when a log is already set, which then stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(Log { limit, queue: Some(queue) })
}

/// Returns standard error with a descriptor of its own: while the EAL starts, descriptor 2 leads
/// elsewhere, to hold back its output.
fn own_stderr() -> Box<dyn io::Write + Send> {
    match io::stderr().as_fd().try_clone_to_owned() {
        Ok(stderr) => Box::new(File::from(stderr)),
        // A process without stderr loses its lines.
        Err(_) => Box::new(io::stderr()),
    }
}

fn writer_of(queue: &LineQueue) -> impl Fn() -> LineWriter + Send + Sync + 'static {
    let queue = queue.clone();
    move || queue.writer()
}

/// Returns a line in the log's own format that reports missing lines.
fn lost_line(format: LogFormat, is_journal: bool, lost: u64) -> Vec<u8> {
    let line = LineBuffer::default();
    let sink = line.clone();
    let limit = LogLimit::default();
    let writer = Marked { writer: move || sink.clone(), is_journal };
    let subscriber = subscriber(LogLevel::Info, format, limit, writer);
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(
            event = "log-lines-lost",
            lost,
            "the reader of the log stood still: lines are missing here"
        );
    });
    std::mem::take(&mut *line.0.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes writers of lines that begin with the priority of their event if the journal reads them.
struct Marked<M> {
    writer: M,
    is_journal: bool,
}

/// Writes one line per call.
struct MarkedLine<W> {
    writer: W,
    priority: Option<Priority>,
}

impl<'w, M: fmt::MakeWriter<'w>> fmt::MakeWriter<'w> for Marked<M> {
    type Writer = MarkedLine<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        MarkedLine { writer: self.writer.make_writer(), priority: None }
    }

    fn make_writer_for(&'w self, metadata: &Metadata<'_>) -> Self::Writer {
        let priority = self.is_journal.then(|| priority_of(*metadata.level()));
        MarkedLine { writer: self.writer.make_writer_for(metadata), priority }
    }
}

impl<W: io::Write> io::Write for MarkedLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.priority {
            Some(priority) => self.writer.write_all(&priority.mark(line))?,
            None => self.writer.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

fn priority_of(level: Level) -> Priority {
    match level {
        Level::ERROR => Priority::Error,
        Level::WARN => Priority::Warning,
        Level::INFO => Priority::Info,
        Level::DEBUG | Level::TRACE => Priority::Debug,
    }
}

/// A line in memory.
#[derive(Clone, Default)]
struct LineBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for LineBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn subscriber<W>(
    level: LogLevel,
    format: LogFormat,
    limit: LogLimit,
    writer: W,
) -> impl Subscriber + Send + Sync
where
    W: for<'w> fmt::MakeWriter<'w> + Send + Sync + 'static,
{
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = fmt::layer().with_writer(writer).with_target(false).with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(Limited { limit, level }))
}

/// Lets only weir's own events through, up to a level and within their rate.
#[derive(Debug)]
struct Limited {
    limit: LogLimit,
    level: LevelFilter,
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Filter<S> for Limited {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("weir")
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut kind = EventName(event.metadata().name().to_owned());
        event.record(&mut kind);
        self.limit.admit(&kind.0)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
}

/// Reads the `event` field; without one, the kind is the place in the code.
struct EventName(String);

impl Visit for EventName {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(format: LogFormat, write: impl FnOnce()) -> (String, LogLimit) {
        let lines = LineBuffer::default();
        let limit = LogLimit::default();
        let sink = lines.clone();
        let subscriber = subscriber(LogLevel::Info, format, limit.clone(), move || sink.clone());
        tracing::subscriber::with_default(subscriber, write);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (text, limit)
    }

    #[test]
    fn json_lines_carry_their_kind() {
        let (text, _) = logged(LogFormat::Json, || {
            tracing::warn!(event = "gateway-down", worker = 1, "no answer");
            tracing::debug!(event = "node-ready", "not at this level");
        });
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(line["event"], "gateway-down");
        assert_eq!(line["worker"], 1);
        assert_eq!(line["message"], "no answer");
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        let lines = LineBuffer::default();
        for format in [LogFormat::Text, LogFormat::Json] {
            let sink = lines.clone();
            let writer = Marked { writer: move || sink.clone(), is_journal: true };
            let subscriber = subscriber(LogLevel::Debug, format, LogLimit::default(), writer);
            tracing::subscriber::with_default(subscriber, || {
                tracing::error!(event = "start-failed", "one\ntwo");
                tracing::warn!(event = "gateway-down", "no answer");
                tracing::info!(event = "gateway-up", "it answers");
                tracing::debug!(event = "link-up", "light");
            });
        }
        let gap = lost_line(LogFormat::Text, true, 3);
        let text = String::from_utf8([&lines.0.lock().unwrap()[..], &gap].concat()).unwrap();
        let marks: Vec<&str> = text.lines().map(|line| &line[..3]).collect();
        let of_json = ["<3>", "<4>", "<6>", "<7>"];
        assert_eq!(marks, [&["<3>"], &of_json[..], &of_json[..], &["<4>"]].concat(), "{text}");
        let json = text.lines().nth(6).unwrap().strip_prefix("<4>").unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap()["level"], "WARN");
    }

    #[test]
    fn a_flood_of_one_kind_leaves_room_for_others() {
        let (text, limit) = logged(LogFormat::Text, || {
            for _ in 0..500 {
                tracing::warn!(event = "gateway-down", "no answer");
            }
            tracing::warn!(event = "link-down", "no light");
        });
        assert!(text.lines().count() < 50, "{text}");
        assert!(text.lines().last().unwrap().contains("link-down"));
        assert!(limit.suppressed() > 400);
    }

    #[test]
    fn an_unread_log_blocks_no_thread_and_reports_its_lost_lines() {
        let (reader, writer) = io::pipe().unwrap();
        let gap = |lost| lost_line(LogFormat::Json, false, lost);
        let queue = LineQueue::start("test-log", writer, gap, || ()).unwrap();
        let log = Log { limit: LogLimit::default(), queue: Some(queue.clone()) };
        let subscriber =
            subscriber(LogLevel::Info, LogFormat::Json, log.limit.clone(), writer_of(&queue));
        let text = "x".repeat(100_000);
        tracing::subscriber::with_default(subscriber, || {
            // The lines have 2 MB, of which a pipe and the queue take half; the loop still ends.
            for _ in 0..20 {
                tracing::warn!(event = "link-down", text);
            }
        });
        let lost = log.reading().lost_total;
        assert!(lost > 0);
        while log.reading().stalled.is_zero() {
            std::thread::yield_now();
        }
        log.flush();
        drop((log, queue));
        let lines: Vec<String> =
            io::BufRead::lines(io::BufReader::new(reader)).map(Result::unwrap).collect();
        assert_eq!(lines.len() as u64, 20 - lost + 1);
        let last: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!((&last["event"], &last["lost"]), (&"log-lines-lost".into(), &lost.into()));
    }
}
