//! Ordinary clients of an ordinary home, in both worlds.

use std::net::Ipv6Addr;

use anyhow::{Result, ensure};
use weir_lab::clients::{self, Direction, Probe};
use weir_lab::one_node::ipv6::{CORE, WEIR_ACCESS, WEIR_INTERNET, address_in_home};
use weir_lab::services::{self, SERVER, SERVER6};
use weir_lab::{Echo, OneNode, exchange};

use crate::names;
use crate::worlds::{ECHO, drops, dual_stack_behind_gre, plain};

/// Bytes of a download.
const FILE_LEN: usize = 20_000_000;
/// The same local port in every home.
const PORT: u16 = 40_000;

#[test]
fn a_home_behind_gre_pings_over_both_families_in_one_tunnel() {
    OneNode::test(&dual_stack_behind_gre(), |net| pings(net, WEIR_INTERNET));
}

#[test]
fn a_plain_home_pings_over_both_families() {
    OneNode::test(&plain(), |net| pings(net, WEIR_ACCESS));
}

fn pings(net: &OneNode, weir: Ipv6Addr) -> Result<()> {
    for home in &net.homes {
        clients::ping(home, SERVER, 2, 56)?;
        clients::ping(home, SERVER6, 2, 56)?;
        // Three fragments each way.
        clients::ping(home, SERVER6, 2, 4000)?;
    }
    // The worker answers for its own address.
    clients::ping(&net.homes[0], weir, 1, 56).map(|_| ())
}

#[test]
fn a_home_behind_gre_downloads_over_ipv6_and_iperf3_runs_both_ways() {
    OneNode::test(&dual_stack_behind_gre(), transfers);
}

#[test]
fn a_plain_home_downloads_over_ipv6_and_iperf3_runs_both_ways() {
    OneNode::test(&plain(), transfers);
}

fn transfers(net: &mut OneNode) -> Result<()> {
    let home = &net.homes[0];
    let file = services::start_http_at(&net.lab, &net.internet, SERVER6, FILE_LEN)?;
    services::start_iperf3_at(&net.lab, &net.internet, SERVER6)?;
    clients::download(home, &file)?;
    for direction in [Direction::Up, Direction::Down] {
        clients::iperf3_to(home, SERVER6, direction, 2)?;
    }
    Ok(())
}

#[test]
fn dns_over_ipv6_answers_a_home_behind_gre() {
    OneNode::test(&dual_stack_behind_gre(), dns);
}

#[test]
fn dns_over_ipv6_answers_a_plain_home() {
    OneNode::test(&plain(), dns);
}

fn dns(net: &mut OneNode) -> Result<()> {
    services::start_dns_at(&net.lab, &net.internet, SERVER6)?;
    for home in &net.homes {
        ensure!(clients::resolve_at(home, SERVER6)? == SERVER6.to_string());
    }
    // An answer in fragments.
    clients::resolve_big_at(&net.homes[1], SERVER6).map(|_| ())
}

#[test]
fn traceroute_behind_gre_shows_weir_as_the_first_hop() {
    OneNode::test(&dual_stack_behind_gre(), |net| traceroute(net, &[WEIR_INTERNET]));
}

#[test]
fn traceroute_of_a_plain_home_shows_weir_behind_the_access_router() {
    OneNode::test(&plain(), |net| traceroute(net, &[address_in_home(1, 1), WEIR_ACCESS]));
}

/// Expects the hops `to_weir`, then the router and the server.
fn traceroute(net: &OneNode, to_weir: &[Ipv6Addr]) -> Result<()> {
    let expected: Vec<String> =
        to_weir.iter().chain(&[CORE, SERVER6]).map(Ipv6Addr::to_string).collect();
    for probe in [Probe::Udp, Probe::Icmp] {
        let before = drops(net, &[names::HOP_LIMIT])?;
        let hops = clients::traceroute(&net.homes[0], SERVER6, probe)?;
        ensure!(hops == expected, "hops {hops:?}, not {expected:?}");
        ensure!(drops(net, &[names::HOP_LIMIT])? > before, "not counted");
    }
    Ok(())
}

#[test]
fn homes_keep_their_addresses_and_ports_over_ipv6() {
    for world in [dual_stack_behind_gre(), plain()] {
        OneNode::test(&world, |net| {
            let echoes = [Echo::udp(&net.internet, ECHO)?, Echo::tcp(&net.internet, ECHO)?];
            for home in &net.homes {
                ensure!(exchange::udp(&home.udp_of(home.address6()?, PORT)?, ECHO, b"udp")?);
                exchange::tcp(&mut home.tcp(PORT, ECHO)?, b"tcp")?;
            }
            let own = |home: &weir_lab::Home| Ok((home.address6()?, PORT).into());
            let expected = net.homes.iter().map(own).collect::<Result<Vec<_>>>()?;
            for echo in &echoes {
                ensure!(echo.peers() == expected, "an address was changed: {:?}", echo.peers());
            }
            Ok(())
        });
    }
}
