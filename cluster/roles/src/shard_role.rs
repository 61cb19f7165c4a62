//! One worker's role in one shard: its role machine, its tables, and the commands that were sent.

use std::sync::Arc;

use crate::role::{Metric, Misses, Role, RoleEvent, RoleMachine};
use weir_map::{Incarnation, MemberState, ShardEntry};

use super::comeback::ShardComebacks;
use super::duties::Others;
use super::entry_write::EntryWrite;
use super::input::{DesiredShard, RolesOptions};
use super::output::AtStake;
use weir_ids::PeerId;
use weir_replication::command::ShardDuties;

/// Length of a slot in which packets are counted.
const SLOT_MS: u64 = 10;

/// The tables of a shard at its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TablesState {
    /// To be asked for at `ask_ms`.
    Missing {
        ask_ms: u64,
        refused: Option<String>,
    },
    Asked,
    /// Duties exist only in this state.
    There,
    /// To be removed: no other command is sent until they are.
    Going,
}

/// The route that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteState {
    pub(super) metric: Metric,
    pub(super) is_last_copy: bool,
    pub(super) is_held_off: bool,
}

#[derive(Debug)]
pub(super) struct ShardRole {
    /// The shard as its tables were made. None until they are asked for.
    pub(super) shard: Option<Arc<DesiredShard>>,
    pub(super) machine: RoleMachine,
    pub(super) tables: TablesState,
    /// The duties that were sent last. None: none since the tables are there.
    pub(super) ordered: Option<ShardDuties>,
    /// The peers that it holds.
    pub(super) peers: Vec<PeerId>,
    pub(super) route: Option<RouteState>,
    /// Number of the routes since which the metric is as it is.
    pub(super) route_number: u64,
    pub(super) entry_write: EntryWrite,
    pub(super) comeback: ShardComebacks,
    /// Whether the role is over: nothing begins before its tables are gone.
    pub(super) is_over: bool,
    /// When the role began.
    pub(super) since_ms: u64,
    /// Up to when it has been handed heartbeats.
    noted_ms: u64,
    /// When the worker lost a stream, until its copy is complete again or the role has been
    /// notified.
    pub(super) lost_ms: Option<u64>,
    /// When something last changed whose effects may follow with time.
    stirred_ms: u64,
    /// Whether there were packets since the last slot; `had_packets`: in the last slot.
    pub(super) has_packets: bool,
    had_packets: bool,
}

impl ShardRole {
    pub(super) fn new(machine: RoleMachine, now_ms: u64) -> Self {
        Self {
            shard: None,
            machine,
            tables: TablesState::Missing { ask_ms: now_ms, refused: None },
            ordered: None,
            peers: Vec::new(),
            route: None,
            route_number: 0,
            entry_write: EntryWrite::default(),
            comeback: ShardComebacks::default(),
            is_over: false,
            since_ms: now_ms,
            noted_ms: 0,
            lost_ms: None,
            stirred_ms: 0,
            has_packets: false,
            had_packets: false,
        }
    }

    pub(super) fn role(&self) -> Role {
        self.machine.duties().role
    }

    pub(super) fn primary(&self) -> Option<&Incarnation> {
        Some(&self.machine.entry()?.primary().incarnation)
    }

    /// Hands an event to the role, and before it the primary's last heartbeat, at its own time.
    /// Returns whether the duties changed.
    pub(super) fn take(&mut self, now_ms: u64, event: RoleEvent, others: Others<'_>) -> bool {
        let mut has_changed = false;
        let role = self.role();
        if let Some(from) = self.primary()
            && let Some(at_ms) = others.peers.heartbeat_ms(others.directory, from)
            && at_ms > self.noted_ms
        {
            let from = from.clone();
            has_changed = self.machine.on(at_ms, RoleEvent::Heartbeat { from });
            self.noted_ms = at_ms;
        }
        match event {
            RoleEvent::Entry(_) | RoleEvent::Resumed { .. } => self.stir(now_ms),
            RoleEvent::Slot { packets } => self.had_packets = packets > 0,
            _ => {}
        }
        has_changed |= self.machine.on(now_ms, event);
        if self.role() != role {
            self.since_ms = now_ms;
        }
        has_changed
    }

    /// Makes the role restless until a primary that is not heard has been silent for long enough.
    pub(super) fn stir(&mut self, now_ms: u64) {
        self.stirred_ms = now_ms;
    }

    /// Returns the event of a slot's end, as far as it concerns the role.
    pub(super) fn slot(&mut self) -> RoleEvent {
        let packets = u32::from(std::mem::take(&mut self.has_packets));
        if self.counts_packets() { RoleEvent::Slot { packets } } else { RoleEvent::Tick }
    }

    /// True, once, if the stream has been lost for so long that the role is to be notified. If
    /// nothing is awaited any more, since this worker relays for those that wrote it, nothing is
    /// lost.
    pub(super) fn is_stream_lost(&mut self, now_ms: u64, options: &RolesOptions) -> bool {
        let is_over = |lost_ms: &mut u64| now_ms >= *lost_ms + options.lost_stream_ms;
        let sources = self.ordered.as_ref().map_or(&[][..], |ordered| &ordered.sources);
        let is_awaited = sources.iter().any(Option::is_some);
        self.lost_ms.take_if(is_over).is_some() && is_awaited
    }

    pub(super) fn counts_packets(&self) -> bool {
        matches!(self.role(), Role::Synced | Role::Leaving)
    }

    /// True if the role waits for time to pass: it is handed every slot. All others rest until
    /// something happens.
    pub(super) fn is_restless(&self, now_ms: u64, options: &RolesOptions) -> bool {
        let role = self.role();
        let keeps_route = role == Role::Synced && self.keeps_former_route();
        let is_new = now_ms < self.stirred_ms + options.role.silence_ms + 2 * SLOT_MS;
        let had_packets = role == Role::Synced && (self.has_packets || self.had_packets);
        let waits = keeps_route || is_new || had_packets || self.lost_ms.is_some();
        role == Role::Leaving || waits
    }

    /// True for a synced replica with a better route than a replica's: it was the primary, or
    /// acted.
    pub(super) fn keeps_former_route(&self) -> bool {
        let metric = self.machine.duties().metric;
        metric.is_some_and(|metric| metric < Metric::replica(weir_map::Rank::PRIMARY))
    }

    /// Returns the wanted route. `is_held_off`: the worker's routes are held off where others serve
    /// the shard.
    pub(super) fn wanted_route(&self, is_held_off: bool) -> Option<RouteState> {
        let metric = self.machine.duties().metric?;
        let is_last_copy = self.is_last_copy();
        Some(RouteState { metric, is_last_copy, is_held_off: is_held_off && !is_last_copy })
    }

    pub(super) fn is_last_copy(&self) -> bool {
        self.others_synced().next().is_none()
    }

    /// Returns the other members that have full copies.
    pub(super) fn others_synced(&self) -> impl Iterator<Item = &Incarnation> {
        let entry: Option<&ShardEntry> = self.machine.entry();
        let members = entry.map_or(&[][..], |entry| entry.members()).iter();
        let me = self.machine.incarnation();
        members
            .filter(move |it| it.incarnation != *me && it.state == MemberState::Synced)
            .map(|member| &member.incarnation)
    }

    /// Returns whether homes lose this shard with the worker, and with it all that is known of
    /// their flows.
    pub(super) fn at_stake(&self) -> AtStake {
        let is_serving = matches!(self.role(), Role::Primary | Role::Acting);
        let node = &self.machine.incarnation().worker.node;
        let is_only = !self.others_synced().any(|other| other.worker.node != *node);
        // A guest never acts, and no entry says which members are left.
        let duties = self.machine.duties();
        let is_left = self.machine.is_guest()
            && duties.role == Role::Synced
            && duties.misses == Misses::Refuse;
        AtStake {
            is_serving: is_serving || is_left,
            is_only_copy: is_serving && is_only || is_left,
        }
    }

    /// True if the entry that it holds names this incarnation of the worker.
    pub(super) fn is_member(&self) -> bool {
        let entry = self.machine.entry();
        entry.is_some_and(|entry| entry.member(self.machine.incarnation()).is_some())
    }
}
