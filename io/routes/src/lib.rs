//! Routes for the switches that die with their owner, and the guard process that holds them.
//!
//! ```text
//!   roles, liveness --> wanted --> Guard (in the node) ==socket== guard process --netlink--> kernel tables
//!                                    ^                                ^                          |
//!   workers: Heartbeat ------------- shared words --------------------+                          v
//!                                                             switches <--BGP, BFD-- BIRD <-- learns
//! ```
//!
//! - [`wanted`] says which routes there shall be, [`difference`](difference::difference) in which steps;
//! - the [`Guard`] has them set by the guard process ([`guard`]), which withdraws them when its node or a worker
//!   ends, and makes them a last resort while a worker is silent;
//! - [`dump`] and [`bird::exported`] read back what became of them, [`comparison`] puts it beside what was wanted;
//! - [`bird_watch`] looks all the time whether BIRD announces anything, and says so when that has lasted.
//!
//! Metrics are plain numbers here: what they mean is the roles' affair. weir speaks no BGP: `packaging/bird` does.

mod frames;
mod guard_process;
mod kernel_tables;
mod life;
mod options;
mod owner;
mod protocol;
mod pulse;
mod route;
mod route_socket;
mod shared_words;

pub mod bird;
pub mod bird_watch;
pub mod comparison;
pub mod difference;
pub mod guard;
pub mod wanted;
pub mod watchdog;

pub use options::Options;
pub use owner::{Event, Guard, RequestError};
pub use protocol::{Failure, ProtocolError};
pub use route::{ROUTES_MAX, Route, Side, Tables, WORKERS_MAX, WorkerIndex};
pub use route_socket::{KernelRoute, dump};
pub use shared_words::{Decider, Fence, Heartbeat, SharedWords, Stake};
