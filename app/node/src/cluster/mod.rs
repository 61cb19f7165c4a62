//! Membership of a node in a cluster: the threads, sockets and files around [`weir_node_core`],
//! which decides, and [`weir_replication`], which copies.
//!
//! ```text
//!   etcd <--mirror, session, writes--> roles thread --routes--> routes thread --> guard process
//!                                        |   ^
//!                               commands |   | events, traffic, heartbeats
//!                                        v   |
//!                                   worker threads <--datagrams--> workers of other nodes
//! ```
//!
//! This module decides nothing about a shard, and no packet waits for it.

mod bird_thread;
mod connect;
mod etcd_tasks;
mod first_look;
mod guard_thread;
mod inbox;
mod join;
mod key_state;
mod life_file;
mod map_file;
mod member_snapshot;
mod membership;
mod roles_thread;
mod show;
mod thread_member;

pub(crate) use join::JoiningNode;
pub(crate) use member_snapshot::MemberSnapshot;
pub(crate) use membership::Membership;
pub(crate) use thread_member::{ThreadLink, ThreadMember};
pub(crate) use weir_node_core::HAND_OVER_MAX;
