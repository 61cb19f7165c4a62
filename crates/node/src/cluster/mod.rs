//! A node's part in a cluster: what joins [`weir_member`], which decides and copies, with etcd, the guard and the workers.
//!
//! ```text
//!   etcd <--mirror, session, writes--> roles thread --lists of routes--> routes thread --> guard process
//!                                        |   ^
//!                                 orders |   | news, traffic, signs of life
//!                                        v   |
//!                                   worker threads <--datagrams--> workers of other nodes
//! ```
//!
//! Nothing here decides what becomes of a shard, and no packet waits for it.

mod bird_thread;
mod connect;
mod etcd_tasks;
mod first_look;
mod guard_thread;
mod inbox;
mod join;
mod key_state;
mod known_map;
mod life_file;
mod map_saver;
mod member_board;
mod membership;
mod news_queue;
mod outside;
mod roles_thread;
mod show;
mod worker_part;

pub(crate) use join::Joining;
pub(crate) use member_board::MemberBoard;
pub(crate) use membership::{HAND_OVER_MAX, Membership};
pub(crate) use worker_part::{ThreadLink, WorkerPart};
