//! The way of chosen packets through the workers, as text.
//!
//! ```text
//!   worker: engine records a packet's way --> ring
//!   control task: ring --> steps --> JSON line ==> weir trace
//! ```
//!
//! While no trace runs the worker tests nothing but whether a capture or a trace runs, once a
//! burst. The worker writes values of a fixed size into a ring that the requester has allocated;
//! text is made of them on a control core.

mod edits;
mod steps;
mod trace_point;

pub(crate) use steps::traced_packet;
pub(crate) use trace_point::{TracePoint, TraceReader, trace_point};
