//! Output commit, checked from outside: a mapping that a leaving packet shows is on as many copies
//! as packets wait for, so only more deaths than that lose it; and no packet waits longer than it
//! may.
//!
//! ```text
//!   a frame leaves --> is it the first that shows a mapping, or its session in this state?
//!                      --> enough other nodes know it
//!   processes end  --> at most as many as packets wait for, since then?
//!                      --> some node still knows the mapping
//! ```
//!
//! Copies are counted only for changes that the worker made itself, and whose copies it waited for:
//! - A worker did not make a change that it received from another one, with the lane or as a copy,
//!   nor one that it has not seen: packets of one connection may take two paths. So the check
//!   covers the owner of the lane, for changes since it took the lane, as far as its own table has
//!   them; and, for a connection that packets have shown before, only the worker that sent the
//!   packet which showed the previous change.
//! - A worker may give up waiting for a change: its time was over, too much waited, or too few
//!   copies were present. Workers count such cases and do not report the change. Changes before the
//!   last such case are not checked. A strict worker ends a mapping that it began in such a case,
//!   so the beginning of a mapping is always checked; a mere change of state is not taken back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use weir_engine::{DropReason, EarlyRelease, Side};
use weir_map::{LANES, ShardId};
use weir_nat::{Endpoint, PageCursor, SessionFilter};
use weir_wire::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::frame::{Frame, VecFrame};

use super::World;
use super::checks::{Table, has_one_mapping};
use crate::node::Worker;
use crate::options::Commit;
use crate::site::{self, Station, WorkerPosition};
use crate::traffic::{Flow, Inside, Left, Progress, Shown, Socket, Stage};

/// Time before now in which an ended replica may have acknowledged a packet that leaves now: longer
/// than a datagram is late.
const LATE_US: u64 = 25_000;

/// The state kept of all workers.
#[derive(Debug, Default)]
pub(super) struct Commits {
    workers: BTreeMap<WorkerPosition, Watched>,
    /// The processes that ended, in order.
    ended: Vec<Ended>,
}

/// A process that ended, and the mappings that it held.
#[derive(Debug)]
struct Ended {
    at_us: u64,
    node: usize,
    known: BTreeSet<(Inside, SocketAddr)>,
}

/// The state kept of one incarnation of a worker.
#[derive(Debug, Default)]
struct Watched {
    life: u64,
    /// Time since which it writes each lane, by shard; `None` if it does not.
    owned_us: BTreeMap<u32, [Option<u64>; LANES]>,
    /// Number of packets and changes that it did not wait for, and the time of the last one.
    given_up: u64,
    gave_up_us: u64,
    /// For turns in which packets began to wait: its clock in milliseconds, and the total of
    /// packets that had waited by then.
    waited: VecDeque<(u64, u64)>,
}

impl Commits {
    /// Notes the end of a process, and the mappings that are gone with it.
    pub(super) fn lose(&mut self, at_us: u64, node: usize, tables: Vec<Table>) {
        let mappings = tables.into_iter().flatten();
        let known =
            mappings.flat_map(|(inside, publics)| publics.into_iter().map(move |it| (inside, it)));
        self.ended.push(Ended { at_us, node, known: known.collect() });
    }

    fn ended_since(&self, since_us: u64) -> impl Iterator<Item = &Ended> {
        self.ended.iter().rev().take_while(move |ended| ended.at_us > since_us)
    }

    fn losses_since(&self, since_us: u64) -> usize {
        self.ended_since(since_us).count()
    }

    /// Returns how many replicas may have acknowledged a mapping that leaves now, and ended: just
    /// now, or at a time when they held the mapping and its first packet was lost on its way.
    fn ended_with(&self, mapping: (Inside, SocketAddr), began_us: u64, now_us: u64) -> usize {
        let late_us = now_us.saturating_sub(LATE_US);
        let had_it = |ended: &&Ended| ended.at_us > late_us || ended.known.contains(&mapping);
        self.ended_since(began_us.min(late_us)).filter(had_it).count()
    }
}

impl Watched {
    /// Notes the state at the end of a turn.
    fn note(&mut self, now_us: u64, worker: &Worker, shards: impl Iterator<Item = ShardId>) {
        let nat = worker.engine().nat();
        for shard in shards {
            let index = worker.replication().index_of(shard);
            let owned = index.map_or(0, |index| nat.replica().owned_lanes(index));
            let since = self.owned_us.entry(shard.0).or_default();
            for (lane, since_us) in since.iter_mut().enumerate() {
                *since_us = (owned >> lane & 1 == 1).then_some(since_us.unwrap_or(now_us));
            }
        }
        let replication = worker.replication().status(now_us).counters;
        let early =
            EarlyRelease::ALL.iter().map(|&why| worker.engine().admin().counters().early(why));
        let late = [DropReason::CommitTimeout, DropReason::CommitLimit, DropReason::TooFewReplicas];
        let dropped = late.iter().map(|&why| worker.engine().admin().counters().dropped(why));
        let given_up = early.chain(dropped).sum::<u64>()
            + nat.admin().commits_alone()
            + replication.changes_degraded_total
            + replication.changes_untracked_total;
        if std::mem::replace(&mut self.given_up, given_up) != given_up {
            self.gave_up_us = now_us;
        }
    }

    /// Returns what is wrong with the waiting packets after a turn at this time of its clock.
    fn too_late(&mut self, clock_ms: u64, worker: &Worker, commit: &Commit) -> Option<String> {
        let (held, waited) = (worker.engine().held(), worker.engine().admin().counters().held());
        if held > commit.held_max {
            return Some(format!("holds {held} packets, not {}", commit.held_max));
        }
        let before = self.waited.back().map_or(0, |(_, waited)| *waited);
        if waited > before {
            self.waited.push_back((clock_ms, waited));
        }
        // Packets may leave before others that came earlier: then a late one is only noticed later.
        let gone = waited - held as u64;
        while self.waited.front().is_some_and(|(_, waited)| *waited <= gone) {
            self.waited.pop_front();
        }
        let (since_ms, _) = *self.waited.front()?;
        let for_ms = clock_ms - since_ms;
        (for_ms > commit.timeout_ms.into())
            .then(|| format!("holds a packet for {for_ms} ms, not {}", commit.timeout_ms))
    }
}

impl World {
    /// Checks the frames that leave a worker at the end of its turn.
    pub(super) fn check_commit(&mut self, position: WorkerPosition, frames: &[(Side, VecFrame)]) {
        let Some(commit) = self.options.commit else { return };
        let mut watched = self.commits.workers.remove(&position).unwrap_or_default();
        let node = &self.nodes[position.node];
        if watched.life != node.life {
            watched = Watched { life: node.life, ..Watched::default() };
        }
        let clock_ms = node.clock_ms(self.now_us);
        watched.note(self.now_us, self.worker(position), self.shards());
        for (side, frame) in frames {
            if let (Some(shown), None) = (self.shown(*side, frame), &self.violation) {
                self.check_shown(position, &watched, &commit, shown);
            }
        }
        let wrong = watched.too_late(clock_ms, self.worker(position), &commit);
        self.commits.workers.insert(position, watched);
        if let Some(wrong) = wrong {
            self.fail(format!("n{}/{} {wrong}", position.node, position.worker));
        }
    }

    /// Returns what a frame to a server or a home shows; `None` if it goes to another worker or
    /// belongs to no flow.
    fn shown(&self, side: Side, frame: &VecFrame) -> Option<Shown> {
        let bytes = frame.data();
        let to = site::station(ethernet::parse(bytes).ok()?.destination);
        let link = ethernet::parse_link(bytes).ok()?;
        if to != Station::Switch || ![ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&link.ethertype) {
            return None;
        }
        self.traffic.shown(&bytes[link.len..], side == Side::Internet)
    }

    /// Checks a packet that may be the first to show a mapping or state.
    fn check_shown(
        &mut self,
        position: WorkerPosition,
        watched: &Watched,
        commit: &Commit,
        shown: Shown,
    ) {
        let Shown { flow, public, progress } = shown;
        let number = self.traffic.flows[flow].socket;
        let socket = &self.traffic.sockets[number];
        let before = socket.left.filter(|left| left.public == public);
        if before.is_some_and(|left| left.progress >= progress) {
            return;
        }
        let (known_us, known_by) = before.map_or((None, 0), |left| (left.known_us, left.known_by));
        let mut left = Left { public, progress, at_us: self.now_us, position, known_us, known_by };
        let is_waited_for = self.is_waited_for(position, watched, commit, shown, before);
        let nodes = if is_waited_for { self.nodes_that_know(flow, &left) } else { BTreeSet::new() };
        if nodes.contains(&position.node) {
            let (copies, wanted) = (nodes.len() - 1, usize::from(commit.replicas));
            let inside = socket.key();
            let began_us = self.traffic.flows[flow].began_us;
            let ended = self.commits.ended_with((inside, public), began_us, self.now_us);
            if copies + ended < wanted {
                let WorkerPosition { node, worker } = position;
                let what = format!("as {public}, {progress:?}");
                let who = format!("not {wanted} replicas, but nodes {nodes:?} know that");
                return self.fail(format!("{socket} leaves n{node}/{worker} {what}, and {who}"));
            }
            if copies >= wanted {
                left.known_us = Some(self.now_us);
                left.known_by = nodes.iter().fold(0, |known, node| known | 1 << node);
            }
            self.traffic.counts.committed += 1;
        } else {
            // Up to the session's present state no copies were waited for; later changes are
            // checked.
            let reached = self.progress_at(position, flow, &left);
            left.progress = left.progress.max(reached.unwrap_or(progress));
            self.traffic.counts.uncommitted += 1;
        }
        self.traffic.sockets[number].left = Some(left);
    }

    /// Whether the worker made the change that a packet shows first, and did not give up waiting
    /// for its copies.
    fn is_waited_for(
        &self,
        position: WorkerPosition,
        watched: &Watched,
        commit: &Commit,
        shown: Shown,
        before: Option<Left>,
    ) -> bool {
        let flow = &self.traffic.flows[shown.flow];
        // The change may have been made while the packet before was held.
        let held_us = 1_000 * u64::from(commit.timeout_ms);
        let since_us = before.map_or(flow.began_us, |left| left.at_us.saturating_sub(held_us));
        let owned_us = watched.owned_us.get(&self.traffic.sockets[flow.socket].shard);
        let lanes = self.lanes_at(position, flow, shown.public);
        let is_owned = |lane: &usize| {
            let owned_us = owned_us.and_then(|owned_us| owned_us[*lane]);
            owned_us.is_some_and(|owned_us| owned_us <= since_us)
        };
        let is_its_own = !lanes.is_empty() && lanes.iter().all(is_owned);
        let begins = before.is_none();
        // It may show a change that another worker saw, and copied here while this packet was held.
        let is_alone = before.is_none_or(|left| left.position == position);
        is_its_own && is_alone && (watched.gave_up_us < since_us || (commit.is_strict && begins))
    }

    /// Returns how far the session of a flow with this public endpoint has come in the table of a
    /// worker; `None` if it is not there.
    fn progress_at(
        &self,
        position: WorkerPosition,
        number: usize,
        left: &Left,
    ) -> Option<Progress> {
        let flow = &self.traffic.flows[number];
        let IpAddr::V4(address) = left.public.ip() else {
            let records = self.records6(position, flow).into_iter();
            return records.map(|(_, state)| Progress::of_state(state)).max();
        };
        let (mut cursor, mut found) = (PageCursor::default(), Vec::new());
        let public = Endpoint::new(address.to_bits(), left.public.port());
        let filter = SessionFilter { public: Some(public.into()), ..SessionFilter::default() };
        // The first page is the mapping with its first session; the sockets have no other session.
        self.worker(position).engine().nat().admin().sessions(&mut cursor, 1, &filter, &mut found);
        let inside = self.traffic.sockets[flow.socket].key();
        let session = found.into_iter().find(|it| self.traffic.inside_of(it).0 == inside)?;
        Some(Progress::of_state(session.state))
    }

    fn nodes_that_know(&self, flow: usize, left: &Left) -> BTreeSet<usize> {
        let knows = |position: &WorkerPosition| {
            self.progress_at(*position, flow, left).is_some_and(|it| it >= left.progress)
        };
        self.positions().into_iter().filter(knows).map(|position| position.node).collect()
    }

    /// Protects the mappings that packets have shown: only deaths have happened, and no more than
    /// copies are waited for, since the cluster was whole.
    pub(super) fn protect_left(&mut self) {
        let tables: Vec<Table> =
            self.positions().into_iter().map(|position| self.table(position)).collect();
        for socket in &mut self.traffic.sockets {
            let has_one = has_one_mapping(&tables, socket.key());
            let left = socket.left.filter(|left| left.known_us.is_some() && has_one);
            socket.protected = socket.protected.or(left.map(|left| left.public));
        }
    }

    /// Returns how many nodes that knew a mapping continue, but are no longer members of its shard:
    /// its writer waited for them, and ended before it could learn of that.
    fn left_the_map(&self, socket: &Socket, left: &Left, known_us: u64) -> usize {
        let shard = ShardId(socket.shard);
        let positions = self.positions();
        let has_ended = |node| self.commits.ended_since(known_us).any(|ended| ended.node == node);
        let is_member = |node| {
            let mut of_node = positions.iter().filter(|position| position.node == node);
            of_node.any(|position| self.worker(*position).replication().index_of(shard).is_some())
        };
        let knew = (0..self.nodes.len()).filter(|node| left.known_by >> node & 1 == 1);
        knew.filter(|&node| !has_ended(node) && !is_member(node)).count()
    }

    /// Checks that a mapping which packets have shown is known to some node, unless more nodes have
    /// ended since than copies were waited for.
    pub(super) fn check_left(&mut self) {
        let Some(commit) = self.options.commit else { return };
        if self.checks.is_set_back {
            return;
        }
        let positions = self.positions();
        let is_lost = |(number, flow): (usize, &Flow)| {
            let socket = &self.traffic.sockets[flow.socket];
            let left = socket.left?;
            let known_us = left.known_us?;
            let losses = match self.commits.losses_since(known_us) {
                0 => 0,
                deaths => deaths + self.left_the_map(socket, &left, known_us),
            };
            let may_end = matches!(flow.stage, Stage::Closing | Stage::Over);
            let is_known =
                || positions.iter().any(|&it| self.progress_at(it, number, &left).is_some());
            let is_lost = losses <= commit.replicas.into() && !may_end && !is_known();
            is_lost.then(|| {
                format!("{socket} has left as {}, which nobody knows any more", left.public)
            })
        };
        if let Some(lost) = self.traffic.flows.iter().enumerate().find_map(is_lost) {
            self.fail(lost);
        }
    }
}
