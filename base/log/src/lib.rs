//! Log lines for a reader that may stall: a pipe to a service manager, a pager, a stopped terminal.
//!
//! ```text
//!   any thread --push--> [bounded queue] --> writer thread --write--> stderr, stdout
//!                         full: the line is lost and counted
//! ```
//!
//! - [`LineQueue::push`] never waits for the writer: it takes a lock that is held for the copy of
//!   one line.
//! - A line is written completely or lost completely, and the lines keep their order.
//! - A lost line is counted, and a line in its place states how many were lost there.
//!
//! The queue formats no line. Where systemd's journal reads the lines, [`Priority`] marks them for
//! `journalctl -p`.

#![forbid(unsafe_code)]

mod line_queue;
mod priority;

pub use line_queue::{LineQueue, LineWriter, ReaderProgress};
pub use priority::{Priority, is_journal};
