//! One worker of the node: its roles in all shards, and the commands to it.
//!
//! A shard role lasts from the entry that names this incarnation of the worker until its tables are
//! gone again:
//!
//! ```text
//!   entry names us -> AddShard -> ShardAdded: role begins -> ... -> no role -> routes withdrawn
//!                       ^             |                                              |
//!                       +-- refused: later again     role ends <- ShardRemoved <- RemoveShard
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::role::{PortHealth, Role, RoleEvent, RoleMachine};
use weir_map::{BootId, Incarnation, NodeId, ShardEntry, ShardId};
use weir_stream::{PeerIndex, PeerSigns};

use super::comeback::PeerComeback;
use super::directory::Directory;
use super::duties::Others;
use super::input::{DesiredShard, RolesOptions, SidesUp};
use super::lost::PeerLook;
use super::output::RolesCounters;
use super::peers::{RolesPeers, Silence};
use super::shard_role::{ShardRole, TablesState};
use crate::hold_off::{HoldOff, OTHERS_SILENT_MS};
use weir_ids::PeerId;
use weir_replication::WorkerEvent;
use weir_replication::command::WorkerCommand;

/// The state that the shard roles of all workers share.
#[derive(Debug)]
pub(super) struct RolesShared {
    pub(super) now_ms: u64,
    /// Whether member slots may be resumed: the store has not been sent this process's record yet,
    /// which proves the end of former incarnations, except of those that it names.
    pub(super) may_resume: bool,
    /// Whether the store is heard, and everything that it has is known.
    pub(super) is_fresh: bool,
    /// Whether the store has had the node's record.
    pub(super) is_registered: bool,
    pub(super) options: RolesOptions,
    pub(super) directory: Directory,
    pub(super) desired: BTreeMap<ShardId, Arc<DesiredShard>>,
    /// The newest entry of each shard that is to be obeyed.
    pub(super) entries: BTreeMap<ShardId, ShardEntry>,
    /// Entries that were kept from before the start, while workers may be guests.
    pub(super) kept: BTreeMap<ShardId, ShardEntry>,
    /// Totals of all workers since the start.
    pub(super) counters: RolesCounters,
}

impl RolesShared {
    /// Returns the newest known entry of a shard, from the store or kept.
    fn newest(&self, shard: ShardId) -> Option<&ShardEntry> {
        let entries = [self.kept.get(&shard), self.entries.get(&shard)];
        entries.into_iter().flatten().max_by_key(|entry| entry.epoch())
    }
}

#[derive(Debug)]
pub(super) struct WorkerRoles {
    pub(super) me: Incarnation,
    /// The incarnation that the store was last sent.
    pub(super) former: Option<BootId>,
    pub(super) roles: BTreeMap<ShardId, ShardRole>,
    pub(super) peers: RolesPeers,
    pub(super) commands: VecDeque<WorkerCommand>,
    ports: PortHealth,
    pub(super) look: PeerLook,
    /// Number of changes of the wanted routes.
    pub(super) routes_number: u64,
    /// Number of the routes that are in the kernel.
    pub(super) routes_out: u64,
    /// Shards whose role waits for the next slot.
    restless: BTreeSet<ShardId>,
    /// Shards whose role has no tables.
    homeless: BTreeSet<ShardId>,
    /// Shards whose role wants to change the entry.
    pub(super) changing: BTreeSet<ShardId>,
    /// Shards whose role waits until its routes are out.
    pub(super) unannounced: BTreeSet<ShardId>,
    pub(super) hold_off: HoldOff,
    /// Shards whose routes are a last resort for as long, or until no other member with a copy is
    /// heard.
    pub(super) held_off: BTreeSet<ShardId>,
    rejoined_ms: u64,
    /// Reports to peers on shards whose members come back, and when they are looked at again.
    pub(super) comebacks: Vec<weir_stream::Comeback>,
    pub(super) comebacks_due_ms: u64,
}

impl WorkerRoles {
    pub(super) fn new(me: Incarnation, former: Option<BootId>) -> Self {
        Self {
            me,
            former,
            roles: BTreeMap::new(),
            peers: RolesPeers::default(),
            commands: VecDeque::new(),
            ports: PortHealth::NotReady,
            look: PeerLook::default(),
            routes_number: 0,
            routes_out: 0,
            restless: BTreeSet::new(),
            homeless: BTreeSet::new(),
            changing: BTreeSet::new(),
            unannounced: BTreeSet::new(),
            hold_off: HoldOff::default(),
            held_off: BTreeSet::new(),
            rejoined_ms: 0,
            comebacks: Vec::new(),
            comebacks_due_ms: 0,
        }
    }

    /// Applies the entry of a shard as it is obeyed now, or that it has none any more.
    pub(super) fn entry_changed(&mut self, shared: &mut RolesShared, shard: ShardId) {
        let entry = shared.newest(shard);
        let names_us = entry.is_some_and(|entry| self.is_named(entry));
        let names_host = |entry: &ShardEntry| match self.roles.get(&shard) {
            Some(role) => role.machine.may_follow(entry),
            None => entry.host_of(&self.me).is_some(),
        };
        let may_be_guest = !names_us && shared.kept.contains_key(&shard);
        let is_guest = may_be_guest && entry.is_some_and(names_host);
        let Some(role) = self.roles.get_mut(&shard) else {
            if names_us || is_guest {
                self.begin(shared, shard);
            }
            return;
        };
        match (&role.tables, entry) {
            (TablesState::There, _) if role.is_over => {}
            (TablesState::There, Some(entry)) if is_guest => {
                let event = RoleEvent::Guest(Box::new(entry.clone()));
                self.on_event(shared, shard, event);
            }
            (TablesState::There, Some(entry)) if role.machine.keeps_copies_under(entry) => {
                let event = RoleEvent::Entry(Box::new(entry.clone()));
                self.on_event(shared, shard, event);
            }
            (TablesState::There, Some(_)) => self.forget(shared, shard),
            (TablesState::There, None) => {
                role.machine = new_machine(&self.me, shared);
                self.introduce(shared, shard);
                self.renew(shared, shard);
            }
            (TablesState::Missing { .. }, _) if !names_us && !is_guest => self.end(shard),
            // The entry is looked at again when the worker has answered.
            (TablesState::Missing { .. } | TablesState::Asked | TablesState::Going, _) => {}
        }
    }

    /// Stops serving a shard and drops all that is kept of it: a later role in it begins with new
    /// tables.
    fn forget(&mut self, shared: &mut RolesShared, shard: ShardId) {
        let Some(role) = self.roles.get_mut(&shard) else { return };
        role.is_over = true;
        role.machine = new_machine(&self.me, shared);
        self.renew(shared, shard);
    }

    /// Makes guests forget what they have.
    pub(super) fn end_guests(&mut self, shared: &mut RolesShared) {
        self.forget_those(shared, |role| role.machine.is_guest());
    }

    /// Once the node's record names no former incarnation any more, no worker may go on with the
    /// member slot of one.
    pub(super) fn end_resumed(&mut self, shared: &mut RolesShared) {
        self.forget_those(shared, |role| role.machine.has_resumed());
    }

    fn forget_those(&mut self, shared: &mut RolesShared, is_one: impl Fn(&ShardRole) -> bool) {
        let roles = self.roles.iter().filter(|(_, role)| is_one(role));
        for shard in roles.map(|(&shard, _)| shard).collect::<Vec<_>>() {
            self.forget(shared, shard);
        }
    }

    fn is_named(&self, entry: &ShardEntry) -> bool {
        entry.member(&self.me).is_some()
    }

    fn begin(&mut self, shared: &RolesShared, shard: ShardId) {
        let role = ShardRole::new(new_machine(&self.me, shared), shared.now_ms);
        self.roles.insert(shard, role);
        self.homeless.insert(shard);
        self.ask_for_tables(shared);
    }

    fn end(&mut self, shard: ShardId) {
        self.roles.remove(&shard);
        self.held_off.remove(&shard);
        for set in
            [&mut self.restless, &mut self.homeless, &mut self.changing, &mut self.unannounced]
        {
            set.remove(&shard);
        }
    }

    /// Asks for tables for all roles whose shard is known and whose time has come.
    pub(super) fn ask_for_tables(&mut self, shared: &RolesShared) {
        let Self { homeless, roles, commands, .. } = self;
        homeless.retain(|id| {
            let Some(role) = roles.get_mut(id) else { return false };
            let TablesState::Missing { ask_ms, .. } = role.tables else { return false };
            let Some(shard) = shared.desired.get(id).filter(|_| shared.now_ms >= ask_ms) else {
                return true;
            };
            role.shard = Some(shard.clone());
            role.tables = TablesState::Asked;
            commands.push_back(WorkerCommand::AddShard(Box::new(shard.setup.clone())));
            false
        });
    }

    pub(super) fn on_worker_event(&mut self, shared: &mut RolesShared, event: WorkerEvent) {
        match event {
            WorkerEvent::ShardAdded(shard) => self.tables_are_there(shared, shard),
            WorkerEvent::ShardRefused { shard, why } => {
                if let Some(role) = self.role_with(shard, &TablesState::Asked) {
                    let ask_ms = shared.now_ms + shared.options.room_retry_ms;
                    role.tables = TablesState::Missing { ask_ms, refused: Some(why) };
                    self.homeless.insert(shard);
                    self.entry_changed(shared, shard);
                }
            }
            WorkerEvent::ShardRemoved(shard) => {
                if self.role_with(shard, &TablesState::Going).is_some() {
                    self.end(shard);
                    self.entry_changed(shared, shard);
                }
            }
            WorkerEvent::PeerMet { peer, peer_index, boot } => {
                let Some(met) = self.peers.met(peer, peer_index, boot, shared.now_ms) else {
                    return;
                };
                if let Some(ended) = met.ended {
                    shared.directory.end(peer, ended);
                }
                self.peer_changed(shared, peer);
            }
            WorkerEvent::CopyDone(shard) => {
                // A copy that was complete before this worker left is worth nothing when it comes
                // back.
                let role = self.role_with(shard, &TablesState::There);
                let Some(role) = role.filter(|role| role.is_member()) else {
                    return;
                };
                role.lost_ms = None;
                self.on_event(shared, shard, RoleEvent::CopyDone);
            }
            // When its source ends, a lane copy is no worse than before, but the worker cannot
            // know: it gets time until a command names another source.
            WorkerEvent::StreamLost(shard) => {
                if let Some(role) = self.role_with(shard, &TablesState::There) {
                    role.lost_ms.get_or_insert(shared.now_ms);
                    self.restless.insert(shard);
                }
            }
            WorkerEvent::Granted { shard, lane, since } => {
                self.on_event(shared, shard, RoleEvent::Granted { lane, since });
            }
            WorkerEvent::CameBack { peer, shard, epoch, state } => {
                if let (Some(boot_id), Some(role)) =
                    (self.peers.met_boot(peer), self.roles.get_mut(&shard))
                {
                    role.comeback.on_report(peer, PeerComeback { boot_id, epoch, state });
                }
            }
            WorkerEvent::Announced { shard, term } => {
                self.on_event(shared, shard, RoleEvent::Announced { term })
            }
        }
    }

    fn role_with(&mut self, shard: ShardId, tables: &TablesState) -> Option<&mut ShardRole> {
        self.roles.get_mut(&shard).filter(|role| role.tables == *tables)
    }

    fn tables_are_there(&mut self, shared: &mut RolesShared, shard: ShardId) {
        let Some(role) = self.role_with(shard, &TablesState::Asked) else { return };
        role.tables = TablesState::There;
        self.introduce(shared, shard);
        self.entry_changed(shared, shard);
        self.renew(shared, shard);
    }

    /// Hands a new role what it has to know of its worker.
    fn introduce(&mut self, shared: &mut RolesShared, shard: ShardId) {
        self.on_event(shared, shard, RoleEvent::Ports(self.ports));
    }

    /// Hands an event to the role of a shard whose tables are there, and applies what follows.
    pub(super) fn on_event(&mut self, shared: &mut RolesShared, shard: ShardId, event: RoleEvent) {
        let Some(role) = self.roles.get_mut(&shard) else { return };
        if role.tables != TablesState::There {
            return;
        }
        let is_entry = matches!(event, RoleEvent::Entry(_));
        let before = role.role();
        let former = role.primary().filter(|_| is_entry).cloned();
        let others = Others::of(shared, &self.peers);
        let has_changed = role.take(shared.now_ms, event, others);
        count_failover(&mut shared.counters, role, before, former);
        if role.is_restless(shared.now_ms, &shared.options) {
            self.restless.insert(shard);
        } else {
            self.restless.remove(&shard);
        }
        if is_entry || has_changed {
            self.renew(shared, shard);
        }
    }

    fn on_event_in_all(&mut self, shared: &mut RolesShared, event: &RoleEvent) {
        let shards: Vec<ShardId> = self.roles.keys().copied().collect();
        for shard in shards {
            self.on_event(shared, shard, event.clone());
        }
    }

    /// Applies that a node has registered differently, or is not registered any more.
    pub(super) fn node_changed(&mut self, shared: &RolesShared, node: &NodeId) {
        let is_there = |role: &ShardRole| {
            let mut members = role.machine.entry().into_iter().flat_map(ShardEntry::members);
            members.any(|member| member.incarnation.worker.node == *node)
        };
        let shards = self.roles.iter().filter(|(_, role)| is_there(role));
        for shard in shards.map(|(&shard, _)| shard).collect::<Vec<_>>() {
            self.renew(shared, shard);
        }
    }

    /// Applies that a peer is heard again or not any more: the roles of its shards are notified,
    /// and the copies that other members get may change.
    fn peer_changed(&mut self, shared: &mut RolesShared, peer: PeerId) {
        let of_peer = |(&shard, role): (&ShardId, &ShardRole)| {
            role.peers.binary_search(&peer).is_ok().then_some(shard)
        };
        let shards: Vec<ShardId> = self.roles.iter().filter_map(of_peer).collect();
        for shard in shards {
            if let Some(role) = self.roles.get_mut(&shard) {
                role.stir(shared.now_ms);
            }
            self.on_event(shared, shard, RoleEvent::Tick);
            self.renew(shared, shard);
        }
    }

    pub(super) fn on_heartbeats(
        &mut self,
        shared: &mut RolesShared,
        peer_index: PeerIndex,
        signs: PeerSigns,
    ) {
        self.look.at(shared.now_ms);
        let changed = self.peers.on_heartbeats(
            peer_index,
            signs,
            shared.now_ms,
            Silence::of(&shared.options),
        );
        if let Some(peer) = changed {
            self.peer_changed(shared, peer);
        }
    }

    pub(super) fn traffic(&mut self, shards: &[ShardId]) {
        for shard in shards {
            if let Some(role) = self.roles.get_mut(shard)
                && role.counts_packets()
            {
                role.has_packets = true;
                self.restless.insert(*shard);
            }
        }
    }

    pub(super) fn sides(&mut self, shared: &mut RolesShared, sides: SidesUp) {
        let ports = match sides.is_ready {
            false => PortHealth::NotReady,
            true if sides.is_up() => PortHealth::Ready,
            true => PortHealth::Broken,
        };
        if ports != self.ports {
            self.ports = ports;
            self.on_event_in_all(shared, &RoleEvent::Ports(ports));
        }
    }

    /// Notes that the worker goes on after a fence.
    pub(super) fn rejoined(&mut self, shared: &mut RolesShared) {
        self.rejoined_ms = shared.now_ms;
        if !self.hold_off.rejoined(shared.now_ms) {
            return;
        }
        shared.counters.hold_offs_total += 1;
        // The worker stalled itself, and may not have heard members that are well.
        let since_ms = shared.now_ms.saturating_sub(shared.options.gone_ms);
        let shards = self.with_live_others(shared, self.roles.keys().copied(), since_ms);
        for &shard in &shards {
            self.held_off.insert(shard);
            self.renew(shared, shard);
        }
    }

    /// Returns those of these shards of which another worker with a full copy was heard after that
    /// time.
    fn with_live_others(
        &self,
        shared: &RolesShared,
        shards: impl Iterator<Item = ShardId>,
        since_ms: u64,
    ) -> Vec<ShardId> {
        let has_heartbeat = |who: &Incarnation| {
            let heartbeat_ms = self.peers.heartbeat_ms(&shared.directory, who);
            heartbeat_ms.is_some_and(|heartbeat_ms| heartbeat_ms > since_ms)
        };
        let has_others = |shard: &ShardId| {
            self.roles.get(shard).is_some_and(|role| role.others_synced().any(has_heartbeat))
        };
        shards.filter(has_others).collect()
    }

    /// Ends hold-offs: all when their time is over, and that of a shard when no other worker serves
    /// it.
    fn look_at_held_off(&mut self, shared: &RolesShared) {
        if self.held_off.is_empty() {
            return;
        }
        let mut held_off = BTreeSet::new();
        if self.hold_off.left_ms(shared.now_ms) > 0 {
            let since_ms = shared.now_ms.saturating_sub(OTHERS_SILENT_MS);
            // Just after its own stall the worker has heard no peer.
            held_off = match since_ms < self.rejoined_ms {
                true => self.held_off.clone(),
                false => {
                    let shards = self.held_off.iter().copied();
                    self.with_live_others(shared, shards, since_ms).into_iter().collect()
                }
            };
        }
        let before = std::mem::replace(&mut self.held_off, held_off);
        for shard in before.difference(&self.held_off.clone()) {
            self.renew(shared, *shard);
        }
    }

    pub(super) fn tick(&mut self, shared: &mut RolesShared) {
        for peer in self.peers.fallen_silent(shared.now_ms, Silence::of(&shared.options)) {
            self.peer_changed(shared, peer);
        }
        for shard in std::mem::take(&mut self.restless) {
            let Some(role) = self.roles.get_mut(&shard) else { continue };
            let event = role.slot();
            let is_lost = role.is_stream_lost(shared.now_ms, &shared.options);
            self.on_event(shared, shard, event);
            if is_lost {
                self.on_event(shared, shard, RoleEvent::StreamLost);
            }
        }
        self.look_at_held_off(shared);
        self.look_at_comebacks(shared);
        self.ask_for_tables(shared);
        let idle_ms = shared.options.idle_peer_ms;
        self.peers.forget_idle(shared.now_ms, idle_ms, &mut self.commands);
    }
}

/// Returns a role without an entry.
fn new_machine(me: &Incarnation, shared: &RolesShared) -> RoleMachine {
    RoleMachine::new(me.clone(), shared.options.role.clone())
}

fn count_failover(
    counters: &mut RolesCounters,
    role: &ShardRole,
    before: Role,
    former: Option<Incarnation>,
) {
    match (before, role.role()) {
        (Role::Synced, Role::Acting) => counters.failovers_silence_total += 1,
        (Role::Synced, Role::Primary) => {
            let entry = role.machine.entry();
            let is_member = former
                .is_some_and(|former| entry.is_some_and(|entry| entry.member(&former).is_some()));
            if is_member {
                counters.failovers_promoted_total += 1;
            } else {
                counters.failovers_fenced_total += 1;
            }
        }
        _ => {}
    }
}
