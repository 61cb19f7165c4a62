//! IPv6 packets of homes: a stateful firewall, no translation.
//!
//! ```text
//!   frames of a burst that the IPv4 fast path leaves
//!      |  fast_path.rs reads them; else EtherType, or the protocol in GRE, says IPv6: input.rs
//!      |  (those in tunnels over IPv6 are taken out before: over_ipv6.rs)
//!      v
//!   burst.rs: a burst of their own --> look-ups --> settled flow: fast_path_output.rs
//!                                              \--> slow path: upstream.rs, downstream.rs
//! ```
//!
//! IPv6 packets of a burst stay in their order, and are sent after its IPv4 packets: no flow has
//! both. Packets of a home arrive inside GRE, or without a tunnel; those from the
//! internet as they are. A packet to another home leaves to the internet switch, whose route leads
//! it back to the worker of that home: so it passes the other home's firewall as any packet from
//! outside does.

mod burst;
mod downstream;
mod error;
mod fast_path;
mod fast_path_output;
mod fragment;
mod icmp_error;
mod input;
mod new_flows;
mod output;
mod packet;
mod redirect;
mod reject;
mod upstream;

pub(crate) use burst::Burst6;
pub(crate) use fast_path::{FastKey6, FastPacket6};
pub(crate) use fast_path_output::traffic_class;
pub(crate) use input::{carries_ipv6, set_traffic_class, transit_input6};
pub(crate) use new_flows::NewFlows6;
pub(crate) use output::decrement_hop_limit;
pub(crate) use packet::{Packet6State, PacketStep6, Way6};
