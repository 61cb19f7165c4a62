//! A node's membership: its key under `/nodes/`, which lives as long as its lease.
//!
//! A second process of the same name is refused while the first one's lease lives ([`ClaimEvent::HeldByOther`]) and
//! takes over by itself when it has ended, at once if it knows that the first one has ended. A node that lost its lease
//! registers again by itself.
//! Does not decide what an expired lease means: the data path goes on without etcd.

use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_ids::NodeId;

use crate::claim::Claim;
use crate::claim::state::ClaimEvent;
use crate::error::Error;
use crate::keys::Key;
use crate::options::Options;
use crate::owner::ClaimOwner;
use crate::revision::Revision;
use crate::tasks::Commands;

/// The value of a node's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Different each time that the process starts.
    pub boot_id: String,
    /// Version of weir.
    pub version: String,
    /// What fails together with the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// How much the node can serve, in the operator's own unit.
    pub capacity: u32,
    /// Every worker that can hold shards. Empty: the node does not say, so nothing is decided on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerRecord>,
    /// Where it answers what controllers ask, over HTTP. None: nobody can ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// It is about to end: others take its shards over while it still serves them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopping: bool,
    /// It began without etcd, and has taken copies of shards that only former lives of it are members of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_copies: bool,
}

/// One worker of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Its position in the node's configuration.
    pub index: u16,
    /// 32 hexadecimal digits; different each time that the worker starts, or had been fenced.
    pub boot_id: String,
    /// The boot id of the former life whose seats it has resumed without etcd, until all entries name this life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
    /// Its share, relative to others. 0: none.
    pub weight: u32,
    /// What it can carry, in the unit of the shards' load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<u64>,
    /// Shards that it has room for, copies included. None: registered by a version that does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards_max: Option<u32>,
    /// Where copies of flows are sent to and from. None: it takes and sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<SocketAddrV4>,
}

/// A node's registration; ends when dropped, at once when closed.
#[derive(Debug)]
pub struct Session {
    claim: ClaimOwner,
}

/// The claim of a node's key. `ended` are boot ids of processes of this node that have certainly ended.
pub fn registration(
    options: &Options,
    name: NodeId,
    record: &NodeRecord,
    ended: Vec<String>,
    now: Instant,
) -> Claim {
    let (key, boot_id) = (Key::Node(name), record.boot_id.clone());
    Claim::new(options, &key, boot_id, Duration::ZERO, json(record), now).after(ended)
}

impl Session {
    pub(crate) fn open(commands: Commands, options: &Options, registration: Claim) -> Self {
        Self { claim: ClaimOwner::open(commands, options, registration) }
    }

    /// What happened next. Cancel safe. Never none: the session tries for as long as it lives.
    pub async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.claim.next_event().await
    }

    /// The create revision of our key, if we are registered as far as we can know.
    pub fn registered(&self) -> Option<Revision> {
        let held = self.claim.held()?;
        (Instant::now() < held.valid_until).then_some(held.create_revision)
    }

    /// Writes another record, with the same boot id.
    pub fn update(&self, record: &NodeRecord) {
        self.claim.replace(json(record));
    }

    /// Leaves the cluster at once.
    ///
    /// # Errors
    /// When etcd could not be told; the key then goes when the lease ends.
    pub async fn close(self) -> Result<(), Error> {
        self.claim.close().await
    }
}

/// A record as its key holds it.
pub fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record of texts and numbers is JSON")
}
