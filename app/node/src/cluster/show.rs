//! Builds the status of a member from the state that the roles and the workers publish.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_admin::api::{
    BirdSideStatus, HeldOffStatus, MemberStatus, OutsideStatus, PeerStatus, ReplicationStatus,
    RoleStatus, RouteStatus,
};
use weir_controller::records::{ActingAnswer, BirdAnswer, DOUBTS_MAX, DoubtAnswer, NodeAnswer};
use weir_map::{MemberState, ShardEntry, ShardId};
use weir_node_core::{GuardState, Outside};
use weir_roles::role::Role;
use weir_roles::{ShardRoleStatus, Trouble};
use weir_routes::{Route, WorkerIndex};
use weir_stream::DatagramRefusal;

use super::bird_thread::BirdSide;
use super::roles_thread::RolesThread;

/// Time within which switches should have followed a change.
const SETTLE_MS: u64 = 5_000;
/// Slots with packets from which on a replica counts as misdirected, of about twenty between two
/// updates of the status.
const MISDIRECTED_SLOTS: u32 = 10;

impl RolesThread {
    /// Publishes the node's state as a member.
    pub(super) fn show(&self, now: Duration) {
        let now_ms = now.as_millis() as u64;
        let core = &self.core;
        let roles = core.roles();
        let counters = roles.counters();
        let etcd = self.etcd.cluster();
        let (error, counts) = (etcd.last_error(), etcd.counts());
        let shards: Vec<RoleStatus> =
            roles.statuses().map(|status| self.role_status(&status, now_ms)).collect();
        self.log_changes(&shards);
        let held_off = (0..self.replication.len()).filter_map(|worker| {
            let (left_ms, shards) = roles.held_off(worker)?;
            Some(HeldOffStatus { worker, shards, left_ms })
        });
        let status = MemberStatus {
            cluster: self.core.desired().cluster.name.clone(),
            replicas: u64::from(self.core.desired().cluster.replicas),
            is_registered: core.is_registered(),
            without_etcd: core.outside().map(outside_status),
            etcd_error: error.map(|error| error.to_string()),
            etcd_silent_ms: counts.last_contact_age.map_or(now_ms, |age| age.as_millis() as u64),
            etcd_errors_total: counts.failures_total,
            cluster_keys: self.keys.names.clone(),
            key_file_error: self.keys.error.clone(),
            is_map_fresh: roles.is_fresh(),
            is_stopping: core.is_stopping(),
            map_epoch_max: shards.iter().map(|shard| shard.epoch).max().unwrap_or(0),
            map_rejected_total: counters.entries_refused_total,
            guard_restarts_total: core.guard_restarts_total(),
            guard_trouble: guard_trouble(core.guard_state()),
            epochs_unsaved_ms: core.keeper().unsaved(now).as_millis() as u64,
            epochs_error: core.keeper().error().map(str::to_owned),
            watchdog_trips_total: core.watchdog_trips_total(),
            events_lost_total: self.inbox.lost_total(),
            held_off: held_off.collect(),
            hold_offs_total: counters.hold_offs_total,
            failovers_total: vec![
                ("silence".into(), counters.failovers_silence_total),
                ("fenced".into(), counters.failovers_fenced_total),
                ("promoted".into(), counters.failovers_promoted_total),
            ],
            shards,
            peers: self.peer_statuses(),
            replication: self.replication_statuses(),
            routes: self.route_statuses(),
            bird: self.bird.iter().map(bird_status).collect(),
            bird_sessions: self.bird_sessions.clone(),
        };
        self.snapshot.show(status, self.answer());
    }

    /// Returns the answer to the controller. The load of a shard is its number of leased ports.
    fn answer(&self) -> NodeAnswer {
        let load = |worker: usize, shard: ShardId| {
            let shard_index = self.shard_indexes.get(&(worker, shard));
            let stats = &self.node.workers[worker].stats.shards;
            let stats = shard_index.and_then(|shard_index| stats.get(usize::from(shard_index.0)));
            stats.map_or(0, |stats| stats.ports_used.get())
        };
        let report = self.core.roles().report(load);
        let hears = report.hears.into_iter().map(|(node, is_heard)| (node.to_string(), is_heard));
        let acting = report.acting.into_iter().map(|(shard, who, term)| ActingAnswer {
            shard: shard.0,
            worker: who.worker,
            boot_id: who.boot_id,
            term,
        });
        let doubts = self.core.roles().doubts().take(DOUBTS_MAX);
        let doubts = doubts.map(|(shard, known, held)| DoubtAnswer {
            shard: shard.0,
            known,
            entry: held.and_then(|held| serde_json::from_str(&held.to_json()).ok()),
        });
        let broken = self.core.sides().iter().enumerate();
        let broken = broken.filter(|(_, sides)| !sides.is_up()).map(|(worker, _)| worker as u16);
        let bird_down = self.bird.iter().filter_map(|it| {
            let cause = it.view.state.cause()?;
            Some(BirdAnswer { side: it.side.to_string(), cause: cause.into() })
        });
        NodeAnswer {
            node: self.node.name.clone(),
            hears: hears.collect(),
            loads: report.loads.into_iter().map(|(shard, load)| (shard.0, load)).collect(),
            broken: broken.collect(),
            bird_down: bird_down.collect(),
            acting: acting.collect(),
            doubts: doubts.collect(),
            doubts_total: Some(self.core.roles().doubts().count()),
            is_still: *self.core.guard_state() == GuardState::Silent,
            // `Node::answer` fills these in: the node knows more of them than its roles.
            generation: None,
            troubles: Vec::new(),
        }
    }

    fn log_changes(&self, shards: &[RoleStatus]) {
        let before = self.snapshot.status();
        let before: BTreeMap<(usize, u32), &str> =
            before.shards.iter().map(|it| ((it.worker, it.shard), it.role.as_str())).collect();
        for RoleStatus { shard, worker, role, term, epoch, trouble, .. } in shards {
            if before.get(&(*worker, *shard)) != Some(&role.as_str()) {
                let trouble = trouble.as_deref().unwrap_or_default();
                tracing::info!(event = "role-changed", shard, worker, role, term, epoch, trouble);
            }
        }
    }

    fn role_status(&self, status: &ShardRoleStatus<'_>, now_ms: u64) -> RoleStatus {
        let me = &self.node.name;
        let others = |entry: &ShardEntry| {
            let others = entry.members().iter().filter(|member| {
                let node = member.incarnation.worker.node.as_str();
                node != me && member.state == MemberState::Synced
            });
            others.count()
        };
        let replication = self.replication.get(status.worker).and_then(Option::as_ref);
        let short = || {
            let replication = replication?;
            let is_short = replication.shards_short.contains(&status.shard);
            let wanted = self.core.desired().commit_replicas();
            is_short.then(|| format!("fewer than {wanted} copies for its packets to wait for"))
        };
        RoleStatus {
            shard: status.shard.0,
            worker: status.worker,
            role: role_name(status.role).into(),
            term: status.entry.map_or(0, |entry| u64::from(entry.term().0)),
            epoch: status.entry.map_or(0, |entry| entry.epoch().0),
            members: status.entry.map(members).unwrap_or_default(),
            others_synced: status.entry.map_or(0, others),
            metric: status.metric.map(|metric| metric.0),
            is_route_out: status.is_route_out,
            since_ms: now_ms.saturating_sub(status.since_ms),
            is_misdirected: self.is_misdirected(status, now_ms),
            is_set_back: matches!(status.trouble, Some(Trouble::SetBack(_) | Trouble::EntryGone)),
            trouble: status.trouble.as_ref().map(ToString::to_string).or_else(short),
        }
    }

    fn peer_statuses(&self) -> Vec<PeerStatus> {
        let workers = self.replication.iter().enumerate();
        let peers = workers.filter_map(|(worker, status)| {
            let peers = status.as_ref()?.peers.iter();
            Some(peers.map(move |peer| (worker, *peer)))
        });
        let peers = peers.flatten();
        let status = |(worker, peer): (usize, weir_stream::PeerLinkStatus)| PeerStatus {
            worker,
            peer: self
                .core
                .name_of(&peer.address)
                .map_or_else(|| peer.address.to_string(), ToString::to_string),
            address: peer.address,
            version: peer.version,
            silent_ms: peer.silent_ms,
            lag_records: peer.lag.records,
            lag_ms: peer.lag.age_ms,
            resyncs_total: peer.counters.resyncs,
            gaps_total: peer.counters.gaps,
            sent_bytes_total: peer.counters.bytes_sent,
            difference: peer.difference.map(|part| part.name().into()),
        };
        peers.map(status).collect()
    }

    fn replication_statuses(&self) -> Vec<ReplicationStatus> {
        let statuses = self.replication.iter().enumerate();
        let statuses = statuses.filter_map(|(worker, status)| Some((worker, status.as_ref()?)));
        let shown = statuses.map(|(worker, status)| {
            let refused = |reason: DatagramRefusal| {
                let of_peers = status.peers.iter().map(|peer| peer.counters.refused.of(reason));
                (reason.name().to_owned(), status.refused.of(reason) + of_peers.sum::<u64>())
            };
            let copies = &status.outgoing;
            ReplicationStatus {
                worker,
                copies: [copies.waiting, copies.copying, copies.synced].map(|count| count as u64),
                slots_done: copies.slots_done,
                slots_total: copies.slots_total,
                lanes_awaited: status.lanes_awaited as u64,
                lanes_followed: status.lanes_followed as u64,
                lanes_full: status.lanes_full as u64,
                changes_degraded_total: status.counters.changes_degraded_total
                    + status.counters.changes_untracked_total,
                shards_short: status.shards_short.iter().map(|shard| shard.0).collect(),
                refusals_total: DatagramRefusal::ALL.map(refused).into(),
            }
        });
        shown.collect()
    }

    /// True if packets keep arriving at a synced replica: while switches settle it gets a packet
    /// now and then, but not all the time.
    fn is_misdirected(&self, status: &ShardRoleStatus<'_>, now_ms: u64) -> bool {
        let busy_slots = self.busy_slots.get(&(status.worker, status.shard)).copied();
        status.role == Role::Synced
            && now_ms.saturating_sub(status.since_ms) >= SETTLE_MS
            && busy_slots.unwrap_or(0) >= MISDIRECTED_SLOTS
    }

    fn route_statuses(&self) -> Vec<RouteStatus> {
        let lists = self.core.routes().iter().enumerate();
        let routes = lists.flat_map(|(worker, set)| {
            set.routes
                .iter()
                .map(move |route| route_status(worker as WorkerIndex, route, set.is_set))
        });
        routes.collect()
    }
}

fn outside_status(outside: &Outside) -> OutsideStatus {
    let Outside { shards, other_cluster, .. } = outside;
    OutsideStatus { shards: shards.clone(), other_cluster: other_cluster.clone() }
}

fn guard_trouble(guard: &GuardState) -> Option<String> {
    match guard {
        GuardState::Works => None,
        GuardState::Silent => {
            Some("stands still: the routes of a worker that ends would stay".to_owned())
        }
        GuardState::Absent(why) => Some(format!("is absent, no route is announced: {why}")),
    }
}

fn route_status(worker: WorkerIndex, route: &Route, is_set: bool) -> RouteStatus {
    RouteStatus {
        worker: usize::from(worker),
        side: route.side.to_string(),
        prefix: route.prefix.to_string(),
        next_hop: route.next_hop,
        metric: route.metric,
        is_set,
    }
}

fn bird_status(side: &BirdSide) -> BirdSideStatus {
    let BirdSide { side, view, lasts_ms } = side;
    BirdSideStatus {
        side: side.to_string(),
        state: view.state.name().into(),
        sessions_established: view.established as u64,
        sessions: view.protocols as u64,
        why: view.why.clone(),
        since_ms: *lasts_ms,
    }
}

/// Returns the members in rank order, each with its state.
fn members(entry: &ShardEntry) -> Vec<String> {
    let names = entry.members().iter().enumerate().map(|(rank, member)| {
        let state = match member.state {
            _ if rank == 0 => "primary",
            MemberState::Syncing => "syncing",
            MemberState::Synced => "synced",
            MemberState::OutOfSync => "out-of-sync",
        };
        format!("{} {state}", member.incarnation.worker)
    });
    names.collect()
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::None => "none",
        Role::Syncing => "syncing",
        Role::OutOfSync => "out-of-sync",
        Role::Synced => "synced",
        Role::Acting => "acting",
        Role::Primary => "primary",
        Role::Leaving => "leaving",
    }
}
