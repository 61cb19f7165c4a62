//! IPv6 end to end: kernels of homes and servers, weir between them.
//!
//! Two worlds: homes with both families in one GRE tunnel over IPv4, and homes without a tunnel.

mod clients;
mod duplicate_address;
mod firewall;
mod malformed;
mod names;
mod path_mtu;
mod worlds;
