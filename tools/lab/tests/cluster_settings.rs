//! Rules and port forwards of a cluster: in force on every node after `weir apply`, and the same
//! after a failover.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use weir_lab::cluster::{ClusterLab, ClusterOptions};
use weir_lab::services::SERVER;
use weir_lab::{Echo, Namespace, exchange, wait_for};

const DEADLINE: Duration = Duration::from_secs(15);
const CALL: Duration = Duration::from_secs(3);

/// Connects from an address of a namespace.
fn connect(space: &Namespace, from: Ipv4Addr, to: SocketAddrV4) -> Result<TcpStream> {
    space.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddrV4::new(from, 0).into())?;
        socket.connect_timeout(&to.into(), CALL)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(stream)
    })
}

fn is_refused(result: Result<TcpStream>) -> bool {
    let error = result.err().and_then(|error| error.downcast::<std::io::Error>().ok());
    error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Applies the cluster's file with further lines, and waits until every node has them in force.
fn apply(lab: &ClusterLab, lines: &str) -> Result<()> {
    let file = lab.lab.directory().join("settings.toml");
    fs::write(&file, format!("{}{lines}", lab.options.files().cluster()))?;
    lab.control()?.weir(&["apply", "--wait", &file.to_string_lossy()])?.success()?;
    for node in &lab.nodes {
        let status = node.get("/status")?;
        let wanted = status["generation"]["number"].as_u64().context("no generation")?;
        ensure!(wanted > 0, "{} has the settings of its start", node.name());
        let workers = status["workers"].as_array().context("no workers")?;
        let is_in_force = |it: &serde_json::Value| it["generation"].as_u64() == Some(wanted);
        ensure!(workers.iter().all(is_in_force), "{}: {status}", node.name());
    }
    Ok(())
}

fn settings_survive_a_failover(lab: &ClusterLab) -> Result<()> {
    let (home, inside) = (&lab.network.homes, lab.homes.inside[0]);
    let mail = Echo::tcp(&lab.network.server, SocketAddrV4::new(SERVER, 25))?;
    let web = Echo::tcp(home, SocketAddrV4::new(inside, 8000))?;
    let mut live = connect(home, inside, mail.local())?;
    exchange::tcp(&mut live, b"before")?;
    let parsed = weir_config::parse_cluster(&lab.options.files().cluster(), "cluster.toml");
    let (desired, _) = parsed.map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    let shard = lab.options.files().shard_of_home(1);
    let public = desired.shard(shard.into()).context("no shard")?.public[0].network();
    let public = SocketAddrV4::new(public, 8080);
    apply(
        lab,
        &format!(
            "[[rule]]\nname = \"no-smtp\"\nprotocol = \"tcp\"\nremote_port = 25\naction = \"reject\"\n\
             [public]\nstatic = [\"10.200.0.1 tcp {inside}:8000 {public}\"]\n"
        ),
    )?;
    exchange::tcp(&mut live, b"live connections go on")?;
    ensure!(is_refused(connect(home, inside, mail.local())), "a new one is rejected");
    let smtp = format!("{SERVER}:25");
    for node in &lab.nodes {
        let asked = ["rules", "test", "home", "10.200.0.1", "tcp", "40000", &smtp];
        let told = node.cli(&asked)?.stdout;
        let expected = "reject: rule no-smtp (the cluster's settings, revision ";
        ensure!(told.starts_with(expected), "{}: {told}", node.name());
    }
    let mut called = connect(&lab.network.server, SERVER, public)?;
    exchange::tcp(&mut called, b"the forward is there")?;
    // Each change is sent to the replica within a turn or two.
    exchange::tcp(&mut called, &[7; 100_000])?;

    let map = lab.map.as_ref().context("no map")?;
    let before = map.read()?.shards[&u32::from(shard)].primary.clone();
    let primary = lab.nodes.iter().find(|node| node.name() == before).context("no such node")?;
    primary.weir.end(Signal::SIGKILL)?;
    wait_for("a call after the failover", DEADLINE, || {
        let mut stream = connect(&lab.network.server, SERVER, public).ok()?;
        exchange::tcp(&mut stream, b"again").ok()
    })?;
    exchange::tcp(&mut called, b"the connection to the forward is known")?;
    exchange::tcp(&mut live, b"so is the other one")?;
    ensure!(is_refused(connect(home, inside, mail.local())), "the rules are the same");
    ensure!(web.peers().len() >= 2);
    Ok(())
}

#[test]
fn rules_and_forwards_of_a_cluster_are_on_every_node_and_survive_a_failover() {
    let tested = || -> Result<()> {
        let lab = ClusterLab::start(ClusterOptions::default(), |_| ())?;
        settings_survive_a_failover(&lab)
    };
    tested().unwrap_or_else(|error| panic!("{error:#}"));
}
