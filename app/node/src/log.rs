//! The operational log: lines on stderr, text or JSON, each with an `event` field that names its
//! kind.
//!
//! The names are stable, operators alert on them; they are listed in [`EVENTS`]. Each kind is
//! rate-limited by itself.
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

/// Every kind of event and its meaning.
pub const EVENTS: &[(&str, &str)] = &[
    ("admin-change", "Someone changed state through the admin API."),
    (
        "bird-down",
        "BIRD does not announce the routes of a side: it does not answer, has no session, or does not export them.",
    ),
    ("bird-up", "BIRD announces the routes of a side again."),
    ("block-log-failing", "The block log loses records or cannot be written."),
    ("block-log-recovered", "The block log is written again."),
    (
        "block-log-reopen-failed",
        "SIGHUP: the block log's path cannot be opened; the old file goes on.",
    ),
    ("block-log-reopened", "SIGHUP: the block log was closed and opened again."),
    ("capture-started", "Someone captures packets."),
    ("capture-stopped", "A capture ended."),
    (
        "checksums-wrong",
        "TCP SYNs come from a side with wrong checksums, so that no host answers them: an offload on a virtual link. Said once for a side.",
    ),
    (
        "cluster-awaited",
        "etcd does not answer and the node does not know its cluster, or no cluster file has been applied yet; it is waited for.",
    ),
    (
        "cluster-frozen",
        "Controller: nothing is moved, copied or repaired; says who froze it, and why.",
    ),
    (
        "cluster-halted",
        "Controller: more than a third of the nodes look gone or cut off, so nothing moves.",
    ),
    (
        "cluster-keys-read",
        "SIGHUP: the key file was read; says the names of its keys, to compare nodes by.",
    ),
    (
        "cluster-keys-refused",
        "SIGHUP: the key file cannot be read, or others can read it; the former cluster keys stay in use.",
    ),
    (
        "cluster-other",
        "The node was started without etcd, and etcd, which answers now, holds another cluster: the node stays outside.",
    ),
    ("cluster-resumed", "Controller: enough nodes are back, moves go on."),
    ("cluster-unfrozen", "Controller: moves and repairs go on."),
    ("config-warning", "The configuration works but will hurt, as `weir check` says."),
    ("controller-deposed", "Controller: it leads no more."),
    ("controller-elected", "Controller: it leads now."),
    ("controller-starting", "Controller: the process starts."),
    ("controller-stopped", "Controller: the process ends."),
    ("dpdk-started", "DPDK runs; says whether huge pages are used."),
    ("drain-begun", "Controller: a node is to be emptied; says by whose order."),
    ("drain-done", "Controller: a drained node holds no shard any more."),
    ("drain-ended", "Controller: the order to empty a node was taken back."),
    ("drain-waits", "Controller: a drain does not go on; says why."),
    (
        "end-forced",
        "The process did not end in time after it was asked to, and is ended where it stands.",
    ),
    ("end-late", "A part of the node did not end in time; the end goes on without it."),
    (
        "end-not-reported",
        "The guard could not be given the means to see a thread's end at once; it sees its silence.",
    ),
    (
        "epochs-not-kept",
        "The newest of the map cannot be written: entries are obeyed that a restart would forget, and a restored etcd could undo.",
    ),
    ("etcd-back", "Controller: etcd answers again."),
    ("etcd-found", "The node was started without etcd; etcd answers now, and the node takes part."),
    (
        "etcd-lost",
        "etcd does not answer; traffic and failovers go on, nothing is repaired or moved.",
    ),
    ("export-abandoned", "A collector's thread did not end: the disk of its spool stands still."),
    ("export-broken", "The connection to a collector broke; it is tried again."),
    ("export-connected", "Records of the NAT log go to a collector."),
    ("export-losing", "A collector will not get some records; the metrics say why."),
    ("export-not-connected", "A collector cannot be reached; it is tried again."),
    ("export-spool-failing", "The spool of a collector cannot be used; it is tried again."),
    ("export-spool-not-removed", "A segment of a spool that was sent cannot be removed."),
    ("export-spool-unreadable", "A file of a spool is none of this version; it was set aside."),
    ("gateway-down", "No gateway of a side answers ARP any more."),
    (
        "gateway-moved",
        "A gateway answers at another MAC than before: a router took over, or was replaced.",
    ),
    (
        "gateway-silent",
        "No gateway of a side has answered ARP since start; the worker keeps asking.",
    ),
    ("gateway-up", "A gateway of a side answers ARP."),
    ("guard-restarted", "The process that holds the routes ended and was restarted."),
    ("guard-resumed", "The guard of the routes that stood still goes on."),
    (
        "guard-silent",
        "The guard of the routes stands still: the routes of a worker that ends would stay. It is replaced after 2 s.",
    ),
    ("hand-over-late", "Some shards could not be handed over before the node ended."),
    ("handed-over", "Other nodes serve all shards that they have copies of; the node ends."),
    (
        "life-unsaid",
        "The node cannot write which process of it runs; after a kill the next one waits for the end of a lease.",
    ),
    ("link-down", "A port lost its link."),
    ("link-up", "A port has its link."),
    ("log-lines-lost", "The reader of the log stood still; so many lines are missing here."),
    ("map-set-back", "etcd tells another history than before, as after a restore from a backup."),
    ("map-unreadable", "A key of the cluster cannot be read by this version."),
    ("map-unwritten", "Controller: a decision could not be written to etcd; it is taken again."),
    ("map-write-refused", "etcd refuses to write a shard's entry."),
    (
        "member-fenced",
        "Controller: a member of a shard has certainly ended, its lanes go to others.",
    ),
    (
        "neighbor-claim-refused",
        "ARP named another MAC for a gateway or another worker, which answers at its own: forged, or two stations have one address.",
    ),
    (
        "node-judged",
        "Controller: a node is alive, stopping, suspect, dead or fenced now, or a worker of it is cut off or back; says why.",
    ),
    ("node-name-taken", "Another process is registered under this node's name."),
    ("node-ready", "All ports are up and all gateways answer."),
    ("node-registered", "The cluster knows this node."),
    ("node-starting", "The process starts."),
    ("node-stopped", "The process ends."),
    ("node-unregistered", "The node's lease has ended: the cluster counts it as gone."),
    ("order-done", "Controller: what an operator ordered or applied is carried out or taken."),
    ("panic", "A control thread hit a broken invariant."),
    ("port-warning", "A device works less well than asked."),
    ("primary-promoted", "Controller: a worker becomes primary of a shard; says why."),
    (
        "recording-ended",
        "The recording of the node's events has ended: it is as long as it may be, or cannot be written.",
    ),
    ("role-changed", "A worker has another role for a shard."),
    (
        "routes-held-off",
        "A worker stood still again and again: its routes stay a last resort for so many seconds.",
    ),
    ("routes-refused", "Routes are not in the kernel as they should be; they are tried again."),
    (
        "seats-resumed",
        "The node was started without etcd and has opened shards again with their other members; it tells etcd so.",
    ),
    ("shard-created", "Controller: a new shard has its first primary."),
    (
        "shard-followed",
        "Controller: the map follows what has happened already to a copy or a lane of a shard.",
    ),
    ("shard-moved", "Controller: a move of a shard begins or ends: a drain, or balance."),
    ("shard-repaired", "Controller: a shard with too few copies gets one more."),
    ("shard-retired", "Controller: a shard is given up, as ordered; its flows end."),
    (
        "shutdown-notice-failed",
        "etcd could not learn that the node has ended; its lanes wait for its next start.",
    ),
    ("start-failed", "The process cannot start; the exit code says why."),
    (
        "started-without-etcd",
        "etcd does not answer: the node runs with what its disk knows of the cluster, takes copies of its shards and makes no new flows until etcd answers, or all members of a shard have been started so.",
    ),
    ("stop-requested", "A signal asked the process to end."),
    ("tables-built", "A worker has its tables; says how large and on which pages."),
    ("worker-fenced", "A worker stood still: its routes are a last resort until it goes on."),
    ("worker-hung", "A worker does not go round its loop."),
    ("worker-panic", "A worker hit a broken invariant; the process ends."),
    (
        "worker-rejoined",
        "A fenced worker goes on; says how many packets it threw away, too late to be forwarded.",
    ),
    ("worker-resumed", "A worker that hung goes round its loop again."),
];

/// The rate limit of the log, and its number of suppressed lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLimit(Arc<Mutex<LogRate>>);

impl LogLimit {
    /// Returns the number of lines suppressed since start.
    pub(crate) fn suppressed(&self) -> u64 {
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
    pub(crate) fn suppressed(&self) -> u64 {
        self.limit.suppressed()
    }

    /// Returns how the reader of stderr keeps up.
    pub(crate) fn reading(&self) -> ReaderProgress {
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
    use std::path::Path;

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

    #[test]
    fn event_names_are_sorted_and_unique() {
        assert!(EVENTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    fn sources(folder: &Path, found: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push_str(&std::fs::read_to_string(&path).unwrap()),
            }
        }
    }

    #[test]
    fn every_event_that_is_logged_has_its_row() {
        let mut text = String::new();
        for folder in
            ["src", "../../cluster/node-core/src", "../../cluster/controller/src", "../weir/src"]
        {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut text);
        }
        let logged = text.split("event = \"").skip(1).filter_map(|rest| rest.split('"').next());
        let names: Vec<&str> = logged.collect();
        assert!(names.len() > 40, "{names:?}");
        let unknown = names.iter().find(|name| EVENTS.iter().all(|(known, _)| known != *name));
        assert_eq!(unknown, None);
    }
}
