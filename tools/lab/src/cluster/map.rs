//! The nodes that serve each shard, as recorded in etcd.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use weir_controller::records::LeaderReport;
use weir_etcd::{EtcdCluster, EtcdOptions, Key, KeyRange, NodeRecord, Store};
use weir_map::{Incarnation, Member, MemberState, ShardEntry};

use super::files::{CLUSTER, ETCD};
use crate::namespace::Namespace;

/// A summary of a shard's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardView {
    /// Counts the changes of the entry.
    pub epoch: u64,
    /// Node of the primary.
    pub primary: String,
    /// Nodes of all members, the primary first.
    pub members: Vec<String>,
    /// True if all copies are there: synced, on workers that live and are to stay, and no lane is
    /// moving between them. A member that was lost or is cut off may be listed until it comes back
    /// or is fenced.
    pub is_whole: bool,
}

/// A change of a shard's primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Number of the shard.
    pub shard: u32,
    /// Node of the old primary.
    pub from: String,
    /// Node of the new primary.
    pub to: String,
}

/// All shards at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Shards by number.
    pub shards: BTreeMap<u32, ShardView>,
    /// Registered nodes.
    pub nodes: BTreeSet<String>,
}

impl Map {
    /// True if there are `shards` shards, and all of them are whole.
    pub fn is_whole(&self, shards: usize) -> bool {
        self.shards.len() == shards && self.shards.values().all(|shard| shard.is_whole)
    }

    /// Returns the number of shards whose primary is on `node`.
    pub fn primaries(&self, node: &str) -> usize {
        self.shards.values().filter(|shard| shard.primary == node).count()
    }

    /// Returns the shards whose primary is on another node than in `earlier`.
    pub fn moved_since(&self, earlier: &Map) -> Vec<Move> {
        let moved = self.shards.iter().filter_map(|(&shard, after)| {
            let before = earlier.shards.get(&shard)?;
            let (from, to) = (before.primary.clone(), after.primary.clone());
            (from != to).then_some(Move { shard, from, to })
        });
        moved.collect()
    }
}

/// Reads the map from etcd.
#[derive(Debug)]
pub struct MapReader {
    cluster: EtcdCluster,
    store: Store,
    replicas: u8,
}

impl MapReader {
    /// Opens a reader in a namespace where etcd can be reached. A whole shard has `replicas`
    /// replicas.
    pub fn open(namespace: &Namespace, replicas: u8) -> Result<Self> {
        let options = EtcdOptions::new(CLUSTER.parse()?, vec![ETCD.to_owned()], 1);
        // The reader's thread starts inside the namespace, so it belongs to it.
        let cluster = namespace.enter(|| {
            EtcdCluster::start(options, || ()).map_err(|errors| anyhow::anyhow!("{errors:?}"))
        })?;
        Ok(Self { store: cluster.store(), cluster, replicas })
    }

    /// Reads the current map.
    ///
    /// # Errors
    /// When etcd does not answer, or a value is invalid.
    pub fn read(&self) -> Result<Map> {
        let (nodes, shards, report) = self.cluster.handle().block_on(async {
            let nodes = self.store.list(KeyRange::Nodes).await?;
            let report = self.store.get(&Key::Report).await?;
            anyhow::Ok((nodes.1, self.store.list(KeyRange::Shards).await?.1, report))
        })?;
        let report =
            report.map(|held| serde_json::from_slice::<LeaderReport>(&held.value)).transpose()?;
        let is_cut_off = |node: &str, worker: u16| {
            let mut nodes = report.iter().flat_map(|report| &report.nodes);
            nodes.any(|seen| seen.node == node && seen.cut_off.contains(&worker))
        };
        let mut map = Map::default();
        let mut living = BTreeSet::new();
        for (key, held) in nodes {
            let Key::Node(name) = key else { continue };
            let record: NodeRecord = serde_json::from_slice(&held.value)?;
            let name = name.to_string();
            let workers = record.workers.into_iter();
            let workers = workers.filter(|worker| !is_cut_off(&name, worker.index));
            living.extend(workers.map(|worker| worker.boot_id));
            map.nodes.insert(name);
        }
        for (key, held) in shards {
            let Key::Shard(number) = key else { continue };
            let entry = ShardEntry::from_json(&held.value)
                .with_context(|| format!("entry of shard {number}"))?;
            map.shards.insert(number.0, view(&entry, &living, self.replicas));
        }
        Ok(map)
    }
}

fn view(entry: &ShardEntry, living: &BTreeSet<String>, replicas: u8) -> ShardView {
    let node = |who: &Incarnation| who.worker.node.to_string();
    let lives = |who: &Incarnation| living.contains(&who.boot_id.to_string());
    let is_copy = |member: &&Member| {
        let is_to_stay = !member.is_yielding && !member.is_leaving;
        member.state == MemberState::Synced && is_to_stay && lives(&member.incarnation)
    };
    let primary = &entry.primary().incarnation;
    let copies = entry.members()[1..].iter().filter(is_copy).count();
    let at_slot = |slot| entry.at_slot(slot).is_some_and(|member| lives(&member.incarnation));
    let moves = entry.lanes().iter().filter_map(|lane| Some((lane.owner, lane.moving?.from)));
    let is_moving = moves.into_iter().any(|(owner, from)| at_slot(owner) && at_slot(from));
    ShardView {
        epoch: entry.epoch().0,
        primary: node(primary),
        members: entry.members().iter().map(|member| node(&member.incarnation)).collect(),
        is_whole: lives(primary) && copies >= usize::from(replicas) && !is_moving,
    }
}
