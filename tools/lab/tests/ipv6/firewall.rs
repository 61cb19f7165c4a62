//! What weir keeps away from homes, and homes from each other.

use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::one_node::ipv6::{HOME_LENGTH, address_in_home};
use weir_lab::services::SERVER6;
use weir_lab::{Echo, OneNode, clients, exchange};

use crate::names::{CLAIM_CONFLICT, NOT_SUBSCRIBER, UNSOLICITED};
use crate::worlds::{
    ECHO, drops, dual_stack_behind_gre, plain, reaches_echo, still_works, wait_for_drops,
};

/// Time limit of a connection that must not come about.
const CALL_DEADLINE: Duration = Duration::from_secs(2);
/// Time limit of a ping that must not be answered.
const PING_DEADLINE: Duration = Duration::from_secs(10);
/// Interface id of an address that a home has beside its own.
const FORGED_ID: u16 = 0x66;

#[test]
fn the_internet_cannot_open_a_flow_to_a_home_behind_gre() {
    OneNode::test(&dual_stack_behind_gre(), unsolicited_packets_are_dropped);
}

#[test]
fn the_internet_cannot_open_a_flow_to_a_plain_home() {
    OneNode::test(&plain(), unsolicited_packets_are_dropped);
}

fn unsolicited_packets_are_dropped(net: &mut OneNode) -> Result<()> {
    let home = &net.homes[0];
    let inside = home.address6()?;
    let _echo = Echo::udp(&net.internet, ECHO)?;
    clients::ping(home, SERVER6, 1, 56)?;
    let socket = home.udp_of(inside, 40_000)?;
    ensure!(exchange::udp(&socket, ECHO, b"hello")?);
    let listener = home.namespace.enter(|| Ok(std::net::TcpListener::bind((inside, 80))?))?;

    let before = drops(net, &UNSOLICITED)?;
    let address = inside.to_string();
    let args = ["-n", "-c", "2", "-i", "0.2", "-w", "2", &address];
    let ping = net.internet.run(PING_DEADLINE, "ping", &args)?;
    ensure!(!ping.status.success(), "the server pings the home: {}", ping.stdout);
    wait_for_drops(net, &UNSOLICITED, before)?;

    let before = drops(net, &UNSOLICITED)?;
    let web = SocketAddr::from((inside, 80));
    let call = net.internet.enter(|| Ok(TcpStream::connect_timeout(&web, CALL_DEADLINE)?));
    ensure!(call.is_err(), "the server connects to the home");
    wait_for_drops(net, &UNSOLICITED, before)?;
    drop(listener);

    // Another port of the server, to the endpoint that the flow has opened, and to another one.
    let stranger = net.internet.enter(|| Ok(UdpSocket::bind((SERVER6, 7001))?))?;
    for port in [40_000, 5000] {
        let before = drops(net, &UNSOLICITED)?;
        stranger.send_to(b"let me in", (inside, port))?;
        wait_for_drops(net, &UNSOLICITED, before)?;
    }
    // The socket has received only its own echo.
    ensure!(exchange::udp(&socket, ECHO, b"still here")?);
    Ok(())
}

#[test]
fn a_home_that_forges_the_prefix_of_another_home_is_refused() {
    OneNode::test(&dual_stack_behind_gre(), |net| {
        let _echo = Echo::udp(&net.internet, ECHO)?;
        let [holder, forger, _] = &net.homes[..] else { unreachable!("three homes") };
        ensure!(reaches_echo(holder)? && reaches_echo(forger)?);
        for forged in [address_in_home(1, FORGED_ID), holder.address6()?] {
            let before = drops(net, &[CLAIM_CONFLICT])?;
            ensure!(!sends_from(net, 1, forged)?, "a home uses {forged} of another");
            ensure!(drops(net, &[CLAIM_CONFLICT])? > before, "{forged}: not counted");
        }
        // Neither loses its own prefix.
        ensure!(reaches_echo(holder)? && reaches_echo(forger)?);
        Ok(())
    });
}

#[test]
fn a_source_outside_the_prefixes_of_the_shard_is_refused() {
    for world in [dual_stack_behind_gre(), plain()] {
        OneNode::test(&world, |net| {
            let _echo = Echo::udp(&net.internet, ECHO)?;
            let foreign = "2001:db8:4000::1".parse()?;
            let before = drops(net, &NOT_SUBSCRIBER)?;
            ensure!(!sends_from(net, 1, foreign)?, "a home uses {foreign}");
            ensure!(drops(net, &NOT_SUBSCRIBER)? > before, "not counted");
            still_works(net)
        });
    }
}

/// Gives home `number`, from 0, an address and sends to [`ECHO`] from it; false if no answer comes.
fn sends_from(net: &OneNode, number: usize, address: Ipv6Addr) -> Result<bool> {
    let home = &net.homes[number];
    let device = if home.gateway.is_some() { "gre0" } else { "wan0" };
    home.namespace.ip(&format!("addr add {address}/{HOME_LENGTH} dev {device} nodad"))?;
    exchange::udp(&home.udp_of(address, 0)?, ECHO, b"forged")
}
