//! A process of a node, from its start to its end: roles, workers, guard, and the messages between them.

use std::collections::{BTreeMap, VecDeque};

use weir_engine::Engine;
use weir_member::roles::{
    LocalWorker, NodeWorker, Roles, RolesConfig, RolesOptions, SidesUp, peer_at,
};
use weir_member::{News, Replication};
use weir_replica::{ClusterKeys, Fingerprint, Identity};
use weir_shard::{BootId, Epoch, LANES, NodeId, ShardId};

use super::{Guard, GuardNews, Worker};
use crate::dice::Dice;
use crate::options::Options;
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

fn replication_options(options: &Options) -> weir_replica::Options {
    weir_replica::Options {
        peers_max: super::worker::PEERS_MAX,
        copies_max: options.shards as usize * LANES * weir_replica::REPLICAS_MAX,
        buffers: 512,
        log_datagrams: 128,
        ..weir_replica::Options::default()
    }
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
    let engine =
        Engine::new(site::engine_config(options, place, seed)).expect("a good configuration");
    let mut secret = [0; 32];
    secret.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&dice.draw().to_be_bytes()));
    let identity = Identity {
        worker: peer_at(site::replication(place)),
        boot: weir_replica::BootId(boot.0),
        secret,
    };
    let keys = ClusterKeys::parse(&"5a".repeat(32), 0o600, 0, 0).expect("a key");
    let replication = Replication::new(
        replication_options(options),
        identity,
        Fingerprint::default(),
        keys,
        options.shards as usize,
    );
    Worker::new(engine, replication.expect("good options"))
}
