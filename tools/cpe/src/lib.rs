//! A home gateway: a TUN device on one side, GRE over a raw IPv4 socket on the other.
//!
//! It replaces the GRE interface of a home router on machines whose kernel has none.
//!
//! ```text
//!   home's TCP/IP stack --> TUN --> tunnel::encapsulate --> raw socket --> access network
//!   home's TCP/IP stack <-- TUN <-- tunnel::decapsulate <-- raw socket <-- access network
//!                                                           (protocol 47)
//! ```
//!
//! The TUN device carries the MTU of the tunnel, so the kernel fragments, or makes its own sockets
//! send less, before a packet gets here. This crate translates no addresses: weir does at the other
//! end.

#![forbid(unsafe_code)]

mod gateway;
pub mod tunnel;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

pub use gateway::{Gateway, OpenError, Totals};

/// Configuration of a home gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the TUN device to make; it must not exist.
    pub tun: String,
    /// The home's own address and the length of its network, on the TUN device.
    pub tun_address: Ipv4Net,
    /// Outer source: an address of this machine on the access network.
    pub local: Ipv4Addr,
    /// Outer destination: the tunnel endpoint of the home's shard.
    pub remote: Ipv4Addr,
    /// GRE key (RFC 2890). A packet that comes back must carry the same key.
    pub key: Option<u32>,
    /// MTU of the tunnel in bytes of inner packet. 1500 less 20 (IPv4) and 4 (GRE) is 1476;
    /// a key takes 4 more.
    pub mtu: u16,
    /// Prefixes to route through the tunnel, as `ip route` writes them ("default", "10.0.0.0/8").
    pub routes: Vec<String>,
}
