//! NAT logs: which home held which public ports, and which IPv6 prefixes, at which time.
//!
//! ```text
//!   worker 1 --ring--+
//!   worker 2 --ring--+--> writer thread --> block log (JSON lines) --> search: which home
//!   worker n --ring--+     rotated by SIGHUP                         held address:port at a time?
//! ```
//!
//! A line stands for a port block or an IPv6 prefix, not for a session: it is written when a block
//! is assigned to a subscriber and when it is released. A block lies in a lane, and a lane has one
//! owner at a time, on any node: a new owner lists in its log the blocks that it found, so that the
//! logs of all nodes together contain the history of each block. Workers never wait: a full ring
//! loses the record and counts the loss, which the log records at that position. While a file
//! cannot be written the writer keeps its lines and tries again, so records are lost only in the
//! rings while the process runs.
//!
//! A search never guesses: each record has its position in the history of its lane, so that a
//! missing record, file or log of a node is detected, and the answer for that time is that the logs
//! cannot say.

#![forbid(unsafe_code)]

mod answer;
mod backlog;
mod event;
mod glance;
mod history;
mod holding;
mod line;
mod lineage;
mod lines;
mod log;
mod log_file;
mod mentions;
mod rotated;
mod runs;
mod scribe;
mod search;
mod sender;
mod source;
mod tenancy;
mod timeline;
mod verdict;
mod writer;

pub use answer::{Begin, BlockHolder, LogAnswer, LogVerdict, Missing, Reason, TenancyEnd};
pub use event::{AssignedBlock, BlockRecord, BlockRecordKind, NodeLife, PrefixClaim};
pub use holding::{Holding, Prefix64};
pub use log::{BlockLog, BlockLogError, BlockLogHandle, LogCounters, WallClock};
pub use rotated::{RotatedFiles, rotated_files};
pub use scribe::Scribe;
pub use search::{About, LogQuestion, search_files, search_logs};
pub use sender::BlockLogSender;
pub use source::SearchError;
