//! Nodes and controllers around an etcd in memory. Every write of a controller is checked.

mod checks;
mod nodes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_controller::records::*;
use weir_controller::state::ControllerEvent;
use weir_controller::state::{Controller, ControllerAction, ControllerOptions, ControllerTime};
use weir_etcd::{Key, MirrorEvent, NodeId, NodeRecord, Outcome, Swap, WorkerRecord};
use weir_map::*;

use crate::fake_etcd::{FakeEtcd, silence};
use nodes::Node;

pub(crate) const UNIX_MS: u64 = 1_700_000_000_000;

/// The fate of a controller's next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    WrittenUnanswered,
    LostUnanswered,
    Unavailable,
}

pub(crate) struct RunningController {
    pub(crate) controller: Controller,
    /// Number of changes that its mirror has delivered.
    position: usize,
    seen: BTreeMap<Key, Vec<u8>>,
    answer: VecDeque<ControllerEvent>,
}

pub(crate) struct World {
    pub(crate) etcd: FakeEtcd,
    pub(crate) nodes: Vec<Node>,
    pub(crate) controllers: Vec<RunningController>,
    pub(crate) ms: u64,
    pub(crate) options: ControllerOptions,
    pub(crate) fate: Fate,
    pub(crate) weights: Vec<u32>,
    pub(crate) shards_max: u32,
    pub(crate) load_max: Option<u64>,
    /// Public ports in use, of each shard where the number is not 0.
    pub(crate) loads: BTreeMap<u32, u64>,
    boots: u128,
    /// The times at which moves began.
    pub(crate) moves_ms: Vec<u64>,
    /// Number of entries that controllers wrote.
    pub(crate) entries_written: usize,
    /// Number of transactions that controllers tried.
    pub(crate) transactions: usize,
}

pub(crate) fn name(node: usize) -> NodeId {
    format!("n{node}").parse().unwrap()
}

pub(crate) fn id(node: usize) -> NodeId {
    NodeId::new(&format!("n{node}")).unwrap()
}

impl World {
    pub(crate) fn new(nodes: usize, shards: u32, replicas: u8, options: ControllerOptions) -> Self {
        let mut world = Self {
            etcd: FakeEtcd::default(),
            nodes: Vec::new(),
            controllers: Vec::new(),
            ms: 10_000_000,
            options,
            fate: Fate::Answered,
            weights: vec![100; 2],
            shards_max: 1_000,
            load_max: None,
            loads: BTreeMap::new(),
            boots: 0,
            moves_ms: Vec::new(),
            entries_written: 0,
            transactions: 0,
        };
        world.desire(1..=shards, replicas);
        (0..nodes).for_each(|_| world.add_node());
        (0..2).for_each(|_| world.add_controller());
        world
    }

    pub(crate) fn desire(&mut self, shards: impl Iterator<Item = u32>, replicas: u8) {
        let shards: Vec<_> = shards.map(|id| serde_json::json!({"id": id})).collect();
        let desired = serde_json::json!({
            "format": 1, "cluster": {"name": "c", "replicas": replicas}, "shard": shards
        });
        self.etcd.put(Key::Desired, desired.to_string().into_bytes());
    }

    pub(crate) fn now(&self) -> ControllerTime {
        ControllerTime { monotonic_ms: self.ms, unix_ms: UNIX_MS + self.ms }
    }

    pub(crate) fn add_node(&mut self) {
        self.nodes.push(Node::new(Vec::new(), false));
        self.start(self.nodes.len() - 1);
    }

    pub(crate) fn add_controller(&mut self) {
        let mut controller = Controller::new(self.options.clone());
        // A mirror begins with a list of all keys.
        let mut seen = BTreeMap::new();
        for (key, held) in &self.etcd.keys {
            let event = FakeEtcd::mirror_event(&(key.clone(), Some(held.clone())));
            controller.handle(ControllerEvent::Mirror(event), self.now());
            seen.insert(key.clone(), held.value.clone());
        }
        let position = self.etcd.position();
        controller.handle(
            ControllerEvent::Mirror(MirrorEvent::SnapshotComplete { position }),
            self.now(),
        );
        let position = self.etcd.history.len();
        self.controllers.push(RunningController {
            controller,
            position,
            seen,
            answer: VecDeque::new(),
        });
    }

    /// Starts a new incarnation of a node.
    pub(crate) fn start(&mut self, node: usize) {
        let boots = self.weights.iter().map(|_| {
            self.boots += 1;
            BootId(self.boots)
        });
        self.nodes[node] = Node::new(boots.collect(), true);
        self.register(node);
    }

    pub(crate) fn register(&mut self, node: usize) {
        let workers = self.nodes[node].boots.iter().zip(&self.weights).enumerate();
        let record = NodeRecord {
            boot_id: self.nodes[node].boots[0].to_string(),
            version: "0".into(),
            rack: None,
            capacity: 1,
            workers: workers
                .map(|(index, (boot_id, &weight))| WorkerRecord {
                    index: index as u16,
                    boot_id: boot_id.to_string(),
                    resumes: None,
                    weight,
                    load_max: self.load_max,
                    shards_max: Some(self.shards_max),
                    replication: None,
                })
                .collect(),
            admin: None,
            has_copies: false,
            is_stopping: self.nodes[node].is_stopping,
        };
        self.etcd.put(Key::Node(name(node)), serde_json::to_vec(&record).unwrap());
    }

    /// Asks a node's process to end: it announces its end, and goes on serving.
    pub(crate) fn stop(&mut self, node: usize) {
        if self.nodes[node].is_up && !self.nodes[node].is_cut {
            self.nodes[node].is_stopping = true;
            self.register(node);
        }
    }

    /// Performs the last action of a process that ends by itself: it states the end of its own
    /// incarnations.
    pub(crate) fn declare_ended(&mut self, node: usize) {
        let order = OrderAuthor { by: format!("n{node}"), at_ms: UNIX_MS + self.ms };
        let fence = Some(FenceOrder { order, boot_ids: self.nodes[node].boots.clone() });
        self.set_intent(node, &Intent { fence, ..self.intent(node) });
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].is_up = false;
    }

    /// Ends the lease of a node that does not renew it.
    pub(crate) fn expire(&mut self, node: usize) {
        if !self.nodes[node].is_up || self.nodes[node].is_cut {
            self.etcd.delete(Key::Node(name(node)));
        }
    }

    pub(crate) fn runs(&self, who: &Incarnation) -> bool {
        self.nodes.iter().any(|node| node.is_up && node.boots.contains(&who.boot_id))
    }

    /// True if replication streams reach the worker's node, and its streams reach others.
    fn is_in_touch(&self, who: &Incarnation) -> bool {
        let node = self.nodes.iter().find(|node| node.boots.contains(&who.boot_id));
        node.is_some_and(|node| node.is_up && !node.is_unreachable && !node.is_deaf)
    }

    pub(crate) fn entries(&self) -> Vec<(u32, ShardEntry)> {
        let shards = self.etcd.keys.iter().filter_map(|(key, held)| match key {
            Key::Shard(id) => Some((id.0, ShardEntry::from_json(&held.value).expect("valid"))),
            _ => None,
        });
        shards.collect()
    }

    pub(crate) fn held(&self, node: usize) -> usize {
        let node = id(node);
        let is_on = |it: &Member| it.incarnation.worker.node == node;
        self.entries().iter().filter(|(_, entry)| entry.members().iter().any(is_on)).count()
    }

    pub(crate) fn primaries(&self, node: usize) -> usize {
        let node = id(node);
        let entries = self.entries();
        entries.iter().filter(|(_, it)| it.primary().incarnation.worker.node == node).count()
    }

    pub(crate) fn intent(&self, node: usize) -> Intent {
        let value = self.etcd.value(&Key::Intent(name(node)));
        value.map_or_else(Intent::default, |value| serde_json::from_slice(value).unwrap())
    }

    pub(crate) fn set_intent(&mut self, node: usize, intent: &Intent) {
        self.etcd.put(Key::Intent(name(node)), serde_json::to_vec(intent).unwrap());
    }

    pub(crate) fn drain(&mut self, node: usize, force: bool) {
        let order = OrderAuthor { by: "ann".into(), at_ms: UNIX_MS + self.ms };
        let drain = Some(DrainOrder { order, force });
        self.set_intent(node, &Intent { drain, ..self.intent(node) });
    }

    pub(crate) fn undrain(&mut self, node: usize) {
        self.set_intent(node, &Intent { drain: None, ..self.intent(node) });
    }

    /// Does what `weir fence` does; the process has really ended.
    pub(crate) fn fence(&mut self, node: usize) {
        if self.nodes[node].is_up || self.etcd.keys.contains_key(&Key::Node(name(node))) {
            return;
        }
        let node_id = id(node);
        let entries = self.entries();
        let members = entries.iter().flat_map(|(_, entry)| entry.members());
        let lost = members.filter(|it| it.incarnation.worker.node == node_id);
        let boot_ids: BTreeSet<BootId> = lost.map(|it| it.incarnation.boot_id).collect();
        let order = OrderAuthor { by: "ann".into(), at_ms: UNIX_MS + self.ms };
        let fence = Some(FenceOrder { order, boot_ids: boot_ids.into_iter().collect() });
        self.set_intent(node, &Intent { fence, ..self.intent(node) });
    }

    pub(crate) fn control(&self) -> Control {
        let value = self.etcd.value(&Key::Control);
        value.map_or_else(Control::default, |value| serde_json::from_slice(value).unwrap())
    }

    pub(crate) fn set_control(&mut self, control: &Control) {
        self.etcd.put(Key::Control, serde_json::to_vec(control).unwrap());
    }

    pub(crate) fn freeze(&mut self, is_frozen: bool) {
        let order = OrderAuthor { by: "ann".into(), at_ms: UNIX_MS + self.ms };
        let freeze = FreezeOrder { order, why: String::new(), is_total: false };
        let freeze = is_frozen.then_some(freeze);
        self.set_control(&Control { freeze, ..self.control() });
    }

    pub(crate) fn report(&self) -> LeaderReport {
        let value = self.etcd.value(&Key::Report).expect("a report");
        serde_json::from_slice(value).unwrap()
    }

    /// Returns the events in etcd, oldest first.
    pub(crate) fn events(&self) -> Vec<EventRecord> {
        let events = self.etcd.keys.iter().filter(|(key, _)| matches!(key, Key::Event(_)));
        let mut events: Vec<EventRecord> =
            events.map(|(_, held)| serde_json::from_slice(&held.value).unwrap()).collect();
        events.sort_by_key(|event| event.number);
        events
    }

    /// Elects `controller`; the former leader learns it only when `depose` is called for it.
    pub(crate) fn elect(&mut self, controller: usize) {
        let revision = self.etcd.elect(controller);
        self.handle(controller, ControllerEvent::Elected(revision));
    }

    pub(crate) fn depose(&mut self, controller: usize) {
        if self.etcd.leader == Some(controller) {
            self.etcd.leader = None;
            self.etcd.delete(Key::Leader);
        }
        self.handle(controller, ControllerEvent::Deposed);
    }

    /// Delivers up to `count` changes through its mirror.
    pub(crate) fn deliver(&mut self, controller: usize, count: usize) {
        for _ in 0..count {
            let running = &mut self.controllers[controller];
            let Some(change) = self.etcd.history.get(running.position) else { break };
            running.position += 1;
            match &change.1 {
                Some(held) => drop(running.seen.insert(change.0.clone(), held.value.clone())),
                None => drop(running.seen.remove(&change.0)),
            }
            let event = FakeEtcd::mirror_event(change);
            self.handle(controller, ControllerEvent::Mirror(event));
        }
    }

    /// Passes an event to a controller, and carries out its action; the answer is available at
    /// once.
    pub(crate) fn handle(&mut self, controller: usize, input: ControllerEvent) {
        let now = self.now();
        let actions = self.controllers[controller].controller.handle(input, now);
        assert!(actions.len() <= 1, "a controller has one action under way");
        for action in actions {
            let answer = match action {
                ControllerAction::Write(swaps) => {
                    ControllerEvent::Written(self.write(controller, &swaps))
                }
                ControllerAction::Read(keys) => {
                    let found = keys.iter().map(|key| self.etcd.keys.get(key).cloned());
                    ControllerEvent::Read(Some(found.collect()))
                }
            };
            self.controllers[controller].answer.push_back(answer);
        }
    }

    /// Delivers the next answer that a controller waits for. True if there was one.
    pub(crate) fn answer(&mut self, controller: usize) -> bool {
        let Some(answer) = self.controllers[controller].answer.pop_front() else { return false };
        self.handle(controller, answer);
        true
    }

    fn write(&mut self, controller: usize, swaps: &[Swap]) -> Outcome {
        self.transactions += 1;
        let fate = std::mem::replace(&mut self.fate, Fate::Answered);
        match fate {
            Fate::Unavailable => return Outcome::Unavailable(silence(false)),
            Fate::LostUnanswered => return Outcome::Unknown(silence(true)),
            Fate::Answered | Fate::WrittenUnanswered => {}
        }
        let (outcome, changes) = self.etcd.transact(swaps, Some(controller));
        if !changes.is_empty() {
            assert_eq!(self.etcd.leader, Some(controller), "only the leader writes");
            self.check(controller, &changes);
        }
        if fate == Fate::WrittenUnanswered { Outcome::Unknown(silence(true)) } else { outcome }
    }

    /// Runs one tick of every controller, with all changes and all answers delivered.
    pub(crate) fn turn(&mut self) {
        self.turn_after(self.options.tick_ms);
    }

    pub(crate) fn turn_after(&mut self, ms: u64) {
        self.ms += ms;
        for controller in 0..self.controllers.len() {
            self.deliver(controller, usize::MAX);
            self.send_reports(controller);
            self.handle(controller, ControllerEvent::Tick);
            while self.answer(controller) {}
        }
        self.work();
    }

    pub(crate) fn turns(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.turn();
        }
    }

    /// Runs turns until the map has not changed for a while.
    pub(crate) fn settle(&mut self) {
        let mut quiet_ms = 0;
        for _ in 0..20_000 {
            let before = self.entries();
            self.turn();
            quiet_ms = if self.entries() == before { quiet_ms + self.options.tick_ms } else { 0 };
            if quiet_ms > 2 * 60_000 + self.options.balance_wait_ms {
                return;
            }
        }
        panic!("the map does not settle: {:?}", self.report());
    }
}
