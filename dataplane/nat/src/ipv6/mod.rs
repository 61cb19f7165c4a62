//! IPv6 flows: the firewall in front of homes whose addresses are not translated.
//!
//! ```text
//!                             outbound index
//!   from the home     (inside endpoint, remote endpoint, protocol) --> flow's record, 64 bytes
//!   from the internet (remote endpoint, inside endpoint, protocol) -->
//! ```
//!
//! A flow has the record of a mapping ([`Mapping`](crate::sessions::mapping::Mapping)) with another
//! layout of what it stands for (`flow_record.rs`), so expiry, lanes, journal, copies and limits
//! are those of IPv4. It has one entry in one index: a packet of either direction names the same
//! two endpoints, and its side says which of them is the home's. Each remote endpoint is a flow of
//! its own: nothing is mapped, so there are no further sessions.
//!
//! - `flow_key.rs`, `flow_record.rs`: what a packet and its record have in common;
//! - `established.rs`: packets of flows that are there;
//! - `opening.rs`: flows that begin, from either side;
//! - `asking.rs`: what the rules are asked about them;
//! - `delegation.rs`: which home an inside address belongs to;
//! - `ending.rs`, `copies.rs`: the ends of flows, and copies of other workers' flows.

mod asking;
mod copies;
mod delegation;
mod ending;
mod established;
mod flow_image;
mod flow_key;
mod flow_record;
mod opening;
mod prefix_ranges;

pub use delegation::{DelegatedPrefix, Delegation, DelegationConflict, Delegations};
pub(crate) use delegation::{PREFIX_MAX, PREFIX_MIN};
pub use established::{Delivery6, Packet6};
pub(crate) use flow_image::FlowImage;
pub use flow_key::{Endpoint6, FlowKey6};
#[cfg(any(test, feature = "audit"))]
pub(crate) use flow_record::NO_CLAIM;
pub(crate) use prefix_ranges::PrefixRanges;
