//! Nodes and controllers around an etcd, in slots of 10 ms.

use std::collections::BTreeMap;

use weir_config::Desired;
use weir_controller::state::Options as ControllerOptions;
use weir_shard::{Incarnation, LANES, ShardEntry, ShardId};
use weir_sim::control::{Plane, PlaneOptions};
use weir_sim::dice::Dice;
use weir_sim::etcd::{Backup, EtcdOptions};

use crate::fault::{Fault, Way};
use crate::processes::{Node, Process, place_of};
use crate::watching::Watching;

pub(crate) const SLOT_MS: u64 = 10;
/// One in so many messages between workers is lost.
const LOSS: u64 = 20;
/// Of etcd and its clients in a slot.
const TURNS_MAX: u32 = 10_000;
const BACKUP_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) shards: u32,
    pub(crate) replicas: u8,
    pub(crate) controllers: usize,
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) plane: Plane,
    pub(crate) nodes: Vec<Node>,
    pub(crate) size: Size,
    pub(crate) watching: Watching,
    /// What was seen of etcd and of the operator, for a history that went wrong.
    pub(crate) said: Vec<String>,
    desired: Desired,
    dice: Dice,
    backups: Vec<(u64, Backup)>,
    /// Faults that last, until when.
    lasting: Vec<(u64, Fault)>,
    skew_ppm: u64,
}

fn desired(size: Size) -> Desired {
    let shard = |id: u32| {
        format!(
            "[[shard]]\nid = {id}\nendpoint = \"10.100.0.{id}\"\npublic = [\"198.18.{id}.0/28\"]\nsubscribers_max = 64\n"
        )
    };
    let shards: String = (1..=size.shards).map(shard).collect();
    let text = format!(
        "[cluster]\nname = \"sim\"\nreplicas = {}\n[access]\nmode = \"gre\"\nsubscribers = [\"10.192.0.0/10\"]\n[nat]\nflows_max = 100_000\n{shards}",
        size.replicas
    );
    let parsed = weir_config::parse_cluster(&text, "sim.toml");
    parsed.unwrap_or_else(|errors| panic!("{errors:?}")).0
}

impl World {
    pub(crate) fn new(size: Size, seed: u64, skew_ppm: u64) -> Self {
        let mut dice = Dice::new(seed);
        let desired = desired(size);
        let mut controller = ControllerOptions::new("c", 0);
        controller.balance_wait_ms = 5_000;
        (controller.trial_first_ms, controller.trial_max_ms) = (5_000, 20_000);
        let options = PlaneOptions {
            etcd: EtcdOptions::default(),
            management_us: (200, 20_000),
            management_loss: 20,
            controller,
        };
        let mut world = Self {
            now_ms: 0,
            plane: Plane::new(options, &desired, dice.seed()),
            nodes: (0..size.nodes).map(Node::new).collect(),
            size,
            watching: Watching::default(),
            said: Vec::new(),
            desired,
            dice,
            backups: Vec::new(),
            lasting: Vec::new(),
            skew_ppm,
        };
        (0..size.nodes).for_each(|node| world.start(node));
        (0..size.controllers).for_each(|controller| world.start_controller(controller));
        world
    }

    fn now_us(&self) -> u64 {
        self.now_ms * 1000
    }

    fn skew(&mut self) -> i64 {
        self.dice.between((0, 2 * self.skew_ppm)) as i64 - self.skew_ppm as i64
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let of = &self.nodes[node];
        let process =
            Process::new(node, of, self.size.workers, &self.desired, self.now_ms, &mut self.dice);
        let (skew, now_us) = (self.skew(), self.now_us());
        let Node { name, process: seat, is_stopped, .. } = &mut self.nodes[node];
        self.plane.start_node(now_us, node, name, &process.record, skew);
        (*seat, *is_stopped) = (Some(process), false);
    }

    fn start_controller(&mut self, controller: usize) {
        let (skew, now_us) = (self.skew(), self.now_us());
        self.plane.start_controller(now_us, controller, skew);
    }

    fn end(&mut self, node: usize) {
        self.nodes[node].keep_epochs();
        (self.nodes[node].process, self.nodes[node].is_stopped) = (None, false);
        self.plane.end_node(node);
    }

    pub(crate) fn run(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.step();
        }
    }

    /// One slot.
    pub(crate) fn step(&mut self) {
        self.now_ms += SLOT_MS;
        self.mend_what_is_over();
        if self.now_ms.is_multiple_of(BACKUP_MS) {
            self.backups.push((self.now_ms, self.plane.etcd.back_up()));
        }
        let end_us = self.now_us();
        let mut turns = 0;
        while let Some(due_us) = self.plane.next_us().filter(|due_us| *due_us <= end_us) {
            turns += 1;
            assert!(turns < TURNS_MAX, "time stands still at {due_us} us");
            let nodes = &self.nodes;
            let report =
                |node: usize| nodes[node].is_running().then(|| nodes[node].report()).flatten();
            for (node, input) in self.plane.poll(due_us, report) {
                if let Some(process) = &mut self.nodes[node].process {
                    process.roles.on(due_us / 1000, input);
                }
            }
            self.watching.look(&self.plane);
        }
        self.exchange();
        self.end_slots();
        self.check_writers();
    }

    fn end_slots(&mut self) {
        let shards: Vec<ShardId> = (1..=self.size.shards).map(ShardId).collect();
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_running() {
                continue;
            }
            let process = self.nodes[node].process.as_mut().expect("it runs");
            process.end_slot(self.now_ms, &shards);
            process.obey(self.now_ms, &mut self.dice);
            for change in process.roles.take_changes(256) {
                self.plane.write(node, change);
            }
            self.nodes[node].keep_epochs();
            self.end_in_order(node);
        }
    }

    /// SIGTERM: it goes when nothing is left to be handed over.
    fn end_in_order(&mut self, node: usize) {
        let process = self.nodes[node].process.as_mut().expect("it runs");
        if process.is_leaving && self.plane.has_left(node) {
            return self.end(node);
        }
        let is_left = process.roles.statuses().any(|status| {
            let is_served = status.role == weir_shard::role::Role::Primary;
            let others = status.entry.map_or(0, |entry| entry.members().len());
            is_served && others > 1
        });
        if process.is_stopping && !process.is_leaving && !is_left {
            process.is_leaving = true;
            let boots = process.boots();
            // No worker of it runs any more.
            process.workers.clear();
            self.plane.leave(node, boots);
        }
    }

    fn exchange(&mut self) {
        let now_ms = self.now_ms;
        let mut messages = Vec::new();
        for node in self.nodes.iter().filter(|node| node.is_reached()) {
            for worker in &node.process.as_ref().expect("it runs").workers {
                let from = (worker.peer, worker.me.boot_id);
                let sent = worker.send(now_ms).into_iter();
                messages.extend(sent.map(|(to, boot_id, message)| (from, to, boot_id, message)));
            }
        }
        for (from, to, boot_id, message) in messages {
            let Some((node, index)) = place_of(to, self.size.nodes, self.size.workers) else {
                continue;
            };
            if self.dice.one_in(LOSS) || !self.nodes[node].is_reached() {
                continue;
            }
            let process = self.nodes[node].process.as_mut().expect("it is reached");
            let Some(worker) = process.workers.get_mut(index) else { continue };
            if boot_id.is_none_or(|boot_id| boot_id == worker.me.boot_id) {
                worker.receive(now_ms, from, message);
            }
        }
        for node in self.nodes.iter_mut().filter(|node| node.is_running()) {
            let process = node.process.as_mut().expect("it runs");
            process.workers.iter_mut().for_each(|worker| worker.review(now_ms));
        }
    }

    /// No lane has two workers that were ordered to write it.
    fn check_writers(&mut self) {
        let mut writers: BTreeMap<(ShardId, usize), &Incarnation> = BTreeMap::new();
        let processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        for worker in processes.flat_map(|process| &process.workers) {
            for (&id, shard) in &worker.shards {
                for lane in (0..LANES).filter(|&lane| shard.writes(lane)) {
                    if let Some(other) = writers.insert((id, lane), &worker.me) {
                        panic!("lane {lane} of shard {id} is written by {other} and {}", worker.me);
                    }
                }
            }
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        self.say(format!("{fault:?}"));
        let now_us = self.now_us();
        let etcd = &mut self.plane.etcd;
        let ms = match fault {
            Fault::Kill { node, ms } => {
                self.end(node);
                ms
            }
            Fault::Stop { node, ms } => {
                self.set_stopped(node, true);
                ms
            }
            Fault::Restart { node, ms } => {
                self.begin_to_stop(node);
                ms
            }
            Fault::Cut { node, way: Way { to_etcd, from_etcd }, ms } => {
                etcd.cut(Plane::node_client(node), to_etcd, from_etcd);
                ms
            }
            Fault::CutController { controller, way: Way { to_etcd, from_etcd }, ms } => {
                etcd.cut(Plane::controller_client(controller), to_etcd, from_etcd);
                ms
            }
            Fault::Apart { node, ms } => {
                self.nodes[node].is_apart = true;
                ms
            }
            Fault::Unasked { node, ms } => {
                self.plane.management.cut(&self.nodes[node].name, true);
                ms
            }
            Fault::StallWatches { node } => {
                return etcd.stall_watches(Plane::node_client(node));
            }
            Fault::StallController { controller } => {
                return etcd.stall_watches(Plane::controller_client(controller));
            }
            Fault::KillController { controller, ms } => {
                self.plane.end_controller(controller);
                ms
            }
            Fault::StopController { controller, ms } => {
                self.plane.stop_controller(controller, true);
                ms
            }
            Fault::KillEtcd { ms } => {
                etcd.kill(now_us);
                ms
            }
            Fault::PauseEtcd { ms } => {
                etcd.pause();
                ms
            }
            Fault::LoseLeader { ms } => {
                etcd.lose_leader(now_us);
                ms
            }
            Fault::SlowEtcd { ms } => {
                etcd.slow((1_000, 300_000), (1_000, 2_000_000));
                ms
            }
            Fault::Full { ms } => {
                etcd.set_space(false);
                ms
            }
            Fault::Compact { kept } => return etcd.compact(kept),
            Fault::Restore { back_ms, is_renamed } => {
                let old_ms = self.now_ms.saturating_sub(back_ms);
                let backup = self.backups.iter().rev().find(|(at_ms, _)| *at_ms <= old_ms);
                if let Some((_, backup)) = backup {
                    etcd.restore(now_us, backup, is_renamed);
                    self.watching.restored(&self.plane);
                }
                return;
            }
            Fault::Drain { node, ms } => {
                let name = self.nodes[node].name.clone();
                let Plane { operator, etcd, .. } = &mut self.plane;
                operator.drain(now_us, etcd, &name, true);
                ms
            }
            Fault::Freeze { ms } => {
                let Plane { operator, etcd, .. } = &mut self.plane;
                operator.freeze(now_us, etcd);
                ms
            }
            Fault::Rebalance => {
                let Plane { operator, etcd, .. } = &mut self.plane;
                return operator.rebalance(now_us, etcd);
            }
        };
        self.lasting.push((self.now_ms + ms, fault));
    }

    pub(crate) fn say(&mut self, what: String) {
        self.said.push(format!("{:>8} ms  {what}", self.now_ms));
    }

    fn set_stopped(&mut self, node: usize, is_stopped: bool) {
        self.nodes[node].is_stopped = is_stopped && self.nodes[node].process.is_some();
        self.plane.stop_node(node, is_stopped);
    }

    fn begin_to_stop(&mut self, node: usize) {
        let now_us = self.now_us();
        if let Some(process) = &mut self.nodes[node].process {
            process.is_stopping = true;
            process.record.is_stopping = true;
            self.plane.update_node(now_us, node, &process.record);
        }
    }

    fn mend_what_is_over(&mut self) {
        let now_ms = self.now_ms;
        let is_over = |(until_ms, _): &mut (u64, Fault)| *until_ms <= now_ms;
        let over: Vec<(u64, Fault)> = self.lasting.extract_if(.., is_over).collect();
        over.into_iter().for_each(|(_, fault)| self.mend(fault));
    }

    /// Everything that lasts is over.
    pub(crate) fn mend_all(&mut self) {
        for (_, fault) in std::mem::take(&mut self.lasting) {
            self.mend(fault);
        }
        self.say("all is mended".into());
    }

    fn mend(&mut self, fault: Fault) {
        let now_us = self.now_us();
        let etcd = &mut self.plane.etcd;
        match fault {
            Fault::Kill { node, .. } => self.start(node),
            Fault::Stop { node, .. } => self.set_stopped(node, false),
            Fault::Restart { node, .. } => self.start_after_its_end(node),
            Fault::Cut { node, .. } => etcd.mend(now_us, Plane::node_client(node)),
            Fault::CutController { controller, .. } => {
                etcd.mend(now_us, Plane::controller_client(controller));
            }
            Fault::Apart { node, .. } => self.nodes[node].is_apart = false,
            Fault::Unasked { node, .. } => {
                self.plane.management.cut(&self.nodes[node].name, false);
            }
            Fault::KillController { controller, .. } => self.start_controller(controller),
            Fault::StopController { controller, .. } => {
                self.plane.stop_controller(controller, false);
            }
            Fault::KillEtcd { .. } => etcd.start(now_us),
            Fault::PauseEtcd { .. } => etcd.resume(now_us),
            Fault::LoseLeader { .. } => etcd.elect(now_us),
            Fault::SlowEtcd { .. } => {
                let EtcdOptions { delay_us, watch_lag_us, .. } = EtcdOptions::default();
                etcd.slow(delay_us, watch_lag_us);
            }
            Fault::Full { .. } => etcd.set_space(true),
            Fault::Drain { node, .. } => {
                let name = self.nodes[node].name.clone();
                let Plane { operator, etcd, .. } = &mut self.plane;
                operator.undrain(now_us, etcd, &name);
            }
            Fault::Freeze { .. } => {
                let Plane { operator, etcd, .. } = &mut self.plane;
                operator.unfreeze(now_us, etcd);
            }
            _ => {}
        }
    }

    /// A node that still hands over is killed.
    fn start_after_its_end(&mut self, node: usize) {
        if self.nodes[node].process.as_ref().is_some_and(|process| process.is_stopping) {
            self.end(node);
        }
        self.start(node);
    }

    pub(crate) fn take_orders_back(&mut self) {
        let now_us = self.now_us();
        let Plane { operator, etcd, .. } = &mut self.plane;
        operator.unfreeze(now_us, etcd);
        for node in &self.nodes {
            operator.undrain(now_us, etcd, &node.name);
        }
    }

    pub(crate) fn rebase(&mut self) {
        let now_us = self.now_us();
        let Plane { operator, etcd, .. } = &mut self.plane;
        operator.rebase(now_us, etcd);
    }

    pub(crate) fn entries(&self) -> Vec<(ShardId, ShardEntry)> {
        self.plane.operator.entries(&self.plane.etcd)
    }

    pub(crate) fn runs(&self, who: &Incarnation) -> bool {
        let processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        processes.flat_map(|process| &process.workers).any(|worker| worker.me == *who)
    }
}
