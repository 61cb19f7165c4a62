//! Homes with both families in one GRE tunnel over IPv6.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::clients::{self, Direction};
use weir_lab::one_node::ipv6::{ENDPOINT6, TUNNEL_MTU6, outer_address};
use weir_lab::services::{self, SERVER, SERVER6};
use weir_lab::{Echo, OneNode, exchange};

use crate::names;
use crate::path_mtu::knows_mtu;
use crate::worlds::{drops, dual_stack_behind_gre6};

/// Time limit for a requested effect.
const DEADLINE: Duration = Duration::from_secs(15);
/// Bytes of a download.
const FILE_LEN: usize = 20_000_000;

#[test]
fn homes_behind_gre_over_ipv6_use_both_families() {
    OneNode::test(&dual_stack_behind_gre6(), |net| {
        for home in &net.homes {
            clients::ping(home, SERVER, 2, 56)?;
            clients::ping(home, SERVER6, 2, 56)?;
            // Three fragments inside the tunnel, each way.
            clients::ping(home, SERVER, 2, 4000)?;
            clients::ping(home, SERVER6, 2, 4000)?;
        }
        clients::ping(&net.homes[0], ENDPOINT6, 1, 56)?;
        let home = &net.homes[0];
        services::start_iperf3_at(&net.lab, &net.internet, SERVER)?;
        services::start_iperf3_at(&net.lab, &net.internet, SERVER6)?;
        let files = [
            services::start_http_at(&net.lab, &net.internet, SERVER, FILE_LEN)?,
            services::start_http_at(&net.lab, &net.internet, SERVER6, FILE_LEN)?,
        ];
        for file in &files {
            clients::download(home, file)?;
        }
        for direction in [Direction::Up, Direction::Down] {
            clients::iperf3_to(home, SERVER, direction, 2)?;
            clients::iperf3_to(home, SERVER6, direction, 2)?;
        }
        names_homes_by_their_outer_addresses(net)
    });
}

fn names_homes_by_their_outer_addresses(net: &OneNode) -> Result<()> {
    let outer = outer_address(2).to_string();
    let cli = |args: &[&str]| Ok::<_, anyhow::Error>(net.weir.cli(args)?.success()?.stdout);
    let shown = cli(&["subscriber", "show", &outer])?;
    ensure!(shown.contains(&outer), "{shown}");
    let of_home = cli(&["sessions", "--json", "--subscriber", &outer])?;
    ensure!(of_home.lines().count() > 0, "no session of {outer}");
    ensure!(of_home.lines().all(|line| line.contains(&outer)), "{of_home}");
    let all = cli(&["sessions", "--json"])?;
    ensure!(all.lines().all(|line| line.contains("2001:db8:e:")), "{all}");
    Ok(())
}

/// A port of the second home is forwarded; records go to a collector.
const FORWARD_AND_COLLECTOR: &str = r#"
[public]
static = ["2001:db8:e:2::2 tcp 192.168.1.2:8000 203.0.113.5:8080"]
[[collector]]
name = "north"
address = "127.0.0.1:6514"
format = "syslog-tcp"
"#;

#[test]
fn forward_and_collector_know_a_home_by_its_outer_ipv6_address() {
    let mut options = dual_stack_behind_gre6();
    options.config.collectors = FORWARD_AND_COLLECTOR;
    options.config.session_log = "mappings";
    OneNode::test(&options, |net| {
        let listener = net.node.enter(|| Ok(TcpListener::bind("127.0.0.1:6514")?))?;
        let home = &net.homes[1];
        let web = Echo::tcp(&home.namespace, SocketAddr::from((home.inside, 8000)))?;
        let mut caller = net.internet.enter(|| {
            let public = SocketAddr::from(([203, 0, 113, 5], 8080));
            Ok(TcpStream::connect_timeout(&public, DEADLINE)?)
        })?;
        caller.set_read_timeout(Some(DEADLINE))?;
        exchange::tcp(&mut caller, b"to a home that has sent nothing")?;
        ensure!(web.peers().len() == 1, "the caller's own address is seen");
        let (mut records, _) = listener.accept()?;
        records.set_read_timeout(Some(DEADLINE))?;
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        let subscriber = format!("subscriber=\"{}\"", outer_address(2));
        let has = |bytes: &[u8], text: &str| String::from_utf8_lossy(bytes).contains(text);
        while !(has(&bytes, "session-begun") && has(&bytes, &subscriber)) {
            let count = records.read(&mut part)?;
            ensure!(count > 0, "the collector was left: {}", String::from_utf8_lossy(&bytes));
            bytes.extend(&part[..count]);
        }
        Ok(())
    });
}

/// Makes the home of a tunnel announce segments that fit an Ethernet of 1500 bytes.
const ADVMSS: [&str; 2] =
    ["route change default dev gre0 advmss 1460", "-6 route change default dev gre0 advmss 1440"];

#[test]
fn server_learns_the_mtu_of_a_tunnel_over_ipv6() {
    let mut options = dual_stack_behind_gre6();
    options.config.nat.push(("mss_clamp", "false"));
    OneNode::test(&options, |net| {
        for command in ADVMSS {
            net.homes[0].namespace.ip(command)?;
        }
        for server in [SERVER6.into(), IpAddr::from(SERVER)] {
            let before = drops(net, &[names::TOO_BIG])?;
            let file = services::start_http_at(&net.lab, &net.internet, server, FILE_LEN)?;
            clients::download(&net.homes[0], &file)?;
            ensure!(drops(net, &[names::TOO_BIG])? > before, "nothing from {server} was too big");
        }
        knows_mtu(&net.internet, TUNNEL_MTU6)
    });
}
