//! A worker's thread from start to end: pinned, known to DPDK, its tables on its own memory, its
//! panics reported.
//!
//! ```text
//!   node:    spawn ----------------- attach ports -- go(ports) ------ stop -- join
//!   thread:  pin, register, build tables -- built --- run ... run ... --- end (panic?)
//! ```
//!
//! The tables are built in the thread, so that the memory first touched lies on the core's own NUMA
//! node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::mpsc::UnboundedSender;
use weir_config::Poll;
use weir_dpdk::{Mbuf, MbufPool, pin_current_thread, register_worker_thread, tsc_hz};
use weir_engine::{CommitLimits, Engine, EngineConfig, EngineError, LiveSettings, Side};
use weir_nat::{AddressRanges, NatError};
use weir_node_core::TableMemory;
use weir_wire::ethernet::Mac;

use crate::block_events::BlockEventLog;
use crate::clock::Clock;
use crate::cluster::ThreadMember;
use crate::dpdk_ports::{DpdkPorts, PortQueues};
use crate::failure::Failure;
use crate::page_policy::PagePolicy;
use crate::panic_place::{self, Panic};
use crate::publisher::Publisher;
use crate::request::{Mailbox, Requester, mailbox};
use crate::request_server::RequestServer;
use crate::worker::WorkerLoop;
use crate::worker_stats::WorkerStats;

/// Inputs of a worker thread.
#[derive(Debug)]
pub(crate) struct WorkerThreadInputs {
    pub worker: usize,
    pub core: usize,
    pub engine: EngineConfig,
    /// The first generation of the settings that may change.
    pub settings: Option<Box<LiveSettings>>,
    pub page_policy: PagePolicy,
    /// Public addresses of all workers of the node; in a cluster they come as commands.
    pub all_public: Arc<AddressRanges>,
    pub pool: MbufPool,
    pub block_log: Option<BlockEventLog>,
    pub clock: Clock,
    pub poll: Poll,
    pub is_stopping: Arc<AtomicBool>,
    pub member: Option<Box<ThreadMember>>,
    /// Limits of packets that wait for copies.
    pub commit: Option<CommitLimits>,
    /// Shards that its stats have room for.
    pub shards_max: usize,
}

/// The ports of a worker, attached once its tables are there.
#[derive(Debug)]
pub(crate) struct WorkerPorts {
    pub access: PortQueues,
    pub internet: PortQueues,
    /// MACs of access and internet.
    pub macs: [Mac; 2],
}

/// A worker that ended by itself.
#[derive(Debug)]
pub(crate) struct Ended {
    pub worker: usize,
    /// The panic that ended it.
    pub panic: Panic,
}

/// A worker whose tables are built and that waits for [`WorkerThread::go`]. Dropping it stops the
/// thread and waits for its end.
#[derive(Debug)]
pub(crate) struct WorkerThread {
    pub requester: Requester,
    pub stats: Arc<WorkerStats>,
    go: Option<Sender<WorkerPorts>>,
    thread: Option<JoinHandle<()>>,
    is_stopping: Arc<AtomicBool>,
}

/// Channels that the thread needs besides its inputs.
struct Wiring {
    mailbox: Mailbox,
    built: Sender<Result<Arc<WorkerStats>, Failure>>,
    go: Receiver<WorkerPorts>,
    ended: UnboundedSender<Ended>,
}

impl WorkerThread {
    /// Starts the thread and waits until its tables are built.
    ///
    /// # Errors
    /// When the thread cannot be started or pinned, or the tables cannot be built.
    pub(crate) fn spawn(
        inputs: WorkerThreadInputs,
        ended: UnboundedSender<Ended>,
    ) -> Result<Self, Failure> {
        let (worker, is_stopping) = (inputs.worker, Arc::clone(&inputs.is_stopping));
        let (requester, mailbox) = mailbox();
        let (built, built_out) = channel();
        let (go_in, go) = channel();
        let wiring = Wiring { mailbox, built, go, ended };
        let thread = std::thread::Builder::new()
            .name(format!("weir-worker-{worker}"))
            .spawn(move || thread_main(inputs, wiring))
            .map_err(|error| Failure::Thread { worker, reason: error.to_string() })?;
        match built_out.recv() {
            Ok(Ok(stats)) => {
                Ok(Self { requester, stats, go: Some(go_in), thread: Some(thread), is_stopping })
            }
            Ok(Err(failure)) => {
                let _ = thread.join();
                Err(failure)
            }
            Err(_) => {
                let _ = thread.join();
                Err(Failure::Thread { worker, reason: "ended while it built its tables".into() })
            }
        }
    }

    /// Gives the thread its ports and lets it forward.
    pub(crate) fn go(&mut self, ports: WorkerPorts) {
        // Dropping the sender without a message would end the thread instead.
        if let Some(go) = self.go.take() {
            let _ = go.send(ports);
        }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.is_stopping.store(true, Relaxed);
        self.go = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn thread_main(inputs: WorkerThreadInputs, wiring: Wiring) {
    let ended = wiring.ended.clone();
    report_panic(inputs.worker, &ended, || build_and_run(inputs, wiring));
}

/// Runs a worker from start to end; reports its panic to the node.
fn report_panic(worker: usize, ended: &UnboundedSender<Ended>, life: impl FnOnce()) {
    if let Err(panic) = panic_place::catch(life) {
        // A node that is stopping has no receiver any more.
        let _ = ended.send(Ended { worker, panic });
    }
}

fn build_and_run(inputs: WorkerThreadInputs, wiring: Wiring) {
    let Wiring { mailbox, built, go, ended: _ended } = wiring;
    let worker = inputs.worker;
    let thread_failure =
        |error: weir_dpdk::DpdkError| Failure::Thread { worker, reason: error.to_string() };
    let registered = pin_current_thread(inputs.core).and_then(|()| register_worker_thread());
    let _registration = match registered.map_err(thread_failure) {
        Ok(registration) => registration,
        Err(failure) => {
            send(&built, Err(failure));
            return;
        }
    };
    let mut engine = match Engine::new(inputs.engine) {
        Ok(engine) => engine,
        Err(error) => {
            send(&built, Err(engine_failure(worker, &error)));
            return;
        }
    };
    if let Err(refusal) = inputs.page_policy.check(worker, &engine.nat().admin().gauges()) {
        send(&built, Err(Failure::Memory(refusal)));
        return;
    }
    if let Some(settings) = inputs.settings {
        drop(engine.setup().swap_live(settings));
    }
    engine.setup().set_all_public(inputs.all_public);
    if inputs.member.is_some() {
        engine.setup().watch_gateways();
    }
    if let Some(limits) = inputs.commit {
        engine.setup().hold_uncommitted(limits);
    }
    log_tables(worker, inputs.core, &engine);
    let stats = Arc::new(WorkerStats::new(engine.admin().counters(), inputs.shards_max, tsc_hz()));
    let mut publisher = Publisher::default();
    publisher.publish_all(&engine, &stats);
    stats.seen_ms.set(u64::try_from(inputs.clock.now().as_millis()).unwrap_or(u64::MAX));
    send(&built, Ok(Arc::clone(&stats)));
    let Ok(ports) = go.recv() else { return };
    for (side, mac) in Side::ALL.into_iter().zip(ports.macs) {
        engine.setup().set_mac(side, mac);
    }
    if let Some(member) = &inputs.member {
        member.link.begin();
    }
    WorkerLoop {
        core: weir_worker::Worker::new(engine, inputs.member),
        ports: DpdkPorts {
            pool: inputs.pool,
            access: ports.access,
            internet: ports.internet,
            stats,
            request_server: RequestServer::new(mailbox),
            clock: inputs.clock,
            has_ticked: false,
        },
        publisher,
        block_log: inputs.block_log,
        poll: inputs.poll,
        is_stopping: inputs.is_stopping,
    }
    .run()
}

fn log_tables(worker: usize, core: usize, engine: &Engine<Mbuf>) {
    let gauges = engine.nat().admin().gauges();
    let memory = TableMemory { flows_max: gauges.flows_max, tables: gauges.tables };
    tracing::info!(
        event = "tables-built",
        worker,
        core,
        flows_max = gauges.flows_max,
        memory_mb = gauges.memory_bytes >> 20,
        bytes_per_flow = memory.bytes_per_flow().round(),
        record_pages = %gauges.pages.mappings,
        index_pages = %gauges.pages.indexes(),
        "tables are built"
    );
}

fn engine_failure(worker: usize, error: &EngineError) -> Failure {
    match error {
        EngineError::Nat(NatError::OutOfMemory(_)) => {
            Failure::Memory(format!("worker {worker}: {error}"))
        }
        _ => Failure::Engine { worker, reason: error.to_string() },
    }
}

/// Sends the result to a node that waits; if the node has gone, the thread ends by itself.
fn send(
    built: &Sender<Result<Arc<WorkerStats>, Failure>>,
    result: Result<Arc<WorkerStats>, Failure>,
) {
    let _ = built.send(result);
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn the_node_learns_of_a_panic_and_of_nothing_else() {
        panic_place::install();
        let (ended_in, mut ended) = unbounded_channel();
        report_panic(2, &ended_in, || ());
        assert!(ended.try_recv().is_err());
        let thread = std::thread::spawn(move || {
            report_panic(3, &ended_in, || panic!("bucket {} is missing", 5));
        });
        thread.join().unwrap();
        let Ended { worker, panic } = ended.try_recv().unwrap();
        assert_eq!((worker, panic.message.as_str()), (3, "bucket 5 is missing"));
        assert!(panic.place.contains("worker_thread.rs:"), "{}", panic.place);
    }
}
