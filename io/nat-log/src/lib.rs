//! NAT logs: who held which public ports when.
//!
//! ```text
//!   worker 1 --ring--+
//!   worker 2 --ring--+--> writer thread --> block log (JSON lines) --> search: who held address:port at a time?
//!   worker n --ring--+     rotated by SIGHUP
//! ```
//!
//! A line stands for a port block, not for a session: it is written when a block is given to a subscriber and when it is
//! taken back. A block lies in a lane, and a lane has one owner at a time, on any node: what a new owner found is listed
//! in its log, so that the logs of all nodes together tell the life of each block. Workers never wait: a full ring loses
//! the record, counts it, and the log says so itself at that place. When a file cannot be written the writer keeps its
//! lines and tries again, so rings are the only place where records are lost while the process lives.
//!
//! A search never guesses: each record has its place in the history of its lane, so that a record, a file or the log of
//! a node that is missing is noticed, and the answer for that time is that the logs cannot say.

#![forbid(unsafe_code)]

mod answer;
mod backlog;
mod event;
mod glance;
mod history;
mod line;
mod lines;
mod log;
mod log_file;
mod mentions;
mod reign;
mod rotated;
mod runs;
mod scribe;
mod search;
mod sender;
mod source;
mod timeline;
mod verdict;
mod writer;

pub use answer::{Answer, Begin, End, Holder, Missing, Reason, Verdict};
pub use event::{Block, BlockEvent, BlockEventKind, NodeLife};
pub use log::{BlockLog, BlockLogError, BlockLogHandle, Clock, LogCounters};
pub use rotated::{RotatedFiles, rotated_files};
pub use scribe::Scribe;
pub use search::{About, Question, search_files, search_logs};
pub use sender::BlockLogSender;
pub use source::SearchError;
