//! The control side while workers forward: admin API, metrics, signals, the watch over the workers.
//!
//! One tokio runtime on the main thread, which runs on the control cores.

use std::future::pending;
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{self, MetricsServer};
use crate::cluster::Membership;
use crate::counted_rules;
use crate::failure::Failure;
use crate::log_loss::LogLoss;
use crate::node::Node;
use crate::notice_log::log_notice;
use crate::rule_log;
use crate::turns::Thread;
use crate::watch::{StatusChange, StatusWatch};
use crate::worker_thread::Ended;

/// Time between two checks of the workers.
const LOOK: Duration = Duration::from_millis(50);

/// The signals a node listens to. Made before anything is started, so that none is missed.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers. Must be called inside the runtime.
    ///
    /// # Errors
    /// When the kernel refuses a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Serves and watches until a signal asks to stop or a worker panics.
///
/// # Errors
/// When a worker panics.
pub(crate) async fn control(
    node: Arc<Node>,
    membership: Option<&Membership>,
    listener: UnixListener,
    metrics: Option<MetricsServer>,
    mut signals: Signals,
    mut ended: UnboundedReceiver<Ended>,
) -> Result<(), Failure> {
    tokio::spawn(admin::serve(listener, Arc::clone(&node)));
    if let Some(metrics) = metrics {
        tokio::spawn(metrics.serve(Arc::clone(&node)));
    }
    tokio::spawn(counted_rules::look(Arc::clone(&node)));
    tokio::spawn(rule_log::look(Arc::clone(&node)));
    let started = Instant::now();
    let mut watch = StatusWatch::default();
    let mut log_loss = LogLoss::default();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut handing_over: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(pending());
    let mut is_ending = false;
    loop {
        tokio::select! {
            _ = look.tick() => {
                node.turns.turned(Thread::Control);
                look_at_workers(&node, &mut watch, started);
                let stats = node.workers.iter().map(|worker| &*worker.stats);
                node.rates.look(node.clock.now(), stats);
                look_at_logs(&node, &mut log_loss);
            }
            signal = ended_by(&mut signals.terminate, &mut signals.interrupt) => {
                tracing::info!(event = "stop-requested", signal, "stopping");
                // A second signal ends the node without waiting for the hand-over.
                match membership.filter(|_| !is_ending) {
                    Some(membership) => handing_over = Box::pin(membership.hand_over()),
                    None => return Ok(()),
                }
                is_ending = true;
            }
            () = &mut handing_over => return Ok(()),
            _ = signals.hangup.recv() => {
                reopen(&node);
                membership.into_iter().for_each(Membership::read_keys_again);
            }
            Some(ended) = ended.recv() => return Err(failed(ended)),
        }
    }
}

/// Returns the name of the signal that asks the node to end.
async fn ended_by(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

fn reopen(node: &Node) {
    if let Some(log) = &node.block_log {
        log.reopen();
        tracing::info!(event = "block-log-reopened", path = %log.path.display(), "block log reopened");
    }
}

fn failed(ended: Ended) -> Failure {
    let Ended { worker, panic } = ended;
    tracing::error!(event = "worker-panic", worker, place = panic.place, "{}", panic.message);
    Failure::WorkerPanic { worker, place: panic.place, message: panic.message }
}

fn look_at_workers(node: &Node, watch: &mut StatusWatch, started: Instant) {
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    for notice in watch.observe(elapsed_ms, &node.worker_statuses()) {
        log_notice(&notice);
        if notice == StatusChange::Ready {
            node.has_been_ready.store(true, Relaxed);
            notify_ready();
        }
    }
}

/// Writes `ready` to stdout in a thread of its own: a closed stdout is no reason to stop
/// forwarding, and an unread one no reason to wait.
fn notify_ready() {
    let started = thread::Builder::new().name("weir-ready".into()).spawn(|| {
        let _ = writeln!(io::stdout(), "ready");
    });
    if let Err(error) = started {
        tracing::warn!(event = "node-ready", "`ready` is not on stdout: {error}");
    }
}

fn look_at_logs(node: &Node, loss: &mut LogLoss) {
    node.collectors.look(Instant::now());
    let Some(log) = &node.block_log else { return };
    let counters = log.counters();
    let lost = counters.lost_total + counters.write_errors_total;
    if loss.observe(Instant::now(), lost) {
        tracing::error!(event = "block-log-failing", lost_total = lost, "block log loses records");
    }
    node.is_block_log_failing.store(loss.is_recent(Instant::now()), Relaxed);
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::panic_place::Panic;
    use crate::sample_node::sample_node;

    #[test]
    fn a_workers_panic_ends_the_node_with_its_place_and_exit_code() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("n1.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (node, _mailbox) = sample_node();
        let (ended_in, ended) = unbounded_channel();
        let panic = Panic { place: "slab.rs:7".into(), message: "slot 3 is free".into() };
        ended_in.send(Ended { worker: 1, panic }).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let failure = runtime
            .block_on(async {
                let signals = Signals::listen().unwrap();
                control(node, None, listener, None, signals, ended).await
            })
            .unwrap_err();
        assert_eq!(failure.exit_code(), 70);
        assert_eq!(failure.to_string(), "worker 1 panicked at slab.rs:7: slot 3 is free");
    }
}
