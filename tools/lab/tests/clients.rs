//! Ordinary clients of an ordinary home.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use weir_lab::clients::{self, Direction, Probe};
use weir_lab::services::{self, SERVER};
use weir_lab::{OneNode, Options};

/// Bytes of the download.
const FILE_LEN: usize = 100_000_000;

#[test]
fn a_download_of_100_mb_is_right_and_iperf3_runs_both_ways() {
    OneNode::test(&Options::default(), |net| {
        let home = &net.homes[0];
        let file = services::start_http(&net.lab, &net.internet, FILE_LEN)?;
        services::start_iperf3(&net.lab, &net.internet)?;
        clients::download(home, &file)?;
        clients::iperf3(home, Direction::Up, 3)?;
        clients::iperf3(home, Direction::Down, 3)?;
        Ok(())
    });
}

#[test]
fn ping_traceroute_and_dns_answer() {
    OneNode::test(&Options::default(), |net| {
        let home = &net.homes[0];
        services::start_dns(&net.lab, &net.internet)?;
        clients::ping(home, SERVER, 3, 56)?;
        // Three inner fragments each way.
        clients::ping(home, SERVER, 3, 4000)?;
        // The worker answers for its tunnel endpoint.
        clients::ping(home, Ipv4Addr::new(10, 100, 0, 1), 1, 56)?;
        for probe in [Probe::Udp, Probe::Icmp] {
            hops(&clients::traceroute(home, SERVER, probe)?)?;
        }
        ensure!(clients::resolve(home)? == SERVER.to_string());
        clients::resolve_big(home)?;
        Ok(())
    });
}

/// weir, the router, the server.
fn hops(hops: &[String]) -> Result<()> {
    ensure!(hops.len() == 3, "hops {hops:?}");
    ensure!(hops[0] != "*", "weir is silent: {hops:?}");
    ensure!(hops[1..] == ["10.2.0.2", "198.51.100.1"], "hops {hops:?}");
    Ok(())
}
