//! IPv6 beside IPv4 in the cluster: homes' packets of both families come through the same tunnels.
//!
//! | network | prefix | ends |
//! |---|---|---|
//! | internet switch | fd00:2::/64 | switch ::fe, kernel of node n ::n, its worker ::n00 |
//! | shard s | 2001:db8:(1fff + s)::/48 | from the internet via the worker that serves it |
//! | home n | /64 number n of its shard | the home's host is ::2 |
//! | behind the internet switch | 2001:db8:3::/64 | switch ::1, server ::2 |
//! | server | 2001:db8:ffff::1 | on the server's loopback |
//!
//! The tunnels are IPv4, so nothing of it is on the access side.

use std::fmt::Write;
use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bird::{packaged, with_settings};
use crate::namespace::Namespace;
use crate::services::SERVER6;
use crate::steering::SwitchKind;

/// Prefix of all shards' prefixes: as many as a cluster may have shards.
pub(super) const PUBLIC6: &str = "2001:db8:2000::/35";
/// Length of a shard's prefix.
pub(super) const PER_SHARD6: u8 = 48;
/// The internet switch in the workers' network.
pub(super) const SWITCH: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0xfe);
const WORKERS: &str = "fd00:2::/64";
/// The BGP sessions of a node with the internet switch, one of each family.
pub(super) const SESSIONS: &str = "\"internet_switch\", \"internet_switch6\"";

/// Returns the address of a node's kernel in the workers' network.
fn kernel(node: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, node.into())
}

/// Returns the address of a node's worker.
pub fn worker(node: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0x100 * u16::from(node))
}

/// Returns the network of a shard's prefix, of [`PER_SHARD6`] bits.
pub(super) fn prefix(shard: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x1fff + shard, 0, 0, 0, 0, 0)
}

/// Returns the address of the host of home `number`, which belongs to `shard`.
pub(super) fn home(shard: u16, number: u8) -> Ipv6Addr {
    let [a, b, c, ..] = prefix(shard).segments();
    Ipv6Addr::new(a, b, c, number.into(), 0, 0, 0, 2)
}

/// Switches IPv6 on for links that are made from now on. Every address and route is set by hand.
pub(super) fn enable(namespace: &Namespace) -> Result<()> {
    namespace.sysctl("ipv6/conf/default/router_solicitations", 0)?;
    namespace.sysctl("ipv6/conf/default/accept_ra", 0)?;
    namespace.sysctl("ipv6/conf/default/disable_ipv6", 0)
}

/// Gives a link of a namespace an address.
fn add_address(namespace: &Namespace, link: &str, address: Ipv6Addr, len: u8) -> Result<()> {
    namespace.sysctl(&format!("ipv6/conf/{link}/disable_ipv6"), 0)?;
    namespace.ip(&format!("addr add {address}/{len} dev {link} nodad"))
}

/// Sets addresses and routes of the internet's side, on links that exist; `nodes`: their kernels,
/// in order.
pub(super) fn add_to_internet(
    switch: &Namespace,
    server: &Namespace,
    nodes: &[Namespace],
) -> Result<()> {
    let behind = |last| Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, last);
    let (at_switch, at_server) = (behind(1), behind(2));
    add_address(switch, "br0", SWITCH, 64)?;
    add_address(switch, "server0", at_switch, 64)?;
    switch.sysctl("ipv6/conf/all/forwarding", 1)?;
    switch.ip(&format!("route add {SERVER6}/128 via {at_server}"))?;
    add_address(server, "core0", at_server, 64)?;
    add_address(server, "lo", SERVER6, 128)?;
    server.ip(&format!("route add default via {at_switch} src {SERVER6}"))?;
    for (node, number) in nodes.iter().zip(1..) {
        add_address(node, "net0", kernel(number), 64)?;
    }
    Ok(())
}

/// Returns the packaged configuration of a node's BIRD for IPv6, without the session with the
/// access switch.
pub(super) fn node_bird(node: u8) -> Result<String> {
    let (address, switch) = (kernel(node).to_string(), SWITCH.to_string());
    let settings = [("INTERNET_ADDRESS6", &*address), ("INTERNET_SWITCH6", &switch)];
    let config = with_settings(&packaged("bird/weir6.conf")?, &settings)?;
    let (before, rest) = config
        .split_once("protocol bgp access_switch6 ")
        .context("no session with the access switch in weir6.conf")?;
    let (_, after) = rest.split_once("\n}\n").context("the session does not end")?;
    Ok(format!("{before}{after}"))
}

/// Returns what the internet switch has for IPv6, beside the packaged configuration of its routing
/// daemon: the additions of docs/topology.md, "IPv6".
pub(super) fn switch_config(kind: SwitchKind, nodes: u8, bfd: Duration) -> String {
    match kind {
        SwitchKind::Bird => bird_switch(nodes),
        SwitchKind::Frr => frr_switch(nodes, bfd.as_millis()),
    }
}

fn bird_switch(nodes: u8) -> String {
    let mut config = format!(
        r"protocol kernel {{
  ipv6 {{ import none; export all; }};
}}
template bgp weir_node6 {{
  local {SWITCH} as SWITCH_AS;
  bfd on;
  graceful restart off;
  long lived graceful restart off;
  hold time 9;
  keepalive time 3;
  connect delay time 1;
  connect retry time 1;
  error wait time 1, 3;
  med metric on;
  default bgp_med 4294967295;
  ipv6 {{
    import where net ~ [ {PUBLIC6}+ ] && bgp_next_hop ~ {WORKERS};
    export none;
  }};
}}
"
    );
    for node in 1..=nodes {
        let (name, kernel) = (format!("node6_{node}"), kernel(node));
        let _ = writeln!(
            config,
            "protocol bgp {name} from weir_node6 {{ neighbor {kernel} as NODE_AS; }}"
        );
    }
    config
}

fn frr_switch(nodes: u8, bfd_ms: u128) -> String {
    let each = |line: &dyn Fn(Ipv6Addr) -> String| {
        (1..=nodes).map(|node| line(kernel(node))).collect::<String>()
    };
    let neighbors = each(&|node| format!(" neighbor {node} peer-group weir6\n"));
    let peers = each(&|node| {
        format!(
            " peer {node}\n  transmit-interval {bfd_ms}\n  receive-interval {bfd_ms}\n  detect-multiplier 3\n exit\n"
        )
    });
    format!(
        "router bgp 65000
 neighbor weir6 peer-group
 neighbor weir6 remote-as 65001
 neighbor weir6 timers 3 9
 neighbor weir6 timers connect 1
 neighbor weir6 advertisement-interval 0
 neighbor weir6 bfd
{neighbors} address-family ipv4 unicast
  no neighbor weir6 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor weir6 activate
  neighbor weir6 route-map from-weir6 in
  neighbor weir6 route-map nothing out
  maximum-paths 1
 exit-address-family
ipv6 prefix-list weir-routes6 seq 5 permit {PUBLIC6} ge 48
ipv6 prefix-list weir-workers6 seq 5 permit {WORKERS} le 128
route-map from-weir6 permit 10
 match ipv6 address prefix-list weir-routes6
 match ipv6 next-hop prefix-list weir-workers6
bfd
{peers}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_lies_in_the_prefix_of_its_shard() {
        assert_eq!(home(3, 11).to_string(), "2001:db8:2002:b::2");
        let all: ipnet::Ipv6Net = PUBLIC6.parse().unwrap();
        for shard in [1, 8192] {
            assert!(all.contains(&prefix(shard)));
        }
        assert!(!all.contains(&prefix(8193)));
    }

    #[test]
    fn node_has_one_session_for_ipv6() {
        let config = node_bird(2).unwrap();
        assert!(!config.contains("protocol bgp access_switch6"), "{config}");
        assert!(config.contains("protocol bgp internet_switch6"), "{config}");
        assert!(config.contains("define INTERNET_ADDRESS6 = fd00:2::2;"), "{config}");
    }
}
