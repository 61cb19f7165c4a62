//! Builds whole packets with right lengths and checksums, from the inside out: for tests, `weir
//! cpe` and the traffic generator. Allocates.
//!
//! ```
//! use weir_wire::build;
//!
//! let query = build::ipv4("192.168.1.10", "198.51.100.53").ttl(64).df(true);
//! let query = query.udp(40_000, 53, b"query");
//! let tunnelled = build::ipv4("10.200.0.7", "10.100.0.1").gre(build::gre().key(7), query);
//! let frame = build::vlan(100, build::ethernet(build::mac(1), build::mac(2), tunnelled));
//! weir_wire::verify::frame(&frame).unwrap();
//!
//! let syn = build::tcp(40_000, 80).syn().sequence(1).mss(1460);
//! let syn = build::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(syn);
//! let error = build::ipv4("10.9.9.9", "10.0.0.1").time_exceeded(&syn);
//! # weir_wire::verify::packet(&error).unwrap();
//! ```
//!
//! A size that does not fit its length field, or text that is not an address, panics: the values
//! come from the program, not from the network.

mod fragment;
mod gre;
mod icmp;
mod ipv4;
mod link;
mod tcp;

pub use fragment::fragments;
pub use gre::{GreBuilder, gre};
pub use icmp::{icmp_echo, icmp_error, icmp_message};
pub use ipv4::{Address, Ipv4Builder, ipv4};
pub use link::{arp, ethernet, ethernet_of, mac, vlan};
pub use tcp::{TcpBuilder, tcp};

#[cfg(test)]
mod tests;
