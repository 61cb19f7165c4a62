//! The checks of the demonstration, in order; each reports what it saw.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_lab::clients::{self, Direction, Probe};
use weir_lab::services::{Download, SERVER};
use weir_lab::{Echo, OneNode, exchange, wait_for};

/// Seconds of each iperf3 run.
const IPERF3_SEC: u32 = 5;
/// Time until a drop must be counted.
const DROP_DEADLINE: Duration = Duration::from_secs(5);
/// The local port that all homes use at once.
const SAME_PORT: u16 = 40_000;

/// The laboratory with all of its services started.
pub(crate) struct Demo {
    pub(crate) net: OneNode,
    pub(crate) file: Download,
}

/// A check: what it tries, and the function that does it. The returned text goes into the table.
type Check = (&'static str, fn(&Demo) -> Result<String>);

pub(crate) const CHECKS: &[Check] = &[
    ("ping through the tunnel", ping),
    ("traceroute sees weir and the router", traceroute),
    ("DNS over UDP", dns),
    ("DNS answer in fragments (> 1500 bytes)", big_dns),
    ("curl: 100 MB, SHA-256 compared", download),
    ("iperf3, home to internet", upload),
    ("iperf3, internet to home", reverse),
    ("STUN (RFC 5780): mapping and filtering", stun),
    ("three homes, same inside address and port", same_address),
    ("uninvited traffic from the internet", uninvited),
    ("homes do not reach each other", apart),
    ("every home has its own state", own_state),
];

fn ping(demo: &Demo) -> Result<String> {
    let mut times = Vec::new();
    for home in &demo.net.homes {
        times.push(format!("{:.2}", clients::ping(home, SERVER, 5, 56)?));
    }
    Ok(format!("homes 1-3: {} ms", times.join(", ")))
}

fn traceroute(demo: &Demo) -> Result<String> {
    let hops = clients::traceroute(&demo.net.homes[0], SERVER, Probe::Udp)?;
    ensure!(hops.len() == 3 && hops[0] != "*", "hops {hops:?}");
    Ok(hops.join(" > "))
}

fn dns(demo: &Demo) -> Result<String> {
    let address = clients::resolve(&demo.net.homes[0])?;
    ensure!(address == SERVER.to_string(), "answer {address}");
    Ok(address)
}

fn big_dns(demo: &Demo) -> Result<String> {
    let length = clients::resolve_big(&demo.net.homes[1])?;
    Ok(format!("TXT record of {length} bytes, no TCP"))
}

fn download(demo: &Demo) -> Result<String> {
    let mbps = clients::download(&demo.net.homes[0], &demo.file)?;
    Ok(format!("{mbps:.0} Mbit/s, {}...", &demo.file.sha256[..16]))
}

fn upload(demo: &Demo) -> Result<String> {
    iperf3(demo, Direction::Up)
}

fn reverse(demo: &Demo) -> Result<String> {
    iperf3(demo, Direction::Down)
}

fn iperf3(demo: &Demo, direction: Direction) -> Result<String> {
    let run = clients::iperf3(&demo.net.homes[1], direction, IPERF3_SEC)?;
    Ok(format!("{:.0} Mbit/s, {} retransmits, no reset", run.mbps, run.retransmits))
}

fn stun(demo: &Demo) -> Result<String> {
    let seen = clients::nat_behaviour(&demo.net.homes[2])?;
    ensure!(seen.mapping == "Endpoint Independent Mapping", "{seen:?}");
    ensure!(seen.filtering == "Address and Port Dependent Filtering", "{seen:?}");
    Ok(format!("{}, {}", seen.mapping, seen.filtering))
}

fn same_address(demo: &Demo) -> Result<String> {
    let server = SocketAddrV4::new(SERVER, 7000);
    let echo = Echo::tcp(&demo.net.internet, server)?;
    let homes = &demo.net.homes;
    let mut streams =
        homes.iter().map(|home| home.tcp(SAME_PORT, server)).collect::<Result<Vec<_>>>()?;
    for round in 0..10 {
        for (number, stream) in streams.iter_mut().enumerate() {
            exchange::tcp(stream, format!("home {number} round {round}").as_bytes())?;
        }
    }
    let peers = echo.peers();
    ensure!(peers.len() == homes.len(), "the server sees {peers:?}");
    Ok(format!("{}:{SAME_PORT} is {}", homes[0].inside, list(&peers)))
}

fn uninvited(demo: &Demo) -> Result<String> {
    let net = &demo.net;
    let (socket, public) = open_endpoint(demo)?;
    let stranger = net.internet.enter(|| Ok(UdpSocket::bind((SERVER, 7999))?))?;
    let before = net.weir.drops("filtered")?;
    stranger.send_to(b"let me in", public)?;
    wait_for("drop", DROP_DEADLINE, || (net.weir.drops("filtered").ok()? > before).then_some(()))?;
    ensure!(is_silent(&socket)?, "it came through");
    Ok(format!("{SERVER}:7999 to {public}: dropped as \"filtered\""))
}

fn apart(demo: &Demo) -> Result<String> {
    let (socket, public) = open_endpoint(demo)?;
    let SocketAddr::V4(target) = public else { anyhow::bail!("not IPv4: {public}") };
    let neighbour = demo.net.homes[1].udp(0)?;
    let answered = exchange::udp(&neighbour, target, b"hello neighbour")?;
    ensure!(!answered && is_silent(&socket)?, "home 2 reached home 1");
    Ok(format!("home 2 to {public} of home 1: no answer"))
}

/// Opens a socket of home 1 with a mapping. Returns it and its public endpoint.
fn open_endpoint(demo: &Demo) -> Result<(UdpSocket, SocketAddr)> {
    let server = SocketAddrV4::new(SERVER, 7000);
    let echo = Echo::udp(&demo.net.internet, server)?;
    let socket = demo.net.homes[0].udp(0)?;
    ensure!(exchange::udp(&socket, server, b"hello")?, "no answer from the server");
    let public = *echo.peers().first().context("nobody came")?;
    Ok((socket, public))
}

/// True if nothing has arrived.
fn is_silent(socket: &UdpSocket) -> Result<bool> {
    socket.set_nonblocking(true)?;
    Ok(socket.recv(&mut [0; 64]).is_err())
}

fn own_state(demo: &Demo) -> Result<String> {
    let mut counts = Vec::new();
    for home in &demo.net.homes {
        let outer = home.outer.to_string();
        let sessions = demo.net.weir.sessions(&["--subscriber", &outer])?;
        ensure!(!sessions.is_empty(), "no session of {outer}");
        let foreign = sessions.iter().filter(|session| session["subscriber"] != outer).count();
        ensure!(foreign == 0, "{foreign} sessions of others shown for {outer}");
        counts.push(sessions.len().to_string());
    }
    Ok(format!("{} sessions of homes 1, 2, 3", counts.join(", ")))
}

fn list(peers: &[SocketAddr]) -> String {
    peers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}
