//! A worker's claims must be true when it makes them: a worker that announces a shard has a full
//! copy of it according to the map, and a worker that calls its copy full holds in it every mapping
//! that all copies held when the cluster was whole, as far as all other full copies still do.

use std::net::IpAddr;

use weir_engine::Side;
use weir_map::{Incarnation, Member, MemberState, Rank, ShardEntry, ShardId};

use super::World;
use super::checks::Table;
use crate::node::RouteOrder;
use crate::site::{self, WorkerPosition};

impl World {
    /// Checks a list of routes for the guard: by the entry that its worker follows, the worker is
    /// the primary of each shard in it, a replica with a full copy, or no member.
    pub(super) fn check_routes(&mut self, node: usize, order: &RouteOrder) {
        let Some(process) = &self.nodes[node].process else { return };
        let worker = order.worker;
        let boot = process.boots[worker];
        let is_announced = |shard: ShardId| {
            let mut routes =
                order.routes.iter().filter(|route| route.side as usize == Side::Access as usize);
            routes.any(|route| route.prefix.addr() == IpAddr::from(site::endpoint(shard.0)))
        };
        let statuses = process.core.roles().statuses().filter(|status| status.worker == worker);
        let wrong = statuses.filter(|status| is_announced(status.shard)).find_map(|status| {
            let mut members = (0..).map(Rank).zip(status.entry?.members());
            let (rank, me) = members.find(|(_, it)| it.incarnation.boot_id == boot)?;
            let has_copy = rank == Rank::PRIMARY || me.state == MemberState::Synced;
            (!has_copy).then_some(status.shard)
        });
        if let Some(shard) = wrong {
            self.fail(format!(
                "n{node}/{worker} announces shard {shard} without a full copy of it"
            ));
        }
    }

    /// Checks an entry that a node wants to write, in which a worker of it may have called itself
    /// synced.
    pub(super) fn check_synced(&mut self, node: usize, shard: ShardId, wanted: &ShardEntry) {
        self.control.read();
        let Some(entry) = self.control.entries().get(&shard) else { return };
        let is_synced = |member: &&Member| {
            let is_other = |it: &Member| it.incarnation == member.incarnation;
            let before = entry.members().iter().find(|it| is_other(it)).map(|it| it.state);
            let is_here = member.incarnation.worker.node == self.nodes[node].name;
            is_here && member.state == MemberState::Synced && before == Some(MemberState::Syncing)
        };
        let Some(who) = wanted.members().iter().find(is_synced) else { return };
        let who = &who.incarnation;
        let is_other_copy =
            |member: &&Member| member.state == MemberState::Synced && member.incarnation != *who;
        let copies = entry.members().iter().filter(is_other_copy);
        let copies: Vec<Table> = copies
            .filter_map(|member| Some(self.table(self.position_of(&member.incarnation)?)))
            .collect();
        if copies.is_empty() {
            return;
        }
        let mine = self.table(WorkerPosition { node, worker: usize::from(who.worker.index) });
        let lacking = self.traffic.sockets.iter().find(|socket| {
            let inside = socket.key();
            let has = |table: &Table, public| {
                table.get(&inside).is_some_and(|publics| publics.contains(&public))
            };
            let known = socket.known.filter(|_| socket.shard == shard.0);
            known.is_some_and(|public| {
                !has(&mine, public) && copies.iter().all(|copy| has(copy, public))
            })
        });
        if let Some(socket) = lacking {
            let public = socket.known;
            let lacking = format!("{socket}, which has {public:?}");
            self.fail(format!("{who} calls its copy of shard {shard} full without {lacking}"));
        }
    }

    /// Returns where this incarnation of a worker runs; `None` if it has ended.
    pub(super) fn position_of(&self, who: &Incarnation) -> Option<WorkerPosition> {
        let worker = usize::from(who.worker.index);
        let node = self.nodes.iter().position(|node| node.name == who.worker.node)?;
        let process = self.nodes[node].process.as_ref()?;
        (process.boots.get(worker) == Some(&who.boot_id)).then_some(WorkerPosition { node, worker })
    }
}
