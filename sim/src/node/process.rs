//! A process of a node, from its start to its end: roles, workers, guard, and the messages between them.

use std::collections::{BTreeMap, VecDeque};

use weir_engine::{CommitLimits, Engine, Uncommitted};
use weir_member::replication::CommitOptions;
use weir_member::roles::{
    LocalWorker, NodeWorker, Roles, RolesConfig, RolesOptions, SidesUp, peer_at,
};
use weir_member::{News, Replication};
use weir_replica::{ClusterKeys, Fingerprint, Identity};
use weir_shard::{BootId, Epoch, LANES, NodeId, ShardId};

use super::{Guard, GuardNews, Worker};
use crate::dice::Dice;
use crate::options::{Commit, Options};
use crate::site::{self, Place};

/// What the roles are told, and when it comes.
#[derive(Clone, Debug)]
pub(crate) enum Inbox {
    Worker { worker: usize, news: News },
    Rejoined { worker: usize, fence: u32 },
    Guard(GuardNews),
}

/// The routes of a worker as they were ordered of the guard last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    pub(crate) number: u64,
    /// The last fence that the worker has acknowledged.
    pub(crate) fence: u32,
    pub(crate) retry_us: Option<u64>,
    pub(crate) ordered_us: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) node: usize,
    pub(crate) roles: Roles,
    pub(crate) workers: Vec<Worker>,
    pub(crate) boots: Vec<BootId>,
    pub(crate) guard: Guard,
    /// In the order in which they come.
    pub(crate) inbox: VecDeque<(u64, Inbox)>,
    pub(crate) sets: Vec<Set>,
    /// Slots of each worker when the roles looked last.
    pub(crate) slots: Vec<u64>,
    pub(crate) has_been_up: Vec<bool>,
    pub(crate) sides: Vec<SidesUp>,
    /// SIGSTOP: nothing of the process goes on until then.
    pub(crate) stopped_until_us: u64,
    /// It hands over: since when nothing is left to be handed over, and when it began.
    pub(crate) stopping: Option<Stopping>,
}

/// A process that ends in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    pub(crate) began_us: u64,
    pub(crate) quiet_since_us: u64,
    /// It is started again so long after its end.
    pub(crate) down_ms: u64,
}

/// What a process begins with.
#[derive(Debug)]
pub(crate) struct ProcessConfig<'a> {
    pub(crate) node: usize,
    pub(crate) name: &'a NodeId,
    pub(crate) known_epochs: &'a BTreeMap<ShardId, Epoch>,
    pub(crate) options: &'a Options,
}

/// Between two datagrams with what packets wait for, as `crates/node` has it.
const COMMIT_PACE_US: u64 = 120;

fn replication_options(options: &Options) -> weir_replica::Options {
    let defaults = weir_replica::Options::default();
    // Where packets wait for copies, others' copies are acknowledged at once.
    let acknowledge_us = if options.commit.is_some() { 0 } else { defaults.acknowledge_us };
    weir_replica::Options {
        acknowledge_us,
        peers_max: weir_worker::PEERS_MAX as u16,
        copies_max: options.shards as usize * LANES * weir_replica::REPLICAS_MAX,
        buffers: 512,
        log_datagrams: 128,
        ..defaults
    }
}

/// How packets wait for copies: what the engine keeps, and what is awaited.
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
    /// A new life of every worker, with nothing.
    pub(crate) fn new(config: &ProcessConfig<'_>, dice: &mut Dice) -> Self {
        let workers = config.options.workers_per_node;
        let boots: Vec<BootId> = (0..workers)
            .map(|_| BootId(u128::from(dice.draw()) << 64 | u128::from(dice.draw())))
            .collect();
        let place = |worker| Place { node: config.node, worker };
        let locals = boots.iter().enumerate().map(|(worker, &boot_id)| LocalWorker {
            boot_id,
            replication: site::replication(place(worker)),
            former: None,
        });
        let roles = Roles::new(RolesConfig {
            node: config.name.clone(),
            workers: locals.collect(),
            known_epochs: config.known_epochs.clone(),
            options: RolesOptions::default(),
        });
        let made = boots.iter().enumerate();
        let made =
            made.map(|(worker, boot)| new_worker(config.options, place(worker), *boot, dice));
        Self {
            node: config.node,
            roles,
            workers: made.collect(),
            guard: Guard::new(workers),
            inbox: VecDeque::new(),
            sets: vec![Set::default(); workers],
            slots: vec![0; workers],
            has_been_up: vec![false; workers],
            sides: vec![SidesUp::default(); workers],
            stopped_until_us: 0,
            stopping: None,
            boots,
        }
    }

    /// As the node registers them.
    pub(crate) fn registration(&self) -> Vec<NodeWorker> {
        let workers = self.boots.iter().enumerate().map(|(worker, &boot_id)| NodeWorker {
            index: worker as u16,
            boot_id,
            replication: site::replication(Place { node: self.node, worker }),
        });
        workers.collect()
    }

    /// A message for the roles, which comes after all that were sent before.
    pub(crate) fn send(&mut self, due_us: u64, message: Inbox) -> u64 {
        let last_us = self.inbox.back().map_or(0, |(due_us, _)| *due_us);
        let due_us = due_us.max(last_us);
        self.inbox.push_back((due_us, message));
        due_us
    }
}

fn new_worker(options: &Options, place: Place, boot: BootId, dice: &mut Dice) -> Worker {
    let seed = std::array::from_fn(|_| dice.draw());
    let mut engine =
        Engine::new(site::engine_config(options, place, seed)).expect("a good configuration");
    let mut secret = [0; 32];
    secret.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&dice.draw().to_be_bytes()));
    let identity = Identity {
        worker: peer_at(site::replication(place)),
        boot: weir_replica::BootId(boot.0),
        secret,
    };
    let keys = ClusterKeys::parse(&"5a".repeat(32)).expect("a key");
    let replication = Replication::new(
        replication_options(options),
        identity,
        Fingerprint::default(),
        keys,
        options.shards as usize,
    );
    let mut replication = replication.expect("good options");
    if let Some((limits, options)) = options.commit.as_ref().map(commit_options) {
        engine.hold_uncommitted(limits);
        replication.await_replicas(options);
    }
    Worker::new(engine, replication)
}
