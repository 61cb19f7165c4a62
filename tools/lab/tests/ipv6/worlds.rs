//! The worlds, and what every test needs.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::services::SERVER6;
use weir_lab::{Access, Home, OneNode, Options, WeirConfig, WeirIpv6, exchange, wait_for};

/// Time until a drop must be counted.
pub(crate) const DROP_DEADLINE: Duration = Duration::from_secs(5);
/// An echo server in the internet.
pub(crate) const ECHO: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(SERVER6), 7000);

/// Homes with IPv4 and IPv6 in one tunnel. The first home that sends from a /64 holds it.
pub(crate) fn dual_stack_behind_gre() -> Options {
    let ipv6 = WeirIpv6 { settings: vec![("delegation", "\"claim\"")], ..WeirIpv6::default() };
    Options {
        config: WeirConfig { ipv6: Some(ipv6), ..WeirConfig::default() },
        ..Options::default()
    }
}

/// As [`dual_stack_behind_gre`], with tunnels over IPv6.
pub(crate) fn dual_stack_behind_gre6() -> Options {
    let settings = vec![("delegation", "\"claim\"")];
    let ipv6 = WeirIpv6 { settings, has_tunnels: true, ..WeirIpv6::default() };
    Options {
        config: WeirConfig { ipv6: Some(ipv6), ..WeirConfig::default() },
        ..Options::default()
    }
}

/// Homes whose packets of both families come without tunnels; each /64 is a home.
pub(crate) fn plain() -> Options {
    Options {
        config: WeirConfig {
            access: Access::Plain,
            subscribers: "100.64.0.0/24",
            ipv6: Some(WeirIpv6::default()),
            ..WeirConfig::default()
        },
        inside: |number| (Ipv4Addr::new(100, 64, 0, number), 32),
        ..Options::default()
    }
}

/// Sends a datagram from the home's IPv6 address to [`ECHO`]; false if no answer comes.
pub(crate) fn reaches_echo(home: &Home) -> Result<bool> {
    exchange::udp(&home.udp_of(home.address6()?, 0)?, ECHO, b"out and back")
}

/// Waits until more packets are dropped for one of `reasons` than `before`.
pub(crate) fn wait_for_drops(net: &OneNode, reasons: &[&str], before: u64) -> Result<()> {
    wait_for(&format!("drop for {reasons:?}"), DROP_DEADLINE, || {
        (drops(net, reasons).ok()? > before).then_some(())
    })
}

/// Returns the packets dropped for any of `reasons`.
pub(crate) fn drops(net: &OneNode, reasons: &[&str]) -> Result<u64> {
    reasons.iter().map(|reason| net.weir.drops(reason)).sum()
}

/// Fails if weir has ended or a home has no IPv6 any more.
pub(crate) fn still_works(net: &OneNode) -> Result<()> {
    ensure!(reaches_echo(&net.homes[0])?, "no answer after all that");
    ensure!(net.weir.process().ended().is_none(), "weir has ended");
    Ok(())
}
