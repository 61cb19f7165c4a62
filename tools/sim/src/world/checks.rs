//! The invariants, and the conditions that must hold again when all faults are mended.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};

use weir_map::{LANES, MemberState, ShardEntry, ShardId};
use weir_nat::{PageCursor, Protocol, SessionFilter};

use super::losses::LossWatch;
use super::tally::removals;
use super::{Event, World};
use crate::fault::Fault;
use crate::site::{self, WorkerPosition};
use crate::traffic::{Inside, Traffic};

/// Time between two looks at the writers of lanes.
const LOOK_US: u64 = 20_000;
/// A map that has not changed for so long is final: longer than the controllers take to trust a
/// node again that was cut off, and then to balance.
const REST_US: u64 = 12_000_000;
/// All tables are checked at every so many looks.
const TABLES_EVERY: u64 = 25;

/// The state kept between two looks.
#[derive(Debug, Default)]
pub(super) struct Checks {
    looks: u64,
    /// True if a packet left in a way that calls for a check of the tables.
    pub(super) is_suspicious: bool,
    /// True if the cluster was whole at the last look.
    pub(super) is_whole: bool,
    /// Time of the map's last change.
    changed_us: u64,
    entries: BTreeMap<ShardId, ShardEntry>,
    /// Inside endpoints with duplicate mappings at the last check of the tables.
    pub(super) doubled: u64,
    /// True if etcd was set back, and the cluster has not been whole since.
    pub(super) is_set_back: bool,
    /// Number of failures since the cluster was last whole.
    failures: u32,
    /// A watch for lost packets, while a whole cluster is disturbed in a way that must lose none
    /// and nothing else has failed.
    pub(super) losses: Option<LossWatch>,
    /// The map when the calm began.
    calm_entries: BTreeMap<ShardId, ShardEntry>,
    /// Number of commands that all workers had received when the calm began.
    calm_orders: u64,
}

/// The public endpoints of each inside endpoint.
pub(super) type Table = BTreeMap<Inside, Vec<SocketAddr>>;
/// Tables by worker.
pub(super) type Tables = BTreeMap<WorkerPosition, Table>;

impl Checks {
    /// Counts a fault: flows need not survive more than one failure at a time. Returns whether it
    /// is the only one.
    pub(super) fn strike(&mut self, fault: &Fault, traffic: &mut Traffic) -> bool {
        if fault.is_weather() {
            // Bad and slow links lose packets, whether a node hands over or not.
            if !matches!(fault, Fault::Apply { .. }) {
                self.losses = None;
            }
            return false;
        }
        self.failures += 1;
        self.losses = None;
        self.is_set_back |= matches!(fault, Fault::Restore { .. });
        let is_only = self.failures == 1 && self.is_whole;
        // The power loss of a whole site loses all copies.
        if !is_only || matches!(fault, Fault::Site { .. }) {
            traffic.unprotect();
        }
        self.is_whole = false;
        is_only
    }
}

/// Formats the entry in one line: members with member slot, state and marks, lanes with owner and
/// move.
pub(super) fn show_entry(entry: &ShardEntry) -> String {
    let mut text = format!("epoch {} term {}", entry.epoch(), entry.term());
    for member in entry.members() {
        let state = match member.state {
            MemberState::Syncing => "syncing",
            MemberState::Synced => "synced",
            MemberState::OutOfSync => "out-of-sync",
        };
        let marks = [(member.is_yielding, " yielding"), (member.is_leaving, " leaving")];
        let marks: String = marks.iter().filter(|mark| mark.0).map(|mark| mark.1).collect();
        let boot = member.incarnation.boot_id.0 >> 112;
        let (worker, slot) = (&member.incarnation.worker, member.slot.lane());
        let _ = write!(text, " | {slot}: {worker} ({boot:04x}) {state}{marks}");
    }
    text.push_str(" | lanes");
    for lane in entry.lanes() {
        let _ = write!(text, " {}", lane.owner.lane());
        if let Some(moving) = lane.moving {
            let _ = write!(text, "<{}@{}", moving.from.lane(), moving.since);
        }
    }
    text
}

/// True if no table has a duplicate mapping of the inside endpoint. After a failure either of two
/// may survive, until one of them has ended.
pub(super) fn has_one_mapping<'a>(
    tables: impl IntoIterator<Item = &'a Table>,
    inside: Inside,
) -> bool {
    let mut publics = tables.into_iter().filter_map(|table| table.get(&inside));
    publics.all(|publics| publics.len() == 1)
}

impl World {
    pub(super) fn check(&mut self) {
        self.queue.push(self.now_us + LOOK_US, Event::Check);
        self.checks.looks += 1;
        self.look_at_map();
        self.check_writers();
        self.tally_roles();
        self.check_deaf();
        self.look_at_late_packets(!self.is_under_fault());
        if self.checks.is_suspicious || self.checks.looks.is_multiple_of(TABLES_EVERY) {
            self.checks.is_suspicious = false;
            self.check_tables();
        }
    }

    fn look_at_map(&mut self) {
        if let Err(wrong) = self.control.look() {
            self.fail(wrong);
        }
        if self.checks.entries != *self.control.entries() {
            let removals = removals(&self.checks.entries, self.control.entries());
            self.tally.counts.removals += removals;
            self.checks.entries.clone_from(self.control.entries());
            self.checks.changed_us = self.now_us;
        }
    }

    /// Returns the positions of all workers whose processes run.
    pub(super) fn positions(&self) -> Vec<WorkerPosition> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.process.is_some());
        let workers = self.options.workers_per_node;
        nodes
            .flat_map(|(node, _)| (0..workers).map(move |worker| WorkerPosition { node, worker }))
            .collect()
    }

    pub(super) fn worker(&self, position: WorkerPosition) -> &crate::node::Worker {
        let process = self.nodes[position.node].process.as_ref().expect("the node's process runs");
        &process.workers[position.worker]
    }

    /// Checks that no lane has two writers, or one that the map does not name.
    fn check_writers(&mut self) {
        let mut writers: BTreeMap<(u32, usize), WorkerPosition> = BTreeMap::new();
        let mut wrong = None;
        for position in self.positions() {
            let worker = self.worker(position);
            for shard in self.shards() {
                let Some(index) = worker.replication().index_of(shard) else { continue };
                let owned = worker.engine().nat().replica().owned_lanes(index);
                for lane in (0..LANES).filter(|lane| owned >> lane & 1 == 1) {
                    if !self.may_write(position, shard, lane) {
                        let WorkerPosition { node, worker } = position;
                        let named = "though the map gives it to others";
                        wrong = Some(format!(
                            "n{node}/{worker} writes lane {lane} of shard {shard}, {named}"
                        ));
                    }
                    if let Some(other) = writers.insert((shard.0, lane), position) {
                        wrong = Some(format!(
                            "lane {lane} of shard {shard} is written by n{}/{} and n{}/{}",
                            other.node, other.worker, position.node, position.worker
                        ));
                    }
                }
            }
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
        self.check_grants(&writers);
    }

    /// Whether the map names this incarnation of a worker, or the one whose member slot it has
    /// resumed, as the owner of a lane or as the one that gives it away. If the map was set back,
    /// this is not known until the cluster is whole again.
    fn may_write(&self, position: WorkerPosition, shard: ShardId, lane: usize) -> bool {
        let Some(entry) = self.checks.entries.get(&shard) else { return true };
        let process = self.nodes[position.node].process.as_ref();
        let boot = process.map(|process| process.boots[position.worker]);
        // If all members have come back without etcd, the entry names their former incarnations
        // until etcd is back.
        let resumes = process.filter(|process| process.core.roles().is_resuming());
        let former = resumes.and_then(|process| process.formers[position.worker]);
        let is_here = |slot| {
            let named = entry.at_slot(slot).map(|member| member.incarnation.boot_id);
            named == boot || named.is_some() && named == former
        };
        let lane = entry.lanes()[lane];
        self.checks.is_set_back
            || is_here(lane.owner)
            || lane.moving.is_some_and(|moving| is_here(moving.from))
    }

    /// Returns the sessions in a worker's table, each by its owner and with its public endpoint.
    fn sessions(&self, position: WorkerPosition) -> Vec<(Inside, SocketAddr)> {
        let (mut cursor, mut all) = (PageCursor::default(), Vec::new());
        let nat = self.worker(position).engine().nat().admin();
        while nat.sessions(&mut cursor, usize::MAX, &SessionFilter::default(), &mut all) {}
        all.iter().map(|session| self.traffic.inside_of(session)).collect()
    }

    pub(super) fn table(&self, position: WorkerPosition) -> Table {
        let mut table = Table::new();
        for (inside, public) in self.sessions(position) {
            let publics = table.entry(inside).or_default();
            if !publics.contains(&public) {
                publics.push(public);
            }
        }
        table
    }

    /// Checks that no two inside endpoints hold one public endpoint, except in copies that were
    /// deaf while a port rested; then checks whether the cluster is whole.
    fn check_tables(&mut self) {
        self.traffic.let_go_of_silent(self.now_us);
        let mut holders: BTreeMap<(SocketAddr, Protocol), (Inside, WorkerPosition)> =
            BTreeMap::new();
        let mut doubled = 0;
        let mut tables: Tables = BTreeMap::new();
        for position in self.positions() {
            let table = tables.entry(position).or_default();
            for (inside, public) in self.sessions(position) {
                let publics = table.entry(inside).or_default();
                if !publics.contains(&public) {
                    publics.push(public);
                    doubled += u64::from(publics.len() > 1);
                }
                let protocol = inside.2;
                let held = holders.insert((public, protocol), (inside, position));
                let may_be_late = |inside| self.traffic.is_silent(inside, self.now_us);
                let held = held.filter(|(other, _)| *other != inside);
                let held = held.filter(|(other, _)| !may_be_late(*other) && !may_be_late(inside));
                if let Some((other, at)) = held {
                    return self.fail(format!(
                        "{protocol:?} {public} is held by {} of {} on n{}/{} and by {} of {} on n{}/{}",
                        other.1,
                        Ipv4Addr::from_bits(other.0),
                        at.node,
                        at.worker,
                        inside.1,
                        Ipv4Addr::from_bits(inside.0),
                        position.node,
                        position.worker
                    ));
                }
            }
        }
        if doubled > self.checks.doubled {
            self.timeline
                .add(self.now_us, || format!("{doubled} inside endpoints have two mappings"));
        }
        self.checks.doubled = doubled;
        self.check_left();
        self.check_prefixes(&tables);
        self.look_at_wholeness(&tables);
    }

    fn look_at_wholeness(&mut self, tables: &Tables) {
        if self.is_under_fault() || self.why_not_whole().is_some() {
            self.checks.is_whole = false;
            return;
        }
        let members = self.member_positions();
        let holds = |shard: u32, inside: Inside, public: SocketAddr| {
            let positions = members.get(&shard).map(Vec::as_slice).unwrap_or_default();
            let has = |position: &WorkerPosition| {
                let publics = tables.get(position).and_then(|table| table.get(&inside));
                publics.is_some_and(|publics| publics.contains(&public))
            };
            !positions.is_empty() && positions.iter().all(has)
        };
        // A mapping that was protected through a failure must be everywhere again.
        let lost = self.traffic.sockets.iter().find(|socket| {
            let inside = socket.key();
            socket.protected.is_some_and(|public| !holds(socket.shard, inside, public))
        });
        if let (Some(socket), true) = (lost, self.checks.is_whole) {
            let lost = format!("{socket} has lost its mapping {:?}", socket.protected);
            return self.fail(lost);
        }
        if !self.checks.is_whole {
            self.timeline.add(self.now_us, || "the cluster is whole".into());
        }
        self.checks.is_whole = true;
        (self.checks.failures, self.checks.is_set_back) = (0, false);
        let has_one = |inside| has_one_mapping(tables.values(), inside);
        let sockets = self.traffic.sockets.iter_mut();
        let doubled = sockets.filter(|socket| !has_one(socket.key()));
        doubled.for_each(|socket| socket.protected = None);
        self.traffic.protect(self.now_us, |socket| {
            let inside = socket.key();
            let is_held = |public| holds(socket.shard, inside, public);
            has_one(inside) && socket.public.is_some_and(is_held)
        });
        for socket in &mut self.traffic.sockets {
            let inside = socket.key();
            if let Some(left) =
                socket.left.as_mut().filter(|it| holds(socket.shard, inside, it.public))
            {
                left.known_us = Some(self.now_us);
            }
        }
    }

    /// Returns the workers that the map names, by shard.
    fn member_positions(&self) -> BTreeMap<u32, Vec<WorkerPosition>> {
        let entries = self.control.entries();
        let positions = entries.iter().map(|(shard, entry)| {
            let positions = entry.members().iter().filter_map(|member| {
                let id = &member.incarnation.worker;
                let node = self.nodes.iter().position(|node| node.name == id.node)?;
                Some(WorkerPosition { node, worker: usize::from(id.index) })
            });
            (shard.0, positions.collect())
        });
        positions.collect()
    }

    /// Returns why the cluster is not whole and at rest; `None` if it is.
    pub(crate) fn why_not_whole(&self) -> Option<String> {
        let entries = self.control.entries();
        for node in &self.nodes {
            let name = &node.name;
            let Some(process) = &node.process else { return Some(format!("{name} does not run")) };
            if !process.core.roles().has_settled() {
                return Some(format!("{name} has not settled"));
            }
            let number = self.control.settings_number();
            if process.workers.iter().any(|worker| worker.generation() != number) {
                return Some(format!("{name} has not taken the settings of revision {number}"));
            }
        }
        for shard in self.shards() {
            let Some(entry) = entries.get(&shard) else {
                return Some(format!("shard {shard} has no entry"));
            };
            if let Some(why) = self.why_not_whole_in(shard.0, entry) {
                return Some(format!("shard {shard}: {why}: {}", show_entry(entry)));
            }
        }
        None
    }

    fn why_not_whole_in(&self, shard: u32, entry: &ShardEntry) -> Option<String> {
        let wanted = self.nodes.len().min(1 + usize::from(self.options.replicas));
        if entry.members().len() != wanted {
            return Some(format!("{wanted} members wanted"));
        }
        if entry.is_moving() {
            return Some("a lane moves".into());
        }
        for member in entry.members() {
            let id = &member.incarnation.worker;
            if member.state != MemberState::Synced {
                return Some(format!("{id} is not synced"));
            }
            if member.is_yielding {
                return Some(format!("{id} is to leave, and nobody came in its place"));
            }
            let node = self.nodes.iter().find(|node| node.name == id.node)?;
            let boots = node.process.as_ref().map(|process| &process.boots[..]).unwrap_or_default();
            if boots.get(usize::from(id.index)) != Some(&member.incarnation.boot_id) {
                return Some(format!("{} is no life that goes on", member.incarnation));
            }
        }
        let primary = &entry.primary().incarnation.worker;
        let node = self.nodes.iter().position(|node| node.name == primary.node)?;
        let position = Some(WorkerPosition { node, worker: usize::from(primary.index) });
        for (side, to) in site::routed(shard) {
            let hop = self.switches[side as usize].next_hop(to);
            if hop != position {
                return Some(format!("the {} switch leads {to} to {hop:?}", side.name()));
            }
        }
        None
    }

    /// Lets every table check itself: nothing is counted twice, and no port leaks.
    fn audit(&mut self) {
        for position in self.positions() {
            self.worker(position).engine().nat().admin().audit();
        }
        self.check_tables();
    }

    /// Begins the rest after the last fault, whose consequences may still follow.
    pub(crate) fn begin_rest(&mut self) {
        self.checks.changed_us = self.now_us;
    }

    /// Begins the calm, in which nothing may be lost or moved.
    pub(crate) fn begin_calm(&mut self) {
        self.control.read();
        self.traffic.begin_calm();
        self.checks.calm_entries = self.control.entries().clone();
        self.checks.calm_orders = self.orders();
    }

    /// Returns the number of commands that all workers have received.
    fn orders(&self) -> u64 {
        self.positions().into_iter().map(|position| self.worker(position).orders_total).sum()
    }

    /// Checks at the end of the calm that nothing was lost or moved.
    pub(crate) fn end_calm(&mut self) {
        let is_lossless = self.options.loss_ppm == 0;
        if let Some(lost) = self.traffic.lost_in_calm(is_lossless) {
            self.fail(format!("without a fault {lost}"));
        }
        if *self.control.entries() != self.checks.calm_entries {
            self.fail("without a fault the map has changed".into());
        }
        // A replica that misses several heartbeats in a row writes flows itself for a moment.
        if is_lossless && self.orders() != self.checks.calm_orders {
            self.fail("without a fault workers have got orders".into());
        }
        if let Some(unwritten) = self.unwritten_lane() {
            self.fail(unwritten);
        }
        self.audit();
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.checks.is_whole
    }

    /// True if the cluster is whole, and the map has not changed for so long that no balancing is
    /// left.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.checks.is_whole && self.now_us >= self.checks.changed_us + REST_US
    }
}
