//! The whole cluster, built from nothing until every shard has its copies.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::files::{
    ClusterFiles, ENDPOINTS, FLOWS_MAX, HOMES, OutputCommit, SHARDS, SUBSCRIBERS_MAX,
};
use super::homes::ClusterHomes;
use super::ipv6;
use super::map::MapReader;
use super::network::ClusterNetwork;
use super::node::ClusterNode;
use super::public::PUBLIC;
use super::store::ControlPlane;
use crate::condition::wait_for;
use crate::lab::Lab;
use crate::load::{
    Clock, Connections, Mixture, NewFlowPlan, NewFlows, ProbePlan, Probes, ServerAddress,
    TunnelledFlowPlan, TunnelledFlows, Use,
};
use crate::services::{SERVER, SERVER6};
use crate::steering::{Network, Switch, SwitchKind};

/// Time until every shard has all its copies, and the time added for each shard.
const WHOLE_DEADLINE: Duration = Duration::from_secs(120);
const SHARD_DEADLINE: Duration = Duration::from_millis(50);
/// Reading the map takes at most one part in this many of the time: a large map takes long to read.
const LOOKING_PART: u32 = 10;
const TCP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7100);
const UDP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7200);
const NEW_UDP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7300);
const TUNNELLED_UDP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7400);

/// Held by a running cluster, one in a process: its times are meaningful only when it runs alone.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// Options of the cluster to build.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Nodes that run from the start.
    pub nodes: u8,
    /// Nodes that are cabled but not started.
    pub spare_nodes: u8,
    /// Replicas of each shard besides the primary.
    pub replicas: u8,
    /// Whether new flows wait for replicas, and how.
    pub commit: Option<OutputCommit>,
    /// Routing daemon of the switches.
    pub switches: SwitchKind,
    /// Interval of BFD; three silent intervals mean a failure.
    pub bfd: Duration,
    /// Shards of all nodes together.
    pub shards: u16,
    /// Flows that each node's tables have room for.
    pub flows_max: u32,
    /// Whether nodes use huge pages when some are reserved.
    pub has_huge_pages: bool,
    /// Quarantine of ports. None: the shipped value.
    pub quarantine_sec: Option<u32>,
    /// Idle time of an unanswered UDP flow. None: the shipped value.
    pub udp_sec: Option<u32>,
    /// Homes of a shard (`subscribers_max`).
    pub subscribers_max: u16,
    /// Length of a shard's public prefix. None: 28 for few shards, 32 for many.
    pub per_shard: Option<u8>,
    /// Whether homes have IPv6 beside IPv4.
    pub has_ipv6: bool,
}

impl ClusterOptions {
    /// Returns the settings of the cluster's files.
    pub fn files(&self) -> ClusterFiles {
        ClusterFiles {
            replicas: self.replicas,
            commit: self.commit,
            shards: self.shards,
            flows_max: self.flows_max,
            has_huge_pages: self.has_huge_pages,
            quarantine_sec: self.quarantine_sec,
            udp_sec: self.udp_sec,
            subscribers_max: self.subscribers_max,
            per_shard: self.per_shard,
            has_ipv6: self.has_ipv6,
        }
    }

    /// Returns the quarantine of ports, which is also the least time that a site restarted without
    /// etcd stays closed.
    ///
    /// # Errors
    /// When the cluster's file is invalid.
    pub fn quarantine(&self) -> Result<Duration> {
        let cluster = weir_config::parse_cluster(&self.files().cluster(), "cluster.toml");
        let (cluster, _) = cluster.map_err(|findings| anyhow::anyhow!("{findings:?}"))?;
        Ok(Duration::from_secs(cluster.nat.quarantine_sec.into()))
    }

    /// Returns the time limit for every shard to get all its copies, from the start or after a
    /// fault.
    pub fn whole_deadline(&self) -> Duration {
        WHOLE_DEADLINE + SHARD_DEADLINE * u32::from(self.shards)
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 3,
            spare_nodes: 0,
            replicas: 1,
            commit: None,
            switches: SwitchKind::Bird,
            bfd: Duration::from_millis(50),
            shards: SHARDS,
            flows_max: FLOWS_MAX,
            has_huge_pages: false,
            quarantine_sec: None,
            udp_sec: None,
            subscribers_max: SUBSCRIBERS_MAX,
            per_shard: None,
            has_ipv6: true,
        }
    }
}

/// A running cluster. Fields drop in this order, the lab last.
#[derive(Debug)]
pub struct ClusterLab {
    /// The nodes that were started, by number.
    pub nodes: Vec<ClusterNode>,
    /// None: a single stand-alone node, with static routes to it.
    pub control: Option<ControlPlane>,
    /// Reads the map, if there is one.
    pub map: Option<MapReader>,
    /// The switches' daemons: access, internet.
    pub switches: Vec<Switch>,
    /// The homes.
    pub homes: ClusterHomes,
    /// All links.
    pub network: ClusterNetwork,
    /// Its options; for a stand-alone node, those that apply to it.
    pub options: ClusterOptions,
    /// The laboratory that contains everything above.
    pub lab: Lab,
    _exclusive: MutexGuard<'static, ()>,
}

impl ClusterLab {
    /// Starts one node with all shards that carries all traffic: for the cost of a failure without
    /// a cluster.
    pub fn start_alone() -> Result<Self> {
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::open()?;
        let options = ClusterOptions { nodes: 1, replicas: 0, ..ClusterOptions::default() };
        let network = ClusterNetwork::build(&lab, 1, options.has_ipv6)?;
        for (side, prefix) in [(Network::Access, ENDPOINTS), (Network::Internet, PUBLIC)] {
            let worker = side.worker(1, 0);
            network.switch(side).ip(&format!("route add {prefix} via {worker}"))?;
        }
        let (public6, worker6) = (ipv6::PUBLIC6, ipv6::worker(1));
        network.internet.ip(&format!("route add {public6} via {worker6}"))?;
        let file = options.files().alone(1, lab.directory());
        let node = ClusterNode::start(&lab, &network.nodes[0], 1, &file, None, true)?;
        node.wait_ready(0)?;
        let homes = start_homes(&lab, &network, options.files())?;
        Ok(Self {
            nodes: vec![node],
            control: None,
            map: None,
            switches: Vec::new(),
            homes,
            network,
            options,
            lab,
            _exclusive: exclusive,
        })
    }

    /// Starts a cluster; returns when every shard has its copies. `progress` is called with the
    /// next step.
    pub fn start(options: ClusterOptions, progress: impl Fn(&str)) -> Result<Self> {
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::open()?;
        progress("building namespaces: homes, two switches, nodes, server, management");
        let cabled = options.nodes + options.spare_nodes;
        let network = ClusterNetwork::build(&lab, cabled, options.has_ipv6)?;
        progress("starting the switches");
        let switches = [(&network.access, Network::Access), (&network.internet, Network::Internet)]
            .map(|(it, side)| {
                let (kind, nodes) = (options.switches, cabled.max(2));
                let more = match (side, options.has_ipv6) {
                    (Network::Internet, true) => ipv6::switch_config(kind, nodes, options.bfd),
                    _ => String::new(),
                };
                Switch::start(&lab, it.clone(), kind, side, nodes, options.bfd, &more)
            })
            .into_iter()
            .collect::<Result<_>>()?;
        progress("starting etcd and two controllers");
        let control = ControlPlane::start(&lab, &network, options.files())?;
        let map = MapReader::open(&network.management, options.replicas)?;
        let homes = start_homes(&lab, &network, options.files())?;
        let mut cluster = Self {
            nodes: Vec::new(),
            control: Some(control),
            map: Some(map),
            switches,
            homes,
            network,
            options,
            lab,
            _exclusive: exclusive,
        };
        if options.has_huge_pages {
            let pages = options.files().huge_pages() * u64::from(cabled);
            progress(&format!("reserving {pages} huge pages"));
            cluster.lab.reserve_huge_pages(pages)?;
        }
        progress("starting the nodes");
        for _ in 0..options.nodes {
            cluster.add_node()?;
        }
        for node in &cluster.nodes {
            node.wait_ready(0)?;
            node.wait_sessions().with_context(|| cluster.lab.logs())?;
        }
        progress("waiting for the copies of all shards");
        cluster.wait_whole().with_context(|| cluster.lab.logs())?;
        Ok(cluster)
    }

    /// Starts the next cabled node; does not wait for it.
    pub fn add_node(&mut self) -> Result<()> {
        let number = self.nodes.len() as u8 + 1;
        let namespace = self.network.nodes.get(self.nodes.len()).context("no node left")?;
        let file = self.options.files().node(number, self.lab.directory());
        let (bfd, has_ipv6) = (Some(self.options.bfd), self.options.has_ipv6);
        self.nodes.push(ClusterNode::start(&self.lab, namespace, number, &file, bfd, has_ipv6)?);
        Ok(())
    }

    /// Returns the node with a number.
    pub fn node(&self, number: u8) -> Result<&ClusterNode> {
        self.nodes.get(usize::from(number) - 1).with_context(|| format!("no node {number}"))
    }

    /// Returns the control plane of a cluster.
    pub fn control(&self) -> Result<&ControlPlane> {
        self.control.as_ref().context("a node alone has no controllers")
    }

    /// Waits until every shard has all its copies.
    pub fn wait_whole(&self) -> Result<()> {
        let Some(reader) = &self.map else { return Ok(()) };
        let mut last = None;
        let shards = self.options.shards;
        let whole = wait_for("map with all copies", self.options.whole_deadline(), || {
            let begun = Instant::now();
            let map = reader.read();
            thread::sleep(begun.elapsed() * (LOOKING_PART - 1));
            let is_whole = map.as_ref().is_ok_and(|map| map.is_whole(usize::from(shards)));
            last = Some(map);
            is_whole.then_some(())
        });
        whole.with_context(|| format!("{last:#?}"))
    }

    /// Waits until `weir cluster status` says OK.
    pub fn wait_ok(&self) -> Result<()> {
        let control = self.control()?;
        let mut last = String::new();
        let ok = wait_for("weir cluster status: OK", self.options.whole_deadline(), || {
            let begun = Instant::now();
            let status = control.weir(&["cluster", "status"]);
            thread::sleep(begun.elapsed() * (LOOKING_PART - 1));
            let status = status.ok()?;
            last = status.stdout + &status.stderr;
            status.status.success().then_some(())
        });
        ok.with_context(|| last)
    }

    /// Opens connections from all homes, half of them over IPv6 if homes have it.
    pub fn connect(&self, clock: Clock, mixture: Mixture) -> Result<Connections> {
        let (homes, server) = (&self.network.homes, &self.network.server);
        let addresses = self.homes.addresses(self.homes.inside.len());
        Connections::start(clock, mixture, (homes, &addresses), (server, self.server(TCP)))
    }

    /// Starts probes from the first home of each shard that has one: over both families if homes
    /// have IPv6, each at half of the rate.
    pub fn probe(&self, clock: Clock, interval: Duration) -> Result<Probes> {
        let homes = self.homes.addresses(usize::from(self.options.shards));
        let interval = if self.options.has_ipv6 { 2 * interval } else { interval };
        let plan = ProbePlan { homes, server: self.server(UDP), interval };
        Probes::start(clock, &plan, &self.network.homes, &self.network.server)
    }

    /// Returns where the server listens for homes of both families.
    fn server(&self, ipv4: SocketAddrV4) -> ServerAddress {
        let ipv6 = SocketAddrV6::new(SERVER6, ipv4.port(), 0, 0);
        ServerAddress { ipv4, ipv6: self.options.has_ipv6.then_some(ipv6) }
    }

    /// Begins new flows from all homes, over IPv4.
    pub fn begin_flows(&self, clock: Clock, per_sec: u32) -> Result<NewFlows> {
        let plan = NewFlowPlan { homes: self.homes.inside.clone(), server: NEW_UDP, per_sec };
        NewFlows::start(clock, plan, &self.network.homes, &self.network.server)
    }

    /// Begins new flows of `homes` homes that have no gateway. `note` is called with each datagram
    /// that arrives.
    pub fn begin_tunnelled(
        &self,
        homes: u32,
        per_sec: u32,
        seed: u64,
        note: impl FnMut(Use) + Send + 'static,
    ) -> Result<TunnelledFlows> {
        let endpoints = (1..=self.options.shards).map(ClusterFiles::endpoint).collect();
        let plan = TunnelledFlowPlan { homes, endpoints, server: TUNNELLED_UDP, per_sec, seed };
        TunnelledFlows::start(plan, &self.network.homes, &self.network.server, note)
    }
}

fn start_homes(lab: &Lab, network: &ClusterNetwork, files: ClusterFiles) -> Result<ClusterHomes> {
    let endpoint = |home| ClusterFiles::endpoint(files.shard_of_home(home));
    ClusterHomes::start(lab, &network.homes, HOMES, endpoint, |home| files.address6(home))
}
