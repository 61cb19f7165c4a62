//! Packets larger than the next link: path MTU discovery (RFC 8201), fragments, MSS clamp.

use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::clients::{self, Direction};
use weir_lab::one_node::TUNNEL_MTU;
use weir_lab::services::{self, SERVER6};
use weir_lab::{Echo, Namespace, OneNode, exchange};

use crate::names::TOO_BIG;
use crate::worlds::{ECHO, drops, dual_stack_behind_gre, plain};

/// Bytes of a download of many full segments.
const FILE_LEN: usize = 5_000_000;
/// MTU of a link further into the internet.
const NARROW_MTU: u16 = 1300;
/// Time limit of a look at routes.
const DEADLINE: Duration = Duration::from_secs(5);
/// Makes the home of a tunnel announce segments that fit an Ethernet of 1500 bytes.
const ADVMSS: &str = "-6 route change default dev gre0 advmss 1440";

#[test]
fn without_clamp_the_server_learns_the_tunnels_mtu_over_ipv6() {
    let mut options = dual_stack_behind_gre();
    options.config.nat.push(("mss_clamp", "false"));
    OneNode::test(&options, |net| {
        net.homes[0].namespace.ip(ADVMSS)?;
        let file = services::start_http_at(&net.lab, &net.internet, SERVER6, FILE_LEN)?;
        clients::download(&net.homes[0], &file)?;
        ensure!(drops(net, &[TOO_BIG])? > 0, "nothing was too big");
        knows_mtu(&net.internet, TUNNEL_MTU)
    });
}

#[test]
fn the_clamp_spares_path_mtu_discovery_over_ipv6() {
    OneNode::test(&dual_stack_behind_gre(), |net| {
        net.homes[0].namespace.ip(ADVMSS)?;
        let file = services::start_http_at(&net.lab, &net.internet, SERVER6, FILE_LEN)?;
        clients::download(&net.homes[0], &file)?;
        let too_big = drops(net, &[TOO_BIG])?;
        ensure!(too_big == 0, "{too_big} segments were too big");
        Ok(())
    });
}

#[test]
fn a_home_learns_of_weirs_narrow_internet_link() {
    for mut options in [dual_stack_behind_gre(), plain()] {
        options.config.internet_mtu = NARROW_MTU;
        // With the clamp no segment of a home would be too big.
        options.config.nat.push(("mss_clamp", "false"));
        OneNode::test(&options, |net| {
            services::start_iperf3_at(&net.lab, &net.internet, SERVER6)?;
            clients::iperf3_to(&net.homes[0], SERVER6, Direction::Up, 2)?;
            ensure!(drops(net, &[TOO_BIG])? > 0, "nothing was too big");
            knows_mtu(&net.homes[0].namespace, NARROW_MTU)
        });
    }
}

#[test]
fn a_home_learns_of_a_narrow_link_behind_weir_over_ipv6() {
    for options in [dual_stack_behind_gre(), plain()] {
        OneNode::test(&options, |net| {
            net.core.ip(&format!("link set net0 mtu {NARROW_MTU}"))?;
            services::start_iperf3_at(&net.lab, &net.internet, SERVER6)?;
            clients::iperf3_to(&net.homes[0], SERVER6, Direction::Up, 2)?;
            knows_mtu(&net.homes[0].namespace, NARROW_MTU)
        });
    }
}

#[test]
fn datagrams_of_several_fragments_pass_both_ways_over_ipv6() {
    for options in [dual_stack_behind_gre(), plain()] {
        OneNode::test(&options, |net| {
            let _echo = Echo::udp(&net.internet, ECHO)?;
            let open = |home: &weir_lab::Home| home.udp_of(home.address6()?, 40_000);
            let sockets = net.homes.iter().map(open).collect::<Result<Vec<_>>>()?;
            for length in [1428, 1429, 1452, 1453, 3000, 8000, 20_000] {
                for (number, socket) in sockets.iter().enumerate() {
                    let payload: Vec<u8> = (0..length).map(|i| (i * 7 + number) as u8).collect();
                    ensure!(
                        exchange::udp(socket, ECHO, &payload)?,
                        "{length} bytes of home {number} were lost"
                    );
                }
            }
            Ok(())
        });
    }
}

/// Fails unless path MTU discovery of a namespace has found `mtu`.
pub(crate) fn knows_mtu(namespace: &Namespace, mtu: u16) -> Result<()> {
    let output = namespace.run(DEADLINE, "ip", &["-6", "route", "show", "cache"])?;
    let learnt = output.success()?.stdout;
    ensure!(learnt.contains(&format!("mtu {mtu} ")), "it knows: {learnt}");
    Ok(())
}
