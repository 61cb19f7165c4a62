//! The records of flows: mappings and further sessions, their TCP states, their timers, and which
//! remotes a mapping lets in.

pub(crate) mod checksum_deltas;
pub(crate) mod class_timeouts;
mod filtering;
pub(crate) mod mapping;
pub(crate) mod session;
mod session_list;
pub(crate) mod session_state;
pub(crate) mod tcp_state;
pub(crate) mod timeouts;
