//! etcd for the nodes and the controller: who is there, who leads, what the map says.
//!
//! ```text
//!   node, controller                    thread "etcd" (tokio)
//!   ----------------                    ---------------------
//!   Session  <-- events ----- task <--> ClaimState --+
//!   Election <-- events ----- task <--> ClaimState --+--> Link: one connection, --> etcd member
//!   Mirror   <-- events ----- task <--> MirrorState -+    the next member after
//!   Store    --- requests ---------------------------+    a failure
//! ```
//!
//! The states decide and know no I/O ([`claim::state`], [`mirror::state`], [`claim::transactions`], [`swap`], [`back_off`]): a
//! simulator runs them unchanged. The tasks do the I/O and decide nothing. Everything is bounded: queues, lists, the time of
//! a request, and the pace of attempts.
//!
//! Values are bytes (JSON) to this crate: it knows where things are, not what the map means. It knows no shard, no
//! data path and no packet, and nothing that is urgent waits for it: when etcd is gone, the data path goes on.

#![forbid(unsafe_code)]

pub mod back_off;
pub mod claim;
mod cluster;
mod counters;
mod election;
mod error;
mod keys;
mod link;
mod list;
pub mod mirror;
mod options;
mod revision;
mod secret_file;
mod session;
mod store;
pub mod swap;
pub mod transaction;
mod txn;

pub use claim::state::ClaimEvent;
pub use cluster::Cluster;
pub use counters::Counts;
pub use election::{Election, LeaderRecord, Leadership};
pub use error::{Cause, Error};
pub use keys::{Key, KeyError, Keys, Range};
pub use mirror::Mirror;
pub use mirror::event::{MirrorEvent, RestoreReason};
pub use options::{Options, OptionsError, Password, TlsFiles, User};
pub use revision::{LeaseId, Place, Revision, Versioned};
pub use secret_file::{SecretFileError, SecretFileReason, read_secret, read_secret_line};
pub use session::{NodeRecord, Session, WorkerRecord};
pub use store::Store;
pub use swap::{Change, Outcome, Swap, TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX};
pub use weir_ids::{ClusterName, NameError, NodeId, ShardId};
