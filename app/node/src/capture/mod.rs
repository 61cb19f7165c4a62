//! Capturing frames of any DPDK device, which tcpdump cannot see.
//!
//! ```text
//!   worker: capture point (copy, ring) ==> control thread: inner -> filter -> pcapng
//!                                      ==> HTTP body ==> weir capture -w F
//! ```
//!
//! A capture that is off costs the worker one local branch per burst. During a capture the worker
//! copies frames into a bounded ring and never waits: frames that find the ring full are counted.
//! Filtering and writing happen on a control core.

mod capture_point;
mod filter;
mod inner;
mod pcapng;
mod recorder;

pub(crate) use capture_point::{CapturePoint, CaptureReader, capture_point};
pub(crate) use recorder::{CaptureOptions, CaptureRecorder};
