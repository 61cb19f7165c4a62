//! A node from start to end. Each step needs the ones before it; a step that fails undoes them all
//! by being dropped.
//!
//! ```text
//!   cores -> admin socket, metrics address (which report what is waited for)
//!   -> (a member: guard, etcd, settings of the cluster) -> memory -> EAL without devices
//!   -> block log -> per worker: pool, thread with its tables, ports -> all workers go
//!   -> (a member: roles) -> ready -> (signal or panic) -> (a member: shards handed over)
//!   -> workers stop -> block log is written out -> ports close -> socket file goes
//! ```

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use weir_admin::api::SettingsSource;
use weir_config::{Config, Diagnostic, HugePagesSetting, MemberFile, NodeSettings, WorkerSettings};
use weir_dpdk::{DpdkError, Eal, EalConfig, MbufPool, socket_of_core};
use weir_engine::{LiveSettings, Side};
use weir_nat::AddressRanges;
use weir_nat_log::{BlockLog, BlockLogSender, NodeLife};
use weir_node_core::ClusterRoom;
use weir_node_core::nat_setup::shards_of;
use weir_process::http::HttpNumbers;
use weir_process::{FORCED_END, Log, log_to_stderr};

use crate::admin::{AdminSocket, ClaimError, MetricsServer, StartServer};
use crate::block_events::BlockEventLog;
use crate::clock::Clock;
use crate::cluster::{HAND_OVER_MAX, JoiningNode, Membership, ThreadMember};
use crate::collectors::Collectors;
use crate::control::{Signals, control};
use crate::counted_rules::CountedRules;
use crate::engine_config::{all_public, engine_config, random};
use crate::failure::Failure;
use crate::forced_end::{ForcedEnd, Why};
use crate::generations::Generations;
use crate::generations::follow::{applied_settings, follow};
use crate::memory::{self, frame_max, held_max, pool_size, total_mb};
use crate::node::{Node, NodeBlockLog, ShardHandle, ShardHandles, WorkerHandle};
use crate::page_policy::PagePolicy;
use crate::rates::Rates;
use crate::single_node::{SingleNode, keep};
use crate::start_progress::StartProgress;
use crate::turns::Turns;
use crate::worker_thread::{Ended, WorkerPorts, WorkerThread, WorkerThreadInputs};
use crate::{cores, panic_place, ports};

/// The node's file.
enum LoadedFile<'a> {
    Single(&'a SingleNode),
    Member(&'a MemberFile),
}

impl LoadedFile<'_> {
    fn node(&self) -> &NodeSettings {
        match self {
            Self::Single(single) => &single.config.node,
            Self::Member(member) => &member.node,
        }
    }

    fn workers(&self) -> &[WorkerSettings] {
        match self {
            Self::Single(single) => &single.config.workers,
            Self::Member(member) => &member.workers,
        }
    }

    fn single(&self) -> Option<&SingleNode> {
        match self {
            Self::Single(single) => Some(single),
            Self::Member(_) => None,
        }
    }
}

/// Runs a standalone node until SIGTERM or SIGINT. `weir reload` reads its file again.
///
/// # Errors
/// When it did not start, or ended by itself; the reason is already in the log.
pub fn run(single: &SingleNode) -> Result<(), Failure> {
    run_file(&LoadedFile::Single(single), &single.warnings, None)
}

/// Runs a node of a cluster until SIGTERM or SIGINT; it hands its shards over before it ends.
///
/// `recording`: the file to which all input of the node's core is written, for `weir replay`.
///
/// # Errors
/// As [`run`].
pub fn run_member(
    member: &MemberFile,
    warnings: &[Diagnostic],
    recording: Option<&Path>,
) -> Result<(), Failure> {
    run_file(&LoadedFile::Member(member), warnings, recording)
}

fn run_file(
    file: &LoadedFile<'_>,
    warnings: &[Diagnostic],
    recording: Option<&Path>,
) -> Result<(), Failure> {
    let node = file.node();
    let cores = expected_control_cores(node, file.workers());
    let its_cores = cores.clone();
    let log = log_to_stderr(node.log_level, node.log_format, move || cores::keep_to(&its_cores))
        .map_err(Failure::Control)?;
    let _flush = FlushAtEnd(log.clone());
    panic_place::install();
    let its_log = log.clone();
    let forced_end = ForcedEnd::start(
        move || cores::keep_to(&cores),
        move |why| {
            if why == Why::Late {
                tracing::error!(
                    event = "end-forced",
                    exit_code = FORCED_END,
                    "the process did not end in time"
                );
            }
            its_log.flush();
        },
    )
    .map_err(Failure::Control)?;
    let name = node.name.as_str();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(event = "node-starting", node = name, version, "starting");
    for warning in warnings {
        tracing::warn!(event = "config-warning", "{warning}");
    }
    let result = start_and_control(file, log, &forced_end, recording);
    match &result {
        Ok(()) => tracing::info!(event = "node-stopped", "stopped"),
        Err(Failure::WorkerPanic { .. }) => {
            tracing::error!(event = "node-stopped", "stopped after a worker's panic");
        }
        Err(failure) => {
            let exit_code = failure.exit_code();
            tracing::error!(event = "start-failed", exit_code, "{failure}");
        }
    }
    result
}

/// Writes out the lines that the log holds, however the node ends.
struct FlushAtEnd(Log);

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Returns the cores for threads that begin before the cores are checked.
fn expected_control_cores(node: &NodeSettings, workers: &[WorkerSettings]) -> Vec<usize> {
    let workers: Vec<usize> = workers.iter().map(|worker| worker.core).collect();
    let online = cores::online().unwrap_or_default();
    cores::control(node.control_cores.as_deref(), &online, &workers)
}

fn start_and_control(
    file: &LoadedFile<'_>,
    log: Log,
    forced_end: &ForcedEnd,
    recording: Option<&Path>,
) -> Result<(), Failure> {
    let node_config = file.node();
    if let Some(single) = file.single() {
        memory::check(&single.config, &[]).map_err(Failure::Memory)?;
    }
    let control_cores = check_cores(node_config, file.workers())?;
    let socket = claim_socket(node_config)?;
    let metrics = bind_metrics(node_config)?;
    let (progress, http) = (StartProgress::begin(&node_config.name), Arc::default());
    let start_server =
        serve_start(node_config, &progress, &http, &socket, metrics.as_ref(), &control_cores)?;
    let (config, mut joining) = match file {
        LoadedFile::Single(single) => (single.config.clone(), None),
        LoadedFile::Member(member) => {
            let joining = JoiningNode::begin(member, &control_cores, &progress)?;
            memory::check(&joining.config(), &joining.rooms()).map_err(Failure::Memory)?;
            (joining.config(), Some(joining))
        }
    };
    let rooms = joining.as_ref().map(JoiningNode::rooms).unwrap_or_default();
    let generations = Generations::new(&config, &rooms, file.single())?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Control)?;
    let signals = listen(&runtime)?;
    forced_end.node_listens(match file {
        LoadedFile::Single(..) => Duration::ZERO,
        LoadedFile::Member(_) => HAND_OVER_MAX,
    });
    let eal = start_eal(&config, &rooms, control_cores)?;
    let (block_log, senders) = start_block_log(&config, joining.is_some())?;
    let (collectors, exporters) = Collectors::start(&config.node, config.workers.len())
        .map_err(|error| Failure::Collector(error.to_string()))?;
    let (mut senders, mut exporters) = (senders.into_iter(), exporters.into_iter());
    let (ended_in, ended) = unbounded_channel();
    let start = WorkerStart {
        config: &config,
        page_policy: PagePolicy::new(&config, &rooms),
        rooms,
        all_public: Arc::new(all_public(&config)),
        eal: &eal,
        clock: Clock::start(),
        is_stopping: Arc::new(AtomicBool::new(false)),
        ended: ended_in,
    };
    let mut settings = generations.at_start(&config)?.into_iter();
    let mut handles = Vec::new();
    let mut threads = Vec::new();
    for worker in 0..config.workers.len() {
        let log = BlockEventLog::new(senders.next(), exporters.next(), worker);
        let member = joining.as_mut().map(|joining| joining.thread_member(worker)).transpose()?;
        let (thread, ports, handle) =
            start.worker(worker, log, settings.next().map(Box::new), member)?;
        threads.push((thread, ports));
        handles.push(handle);
    }
    let node = Arc::new(Node {
        name: config.node.name.clone(),
        clock: start.clock,
        has_huge_pages: eal.uses_huge_pages(),
        workers: handles,
        block_log,
        collectors,
        log,
        turns: Arc::new(Turns::new(start.clock, joining.as_ref().map(JoiningNode::words))),
        frame_max: frame_max(&config),
        has_been_ready: AtomicBool::new(false),
        is_block_log_failing: AtomicBool::new(false),
        generations,
        counted_rules: CountedRules::default(),
        rates: Rates::default(),
        http,
        member: OnceLock::new(),
    });
    let listener = socket.listener().map_err(|error| socket_failure(node_config, &error.into()))?;
    let threads: Vec<_> = threads
        .into_iter()
        .map(|(mut thread, ports)| {
            thread.go(ports);
            thread
        })
        .collect();
    let membership = match joining {
        Some(joining) => Some(take_part(joining, &node, recording, &runtime)?),
        None => None,
    };
    drop(start_server);
    match file.single() {
        Some(single) if single.refused.is_empty() => keep(&single.texts),
        _ => {}
    }
    let result = runtime.block_on(control(
        Arc::clone(&node),
        membership.as_ref(),
        listener,
        metrics,
        signals,
        ended,
    ));
    forced_end.end_begins();
    // The order of the end: routes, workers, tasks (which hold the node), the log of the workers'
    // last events, the shutdown notice, ports, socket.
    let shutdown_notice = membership.map(Membership::withdraw);
    drop(threads);
    drop(runtime);
    if let Some(log) = &node.block_log {
        log.stop();
    }
    node.collectors.stop();
    if let Some(shutdown_notice) = shutdown_notice {
        shutdown_notice.send();
    }
    drop(node);
    drop(socket);
    result
}

/// Registers the node, which takes the cluster's settings from then on.
fn take_part(
    joining: JoiningNode,
    node: &Arc<Node>,
    recording: Option<&Path>,
    runtime: &Runtime,
) -> Result<Membership, Failure> {
    let (applied_in, applied) = applied_settings();
    let (member, desired) = (joining.member.clone(), joining.desired.clone());
    node.generations.begin_with(SettingsSource::Cluster(desired.to_json()));
    runtime.spawn(follow(Arc::clone(node), member, desired, applied));
    joining.take_part(node, recording, applied_in)
}

/// Checks that every core exists; returns those of the control threads.
fn check_cores(node: &NodeSettings, workers: &[WorkerSettings]) -> Result<Vec<usize>, Failure> {
    let online = cores::online().map_err(Failure::Control)?;
    let listed = || online.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let workers: Vec<usize> = workers.iter().map(|worker| worker.core).collect();
    for (worker, core) in workers.iter().copied().enumerate() {
        if !online.contains(&core) {
            return Err(Failure::CoreMissing { worker, core, online: listed() });
        }
    }
    let control = cores::control(node.control_cores.as_deref(), &online, &workers);
    match control.iter().find(|core| !online.contains(core)) {
        Some(&core) => Err(Failure::ControlCoreMissing { core, online: listed() }),
        None => Ok(control),
    }
}

fn claim_socket(node: &NodeSettings) -> Result<AdminSocket, Failure> {
    AdminSocket::claim(&node.admin_socket, node.admin_group.as_deref())
        .map_err(|error| socket_failure(node, &error))
}

/// Lets both listeners answer from then on, while the node starts.
fn serve_start(
    node: &NodeSettings,
    progress: &StartProgress,
    http: &Arc<HttpNumbers>,
    socket: &AdminSocket,
    metrics: Option<&MetricsServer>,
    control_cores: &[usize],
) -> Result<StartServer, Failure> {
    let admin = socket.listener().map_err(|error| socket_failure(node, &error.into()))?;
    let metrics = metrics.map(MetricsServer::listener).transpose().map_err(Failure::Control)?;
    let cores = control_cores.to_vec();
    StartServer::begin(progress.clone(), http, admin, metrics, move || cores::keep_to(&cores))
        .map_err(Failure::Control)
}

fn socket_failure(node: &NodeSettings, error: &ClaimError) -> Failure {
    let path = node.admin_socket.clone();
    match error {
        ClaimError::AlreadyRunning => Failure::AlreadyRunning(path),
        other => Failure::AdminSocket { path, reason: other.to_string() },
    }
}

fn bind_metrics(node: &NodeSettings) -> Result<Option<MetricsServer>, Failure> {
    let bind = |address| {
        MetricsServer::bind(address).map_err(|reason| Failure::Metrics { address, reason })
    };
    node.metrics.map(bind).transpose()
}

fn listen(runtime: &Runtime) -> Result<Signals, Failure> {
    let _context = runtime.enter();
    Signals::listen().map_err(Failure::Control)
}

fn start_eal(
    config: &Config,
    rooms: &[ClusterRoom],
    control_cores: Vec<usize>,
) -> Result<Eal, Failure> {
    let node = &config.node;
    let file_name = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let eal = Eal::init(EalConfig {
        file_prefix: format!("weir-{}", node.name.chars().map(file_name).collect::<String>()),
        control_cores,
        memory_mb: node.memory_mb.map_or_else(|| total_mb(config, rooms), |mb| mb as usize),
        hugepages: match node.hugepages {
            HugePagesSetting::Auto | HugePagesSetting::Prefer => weir_dpdk::HugePages::Auto,
            HugePagesSetting::Never => weir_dpdk::HugePages::Never,
        },
        extra: node.eal.clone(),
    })
    .map_err(dpdk_failure)?;
    tracing::info!(event = "dpdk-started", memory = eal.memory(), "DPDK started");
    Ok(eal)
}

fn dpdk_failure(error: DpdkError) -> Failure {
    match error {
        DpdkError::Memory { .. } => Failure::Memory(error.to_string()),
        other => Failure::Eal(other.to_string()),
    }
}

/// Returns the log and one sender per worker; without a log no senders.
fn start_block_log(
    config: &Config,
    is_clustered: bool,
) -> Result<(Option<NodeBlockLog>, Vec<BlockLogSender>), Failure> {
    let Some(path) = &config.node.block_log else { return Ok((None, Vec::new())) };
    let boot = random().map_err(Failure::Control)?;
    let life = NodeLife { node: &config.node.name, boot, is_clustered };
    let clock = Box::new(SystemTime::now);
    let (senders, handle) = BlockLog::start(path, life, config.workers.len(), clock)
        .map_err(|error| Failure::BlockLog(error.to_string()))?;
    let log = NodeBlockLog { path: path.clone(), handle: Some(handle).into() };
    Ok((Some(log), senders))
}

/// Inputs that all workers' starts share.
struct WorkerStart<'a> {
    config: &'a Config,
    /// Room of each worker, in a cluster.
    rooms: Vec<ClusterRoom>,
    page_policy: PagePolicy,
    all_public: Arc<AddressRanges>,
    eal: &'a Eal,
    clock: Clock,
    is_stopping: Arc<AtomicBool>,
    ended: UnboundedSender<Ended>,
}

impl WorkerStart<'_> {
    fn worker(
        &self,
        worker: usize,
        block_log: Option<BlockEventLog>,
        settings: Option<Box<LiveSettings>>,
        member: Option<ThreadMember>,
    ) -> Result<(WorkerThread, WorkerPorts, WorkerHandle), Failure> {
        let config = &self.config.workers[worker];
        let room = self.rooms.get(worker);
        let size = pool_size(config, held_max(self.config, room));
        let socket = socket_of_core(config.core);
        let name = format!("weir-worker-{worker}");
        let pool =
            MbufPool::new(&name, size.buffers, size.data_room, socket).map_err(dpdk_failure)?;
        let engine = engine_config(self.config, worker, room)
            .map_err(|error| Failure::Engine { worker, reason: error.to_string() })?;
        let inputs = WorkerThreadInputs {
            worker,
            core: config.core,
            shards_max: engine.nat.shards_max(),
            engine,
            settings,
            page_policy: self.page_policy,
            all_public: Arc::clone(&self.all_public),
            pool: pool.clone(),
            block_log,
            clock: self.clock,
            poll: self.config.node.poll,
            is_stopping: Arc::clone(&self.is_stopping),
            member: member.map(Box::new),
            commit: room.and_then(|room| room.commit),
        };
        let thread = WorkerThread::spawn(inputs, self.ended.clone())?;
        let access = ports::attach(self.eal, worker, config, Side::Access, &pool)?;
        let internet = ports::attach(self.eal, worker, config, Side::Internet, &pool)?;
        let ports = WorkerPorts {
            access: access.queues,
            internet: internet.queues,
            macs: [access.mac, internet.mac],
        };
        let handle = WorkerHandle {
            worker,
            core: config.core,
            stats: Arc::clone(&thread.stats),
            requester: thread.requester.clone(),
            ports: [access.handle, internet.handle],
            shards: Arc::new(ShardHandles::new(self.shard_handles(worker))),
        };
        Ok((thread, ports, handle))
    }

    fn shard_handles(&self, worker: usize) -> impl Iterator<Item = ShardHandle> {
        shards_of(self.config, worker).map(|shard| ShardHandle {
            id: shard.id,
            endpoint: shard.endpoint,
            public: shard.public.iter().map(ToString::to_string).collect(),
            public6: shard.public6.iter().map(ToString::to_string).collect(),
            subscribers_max: u64::from(shard.subscribers_max),
        })
    }
}
