//! A worker's part in the cluster, without I/O: what it copies to whom, and which role it has for each shard.
//!
//! ```text
//!   control thread                                         worker thread
//!   --------------                                         -------------
//!   store's entries, nodes --> Roles -----Order----------> Replication <--> Engine, Nat
//!   time, ports          --->    |  <-----News-----------      |
//!                                |  <--traffic, heartbeats--   +--datagrams--> other workers
//!                                +--> changes for the store, routes for the guard
//! ```
//!
//! - [`Roles`] decides: a role machine for each shard of each worker of a node, and what follows from them all.
//! - [`Replication`] does: it carries changes between the NAT and the streams, and tells what it saw.
//! - [`order`] and [`news`] are all that the two say to each other; either may run anywhere.
//!
//! Orders are levels: the newest replaces what was ordered before, and doing one again changes nothing. News are
//! edges; who loses one asks by ordering again.

#![forbid(unsafe_code)]

pub mod hold_off;
pub mod news;
pub mod order;
pub mod replication;
pub mod roles;
mod standstill;

pub use hold_off::HoldOff;
pub use news::News;
pub use order::Order;
pub use replication::Replication;
pub use roles::Roles;
pub use standstill::{LATE_MAX_US, STANDSTILL_US, Standstill};
pub use weir_ids::PeerId;
