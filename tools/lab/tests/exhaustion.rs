//! Limits: which flows are refused, which go on, and when resources become free.

use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::services::SERVER;
use weir_lab::{Echo, Home, OneNode, Options, exchange, wait_for};

/// Idle seconds of a UDP session in these tests.
const UDP_SEC: u32 = 5;
/// Idle seconds while a whole table is being filled: no session may end before the last is opened.
const UDP_LONG_SEC: u32 = 20;
/// Quarantine of a block in these tests, as TOML.
const QUARANTINE_SEC: &str = "2";
/// Time for expiry, quarantine and the sweep that finds expired sessions.
const RETURN_DEADLINE: Duration = Duration::from_secs(40);
/// Ports of a home in the quota test.
const QUOTA: usize = 64;
/// Sessions of the worker in the table test: the smallest valid value.
const FLOWS_MAX: usize = 1024;

fn options(nat: &[(&'static str, &'static str)], udp_sec: u32) -> Options {
    let mut options = Options::default();
    options.config.nat.extend(nat);
    options.config.nat.push(("quarantine_sec", QUARANTINE_SEC));
    options.config.timeouts.push(("udp_sec", udp_sec));
    options.config.timeouts.push(("udp_stream_sec", udp_sec));
    options
}

fn server() -> SocketAddrV4 {
    SocketAddrV4::new(SERVER, 7000)
}

/// Opens UDP flows from one home until one is refused, at most `most`.
fn fill(home: &Home, most: usize) -> Result<Vec<UdpSocket>> {
    let mut sockets = Vec::new();
    while sockets.len() < most {
        let socket = home.udp(0)?;
        if !exchange::udp(&socket, server(), b"fill")? {
            break;
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

#[test]
fn an_exhausted_quota_refuses_new_flows_only() {
    let nat = [("port_block", "64"), ("ports_per_subscriber", "64")];
    OneNode::test(&options(&nat, UDP_SEC), |net| {
        let _udp = Echo::udp(&net.internet, server())?;
        let _tcp = Echo::tcp(&net.internet, server())?;
        let (home, neighbour) = (&net.homes[0], &net.homes[1]);
        let mut old = home.tcp(0, server())?;
        exchange::tcp(&mut old, b"before")?;
        let flows = fill(home, 2 * QUOTA)?;
        ensure!((QUOTA - 1..=QUOTA).contains(&flows.len()), "{} flows", flows.len());
        ensure!(net.weir.drops("ports-exhausted")? > 0, "not counted");
        // The old flows go on, and the neighbour has its own quota.
        exchange::tcp(&mut old, b"during")?;
        ensure!(exchange::udp(&flows[QUOTA / 2], server(), b"during")?);
        ensure!(exchange::udp(&neighbour.udp(0)?, server(), b"neighbour")?);
        drop(flows);
        let late = home.udp(0)?;
        wait_for("return of ports", RETURN_DEADLINE, || {
            exchange::udp(&late, server(), b"again").ok()?.then_some(())
        })?;
        exchange::tcp(&mut old, b"after")
    });
}

#[test]
fn a_full_table_refuses_new_flows_only() {
    let mut options = options(&[("ports_per_subscriber", "4096")], UDP_LONG_SEC);
    options.config.flows_max = FLOWS_MAX as u32;
    // One home may fill the whole table.
    options.config.limits.push(("flows", "2048"));
    OneNode::test(&options, |net| {
        let _udp = Echo::udp(&net.internet, server())?;
        let _tcp = Echo::tcp(&net.internet, server())?;
        let home = &net.homes[0];
        let mut old = home.tcp(0, server())?;
        exchange::tcp(&mut old, b"before")?;
        let flows = fill(home, 2 * FLOWS_MAX)?;
        ensure!(flows.len() < FLOWS_MAX, "{} flows", flows.len());
        ensure!(net.weir.drops("table-full")? > 0, "not counted");
        exchange::tcp(&mut old, b"during")?;
        drop(flows);
        let late = net.homes[1].udp(0)?;
        wait_for("room in the table", RETURN_DEADLINE, || {
            exchange::udp(&late, server(), b"again").ok()?.then_some(())
        })?;
        exchange::tcp(&mut old, b"after")
    });
}

#[test]
fn a_home_that_falls_silent_gives_its_blocks_back() {
    let nat = [("port_block", "64"), ("ports_per_subscriber", "64")];
    OneNode::test(&options(&nat, UDP_SEC), |net| {
        let _udp = Echo::udp(&net.internet, server())?;
        let free = || net.weir.json(&["shards"]).ok()?[0]["blocks_free"].as_u64();
        let before = free();
        ensure!(before.is_some(), "no blocks_free");
        ensure!(exchange::udp(&net.homes[0].udp(0)?, server(), b"one")?);
        wait_for("opened block", RETURN_DEADLINE, || (free() < before).then_some(()))?;
        wait_for("returned block", RETURN_DEADLINE, || (free() == before).then_some(()))
    });
}
