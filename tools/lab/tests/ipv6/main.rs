//! IPv6 end to end: kernels of homes and servers, weir between them.
//!
//! Three worlds: homes with both families in one GRE tunnel over IPv4 or over IPv6, and homes
//! without a tunnel.

mod clients;
mod duplicate_address;
mod firewall;
mod gre6;
mod malformed;
mod names;
mod path_mtu;
mod worlds;
