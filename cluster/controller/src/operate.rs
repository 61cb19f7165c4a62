//! The operator's side: orders to the controllers, and their results.
//!
//! An order is a key of etcd: it can be given while no controller runs, and outlives every
//! controller. Every order is a compare and swap, and is retried when another writer was faster.

mod apply;
mod map;
mod order;
mod status;
mod watch;
mod words;

pub use apply::{ApplyProgress, Comparison};
pub use map::{MemberLine, ShardLine, ShardState};
pub use order::{OperateError, Operator};
pub use status::{ClusterStatus, DrainProgress, MapVerdict};
pub use watch::{MapUpdate, MapWatch, NodeUpdate};
