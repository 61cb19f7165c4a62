//! NAT logs: who held which public ports when.
//!
//! ```text
//!   worker 1 --ring--+
//!   worker 2 --ring--+--> writer thread --> block log (JSON lines) --> where_was: who held address:port at a time?
//!   worker n --ring--+     rotated by SIGHUP
//! ```
//!
//! A line stands for a port block, not for a session: it is written when a block is given to a subscriber and when it is
//! taken back. Workers never wait: a full ring loses the record, counts it, and the log says so itself at that place.
//! When a file cannot be written the writer keeps its lines and tries again, so rings are the only place where
//! records are lost while the process lives.

#![forbid(unsafe_code)]

mod backlog;
mod event;
mod glance;
mod line;
mod log;
mod log_file;
mod replay;
mod rotated;
mod search;
mod sender;
mod writer;

pub use event::{BlockEvent, BlockEventKind};
pub use log::{BlockLog, BlockLogError, BlockLogHandle, Clock, LogCounters};
pub use rotated::{RotatedFiles, rotated_files};
pub use search::{Answer, End, Holder, SearchError, where_was, where_was_in_files};
pub use sender::BlockLogSender;
