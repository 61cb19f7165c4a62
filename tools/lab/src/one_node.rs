//! The topology of one weir node: three homes, an access network, weir, a router, the internet.
//!
//! | network | prefix | ends |
//! |---|---|---|
//! | inside every home | 192.168.1.0/24 | each home's host is .2 |
//! | homes on the access network | 10.200.0.N/32 | router 10.200.255.254 |
//! | access side of weir | 10.1.0.0/24 | weir .1, router .2 |
//! | tunnel endpoints | 10.100.0.0/24 | via 10.1.0.1 |
//! | internet side of weir | 10.2.0.0/24 | weir .1, router .2 |
//! | public prefix | 203.0.113.0/28 | via 10.2.0.1 |
//! | behind the router | 10.3.0.0/24 | router .1, server .2 |
//! | server | 198.51.100.1, .2 | on the server's loopback |
//!
//! With IPv6 ([`ipv6`]) each network has a prefix of it, too.
//!
//! weir's addresses are not in its kernel: weir itself answers ARP and ping.

pub mod ipv6;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::home::Home;
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::services::{SERVER, SERVER_ALTERNATE};
use crate::weir::{self, Weir};
use crate::weir_config::WeirConfig;
use crate::{patch, veth};

/// Tunnel endpoint of the shard.
pub const ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
/// weir's address on the access side.
pub const WEIR_ACCESS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// weir's address on the internet side.
pub const WEIR_INTERNET: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
/// MTU of the tunnel: Ethernet's 1500 less IPv4 and GRE.
pub const TUNNEL_MTU: u16 = 1476;
/// Bytes of the tunnel MTU that a GRE key takes.
const GRE_KEY_LEN: u16 = 4;

/// Time limit for a home gateway to start.
const GATEWAY_DEADLINE: Duration = Duration::from_secs(10);

/// Held by a topology, one at a time in a process: the machine has few cores, and a busy neighbour
/// would make deadlines a matter of luck.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// How homes reach weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through GRE; each home runs `weir-lab cpe`.
    Gre,
    /// Plain IP: each home has an address of its own on the access network.
    Plain,
}

/// The kind of weir's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// AF_XDP sockets on the veth ends.
    AfXdp,
    /// memif, patched to the veth ends by testpmd.
    Memif,
}

/// Options of the topology to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// weir's configuration; its devices follow `datapath`.
    pub config: WeirConfig,
    /// See [`Datapath`].
    pub datapath: Datapath,
    /// GRE key of every home's gateway.
    pub gre_key: Option<u32>,
    /// Inside address of home N (from 1) and prefix length. Default: 192.168.1.2/24 for all.
    pub inside: fn(u8) -> (Ipv4Addr, u8),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: WeirConfig::default(),
            datapath: Datapath::AfXdp,
            gre_key: None,
            inside: |_| (Ipv4Addr::new(192, 168, 1, 2), 24),
        }
    }
}

/// The topology, with weir ready.
#[derive(Debug)]
pub struct OneNode {
    /// weir. Fields drop in this order, the lab last.
    pub weir: Weir,
    /// Three homes.
    pub homes: Vec<Home>,
    /// The router between the homes and weir; its link to weir is `weir0`.
    pub access: Namespace,
    /// The namespace in which weir runs; its ports are `acc0` and `net0`.
    pub node: Namespace,
    /// The router between weir and the internet; its links are `weir0` and `net0`.
    pub core: Namespace,
    /// The server; its link is `core0`.
    pub internet: Namespace,
    /// The laboratory that contains everything above.
    pub lab: Lab,
    _exclusive: MutexGuard<'static, ()>,
}

impl OneNode {
    /// Builds everything and waits until weir is ready.
    pub fn start(options: &Options) -> Result<Self> {
        Self::start_with_progress(options, |_| ())
    }

    /// Like [`start`](Self::start); `progress` is called with each step before it is taken.
    pub fn start_with_progress(options: &Options, progress: impl Fn(&str)) -> Result<Self> {
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = Lab::open()?;
        progress("building namespaces: access network, weir, core router, internet");
        let networks = Networks::build(&lab, options)?;
        let mut config = options.config.clone();
        if options.datapath == Datapath::Memif {
            progress("patching memif to the links with testpmd");
            (config.access_device, config.internet_device) = patch::start(&lab, &networks.node)?;
        }
        progress("starting weir");
        let weir = Weir::start(&lab, &networks.node, &config.render(lab.directory()))?;
        let ready = weir.wait_ready();
        if let Err(error) = ready {
            return Err(error.context(lab.logs()));
        }
        progress("starting three homes");
        let homes =
            (1..=3).map(|number| networks.home(&lab, options, number)).collect::<Result<_>>()?;
        Ok(Self {
            weir,
            homes,
            access: networks.access,
            node: networks.node,
            core: networks.core,
            internet: networks.internet,
            lab,
            _exclusive: exclusive,
        })
    }

    /// Runs a test in a new topology. A failure is reported with the logs of all daemons.
    pub fn test(options: &Options, body: impl FnOnce(&mut Self) -> Result<()>) {
        let mut net = match Self::start(options) {
            Ok(net) => net,
            Err(error) => panic!("the laboratory did not start: {error:#}"),
        };
        if let Err(error) = body(&mut net) {
            panic!("{error:#}\n{}{}", net.drops(), net.lab.logs());
        }
    }

    /// Returns a line for each reason for which weir has dropped packets.
    fn drops(&self) -> String {
        let Ok(counts) = self.weir.json(&["drops"]) else { return String::new() };
        let counts = counts.as_array().into_iter().flatten();
        let line =
            |count: &Value| format!("dropped: {} {}\n", count["packets_total"], count["reason"]);
        counts.filter(|count| count["packets_total"] != 0).map(line).collect()
    }
}

/// Every namespace except the homes.
struct Networks {
    access: Namespace,
    node: Namespace,
    core: Namespace,
    internet: Namespace,
}

impl Networks {
    fn build(lab: &Lab, options: &Options) -> Result<Self> {
        let networks = Self {
            access: lab.namespace("access")?,
            node: lab.namespace("weir")?,
            core: lab.namespace("core")?,
            internet: lab.namespace("internet")?,
        };
        let has_ipv6 = options.config.ipv6.is_some();
        if has_ipv6 {
            networks.enable_ipv6(options)?;
        }
        networks.access_side(options.config.access)?;
        networks.internet_side()?;
        if has_ipv6 {
            networks.add_ipv6(options)?;
        }
        Ok(networks)
    }

    fn access_side(&self, mode: Access) -> Result<()> {
        let access = &self.access;
        veth::connect((access, "weir0"), (&self.node, "acc0"))?;
        access.sysctl("ipv4/ip_forward", 1)?;
        access.ip("addr add 10.1.0.2/24 dev weir0")?;
        access.ip("addr add 10.200.255.254/32 dev lo")?;
        access.ip(match mode {
            Access::Gre => "route add 10.100.0.0/24 via 10.1.0.1",
            Access::Plain => "route add default via 10.1.0.1",
        })
    }

    fn internet_side(&self) -> Result<()> {
        let (core, internet) = (&self.core, &self.internet);
        veth::connect((core, "weir0"), (&self.node, "net0"))?;
        veth::connect((core, "net0"), (internet, "core0"))?;
        core.sysctl("ipv4/ip_forward", 1)?;
        core.ip("addr add 10.2.0.2/24 dev weir0")?;
        core.ip("addr add 10.3.0.1/24 dev net0")?;
        core.ip("route add 203.0.113.0/28 via 10.2.0.1")?;
        core.ip("route add 198.51.100.0/24 via 10.3.0.2")?;
        internet.ip("addr add 10.3.0.2/24 dev core0")?;
        internet.ip(&format!("addr add {SERVER}/32 dev lo"))?;
        internet.ip(&format!("addr add {SERVER_ALTERNATE}/32 dev lo"))?;
        internet.ip(&format!("route add default via 10.3.0.1 src {SERVER}"))
    }

    fn home(&self, lab: &Lab, options: &Options, number: u8) -> Result<Home> {
        let name = format!("home{number}");
        let namespace = lab.namespace(&name)?;
        let inside6 = options.config.ipv6.is_some().then(|| ipv6::home_address(number));
        if inside6.is_some() {
            ipv6::enable(&namespace)?;
        }
        veth::connect((&namespace, "wan0"), (&self.access, &name))?;
        let (inside, prefix_len) = (options.inside)(number);
        let outer = match options.config.access {
            Access::Gre => Ipv4Addr::new(10, 200, 0, number),
            Access::Plain => inside,
        };
        namespace.ip(&format!("addr add {outer}/32 dev wan0"))?;
        self.access.ip(&format!("route add {outer}/32 dev {name}"))?;
        let (destination, gateway) = match options.config.access {
            Access::Gre => ("10.100.0.0/24", true),
            Access::Plain => ("default", false),
        };
        namespace.ip(&format!("route add {destination} via 10.200.255.254 dev wan0 onlink"))?;
        let key_len = if options.gre_key.is_some() { GRE_KEY_LEN } else { 0 };
        let has_tunnels6 = options.config.has_tunnels6();
        if has_tunnels6 {
            self.outer_ipv6(&namespace, number)?;
        }
        let ends = match has_tunnels6 {
            true => (ipv6::outer_address(number).into(), ipv6::ENDPOINT6.into(), ipv6::TUNNEL_MTU6),
            false => (IpAddr::from(outer), IpAddr::from(ENDPOINT), TUNNEL_MTU),
        };
        let gateway = if gateway {
            let (local, remote, mtu) = ends;
            let mut command = namespace.command(&weir::lab_binary()?.to_string_lossy());
            command
                .args(["cpe", "--tun", "gre0", "--route"])
                .arg(format!("--tun-address={inside}/{prefix_len}"))
                .arg(format!("--local={local}"))
                .arg(format!("--remote={remote}"))
                .arg(format!("--mtu={}", mtu - key_len));
            if let Some(address) = inside6 {
                command.arg(format!("--tun-address6={address}/{}", ipv6::HOME_LENGTH));
            }
            if let Some(key) = options.gre_key {
                command.arg(format!("--key={key}"));
            }
            let process = lab.start(&format!("cpe{number}"), &mut command)?;
            process.wait_line("ready", GATEWAY_DEADLINE)?;
            Some(process)
        } else {
            if inside6.is_some() {
                self.plain_home_ipv6(&namespace, number)?;
            }
            None
        };
        Ok(Home { namespace, outer, inside, inside6, gateway })
    }
}
