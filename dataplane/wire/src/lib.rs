//! Packet views and edits: Ethernet, VLAN, ARP, IPv4, IPv6, GRE, UDP, TCP, ICMP, ICMPv6, neighbor
//! discovery, checksums.
//!
//! A header is a `#[repr(C)]` struct without padding that is laid over the bytes of a frame
//! (zerocopy); its fields are big-endian types. `parse` functions check every length they rely on
//! against the bytes that are present and never panic; each reads one layer only. `emit` functions
//! write a header into the front of a buffer and panic if the buffer is shorter than the header:
//! that is a mistake of the caller, never of a packet.
//!
//! ```text
//!   frame (interface of a packet buffer)
//!   ethernet -- vlan -+- arp
//!                     +- ipv4 -+- udp, tcp -- ports
//!                     |        +- icmp -- a quoted ipv4
//!                     |        +- gre -- ipv4, ipv6
//!                     +- ipv6 -- extension headers -+- udp, tcp, gre
//!                                                   +- icmp6 -+- a quoted ipv6
//!                                                             +- ndp
//!   checksum (RFC 1071, RFC 1624) under all of them
//!   build, verify, describe: whole packets for tests, tools and the traffic generator (allocate)
//! ```
#![forbid(unsafe_code)]

pub mod arp;
pub mod build;
pub mod checksum;
pub mod describe;
pub mod ethernet;
pub mod frame;
pub mod gre;
pub mod icmp;
pub mod icmp6;
pub mod ipv4;
pub mod ipv6;
mod malformed;
mod misses;
pub mod ndp;
pub mod ports;
pub mod tcp;
pub mod udp;
pub mod vec_frame;
pub mod verify;

pub use malformed::Malformed;
pub use misses::Misses;
pub use zerocopy::big_endian::{U16, U32, U128};
