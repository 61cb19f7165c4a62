//! Two nodes without a data path, each with a guard and BIRD, and a switch on each side.
//!
//! ```text
//!   node1: 10.9.0.1 acc0 ---- access switch, 10.9.0.254
//!          10.10.0.1 net0 --- internet switch, 10.10.0.254
//!   node2: likewise, .2
//!
//!   the workers' addresses are next hops only:
//!          node n, worker w: 10.9.0.(10n + w), 10.10.0.(10n + w)
//! ```

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weir_routes::{KernelRoute, dump};

use crate::bird::{Bird, packaged, with_settings};
use crate::condition::wait_for;
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::{frr, veth};

const DEADLINE: Duration = Duration::from_secs(30);
/// The kernel's main table.
const MAIN_TABLE: u32 = 254;
/// Interval of BFD in the packaged configurations.
pub(crate) const PACKAGED_BFD: Duration = Duration::from_millis(50);
/// Number of nodes that the packaged configurations of switches name.
const PACKAGED_NODES: u8 = 3;
const ROUTE_POLL: Duration = Duration::from_micros(500);

/// The routing daemon of the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// BIRD 2.
    Bird,
    /// FRR.
    Frr,
}

/// A side of the network, with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// 10.9.0.0/24.
    Access,
    /// 10.10.0.0/24.
    Internet,
}

/// A switch: a bridge with an address, and a routing daemon.
#[derive(Debug)]
pub struct Switch {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its BIRD. None if it runs FRR.
    pub bird: Option<Bird>,
}

/// A steering node.
#[derive(Debug)]
pub struct Node {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its BIRD.
    pub bird: Bird,
    /// The process that owns the guard.
    pub process: Process,
    orders: PathBuf,
}

/// The laboratory: nodes and switches.
#[derive(Debug)]
pub struct Steering {
    /// The nodes 1 and 2.
    pub nodes: [Node; 2],
    /// The switch to which endpoints are announced.
    pub access: Switch,
    /// The switch to which prefixes are announced.
    pub internet: Switch,
    /// The laboratory that contains everything above.
    pub lab: Lab,
}

/// How the nodes watch their workers.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// Silence of a worker until it is fenced.
    pub silence: Duration,
    /// Further silence until the process is killed.
    pub kill_after: Option<Duration>,
}

impl Network {
    /// Returns the address that ends in `last`.
    pub fn address(self, last: u8) -> Ipv4Addr {
        match self {
            Network::Access => Ipv4Addr::new(10, 9, 0, last),
            Network::Internet => Ipv4Addr::new(10, 10, 0, last),
        }
    }

    /// Returns the next hop of worker `worker` of node `node` (1 or 2).
    pub fn worker(self, node: u8, worker: u8) -> Ipv4Addr {
        self.address(10 * node + worker)
    }

    fn port(self) -> &'static str {
        match self {
            Network::Access => "acc0",
            Network::Internet => "net0",
        }
    }
}

impl Steering {
    /// Starts everything; returns when every node has its BGP sessions. `program` is the path of
    /// the steering node.
    pub fn open(kind: SwitchKind, program: &str, watch: Watch) -> Result<Self> {
        let lab = Lab::open()?;
        let switches = [lab.namespace("access")?, lab.namespace("internet")?];
        for (switch, network) in switches.iter().zip([Network::Access, Network::Internet]) {
            switch.ip("link add br0 type bridge")?;
            switch.ip(&format!("addr add {}/24 dev br0", network.address(254)))?;
            switch.ip("link set br0 up")?;
        }
        let nodes = [lab.namespace("node1")?, lab.namespace("node2")?];
        for (node, number) in nodes.iter().zip(1..) {
            for (switch, network) in switches.iter().zip([Network::Access, Network::Internet]) {
                let (port, far) = (network.port(), format!("node{number}"));
                veth::connect((node, port), (switch, &far))?;
                node.ip(&format!("addr add {}/24 dev {port}", network.address(number)))?;
                switch.ip(&format!("link set {far} master br0"))?;
            }
        }
        let [access, internet] = switches;
        let [access, internet] = [(access, Network::Access), (internet, Network::Internet)]
            .map(|(switch, side)| Switch::start(&lab, switch, kind, side, 2, PACKAGED_BFD, ""));
        let (access, internet) = (access?, internet?);
        let [one, two] = nodes;
        let nodes = [
            Node::start(&lab, one, 1, program, watch)?,
            Node::start(&lab, two, 2, program, watch)?,
        ];
        for node in &nodes {
            node.wait_established()?;
        }
        Ok(Self { nodes, access, internet, lab })
    }
}

impl Switch {
    /// Starts the routing daemon with the nodes 1 to `nodes` as neighbours, and node 3 in any case,
    /// and with `more` beside the packaged configuration. `br0` has the switch's address already.
    pub(crate) fn start(
        lab: &Lab,
        namespace: Namespace,
        kind: SwitchKind,
        network: Network,
        nodes: u8,
        bfd: Duration,
        more: &str,
    ) -> Result<Self> {
        // A delayed acknowledgement would hold up all but the first routes of a node (S-16 of
        // docs/topology.md).
        let (subnet, address) = (network.address(0), network.address(254));
        namespace.ip(&format!(
            "route replace {subnet}/24 dev br0 proto kernel scope link src {address} quickack 1"
        ))?;
        let name = namespace.name().rsplit('-').next().unwrap_or("switch").to_owned();
        let name = format!("switch-{name}");
        let bird = match kind {
            SwitchKind::Bird => {
                let config = bird_config(network, nodes, bfd)? + more;
                Some(Bird::start(lab, &namespace, &name, &config)?)
            }
            SwitchKind::Frr => {
                let config = frr_config(network, nodes, bfd)?;
                // To all daemons but one the `exit` of a BFD peer is the end of what they read.
                let (before, peers) = config.split_once("\nbfd\n").context("no BFD peers")?;
                let config = format!("{before}\n{more}bfd\n{peers}");
                frr::start(lab, &namespace, &name, &config)?;
                None
            }
        };
        Ok(Self { namespace, bird })
    }

    /// Waits until the kernel of the switch has `next_hop` (`None`: no route) as the only next hop
    /// of `prefix`. Returns the time it took, measured every half millisecond.
    pub fn wait_route(&self, prefix: &str, next_hop: Option<Ipv4Addr>) -> Result<Duration> {
        self.wait_next_hop(prefix, next_hop.map(IpAddr::from))
    }

    /// Waits as [`wait_route`](Self::wait_route) does, for a prefix of either family.
    pub fn wait_next_hop(&self, prefix: &str, next_hop: Option<IpAddr>) -> Result<Duration> {
        let prefix = prefix.parse()?;
        let start = Instant::now();
        self.namespace.enter(|| {
            loop {
                let found: Vec<KernelRoute> =
                    dump(MAIN_TABLE)?.into_iter().filter(|route| route.prefix == prefix).collect();
                if found.iter().map(|route| route.next_hop).eq(next_hop.map(Some)) {
                    return Ok(start.elapsed());
                }
                if start.elapsed() > DEADLINE {
                    bail!("{prefix} does not go to {next_hop:?} but {found:?}");
                }
                std::thread::sleep(ROUTE_POLL);
            }
        })
    }

    /// Returns the MEDs of all announcements of `prefix`, the best one first.
    pub fn meds(&self, prefix: &str) -> Result<Vec<u32>> {
        let bird = self.bird.as_ref().context("a switch without BIRD")?;
        let answer = bird.ask(&format!("show route {prefix} all"))?;
        let meds = answer.lines().filter_map(|line| line.trim().strip_prefix("BGP.med: "));
        meds.map(|med| Ok(med.parse()?)).collect()
    }

    /// Waits until the announcements of `prefix` have these MEDs, the best one first.
    pub fn wait_meds(&self, prefix: &str, wanted: &[u32]) -> Result<()> {
        let mut last = Vec::new();
        let seen = wait_for(&format!("MEDs {wanted:?} of {prefix}"), DEADLINE, || {
            last = self.meds(prefix).ok()?;
            (last == wanted).then_some(())
        });
        seen.with_context(|| format!("but {last:?}"))
    }
}

/// Returns the packaged configuration with the lab's addresses and routes. It names the nodes 1 to
/// 3; further ones are added as an operator would add them.
fn bird_config(network: Network, nodes: u8, bfd: Duration) -> Result<String> {
    let (file, routes) = match network {
        Network::Access => ("switch/bird-access.conf", "[ 10.100.0.0/16{32,32} ]"),
        Network::Internet => ("switch/bird-internet.conf", "[ 203.0.113.0/24+, 198.18.0.0/15+ ]"),
    };
    let address = |last| network.address(last).to_string();
    let settings = [
        ("SWITCH_ADDRESS", &*address(254)),
        ("NODE_1", &address(1)),
        ("NODE_2", &address(2)),
        ("NODE_3", &address(3)),
        ("WORKERS", &format!("{}/24", address(0))),
        ("ROUTES", routes),
    ];
    let mut config = with_settings(&packaged(file)?, &settings)?;
    for node in PACKAGED_NODES + 1..=nodes {
        let address = address(node);
        writeln!(
            config,
            "protocol bgp node_{node} from weir_node {{ neighbor {address} as NODE_AS; }}"
        )?;
    }
    with_bfd(&config, "interval 50 ms;", &format!("interval {} ms;", bfd.as_millis()))
}

/// Like [`bird_config`], by text replacement: FRR's file has no settings.
fn frr_config(network: Network, nodes: u8, bfd: Duration) -> Result<String> {
    let (file, subnet, routes, lab_routes): (_, _, _, &[&str]) = match network {
        Network::Access => (
            "switch/frr-access.conf",
            "10.1.0.",
            ["10.100.0.0/20 ge 32", "10.101.0.0/24 ge 32"],
            &["10.100.0.0/16 ge 32"; 2],
        ),
        Network::Internet => (
            "switch/frr-internet.conf",
            "10.2.0.",
            ["198.18.0.0/20 ge 21 le 32", "203.0.113.0/24 ge 25 le 32"],
            &["198.18.0.0/15 le 32", "203.0.113.0/24 le 32"],
        ),
    };
    let switch = network.address(254).to_string();
    let mut replacements =
        vec![(format!("router-id {subnet}1\n"), format!("router-id {switch}\n"))];
    for node in 1..=PACKAGED_NODES {
        let (neighbor, peer) = (network.address(node), format!(" {subnet}{node}0"));
        replacements.push((format!("{peer} "), format!(" {neighbor} ")));
        replacements.push((format!("{peer}\n"), format!(" {neighbor}\n")));
    }
    replacements.push((format!("{subnet}0/24"), format!("{}/24", network.address(0))));
    let routes = routes.iter().zip(lab_routes).map(|(&from, &to)| (from.into(), to.into()));
    replacements.extend(routes);
    let mut config = packaged(file)?;
    for (packaged, wanted) in &replacements {
        ensure!(config.contains(packaged), "no \"{packaged}\" in {file}");
        config = config.replace(packaged, wanted);
    }
    let last = format!(" neighbor {} peer-group weir\n", network.address(PACKAGED_NODES));
    for node in (PACKAGED_NODES + 1..=nodes).rev() {
        let address = network.address(node);
        // At the right position: each daemon reads the whole file and obeys the lines that it
        // understands, including the `exit` after each BFD peer.
        config = config.replace(&last, &format!("{last} neighbor {address} peer-group weir\n"));
        writeln!(
            config,
            "bfd\n peer {address}\n  transmit-interval 50\n  receive-interval 50\n  detect-multiplier 3\n exit"
        )?;
    }
    with_bfd(&config, "-interval 50\n", &format!("-interval {}\n", bfd.as_millis()))
}

/// Returns the configuration with another interval of BFD.
pub(crate) fn with_bfd(config: &str, packaged: &str, wanted: &str) -> Result<String> {
    ensure!(config.contains(packaged), "no \"{packaged}\" in the configuration");
    Ok(config.replace(packaged, wanted))
}

impl Node {
    fn start(
        lab: &Lab,
        namespace: Namespace,
        number: u8,
        program: &str,
        watch: Watch,
    ) -> Result<Self> {
        let addresses =
            [Network::Access, Network::Internet].map(|side| side.address(number).to_string());
        let settings = [
            ("ROUTER_ID", addresses[0].as_str()),
            ("ACCESS_ADDRESS", &addresses[0]),
            ("ACCESS_SWITCH", &Network::Access.address(254).to_string()),
            ("INTERNET_ADDRESS", &addresses[1]),
            ("INTERNET_SWITCH", &Network::Internet.address(254).to_string()),
        ];
        let config = with_settings(&packaged("bird/weir.conf")?, &settings)?;
        let bird = Bird::start(lab, &namespace, &format!("bird{number}"), &config)?;
        let orders = lab.directory().join(format!("node{number}.orders"));
        let process = start_process(lab, &namespace, number, program, watch, &orders)?;
        Ok(Self { namespace, bird, process, orders })
    }

    /// Sends a command to the process and waits until it is done.
    pub fn order(&self, order: &str) -> Result<()> {
        let done = |log: &str| log.lines().filter(|line| *line == format!("done: {order}")).count();
        let before = done(&self.process.log());
        self.send(order)?;
        let carried_out = wait_for(&format!("\"{order}\""), DEADLINE, || {
            (done(&self.process.log()) > before).then_some(())
        });
        carried_out.with_context(|| self.process.log_tail())
    }

    /// Sends a command to the process.
    pub fn send(&self, order: &str) -> Result<()> {
        UnixDatagram::unbound()?.send_to(order.as_bytes(), &self.orders)?;
        Ok(())
    }

    /// Returns the process id of the newest guard.
    pub fn guard(&self) -> Result<i32> {
        let log = self.process.log();
        let newest = log.lines().rev().find_map(|line| line.split_once("guard ").map(|(_, id)| id));
        Ok(newest.context("no guard yet")?.parse()?)
    }

    /// Returns the routes of kernel table `table` of the node.
    pub fn table(&self, table: u32) -> Result<Vec<KernelRoute>> {
        self.namespace.enter(|| Ok(dump(table)?))
    }

    /// Waits until both BGP sessions are established.
    pub fn wait_established(&self) -> Result<()> {
        let mut last = String::new();
        let both = wait_for("two BGP sessions", DEADLINE, || {
            last = self.bird.ask("show protocols").ok()?;
            (last.matches("Established").count() == 2).then_some(())
        });
        both.with_context(|| last)
    }
}

fn start_process(
    lab: &Lab,
    namespace: &Namespace,
    number: u8,
    program: &str,
    watch: Watch,
    orders: &PathBuf,
) -> Result<Process> {
    let mut command = namespace.command(program);
    command.arg("node").arg(orders).arg("2");
    command.arg(watch.silence.as_millis().to_string());
    command.args(watch.kill_after.map(|grace| grace.as_millis().to_string()));
    let process = lab.start(&format!("node{number}"), &mut command)?;
    process.wait_words("guard ", DEADLINE)?;
    Ok(process)
}
