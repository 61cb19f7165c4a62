//! Traffic through weir that notices everything: each lost packet, each silence, each broken connection.
//!
//! ```text
//!   probes        a numbered datagram each way and millisecond, on a flow of each of several homes
//!   connections   TCP between two kernels' stacks: downloads, dialogues, idle ones that speak when called,
//!                 and short ones that come and go
//!   new flows     first datagrams of flows, and whether what follows comes from the same endpoint
//!   tunnelled     flows of thousands of homes that nobody answers, and the public endpoint that each came from
//!   pauses        times in which the machine, a sender or a worker got no core: no fault of what is measured
//! ```
//!
//! All times are microseconds of one [`Clock`]. Nothing here knows what fails; windows of time are cut out of what was
//! recorded.

mod client;
mod clock;
mod connections;
mod content;
mod ledger;
mod new_flows;
mod pause_watch;
mod pauses;
mod probes;
mod server;
mod stream_log;
mod tunnelled_flows;

pub use clock::{Clock, Micros, Window};
pub use connections::{Connections, Mixture};
pub use ledger::{ConnectionReport, Ledger, Pattern};
pub use new_flows::{NewFlowPlan, NewFlowReport, NewFlows};
pub use pause_watch::PauseWatch;
pub(crate) use pause_watch::family;
pub use pauses::{EXPLAINS_LOSS_MIN, Pause, paused_within};
pub use probes::{Change, FlowReport, ProbePlan, Probes};
pub use stream_log::{Bin, StreamLog, StreamReport};
pub use tunnelled_flows::{TunnelledFlowPlan, TunnelledFlows, Use};
