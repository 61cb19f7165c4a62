//! A home gateway: a TUN device on one side, GRE over a raw IPv4 or IPv6 socket on the other.
//!
//! It replaces the GRE interface of a home router on machines whose kernel has none.
//!
//! ```text
//!   home's TCP/IP stack --> TUN --> tunnel::encapsulate --> raw socket --> access network
//!   home's TCP/IP stack <-- TUN <-- tunnel::decapsulate <-- raw socket <-- access network
//!                                                           (protocol 47)
//! ```
//!
//! One tunnel carries IPv4 and IPv6 of the home side by side (GRE protocols 0x0800 and 0x86DD); the
//! family of its endpoints is independent of that.
//!
//! The TUN device carries the MTU of the tunnel, so the kernel fragments, or makes its own sockets
//! send less, before a packet gets here. When an ICMP error says that the path to the endpoint
//! carries less, the gateway lowers that MTU. This crate translates no addresses: weir does at the
//! other end.

#![forbid(unsafe_code)]

mod gateway;
mod link;
mod outer_socket;
mod path_mtu;
pub mod tunnel;

use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};

pub use gateway::{Gateway, OpenError, Totals};

/// Smallest MTU of a link that carries IPv6, bytes (RFC 8200 section 5).
pub const IPV6_MTU_MIN: u16 = weir_wire::ipv6::MTU_MIN as u16;

/// Configuration of a home gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the TUN device to make; it must not exist.
    pub tun: String,
    /// The home's own IPv4 address and the length of its network, on the TUN device. Without it the
    /// tunnel carries no IPv4.
    pub tun_address: Option<Ipv4Net>,
    /// The home's own IPv6 address and the length of its prefix, on the TUN device. Without it the
    /// tunnel carries no IPv6.
    pub tun_address6: Option<Ipv6Net>,
    /// Outer source: an address of this machine on the access network.
    pub local: IpAddr,
    /// Outer destination: the tunnel endpoint of the home's shard, of the family of `local`.
    pub remote: IpAddr,
    /// GRE key (RFC 2890). A packet that comes back must carry the same key.
    pub key: Option<u32>,
    /// MTU of the tunnel in bytes of inner packet, at least [`IPV6_MTU_MIN`] with an IPv6 address
    /// inside. 1500 less 20 (IPv4) and 4 (GRE) is 1476, less 40 (IPv6) and 4 is 1456; a key takes
    /// 4 more.
    pub mtu: u16,
    /// Prefixes to route through the tunnel, as `ip route` writes them ("10.0.0.0/8",
    /// "2001:db8::/32"); "default" is the default route of each family that the tunnel carries.
    pub routes: Vec<String>,
}
