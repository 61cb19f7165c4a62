//! IPv6 routes from the guard to the switch's kernel, with the packaged `weir6.conf`, on nodes
//! whose kernels have addresses in the networks of their workers.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_lab::bird::{packaged, with_settings};
use weir_lab::steering::{Network, Node, Steering, Switch, SwitchKind, Watch};
use weir_lab::{Namespace, wait_for};
use weir_routes::bird::exported;
use weir_routes::dump;

const PROGRAM: &str = env!("CARGO_BIN_EXE_steering_node");
const DEADLINE: Duration = Duration::from_secs(30);
const WATCH: Watch = Watch { silence: Duration::from_millis(300), kill_after: None };

const ENDPOINT: &str = "fd64::1/128";
const PREFIX: &str = "2001:db8:100::/48";
/// Metrics on both sides of 2^31.
const PRIMARY: u32 = (1 << 31) - 8;
const REPLICA: u32 = (1 << 31) + 1;
const MAIN_TABLE: u32 = 254;

/// Returns the IPv6 address of a side that ends in `last`.
fn address(network: Network, last: u16) -> Ipv6Addr {
    let side = if network == Network::Access { 1 } else { 2 };
    Ipv6Addr::new(0xfd00, side, 0, 0, 0, 0, 0, last)
}

/// Returns the next hop of a worker of a node.
fn worker(network: Network, node: u16, worker: u16) -> IpAddr {
    address(network, 0x100 * node + worker).into()
}

/// Gives both switches and both nodes IPv6 addresses and sessions.
fn open() -> Result<Steering> {
    let lab = Steering::open(SwitchKind::Bird, PROGRAM, WATCH)?;
    for (switch, network) in [(&lab.access, Network::Access), (&lab.internet, Network::Internet)] {
        let own = address(network, 254);
        add_address(&switch.namespace, "br0", own)?;
        let bird = switch.bird.as_ref().context("a switch without BIRD")?;
        bird.configure(&(bird.config()? + &switch_config(network)))?;
    }
    for (node, number) in lab.nodes.iter().zip(1..) {
        let [access, internet] = [Network::Access, Network::Internet].map(|it| address(it, number));
        add_address(&node.namespace, "acc0", access)?;
        add_address(&node.namespace, "net0", internet)?;
        let settings = [
            ("ACCESS_ADDRESS6", access.to_string()),
            ("ACCESS_SWITCH6", address(Network::Access, 254).to_string()),
            ("INTERNET_ADDRESS6", internet.to_string()),
            ("INTERNET_SWITCH6", address(Network::Internet, 254).to_string()),
        ];
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, &**value)).collect();
        let config6 = with_settings(&packaged("bird/weir6.conf")?, &settings)?;
        node.bird.configure(&(node.bird.config()? + &config6))?;
    }
    Ok(lab)
}

/// Gives an interface an address. IPv6 is switched off by default in the laboratory, also for the
/// guard's device, which the guard itself has to see to.
fn add_address(namespace: &Namespace, interface: &str, address: Ipv6Addr) -> Result<()> {
    namespace.sysctl(&format!("ipv6/conf/{interface}/disable_ipv6"), 0)?;
    namespace.ip(&format!("addr add {address}/64 dev {interface} nodad"))
}

fn switch_config(network: Network) -> String {
    let own = address(network, 254);
    let nodes = [1, 2].map(|node| {
        let neighbor = address(network, node);
        format!(
            "protocol bgp node6_{node} {{\n  local {own} as SWITCH_AS;\n  neighbor {neighbor} as NODE_AS;\n  \
             bfd on;\n  connect delay time 1;\n  med metric on;\n  \
             ipv6 {{ import all; export none; }};\n}}\n"
        )
    });
    format!("protocol kernel {{ ipv6 {{ import none; export all; }}; }}\n{}", nodes.concat())
}

/// Returns the command that gives worker 0 of a node one shard, with the next hops of `worker`.
fn set(node: u16, number: u16, metric: u32) -> String {
    let [access, internet] =
        [Network::Access, Network::Internet].map(|it| worker(it, node, number));
    format!("set 0 access,{ENDPOINT},{access},{metric} internet,{PREFIX},{internet},{metric}")
}

fn wait_worker(lab: &Steering, node: u16, number: u16) -> Result<()> {
    let wait = |switch: &Switch, prefix, network| {
        switch.wait_next_hop(prefix, Some(worker(network, node, number)))
    };
    wait(&lab.access, ENDPOINT, Network::Access)?;
    wait(&lab.internet, PREFIX, Network::Internet)?;
    Ok(())
}

/// Checks that the kernel reaches a worker's address as if there were no weir.
fn is_main_table_clean(node: &Node, number: u16) -> Result<()> {
    let main = node.namespace.enter(|| Ok(dump(MAIN_TABLE)?))?;
    for network in [Network::Access, Network::Internet] {
        let worker = worker(network, 1, number);
        let routes = main.iter().filter(|route| route.prefix.contains(&worker));
        let routes: Vec<_> = routes.map(|route| route.prefix.prefix_len()).collect();
        ensure!(routes == [64], "{worker}: {main:?}");
    }
    Ok(())
}

fn play(lab: &Steering) -> Result<()> {
    let [one, two] = &lab.nodes;
    one.order(&set(1, 1, PRIMARY))?;
    two.order(&set(2, 1, REPLICA))?;
    wait_worker(lab, 1, 1)?;
    is_main_table_clean(one, 1)?;
    for (node, metric) in [(one, PRIMARY), (two, REPLICA)] {
        let routes = wait_for("export", DEADLINE, || {
            let routes = exported(node.bird.socket(), "internet_switch6").ok()?;
            (!routes.is_empty()).then_some(routes)
        })?;
        ensure!(routes.len() == 1 && routes[0].med == Some(metric), "{routes:?}");
        ensure!(routes[0].prefix.to_string() == PREFIX, "{routes:?}");
    }
    // Another worker takes over in place.
    one.order(&set(1, 2, PRIMARY))?;
    wait_worker(lab, 1, 2)?;
    is_main_table_clean(one, 2)?;
    // What an operator flushes is set again with the same list.
    one.namespace.ip("-6 route flush table 4242")?;
    lab.access.wait_next_hop(ENDPOINT, Some(worker(Network::Access, 2, 1)))?;
    one.order(&set(1, 2, PRIMARY))?;
    wait_worker(lab, 1, 2)?;
    // The routes of a worker that stands still stay as a last resort.
    one.order("hang 0")?;
    wait_worker(lab, 2, 1)?;
    let last = one.table(4242)?;
    ensure!(last.len() == 1 && last[0].metric > REPLICA, "{last:?}");
    one.order("wake 0")?;
    one.process.wait_line("worker 0 sees its fence", DEADLINE)?;
    one.order(&set(1, 2, PRIMARY))?;
    wait_worker(lab, 1, 2)?;
    // A guard that is killed takes its routes along; the stopped node starts no other.
    let guard = one.guard()?;
    one.process.signal(Signal::SIGSTOP)?;
    kill(Pid::from_raw(guard), Signal::SIGKILL)?;
    wait_worker(lab, 2, 1)?;
    ensure!(one.table(4242)?.is_empty() && one.table(4243)?.is_empty(), "routes without a guard");
    is_main_table_clean(one, 2)?;
    one.process.signal(Signal::SIGCONT)?;
    wait_worker(lab, 1, 2)
}

#[test]
fn ipv6_routes_reach_the_switches_and_end_with_their_owner() {
    let lab = open().unwrap();
    if let Err(error) = play(&lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
