//! Many homes in one namespace: each has its own tunnel and inside address, and sends from that
//! address into its tunnel.

use std::net::Ipv4Addr;
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
    /// The homes' gateways.
    pub gateways: Vec<Process>,
}

impl ClusterHomes {
    /// Starts `count` homes. Home n, 10.200.0.n on the access network, belongs to the shard whose
    /// tunnel endpoint `endpoint` gives for n.
    pub fn start(
        lab: &Lab,
        namespace: &Namespace,
        count: u8,
        endpoint: impl Fn(u8) -> Ipv4Addr,
    ) -> Result<Self> {
        let mut homes = Self { inside: Vec::new(), gateways: Vec::new() };
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
        }
        Ok(homes)
    }
}
