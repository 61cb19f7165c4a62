//! The controller: keeps the map of shards right. Any number of controllers run, one leads.
//!
//! ```text
//!   operator --orders--> etcd <---compare and swap, leader's key compared too---+
//!                         |                                                     |
//!                         | mirror of all keys                                  |
//!                         v                                                     |
//!   nodes --reports--> [process] --Event--> state::Controller --Action--> [process]
//!                         ^ election, one write or read at a time (both pure)
//!                         | events, reports, the time
//!                       [run]: sockets, clocks, HTTP
//! ```
//!
//! - [`state`] decides, without I/O, clock or randomness. [`process`] joins it with etcd and with
//!   the questions to nodes, also without I/O. A simulator runs both unchanged.
//! - [`run`] drives a process on a thread, and decides nothing; [`ask`] asks nodes over HTTP.
//! - [`records`] are the JSON values that the controller, its operators and the nodes share.
//! - [`standing`] is the state that a controller shows in its metrics and its log.
//! - [`operate`] is the operator's side: orders, their progress, the events, the state in words.
//!
//! The data path never waits for a controller: a failover is complete before the controller sees
//! it. The controller moves no packets, announces no routes, and asks a node for nothing but its
//! report.
#![forbid(unsafe_code)]

pub mod ask;
pub mod operate;
pub mod process;
pub mod records;
pub mod run;
pub mod standing;
pub mod state;
