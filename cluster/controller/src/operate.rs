//! The operator's side: orders to the controllers, and what they make of them.
//!
//! An order is a key of etcd: it needs no controller that runs just now, and survives all of them.
//! Every order is a compare and swap, and is repeated when somebody else wrote at the same time.

mod apply;
mod map;
mod order;
mod status;
mod watch;
mod words;

pub use apply::{ApplyProgress, Comparison};
pub use map::{MemberLine, ShardLine, ShardState};
pub use order::{OperateError, Operator};
pub use status::{ClusterStatus, DrainProgress, Verdict};
pub use watch::{MapNews, MapWatch, NodeNews};
