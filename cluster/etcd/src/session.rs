//! A node's membership: its key under `/nodes/`, which lives as long as its lease.
//!
//! A second process of the same name is refused while the first one's lease is alive
//! ([`ClaimEvent::HeldByOther`]). It takes over automatically when the lease has ended, or at once
//! if it knows that the first process has ended. A node that lost its lease registers again
//! automatically.
//! A session does not decide what an expired lease means: the data path continues without etcd.

use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_ids::NodeId;

use crate::claim::Claim;
use crate::claim::state::ClaimEvent;
use crate::error::Error;
use crate::keys::Key;
use crate::options::EtcdOptions;
use crate::owner::ClaimOwner;
use crate::revision::Revision;
use crate::tasks::Commands;

/// The value of a node's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Changes with each start of the process.
    pub boot_id: String,
    /// Version of weir.
    pub version: String,
    /// Failure domain of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Capacity of the node, in the operator's own unit.
    pub capacity: u32,
    /// Every worker that can hold shards. Empty: the node does not list them, so nothing is decided
    /// on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerRecord>,
    /// Address of its HTTP interface for controllers. None: it cannot be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// Whether it is about to end: others take its shards over while it still serves them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopping: bool,
    /// Whether it started without etcd and has copies of shards of which only its earlier
    /// incarnations are members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_copies: bool,
}

/// One worker of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Its position in the node's configuration.
    pub index: u16,
    /// 32 hexadecimal digits; changes when the worker starts, and after it was fenced.
    pub boot_id: String,
    /// Boot id of the earlier incarnation whose member slots this one has resumed without etcd,
    /// until all entries name this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
    /// Its share of the shards, relative to others. 0: none.
    pub weight: u32,
    /// Highest load that it can carry, in the unit of the shards' load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<u64>,
    /// Most shards that it has room for, copies included. None: registered by a version that does
    /// not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards_max: Option<u32>,
    /// Address for sending and receiving copies of flows. None: it replicates nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<SocketAddrV4>,
}

/// A node's registration; ends when dropped, at once when closed.
#[derive(Debug)]
pub struct NodeSession {
    claim: ClaimOwner,
}

/// Creates the claim of a node's key. `ended` are boot ids of processes of this node that have
/// certainly ended.
pub fn registration(
    options: &EtcdOptions,
    name: NodeId,
    record: &NodeRecord,
    ended: Vec<String>,
    now: Instant,
) -> Claim {
    let (key, boot_id) = (Key::Node(name), record.boot_id.clone());
    Claim::new(options, &key, boot_id, Duration::ZERO, json(record), now).after(ended)
}

impl NodeSession {
    pub(crate) fn open(commands: Commands, options: &EtcdOptions, registration: Claim) -> Self {
        Self { claim: ClaimOwner::open(commands, options, registration) }
    }

    /// Returns the next event. Cancel safe. Never none: the session tries as long as it exists.
    pub async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.claim.next_event().await
    }

    /// Returns the create revision of the node's key, if it is registered as far as can be known.
    pub fn registered(&self) -> Option<Revision> {
        let held = self.claim.held()?;
        (Instant::now() < held.valid_until).then_some(held.create_revision)
    }

    /// Replaces the record, with the same boot id.
    pub fn update(&self, record: &NodeRecord) {
        self.claim.replace(json(record));
    }

    /// Leaves the cluster at once.
    ///
    /// # Errors
    /// When the lease could not be revoked; the key then goes when the lease ends.
    pub async fn close(self) -> Result<(), Error> {
        self.claim.close().await
    }
}

/// Serializes a record as its key holds it.
pub fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record of texts and numbers is JSON")
}
