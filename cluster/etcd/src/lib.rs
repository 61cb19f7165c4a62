//! etcd for the nodes and the controller: membership, the leader, the map.
//!
//! ```text
//!   owners on any thread        thread "etcd"
//!   --------------------        -------------
//!   Session, Election <-- claim -----+                                          etcd, one member
//!   Mirror <------------- mirror ----+--> link --orders--> transport --gRPC---> after the other
//!   Store --------------- requests --+      <---events---
//!                         '------ tasks: one loop --------'
//!
//!   in a simulator        the same claim, mirror and link --orders--> a model of etcd
//! ```
//!
//! [`EtcdLink`](link::EtcdLink), [`Claim`](claim::Claim) and [`MirrorClient`](mirror::MirrorClient)
//! decide, without I/O and clock: requests, events and the time go in, orders and events come out
//! ([`message`]). A simulator runs them unchanged, and so can any program that has a link of its
//! own, over a [`Transport`]. The transport and the loop do the I/O and decide nothing. Everything
//! is bounded: queues, lists, the time of a request, and the pace of attempts.
//!
//! Values are bytes (JSON) to this crate: it knows where things are, not what the map means. It
//! knows no shard, no data path and no packet, and nothing urgent waits for it: without etcd the
//! data path continues.

#![forbid(unsafe_code)]

pub mod back_off;
pub mod claim;
mod cluster;
mod contact;
mod counters;
mod election;
mod error;
mod keys;
mod leadership;
pub mod link;
mod list;
pub mod message;
pub mod mirror;
mod options;
mod owner;
mod revision;
mod secret_file;
mod session;
mod store;
pub mod swap;
mod tasks;
pub mod transaction;
mod transport;
mod txn;

pub use claim::state::ClaimEvent;
pub use cluster::EtcdCluster;
pub use contact::Contact;
pub use counters::Counts;
pub use election::{Election, LeaderRecord, candidacy};
pub use error::{Cause, Error};
pub use keys::{Key, KeyError, KeyRange, Keys};
pub use leadership::Leadership;
pub use mirror::event::{MirrorEvent, RestoreReason};
pub use options::{EtcdOptions, OptionsError, Password, TlsFiles, User};
pub use owner::Mirror;
pub use revision::{HistoryPosition, LeaseId, Revision, Versioned};
pub use secret_file::{SecretFileError, SecretFileReason, read_secret, read_secret_line};
pub use session::{NodeRecord, NodeSession, WorkerRecord, json, registration};
pub use store::Store;
pub use swap::{Outcome, Swap, SwapChange, TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX};
pub use transport::Transport;
pub use weir_ids::{ClusterName, NameError, NodeId, ShardId};
