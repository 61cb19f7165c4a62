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
//!
//! let big = build::ipv6("2001:db8::1", "2001:db8:1::2").fragment(7, 0, false);
//! let big = big.udp(40_000, 53, b"query");
//! let error = build::ipv6("fd00::9", "2001:db8::1").packet_too_big(1400, big);
//! # weir_wire::verify::packet(&error).unwrap();
//! ```
//!
//! A size that does not fit its length field, or text that is not an address, panics: the values
//! come from the program, not from the network.

mod fragment;
mod fragment6;
mod gre;
mod icmp;
mod icmp6;
mod ipv4;
mod ipv6;
mod link;
mod tcp;
mod udp;

pub use fragment::fragments;
pub use fragment6::fragments6;
pub use gre::{GreBuilder, gre};
pub use icmp::{icmp_echo, icmp_error, icmp_message};
pub use icmp6::icmp6_message;
pub use ipv4::{Address, Ipv4Builder, ipv4};
pub use ipv6::{Address6, Ipv6Builder, ipv6};
pub use link::{arp, ethernet, ethernet_of, ethernet6, mac, vlan};
pub use tcp::{TcpBuilder, tcp};

#[cfg(test)]
mod tests;
