//! Threads, admin API, metrics and the life cycle of one weir process.
//!
//! ```text
//!   control cores                                    worker cores, one thread each
//!   -------------                                    -----------------------------
//!   main thread: tokio                               rx -> engine -> tx
//!     admin API  ---- requests (bounded queue) ---->   request server (a piece per turn)
//!     metrics, status <---- stats (relaxed numbers) -- publisher
//!     capture    <---- capture point (ring of copies)
//!     signals    ---- stop flag --------------------->
//!   block log thread <---- ring of block events ------
//!   in a cluster: roles thread <-- commands, events --> worker; etcd, routes thread, guard process
//! ```
//!
//! A worker never waits for the control side. The control side never reads a worker's tables.
//! [`run`] and [`run_member`] are the whole process; [`weir_admin`] lists requests and answers of
//! its admin socket.

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub mod processor;

mod admin;
mod back_off;
mod block_events;
mod capture;
mod clock;
mod cluster;
mod collector_metrics;
mod collectors;
mod control;
mod cores;
mod counted_rules;
mod dpdk_ports;
mod drop_metrics;
mod duration_histogram;
mod engine_config;
mod failure;
mod forced_end;
mod generation_metrics;
mod generations;
mod life_cycle;
mod log_loss;
mod longest_turn;
mod member_metrics;
mod member_verdict;
mod memory;
mod metrics;
mod node;
mod notice_log;
mod page_policy;
mod panic_place;
mod ports;
mod publisher;
mod rates;
mod request;
mod request_server;
mod rule_log;
#[cfg(test)]
mod sample_node;
mod single_node;
mod start_progress;
mod state_folder;
mod status;
mod trace;
mod turns;
mod watch;
mod worker;
mod worker_stats;
mod worker_thread;

pub use failure::{EXIT_CODES, Failure};
pub use life_cycle::{run, run_member};
pub use single_node::SingleNode;
