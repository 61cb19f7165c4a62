//! Traffic through weir that records each lost packet, each silence and each broken connection.
//!
//! ```text
//!   probes        a numbered datagram each way and interval, on flows of several homes
//!   connections   TCP between two kernels' stacks: downloads, dialogues, idle ones that send when
//!                 called, and short ones that come and go
//!   new flows     first datagrams of flows, and whether later ones come from the same endpoint
//!   tunnelled     unanswered flows of thousands of homes, and the public endpoint of each
//!   pauses        times in which the machine, a sender or a worker got no core: not weir's fault
//! ```
//!
//! All times are microseconds of one [`Clock`]. This module knows nothing of the faults; windows of
//! time are cut out of the recorded data.

mod client;
mod clock;
mod connections;
mod content;
mod ip_version;
mod ledger;
mod new_flows;
mod pause_watch;
mod pauses;
mod probes;
mod server;
mod server_address;
mod stream_log;
mod tunnelled_flows;

pub use clock::{Clock, Micros, Window};
pub use connections::{Connections, Mixture};
pub use ip_version::IpVersion;
pub use ledger::{ConnectionReport, Ledger, Pattern};
pub use new_flows::{NewFlowPlan, NewFlowReport, NewFlows};
pub use pause_watch::PauseWatch;
pub(crate) use pause_watch::family;
pub use pauses::{EXPLAINS_LOSS_MIN, Pause, paused_within};
pub use probes::{Change, FlowReport, ProbePlan, Probes};
pub use server_address::ServerAddress;
pub use stream_log::{Bin, StreamLog, StreamReport};
pub use tunnelled_flows::{TunnelledFlowPlan, TunnelledFlows, Use};
