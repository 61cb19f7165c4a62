//! Nodes and controllers around an etcd in memory. Every write of a controller is checked here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_cluster::{Key, MirrorEvent, NodeName, NodeRecord, Outcome, Swap, WorkerRecord};
use weir_controller::records::*;
use weir_controller::state::Event as Input;
use weir_controller::state::{Action, Controller, NodeDoubts, NodeReport as Answer, Now, Options};
use weir_shard::map::Transition;
use weir_shard::*;

use crate::fake_etcd::{Changes, FakeEtcd, silence};

pub(crate) const UNIX_MS: u64 = 1_700_000_000_000;

/// What becomes of the next write of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    WrittenUnanswered,
    LostUnanswered,
    Unavailable,
}

pub(crate) struct Node {
    pub(crate) boots: Vec<BootId>,
    pub(crate) is_up: bool,
    /// It does not reach etcd, and its key has expired or will.
    pub(crate) is_cut: bool,
    /// It has said that it is about to end.
    pub(crate) is_stopping: bool,
    /// Its streams reach nobody.
    pub(crate) is_unheard: bool,
    /// Nobody's streams reach it.
    pub(crate) is_deaf: bool,
    /// Workers with a side down.
    pub(crate) broken: Vec<u16>,
    /// What it obeys of shards of which etcd has forgotten it.
    pub(crate) seen: BTreeMap<ShardId, ShardEntry>,
}

impl Node {
    fn new(boots: Vec<BootId>, is_up: bool) -> Self {
        Self {
            boots,
            is_up,
            is_cut: false,
            is_stopping: false,
            is_unheard: false,
            is_deaf: false,
            broken: Vec::new(),
            seen: BTreeMap::new(),
        }
    }
}

pub(crate) struct Seat {
    pub(crate) controller: Controller,
    /// How much of etcd's history its mirror has told.
    place: usize,
    seen: BTreeMap<Key, Vec<u8>>,
    answer: VecDeque<Input>,
}

pub(crate) struct World {
    pub(crate) etcd: FakeEtcd,
    pub(crate) nodes: Vec<Node>,
    pub(crate) controllers: Vec<Seat>,
    pub(crate) ms: u64,
    pub(crate) options: Options,
    pub(crate) fate: Fate,
    pub(crate) weights: Vec<u32>,
    pub(crate) shards_max: u32,
    boots: u128,
    /// When moves began.
    pub(crate) moves_ms: Vec<u64>,
    /// Entries written by controllers.
    pub(crate) entries_written: usize,
    /// Transactions that controllers tried.
    pub(crate) transactions: usize,
}

pub(crate) fn name(node: usize) -> NodeName {
    format!("n{node}").parse().unwrap()
}

pub(crate) fn id(node: usize) -> NodeId {
    NodeId::new(&format!("n{node}")).unwrap()
}

impl World {
    pub(crate) fn new(nodes: usize, shards: u32, replicas: u8, options: Options) -> Self {
        let mut world = Self {
            etcd: FakeEtcd::default(),
            nodes: Vec::new(),
            controllers: Vec::new(),
            ms: 10_000_000,
            options,
            fate: Fate::Answered,
            weights: vec![100; 2],
            shards_max: 1_000,
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

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: self.ms, unix_ms: UNIX_MS + self.ms }
    }

    pub(crate) fn add_node(&mut self) {
        self.nodes.push(Node::new(Vec::new(), false));
        self.start(self.nodes.len() - 1);
    }

    pub(crate) fn add_controller(&mut self) {
        let mut controller = Controller::new(self.options.clone());
        // Its mirror begins with a list.
        let mut seen = BTreeMap::new();
        for (key, held) in &self.etcd.keys {
            let event = FakeEtcd::mirror_event(&(key.clone(), Some(held.clone())));
            controller.handle(Input::Mirror(event), self.now());
            seen.insert(key.clone(), held.value.clone());
        }
        let place = self.etcd.place();
        controller.handle(Input::Mirror(MirrorEvent::SnapshotComplete { place }), self.now());
        let place = self.etcd.history.len();
        self.controllers.push(Seat { controller, place, seen, answer: VecDeque::new() });
    }

    /// A new life of a node's process.
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
                    weight,
                    load_max: None,
                    shards_max: Some(self.shards_max),
                    replication: None,
                })
                .collect(),
            admin: None,
            is_stopping: self.nodes[node].is_stopping,
        };
        self.etcd.put(Key::Node(name(node)), serde_json::to_vec(&record).unwrap());
    }

    /// The process was told to end: it says so, and goes on serving.
    pub(crate) fn stop(&mut self, node: usize) {
        if self.nodes[node].is_up && !self.nodes[node].is_cut {
            self.nodes[node].is_stopping = true;
            self.register(node);
        }
    }

    /// The last thing a process does that ends by itself: it fences itself, and leaves.
    pub(crate) fn say_ended(&mut self, node: usize) {
        let order = Order { by: format!("n{node}"), at_ms: UNIX_MS + self.ms };
        let fence = Some(FenceOrder { order, boot_ids: self.nodes[node].boots.clone() });
        self.set_intent(node, &Intent { fence, ..self.intent(node) });
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].is_up = false;
    }

    /// The lease of a node that does not renew it ends.
    pub(crate) fn expire(&mut self, node: usize) {
        if !self.nodes[node].is_up || self.nodes[node].is_cut {
            self.etcd.delete(Key::Node(name(node)));
        }
    }

    pub(crate) fn runs(&self, who: &Incarnation) -> bool {
        self.nodes.iter().any(|node| node.is_up && node.boots.contains(&who.boot_id))
    }

    /// Its streams reach others and theirs reach it.
    fn is_in_touch(&self, who: &Incarnation) -> bool {
        let node = self.nodes.iter().find(|node| node.boots.contains(&who.boot_id));
        node.is_some_and(|node| node.is_up && !node.is_unheard && !node.is_deaf)
    }

    pub(crate) fn entries(&self) -> Vec<(u32, ShardEntry)> {
        let shards = self.etcd.keys.iter().filter_map(|(key, held)| match key {
            Key::Shard(id) => Some((*id, ShardEntry::from_json(&held.value).expect("valid"))),
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
        let order = Order { by: "ann".into(), at_ms: UNIX_MS + self.ms };
        let drain = Some(DrainOrder { order, force });
        self.set_intent(node, &Intent { drain, ..self.intent(node) });
    }

    pub(crate) fn undrain(&mut self, node: usize) {
        self.set_intent(node, &Intent { drain: None, ..self.intent(node) });
    }

    /// What `weir fence` does; the process has really ended.
    pub(crate) fn fence(&mut self, node: usize) {
        if self.nodes[node].is_up || self.etcd.keys.contains_key(&Key::Node(name(node))) {
            return;
        }
        let node_id = id(node);
        let entries = self.entries();
        let members = entries.iter().flat_map(|(_, entry)| entry.members());
        let lost = members.filter(|it| it.incarnation.worker.node == node_id);
        let boot_ids: BTreeSet<BootId> = lost.map(|it| it.incarnation.boot_id).collect();
        let order = Order { by: "ann".into(), at_ms: UNIX_MS + self.ms };
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
        let order = Order { by: "ann".into(), at_ms: UNIX_MS + self.ms };
        let freeze = FreezeOrder { order, why: String::new(), is_total: false };
        let freeze = is_frozen.then_some(freeze);
        self.set_control(&Control { freeze, ..self.control() });
    }

    pub(crate) fn report(&self) -> Report {
        let value = self.etcd.value(&Key::Report).expect("a report");
        serde_json::from_slice(value).unwrap()
    }

    /// What was written of a kind, oldest first.
    pub(crate) fn events(&self) -> Vec<Event> {
        let events = self.etcd.keys.iter().filter(|(key, _)| matches!(key, Key::Event(_)));
        let mut events: Vec<Event> =
            events.map(|(_, held)| serde_json::from_slice(&held.value).unwrap()).collect();
        events.sort_by_key(|event| event.number);
        events
    }

    /// `controller` is elected; who led before learns it when `depose` is called for it.
    pub(crate) fn elect(&mut self, controller: usize) {
        let revision = self.etcd.elect(controller);
        self.tell(controller, Input::Elected(revision));
    }

    pub(crate) fn depose(&mut self, controller: usize) {
        if self.etcd.leader == Some(controller) {
            self.etcd.leader = None;
            self.etcd.delete(Key::Leader);
        }
        self.tell(controller, Input::Deposed);
    }

    /// Its mirror tells up to `count` changes more.
    pub(crate) fn deliver(&mut self, controller: usize, count: usize) {
        for _ in 0..count {
            let seat = &mut self.controllers[controller];
            let Some(change) = self.etcd.history.get(seat.place) else { break };
            seat.place += 1;
            match &change.1 {
                Some(held) => drop(seat.seen.insert(change.0.clone(), held.value.clone())),
                None => drop(seat.seen.remove(&change.0)),
            }
            let event = FakeEtcd::mirror_event(change);
            self.tell(controller, Input::Mirror(event));
        }
    }

    /// Tells an event, and carries out what follows from it; answers come at once.
    pub(crate) fn tell(&mut self, controller: usize, input: Input) {
        let now = self.now();
        let actions = self.controllers[controller].controller.handle(input, now);
        assert!(actions.len() <= 1, "one at a time");
        for action in actions {
            let answer = match action {
                Action::Write(swaps) => Input::Written(self.write(controller, &swaps)),
                Action::Read(keys) => {
                    let found = keys.iter().map(|key| self.etcd.keys.get(key).cloned());
                    Input::Read(Some(found.collect()))
                }
            };
            self.controllers[controller].answer.push_back(answer);
        }
    }

    /// Gives a controller the answers that it waits for. True if there was one.
    pub(crate) fn answer(&mut self, controller: usize) -> bool {
        let Some(answer) = self.controllers[controller].answer.pop_front() else { return false };
        self.tell(controller, answer);
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

    /// Every rule that a write must keep, whatever else happens.
    fn check(&mut self, controller: usize, changes: &Changes) {
        let mut events: Vec<Event> = Vec::new();
        let mut shards = Vec::new();
        for (key, before, after) in changes {
            match (key, after) {
                (Key::Event(_), Some(after)) => {
                    events.push(serde_json::from_slice(&after.value).unwrap());
                }
                (Key::Shard(id), Some(after)) => {
                    let entry = |value: &[u8]| ShardEntry::from_json(value).expect("valid");
                    let before = before.as_ref().map(|it| entry(&it.value));
                    shards.push((*id, before, entry(&after.value)));
                }
                (Key::Shard(id), None) => {
                    let desired: Desired =
                        serde_json::from_slice(self.etcd.value(&Key::Desired).unwrap()).unwrap();
                    assert!(!desired.shards.iter().any(|shard| shard.id == *id));
                }
                _ => {}
            }
        }
        for (id, before, after) in shards {
            let event = events.iter().rfind(|event| event.shard == Some(id));
            let event = event.expect("a decision has its event");
            self.check_entry(controller, before.as_ref(), &after, event);
        }
    }

    fn check_entry(
        &mut self,
        controller: usize,
        before: Option<&ShardEntry>,
        after: &ShardEntry,
        event: &Event,
    ) {
        self.entries_written += 1;
        self.check_comers(controller, before, after);
        let goes_on = after.rebased() == Some(after.epoch());
        if let Some(before) = before.filter(|_| !goes_on) {
            assert_eq!(after.epoch().0, before.epoch().0 + 1);
            self.check_ends(before, after);
            self.check_freeze(controller, before, after);
            if event.is_move {
                self.check_move(controller, before, event);
            }
        }
        if event.is_move {
            self.moves_ms.push(self.ms);
            let minute = self.moves_ms.iter().filter(|&&ms| ms + 60_000 > self.ms).count();
            assert!(minute <= self.options.moves_per_min, "{minute} moves in a minute");
        }
    }

    /// A node that is about to end gets nothing.
    fn check_comers(&self, controller: usize, before: Option<&ShardEntry>, after: &ShardEntry) {
        let seen = &self.controllers[controller].seen;
        for member in after.members() {
            let who = &member.incarnation;
            if before.is_some_and(|before| before.member(who).is_some()) {
                continue;
            }
            let record = seen.get(&Key::Node(who.worker.node.as_str().parse().unwrap()));
            let record = record.map(|value| serde_json::from_slice::<NodeRecord>(value).unwrap());
            assert!(record.is_none_or(|record| !record.is_stopping), "{before:?} {after:?}");
        }
    }

    /// Nobody who still runs loses its seat while it has a lane.
    fn check_ends(&self, before: &ShardEntry, after: &ShardEntry) {
        for member in before.members() {
            if after.member(&member.incarnation).is_none() && self.runs(&member.incarnation) {
                assert!(before.lanes_of(member.seat).is_empty(), "{before:?} {after:?}");
            }
        }
    }

    fn check_freeze(&self, controller: usize, before: &ShardEntry, after: &ShardEntry) {
        let control = self.controllers[controller].seen.get(&Key::Control);
        let control = control.map(|value| serde_json::from_slice::<Control>(value).unwrap());
        if control.is_none_or(|control| control.freeze.is_none()) {
            return;
        }
        let had = |who: &Incarnation| {
            before.members().iter().any(|it| it.incarnation.worker == who.worker)
        };
        let lost_primary = after.member(&before.primary().incarnation).is_none();
        for member in after.members() {
            assert!(had(&member.incarnation) || lost_primary, "copied while frozen: {after:?}");
            let former = before.member(&member.incarnation);
            let began_to_leave = member.is_leaving && former.is_some_and(|it| !it.1.is_leaving);
            assert!(!began_to_leave, "retired while frozen: {after:?}");
        }
    }

    /// A move only of a shard with all the copies that can be had.
    fn check_move(&self, controller: usize, before: &ShardEntry, event: &Event) {
        let seen = &self.controllers[controller].seen;
        let desired: Desired = serde_json::from_slice(&seen[&Key::Desired]).unwrap();
        let copies = 1 + usize::from(desired.cluster.replicas);
        let is_drained = |node: &NodeName| {
            let intent = seen.get(&Key::Intent(node.clone()));
            intent.is_some_and(|it| serde_json::from_slice::<Intent>(it).unwrap().drain.is_some())
        };
        let open = seen.keys().filter(|key| match key {
            Key::Node(node) => !is_drained(node),
            _ => false,
        });
        let wanted = copies.min(open.count());
        let records: Vec<NodeRecord> = seen
            .iter()
            .filter(|(key, _)| matches!(key, Key::Node(_)))
            .map(|(_, value)| serde_json::from_slice(value).unwrap())
            .collect();
        let is_registered = |who: &Incarnation| {
            let boot_id = who.boot_id.to_string();
            records.iter().any(|it| it.workers.iter().any(|it| it.boot_id == boot_id))
        };
        let synced = before
            .members()
            .iter()
            .filter(|it| it.state == MemberState::Synced && is_registered(&it.incarnation));
        assert!(synced.count() >= wanted, "{event:?} of {before:?}");
    }

    /// Every node that runs reports to a controller.
    pub(crate) fn hear(&mut self, controller: usize) {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_up {
                continue;
            }
            let others = (0..self.nodes.len()).filter(|&other| other != node);
            let is_heard = |other: usize| {
                self.nodes[other].is_up
                    && !self.nodes[other].is_unheard
                    && !self.nodes[node].is_deaf
            };
            let report = Answer {
                doubts: self.doubts_of(node),
                node: id(node),
                hears: others.map(|other| (id(other), is_heard(other))).collect(),
                loads: Vec::new(),
                broken: self.nodes[node].broken.clone(),
                acting: Vec::new(),
            };
            self.tell(controller, Input::Report(report));
        }
    }

    /// etcd has these entries again, and its nodes have seen those that it has now.
    pub(crate) fn set_back(&mut self, to: &[(u32, ShardEntry)]) {
        let seen: BTreeMap<u32, ShardEntry> = self.entries().into_iter().collect();
        for (shard, entry) in to.iter().filter(|(shard, entry)| seen[shard] != *entry) {
            self.etcd.put(Key::Shard(*shard), entry.to_json().into_bytes());
            for node in self.nodes.iter_mut().filter(|node| node.is_up) {
                node.seen.insert(ShardId(*shard), seen[shard].clone());
            }
        }
    }

    /// Of what it has seen, where etcd has forgotten it.
    fn doubts_of(&self, node: usize) -> NodeDoubts {
        if self.nodes[node].seen.is_empty() {
            return NodeDoubts { are_all: true, ..NodeDoubts::default() };
        }
        let stored: BTreeMap<u32, ShardEntry> = self.entries().into_iter().collect();
        let seen = self.nodes[node].seen.iter().filter(|(shard, seen)| {
            stored.get(&shard.0).is_none_or(|it| it.rebased() <= Some(seen.epoch()))
        });
        let shards = seen.map(|(shard, seen)| (*shard, (seen.epoch(), Some(seen.clone()))));
        NodeDoubts { shards: shards.collect(), are_all: true }
    }

    /// Workers that run finish their copies and take what is granted. True if anything was done.
    pub(crate) fn work(&mut self) -> bool {
        let mut is_busy = false;
        for (shard, mut entry) in self.entries() {
            let doubts = |node: usize| self.doubts_of(node).shards.contains_key(&ShardId(shard));
            if (0..self.nodes.len()).any(|node| self.nodes[node].is_up && doubts(node)) {
                continue;
            }
            let epoch = entry.epoch();
            while let Some(transition) = self.wish(&entry) {
                entry = entry.after(entry.epoch(), &transition).expect("a wish fits");
            }
            if entry.epoch() != epoch {
                self.etcd.put(Key::Shard(shard), entry.to_json().into_bytes());
                is_busy = true;
            }
        }
        is_busy
    }

    fn wish(&self, entry: &ShardEntry) -> Option<Transition> {
        let seated = |seat| &entry.at_seat(seat).expect("seated").incarnation;
        for (index, lane) in entry.lanes().iter().enumerate() {
            let Some(moving) = lane.moving else { continue };
            if self.is_in_touch(seated(moving.from)) && self.is_in_touch(seated(lane.owner)) {
                let by = seated(lane.owner).clone();
                return Some(Transition::Settle { by, lanes: LaneSet::EMPTY.with(index) });
            }
        }
        if !self.is_in_touch(&entry.primary().incarnation) {
            return None;
        }
        let mut members = entry.members().iter();
        let copied = members
            .find(|it| it.state != MemberState::Synced && self.is_in_touch(&it.incarnation))?;
        Some(Transition::Synced(copied.incarnation.clone()))
    }

    /// One tick of everybody, with all news and all answers.
    pub(crate) fn turn(&mut self) {
        self.turn_after(self.options.tick_ms);
    }

    pub(crate) fn turn_after(&mut self, ms: u64) {
        self.ms += ms;
        for controller in 0..self.controllers.len() {
            self.deliver(controller, usize::MAX);
            self.hear(controller);
            self.tell(controller, Input::Tick);
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

    /// Turns until the map has not changed for a while.
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
        panic!("it never comes to rest: {:?}", self.report());
    }
}
