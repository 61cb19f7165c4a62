//! The state of a node's roles, for the controller and for people.

use crate::role::Role;
use weir_map::ShardId;

use super::Roles;
use super::output::{RolesReport, ShardRoleStatus, Trouble};
use super::shard_role::{ShardRole, TablesState};
use super::worker::RolesShared;

impl Roles {
    /// Returns the node's answer to the controller; `load` is called for each shard that a worker,
    /// by its index, is primary of.
    pub fn report(&self, load: impl Fn(usize, ShardId) -> u64) -> RolesReport {
        let mut report = RolesReport::default();
        for (peer, has_heartbeat) in self.workers.iter().flat_map(|worker| worker.peers.hears()) {
            let Some(id) = self.shared.directory.worker_at(peer) else { continue };
            if id.node != self.node {
                *report.hears.entry(id.node.clone()).or_default() |= has_heartbeat;
            }
        }
        for (worker, shard, role) in self.roles() {
            // A member that was gone before this node began is no worker's peer, and not heard
            // either.
            let members = role.machine.entry().into_iter().flat_map(|entry| entry.members());
            let nodes = members.map(|member| &member.incarnation.worker.node);
            for node in nodes.filter(|node| **node != self.node) {
                report.hears.entry(node.clone()).or_default();
            }
            match (role.role(), role.machine.entry()) {
                (Role::Primary, _) => report.loads.push((shard, load(worker, shard))),
                (Role::Acting, Some(entry)) => {
                    let me = role.machine.incarnation().clone();
                    report.acting.push((shard, me, entry.term()));
                }
                _ => {}
            }
        }
        report
    }

    /// Returns the state of every shard role of this node, by worker.
    pub fn statuses(&self) -> impl Iterator<Item = ShardRoleStatus<'_>> {
        self.roles().map(|(worker, shard, role)| ShardRoleStatus {
            shard,
            worker,
            role: role.role(),
            since_ms: role.since_ms,
            entry: role.machine.stored_entry(),
            metric: role.route.map(|route| route.metric),
            is_route_out: self.workers[worker].routes_out >= role.route_number,
            trouble: self.trouble(shard, role),
        })
    }

    fn trouble(&self, shard: ShardId, role: &ShardRole) -> Option<Trouble> {
        let desired = self.shared.desired.get(&shard);
        if let Some(set_back) = self.set_back.get(&shard) {
            return Some(Trouble::SetBack(*set_back));
        }
        if let TablesState::Missing { refused, .. } = &role.tables {
            let Some(why) = refused else {
                return desired.is_none().then_some(Trouble::NotDesired);
            };
            return Some(Trouble::NoRoom(why.clone()));
        }
        match (desired, &role.shard) {
            _ if self.entry_gone.contains(&shard) => Some(Trouble::EntryGone),
            (None, _) => Some(Trouble::NotDesired),
            _ if role.machine.is_guest() => {
                let RolesShared { now_ms, options, .. } = &self.shared;
                let left_ms = role.comeback.left_ms(*now_ms, options.quarantine_ms);
                let resumes = |ms: u64| Trouble::Resumes { in_sec: ms.div_ceil(1000) };
                Some(left_ms.map_or(Trouble::Guest, resumes))
            }
            (Some(now), Some(then)) if !now.is_like(then) => Some(Trouble::OldSetup),
            _ => None,
        }
    }
}
