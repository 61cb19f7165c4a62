//! The whole cluster in virtual time, from one seed: the worker's turn, the node's core, the
//! clients of etcd and the controller's process are the production code; links, switches, etcd,
//! disks, clocks and homes are simulated.
//!
//! ```text
//!   seed --> Options (fault model), faults (a plain list) --> World: queue of events --> Outcome
//!                                       ^                                                  |
//!                                       +------ shrink: fewer faults, run again -----------+
//! ```
//!
//! - A history is its seed and its list of faults: two runs are equal event by event.
//! - The invariants are checked while it runs (`world/checks.rs`, `world/lanes.rs`, `traffic.rs`;
//!   for messages that wait for a core `world/messages.rs`, for packets that wait for copies
//!   `world/commit.rs`, for the homes of IPv6 prefixes `world/prefixes.rs`); after the last fault
//!   the cluster must become whole, and lose nothing from then on.
//! - It uses no threads and no clock: time is virtual, in microseconds.
//!
//! Not simulated: homes without tunnels, ICMP errors, fragments, the kernel, DPDK, BGP itself
//! (routes arrive late), and computing time beyond a fixed cost.

#![forbid(unsafe_code)]

mod clock;
pub mod control;
pub mod dice;
pub mod etcd;
pub mod fault;
mod node;
pub mod options;
pub mod planted;
mod play;
mod queue;
pub mod schedule;
mod shrink;
mod site;
mod switch;
mod timeline;
mod traffic;
mod world;

pub use play::{Outcome, play, play_with};
pub use shrink::shrink;
pub use world::{Counts, LogCounts, RoleCounts};
