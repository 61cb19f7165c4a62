//! Packets larger than the next link: path MTU discovery, fragments, MSS clamp.

use std::net::SocketAddrV4;

use anyhow::{Result, ensure};
use weir_lab::clients::{self, Direction};
use weir_lab::one_node::TUNNEL_MTU;
use weir_lab::services::{self, SERVER};
use weir_lab::{Echo, Namespace, OneNode, Options, exchange};

/// Bytes of a download of many full segments.
const FILE_LEN: usize = 5_000_000;
/// MTU of a link further into the internet.
const NARROW_MTU: u16 = 1300;

#[test]
fn without_clamp_the_server_learns_the_tunnels_mtu() {
    let mut options = Options::default();
    options.config.nat.push(("mss_clamp", "false"));
    OneNode::test(&options, |net| {
        // The home's own MSS makes the server send 1476 bytes; with this larger MSS the server
        // sends 1500.
        net.homes[0].namespace.ip("route change default dev gre0 advmss 1460")?;
        let file = services::start_http(&net.lab, &net.internet, FILE_LEN)?;
        clients::download(&net.homes[0], &file)?;
        ensure!(net.weir.drops("dont-fragment")? > 0, "nothing was too big");
        let learnt = cached_routes(&net.internet)?;
        ensure!(learnt.contains(&format!("mtu {TUNNEL_MTU}")), "server knows: {learnt}");
        Ok(())
    });
}

#[test]
fn the_clamp_spares_path_mtu_discovery() {
    OneNode::test(&Options::default(), |net| {
        net.homes[0].namespace.ip("route change default dev gre0 advmss 1460")?;
        let file = services::start_http(&net.lab, &net.internet, FILE_LEN)?;
        clients::download(&net.homes[0], &file)?;
        let too_big = net.weir.drops("dont-fragment")?;
        ensure!(too_big == 0, "{too_big} segments were too big");
        Ok(())
    });
}

#[test]
fn a_home_learns_of_a_narrow_link_behind_weir() {
    OneNode::test(&Options::default(), |net| {
        net.core.ip(&format!("link set net0 mtu {NARROW_MTU}"))?;
        services::start_iperf3(&net.lab, &net.internet)?;
        clients::iperf3(&net.homes[0], Direction::Up, 2)?;
        let learnt = cached_routes(&net.homes[0].namespace)?;
        ensure!(learnt.contains(&format!("mtu {NARROW_MTU}")), "home knows: {learnt}");
        Ok(())
    });
}

#[test]
fn datagrams_of_several_fragments_pass_both_ways() {
    OneNode::test(&Options::default(), |net| -> Result<()> {
        let server = SocketAddrV4::new(SERVER, 7000);
        let _echo = Echo::udp(&net.internet, server)?;
        services::start_dns(&net.lab, &net.internet)?;
        let sockets = net.homes.iter().map(|home| home.udp(40_000)).collect::<Result<Vec<_>>>()?;
        for length in [1448, 1449, 1472, 1473, 3000, 8000, 20_000] {
            for (number, socket) in sockets.iter().enumerate() {
                let payload: Vec<u8> = (0..length).map(|i| (i * 7 + number) as u8).collect();
                ensure!(
                    exchange::udp(socket, server, &payload)?,
                    "{length} bytes of home {number} were lost"
                );
            }
        }
        clients::resolve_big(&net.homes[1])?;
        Ok(())
    });
}

/// Returns the results of path MTU discovery in a namespace.
fn cached_routes(namespace: &Namespace) -> Result<String> {
    let deadline = std::time::Duration::from_secs(5);
    let output = namespace.run(deadline, "ip", &["route", "show", "cache"])?;
    Ok(output.success()?.stdout)
}
