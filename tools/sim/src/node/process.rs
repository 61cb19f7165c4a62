//! A process of a node, from its start to its end: its core, workers, guard, and the messages
//! between them.

use std::time::Duration;

use weir_engine::{CommitLimits, Engine, Side, Uncommitted};
use weir_etcd::{NodeRecord, WorkerRecord};
use weir_map::{BootId, LANES, NodeId};
use weir_node_core::first_look::FoundCluster;
use weir_node_core::setup::fingerprint;
use weir_node_core::{Core, CoreStart, KnownMap, WorkerAddresses, WorkerSlot};
use weir_replication::CommitOptions;
use weir_replication::{PeerId, Replication};
use weir_routes::{Fence, Route, Stake};
use weir_stream::{ClusterKeys, Fingerprint, Identity, PeerIndex};

use super::{Guard, Inbox, Worker};
use crate::dice::Dice;
use crate::options::{Commit, Options};
use crate::site::{self, WorkerPosition};

/// A list of routes for the guard.
#[derive(Debug)]
pub(crate) struct RouteOrder {
    pub(crate) worker: usize,
    pub(crate) number: u64,
    pub(crate) fence: Fence,
    pub(crate) routes: Vec<Route>,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    pub(crate) workers: Vec<Worker>,
    pub(crate) boots: Vec<BootId>,
    /// The former incarnations of the workers, as the disk knows them.
    pub(crate) formers: Vec<Option<BootId>>,
    pub(crate) guard: Guard,
    /// What homes would lose with each worker, as the guard knows it.
    pub(crate) stakes: Vec<Stake>,
    /// Messages for the core.
    pub(crate) inbox: Inbox,
    /// SIGSTOP: the whole process is stopped until this time.
    pub(crate) stopped_until_us: u64,
    /// True once it has handed over and is ending.
    pub(crate) is_ending: bool,
}

/// The initial state of a process.
#[derive(Debug)]
pub(crate) struct ProcessConfig<'a> {
    pub(crate) node: usize,
    pub(crate) name: &'a NodeId,
    pub(crate) clock_us: u64,
    pub(crate) disk: &'a KnownMap,
    pub(crate) found: FoundCluster,
    pub(crate) options: &'a Options,
}

/// Time between two datagrams with changes that packets wait for, as in `app/node`.
const COMMIT_PACE_US: u64 = 120;

fn replication_options(options: &Options) -> weir_stream::StreamOptions {
    let defaults = weir_stream::StreamOptions::default();
    // If packets wait for copies, copies from other workers are acknowledged at once.
    let acknowledge_us = if options.commit.is_some() { 0 } else { defaults.acknowledge_us };
    weir_stream::StreamOptions {
        acknowledge_us,
        peers_max: weir_worker::PEERS_MAX as u16,
        copies_max: options.shards as usize * LANES * weir_stream::REPLICAS_MAX,
        buffers: 512,
        log_datagrams: 128,
        ..defaults
    }
}

/// Returns how packets wait for copies: the limits of the engine, and the options of replication.
fn commit_options(commit: &Commit) -> (CommitLimits, CommitOptions) {
    let Commit { replicas, is_strict, timeout_ms, held_max, changes_max } = *commit;
    let limits = CommitLimits {
        held_max,
        changes_max,
        timeout_ms: timeout_ms.into(),
        policy: if is_strict { Uncommitted::Drop } else { Uncommitted::Release },
    };
    let replicas = replicas.into();
    (limits, CommitOptions { replicas, is_strict, changes_max, pace_us: COMMIT_PACE_US })
}

impl Process {
    /// Creates a new incarnation of every worker, without state.
    pub(crate) fn new(config: ProcessConfig<'_>, dice: &mut Dice) -> Self {
        let ProcessConfig { node, name, clock_us, disk, found, options } = config;
        let FoundCluster { cluster_id, desired, is_without_etcd } = found;
        let workers = options.workers_per_node;
        let boots: Vec<BootId> = (0..workers)
            .map(|_| BootId(u128::from(dice.draw()) << 64 | u128::from(dice.draw())))
            .collect();
        let position = |worker| WorkerPosition { node, worker };
        let mut map = disk.clone();
        map.set_cluster(&cluster_id);
        let formers = (0..workers).map(|worker| map.life(worker)).collect();
        let prints = fingerprint(&desired);
        let made = boots.iter().enumerate();
        let made =
            made.map(|(worker, boot)| new_worker(options, position(worker), *boot, prints, dice));
        let made = made.collect();
        let start = CoreStart {
            node: name.clone(),
            record: record(node, &boots),
            addresses: (0..workers)
                .map(|worker| {
                    let [access, internet] =
                        Side::ALL.map(|side| site::address(position(worker), side));
                    let internet6 = Some(site::address6(position(worker)));
                    WorkerAddresses { access, internet, access6: None, internet6 }
                })
                .collect(),
            map,
            desired,
            is_without_etcd,
        };
        Self {
            core: Core::new(Duration::from_micros(clock_us), start),
            workers: made,
            guard: Guard::new(workers),
            stakes: vec![Stake::Nothing; workers],
            inbox: Inbox::new(workers),
            stopped_until_us: 0,
            is_ending: false,
            boots,
            formers,
        }
    }

    /// Returns the state of the workers at the end of a slot.
    pub(crate) fn slots(&mut self) -> Vec<WorkerSlot> {
        let look = |worker: &mut Worker| {
            let busy = std::mem::take(&mut worker.link_mut().busy).into_iter().collect();
            let link = worker.link();
            let peers = (0..).map(PeerIndex).zip(&link.signs);
            WorkerSlot {
                slots: link.slots,
                peers: peers
                    .filter_map(|(peer_index, signs)| Some((peer_index, (*signs)?)))
                    .collect(),
                busy,
                is_access_up: worker.engine().admin().gateway_up(Side::Access),
                is_internet_up: worker.engine().admin().gateway_up(Side::Internet),
            }
        };
        self.workers.iter_mut().map(look).collect()
    }
}

/// Returns the record with which a node of these incarnations registers.
fn record(node: usize, boots: &[BootId]) -> NodeRecord {
    let workers = boots.iter().enumerate().map(|(worker, boot_id)| WorkerRecord {
        index: worker as u16,
        boot_id: boot_id.to_string(),
        resumes: None,
        weight: 1,
        load_max: None,
        shards_max: None,
        replication: Some(site::replication(WorkerPosition { node, worker })),
    });
    NodeRecord {
        boot_id: boots[0].to_string(),
        version: "simulated".into(),
        rack: None,
        capacity: boots.len() as u32,
        workers: workers.collect(),
        admin: None,
        has_copies: false,
        is_stopping: false,
    }
}

fn new_worker(
    options: &Options,
    position: WorkerPosition,
    boot: BootId,
    fingerprint: Fingerprint,
    dice: &mut Dice,
) -> Worker {
    let seed = std::array::from_fn(|_| dice.draw());
    let mut engine = Engine::new(site::engine_config(options, position, seed))
        .expect("the configuration is valid");
    let mut secret = [0; 32];
    secret.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&dice.draw().to_be_bytes()));
    let identity = Identity { worker: PeerId::at(site::replication(position)), boot, secret };
    let keys = ClusterKeys::parse(&"5a".repeat(32)).expect("a key");
    let replication = Replication::new(
        replication_options(options),
        identity,
        fingerprint,
        keys,
        options.shards as usize,
    );
    let mut replication = replication.expect("the options are valid");
    if let Some((limits, options)) = options.commit.as_ref().map(commit_options) {
        engine.setup().hold_uncommitted(limits);
        replication.await_replicas(options);
    }
    Worker::new(engine, replication)
}
