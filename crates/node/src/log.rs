//! The operational log: lines on stderr, text or JSON, each with an `event` field that names its kind.
//!
//! The names are stable, operators alert on them; they are listed in [`EVENTS`]. Each kind is rate-limited alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use weir_config::{LogFormat, LogLevel};

use crate::log_rate::LogRate;

/// Every kind of event and what it means.
pub const EVENTS: &[(&str, &str)] = &[
    ("admin-change", "Someone changed state through the admin API."),
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
        "cluster-awaited",
        "etcd does not answer, or no cluster file has been applied yet; it is waited for.",
    ),
    ("config-warning", "The configuration works but will hurt, as `weir check` says."),
    ("dpdk-started", "DPDK runs; says whether huge pages are used."),
    (
        "end-not-told",
        "The guard could not be given the means to see a thread's end at once; it sees its silence.",
    ),
    ("epochs-not-kept", "What keeps a restored etcd from undoing what is newer cannot be written."),
    (
        "etcd-lost",
        "etcd does not answer; traffic and failovers go on, nothing is repaired or moved.",
    ),
    (
        "farewell-unsaid",
        "etcd could not be told that the node has ended; its lanes wait for its next start.",
    ),
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
    ("guard-restarted", "The process that holds the routes ended and was started anew."),
    ("hand-over-late", "Some shards could not be handed over before the node ended."),
    ("handed-over", "Other nodes serve all shards that they have copies of; the node ends."),
    (
        "life-unsaid",
        "The node cannot write which process of it runs; after a kill the next one waits for the end of a lease.",
    ),
    ("link-down", "A port lost its link."),
    ("link-up", "A port has its link."),
    ("map-set-back", "etcd tells another history than before, as after a restore from a backup."),
    ("map-unreadable", "A key of the cluster cannot be read by this version."),
    ("map-write-refused", "etcd refuses to write a shard's entry."),
    (
        "neighbor-claim-refused",
        "ARP named another MAC for a gateway or another worker, which answers at its own: forged, or two stations have one address.",
    ),
    ("node-name-taken", "Another process is registered under this node's name."),
    ("node-ready", "All ports are up and all gateways answer."),
    ("node-registered", "The cluster knows this node."),
    ("node-starting", "The process starts."),
    ("node-stopped", "The process ends."),
    ("node-unregistered", "The node's lease has ended: the cluster counts it as gone."),
    ("panic", "A control thread hit a broken invariant."),
    ("port-warning", "A device works less well than asked."),
    ("role-changed", "A worker has another role for a shard."),
    ("routes-refused", "Routes are not in the kernel as they should be; they are tried again."),
    ("start-failed", "The process cannot start; the exit code says why."),
    ("stop-requested", "A signal asked the process to end."),
    ("tables-built", "A worker has its tables; says how large and on which pages."),
    ("worker-fenced", "A worker stood still, so its routes were withdrawn until it went on."),
    ("worker-hung", "A worker does not go round its loop."),
    ("worker-panic", "A worker hit a broken invariant; the process ends."),
    (
        "worker-rejoined",
        "A fenced worker goes on; says how many packets it threw away, too late to be forwarded.",
    ),
    ("worker-resumed", "A worker that hung goes round its loop again."),
];

/// Where the number of lines kept back is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLimit(Arc<Mutex<LogRate>>);

impl LogLimit {
    /// Lines kept back since start.
    pub(crate) fn suppressed(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).suppressed()
    }

    fn admit(&self, kind: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(kind, Instant::now())
    }
}

/// Sends the log of the whole process to stderr. Only the first call of a process has an effect.
pub(crate) fn to_stderr(level: LogLevel, format: LogFormat) -> LogLimit {
    let limit = LogLimit::default();
    let subscriber = subscriber(level, format, limit.clone(), std::io::stderr);
    // Fails only when a log is already set, which then stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    limit
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
        let mut kind = Kind(event.metadata().name().to_owned());
        event.record(&mut kind);
        self.limit.admit(&kind.0)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }
}

/// Reads the `event` field; without one, the place in the code is the kind.
struct Kind(String);

impl Visit for Kind {
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

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, write: impl FnOnce()) -> (String, LogLimit) {
        let lines = Lines::default();
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
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let logged = text.split("event = \"").skip(1).filter_map(|rest| rest.split('"').next());
        let names: Vec<&str> = logged.collect();
        assert!(names.len() > 40, "{names:?}");
        let unknown = names.iter().find(|name| EVENTS.iter().all(|(known, _)| known != *name));
        assert_eq!(unknown, None);
    }
}
