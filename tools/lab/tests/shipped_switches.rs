//! packaging/switch and packaging/bird serve the cluster of examples/cluster.toml, all as shipped.
//!
//! ```text
//!   edge1 .10 --+
//!   edge2 .20 --+-- switch 10.1.0.1
//!   edge3 .30 --+
//! ```
//!
//! Each side is a bridge with the gateway's address, and BIRD or FRR with the file of the side. The
//! nodes have the shipped weir.conf, edge2 and edge3 with their own addresses, and a guard that
//! announces shards of the example by its workers.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::Ipv4Net;
use nix::sys::signal::Signal;
use weir_config::{
    ClusterShard, Desired, InterfaceSettings, MemberFile, parse_cluster, parse_member,
};
use weir_lab::bird::{Bird, packaged, with_settings};
use weir_lab::steering::{Switch, SwitchKind};
use weir_lab::{Lab, Namespace, Process, frr, veth, wait_for};
use weir_routes::RouteSide;
use weir_routes::bird::exported;

const PROGRAM: &str = env!("CARGO_BIN_EXE_steering_node");
const DEADLINE: Duration = Duration::from_secs(30);
const SIDES: [RouteSide; 2] = [RouteSide::Access, RouteSide::Internet];
/// docs/topology.md, "BGP and BFD".
const PRIMARY_MED: u32 = (1 << 31) - 8;
const REPLICA_MED: u32 = (1 << 31) + 1;

fn project(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cluster of the example.
struct Example {
    cluster: Desired,
    nodes: Vec<MemberFile>,
}

impl Example {
    fn read() -> Self {
        let (cluster, _) = parse_cluster(&project("examples/cluster.toml"), "cluster.toml")
            .unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut named: Vec<(String, MemberFile)> = Vec::new();
        for number in 1..=3 {
            let name = format!("node-{number}.toml");
            let text = project(&format!("examples/{name}"));
            let (member, _) = parse_member(&text, &name, &cluster, &named)
                .unwrap_or_else(|errors| panic!("{errors:?}"));
            named.push((name, member));
        }
        Self { cluster, nodes: named.into_iter().map(|(_, member)| member).collect() }
    }

    /// Returns the ports of all workers on a side, by node.
    fn ports(&self, side: RouteSide) -> Vec<&InterfaceSettings> {
        let workers = self.nodes.iter().flat_map(|node| &node.workers);
        workers
            .map(|worker| if side == RouteSide::Access { &worker.access } else { &worker.internet })
            .collect()
    }

    fn worker(&self, side: RouteSide, worker: usize) -> Ipv4Addr {
        self.ports(side)[worker].address.addr()
    }

    fn switch(&self, side: RouteSide) -> Ipv4Addr {
        self.ports(side)[0].gateways[0]
    }

    /// Returns as many shards as there are workers: the first ones of the pool, its last one, and
    /// the one outside of it.
    fn shards(&self) -> Vec<&ClusterShard> {
        let (count, shards) = (self.ports(RouteSide::Access).len(), &self.cluster.shards);
        shards[..count - 2].iter().chain(&shards[shards.len() - 2..]).collect()
    }
}

/// Returns the prefixes of a shard that are announced on a side.
fn prefixes(shard: &ClusterShard, side: RouteSide) -> Vec<Ipv4Net> {
    match side {
        RouteSide::Access => shard.endpoint.into_iter().map(Ipv4Net::from).collect(),
        RouteSide::Internet => shard.public.clone(),
    }
}

fn short_name(side: RouteSide) -> &'static str {
    if side == RouteSide::Access { "access" } else { "internet" }
}

/// Returns a row of the address table in docs/topology.md: its cell for each side; the first word
/// of a cell may begin further rows.
fn row(name: &str, side: RouteSide) -> Vec<String> {
    let guide = project("docs/topology.md");
    let begin = format!("| {name} |");
    let line = guide.lines().find(|line| line.starts_with(&begin));
    let line = line.unwrap_or_else(|| panic!("no row \"{name}\" in docs/topology.md"));
    let cell = line.split('|').nth(2 + side as usize).unwrap();
    let words = cell.split_whitespace().map(|word| word.trim_end_matches(','));
    let words = words.filter(|word| word.contains(|it: char| it.is_ascii_digit()));
    let words: Vec<_> = words.collect();
    let network = words[0].rsplit_once('.').map_or("", |(network, _)| network);
    words
        .iter()
        .map(
            |word| {
                if word.starts_with('.') { format!("{network}{word}") } else { word.to_string() }
            },
        )
        .collect()
}

fn kernel_addresses(side: RouteSide) -> Vec<String> {
    row("BIRD of edge1, edge2, edge3", side)
}

fn aggregates(side: RouteSide) -> BTreeSet<Ipv4Net> {
    let words = row("aggregate, with a discard route", side);
    words.iter().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn the_guide_draws_the_addresses_of_the_examples_and_of_edge1() {
    let example = Example::read();
    for side in SIDES {
        let ports = example.ports(side);
        let workers: Vec<_> = ports.iter().map(|port| port.address.addr().to_string()).collect();
        assert_eq!(row("workers", side), workers);
        assert_eq!(row("gateway of the workers", side), [example.switch(side).to_string()]);
        let vlan_and_subnet =
            [ports[0].vlan.unwrap().to_string(), ports[0].address.trunc().to_string()];
        let cell = row("VLAN, subnet", side);
        assert_eq!(cell, vlan_and_subnet);
        assert!(ports.iter().all(|port| port.vlan == ports[0].vlan));
        for shard in &example.cluster.shards {
            let is_inside =
                |net: &Ipv4Net| aggregates(side).iter().any(|aggregate| aggregate.contains(net));
            assert!(prefixes(shard, side).iter().all(is_inside), "shard {}", shard.id);
        }
    }
    let (guide, config) = (project("docs/topology.md"), packaged("bird/weir.conf").unwrap());
    let rows = guide.split("A node's `packaging/bird/weir.conf`, here edge1's:").nth(1).unwrap();
    let rows = rows.trim_start().lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut count = 0;
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let names: Vec<_> = cells[1].split(", ").map(|name| name.trim_matches('`')).collect();
        let values: Vec<_> = cells[2].split(", ").collect();
        for (position, name) in names.iter().enumerate() {
            let define = format!("define {name} = {};", values[position.min(values.len() - 1)]);
            assert!(config.contains(&define), "no \"{define}\" in packaging/bird/weir.conf");
            count += 1;
        }
    }
    let settings = config.split("# weir's device").next().unwrap();
    assert_eq!(count, settings.matches("define ").count());
}

/// Returns the lines of a BIRD configuration on which both ends of a session should agree.
fn timers(config: &str) -> Vec<&str> {
    let names = [
        "interface \"*\"",
        "graceful restart",
        "long lived",
        "hold time",
        "keepalive time",
        "connect delay",
        "connect retry",
        "error wait",
        "bfd on",
        "protocol device",
    ];
    let lines = config.lines().map(str::trim);
    lines.filter(|line| names.iter().any(|name| line.starts_with(name))).collect()
}

#[test]
fn nodes_and_bird_switches_have_the_same_timers_and_both_sides_the_same_protocols() {
    let node = packaged("bird/weir.conf").unwrap();
    let [access, internet] =
        SIDES.map(|side| packaged(&format!("switch/bird-{}.conf", short_name(side))).unwrap());
    assert_eq!(timers(&node).len(), 10);
    assert_eq!(timers(&node), timers(&access));
    assert_eq!(timers(&node), timers(&internet));
    let protocols = |text: &str| {
        let body = text.split("\nlog stderr").nth(1).unwrap().to_owned();
        let is_discard = |line: &&str| line.trim().starts_with("route ");
        body.lines().filter(|line| !is_discard(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(protocols(&access), protocols(&internet));
}

/// A node of the example without a data path.
struct Node {
    bird: Bird,
    process: Process,
    orders: PathBuf,
}

/// Both switches and all nodes.
struct Network {
    example: Example,
    kind: SwitchKind,
    switches: [Switch; 2],
    nodes: Vec<Node>,
    lab: Lab,
}

#[test]
fn bird_switches_serve_the_example() {
    checked(SwitchKind::Bird);
}

#[test]
fn frr_switches_serve_the_example() {
    checked(SwitchKind::Frr);
}

fn checked(kind: SwitchKind) {
    let network = Network::open(kind).unwrap();
    if let Err(error) = network.play() {
        panic!("{error:#}\n{}", network.lab.logs());
    }
}

impl Network {
    fn open(kind: SwitchKind) -> Result<Self> {
        let (lab, example) = (Lab::open()?, Example::read());
        let namespaces = [lab.namespace("access")?, lab.namespace("internet")?];
        let names = example.nodes.iter().map(|node| lab.namespace(&node.node.name));
        let nodes = names.collect::<Result<Vec<_>>>()?;
        for (side, switch) in SIDES.into_iter().zip(&namespaces) {
            cable(&example, side, switch, &nodes)?;
        }
        let mut switches = Vec::new();
        for (side, namespace) in SIDES.into_iter().zip(namespaces) {
            switches.push(start_switch(&lab, kind, side, namespace)?);
        }
        let switches = switches.try_into().ok().context("two switches")?;
        let started = nodes.iter().enumerate().map(|(number, it)| Node::start(&lab, it, number));
        let nodes = started.collect::<Result<_>>()?;
        Ok(Self { example, kind, switches, nodes, lab })
    }

    fn play(&self) -> Result<()> {
        self.nodes.iter().try_for_each(Node::wait_sessions)?;
        for side in SIDES {
            self.check_switch(side)?;
        }
        self.announce_foreign()?;
        self.announce_shards()?;
        let workers = self.example.shards().len();
        for shard in 0..workers {
            self.wait_served(shard, shard)?;
        }
        for side in SIDES {
            ensure!(self.accepted(side)? == self.wanted(side), "{:?}", self.accepted(side)?);
        }
        // Announcements without a MED come last: the copies on edge1 beat those of the primaries on
        // edge3.
        let (last, config) = (&self.nodes[2], node_config(2)?);
        let med = "  bgp_med = krt_metric;\n";
        ensure!(config.contains(med), "no \"{med}\" in packaging/bird/weir.conf");
        last.bird.configure(&config.replace(med, ""))?;
        last.bird.ask("reload out all")?;
        self.wait_served(4, 0)?;
        last.bird.configure(&config)?;
        last.bird.ask("reload out all")?;
        self.wait_served(4, 4)?;
        for side in SIDES {
            self.check_one_path(side)?;
        }
        // The primary's routes end with its process.
        self.nodes[0].process.signal(Signal::SIGKILL)?;
        self.wait_served(0, 2)?;
        self.wait_served(1, 3)
    }

    fn switch(&self, side: RouteSide) -> &Switch {
        &self.switches[side as usize]
    }

    /// Checks a switch's sessions, its limit and its discard routes.
    fn check_switch(&self, side: RouteSide) -> Result<()> {
        let switch = self.switch(side);
        let limit = self.example.cluster.cluster.max_routes.context("max_routes")?;
        if let Some(bird) = &switch.bird {
            wait_for("BFD of a switch", DEADLINE, || is_fast(bird, self.nodes.len()))?;
            let protocols = bird.ask("show protocols all")?;
            let limits = format!("Import limit:   {limit}\n      Action:       warn");
            ensure!(protocols.matches(&limits).count() == self.nodes.len(), "{protocols}");
        } else {
            self.check_frr(side, limit)?;
        }
        let routes = ["-4", "route", "show", "type", "blackhole"];
        let mut last = BTreeSet::new();
        let seen = wait_for("discard routes", DEADLINE, || {
            let routes = switch.namespace.run(DEADLINE, "ip", &routes).ok()?.success().ok()?;
            let found = routes.stdout.lines().filter_map(|line| line.split_whitespace().nth(1));
            last = found.filter_map(|prefix| prefix.parse().ok()).collect();
            (last == aggregates(side)).then_some(())
        });
        seen.with_context(|| format!("{last:?} instead of {:?}", aggregates(side)))
    }

    fn check_frr(&self, side: RouteSide, limit: u32) -> Result<()> {
        let name = format!("switch-{}", short_name(side));
        wait_for("BFD of a switch", DEADLINE, || {
            let peers = frr::ask(&self.lab, &name, "show bfd peers json").ok()?;
            let is_fast = |peer: &serde_json::Value| {
                peer["status"] == "up"
                    && peer["remote-detect-multiplier"] == 3
                    && peer["remote-transmit-interval"] == 50
                    && peer["remote-receive-interval"] == 50
            };
            let peers = peers.as_array()?;
            (peers.len() == self.nodes.len() && peers.iter().all(is_fast)).then_some(())
        })?;
        let neighbors = frr::ask(&self.lab, &name, "show bgp neighbors json")?;
        for address in kernel_addresses(side) {
            let neighbor = &neighbors[&address];
            let family = &neighbor["addressFamilyInfo"]["ipv4Unicast"];
            ensure!(family["prefixAllowedMax"] == limit, "{address}: {family:#}");
            ensure!(family["prefixAllowedMaxWarning"] == true, "{address}: {family:#}");
            ensure!(neighbor["bgpTimerConfiguredHoldTimeMsecs"] == 9000, "{neighbor:#}");
            ensure!(neighbor["bgpTimerConfiguredKeepAliveIntervalMsecs"] == 3000, "{neighbor:#}");
            ensure!(neighbor["connectRetryTimer"] == 1, "{neighbor:#}");
            ensure!(neighbor["minBtwnAdvertisementRunsTimerMsecs"] == 0, "{neighbor:#}");
        }
        Ok(())
    }

    /// Lets worker 0 announce routes that no switch may accept, and routes that it may just accept.
    fn announce_foreign(&self) -> Result<()> {
        let (refused, allowed) = (self.refused(), self.allowed());
        self.nodes[0].order(&format!("set 0 {refused} {allowed}"))?;
        for side in SIDES {
            let is_of_side = |route: &&str| route.starts_with(short_name(side));
            let routes = || refused.split(' ').chain(allowed.split(' '));
            let count = routes().filter(is_of_side).count();
            let protocol = format!("{}_switch", short_name(side));
            wait_for("export of what the switches refuse", DEADLINE, || {
                let routes = exported(self.nodes[0].bird.socket(), &protocol).ok()?;
                (routes.len() == count).then_some(())
            })?;
        }
        Ok(())
    }

    /// Returns neighbours of the aggregates, prefixes that are too short or as short as the
    /// aggregates, and a next hop that is no worker.
    fn refused(&self) -> String {
        let mut routes = Vec::new();
        for side in SIDES {
            let worker = self.example.worker(side, 0);
            for aggregate in aggregates(side) {
                let (first, last) =
                    (u32::from(aggregate.network()), u32::from(aggregate.broadcast()));
                let outside = [first - 1, last + 1].map(|it| Ipv4Net::from(Ipv4Addr::from(it)));
                let short = if side == RouteSide::Access { 31 } else { aggregate.prefix_len() };
                let short = Ipv4Net::new(aggregate.network(), short).unwrap();
                routes.extend(outside.into_iter().chain([short]).map(|net| (side, net, worker)));
            }
            let shard = &self.example.cluster.shards[100];
            let stranger = Ipv4Addr::from(u32::from(worker) + 256);
            routes.extend(prefixes(shard, side).into_iter().map(|net| (side, net, stranger)));
        }
        written(&routes)
    }

    /// Returns the ends of the aggregates, the shortest prefixes of the internet side, and the last
    /// next hop of the subnet.
    fn allowed(&self) -> String {
        let mut routes = Vec::new();
        for side in SIDES {
            let port = self.example.ports(side)[0].address;
            routes.extend(edges(side).into_iter().map(|net| (side, net, port.addr())));
            let last = port.hosts().last().unwrap_or_else(|| port.addr());
            routes.extend(self.far(side).into_iter().map(|net| (side, net, last)));
        }
        written(&routes)
    }

    /// Returns the prefixes that two nodes announce with the same MED.
    fn twice(&self, side: RouteSide) -> Vec<Ipv4Net> {
        prefixes(&self.example.cluster.shards[102], side)
    }

    /// Returns the prefixes that are announced with the last next hop of the subnet.
    fn far(&self, side: RouteSide) -> Vec<Ipv4Net> {
        prefixes(&self.example.cluster.shards[101], side)
    }

    /// Announces each shard with a primary on its worker, and a copy on the worker two further,
    /// which is on the next node.
    fn announce_shards(&self) -> Result<()> {
        let shards = self.example.shards();
        for worker in 0..shards.len() {
            let copied = (worker + shards.len() - 2) % shards.len();
            let mut routes = Vec::new();
            for side in SIDES {
                for (shard, med) in [(worker, PRIMARY_MED), (copied, REPLICA_MED)] {
                    let next_hop = self.example.worker(side, worker);
                    for prefix in prefixes(shards[shard], side) {
                        routes.push(format!("{},{prefix},{next_hop},{med}", short_name(side)));
                    }
                }
            }
            for side in SIDES.into_iter().filter(|_| [2, 4].contains(&worker)) {
                let next_hop = self.example.worker(side, worker);
                let twice = self.twice(side).into_iter().map(|net| (side, net, next_hop));
                routes.push(written(&twice.collect::<Vec<_>>()));
            }
            if worker == 0 {
                routes.extend([self.refused(), self.allowed()]);
            }
            let (node, index) = (&self.nodes[worker / 2], worker % 2);
            node.order(&format!("set {index} {}", routes.join(" ")))?;
        }
        Ok(())
    }

    /// Waits until the switches send all prefixes of a shard to this worker.
    fn wait_served(&self, shard: usize, worker: usize) -> Result<()> {
        for side in SIDES {
            for prefix in prefixes(self.example.shards()[shard], side) {
                let next_hop = self.example.worker(side, worker);
                self.switch(side).wait_route(&prefix.to_string(), Some(next_hop))?;
            }
        }
        Ok(())
    }

    /// Checks a shard that two nodes announce with the same MED: the switch has both routes, and
    /// sends to one.
    fn check_one_path(&self, side: RouteSide) -> Result<()> {
        let switch = self.switch(side);
        for prefix in self.twice(side) {
            let known = match &switch.bird {
                Some(_) => switch.meds(&prefix.to_string())?.len(),
                None => {
                    let name = format!("switch-{}", short_name(side));
                    let question = format!("show bgp ipv4 unicast {prefix} json");
                    let paths = frr::ask(&self.lab, &name, &question)?;
                    paths["paths"].as_array().context("no paths")?.len()
                }
            };
            let route = ["-4", "route", "show", &prefix.to_string()];
            let route = switch.namespace.run(DEADLINE, "ip", &route)?.success()?.stdout;
            let next_hops = route.matches(" via ").count();
            ensure!((known, next_hops) == (2, 1), "{prefix}: {known} announcements, {route}");
        }
        Ok(())
    }

    /// Returns every prefix that a switch accepted from its nodes.
    fn accepted(&self, side: RouteSide) -> Result<BTreeSet<Ipv4Net>> {
        if let Some(bird) = &self.switch(side).bird {
            let routes = bird.ask("show route where source = RTS_BGP")?;
            let words = routes.lines().filter_map(|line| line.split_whitespace().next());
            return Ok(words.filter_map(|word| word.parse().ok()).collect());
        }
        ensure!(self.kind == SwitchKind::Frr, "a switch without a daemon");
        let name = format!("switch-{}", short_name(side));
        let routes = frr::ask(&self.lab, &name, "show bgp ipv4 unicast json")?;
        ensure!(routes["routerId"] == self.example.switch(side).to_string(), "{routes:#}");
        let routes = routes["routes"].as_object().context("no routes")?;
        routes.keys().map(|prefix| Ok(prefix.parse()?)).collect()
    }

    fn wanted(&self, side: RouteSide) -> BTreeSet<Ipv4Net> {
        let shards = self.example.shards();
        let announced = shards.iter().flat_map(|shard| prefixes(shard, side));
        announced.chain(edges(side)).chain(self.far(side)).chain(self.twice(side)).collect()
    }
}

fn edges(side: RouteSide) -> Vec<Ipv4Net> {
    let of = |aggregate: Ipv4Net| {
        let ends = [aggregate.network(), aggregate.broadcast()].map(Ipv4Net::from);
        let halves = Ipv4Net::new(aggregate.network(), aggregate.prefix_len() + 1).unwrap();
        ends.into_iter().chain((side == RouteSide::Internet).then_some(halves))
    };
    aggregates(side).into_iter().flat_map(of).collect()
}

fn written(routes: &[(RouteSide, Ipv4Net, Ipv4Addr)]) -> String {
    let words = routes.iter().map(|(side, prefix, next_hop)| {
        format!("{},{prefix},{next_hop},{PRIMARY_MED}", short_name(*side))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Makes a bridge with the gateway's address and one in the next network, and connects the nodes'
/// kernels to it.
fn cable(
    example: &Example,
    side: RouteSide,
    switch: &Namespace,
    nodes: &[Namespace],
) -> Result<()> {
    let (gateway, length) = (example.switch(side), example.ports(side)[0].address.prefix_len());
    switch.ip("link add br0 type bridge")?;
    switch.ip(&format!("addr add {gateway}/{length} dev br0"))?;
    switch
        .ip(&format!("addr add {}/{length} dev br0", Ipv4Addr::from(u32::from(gateway) + 256)))?;
    switch.ip("link set br0 up")?;
    for (number, (node, address)) in nodes.iter().zip(kernel_addresses(side)).enumerate() {
        let (port, far) = (short_name(side), format!("node{number}"));
        veth::connect((node, port), (switch, &far))?;
        node.ip(&format!("addr add {address}/{length} dev {port}"))?;
        switch.ip(&format!("link set {far} master br0"))?;
    }
    Ok(())
}

fn start_switch(lab: &Lab, kind: SwitchKind, side: RouteSide, netns: Namespace) -> Result<Switch> {
    let (name, side) = (format!("switch-{}", short_name(side)), short_name(side));
    let bird = match kind {
        SwitchKind::Bird => {
            let config = packaged(&format!("switch/bird-{side}.conf"))?;
            Some(Bird::start(lab, &netns, &name, &config)?)
        }
        SwitchKind::Frr => {
            frr::start(lab, &netns, &name, &packaged(&format!("switch/frr-{side}.conf"))?)?;
            None
        }
    };
    Ok(Switch { namespace: netns, bird })
}

/// Returns the shipped file, which is edge1's; for another node with that node's addresses.
fn node_config(number: usize) -> Result<String> {
    let config = packaged("bird/weir.conf")?;
    if number == 0 {
        return Ok(config);
    }
    let [access, internet] = SIDES.map(|side| kernel_addresses(side)[number].clone());
    let settings =
        [("ROUTER_ID", &*access), ("ACCESS_ADDRESS", &access), ("INTERNET_ADDRESS", &internet)];
    with_settings(&config, &settings)
}

/// True if all BFD sessions of a BIRD are up and detect a silent peer within three times 50 ms.
fn is_fast(bird: &Bird, count: usize) -> Option<()> {
    let sessions = bird.ask("show bfd sessions").ok()?;
    let fast = sessions.lines().filter(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.contains(&"Up") && words.contains(&"0.050") && words.contains(&"0.150")
    });
    (fast.count() == count).then_some(())
}

impl Node {
    fn start(lab: &Lab, namespace: &Namespace, number: usize) -> Result<Self> {
        let bird = Bird::start(lab, namespace, &format!("bird{number}"), &node_config(number)?)?;
        let orders = lab.directory().join(format!("node{number}.orders"));
        let mut command = namespace.command(PROGRAM);
        // Two workers, neither of which is ever silent for 10 s.
        command.arg("node").arg(&orders).args(["2", "10000"]);
        let process = lab.start(&format!("node{number}"), &mut command)?;
        process.wait_words("guard ", DEADLINE)?;
        Ok(Self { bird, process, orders })
    }

    /// Waits for both BGP sessions, with their timers, and both BFD sessions.
    fn wait_sessions(&self) -> Result<()> {
        let mut last = String::new();
        let seen = wait_for("BGP and BFD sessions of a node", DEADLINE, || {
            last = self.bird.ask("show protocols all").ok()?;
            let ends = |word: &str, end: &str| {
                let lines = last.lines().filter(|line| line.contains(word) && line.ends_with(end));
                lines.count() == SIDES.len()
            };
            let are_up = last.matches("BGP state:          Established").count() == SIDES.len();
            (are_up && ends("Hold timer:", "/9") && ends("Keepalive timer:", "/3")).then_some(())?;
            is_fast(&self.bird, SIDES.len())
        });
        seen.with_context(|| format!("{last}\n{:?}", self.bird.ask("show bfd sessions")))
    }

    /// Sends a command to the process and waits until it is done.
    fn order(&self, order: &str) -> Result<()> {
        wait_for("socket for orders", DEADLINE, || self.orders.exists().then_some(()))?;
        UnixDatagram::unbound()?.send_to(order.as_bytes(), &self.orders)?;
        self.process.wait_line(&format!("done: {order}"), DEADLINE)
    }
}
