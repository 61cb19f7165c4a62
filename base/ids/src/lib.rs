//! Identities of a cluster, one type each. A text becomes an identity once, where a file, a key or
//! a message is read; elsewhere no number or name is converted by hand.
//!
//! ```text
//!   ClusterName  north                      name of a cluster
//!   ShardId      7                          number of a shard
//!   NodeId       n1                         name of a node
//!   WorkerId     n1/0                       a worker of a node
//!   PeerId       address and port           where replication reaches a worker
//!   BootId       32 hexadecimal digits      one incarnation of a worker
//!   Incarnation  worker + boot id           holder of granted roles
//!   Lane         0 to 7                     a lane of a shard
//!   Epoch, Term  number of changes of a shard's map entry, and of its primary
//! ```

#![forbid(unsafe_code)]

mod count;
mod lane;
mod life;
mod name;
mod peer;
mod shard;
mod worker;

pub use count::{Epoch, Term};
pub use lane::{LANES, Lane};
pub use life::{BootId, Incarnation};
pub use name::{ClusterName, NameError, NodeId, is_name};
pub use peer::PeerId;
pub use shard::ShardId;
pub use worker::WorkerId;
