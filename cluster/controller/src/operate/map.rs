//! The map of shards as an operator reads it: the members of each shard, their copies, its state.

use std::collections::BTreeSet;

use serde::Serialize;
use weir_map::{Incarnation, MemberState, ShardEntry, ShardId};

use crate::state::{CUT_OFF, View, worker_views};

/// State of a shard: the worst of those that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardState {
    /// As many synced copies as wanted, and nothing is moving.
    Whole,
    /// Lanes or members are being moved.
    Moving,
    /// A copy is being made.
    Copying,
    /// Fewer synced copies than wanted, and none is being made.
    Short,
    /// Copies are wanted, and no member beside the primary has a synced one.
    Unprotected,
    /// The primary is not registered: it serves on without etcd, a replica serves in its place, or
    /// no worker serves the shard.
    NoPrimary,
    /// The shard is in the cluster file and has no entry yet.
    Missing,
    /// The shard's key cannot be read.
    Unreadable,
}

impl ShardState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Moving => "moving",
            Self::Copying => "copying",
            Self::Short => "short of copies",
            Self::Unprotected => "unprotected",
            Self::NoPrimary => "no primary",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A shard of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardLine {
    pub shard: u32,
    pub state: ShardState,
    /// Whether the shard is in the cluster file.
    pub is_wanted: bool,
    /// Members in rank order, the primary first; empty where there is no entry.
    pub members: Vec<MemberLine>,
    /// Term and `epoch` of the entry; 0 where there is no entry.
    pub term: u32,
    pub epoch: u64,
}

/// A member of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberLine {
    /// `node/index`.
    pub worker: String,
    pub state: MemberState,
    pub is_leaving: bool,
    /// State of its node in the leader's last report; `gone` where the node is not registered and
    /// not in the report.
    pub life: String,
    /// Number of lanes that it owns or is handing over.
    pub lanes: usize,
}

impl MemberLine {
    fn is_alive(&self) -> bool {
        self.life == ALIVE
    }

    /// Returns everything about the member that is not normal, in words.
    pub fn marks(&self) -> Vec<&str> {
        let state = match self.state {
            MemberState::Synced => None,
            MemberState::Syncing => Some("copying"),
            MemberState::OutOfSync => Some("out of sync"),
        };
        let leaving = self.is_leaving.then_some("leaving");
        let life = (!self.is_alive()).then_some(self.life.as_str());
        state.into_iter().chain(leaving).chain(life).collect()
    }
}

const ALIVE: &str = "alive";

/// Returns a line for every shard that exists or is desired, ordered by number.
pub(super) fn lines(view: &View) -> Vec<ShardLine> {
    let wanted = view.desired().map_or(&[][..], |desired| &desired.shards);
    let mut ids: Vec<ShardId> = wanted.iter().map(|shard| ShardId(shard.id)).collect();
    ids.extend(view.shards.keys());
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| line(view, id)).collect()
}

pub(super) fn line(view: &View, id: ShardId) -> ShardLine {
    let desired = view.desired();
    let entry = view.entry(id);
    let members = entry.map_or_else(Vec::new, |entry| member_lines(view, entry));
    let copies = 1 + desired.map_or(0, |it| usize::from(it.cluster.replicas.min(4)));
    let state = match entry {
        Some(entry) => state_of(entry, &members, copies),
        None if view.shards.contains_key(&id) => ShardState::Unreadable,
        None => ShardState::Missing,
    };
    ShardLine {
        shard: id.0,
        state,
        is_wanted: desired.is_some_and(|desired| desired.has(id.0)),
        members,
        term: entry.map_or(0, |entry| entry.term().0),
        epoch: entry.map_or(0, |entry| entry.epoch().0),
    }
}

fn member_lines(view: &View, entry: &ShardEntry) -> Vec<MemberLine> {
    let members = entry.members().iter();
    let lines = members.map(|member| MemberLine {
        worker: member.incarnation.worker.to_string(),
        state: member.state,
        is_leaving: member.is_leaving,
        life: life(view, &member.incarnation),
        lanes: entry.lanes_of(member.slot).iter().count(),
    });
    lines.collect()
}

fn life(view: &View, who: &Incarnation) -> String {
    let node = &who.worker.node;
    let record = view.nodes.get(node).and_then(|held| held.value.as_ref());
    let report = view.report.as_ref().and_then(|held| held.value.as_ref());
    let seen = report.and_then(|it| it.nodes.iter().find(|seen| seen.node == node.as_str()));
    if let Some(record) = record {
        let is_cut_off = seen.is_some_and(|seen| seen.cut_off.contains(&who.worker.index));
        let workers = worker_views(&record.workers).unwrap_or_default();
        return match workers.iter().any(|worker| worker.boot_id == who.boot_id) {
            true if record.is_stopping => "stopping",
            true if is_cut_off => CUT_OFF,
            true => ALIVE,
            false => "restarted",
        }
        .to_owned();
    }
    // A report that was written before the loss still shows the node as running.
    let seen = seen.filter(|seen| ![ALIVE, CUT_OFF, "stopping"].contains(&seen.life.as_str()));
    seen.map_or_else(|| "gone".to_owned(), |seen| seen.life.clone())
}

fn state_of(entry: &ShardEntry, members: &[MemberLine], copies: usize) -> ShardState {
    let is_there = |member: &&MemberLine| member.is_alive() || member.life == "stopping";
    let synced = members.iter().filter(|it| it.state == MemberState::Synced).filter(is_there);
    let nodes = synced.map(|it| it.worker.split_once('/').map_or("", |(node, _)| node));
    let synced = nodes.collect::<BTreeSet<&str>>().len();
    let is_copying =
        members.iter().filter(is_there).any(|member| member.state == MemberState::Syncing);
    if !members.first().is_some_and(|primary| is_there(&primary)) {
        ShardState::NoPrimary
    } else if copies > 1 && synced < 2 {
        ShardState::Unprotected
    } else if is_copying {
        ShardState::Copying
    } else if synced < copies {
        ShardState::Short
    } else if entry.is_moving() || members.len() > copies {
        ShardState::Moving
    } else {
        ShardState::Whole
    }
}
