//! The generations of the node's settings: built on a thread of their own, swapped into each worker
//! between two turns, and freed here.
//!
//! ```text
//!   single node: POST /reload --> the file ----+
//!   cluster: roles thread --> what was applied-+--> build, for each worker --> SwapLive --> worker
//!                                                                                 |
//!                                          former generation, to be freed <-------+
//! ```
//!
//! Invariants: one generation is taken at a time; one that cannot be built changes nothing. A
//! worker that does not answer in time is named, and takes the generation when it turns again.
//! Generations reach a worker in their order.

pub(crate) mod follow;
pub(crate) mod reload;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout_at};
use weir_admin::api::{GenerationStatus, SettingsSource};
use weir_config::Config;
use weir_engine::LiveSettings;
use weir_nat::{LiveNatSettings, NeedsRestart};
use weir_node_core::live::{live_nat_settings, live_settings};
use weir_node_core::{ClusterRoom, FlowSettings, NamedRule};

use crate::failure::Failure;
use crate::node::WorkerHandle;
use crate::request::{ANSWER_TIMEOUT, LiveSwap, Requester, WorkerRequest};
use crate::single_node::SingleNode;
use reload::ReloadedFile;

/// Time between two looks whether a worker's full queue has room.
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(100);

/// What is added to the niceness of the thread that builds a generation.
const GIVES_WAY: i32 = 10;

/// The settings of a running node.
#[derive(Debug)]
pub(crate) struct Generations {
    /// What the tables of the workers were built for.
    built_for: Arc<BuiltFor>,
    /// The node's own file; none on a node of a cluster.
    file: Option<ReloadedFile>,
    /// Number of the newest generation.
    wanted: Arc<AtomicU64>,
    /// Nanoseconds for which the newest generation was compiled.
    build_ns: AtomicU64,
    /// Nanoseconds from the end of that to the last worker's answer.
    swap_ns: AtomicU64,
    state: Mutex<GenerationState>,
}

#[derive(Debug, Default)]
struct GenerationState {
    /// When the newest generation was sent to the workers.
    since: Option<Instant>,
    refused: Option<String>,
    for_restart: Vec<String>,
    /// The rules of the newest generation, and the settings as they were written.
    rules: Option<Arc<[NamedRule]>>,
    /// Names of its source pools, from number 1 on.
    source_pools: Arc<[String]>,
    source: Option<Arc<SettingsSource>>,
}

/// What the tables of each worker were built for.
#[derive(Debug, Default)]
struct BuiltFor {
    rooms: Vec<ClusterRoom>,
    nat: Vec<LiveNatSettings>,
}

/// A generation for each worker.
struct BuiltGeneration {
    settings: Vec<LiveSettings>,
    rules: Arc<[NamedRule]>,
    source_pools: Arc<[String]>,
    /// What is left for a restart.
    left: Vec<NeedsRestart>,
    /// How long it took to compile, and when that was done.
    took: Duration,
    done: Instant,
}

impl BuiltFor {
    /// # Errors
    /// When the settings cannot work.
    fn build(&self, config: &Config, number: u64) -> Result<BuiltGeneration, String> {
        let began = Instant::now();
        let flows = FlowSettings::new(&config.policy, &config.public, &config.ipv6)?;
        let (mut settings, mut left) = (Vec::new(), Vec::new());
        for (worker, built_for) in self.nat.iter().enumerate() {
            let room = self.rooms.get(worker);
            let mut live = live_settings(config, worker, room, number, &flows)
                .map_err(|error| format!("worker {worker}: {error}"))?;
            left.extend(live.nat.fit(built_for));
            settings.push(live);
        }
        left.dedup();
        let done = Instant::now();
        let FlowSettings { named: rules, source_pools, .. } = flows;
        let took = done - began;
        Ok(BuiltGeneration { settings, rules, source_pools, left, took, done })
    }
}

impl Generations {
    /// `config`: the settings of the start. `single`: where a single node has them from.
    ///
    /// # Errors
    /// When no tables can be built for the settings.
    pub(crate) fn new(
        config: &Config,
        rooms: &[ClusterRoom],
        single: Option<&SingleNode>,
    ) -> Result<Self, Failure> {
        let nat = (0..config.workers.len()).map(|worker| {
            live_nat_settings(config, worker, rooms.get(worker))
                .map_err(|error| Failure::Engine { worker, reason: error.to_string() })
        });
        let generations = Self {
            built_for: Arc::new(BuiltFor {
                rooms: rooms.to_vec(),
                nat: nat.collect::<Result<_, _>>()?,
            }),
            file: single.map(ReloadedFile::new),
            ..Self::none()
        };
        if let Some(single) = single {
            generations.begin_with(SettingsSource::File(single.texts.clone()));
        }
        let refused = single.map(|single| single.refused.as_slice()).unwrap_or_default();
        if !refused.is_empty() {
            let errors: Vec<String> = refused.iter().map(ToString::to_string).collect();
            generations.note_refused(&errors.join("; "));
        }
        Ok(generations)
    }

    /// Notes where the settings of the start come from.
    pub(crate) fn begin_with(&self, source: SettingsSource) {
        self.state().source = Some(Arc::new(source));
    }

    /// Returns the number of the newest generation and its settings as they were written.
    pub(crate) fn source(&self) -> (u64, Option<Arc<SettingsSource>>) {
        let state = self.state();
        (self.number(), state.source.clone())
    }

    /// Returns the settings with which each worker begins: generation 0.
    ///
    /// # Errors
    /// When the rules or the static mappings cannot be compiled.
    pub(crate) fn at_start(&self, config: &Config) -> Result<Vec<LiveSettings>, Failure> {
        let built = self.built_for.build(config, 0);
        let built = built.map_err(|reason| Failure::Engine { worker: 0, reason })?;
        {
            let mut state = self.state();
            (state.rules, state.source_pools) = (Some(built.rules), built.source_pools);
        }
        self.build_ns.store(nanoseconds(built.took), Relaxed);
        Ok(built.settings)
    }

    /// Returns the generations of a node without workers.
    pub(crate) fn none() -> Self {
        Self {
            built_for: Arc::default(),
            file: None,
            wanted: Arc::default(),
            build_ns: AtomicU64::new(0),
            swap_ns: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Returns the number of the newest generation.
    pub(crate) fn number(&self) -> u64 {
        self.wanted.load(Relaxed)
    }

    /// Returns the seconds for which the newest generation was compiled.
    pub(crate) fn build_seconds(&self) -> f64 {
        Duration::from_nanos(self.build_ns.load(Relaxed)).as_secs_f64()
    }

    /// Returns the seconds from the end of that until the last worker had taken it.
    pub(crate) fn swap_seconds(&self) -> f64 {
        Duration::from_nanos(self.swap_ns.load(Relaxed)).as_secs_f64()
    }

    /// Returns the number and the rules of the newest generation.
    pub(crate) fn rules(&self) -> (u64, Arc<[NamedRule]>) {
        let state = self.state();
        (self.number(), state.rules.clone().unwrap_or_default())
    }

    /// Returns the names of the newest generation's source pools, from number 1 on.
    pub(crate) fn source_pools(&self) -> Arc<[String]> {
        self.state().source_pools.clone()
    }

    pub(crate) fn status(&self) -> GenerationStatus {
        let state = self.state();
        GenerationStatus {
            number: self.number(),
            refused: state.refused.clone(),
            for_restart: state.for_restart.clone(),
        }
    }

    /// Returns the generation that all workers have taken: the newest one, or the number of one
    /// that lags.
    pub(crate) fn in_force(&self, workers: &[WorkerHandle]) -> u64 {
        let numbers = workers.iter().map(|worker| worker.stats.generation.get());
        let number = self.number();
        numbers.into_iter().find(|&taken| taken != number).unwrap_or(number)
    }

    /// Returns the workers that have not taken the newest generation.
    fn lagging(&self, workers: &[WorkerHandle]) -> Vec<usize> {
        let number = self.number();
        let lags = |worker: &&WorkerHandle| worker.stats.generation.get() != number;
        workers.iter().filter(lags).map(|worker| worker.worker).collect()
    }

    /// Returns a sentence for each reason to look at the node.
    pub(crate) fn troubles(&self, workers: &[WorkerHandle], now: Instant) -> Vec<String> {
        let state = self.state();
        let refused = state.refused.iter();
        let mut troubles: Vec<String> = refused
            .map(|why| format!("settings were refused, the former ones go on: {why}"))
            .collect();
        let is_late = state.since.is_some_and(|since| now > since + ANSWER_TIMEOUT);
        if is_late {
            let late = self.lagging(workers).into_iter();
            troubles.extend(late.map(|worker| {
                format!("worker {worker}: has not taken generation {} yet", self.number())
            }));
        }
        troubles
    }

    /// Notes that settings were refused. The former ones go on.
    fn note_refused(&self, why: &str) {
        tracing::error!(event = "generation-refused", "the former settings go on: {why}");
        self.state().refused = Some(why.to_owned());
    }

    /// Puts a generation in force; returns the workers that have not taken it in time.
    async fn take(
        &self,
        workers: &[WorkerHandle],
        number: u64,
        built: BuiltGeneration,
        source: SettingsSource,
    ) -> Vec<usize> {
        let BuiltGeneration { settings, rules, source_pools, left, took, done } = built;
        let for_restart = left.iter().map(|left| format!("nat.{}: {left}", left.key()));
        self.replace(
            number,
            GenerationState {
                since: Some(Instant::now()),
                refused: None,
                for_restart: for_restart.collect(),
                rules: Some(rules),
                source_pools,
                source: Some(Arc::new(source)),
            },
        );
        let lagging = swap(workers, settings, &self.wanted).await;
        self.build_ns.store(nanoseconds(took), Relaxed);
        self.swap_ns.store(nanoseconds(done.elapsed()), Relaxed);
        for worker in &lagging {
            let seconds = ANSWER_TIMEOUT.as_secs();
            tracing::error!(
                event = "generation-late",
                worker,
                number,
                "worker {worker} has not taken the settings within {seconds} s"
            );
        }
        lagging
    }

    /// Whoever reads number and state under the lock gets those of one generation.
    fn replace(&self, number: u64, new: GenerationState) {
        let mut state = self.state();
        *state = new;
        self.wanted.store(number, Relaxed);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, GenerationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Builds a generation on a thread of its own, which gives way to all others: it may take a while.
async fn build(
    built_for: &Arc<BuiltFor>,
    config: Config,
    number: u64,
) -> Result<BuiltGeneration, String> {
    let built_for = Arc::clone(built_for);
    let (done, built) = oneshot::channel();
    let build = move || {
        // Linux keeps this value for each thread.
        let _ = rustix::process::nice(GIVES_WAY);
        let _ = done.send(built_for.build(&config, number));
    };
    let started = thread::Builder::new().name("weir-settings".into()).spawn(build);
    started.map_err(|error| error.to_string())?;
    built.await.unwrap_or_else(|_| Err("the settings made their thread panic".to_owned()))
}

/// Hands each worker its settings and frees the former ones. Returns the workers that have not
/// answered in time: they get theirs later.
async fn swap(
    workers: &[WorkerHandle],
    settings: Vec<LiveSettings>,
    wanted: &Arc<AtomicU64>,
) -> Vec<usize> {
    let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
    let begun = workers.iter().zip(settings).map(|(worker, settings)| {
        let settings = Box::new(settings);
        let handed = hand_over(worker.requester.clone(), settings, Arc::clone(wanted));
        (worker.worker, tokio::spawn(handed))
    });
    let begun: Vec<_> = begun.collect();
    let mut lagging = Vec::new();
    for (worker, handed) in begun {
        // A task that is not awaited any more goes on.
        if !matches!(timeout_at(deadline, handed).await, Ok(Ok(true))) {
            lagging.push(worker);
        }
    }
    lagging
}

/// Hands a worker its settings, however long it takes, and frees the former ones: the worker must
/// not. False if the worker is gone, or a newer generation is wanted.
async fn hand_over(
    requester: Requester,
    settings: Box<LiveSettings>,
    wanted: Arc<AtomicU64>,
) -> bool {
    let number = settings.number;
    let (reply, former) = oneshot::channel();
    let mut request = WorkerRequest::SwapLive(LiveSwap { settings, reply });
    while wanted.load(Relaxed) == number {
        match requester.send(request) {
            Ok(()) => return former.await.is_ok(),
            Err(error) => match *error {
                TrySendError::Full(back) => request = back,
                TrySendError::Disconnected(_) => return false,
            },
        }
        sleep(QUEUE_FULL_WAIT).await;
    }
    false
}

#[cfg(test)]
mod tests;
