//! The controller: keeps the map of shards right. Any number run, one leads.
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
//! - [`state`] decides, and knows no I/O, no clock and no chance. [`process`] joins it with etcd and the questions to
//!   nodes, without I/O too. A simulator runs both unchanged.
//! - [`run`] carries a process on a thread, and decides nothing; [`ask`] asks nodes over HTTP.
//! - [`records`] are the JSON values that the controller, its operators and the nodes share.
//! - [`standing`] is what a controller shows of itself, in its metrics and as lines of its log.
//! - [`operate`] is the operator's side: orders, their progress, the events, the state in words.
//!
//! The data path never waits for a controller: a failover is over before this one has seen it. It
//! moves no packets, announces no routes, and asks no more of a node than its report.
#![forbid(unsafe_code)]

pub mod ask;
pub mod operate;
pub mod process;
pub mod records;
pub mod run;
pub mod standing;
pub mod state;
