//! Proves the block logs: after faults under load the logs of all nodes are asked who had the
//! endpoints that a server saw.
//!
//! ```text
//!   datagrams at the server --> sample --.
//!   block logs --> log book: takeovers,   +--> questions --> weir where, with all logs and
//!       |          ends of nodes --------'                   without some --> verdicts --> table
//!       |                                                     ^
//!       '--> times moved, as if clocks differed --------------'
//! ```
//!
//! The truth comes from the homes alone: the log book only determines which questions are hard, and
//! which may stay without an answer since a node ended without closing its log.

mod ask;
mod log_book;
mod log_times;
mod questions;
mod sample;
mod tally;
mod verdict;

pub use ask::{Asked, Logs, NodeLog, ask_all};
pub use log_book::{LogBook, last_mark_ms};
pub use log_times::moved;
pub use questions::{Question, select};
pub use sample::Sample;
pub use tally::Tally;
pub use verdict::{About, Outcome};
