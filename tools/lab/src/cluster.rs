//! A cluster of nodes between two switches, with everything around it.
//!
//! ```text
//!   homes --GRE--> access switch == worker ports, node kernels == internet switch -- server
//!   10.200.0.n     10.9.0.254       node n: 10.9.0.10n, 10.9.0.n  10.10.0.254        198.51.100.1
//!                                           10.10.0.10n, 10.10.0.n
//!                                       |
//!                                  management 10.8.0.254: etcd, controllers
//! ```
//!
//! Each switch is a bridge with an address and a routing daemon. Each node has two ports on it:
//! that of its worker, which weir drives, and one of its kernel, where BIRD peers with the switch.
//! So all workers of a side share a subnet, and replicate over it. IPv6 beside this: `ipv6.rs`.

mod files;
mod homes;
mod ipv6;
mod lab;
mod map;
mod network;
mod node;
mod public;
mod site;
mod store;
mod supervisor;

pub use files::{ClusterFiles, HOMES, OnTimeout, OutputCommit, SHARDS};
pub use homes::ClusterHomes;
pub use ipv6::worker as worker6;
pub use lab::{ClusterLab, ClusterOptions};
pub use map::{Map, MapReader, Move, ShardView};
pub use network::ClusterNetwork;
pub use node::ClusterNode;
pub use store::ControlPlane;
pub use supervisor::Supervised;
