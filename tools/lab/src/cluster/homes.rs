//! Many homes in one namespace: each has its own tunnel and inside address, and sends from that
//! address into its tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::Result;

use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::one_node::TUNNEL_MTU;
use crate::process::Process;
use crate::weir;

/// Time limit for a home gateway to start.
const GATEWAY_DEADLINE: Duration = Duration::from_secs(10);

/// Running homes, numbered from 1.
#[derive(Debug)]
pub struct ClusterHomes {
    /// Inside address of home n at position n - 1.
    pub inside: Vec<Ipv4Addr>,
    /// Inside IPv6 address of home n at position n - 1. Empty without IPv6.
    pub inside6: Vec<Ipv6Addr>,
    /// The homes' gateways.
    pub gateways: Vec<Process>,
}

impl ClusterHomes {
    /// Starts `count` homes. Home n, 10.200.0.n on the access network, belongs to the shard whose
    /// tunnel endpoint `endpoint` gives for n. `address6` gives its inside IPv6 address, if it has
    /// one.
    pub fn start(
        lab: &Lab,
        namespace: &Namespace,
        count: u8,
        endpoint: impl Fn(u8) -> Ipv4Addr,
        address6: impl Fn(u8) -> Option<Ipv6Addr>,
    ) -> Result<Self> {
        let mut homes = Self { inside: Vec::new(), inside6: Vec::new(), gateways: Vec::new() };
        for number in 1..=count {
            let inside = Ipv4Addr::new(192, 168, number, 2);
            let outer = Ipv4Addr::new(10, 200, 0, number);
            namespace.ip(&format!("addr add {outer}/32 dev wan0"))?;
            let mut command = namespace.command(&weir::lab_binary()?.to_string_lossy());
            command
                .arg("cpe")
                .arg(format!("--tun=gre{number}"))
                .arg(format!("--tun-address={inside}/24"))
                .arg(format!("--local={outer}"))
                .arg(format!("--remote={}", endpoint(number)))
                .arg(format!("--mtu={TUNNEL_MTU}"));
            if let Some(address) = address6(number) {
                command.arg(format!("--tun-address6={address}/64"));
                homes.inside6.push(address);
            }
            homes.gateways.push(lab.start(&format!("cpe{number}"), &mut command)?);
            homes.inside.push(inside);
        }
        for (number, gateway) in (1..).zip(&homes.gateways) {
            gateway.wait_line("ready", GATEWAY_DEADLINE)?;
            let inside = homes.inside[number - 1];
            // Routing by source address: all homes use the same internet addresses.
            let table = 100 + number;
            namespace.ip(&format!("route add default dev gre{number} table {table}"))?;
            namespace.ip(&format!("rule add from {inside} lookup {table}"))?;
            if let Some(inside6) = homes.inside6.get(number - 1) {
                namespace.ip(&format!("-6 route add default dev gre{number} table {table}"))?;
                namespace.ip(&format!("-6 rule add from {inside6} lookup {table}"))?;
            }
        }
        Ok(homes)
    }

    /// Returns the inside addresses of the first `count` homes, those of both families in turn.
    pub fn addresses(&self, count: usize) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for (position, &inside) in self.inside.iter().enumerate().take(count) {
            addresses.push(inside.into());
            addresses.extend(self.inside6.get(position).copied().map(IpAddr::V6));
        }
        addresses
    }
}
