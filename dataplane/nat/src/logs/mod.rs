//! Events for the block log and for collectors, in rings of fixed size between the data path and
//! their reader.

pub(crate) mod block_event;
mod block_listing;
pub(crate) mod rule_log;
pub(crate) mod session_log;
