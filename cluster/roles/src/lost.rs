//! Nodes that no node hears: their routes may still be in the switches, so that no packet comes to
//! the replicas.
//!
//! A node whose process stalls together with its guard withdraws nothing, while its kernel and its
//! BIRD live on. The nodes that would hear it distinguish it from a node that is only cut off from
//! this one:
//!
//! ```text
//!   its workers, heard here last ----------+
//!   its workers, heard by others last -----+--> the latest of all: since then the node is lost
//!   this node and a witness went on since -+
//! ```
//!
//! - Witnesses are all other nodes that are heard. A witness that does not report which nodes it
//!   hears is of an earlier build: then nothing is known. A witness that has just come, or was
//!   silent for a moment itself, has not listened for long enough.
//! - If none of several registered nodes is heard, it is this node that is cut off. With two nodes
//!   there is no other node to ask.
//! - A stall of this node, or of one of its workers, makes the count start over.

use std::collections::BTreeMap;

use crate::role::{Role, RoleEvent};
use weir_map::{MemberState, NodeId, Rank, ShardId};

use super::Roles;
use super::duties::Others;
use super::input::RolesOptions;
use super::shard_role::ShardRole;
use super::worker::{RolesShared, WorkerRoles};
use weir_replication::STALL_US;

/// A node without a tick, or a worker without a look, for this long has stalled.
const STALL_MS: u64 = STALL_US / 1_000;

/// Shard roles are notified again after this long: what kept one from acting may be over.
const REPEAT_MS: u64 = 50;

/// Heartbeats of all workers of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeSigns {
    /// When one of them was last heard here; `seen_ms`: by another node.
    pub(super) heartbeat_ms: u64,
    pub(super) seen_ms: u64,
    /// Since when those that are heard now have been heard without a gap. `is_mute`: one of them
    /// does not report which nodes it hears.
    pub(super) steady_since_ms: Option<u64>,
    pub(super) is_mute: bool,
}

/// State that is kept from tick to tick.
#[derive(Debug, Default)]
pub(super) struct Lost {
    ticked_ms: Option<u64>,
    /// Since when no tick was late.
    awake_since_ms: u64,
    /// Nodes that no node hears, each with the number of replicas that may act by now;
    /// `reported_ms`: when the shard roles were notified.
    reported: BTreeMap<NodeId, u64>,
    reported_ms: u64,
}

/// When a worker looked at its peers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerLook {
    pub(super) last_ms: Option<u64>,
    /// Since when the worker has not stalled.
    pub(super) since_ms: u64,
}

impl PeerLook {
    pub(super) fn at(&mut self, now_ms: u64) {
        if self.last_ms.is_none_or(|last_ms| now_ms >= last_ms + STALL_MS) {
            self.since_ms = now_ms;
        }
        self.last_ms = Some(now_ms);
    }

    /// Returns since when the worker has looked without a pause. None: it stalls.
    fn awake_since(&self, now_ms: u64) -> Option<u64> {
        let last_ms = self.last_ms?;
        (now_ms < last_ms + STALL_MS).then_some(self.since_ms)
    }
}

impl Roles {
    /// Ends a slot: notifies the replicas of nodes that no node hears.
    pub(super) fn look_for_lost(&mut self) {
        let now_ms = self.shared.now_ms;
        let is_late =
            |last_ms: Option<u64>| last_ms.is_none_or(|last_ms| now_ms >= last_ms + STALL_MS);
        if is_late(self.lost.ticked_ms.replace(now_ms)) {
            self.lost.awake_since_ms = now_ms;
        }
        let lost = self.lost_nodes();
        let steps: BTreeMap<NodeId, u64> = lost
            .iter()
            .map(|(node, &ms)| (node.clone(), steps(ms, &self.shared.options)))
            .collect();
        let is_due = self.lost.reported != steps || now_ms >= self.lost.reported_ms + REPEAT_MS;
        if !lost.is_empty() && is_due {
            self.lost.reported_ms = now_ms;
            self.each_worker(|worker, shared| worker.primaries_lost(shared, &lost));
        }
        self.lost.reported = steps;
    }

    /// Returns the nodes that no node has heard for as long as a lone replica waits, and for how
    /// long.
    fn lost_nodes(&self) -> BTreeMap<NodeId, u64> {
        let (now_ms, options) = (self.shared.now_ms, &self.shared.options);
        let min_ms = options.role.lone_silence_ms;
        let is_any = self.workers.iter().any(|worker| worker.peers.is_any_silent());
        if !is_any {
            return BTreeMap::new();
        }
        let nodes = self.node_signs();
        let silent = nodes.iter().filter(|(_, it)| now_ms >= it.heartbeat_ms + min_ms);
        let lost = silent.filter_map(|(node, it)| {
            let since_ms = it.heartbeat_ms.max(self.lost.awake_since_ms);
            let since_ms = since_ms.max(it.seen_ms).max(self.witnessed_since(node, &nodes)?);
            let lost_ms = now_ms.saturating_sub(since_ms);
            (lost_ms >= min_ms).then(|| ((*node).clone(), lost_ms))
        });
        lost.collect()
    }

    /// Returns since when all nodes that are to be asked would have heard a node. None: not known.
    fn witnessed_since(&self, of: &NodeId, nodes: &BTreeMap<&NodeId, NodeSigns>) -> Option<u64> {
        let others = nodes.iter().filter(|(node, _)| **node != of);
        let (mut is_any_absent, mut since_ms) = (false, None);
        for (node, it) in others {
            match it.steady_since_ms {
                Some(_) if it.is_mute => return None,
                Some(steady_ms) => since_ms = since_ms.max(Some(steady_ms)),
                None => is_any_absent |= self.shared.directory.is_node_registered(node),
            }
        }
        match since_ms {
            None if is_any_absent => None,
            None => Some(0),
            Some(since_ms) => Some(since_ms),
        }
    }

    fn node_signs(&self) -> BTreeMap<&NodeId, NodeSigns> {
        let now_ms = self.shared.now_ms;
        let mut nodes: BTreeMap<&NodeId, NodeSigns> = BTreeMap::new();
        for worker in &self.workers {
            for (peer, signs) in worker.peers.signs(now_ms, self.shared.options.witness_ms) {
                let Some(id) = self.shared.directory.worker_at(peer) else { continue };
                if id.node == self.node {
                    continue;
                }
                let of_node = nodes.entry(&id.node).or_default();
                of_node.heartbeat_ms = of_node.heartbeat_ms.max(signs.heartbeat_ms);
                of_node.seen_ms = of_node.seen_ms.max(signs.seen_ms);
                of_node.steady_since_ms = of_node.steady_since_ms.max(signs.steady_since_ms);
                of_node.is_mute |= signs.is_mute;
            }
        }
        nodes
    }
}

/// Returns how many replicas of a shard may act by now: they act one after another, in rank order.
fn steps(lost_ms: u64, options: &RolesOptions) -> u64 {
    let over_ms = lost_ms.saturating_sub(options.role.lone_silence_ms);
    1 + over_ms / options.rank_step_ms
}

impl WorkerRoles {
    /// Notifies the replicas of primaries on these nodes, which no node hears.
    fn primaries_lost(&mut self, shared: &mut RolesShared, lost: &BTreeMap<NodeId, u64>) {
        let Some(awake_since_ms) = self.look.awake_since(shared.now_ms) else { return };
        let awake_ms = shared.now_ms - awake_since_ms;
        let of_lost = |(&shard, role): (&ShardId, &ShardRole)| {
            let lost_ms = *lost.get(&role.primary()?.worker.node)?;
            let lost_ms = lost_ms.min(awake_ms);
            let is_long = lost_ms >= shared.options.role.lone_silence_ms;
            let is_turn = || steps(lost_ms, &shared.options) > self.ahead_of(shared, role);
            (role.role() == Role::Synced && is_long && is_turn()).then_some(shard)
        };
        let shards: Vec<ShardId> = self.roles.iter().filter_map(of_lost).collect();
        for shard in shards {
            self.on_event(shared, shard, RoleEvent::PrimaryLost);
        }
    }

    /// Returns the number of replicas in front of this one that are heard and have a full copy:
    /// those are to act first.
    fn ahead_of(&self, shared: &RolesShared, role: &ShardRole) -> u64 {
        let Some(entry) = role.machine.entry() else { return 0 };
        let others = Others::of(shared, &self.peers);
        let me = role.machine.incarnation();
        let in_front = (0..).map(Rank).zip(entry.members());
        let in_front = in_front.take_while(|(_, member)| member.incarnation != *me);
        let could_act = in_front.filter(|(rank, member)| {
            *rank != Rank::PRIMARY
                && member.state == MemberState::Synced
                && others.peers.has_heartbeat(others.directory, &member.incarnation)
        });
        could_act.count() as u64
    }
}
