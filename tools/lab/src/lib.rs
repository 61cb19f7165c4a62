//! A network laboratory in namespaces: real daemons, real clients, weir between them.
//!
//! ```text
//!   home1 --\                                                      /-- 198.51.100.1, .2
//!   home2 ---+-- access --acc0-- weir --net0-- core ---- internet <    nginx, dnsmasq, iperf3,
//!   home3 --/    (router)                     (router)             \-- STUN
//! ```
//!
//! Each box is a network namespace, each line a veth pair. A [`Lab`] owns what it makes
//! (namespaces, processes, a directory for logs) under names that contain its process id, and
//! removes it when it is dropped, when a test panics and when a signal ends the process; the next
//! start removes the remains of a killed process. Nothing else on the machine is touched.

#![forbid(unsafe_code)]

pub mod bird;
pub mod clients;
pub mod cluster;
pub mod condition;
pub mod echo;
pub mod exchange;
pub mod failover;
pub mod frr;
mod held_thread;
pub mod home;
mod huge_pages;
pub mod injector;
mod interrupt;
pub mod lab;
pub mod load;
pub mod log_proof;
pub mod machine;
pub mod malformed;
pub mod metrics;
pub mod namespace;
pub mod one_node;
mod patch;
pub mod process;
pub mod program;
pub mod services;
mod stale;
pub mod steering;
mod threads;
pub mod veth;
pub mod weir;
pub mod weir_config;

pub use condition::wait_for;
pub use echo::Echo;
pub use home::Home;
pub use lab::Lab;
pub use namespace::Namespace;
pub use one_node::{Access, Datapath, OneNode, Options};
pub use process::Process;
pub use weir::Weir;
pub use weir_config::{WeirConfig, WeirIpv6};
