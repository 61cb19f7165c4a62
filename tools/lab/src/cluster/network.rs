//! The links of a cluster, and the faults that can happen to them.

use anyhow::Result;

use super::ipv6;
use crate::lab::Lab;
use crate::namespace::{Namespace, setup};
use crate::services::SERVER;
use crate::steering::Network;
use crate::veth;

/// Every namespace of a cluster. [`kernel_link`] and [`worker_link`] give the names of the links to
/// node n on a switch and in the management network.
#[derive(Debug)]
pub struct ClusterNetwork {
    /// All homes; their link is `wan0`.
    pub homes: Namespace,
    /// The bridge `br0` of the homes' side.
    pub access: Namespace,
    /// The bridge `br0` of the internet's side.
    pub internet: Namespace,
    /// The server; its link is `core0`.
    pub server: Namespace,
    /// The bridge `br0` that connects etcd and the controllers.
    pub management: Namespace,
    /// Node n at position n - 1: `acc0` and `net0` belong to the kernel, `acc1` and `net1` to the
    /// worker, `mgmt0` is the management link.
    pub nodes: Vec<Namespace>,
}

/// Returns the name of the link to the kernel of node `number`, on any bridge.
pub(super) fn kernel_link(number: u8) -> String {
    format!("node{number}")
}

/// Returns the name of the link to the worker of node `number`, on a switch.
pub(super) fn worker_link(number: u8) -> String {
    format!("work{number}")
}

/// Returns the names of a node's kernel link and worker link.
fn ports(side: Network) -> [&'static str; 2] {
    match side {
        Network::Access => ["acc0", "acc1"],
        Network::Internet => ["net0", "net1"],
    }
}

/// The shipped value of `cluster.replication_port`.
const REPLICATION_PORT: u16 = 7473;

const SIDES: [Network; 2] = [Network::Access, Network::Internet];

impl ClusterNetwork {
    /// Makes all namespaces and links for `nodes` nodes, with IPv6 or without.
    pub fn build(lab: &Lab, nodes: u8, has_ipv6: bool) -> Result<Self> {
        let namespaces = (1..=nodes).map(|number| lab.namespace(&format!("node{number}")));
        let network = Self {
            homes: lab.namespace("homes")?,
            access: lab.namespace("access")?,
            internet: lab.namespace("internet")?,
            server: lab.namespace("server")?,
            management: lab.namespace("mgmt")?,
            nodes: namespaces.collect::<Result<_>>()?,
        };
        for side in SIDES {
            bridge(network.switch(side), &side.address(254).to_string())?;
        }
        bridge(&network.management, "10.8.0.254")?;
        for number in 1..=nodes {
            network.connect(number)?;
        }
        network.homes_side()?;
        network.server_side()?;
        if has_ipv6 {
            ipv6::enable(&network.homes)?;
            ipv6::add_to_internet(&network.internet, &network.server, &network.nodes)?;
        }
        Ok(network)
    }

    /// Returns the switch of a side.
    pub fn switch(&self, side: Network) -> &Namespace {
        match side {
            Network::Access => &self.access,
            Network::Internet => &self.internet,
        }
    }

    fn node(&self, number: u8) -> &Namespace {
        &self.nodes[usize::from(number) - 1]
    }

    fn connect(&self, number: u8) -> Result<()> {
        let (node, far) = (self.node(number), kernel_link(number));
        for side in SIDES {
            let (switch, [kernel, worker]) = (self.switch(side), ports(side));
            veth::connect((node, kernel), (switch, &far))?;
            veth::connect((node, worker), (switch, &worker_link(number)))?;
            switch.ip(&format!("link set {far} master br0"))?;
            switch.ip(&format!("link set {} master br0", worker_link(number)))?;
            node.ip(&format!("addr add {}/24 dev {kernel}", side.address(number)))?;
            // The kernel must not answer ARP on the worker's link.
            node.sysctl(&format!("ipv4/conf/{worker}/arp_ignore"), 8)?;
        }
        veth::connect((node, "mgmt0"), (&self.management, &far))?;
        self.management.ip(&format!("link set {far} master br0"))?;
        node.ip(&format!("addr add 10.8.0.{number}/24 dev mgmt0"))
    }

    fn homes_side(&self) -> Result<()> {
        let (homes, access) = (&self.homes, &self.access);
        veth::connect((homes, "wan0"), (access, "homes0"))?;
        access.ip("addr add 10.200.255.254/32 dev homes0")?;
        access.ip("route add 10.200.0.0/24 dev homes0")?;
        homes.ip("route add 10.100.0.0/16 via 10.200.255.254 dev wan0 onlink")
    }

    fn server_side(&self) -> Result<()> {
        let (switch, server) = (&self.internet, &self.server);
        veth::connect((switch, "server0"), (server, "core0"))?;
        switch.ip("addr add 10.3.0.1/24 dev server0")?;
        switch.ip("route add 198.51.100.0/24 via 10.3.0.2")?;
        server.ip("addr add 10.3.0.2/24 dev core0")?;
        server.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        server.ip(&format!("route add default via 10.3.0.1 src {SERVER}"))
    }

    /// Drops every frame from and to node `number`, on every link, while all links stay up; or
    /// stops doing so.
    pub fn silence(&self, number: u8, is_silent: bool) -> Result<()> {
        for side in SIDES {
            for link in [kernel_link(number), worker_link(number)] {
                forward(self.switch(side), &link, !is_silent)?;
            }
        }
        self.cut_management(number, is_silent)
    }

    /// Cuts node `number` off from etcd and the controllers; or reconnects it.
    pub fn cut_management(&self, number: u8, is_cut: bool) -> Result<()> {
        forward(&self.management, &kernel_link(number), !is_cut)
    }

    /// Drops every frame from node `number`'s worker to one switch, while the other direction
    /// works; or stops doing so.
    pub fn lose_from_worker(&self, number: u8, side: Network, is_lossy: bool) -> Result<()> {
        self.drop_from_worker(number, side, is_lossy, "drop;")
    }

    /// Drops the datagrams with which node `number`'s worker replicates, and nothing else: its
    /// copies are not updated while it continues to serve; or stops doing so.
    pub fn lose_copies(&self, number: u8, is_lossy: bool) -> Result<()> {
        // Kind 2 in the fourth byte: records, encrypted or not. Heartbeats pass: a replica that
        // hears none would act.
        let rule = format!("udp dport {REPLICATION_PORT} @th,88,8 & 0x7f == 2 drop;");
        self.drop_from_worker(number, Network::Access, is_lossy, &rule)
    }

    fn drop_from_worker(
        &self,
        number: u8,
        side: Network,
        is_lossy: bool,
        rule: &str,
    ) -> Result<()> {
        let (switch, link) = (self.switch(side).name(), worker_link(number));
        // The ingress hook drops frames before the bridge sees them.
        let hook = format!("type filter hook ingress device \"{link}\" priority 0;");
        let order = match is_lossy {
            true => format!("add table netdev {link} {{ chain lost {{ {hook} {rule} }}; }}"),
            false => format!("delete table netdev {link}"),
        };
        setup("ip", &["netns", "exec", switch, "nft", &order])
    }

    /// Takes the link of node `number`'s worker on one side down; or up.
    pub fn cut_worker(&self, number: u8, side: Network, is_cut: bool) -> Result<()> {
        let state = if is_cut { "down" } else { "up" };
        self.switch(side).ip(&format!("link set {} {state}", worker_link(number)))
    }
}

fn bridge(namespace: &Namespace, address: &str) -> Result<()> {
    namespace.ip("link add br0 type bridge")?;
    // Multicast snooping would only cost time here.
    namespace.ip("link set br0 type bridge mcast_snooping 0")?;
    namespace.ip(&format!("addr add {address}/24 dev br0"))?;
    namespace.ip("link set br0 up")?;
    namespace.sysctl("ipv4/ip_forward", 1)
}

/// Sets whether a bridge forwards on one of its links.
fn forward(bridge: &Namespace, link: &str, does_forward: bool) -> Result<()> {
    let state = if does_forward { "forwarding" } else { "disabled" };
    let name = bridge.name();
    setup("ip", &["netns", "exec", name, "bridge", "link", "set", "dev", link, "state", state])
}
