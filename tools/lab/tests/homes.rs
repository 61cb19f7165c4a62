//! Homes that look the same from inside are kept apart.

use std::collections::HashSet;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::clients;
use weir_lab::services::{self, SERVER, SERVER_ALTERNATE};
use weir_lab::{Echo, OneNode, Options, exchange, wait_for};

/// The same local port in every home.
const PORT: u16 = 40_000;
/// Time until a drop must be counted.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

#[test]
fn three_homes_with_the_same_inside_address_and_port_reach_one_server() {
    OneNode::test(&Options::default(), |net| {
        let server = SocketAddrV4::new(SERVER, 7000);
        let udp_echo = Echo::udp(&net.internet, server)?;
        let tcp_echo = Echo::tcp(&net.internet, server)?;
        let mut sockets = Vec::new();
        for home in &net.homes {
            sockets.push((home.udp(PORT)?, home.tcp(PORT, server)?));
        }
        for round in 0..20 {
            for (number, (udp, tcp)) in sockets.iter_mut().enumerate() {
                let words = format!("home {number} round {round}");
                ensure!(exchange::udp(udp, server, words.as_bytes())?, "no answer: {words}");
                exchange::tcp(tcp, words.as_bytes())?;
            }
        }
        for echo in [&udp_echo, &tcp_echo] {
            let peers: HashSet<_> = echo.peers().into_iter().collect();
            ensure!(peers.len() == net.homes.len(), "public endpoints {peers:?}");
        }
        Ok(())
    });
}

#[test]
fn a_mapping_is_one_public_endpoint_for_every_remote() {
    OneNode::test(&Options::default(), |net| {
        let servers = [SERVER, SERVER_ALTERNATE].map(|address| SocketAddrV4::new(address, 7000));
        let echoes = [Echo::udp(&net.internet, servers[0])?, Echo::udp(&net.internet, servers[1])?];
        let socket = net.homes[0].udp(0)?;
        for server in servers {
            ensure!(exchange::udp(&socket, server, b"who am I")?);
        }
        ensure!(echoes[0].peers() == echoes[1].peers());
        Ok(())
    });
}

#[test]
fn a_gre_key_comes_back() {
    let options = Options { gre_key: Some(4711), ..Options::default() };
    OneNode::test(&options, |net| {
        let home = &net.homes[0];
        let file = services::start_http(&net.lab, &net.internet, 5_000_000)?;
        services::start_dns(&net.lab, &net.internet)?;
        clients::download(home, &file)?;
        clients::ping(home, SERVER, 1, 4000)?;
        clients::resolve_big(home)?;
        Ok(())
    });
}

#[test]
fn unsolicited_traffic_does_not_get_in() {
    OneNode::test(&Options::default(), |net| -> Result<()> {
        let server = SocketAddrV4::new(SERVER, 7000);
        let echo = Echo::udp(&net.internet, server)?;
        let socket = net.homes[0].udp(0)?;
        ensure!(exchange::udp(&socket, server, b"hello")?);
        let public = echo.peers()[0];
        // Another port of the same server, to an endpoint that is open for the first port only.
        let stranger = net.internet.enter(|| Ok(UdpSocket::bind((SERVER, 7001))?))?;
        let filtered = net.weir.drops("filtered")?;
        stranger.send_to(b"let me in", public)?;
        wait_for("drop of an uninvited sender", DROP_DEADLINE, || {
            (net.weir.drops("filtered").ok()? > filtered).then_some(())
        })?;
        // An address of the pool, on a port without a mapping.
        let no_mapping = net.weir.drops("no-mapping")?;
        stranger.send_to(b"anybody there", (public.ip(), public.port() ^ 1))?;
        wait_for("drop without a mapping", DROP_DEADLINE, || {
            (net.weir.drops("no-mapping").ok()? > no_mapping).then_some(())
        })?;
        // The socket has received only its own echo.
        ensure!(exchange::udp(&socket, server, b"still here")?);
        Ok(())
    });
}
