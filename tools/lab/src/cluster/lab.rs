//! The whole cluster, from nothing to every shard with its copies.

use std::net::SocketAddrV4;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::files::{
    ClusterFiles, ENDPOINTS, FLOWS_MAX, HOMES, OutputCommit, SHARDS, SUBSCRIBERS_MAX,
};
use super::homes::ClusterHomes;
use super::map::MapReader;
use super::network::ClusterNetwork;
use super::node::ClusterNode;
use super::public::PUBLIC;
use super::store::ControlPlane;
use crate::condition::wait_for;
use crate::lab::Lab;
use crate::load::{
    Clock, Connections, Mixture, NewFlowPlan, NewFlows, ProbePlan, Probes, TunnelledFlowPlan,
    TunnelledFlows, Use,
};
use crate::services::SERVER;
use crate::steering::{Network, Switch, SwitchKind};

/// Time until every shard has all its copies, and for each shard beside.
const WHOLE_DEADLINE: Duration = Duration::from_secs(120);
const SHARD_DEADLINE: Duration = Duration::from_millis(50);
/// Part of the time that looking at the map may take: a large one takes long.
const LOOKING_PART: u32 = 10;
const TCP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7100);
const UDP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7200);
const NEW_UDP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7300);
const TUNNELLED_UDP: SocketAddrV4 = SocketAddrV4::new(SERVER, 7400);

/// One at a time in a process: its times mean something only alone.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// What to build.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Nodes that run from the start.
    pub nodes: u8,
    /// Nodes that are cabled but not started.
    pub spare_nodes: u8,
    /// Copies of each shard beside the primary's.
    pub replicas: u8,
    /// Whether new flows wait for them.
    pub commit: Option<OutputCommit>,
    /// What the switches run.
    pub switches: SwitchKind,
    /// Interval of BFD; three of them are a silence.
    pub bfd: Duration,
    /// Shards of all nodes together.
    pub shards: u16,
    /// Flows that each node's tables have room for.
    pub flows_max: u32,
    /// Whether nodes take huge pages when there are some.
    pub has_huge_pages: bool,
    /// How long ports rest. None: as shipped.
    pub quarantine_sec: Option<u32>,
    /// How long a flow of UDP that nobody answers may be idle. None: as shipped.
    pub udp_sec: Option<u32>,
    /// Homes of a shard.
    pub subscribers_max: u16,
    /// Length of a shard's public prefix. None: 28 of a few shards, 32 of many.
    pub per_shard: Option<u8>,
}

impl ClusterOptions {
    /// What the cluster's files say.
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
        }
    }

    /// How long ports rest, and a site that restarts without etcd stays closed at least.
    ///
    /// # Errors
    /// When the cluster's file is wrong.
    pub fn quarantine(&self) -> Result<Duration> {
        let cluster = weir_config::parse_cluster(&self.files().cluster(), "cluster.toml");
        let (cluster, _) = cluster.map_err(|findings| anyhow::anyhow!("{findings:?}"))?;
        Ok(Duration::from_secs(cluster.nat.quarantine_sec.into()))
    }

    /// Time that every shard has to get all its copies, from nothing or after a fault.
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
        }
    }
}

/// A running cluster. Fields drop in this order, the lab last.
#[derive(Debug)]
pub struct ClusterLab {
    /// The nodes that were started, by number.
    pub nodes: Vec<ClusterNode>,
    /// None: one node, alone, with static routes to it.
    pub control: Option<ControlPlane>,
    /// Reads the map, where there is one.
    pub map: Option<MapReader>,
    /// The switches' daemons: access, internet.
    pub switches: Vec<Switch>,
    /// The homes.
    pub homes: ClusterHomes,
    /// All links.
    pub network: ClusterNetwork,
    /// Its options; of a node alone those that still mean something.
    pub options: ClusterOptions,
    /// Everything above lives in it.
    pub lab: Lab,
    _exclusive: MutexGuard<'static, ()>,
}

impl ClusterLab {
    /// One node with all shards, the only way for everything: what a failure costs without a cluster.
    pub fn start_alone() -> Result<Self> {
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::open()?;
        let network = ClusterNetwork::build(&lab, 1)?;
        for (side, prefix) in [(Network::Access, ENDPOINTS), (Network::Internet, PUBLIC)] {
            let worker = side.worker(1, 0);
            network.switch(side).ip(&format!("route add {prefix} via {worker}"))?;
        }
        let options = ClusterOptions { nodes: 1, replicas: 0, ..ClusterOptions::default() };
        let file = options.files().alone(1, lab.directory());
        let node = ClusterNode::start(&lab, &network.nodes[0], 1, &file, None)?;
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

    /// A cluster; returns when every shard has its copies. `progress` is told what comes next.
    pub fn start(options: ClusterOptions, progress: impl Fn(&str)) -> Result<Self> {
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::open()?;
        progress("building namespaces: homes, two switches, nodes, server, management");
        let cabled = options.nodes + options.spare_nodes;
        let network = ClusterNetwork::build(&lab, cabled)?;
        progress("starting the switches");
        let switches = [(&network.access, Network::Access), (&network.internet, Network::Internet)]
            .map(|(it, side)| {
                Switch::start(&lab, it.clone(), options.switches, side, cabled.max(2), options.bfd)
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

    /// Starts the next node that is cabled; does not wait for it.
    pub fn add_node(&mut self) -> Result<()> {
        let number = self.nodes.len() as u8 + 1;
        let namespace = self.network.nodes.get(self.nodes.len()).context("no node left")?;
        let file = self.options.files().node(number, self.lab.directory());
        let bfd = Some(self.options.bfd);
        self.nodes.push(ClusterNode::start(&self.lab, namespace, number, &file, bfd)?);
        Ok(())
    }

    /// The node of a number.
    pub fn node(&self, number: u8) -> Result<&ClusterNode> {
        self.nodes.get(usize::from(number) - 1).with_context(|| format!("no node {number}"))
    }

    /// The control plane of a cluster.
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

    /// Opens connections from all homes.
    pub fn connect(&self, clock: Clock, mixture: Mixture) -> Result<Connections> {
        let (homes, server) = (&self.network.homes, &self.network.server);
        Connections::start(clock, mixture, (homes, &self.homes.inside), (server, TCP))
    }

    /// Probes from the first home of each shard that has one.
    pub fn probe(&self, clock: Clock, interval: Duration) -> Result<Probes> {
        let homes =
            self.homes.inside.iter().take(usize::from(self.options.shards)).copied().collect();
        let plan = ProbePlan { homes, server: UDP, interval };
        Probes::start(clock, &plan, &self.network.homes, &self.network.server)
    }

    /// Begins flows from all homes.
    pub fn begin_flows(&self, clock: Clock, per_sec: u32) -> Result<NewFlows> {
        let plan = NewFlowPlan { homes: self.homes.inside.clone(), server: NEW_UDP, per_sec };
        NewFlows::start(clock, plan, &self.network.homes, &self.network.server)
    }

    /// Begins flows of so many homes that have no gateway. `note` is given each datagram that arrives.
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
    ClusterHomes::start(lab, &network.homes, HOMES, endpoint)
}
