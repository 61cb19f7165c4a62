//! Homes with both families in one GRE tunnel over IPv6.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use weir_lab::OneNode;
use weir_lab::clients::{self, Direction};
use weir_lab::one_node::ipv6::{ENDPOINT6, TUNNEL_MTU6, outer_address};
use weir_lab::services::{self, SERVER, SERVER6};

use crate::names;
use crate::path_mtu::knows_mtu;
use crate::worlds::{drops, dual_stack_behind_gre6};

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
