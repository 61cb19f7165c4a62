//! Everything of a cluster except packets: etcd, the clients of nodes and controllers, and the
//! network between them.
//!
//! Nodes and controllers are identified by numbers that their owner chooses. A stalled process
//! receives no event and does nothing; when it continues it finds the events that have arrived
//! meanwhile before it reads its clock.

use std::collections::BTreeMap;

use weir_config::Desired;
use weir_controller::state::{ControllerOptions, NodeReport};
use weir_etcd::message::TransportEvent;
use weir_etcd::{ClusterName, Keys, NodeRecord, Revision};
use weir_map::{BootId, NodeId, ShardEntry, ShardId};
use weir_node_core::KnownMap;

use super::clock::ProcessClock;
use super::controller::{ControllerProcess, ControllerSetup};
use super::management::{Delivery, Management};
use super::node_client::{NodeClient, NodeInput, NodeSetup};
use super::operator::Operator;
use crate::dice::Dice;
use crate::etcd::{ClientId, Etcd, EtcdModelOptions};

/// Number of controllers that stand for election.
pub const CONTROLLERS: usize = 2;
/// The client ids of nodes are their numbers, those of controllers begin here.
const CONTROLLER_CLIENTS: u32 = 1 << 16;
/// Time of every clock at the beginning of the world, milliseconds since 1970.
const UNIX_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
pub struct PlaneOptions {
    pub etcd: EtcdModelOptions,
    /// Delay of the management network, in one direction.
    pub management_us: (u64, u64),
    /// One in so many of its messages is lost; 0: none.
    pub management_loss: u64,
    /// Options of every controller; each gets a name of its own.
    pub controller: ControllerOptions,
}

#[derive(Debug)]
struct Node {
    client: NodeClient,
    name: NodeId,
    is_stopped: bool,
    events: Vec<TransportEvent>,
}

#[derive(Debug)]
struct Controller {
    process: ControllerProcess,
    is_stopped: bool,
    events: Vec<TransportEvent>,
}

#[derive(Debug)]
pub struct Plane {
    pub etcd: Etcd,
    pub operator: Operator,
    pub management: Management,
    cluster: ClusterName,
    controller_options: ControllerOptions,
    nodes: BTreeMap<usize, Node>,
    controllers: BTreeMap<usize, Controller>,
    /// The time up to which everything has been done.
    now_us: u64,
    /// Boot ids of each node's former processes: its disk knows that they have ended.
    lives: BTreeMap<usize, Vec<String>>,
    dice: Dice,
}

impl Plane {
    /// Creates an etcd in which an operator has applied a cluster file, without nodes or
    /// controllers.
    ///
    /// # Panics
    /// If the cluster's name is invalid.
    pub fn new(options: PlaneOptions, desired: &Desired, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let cluster: ClusterName = desired.cluster.name.parse().expect("a name of a cluster");
        let operator = Operator::new(cluster.clone());
        let mut etcd = Etcd::new(options.etcd, dice.seed());
        operator.apply(0, &mut etcd, desired, u128::from(dice.seed()));
        Self {
            etcd,
            operator,
            management: Management::new(
                options.management_us,
                options.management_loss,
                dice.seed(),
            ),
            cluster,
            controller_options: options.controller,
            nodes: BTreeMap::new(),
            controllers: BTreeMap::new(),
            now_us: 0,
            lives: BTreeMap::new(),
            dice,
        }
    }

    /// Returns the paths of the keys.
    pub fn keys(&self) -> Keys {
        Keys::new(self.cluster.clone())
    }

    /// Returns the client of a node's process, for the faults of [`Etcd`].
    pub fn node_client(node: usize) -> ClientId {
        ClientId(node as u32)
    }

    pub fn controller_client(controller: usize) -> ClientId {
        ClientId(CONTROLLER_CLIENTS + controller as u32)
    }

    /// Starts a process of a node, which looks for its cluster. `map` is the map on the node's
    /// disk. Its clock is too fast by `fast_ppm`.
    pub fn start_node(
        &mut self,
        now_us: u64,
        node: usize,
        name: &NodeId,
        map: KnownMap,
        fast_ppm: i64,
    ) {
        let setup = NodeSetup {
            ended: self.lives.get(&node).cloned().unwrap_or_default(),
            client: Self::node_client(node),
            cluster: self.cluster.clone(),
            name: name.clone(),
            seed: self.dice.seed(),
            clock: ProcessClock::new(fast_ppm, UNIX_MS),
            map,
        };
        let client = NodeClient::new(setup, now_us);
        // A former process that has not ended is killed.
        self.end_node(node);
        let node_of = Node { client, name: name.clone(), is_stopped: false, events: Vec::new() };
        self.nodes.insert(node, node_of);
    }

    /// Notes a new process of a node on its disk, for the processes that follow it.
    pub fn begin_life(&mut self, node: usize, boot_id: String) {
        self.lives.entry(node).or_default().push(boot_id);
    }

    /// Registers the process of a node.
    pub fn take_part(&mut self, now_us: u64, node: usize, record: &NodeRecord) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.client.take_part(now_us, record);
        }
    }

    /// Ends the process: its key is removed with its lease.
    pub fn end_node(&mut self, node: usize) {
        self.nodes.remove(&node);
        self.etcd.close(Self::node_client(node));
    }

    /// Forgets the node's former processes, as its disk is lost: the next process waits for the end
    /// of the last lease.
    pub fn forget_lives(&mut self, node: usize) {
        self.lives.remove(&node);
    }

    /// True if a process of the node runs, or looks for its cluster.
    pub fn is_started(&self, node: usize) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Stops and continues a process, as SIGSTOP and SIGCONT do.
    pub fn stop_node(&mut self, node: usize, is_stopped: bool) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.is_stopped = is_stopped;
        }
    }

    /// Replaces the record of a node by another one of the same boot.
    pub fn update_node(&mut self, now_us: u64, node: usize, record: &NodeRecord) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.client.update(now_us, record);
        }
    }

    /// Writes an entry for a node.
    pub fn write(&mut self, node: usize, shard: ShardId, expected: Revision, entry: &ShardEntry) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.client.write(shard, expected, entry);
        }
    }

    /// Sends the shutdown notice of a node, which then waits for [`has_left`](Self::has_left).
    pub fn leave(&mut self, now_us: u64, node: usize, boot_ids: Vec<BootId>) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.client.leave(now_us, boot_ids);
        }
    }

    /// True if a node's shutdown notice has certainly reached no reader.
    pub fn is_unsent(&self, node: usize) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.client.is_unsent())
    }

    pub fn has_left(&self, node: usize) -> bool {
        self.nodes.get(&node).is_none_or(|node| node.client.has_left())
    }

    pub fn start_controller(&mut self, now_us: u64, controller: usize, fast_ppm: i64) {
        let options = ControllerOptions {
            name: controller_name(controller),
            new_cluster_id: u128::from(self.dice.seed()),
            ..self.controller_options.clone()
        };
        let setup = ControllerSetup {
            client: Self::controller_client(controller),
            cluster: self.cluster.clone(),
            seed: self.dice.seed(),
            boot_id: format!("{:016x}", self.dice.seed()),
            clock: ProcessClock::new(fast_ppm, UNIX_MS),
            options,
        };
        let process = ControllerProcess::new(setup, now_us);
        self.end_controller(controller);
        let controller_of = Controller { process, is_stopped: false, events: Vec::new() };
        self.controllers.insert(controller, controller_of);
    }

    pub fn end_controller(&mut self, controller: usize) {
        self.controllers.remove(&controller);
        self.etcd.close(Self::controller_client(controller));
    }

    pub fn stop_controller(&mut self, controller: usize, is_stopped: bool) {
        if let Some(controller) = self.controllers.get_mut(&controller) {
            controller.is_stopped = is_stopped;
        }
    }

    /// True if a running controller acts as the leader.
    pub fn is_led(&self, now_us: u64) -> bool {
        let mut running = self.controllers.values().filter(|it| !it.is_stopped);
        running.any(|it| it.process.is_leading(now_us))
    }

    /// Returns when [`poll`](Self::poll) is due next: at once, if a process continues that has
    /// stalled beyond its time.
    pub fn next_us(&self) -> Option<u64> {
        let nodes = self.nodes.values().filter(|node| !node.is_stopped);
        let nodes = nodes.filter_map(|node| node.client.next_us());
        let controllers = self.controllers.values().filter(|it| !it.is_stopped);
        let controllers = controllers.filter_map(|it| it.process.next_us());
        let network = [self.etcd.next_us(), self.management.next_us()].into_iter().flatten();
        let first = nodes.chain(controllers).chain(network).min()?;
        Some(first.max(self.now_us))
    }

    /// Handles everything that is due until `now_us`; returns the events for nodes, in their order.
    /// `report` returns the answer of a node's process to a controller; `None`: it does not answer.
    pub fn poll(
        &mut self,
        now_us: u64,
        mut report: impl FnMut(usize) -> Option<NodeReport>,
    ) -> Vec<(usize, NodeInput)> {
        let now_us = now_us.max(self.now_us);
        self.now_us = now_us;
        let mut events = Vec::new();
        self.etcd.poll(now_us, &mut events);
        for (client, event) in events {
            self.hand_on(client, event);
        }
        for delivery in self.management.poll(now_us) {
            self.deliver(now_us, delivery, &mut report);
        }
        for controller in self.controllers.values_mut().filter(|it| !it.is_stopped) {
            for event in std::mem::take(&mut controller.events) {
                controller.process.event(now_us, &mut self.etcd, event);
            }
            controller.process.poll(now_us, &mut self.etcd);
        }
        for (&number, controller) in &mut self.controllers {
            for question in controller.process.take_questions() {
                self.management.ask(now_us, number, question);
            }
        }
        let mut of_nodes = Vec::new();
        for (&number, node) in self.nodes.iter_mut().filter(|(_, node)| !node.is_stopped) {
            for event in std::mem::take(&mut node.events) {
                node.client.event(now_us, &mut self.etcd, event);
            }
            node.client.poll(now_us, &mut self.etcd);
            of_nodes.extend(std::iter::from_fn(|| Some((number, node.client.next_input()?))));
        }
        of_nodes
    }

    fn hand_on(&mut self, client: ClientId, event: TransportEvent) {
        // A client that is gone receives nothing.
        if let Some(controller) = client.0.checked_sub(CONTROLLER_CLIENTS) {
            if let Some(controller) = self.controllers.get_mut(&(controller as usize)) {
                controller.events.push(event);
            }
        } else if let Some(node) = self.nodes.get_mut(&(client.0 as usize)) {
            node.events.push(event);
        }
    }

    fn deliver(
        &mut self,
        now_us: u64,
        delivery: Delivery,
        report: &mut impl FnMut(usize) -> Option<NodeReport>,
    ) {
        match delivery {
            Delivery::Question { controller, question } => {
                let asked = self.nodes.iter();
                let mut asked =
                    asked.filter(|(_, node)| node.name == question.node && !node.is_stopped);
                if let Some(report) = asked.next().and_then(|(&number, _)| report(number)) {
                    self.management.answer(now_us, controller, question.number, report);
                }
            }
            Delivery::Answer { controller, number, report } => {
                let controller = self.controllers.get_mut(&controller);
                if let Some(controller) = controller.filter(|it| !it.is_stopped) {
                    controller.process.answered(now_us, &mut self.etcd, number, report);
                }
            }
        }
    }
}

/// Returns the name of a controller in events.
pub fn controller_name(controller: usize) -> String {
    format!("c{controller}")
}
