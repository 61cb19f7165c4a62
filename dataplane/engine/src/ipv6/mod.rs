//! IPv6 packets of homes: a stateful firewall, no translation.
//!
//! ```text
//!   frames of a burst that the IPv4 fast path leaves
//!      |  EtherType, or the protocol in GRE, says IPv6
//!      v
//!   input.rs --> key --> look-up of the whole burst --> settled flow: forwarded
//!                                                  \--> slow path: upstream.rs, downstream.rs
//! ```
//!
//! The order of packets in a burst stays: a frame keeps its place among those of IPv4. Packets of a
//! home arrive inside GRE, or without a tunnel; those from the internet as they are. A
//! packet to another home leaves to the internet switch, whose route leads it back to the worker of
//! that home: so it passes the other home's firewall as any packet from outside does.

mod downstream;
mod error;
mod fragment;
mod icmp_error;
mod input;
mod output;
mod packet;
mod reject;
mod upstream;

pub(crate) use input::{carries_ipv6, set_traffic_class};
pub(crate) use packet::{Packet6State, PacketStep6};
