//! Replication of the tables: which worker writes a lane, how its changes reach the workers that
//! hold copies, and what a worker does for a lane that another one owns.
//!
//! ```text
//!   a record of an owned lane changes             a change of another worker's lane arrives
//!     journal: a mark                               mirror: into the slot that the owner gave it
//!     change, images: what is sent                  attach: home, port, both indexes
//!     lane_copy: all records, in slot order         owner_update: traffic seen here, to the owner
//!     commit: packets that wait for replicas        duplicate: two mappings become one again
//! ```
//!
//! Mappings and further sessions are each a kind of record (`lane_record`).
//!
//! All of this is called through [`Replica`](facet::Replica) and [`ReplicaMut`](facet::ReplicaMut).
//! Streams, workers and their order are `cluster/replication`.

pub(crate) mod attach;
pub(crate) mod change;
pub(crate) mod change_body;
pub(crate) mod commit;
mod duplicate;
pub(crate) mod facet;
pub(crate) mod image;
pub(crate) mod journal;
pub(crate) mod lane;
mod lane_copy;
mod lane_forget;
pub(crate) mod lane_record;
pub(crate) mod mirror;
mod mirror_clear;
mod mirror_session;
pub(crate) mod owner_update;
mod ownership;
mod replica_lookup;
pub(crate) mod session_image;

#[cfg(test)]
mod mirror_tests;
