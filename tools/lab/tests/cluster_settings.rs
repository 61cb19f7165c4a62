//! Rules and port forwards of a cluster: in force on every node after `weir apply`, and the same
//! after a failover and during a rolling upgrade.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use weir_lab::cluster::{ClusterLab, ClusterOptions};
use weir_lab::services::SERVER;
use weir_lab::{Echo, Namespace, exchange, wait_for};

const DEADLINE: Duration = Duration::from_secs(15);
const CALL: Duration = Duration::from_secs(3);

const NO_SMTP: &str =
    "[[rule]]\nname = \"no-smtp\"\nprotocol = \"tcp\"\nremote_port = 25\naction = \"reject\"\n";

/// Connects from an address of a namespace.
fn connect(space: &Namespace, from: Ipv4Addr, to: impl Into<SocketAddr>) -> Result<TcpStream> {
    let to = to.into();
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

/// What a home asks that a rule redirects.
const ASKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

/// Applies the cluster's file with further lines.
fn apply(lab: &ClusterLab, lines: &str, options: &[&str]) -> Result<()> {
    let file = lab.lab.directory().join("settings.toml");
    fs::write(&file, format!("{}{lines}", lab.options.files().cluster()))?;
    let file = file.to_string_lossy();
    let words = [&["apply"], options, &[&file]].concat();
    lab.control()?.weir(&words)?.success().map(drop)
}

/// Checks that each worker of each node has what was applied last; all nodes run.
fn are_in_force(lab: &ClusterLab) -> Result<()> {
    let mut numbers = BTreeSet::new();
    for node in &lab.nodes {
        let status = node.get("/status")?;
        let wanted = status["generation"]["number"].as_u64().context("no generation")?;
        ensure!(wanted > 0, "{} has the settings of its start", node.name());
        let workers = status["workers"].as_array().context("no workers")?;
        let is_in_force = |it: &serde_json::Value| it["generation"].as_u64() == Some(wanted);
        ensure!(workers.iter().all(is_in_force), "{}: {status}", node.name());
        numbers.insert(wanted);
    }
    ensure!(numbers.len() == 1, "{numbers:?}");
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
    let own = desired.shard(shard.into()).context("no shard")?.public[0];
    let (public, special) = (SocketAddrV4::new(own.network(), 8080), own.broadcast());
    let lines = format!(
        "{NO_SMTP}[[rule]]\nname = \"garden\"\nremote = \"{ASKED}\"\naction = \"redirect\"\n\
         to = \"{SERVER}\"\nsource_pool = \"special\"\n\
         [[source_pool]]\nname = \"special\"\npublic = \"{special}/32\"\n\
         [public]\nstatic = [\"10.200.0.1 tcp {inside}:8000 {public}\"]\n"
    );
    apply(lab, &lines, &["--wait"])?;
    are_in_force(lab)?;
    let garden = Echo::tcp(&lab.network.server, SocketAddrV4::new(SERVER, 7777))?;
    let mut redirected = connect(home, inside, SocketAddrV4::new(ASKED, 7777))?;
    exchange::tcp(&mut redirected, &[7; 100_000])?;
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
    exchange::tcp(&mut redirected, b"and the one that goes elsewhere")?;
    ensure!(garden.peers().iter().all(|peer| peer.ip() == special), "{:?}", garden.peers());
    ensure!(is_refused(connect(home, inside, mail.local())), "the rules are the same");
    ensure!(web.peers().len() >= 2);
    Ok(())
}

/// Restarts the nodes in turn with the earlier version of the replication protocol, then with the
/// newest one; while a node is down the rules change.
fn settings_change_during_an_upgrade(lab: &ClusterLab) -> Result<()> {
    let (home, inside) = (&lab.network.homes, lab.homes.inside[0]);
    let mail = Echo::tcp(&lab.network.server, SocketAddrV4::new(SERVER, 25))?;
    let web = Echo::tcp(&lab.network.server, SocketAddrV4::new(SERVER, 8000))?;
    let mut live = connect(home, inside, web.local())?;
    exchange::tcp(&mut live, b"before")?;
    let restarts = [true, false]
        .into_iter()
        .flat_map(|is_earlier| lab.nodes.iter().map(move |node| (node, is_earlier)));
    for (restart, (node, is_earlier)) in restarts.enumerate() {
        let starts = node.weir.starts();
        node.weir.end(Signal::SIGTERM)?;
        node.set_earlier(is_earlier);
        let is_rejected = restart % 2 == 0;
        apply(lab, if is_rejected { NO_SMTP } else { "" }, &[])?;
        node.weir.resume()?;
        node.wait_ready(starts)?;
        lab.wait_ok()?;
        wait_for("the settings on every node", DEADLINE, || are_in_force(lab).ok())?;
        let called = connect(home, inside, mail.local());
        let is_as_wanted = if is_rejected { is_refused(called) } else { called.is_ok() };
        ensure!(is_as_wanted, "restart {restart}, of {}", node.name());
        exchange::tcp(&mut live, b"the live connection goes on")?;
    }
    Ok(())
}

#[test]
fn rules_change_during_a_rolling_upgrade_and_are_the_same_on_both_versions() {
    let tested = || -> Result<()> {
        let lab = ClusterLab::start(ClusterOptions::default(), |_| ())?;
        settings_change_during_an_upgrade(&lab)
    };
    tested().unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn rules_and_forwards_of_a_cluster_are_on_every_node_and_survive_a_failover() {
    let tested = || -> Result<()> {
        let lab = ClusterLab::start(ClusterOptions::default(), |_| ())?;
        settings_survive_a_failover(&lab)
    };
    tested().unwrap_or_else(|error| panic!("{error:#}"));
}
