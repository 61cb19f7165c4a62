//! Processes of nodes: real roles over workers that only obey and tell.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use weir_cluster::{NodeRecord, WorkerRecord};
use weir_controller::state::NodeReport;
use weir_member::roles::{Input, LocalWorker, Roles, RolesConfig, RolesOptions, SidesUp};
use weir_member::{News, PeerId};
use weir_replica::PeerSigns;
use weir_shard::{BootId, Epoch, Incarnation, NodeId, ShardId, WorkerId};
use weir_sim::control::{NodeFacts, desired_input, report_of};
use weir_sim::dice::Dice;

use crate::worker::Worker;

/// Copies end and ports come up after this.
const SIDES_MS: u64 = 50;

pub(crate) struct Process {
    pub(crate) roles: Roles,
    pub(crate) workers: Vec<Worker>,
    pub(crate) record: NodeRecord,
    started_ms: u64,
    pub(crate) is_stopping: bool,
    /// Its last words are on their way.
    pub(crate) is_leaving: bool,
}

pub(crate) struct Node {
    pub(crate) name: NodeId,
    pub(crate) process: Option<Process>,
    pub(crate) is_stopped: bool,
    /// Its workers neither hear nor are heard.
    pub(crate) is_apart: bool,
    pub(crate) known_epochs: BTreeMap<ShardId, Epoch>,
}

pub(crate) fn address(node: usize, worker: usize) -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, node as u8, 1 + worker as u8].into(), 7473)
}

/// Which worker a peer is.
pub(crate) fn place_of(peer: PeerId, nodes: usize, workers: usize) -> Option<(usize, usize)> {
    let all = (0..nodes).flat_map(|node| (0..workers).map(move |worker| (node, worker)));
    all.into_iter().find(|&(node, worker)| PeerId::at(address(node, worker)) == peer)
}

impl Node {
    pub(crate) fn new(node: usize) -> Self {
        Self {
            name: NodeId::new(&format!("n{node}")).expect("a name"),
            process: None,
            is_stopped: false,
            is_apart: false,
            known_epochs: BTreeMap::new(),
        }
    }

    /// What a controller is told.
    pub(crate) fn report(&self) -> Option<NodeReport> {
        let process = self.process.as_ref()?;
        let facts = NodeFacts { node: self.name.clone(), broken: Vec::new(), load: |_, _| 1 };
        Some(report_of(&process.roles, facts))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some() && !self.is_stopped
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.is_running() && !self.is_apart
    }

    pub(crate) fn keep_epochs(&mut self) {
        let Some(process) = &mut self.process else { return };
        for (shard, epoch) in process.roles.take_epochs() {
            match epoch {
                Some(epoch) => self.known_epochs.insert(shard, epoch),
                None => self.known_epochs.remove(&shard),
            };
        }
    }
}

impl Process {
    pub(crate) fn new(
        node: usize,
        of: &Node,
        workers: usize,
        desired: &weir_config::Desired,
        now_ms: u64,
        dice: &mut Dice,
    ) -> Self {
        let boots: Vec<BootId> = (0..workers).map(|_| BootId(u128::from(dice.seed()))).collect();
        let locals = boots.iter().enumerate().map(|(worker, &boot_id)| LocalWorker {
            boot_id,
            replication: address(node, worker),
            former: None,
        });
        let mut roles = Roles::new(RolesConfig {
            node: of.name.clone(),
            workers: locals.collect(),
            known_epochs: of.known_epochs.clone(),
            options: RolesOptions::default(),
        });
        roles.on(now_ms, desired_input(desired));
        let made = boots.iter().enumerate().map(|(index, &boot_id)| {
            let worker = WorkerId { node: of.name.clone(), index: index as u16 };
            let peer = PeerId::at(address(node, index));
            Worker::new(Incarnation { worker, boot_id }, peer, usize::MAX)
        });
        let records = boots.iter().enumerate().map(|(index, boot_id)| WorkerRecord {
            index: index as u16,
            boot_id: boot_id.to_string(),
            resumes: None,
            weight: 100,
            load_max: None,
            shards_max: Some(1000),
            replication: Some(address(node, index)),
        });
        let record = NodeRecord {
            boot_id: boots[0].to_string(),
            version: "0".into(),
            rack: None,
            capacity: 100,
            workers: records.collect(),
            admin: None,
            has_copies: false,
            is_stopping: false,
        };
        Self {
            roles,
            workers: made.collect(),
            record,
            started_ms: now_ms,
            is_stopping: false,
            is_leaving: false,
        }
    }

    pub(crate) fn boots(&self) -> Vec<BootId> {
        self.workers.iter().map(|worker| worker.me.boot_id).collect()
    }

    /// What its workers tell and show, and the end of a slot.
    pub(crate) fn end_slot(&mut self, now_ms: u64, shards: &[ShardId]) {
        let is_ready = now_ms >= self.started_ms + SIDES_MS;
        let sides = SidesUp { is_ready, is_access_up: is_ready, is_internet_up: is_ready };
        for (index, worker) in self.workers.iter_mut().enumerate() {
            self.roles.on(now_ms, Input::Sides { worker: index, sides });
            let news: Vec<News> = worker.news.drain(..).map(|(_, news)| news).collect();
            for news in news {
                self.roles.on(now_ms, Input::News { worker: index, news });
            }
            for (place, silent_ms) in worker.silences(now_ms) {
                let signs = PeerSigns { silent_ms, seen_ms: None, is_witness: false };
                self.roles.on(now_ms, Input::Heard { worker: index, place, signs });
            }
            // The switches send everybody something.
            let shards = shards.to_vec();
            self.roles.on(now_ms, Input::Traffic { worker: index, shards });
        }
        self.roles.on(now_ms, Input::Tick);
    }

    /// Orders come at once, or a slot later; routes are out at once.
    pub(crate) fn obey(&mut self, now_ms: u64, dice: &mut Dice) {
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let last_ms = worker.orders.back().map_or(0, |(due_ms, _)| *due_ms);
            let due_ms = last_ms.max(now_ms + 10 * dice.below(3));
            while let Some(order) = self.roles.next_order(index) {
                worker.orders.push_back((due_ms, order));
            }
            worker.obey_due(now_ms);
            let number = self.roles.routes_number(index);
            self.roles.on(now_ms, Input::RoutesOut { worker: index, number });
        }
    }
}
