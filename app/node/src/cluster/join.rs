//! A member's start, before there are packets: the guard, etcd, and the settings of the cluster.

use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use weir_config::{ClusterShard, CommitOnTimeout, Config, Desired, MemberFile, WorkerSettings};
use weir_engine::{CommitLimits, Uncommitted};
use weir_etcd::EtcdCluster;
use weir_map::{BootId, LANES, NodeId};
use weir_nat::ShardRoom;
use weir_node_core::ClusterRoom;
use weir_node_core::KnownMap;
use weir_node_core::first_look::FoundCluster;
use weir_node_core::setup::fingerprint;
use weir_replication::CommitOptions;
use weir_replication::{PeerId, Replication};
use weir_routes::{Guard, Heartbeat, SharedWords, WorkerIndex};
use weir_stream::{ClusterKeys, Identity, REPLICAS_MAX, VERSION_MAX, VERSION_MIN};
use weir_worker::PEERS_MAX;

use super::connect::{node_name, read_keys, start_cluster};
use super::first_look::wait_for_cluster;
use super::guard_thread::start_guard;
use super::inbox::{InboxReceiver, InboxSender, inbox};
use super::life_file::LifeFile;
use super::map_file::{MapFile, load};
use super::thread_member::{ThreadMember, WorkerLink, thread_member};
use crate::cores::keep_to;
use crate::engine_config::random;
use crate::failure::Failure;
use crate::start_progress::StartProgress;
use crate::state_folder::state_folder;

/// Packets of a worker that may wait for copies at once: 40 ms of 100,000 new flows a second.
const COMMIT_HELD_MAX: usize = 4096;
/// Changes that may wait: more than packets, since changes without a packet count, too.
const COMMIT_CHANGES_MAX: usize = 16_384;
/// Shortest time between two datagrams to one copy with changes that packets wait for: a small
/// datagram costs nearly as much as a full one.
const COMMIT_PACE_US: u64 = 120;

/// Environment variable for tests of upgrades: the latest version of the replication protocol that
/// the node speaks.
const VERSION_LIMIT: &str = "WEIR_TEST_VERSION_MAX";

/// A node that knows its cluster and has not registered in it yet.
#[derive(Debug)]
pub(crate) struct JoiningNode {
    pub member: MemberFile,
    pub desired: Desired,
    pub(super) name: NodeId,
    pub(super) cluster: EtcdCluster,
    pub(super) keys: ClusterKeys,
    pub(super) words: Arc<SharedWords>,
    pub(super) guard: Guard,
    pub(super) map: KnownMap,
    pub(super) map_file: MapFile,
    /// Whether the cluster is known from the disk, because etcd does not answer.
    pub(super) is_without_etcd: bool,
    pub(super) cluster_id: String,
    pub(super) life: LifeFile,
    /// One for each worker: it identifies an incarnation of the worker.
    pub(super) boot_ids: Vec<BootId>,
    /// Versions of the replication protocol.
    versions: RangeInclusive<u8>,
    pub(super) links: Vec<WorkerLink>,
    pub(super) inbox: InboxSender,
    pub(super) messages: InboxReceiver,
}

impl JoiningNode {
    /// Starts the guard and the etcd thread, and waits until the cluster file has been applied, for
    /// as long as it takes; `progress` shows what is waited for. A node that was part of the
    /// cluster before does not wait for an etcd that does not answer.
    ///
    /// # Errors
    /// When something on this machine is wrong; the failure names it.
    pub(crate) fn begin(
        member: &MemberFile,
        control_cores: &[usize],
        progress: &StartProgress,
    ) -> Result<Self, Failure> {
        let keys = read_keys(&member.cluster.key_file)?;
        let mut life = LifeFile::take(&state_path(member, "life"))?;
        let path = state_path(member, "json");
        let mut map = load(&path).map_err(|error| {
            Failure::Cluster(format!(
                "{}: {error}; it keeps a restored etcd from undoing what is newer",
                path.display()
            ))
        })?;
        let words = SharedWords::new(member.workers.len()).map_err(Failure::Control)?;
        let words = Arc::new(words);
        // The guard starts before all other processes and threads: a small process starts it, and
        // it inherits nothing from the node.
        let guard = start_guard(Arc::clone(&words))?;
        let name = node_name(&member.node.name)?;
        let cores = control_cores.to_vec();
        let seed = random().map_err(Failure::Control)?;
        let cluster = start_cluster(&member.cluster, seed as u64, move || keep_to(&cores))?;
        let boot_ids = member.workers.iter().map(|_| random().map(BootId));
        let boot_ids = boot_ids.collect::<Result<_, _>>().map_err(Failure::Control)?;
        let boot_ids: Vec<BootId> = boot_ids;
        life.begin(&boot_ids[0].to_string());
        let FoundCluster { cluster_id, desired, is_without_etcd } =
            wait_for_cluster(&cluster, &map, &member.cluster.name, progress);
        map.set_cluster(&cluster_id);
        let (inbox, messages) = inbox();
        let map_file = MapFile::new(path, inbox.clone());
        Ok(Self {
            member: member.clone(),
            desired,
            name,
            cluster,
            keys,
            words,
            guard,
            map,
            map_file,
            is_without_etcd,
            cluster_id,
            life,
            boot_ids,
            versions: versions(),
            links: Vec::new(),
            inbox,
            messages,
        })
    }

    /// Returns the memory that the node shares with its guard.
    pub(crate) fn words(&self) -> Arc<SharedWords> {
        Arc::clone(&self.words)
    }

    /// Returns the address at which other workers reach this one.
    pub(super) fn replication_of(&self, worker: &WorkerSettings) -> SocketAddrV4 {
        SocketAddrV4::new(worker.replication_address, self.desired.cluster.replication_port)
    }

    /// Returns the room that each worker needs for shards, copies and peers.
    pub(crate) fn rooms(&self) -> Vec<ClusterRoom> {
        let desired = &self.desired;
        let addresses = |shard: &ClusterShard| -> u64 {
            shard.public.iter().map(|net| 1_u64 << (32 - net.prefix_len())).sum()
        };
        // A worker may get the largest shards.
        let addresses_max = desired.shards.iter().map(addresses).max().unwrap_or(0);
        let homes_max = desired.shards.iter().map(|shard| shard.subscribers_max).max().unwrap_or(0);
        let room = |worker: &WorkerSettings| {
            let shards = desired.shard_room(worker);
            ClusterRoom {
                shards: ShardRoom {
                    shards: u16::try_from(shards).unwrap_or(u16::MAX),
                    public_addresses: u32::try_from(addresses_max * shards as u64)
                        .unwrap_or(u32::MAX),
                    subscribers: homes_max.saturating_mul(shards as u32),
                },
                replicas: desired.cluster.replicas.max(1),
                peers: PEERS_MAX,
                replication_port: desired.cluster.replication_port,
                commit: commit_limits(desired),
            }
        };
        self.member.workers.iter().map(room).collect()
    }

    /// Returns what a worker's thread needs as a member: its replication and its link.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(crate) fn thread_member(&mut self, worker: usize) -> Result<ThreadMember, Failure> {
        let config = &self.member.workers[worker];
        let shards_max = self.desired.shard_room(config);
        let mut secret = [0; 32];
        for half in secret.chunks_exact_mut(16) {
            half.copy_from_slice(&random().map_err(Failure::Control)?.to_ne_bytes());
        }
        let identity = Identity {
            worker: PeerId::at(self.replication_of(config)),
            boot: self.boot_ids[worker],
            secret,
        };
        let options = weir_stream::StreamOptions {
            peers_max: PEERS_MAX as u16,
            // Each lane of each shard, to each replica.
            copies_max: shards_max * LANES * REPLICAS_MAX,
            versions: self.versions.clone(),
            ..replica_options(&self.desired)
        };
        let mut replication = Replication::new(
            options,
            identity,
            fingerprint(&self.desired),
            self.keys.clone(),
            shards_max,
        )
        .map_err(|error| Failure::Cluster(error.to_string()))?;
        if let Some(limits) = commit_limits(&self.desired) {
            replication.await_replicas(CommitOptions {
                replicas: self.desired.commit_replicas().into(),
                is_strict: limits.policy == Uncommitted::Drop,
                changes_max: limits.changes_max,
                pace_us: COMMIT_PACE_US,
            });
        }
        let heartbeat = Heartbeat::new(Arc::clone(&self.words), worker as WorkerIndex);
        let (member, link) =
            thread_member(worker, replication, heartbeat, self.messages.add_worker(), shards_max);
        self.links.push(link);
        Ok(member)
    }

    /// Returns the configuration of a standalone node without a shard: shards are added later, one
    /// by one.
    pub(crate) fn config(&self) -> Config {
        self.desired.config_of(&self.member, [])
    }
}

/// Returns the limits of packets that wait for copies; `None` if no shard makes packets wait.
fn commit_limits(desired: &Desired) -> Option<CommitLimits> {
    desired.is_any_committed().then(|| CommitLimits {
        held_max: COMMIT_HELD_MAX,
        changes_max: COMMIT_CHANGES_MAX,
        timeout_ms: desired.cluster.commit_timeout_ms.into(),
        policy: match desired.cluster.commit_on_timeout {
            CommitOnTimeout::Release => Uncommitted::Release,
            CommitOnTimeout::Drop => Uncommitted::Drop,
        },
    })
}

/// Returns the versions of the replication protocol that this node speaks.
fn versions() -> RangeInclusive<u8> {
    let limit = std::env::var(VERSION_LIMIT).ok().and_then(|limit| limit.parse().ok());
    let Some(limit) = limit.filter(|limit| (VERSION_MIN..VERSION_MAX).contains(limit)) else {
        return VERSION_MIN..=VERSION_MAX;
    };
    tracing::warn!(
        event = "config-warning",
        "{VERSION_LIMIT} is set: this node speaks the replication protocol up to version {limit}, \
         not {VERSION_MAX}, as if it were an earlier build; unset it"
    );
    VERSION_MIN..=limit
}

/// Returns the options of replication. If packets wait for copies, changes of other workers are
/// acknowledged at once.
fn replica_options(desired: &Desired) -> weir_stream::StreamOptions {
    let defaults = weir_stream::StreamOptions::default();
    let acknowledge_us = if desired.is_any_committed() { 0 } else { defaults.acknowledge_us };
    weir_stream::StreamOptions { acknowledge_us, ..defaults }
}

/// Returns the path of a state file of the node.
fn state_path(member: &MemberFile, extension: &str) -> PathBuf {
    state_folder().join(format!("{}.{extension}", member.node.name))
}
