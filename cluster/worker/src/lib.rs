//! One turn of a worker's loop, for the node, the simulator, benchmarks and tests: the same code,
//! over their ports.
//!
//! ```text
//!   driver:   now -----> turn ------------------------------------------------------------> Turn
//!                         |  after a stall or a fence: late packets
//!   Ports     receive --> |  internet -> engine, access -> engine
//!   Link      commands -> |  in a cluster (Member): commands, datagrams, streams, redirects,
//!                         |                         output commit
//!   Link      <-- events  |                         events, end of a slot
//!   Ports     <---- send  |  the engine's timers, then both sides
//! ```
//!
//! - [`Worker`] owns the engine and runs the turn.
//! - [`ClusterMember`] is a worker's part of a turn in a cluster; a node of its own has none.
//! - [`Ports`] is where frames come from and go to, [`RolesLink`] joins a worker with the threads
//!   that watch and command it.
//! - [`to_log`] converts block events of the NAT to those of the block log.
//! - [`Rings`] and [`LocalLink`] are both in ordinary memory, for drivers of one thread.
//!
//! It has no thread, clock or system call: time is an argument.

#![forbid(unsafe_code)]

mod block_log;
mod link;
mod local_link;
mod member;
mod ports;
mod rings;
mod worker;

pub use block_log::to_log;
pub use link::{PEERS_MAX, RolesLink};
pub use local_link::LocalLink;
pub use member::ClusterMember;
pub use ports::Ports;
pub use rings::Rings;
pub use worker::{Turn, Worker};
