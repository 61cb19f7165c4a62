//! Routes for the switches, which are withdrawn when their owner ends, and the guard process that
//! holds them.
//!
//! ```text
//!   roles, liveness --> wanted --> Guard (in the node) ==socket== guard process --netlink--+
//!                                    ^                                ^                    v
//!   workers: Heartbeat ------------- shared words --------------------+             kernel tables
//!                                                                                          |
//!                                                                                          v
//!                                                  switches <--BGP, BFD-- BIRD <-------- learns
//! ```
//!
//! - [`wanted`] computes which routes there shall be, [`difference`](difference::difference) the
//!   steps to them;
//! - the [`Guard`] has them set by the guard process ([`guard`]), which withdraws them when its
//!   node or a worker ends, and makes them a last resort while a worker is silent;
//! - [`dump`] and [`bird::exported`] read the routes back, [`comparison`] compares them with the
//!   wanted ones;
//! - [`bird_watch`] checks all the time whether BIRD announces the routes, and reports a change
//!   once it has lasted.
//!
//! Metrics are plain numbers here, whose meaning the roles define. weir speaks no BGP:
//! `packaging/bird` does.

mod bird_report;
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

pub use options::GuardOptions;
pub use owner::{Guard, GuardEvent, RequestError};
pub use protocol::{ProtocolError, RouteFailure};
pub use route::{ROUTES_MAX, Route, RouteSide, RouteTables, WORKERS_MAX, WorkerIndex};
pub use route_socket::{KernelRoute, dump};
pub use shared_words::{Decider, Fence, Heartbeat, SharedWords, Stake};
