//! IPv6 beside IPv4 in the topology of one node.
//!
//! | network | prefix | ends |
//! |---|---|---|
//! | home N | 2001:db8:1000:N::/64 | the home's host is ::2; in plain mode the router is ::1 |
//! | home N, with tunnels over IPv6 | 2001:db8:e:N::/64 | the gateway is ::2, the router ::1 |
//! | tunnel endpoint | 2001:db8:64::1 | via 2001:db8:1::1 |
//! | access side of weir, plain or with these tunnels | 2001:db8:1::/64 | weir ::1, router ::2 |
//! | internet side of weir | 2001:db8:2::/64 | weir ::1, router ::2 |
//! | homes' prefix | 2001:db8:1000::/48 | from the internet via 2001:db8:2::1 |
//! | behind the router | 2001:db8:3::/64 | router ::1, server ::2 |
//! | server | 2001:db8:ffff::1 | on the server's loopback |
//!
//! In gre mode the access network has IPv6 only if the homes' tunnels are over IPv6.
//! Kernels neither solicit nor take router advertisements: every address and route is set by hand.

use std::net::Ipv6Addr;

use anyhow::Result;

use super::{Access, Networks, Options};
use crate::namespace::Namespace;
use crate::services::SERVER6;

/// weir's address on the access side, in plain mode.
pub const WEIR_ACCESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
/// weir's address on the internet side.
pub const WEIR_INTERNET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
/// The router between weir and the internet.
pub const CORE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
/// Prefix of the addresses that homes use.
pub const HOMES: &str = "2001:db8:1000::/48";
/// Prefix of the homes' outer addresses, with tunnels over IPv6.
pub const OUTERS: &str = "2001:db8:e::/48";
/// The endpoint of these tunnels.
pub const ENDPOINT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 1);
/// MTU of such a tunnel: Ethernet's 1500 less IPv6 and GRE.
pub const TUNNEL_MTU6: u16 = 1456;
/// Length of the prefix of one home.
pub const HOME_LENGTH: u8 = 64;

/// Returns an address in the prefix of home `number`, from 1.
pub const fn address_in_home(number: u8, interface_id: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x1000, number as u16, 0, 0, 0, interface_id)
}

/// Returns the address of the host of home `number`, from 1.
pub const fn home_address(number: u8) -> Ipv6Addr {
    address_in_home(number, 2)
}

/// Returns the outer address of home `number`, from 1.
pub const fn outer_address(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xe, number as u16, 0, 0, 0, 2)
}

/// Switches IPv6 on in a namespace that has no links yet.
pub(super) fn enable(namespace: &Namespace) -> Result<()> {
    namespace.sysctl("ipv6/conf/default/router_solicitations", 0)?;
    namespace.sysctl("ipv6/conf/default/accept_ra", 0)?;
    namespace.sysctl("ipv6/conf/default/disable_ipv6", 0)?;
    namespace.sysctl("ipv6/conf/all/disable_ipv6", 0)
}

impl Networks {
    /// Switches IPv6 on where the mode needs it. Comes before the links are made.
    pub(super) fn enable_ipv6(&self, options: &Options) -> Result<()> {
        enable(&self.core)?;
        enable(&self.internet)?;
        let has_access6 = options.config.access == Access::Plain || options.config.has_tunnels6();
        if has_access6 { enable(&self.access) } else { Ok(()) }
    }

    /// Sets addresses and routes on links that exist.
    pub(super) fn add_ipv6(&self, options: &Options) -> Result<()> {
        let access = &self.access;
        if options.config.access == Access::Plain || options.config.has_tunnels6() {
            access.sysctl("ipv6/conf/all/forwarding", 1)?;
            access.ip("addr add 2001:db8:1::2/64 dev weir0 nodad")?;
            access.ip(&match options.config.access {
                Access::Plain => format!("route add default via {WEIR_ACCESS}"),
                Access::Gre => format!("route add {ENDPOINT6}/128 via {WEIR_ACCESS}"),
            })?;
        }
        let (core, internet) = (&self.core, &self.internet);
        core.sysctl("ipv6/conf/all/forwarding", 1)?;
        core.ip(&format!("addr add {CORE}/64 dev weir0 nodad"))?;
        core.ip("addr add 2001:db8:3::1/64 dev net0 nodad")?;
        core.ip(&format!("route add {HOMES} via {WEIR_INTERNET}"))?;
        core.ip(&format!("route add {SERVER6}/128 via 2001:db8:3::2"))?;
        internet.ip("addr add 2001:db8:3::2/64 dev core0 nodad")?;
        internet.ip(&format!("addr add {SERVER6}/128 dev lo nodad"))?;
        internet.ip(&format!("route add default via 2001:db8:3::1 src {SERVER6}"))?;
        Ok(())
    }

    /// Joins the gateway of a home with a tunnel over IPv6 to the access network.
    pub(super) fn outer_ipv6(&self, home: &Namespace, number: u8) -> Result<()> {
        let outer = outer_address(number);
        let router = Ipv6Addr::from_bits(outer.to_bits() - 1);
        self.access.ip(&format!("addr add {router}/64 dev home{number} nodad"))?;
        home.ip(&format!("addr add {outer}/64 dev wan0 nodad"))?;
        home.ip(&format!("route add {ENDPOINT6}/128 via {router} dev wan0"))
    }

    /// Joins a home without a tunnel to the access network.
    pub(super) fn plain_home_ipv6(&self, home: &Namespace, number: u8) -> Result<()> {
        let router = address_in_home(number, 1);
        self.access.ip(&format!("addr add {router}/{HOME_LENGTH} dev home{number} nodad"))?;
        let address = home_address(number);
        home.ip(&format!("addr add {address}/{HOME_LENGTH} dev wan0 nodad"))?;
        home.ip(&format!("route add default via {router} dev wan0"))
    }
}
