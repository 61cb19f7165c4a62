//! Output commit: whatever a worker sent, the survivors know of, whoever dies at whatever instant.

mod member;
#[path = "../replication/network.rs"]
mod network;
mod survivors;
