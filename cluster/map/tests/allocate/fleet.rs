//! A fleet of nodes and its map: plans are applied as a store would, and workers copy, take grants
//! and report as workers would. Every step is checked.

use std::collections::{BTreeMap, BTreeSet};

use weir_map::allocate::*;
use weir_map::*;

pub(crate) struct World {
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) shards: Vec<ShardView>,
    pub(crate) options: AllocateOptions,
    boots: u128,
    /// Number of transitions of each kind that were applied.
    pub(crate) adds: usize,
    pub(crate) promotions: usize,
}

pub(crate) fn name(node: usize) -> NodeId {
    NodeId::new(&format!("n{node:02}")).expect("a name")
}

impl World {
    /// Returns a world of shards that do not exist yet, without a node.
    pub(crate) fn new(shards: u32, options: AllocateOptions) -> Self {
        let shards = (1..=shards).map(|id| ShardView {
            id: ShardId(id),
            entry: None,
            load: 1,
            acting: None,
        });
        let shards = shards.collect();
        Self { nodes: Vec::new(), shards, options, boots: 0, adds: 0, promotions: 0 }
    }

    pub(crate) fn add_node(&mut self, weights: &[u32], rack: Option<&str>) -> usize {
        let node = self.nodes.len();
        let workers = weights.iter().enumerate().map(|(index, &weight)| WorkerView {
            index: index as u16,
            boot_id: BootId(0),
            resumes: None,
            weight,
            load_max: None,
            shards_max: None,
            is_cut_off: false,
        });
        self.nodes.push(NodeView {
            name: name(node),
            rack: rack.map(str::to_string),
            liveness: Liveness::Alive,
            is_drained: false,
            is_on_trial: false,
            has_copies: false,
            workers: workers.collect(),
        });
        self.restart(node);
        node
    }

    /// Restarts the processes of a node under new boot ids.
    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node].liveness = Liveness::Alive;
        for worker in &mut self.nodes[node].workers {
            self.boots += 1;
            worker.boot_id = BootId(self.boots);
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        allocate(&self.nodes, &self.shards, &self.options)
    }

    fn node(&self, who: &Incarnation) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.name == who.worker.node)
    }

    pub(crate) fn runs(&self, who: &Incarnation) -> bool {
        self.node(who).is_some_and(|node| {
            node.liveness.runs() && node.workers.iter().any(|it| it.boot_id == who.boot_id)
        })
    }

    /// Returns the number of nodes on which a member runs and has a full copy.
    pub(crate) fn synced(&self, entry: &ShardEntry) -> usize {
        self.synced_nodes(entry.members().iter())
    }

    fn synced_without(&self, entry: &ShardEntry, who: &Incarnation) -> usize {
        self.synced_nodes(entry.members().iter().filter(|member| member.incarnation != *who))
    }

    fn synced_nodes<'a>(&self, members: impl Iterator<Item = &'a Member>) -> usize {
        let synced = members.filter(|member| member.state == MemberState::Synced);
        let synced = synced.filter(|member| self.runs(&member.incarnation));
        let nodes: BTreeSet<&NodeId> = synced.map(|it| &it.incarnation.worker.node).collect();
        nodes.len()
    }

    fn copies_under_way(&self) -> usize {
        let members = self.shards.iter().filter_map(|shard| shard.entry.as_ref());
        let members = members.flat_map(|entry| entry.members());
        let copies = members.filter(|member| member.state == MemberState::Syncing);
        copies.filter(|member| self.runs(&member.incarnation)).count()
    }

    /// Applies a plan and checks that every step fits and that none takes a copy that is still
    /// needed.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        let copies_before = self.copies_under_way();
        let mut adds = 0;
        for step in &plan.steps {
            let index = self.shards.binary_search_by_key(&step.shard, |shard| shard.id);
            let index = index.expect("a shard that exists");
            let next = match (&step.change, &self.shards[index].entry) {
                (PlannedChange::Create(who), None) => {
                    assert!(self.runs(who));
                    ShardEntry::create(who.clone())
                }
                (PlannedChange::Apply { at, transition }, Some(entry)) => {
                    self.check_step(entry, transition);
                    adds += usize::from(matches!(
                        transition,
                        Transition::AddReplica(_) | Transition::Replace { .. }
                    ));
                    self.promotions += usize::from(matches!(transition, Transition::Promote(_)));
                    let next = entry.after(*at, transition);
                    next.unwrap_or_else(|refused| panic!("{transition:?}: {refused} {entry:?}"))
                }
                other => panic!("{other:?}"),
            };
            self.shards[index].entry = Some(next);
        }
        assert!(
            adds == 0 || copies_before + adds <= self.options.moves_max,
            "{copies_before} copies and {adds} more"
        );
        self.adds += adds;
        self.check_rooms();
    }

    /// Checks that no worker is given more shards than it has room for.
    fn check_rooms(&self) {
        for worker in self.nodes.iter().flat_map(|node| &node.workers) {
            let Some(shards_max) = worker.shards_max else { continue };
            let entries = self.shards.iter().filter_map(|shard| shard.entry.as_ref());
            let is_it = |member: &&Member| member.incarnation.boot_id == worker.boot_id;
            let held = entries.flat_map(|entry| entry.members()).filter(is_it).count();
            assert!(held <= shards_max as usize, "{held} shards, room for {shards_max}");
        }
    }

    fn check_step(&self, entry: &ShardEntry, transition: &Transition) {
        let wanted = usize::from(self.options.replicas) + 1;
        match transition {
            Transition::Retire(who) => {
                let rest = self.synced_without(entry, who);
                let open = self.nodes.iter().filter(|node| {
                    let has_share = node.workers.iter().any(|worker| worker.weight > 0);
                    node.liveness.runs() && !node.is_drained && has_share
                });
                let is_full = entry.members().len() == 5;
                assert!(rest >= wanted.min(open.count()) || is_full, "{entry:?} retires {who}");
            }
            Transition::Promote(who) => assert!(self.runs(who) && self.is_synced(entry, who)),
            Transition::Fence(who) | Transition::Restart { ended: who, .. } => {
                assert!(!self.runs(who), "{who} runs");
            }
            Transition::TakeSlot { ended, to } => assert!(!self.runs(ended) && self.runs(to)),
            Transition::AddReplica(who) | Transition::Replace { by: who, .. } => {
                assert!(self.runs(who));
                assert!(self.node(who).is_some_and(|node| node.liveness != Liveness::Stopping));
            }
            _ => {}
        }
    }

    fn is_synced(&self, entry: &ShardEntry, who: &Incarnation) -> bool {
        let member = entry.member(who);
        member.is_some_and(|(_, member)| member.state == MemberState::Synced)
    }

    /// Lets running workers finish their copies and take what is granted. True if anything was
    /// done.
    pub(crate) fn work(&mut self) -> bool {
        let mut is_busy = false;
        for index in 0..self.shards.len() {
            while let Some(entry) = &self.shards[index].entry {
                let Some(transition) = self.wanted_transition(entry) else { break };
                let next = entry.after(entry.epoch(), &transition).expect("the transition fits");
                self.shards[index].entry = Some(next);
                is_busy = true;
            }
        }
        is_busy
    }

    fn wanted_transition(&self, entry: &ShardEntry) -> Option<Transition> {
        let member_at = |slot| &entry.at_slot(slot).expect("the slot has a member").incarnation;
        for (index, lane) in entry.lanes().iter().enumerate() {
            let takes = |moving: &Move| {
                self.runs(member_at(moving.from)) && self.runs(member_at(lane.owner))
            };
            if lane.moving.as_ref().is_some_and(takes) {
                let by = member_at(lane.owner).clone();
                return Some(Transition::Settle { by, lanes: LaneSet::EMPTY.with(index) });
            }
        }
        if !self.runs(&entry.primary().incarnation) {
            return None;
        }
        let mut members = entry.members().iter();
        let copied =
            members.find(|it| it.state != MemberState::Synced && self.runs(&it.incarnation))?;
        Some(Transition::Synced(copied.incarnation.clone()))
    }

    /// Plans and works until nothing is left to do; returns the number of plans.
    pub(crate) fn settle(&mut self) -> usize {
        for round in 0..2_000 {
            let plan = self.plan();
            assert_eq!(plan, self.plan(), "the same input gives the same plan");
            self.apply(&plan);
            let is_busy = self.work();
            if plan.steps.is_empty() && !is_busy {
                return round;
            }
        }
        panic!("it never comes to rest: {:?}", self.plan());
    }

    /// Returns primaries and copies by worker, only of members that are not leaving.
    pub(crate) fn shares(&self) -> BTreeMap<WorkerId, (usize, usize)> {
        let mut shares = BTreeMap::new();
        for node in &self.nodes {
            for worker in &node.workers {
                let worker = WorkerId { node: node.name.clone(), index: worker.index };
                shares.insert(worker, (0, 0));
            }
        }
        for entry in self.shards.iter().filter_map(|shard| shard.entry.as_ref()) {
            for (rank, member) in entry.members().iter().enumerate() {
                let share = shares.get_mut(&member.incarnation.worker).expect("a worker");
                share.0 += usize::from(rank == 0);
                share.1 += 1;
            }
        }
        shares
    }

    /// Returns the load of the primaries by worker.
    pub(crate) fn loads(&self) -> BTreeMap<WorkerId, u64> {
        let mut loads: BTreeMap<_, _> =
            self.shares().into_keys().map(|worker| (worker, 0)).collect();
        for shard in &self.shards {
            let Some(entry) = &shard.entry else { continue };
            *loads.get_mut(&entry.primary().incarnation.worker).expect("a worker") += shard.load;
        }
        loads
    }

    /// Returns the primaries of each worker after a node is lost: its own and those it takes over.
    pub(crate) fn shares_without(&self, lost: usize) -> BTreeMap<WorkerId, usize> {
        let lost = name(lost);
        let mut shares: BTreeMap<_, _> =
            self.shares().into_iter().map(|(worker, (primaries, _))| (worker, primaries)).collect();
        for entry in self.shards.iter().filter_map(|shard| shard.entry.as_ref()) {
            if entry.primary().incarnation.worker.node == lost {
                let next = &entry.members()[1].incarnation.worker;
                *shares.get_mut(next).expect("a worker") += 1;
            }
        }
        shares.retain(|worker, _| worker.node != lost);
        shares
    }
}
