//! A small cluster around one shard: a store, workers that lag, messages that are late, lost or
//! duplicated, deaths and restarts. The workers are role machines; everything else is as hostile as
//! it may be.
//!
//! The world promises this, and no more: an incarnation is fenced only when it has ended. When the
//! store is set back, every node notices before it obeys what is written next, and remembers across
//! its restarts what it had seen; nothing is decided until an operator sees that every node that
//! runs is registered and in no doubt.

use std::collections::BTreeSet;

use bolero::TypeGenerator;
use weir_map::allocate::{
    Acting, AllocateOptions, Liveness, NodeView, PlannedChange, ShardView, WorkerView, allocate,
};
use weir_map::map::{Stand, Witness, needs_rebase, rebase};
use weir_map::*;
use weir_roles::role::{Grant, PortHealth, Role, RoleEvent, RoleMachine, RoleOptions};

use crate::guests::Wrong;
use crate::knowledge::{Knowledge, Records};
use crate::seen::Seen;

pub(crate) const NODES: usize = 6;

/// One thing that happens. Most are about one node; `any` picks among what there is.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct Step {
    pub(crate) kind: u8,
    #[generator(0..6_u8)]
    pub(crate) node: u8,
    pub(crate) any: u8,
}

pub(crate) struct Node {
    boots: u32,
    /// None: the process has ended.
    pub(crate) machine: Option<RoleMachine>,
    /// The newest entry that it has obeyed, kept across restarts.
    pub(crate) disk: Option<ShardEntry>,
    /// Whether the store knows its current incarnation.
    pub(crate) has_joined: bool,
    is_registered: bool,
    /// The highest epoch that it has seen, kept across restarts.
    known: Epoch,
    /// Whether it obeys only entries that were rebased above that epoch.
    is_in_doubt: bool,
}

pub(crate) struct Cluster {
    now_ms: u64,
    /// Every entry there ever was: any of them may come to any worker at any time.
    pub(crate) history: Vec<ShardEntry>,
    pub(crate) nodes: Vec<Node>,
    /// Every grant that was ever sent, with the copy of the lane that went before it.
    grants: Vec<(Grant<Incarnation>, Records)>,
    ended: BTreeSet<Incarnation>,
    pub(crate) knowledge: Knowledge,
    pub(crate) wrong: Option<Wrong>,
    steps: usize,
    was_set_back: bool,
    is_frozen: bool,
    pub(crate) seen: Seen,
}

fn name(node: usize) -> NodeId {
    NodeId::new(&format!("n{node}")).expect("a name")
}

impl Cluster {
    pub(crate) fn new(wrong: Option<Wrong>) -> Self {
        let mut cluster = Self {
            now_ms: 1_000,
            history: Vec::new(),
            nodes: Vec::new(),
            grants: Vec::new(),
            ended: BTreeSet::new(),
            knowledge: Knowledge::new(NODES),
            wrong,
            steps: 0,
            was_set_back: false,
            is_frozen: false,
            seen: Seen::default(),
        };
        for node in 0..NODES {
            cluster.nodes.push(Node {
                boots: 0,
                machine: None,
                disk: None,
                has_joined: true,
                is_registered: true,
                known: Epoch(0),
                is_in_doubt: false,
            });
            cluster.start(node);
        }
        let first = cluster.running(0).expect("started");
        cluster.history.push(ShardEntry::create(first));
        cluster
    }

    pub(crate) fn newest(&self) -> &ShardEntry {
        self.history.last().expect("created")
    }

    /// Clocks run at different rates: 0.8, 1.0 and 1.2.
    fn clock_ms(&self, node: usize) -> u64 {
        self.now_ms * (4 + node as u64 % 3) / 5
    }

    pub(crate) fn running(&self, node: usize) -> Option<Incarnation> {
        self.nodes[node].machine.as_ref().map(|machine| machine.incarnation().clone())
    }

    pub(crate) fn is_running(&self, node: u8) -> bool {
        self.nodes[usize::from(node)].machine.is_some()
    }

    pub(crate) fn start(&mut self, node: usize) {
        self.end(node);
        self.nodes[node].has_joined = true;
        self.nodes[node].boots += 1;
        let boot_id = BootId(u128::from(self.nodes[node].boots) << 8 | node as u128);
        let me = Incarnation { worker: WorkerId { node: name(node), index: 0 }, boot_id };
        self.nodes[node].machine = Some(RoleMachine::new(me, RoleOptions::default()));
        self.handle_event(node, RoleEvent::Ports(PortHealth::Ready));
    }

    fn end(&mut self, node: usize) {
        if let Some(machine) = self.nodes[node].machine.take() {
            self.ended.insert(machine.incarnation().clone());
        }
        self.knowledge.forget(node);
    }

    pub(crate) fn handle_event(&mut self, node: usize, event: RoleEvent) {
        let clock_ms = self.clock_ms(node);
        if let Some(machine) = &mut self.nodes[node].machine {
            machine.on(clock_ms, event);
        }
    }

    fn change(&mut self, at: Epoch, transition: &Transition) -> bool {
        let next = self.newest().after(at, transition);
        let is_done = next.is_ok();
        self.history.extend(next);
        is_done
    }

    fn control(&mut self, transition: Transition) -> bool {
        self.change(self.newest().epoch(), &transition)
    }

    /// The member of the newest entry on this node.
    fn member(&self, node: usize) -> Option<Incarnation> {
        let mut members = self.newest().members().iter();
        let member = members.find(|member| member.incarnation.worker.node == name(node))?;
        Some(member.incarnation.clone())
    }

    pub(crate) fn step(&mut self, step: Step) {
        let node = usize::from(step.node);
        let any = usize::from(step.any);
        match step.kind % 40 {
            0..=3 | 18 | 19 => self.deliver(node, self.history.len() - 1),
            4 => self.deliver(node, any % self.history.len()),
            5 | 6 => self.send_grants(node),
            7 | 8 if !self.grants.is_empty() => self.deliver_grant(any % self.grants.len()),
            9 if !self.grants.is_empty() => self.deliver_grant(self.grants.len() - 1),
            10..=12 => self.write(node),
            13 => self.handle_event(node, RoleEvent::CopyDone),
            14 => self.handle_event(node, RoleEvent::StreamLost),
            15 => (0..4).for_each(|_| {
                self.now_ms += 10;
                self.handle_event(node, RoleEvent::Slot { packets: u32::from(step.any) });
            }),
            16 => self.on_heartbeats(node),
            17 if step.any & 7 == 0 => self.round(),
            17 => {
                self.now_ms += u64::from(step.any) * 2;
                self.handle_event(node, RoleEvent::PrimaryLost);
            }
            20 => self.nodes[node].is_registered = false,
            21 => self.nodes[node].is_registered = true,
            22 if step.any & 3 == 0 => self.end(node),
            22 if step.any & 3 == 1 => self.start(node),
            22 | 23 if self.running(node).is_none() => self.start(node),
            32 if any % 4 == 0 => self.set_back(any / 8),
            32 if self.is_frozen => self.nodes[node].is_registered = true,
            33 | 34 => self.rebase(|who| any & 1 << (who % 8) != 0),
            35 => self.unfreeze(),
            36 if step.any & 3 == 0 => self.start_without_store(node),
            36..=38 => self.copy_to_guest(any % NODES, node),
            39 => self.join(node),
            _ if self.is_frozen => {}
            24 => self.fence(node, any),
            _ => self.decide(node, step),
        }
        self.note();
        self.make_record();
    }

    /// Decides what a controller may decide, sensible or not.
    fn decide(&mut self, node: usize, step: Step) {
        let member = self.member(node);
        match (step.kind % 40, member) {
            (25 | 26, None) => {
                if let Some(who) = self.running(node) {
                    self.control(Transition::AddReplica(who));
                }
            }
            (27, Some(who)) => {
                self.control(Transition::Synced(who));
            }
            (29, _) => self.allocate(),
            (28, Some(who)) => {
                self.seen.promotions += u32::from(self.control(Transition::Promote(who)));
            }
            (30, Some(who)) => {
                self.control(Transition::Retire(who));
            }
            (31, Some(who)) if step.any & 3 == 0 => {
                self.control(Transition::OutOfSync(who));
            }
            (31, Some(who)) => {
                self.seen.removals += u32::from(self.control(Transition::Remove(who)));
            }
            _ => {}
        }
    }

    /// Applies the allocator's own decision on what the store shows.
    fn allocate(&mut self) {
        let nodes: Vec<NodeView> = (0..NODES).map(|node| self.view(node)).collect();
        let entry = Some(self.newest().clone());
        let acting = self.nodes.iter().filter_map(|node| node.machine.as_ref());
        let mut acting = acting.filter(|machine| machine.duties().role == Role::Acting);
        let acting = acting.next().map(|machine| Acting {
            incarnation: machine.incarnation().clone(),
            term: machine.entry().expect("a worker that acts holds an entry").term(),
        });
        let shard = ShardView { id: ShardId(1), entry, load: 0, acting };
        let options = AllocateOptions { replicas: 2, ..AllocateOptions::default() };
        let plan = allocate(&nodes, &[shard], &options);
        for step in plan.steps {
            let PlannedChange::Apply { at, transition } = step.change else {
                panic!("the shard exists")
            };
            let is_done = self.change(at, &transition);
            assert!(is_done, "{transition:?} at {:?}", self.newest());
            self.seen.allocated += 1;
        }
    }

    /// Returns a node as the store shows it: a node that has ended may still run, until it is back.
    fn view(&self, node: usize) -> NodeView {
        let known = self.running(node).filter(|_| !self.is_unknown(node));
        let boot_id = known.map(|running| running.boot_id);
        let is_alive = self.nodes[node].is_registered && boot_id.is_some();
        let liveness = if is_alive { Liveness::Alive } else { Liveness::Dead };
        let worker = boot_id.map(|boot_id| WorkerView {
            index: 0,
            boot_id,
            resumes: None,
            weight: 1,
            load_max: None,
            shards_max: None,
            is_cut_off: false,
        });
        let workers = worker.into_iter().collect();
        NodeView {
            name: name(node),
            rack: None,
            liveness,
            is_drained: false,
            is_on_trial: false,
            has_copies: self.steps.is_multiple_of(2),
            workers,
        }
    }

    fn deliver(&mut self, node: usize, index: usize) {
        let entry = self.history[index].clone();
        let held = self.nodes[node].machine.as_ref().and_then(|machine| machine.entry());
        let is_old = held.is_some_and(|held| held.epoch() > entry.epoch());
        self.seen.old_entries += u32::from(is_old);
        if self.is_guest(node) {
            self.deliver_to_guest(node, entry);
        } else if self.obeys(node, &entry, index + 1 == self.history.len()) {
            self.handle_event(node, RoleEvent::Entry(Box::new(entry)));
        }
    }

    /// Decides as a node does that remembers what it has seen. A late entry does not show that the
    /// store was set back.
    fn obeys(&mut self, node: usize, entry: &ShardEntry, is_newest: bool) -> bool {
        let node = &mut self.nodes[node];
        let is_above = entry.rebased().is_some_and(|rebased| rebased > node.known);
        if self.was_set_back && !is_above {
            node.is_in_doubt |= is_newest && entry.epoch() < node.known;
            if node.is_in_doubt || entry.epoch() < node.known {
                return false;
            }
        }
        node.is_in_doubt = false;
        if node.machine.is_some() {
            node.known = node.known.max(entry.epoch());
            if node.disk.as_ref().is_none_or(|disk| disk.epoch() < entry.epoch()) {
                node.disk = Some(entry.clone());
            }
        }
        true
    }

    /// Sets the store back to an older entry; the entries after it are in no mirror any more.
    fn set_back(&mut self, ago: usize) {
        if self.is_frozen || self.is_any_in_doubt() {
            return;
        }
        self.history.truncate(self.history.len().saturating_sub(ago).max(1));
        (self.was_set_back, self.is_frozen) = (true, true);
        for node in 0..NODES {
            if self.is_guest(node) {
                self.end(node);
            }
        }
        let newest = self.newest().clone();
        for node in &mut self.nodes {
            let held = node.machine.as_ref().and_then(|machine| machine.entry());
            let is_other =
                held.is_some_and(|held| held.epoch() == newest.epoch() && *held != newest);
            node.is_in_doubt = node.known > newest.epoch() || is_other;
            // A node does not receive any more of the lost history.
        }
        self.seen.set_back += 1;
    }

    pub(crate) fn was_set_back(&self) -> bool {
        self.was_set_back
    }

    pub(crate) fn is_any_in_doubt(&self) -> bool {
        self.nodes.iter().any(|node| node.machine.is_some() && node.is_in_doubt)
    }

    fn witnesses(&self, is_silent: impl Fn(usize) -> bool) -> Vec<Witness> {
        let nodes = self.nodes.iter().enumerate();
        let registered = nodes.filter(|(_, node)| node.is_registered);
        let witnesses = registered.filter_map(|(index, node)| {
            let machine = node.machine.as_ref()?;
            let stand = match node.is_in_doubt {
                _ if is_silent(index) => Stand::Silent,
                true => {
                    let held = machine.entry().cloned().map(Box::new);
                    Stand::InDoubt { known: node.known, held }
                }
                false => Stand::Follows,
            };
            let boot_ids = vec![machine.incarnation().boot_id];
            Some(Witness { node: name(index), boot_ids, stand })
        });
        witnesses.collect()
    }

    /// Rebases as the controller does by itself: only where nothing is in doubt.
    fn rebase(&mut self, is_silent: impl Fn(usize) -> bool) {
        let nodes = self.witnesses(is_silent);
        if !needs_rebase(Some(self.newest()), &nodes) {
            return;
        }
        let rebased = rebase(Some(self.newest()), &nodes, |who| self.ended.contains(who));
        if let Ok(rebased) = rebased.as_ref()
            && rebased.doubts.is_empty()
        {
            self.history.push(rebased.entry.clone());
            self.seen.rebased += 1;
        }
    }

    /// Rebases by order of the operator: every node that runs is registered and has answered.
    fn rebase_by_order(&mut self) {
        let nodes = self.witnesses(|_| false);
        if needs_rebase(Some(self.newest()), &nodes) {
            let rebased = rebase(Some(self.newest()), &nodes, |_| true);
            let rebased = rebased.unwrap_or_else(|error| panic!("{error}"));
            self.history.push(rebased.entry);
        }
    }

    fn unfreeze(&mut self) {
        let is_unknown = |node: &Node| node.machine.is_some() && !node.is_registered;
        self.is_frozen &= self.is_any_in_doubt() || self.nodes.iter().any(is_unknown);
    }

    fn send_grants(&mut self, node: usize) {
        let machine = self.nodes[node].machine.as_ref();
        let grants = machine.map(|machine| machine.duties().grants.clone()).unwrap_or_default();
        let with_copy = |grant: Grant<Incarnation>| {
            let copy = self.knowledge.of(node, grant.lane);
            (grant, copy)
        };
        self.grants.extend(grants.into_iter().map(with_copy));
    }

    fn deliver_grant(&mut self, index: usize) {
        let (Grant { lane, since, to }, copy) = self.grants[index].clone();
        let Some(node) = (0..NODES).find(|&node| self.running(node).as_ref() == Some(&to)) else {
            return;
        };
        let held = self.nodes[node].machine.as_ref().and_then(|machine| machine.entry());
        let is_over = held.is_some_and(|held| {
            let is_other = |moving: Move| moving.since != since;
            held.epoch() >= since && held.lanes()[lane].moving.is_none_or(is_other)
        });
        // A copy that comes later is not followed any more.
        if !is_over {
            self.knowledge.learn(node, lane, copy);
        }
        self.handle_event(node, RoleEvent::Granted { lane, since });
        let moving = self.newest().lanes()[lane].moving;
        let is_copy = |moving: Move| moving.since == since && moving.then.is_some();
        self.seen.copies_taken += u32::from(moving.is_some_and(is_copy));
        if moving.is_some_and(|moving| moving.since == since) {
            self.seen.grants_taken += 1;
        } else {
            self.seen.grants_of_old_moves += 1;
        }
    }

    /// Writes the change that the worker wants, at the epoch that it holds.
    fn write(&mut self, node: usize) {
        let Some(machine) = &self.nodes[node].machine else { return };
        if self.nodes[node].is_in_doubt {
            return;
        }
        let (Some(held), Some(write)) = (machine.entry(), machine.duties().write.clone()) else {
            return;
        };
        self.change(held.epoch(), &write);
    }

    fn on_heartbeats(&mut self, node: usize) {
        let from = self.newest().primary().incarnation.clone();
        self.handle_event(node, RoleEvent::Heartbeat { from });
    }

    /// Fences a member that has ended, in the way that is left.
    fn fence(&mut self, node: usize, any: usize) {
        let Some(ended) = self.member(node).filter(|member| self.ended.contains(member)) else {
            return;
        };
        // The end of an incarnation is known from the node's next one, and not otherwise.
        if self.is_unknown(node) {
            return;
        }
        if self.running(node).is_none() {
            // Or the node has reported its end itself, and noted that first.
            self.nodes[node].disk = None;
        }
        let is_alone = self.newest().members().len() == 1;
        let mut known = (0..NODES).filter(|&other| !self.is_unknown(other));
        let other = known.find_map(|other| self.running(other));
        let new = self.running(node).filter(|running| *running != ended);
        let is_primary = self.newest().primary().incarnation == ended;
        let transition = match (new.clone(), new.or(other)) {
            (_, Some(to)) if is_alone || is_primary && any & 3 == 0 => {
                Transition::TakeSlot { ended, to }
            }
            (Some(new), _) => Transition::Restart { ended, boot_id: new.boot_id },
            _ => Transition::Fence(ended),
        };
        self.seen.fences += u32::from(self.control(transition));
    }

    fn note(&mut self) {
        for node in 0..NODES {
            self.handle_event(node, RoleEvent::Tick);
            let Some(machine) = &self.nodes[node].machine else { continue };
            let duties = machine.duties();
            self.seen.acting += u32::from(duties.role == Role::Acting);
        }
    }

    /// Lets the writer of one lane, a different one in each step, make a record.
    fn make_record(&mut self) {
        self.steps += 1;
        let members: Vec<usize> = (0..NODES).filter(|&node| self.is_member(node)).collect();
        for node in (0..NODES).filter(|node| !members.contains(node)) {
            if !self.is_guest(node) {
                self.knowledge.forget(node);
            }
        }
        let lane = self.steps % LANES;
        if let Some(writer) = self.writers(lane).first() {
            let writer = (0..NODES).find(|&node| self.running(node).as_ref() == Some(writer));
            let writer = writer.expect("a writer runs");
            let hearers = [members, self.guests_of(writer)].concat();
            self.knowledge.make(writer, lane, &hearers);
        }
    }

    fn is_member(&self, node: usize) -> bool {
        self.running(node).is_some_and(|running| self.newest().member(&running).is_some())
    }

    /// Returns a member that has received a record that the writer of the lane has not.
    pub(crate) fn better_informed(&self, lane: usize, writer: &Incarnation) -> Option<Incarnation> {
        let at = (0..NODES).find(|&node| self.running(node).as_ref() == Some(writer))?;
        let known = self.knowledge.of(at, lane);
        let knows_more = |&node: &usize| !known.has_all_of(&self.knowledge.of(node, lane));
        let others = (0..NODES).filter(|&node| self.is_to_be_asked(node)).filter(knows_more);
        let mut others = others.filter_map(|node| self.running(node));
        others.next()
    }

    /// Returns the workers that write a lane at this moment.
    pub(crate) fn writers(&self, lane: usize) -> Vec<Incarnation> {
        let machines = self.nodes.iter().filter_map(|node| node.machine.as_ref());
        let writers = machines.filter(|machine| machine.duties().lanes.contains(lane));
        writers.map(|machine| machine.incarnation().clone()).collect()
    }

    /// Every node hears the newest entry, every grant comes, every wanted change that still fits is
    /// written.
    fn round(&mut self) {
        let newest = self.history.len() - 1;
        for node in 0..NODES {
            self.deliver(node, newest);
            self.send_grants(node);
        }
        (0..self.grants.len()).for_each(|index| self.deliver_grant(index));
        (0..NODES).for_each(|node| self.write(node));
    }

    /// Lets the store and all messages get through and fences the dead, until all is at rest.
    pub(crate) fn calm(&mut self) {
        for _ in 0..64 {
            let before = self.newest().epoch();
            self.nodes
                .iter_mut()
                .for_each(|node| (node.is_registered, node.has_joined) = (true, true));
            self.rebase_by_order();
            let newest = self.history.len() - 1;
            (0..NODES).for_each(|node| self.deliver(node, newest));
            self.unfreeze();
            for node in 0..NODES {
                self.fence(node, 1);
            }
            for node in 0..NODES {
                self.handle_event(node, RoleEvent::CopyDone);
            }
            self.round();
            self.grants.clear();
            if self.newest().epoch() == before {
                return;
            }
        }
        panic!("it never comes to rest: {:?}", self.newest());
    }
}
