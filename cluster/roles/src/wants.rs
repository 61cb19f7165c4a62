//! Results of a worker's roles: commands, changes of entries, routes.

use std::collections::BTreeMap;

use crate::role::Role;
use weir_map::{ShardId, Transition};

use super::directory::number_of;
use super::duties::{self, Others};
use super::output::{EntryChange, SetBack, WantedRoute};
use super::shard_role::{RouteState, ShardRole, TablesState};
use super::worker::{RolesShared, WorkerRoles};
use weir_replication::command::{ShardDuties, WorkerCommand};

impl WorkerRoles {
    pub(super) fn renew_all(&mut self, shared: &RolesShared) {
        for shard in self.roles.keys().copied().collect::<Vec<_>>() {
            self.renew(shared, shard);
        }
    }

    /// Renews commands and wanted changes as they follow from the role now: only differences are
    /// sent.
    pub(super) fn renew(&mut self, shared: &RolesShared, shard: ShardId) {
        let Some(role) = self.roles.get_mut(&shard) else { return };
        if role.tables != TablesState::There {
            return;
        }
        let others = Others::of(shared, &self.peers);
        let needed = duties::peers_needed(&role.machine, others);
        for &peer in needed.iter().filter(|peer| !role.peers.contains(peer)) {
            let node = shared.directory.worker_at(peer).map(|id| number_of(&id.node));
            self.peers.hold(peer, node, shared.now_ms, &mut self.commands);
        }
        for &peer in role.peers.iter().filter(|peer| !needed.contains(peer)) {
            self.peers.release(peer, shared.now_ms);
        }
        role.peers = needed;
        let route = role.wanted_route(self.held_off.contains(&shard));
        if route != role.route {
            self.routes_number += 1;
            if route.map(|it| it.metric) != role.route.map(|it| it.metric) {
                role.route_number = self.routes_number;
            }
            role.route = route;
        }
        let is_route_out = self.routes_out >= role.route_number;
        let others = Others::of(shared, &self.peers);
        let duties = duties::of(shard, &role.machine, is_route_out, others);
        if role.ordered.as_ref().unwrap_or(&ShardDuties::none(shard)) != &duties {
            self.commands.push_back(WorkerCommand::Duties(Box::new(duties.clone())));
            role.ordered = Some(duties);
        }
        if role.machine.duties().write.is_some() {
            self.changing.insert(shard);
        } else {
            self.changing.remove(&shard);
        }
        if !is_route_out && matches!(role.role(), Role::Primary | Role::None) {
            self.unannounced.insert(shard);
        } else {
            self.unannounced.remove(&shard);
        }
        if role.role() == Role::None
            && !role.is_member()
            && is_route_out
            && !role.entry_write.is_out()
        {
            let is_written = role.ordered.as_ref().is_some_and(|ordered| !ordered.lanes.is_empty());
            assert!(!is_written, "shard {shard}: no lane of tables to be removed is written");
            role.tables = TablesState::Going;
            self.commands.push_back(WorkerCommand::RemoveShard(shard));
        }
    }

    pub(super) fn routes_out(&mut self, shared: &RolesShared, number: u64) {
        self.routes_out = self.routes_out.max(number.min(self.routes_number));
        for shard in std::mem::take(&mut self.unannounced) {
            self.renew(shared, shard);
        }
    }

    /// Adds changes that shard roles want to a list, up to `max`, of shards that are not in doubt.
    pub(super) fn take_changes(
        &mut self,
        shared: &mut RolesShared,
        in_doubt: &BTreeMap<ShardId, SetBack>,
        changes: &mut Vec<EntryChange>,
        max: usize,
    ) {
        for &shard in self.changing.iter().filter(|shard| !in_doubt.contains_key(shard)) {
            if changes.len() >= max {
                return;
            }
            let Some(role) = self.roles.get_mut(&shard) else { continue };
            let Some(at) = role.machine.entry().map(|entry| entry.epoch()) else { continue };
            let Some(wanted) = &role.machine.duties().write else { continue };
            // The worker has resumed without the store. The entry may name it once the record does.
            let is_known = shared.is_registered && shared.entries.contains_key(&shard);
            if role.machine.has_resumed() && !is_known {
                continue;
            }
            // The copy was complete, but what it holds of a lane whose stream is lost may be about
            // to go.
            if matches!(wanted, Transition::Synced(_)) && role.lost_ms.is_some() {
                continue;
            }
            if role.entry_write.take(shared.now_ms, at, wanted, &shared.options) {
                changes.push(EntryChange { shard, at, transition: wanted.clone() });
                shared.counters.changes_total += 1;
            }
        }
    }

    /// Ends the wait for a change that this worker had wanted. Returns false if it had wanted none.
    pub(super) fn written(&mut self, shared: &RolesShared, shard: ShardId) -> bool {
        let Some(role) = self.roles.get_mut(&shard).filter(|role| role.entry_write.is_out()) else {
            return false;
        };
        role.entry_write.answered(shared.now_ms, &shared.options);
        self.renew(shared, shard);
        true
    }

    pub(super) fn wanted_routes(&self) -> Vec<WantedRoute> {
        let routes = self.roles.values().filter_map(|role| {
            let route = role.route?;
            let shard = role.shard.clone()?;
            let RouteState { metric, is_last_copy, is_held_off } = route;
            Some(WantedRoute { shard, metric, is_last_copy, is_held_off })
        });
        routes.collect()
    }

    /// True if nothing is under way: neither tables, nor a copy, nor a lane, nor a route.
    pub(super) fn has_settled(&self) -> bool {
        let is_at_rest = |role: &ShardRole| {
            let is_moving = role.machine.entry().is_none_or(|entry| entry.is_moving());
            match role.role() {
                _ if role.tables != TablesState::There || is_moving => false,
                Role::Primary => true,
                Role::Synced => !role.keeps_former_route(),
                _ => false,
            }
        };
        let is_idle = self.changing.is_empty() && self.routes_out == self.routes_number;
        is_idle && self.roles.values().all(is_at_rest)
    }
}
