//! Questions of an operator to a running node.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::services::SERVER;
use weir_lab::{Echo, OneNode, Options, WeirConfig, exchange, wait_for};

/// Time limit for a requested effect.
const DEADLINE: Duration = Duration::from_secs(15);

fn server() -> SocketAddrV4 {
    SocketAddrV4::new(SERVER, 7000)
}

/// Opens a UDP flow of the given home; returns its public endpoint.
fn flow(net: &OneNode, echo: &Echo, home: usize) -> Result<SocketAddr> {
    let known = echo.peers();
    ensure!(exchange::udp(&net.homes[home].udp(0)?, server(), b"flow")?, "no answer");
    let peers = echo.peers();
    peers.into_iter().find(|peer| !known.contains(peer)).context("no new peer")
}

#[test]
fn sessions_are_found_by_every_end() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        let publics = [flow(net, &echo, 0)?, flow(net, &echo, 1)?];
        let (first, remote) = (publics[0].to_string(), server().to_string());
        ensure!(net.weir.sessions(&[])?.len() >= 2);
        let outer = net.homes[0].outer.to_string();
        for filter in [["--subscriber", &outer], ["--public", &first]] {
            let sessions = net.weir.sessions(&filter)?;
            ensure!(sessions.len() == 1, "{filter:?}: {sessions:?}");
            ensure!(sessions[0]["public"] == first && sessions[0]["remote"] == remote);
            ensure!(sessions[0]["subscriber"] == outer, "{sessions:?}");
        }
        ensure!(net.weir.sessions(&["--remote", &remote])?.len() == 2);
        ensure!(net.weir.sessions(&["--limit", "1"])?.len() == 1);
        ensure!(net.weir.sessions(&["--remote", "192.0.2.1:9"])?.is_empty());
        let table = net.weir.cli(&["sessions"])?.success()?.stdout;
        ensure!(table.contains(&first), "{table}");
        Ok(())
    });
}

#[test]
fn a_subscriber_is_shown_and_flushed() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        let public = flow(net, &echo, 0)?;
        let outer = net.homes[0].outer.to_string();
        let shown = net.weir.cli(&["subscriber", "show", &outer])?.success()?.stdout;
        ensure!(shown.contains(&public.ip().to_string()), "{shown}");
        net.weir.cli(&["subscriber", "flush", &outer])?.success()?;
        let left = net.weir.sessions(&["--subscriber", &outer])?;
        ensure!(left.is_empty(), "{left:?}");
        // A new flow is served again.
        flow(net, &echo, 0)?;
        Ok(())
    });
}

#[test]
fn block_log_names_the_home_of_a_port_even_after_rotation() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        let log = net.weir.block_log();
        let rotated = log.with_extension("jsonl.1");
        let publics = [flow(net, &echo, 0)?, {
            wait_for("first block in the log", DEADLINE, || has_lines(&log))?;
            fs::rename(&log, &rotated)?;
            net.weir.process().signal(Signal::SIGHUP)?;
            wait_for("new log file", DEADLINE, || log.exists().then_some(()))?;
            flow(net, &echo, 1)?
        }];
        wait_for("second block in the log", DEADLINE, || has_lines(&log))?;
        for (file, public, home) in [(&rotated, publics[0], 0), (&log, publics[1], 1)] {
            let (file, public) = (file.to_string_lossy(), public.to_string());
            let output = net.weir.offline(&["where", &public, "--log", &file])?.success()?.stdout;
            let outer = net.homes[home].outer.to_string();
            ensure!(output.contains(&outer), "{public} in {file}: {output}");
        }
        Ok(())
    });
}

const COLLECTOR: &str = r#"
[[collector]]
name = "north"
address = "127.0.0.1:6514"
format = "syslog-tcp"
enterprise = 32473
spool = "{directory}/north"
"#;

/// The collector is absent when the block is assigned, and gets the record once it listens.
#[test]
fn a_collector_gets_the_blocks_of_a_node() {
    let config = WeirConfig { collectors: COLLECTOR, ..WeirConfig::default() };
    OneNode::test(&Options { config, ..Options::default() }, |net| {
        let echo = Echo::udp(&net.internet, server())?;
        let public = flow(net, &echo, 0)?;
        let has = |line: &str| Ok::<_, anyhow::Error>(net.weir.metrics()?.contains(line));
        ensure!(has("weir_export_up{collector=\"north\"} 0")?, "nobody listens yet");
        let (mut stream, mut output) = (collector(net)?, String::new());
        read_until(&mut stream, &mut output, |output| output.contains("block-allocated"))?;
        let (outer, address) = (net.homes[0].outer, public.ip());
        for expected in [
            " lab weir - block-allocated [weir@32473 node=\"1\" shard=\"1\" ".to_owned(),
            format!("subscriber=\"{outer}\" public=\"{address}\" ports=\""),
        ] {
            ensure!(output.contains(&expected), "{expected}: {output}");
        }
        let is_up = || has("weir_export_up{collector=\"north\"} 1").ok()?.then_some(());
        wait_for("a collector that is up", DEADLINE, is_up)
    });
}

/// Starts the collector of the node's file, and returns the node's connection to it.
fn collector(net: &OneNode) -> Result<TcpStream> {
    let listener = net.node.enter(|| Ok(TcpListener::bind("127.0.0.1:6514")?))?;
    listener.set_nonblocking(true)?;
    let accepted = || Some(listener.accept().ok()?.0);
    let stream = wait_for("a connection to the collector", DEADLINE, accepted)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// Appends the received bytes to `output`, up to the end of a record, until `is_enough` is true.
fn read_until(
    stream: &mut TcpStream,
    output: &mut String,
    is_enough: impl Fn(&str) -> bool,
) -> Result<()> {
    let mut part = [0; 4096];
    while !is_enough(output) || !output.ends_with(']') {
        let count = stream.read(&mut part)?;
        ensure!(count > 0, "the collector was left: {output}");
        output.push_str(std::str::from_utf8(&part[..count])?);
    }
    Ok(())
}

#[test]
fn collector_gets_sessions_and_refused_flows() {
    const SESSIONS_MAX: usize = 16;
    let config = WeirConfig {
        session_log: "destinations",
        collectors: COLLECTOR,
        limits: vec![("flows", "16")],
        ..WeirConfig::default()
    };
    OneNode::test(&Options { config, ..Options::default() }, |net| {
        let (mut stream, mut output) = (collector(net)?, String::new());
        let echo = Echo::udp(&net.internet, server())?;
        let public = flow(net, &echo, 0)?;
        while exchange::udp(&net.homes[0].udp(0)?, server(), b"flow")? {
            ensure!(echo.peers().len() <= SESSIONS_MAX, "a home has its limit");
        }
        read_until(&mut stream, &mut output, |output| output.contains("quota-exceeded"))?;
        let outer = net.homes[0].outer.to_string();
        let quota = format!("subscriber=\"{outer}\" quota=\"sessions\" limit=\"16\"]");
        ensure!(output.contains(&quota), "{quota}: {output}");
        ensure!(output.matches("quota-exceeded").count() == 1, "refusals are paced: {output}");
        let remote = server();
        let of = |what: &str, output: &str| {
            let records = output.split_inclusive(']').filter(|it| it.contains(what));
            let of_it = |it: &&str| {
                it.contains(&format!("public=\"{public}\""))
                    && it.contains(&outer)
                    && it.contains(&format!("remote=\"{remote}\""))
            };
            records.filter(of_it).count()
        };
        ensure!(of("session-begun", &output) == 1 && of("session-ended", &output) == 0, "{output}");
        let begun = output.matches("session-begun").count();
        ensure!(begun == SESSIONS_MAX, "{begun} sessions: {output}");
        net.weir.cli(&["subscriber", "flush", &outer])?.success()?;
        let ended = |output: &str| output.matches("session-ended").count() >= SESSIONS_MAX;
        read_until(&mut stream, &mut output, ended)?;
        ensure!(of("session-ended", &output) == 1, "{public}: {output}");
        Ok(())
    });
}

fn has_lines(path: &std::path::Path) -> Option<()> {
    fs::read_to_string(path).ok()?.contains('\n').then_some(())
}

#[test]
fn a_capture_is_a_file_tcpdump_reads() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        for (side, inner, seen) in [
            ("access", false, "GREv0"),
            ("access", true, "192.168.1.2"),
            ("internet", false, "203.0.113."),
        ] {
            let name = format!("capture-{side}-{inner}");
            let file = net.lab.directory().join(format!("{name}.pcapng"));
            let path = file.to_string_lossy();
            let mut args = vec!["capture", "--side", side, "-w", &path];
            if inner {
                args.push("--inner");
            }
            let capture = net.weir.background(&net.lab, &name, &args)?;
            let text = wait_for(&format!("\"{seen}\" in {name}"), DEADLINE, || {
                flow(net, &echo, 0).ok()?;
                let output = net.node.run(
                    DEADLINE,
                    "tcpdump",
                    &["-nn", "-r", &path, "port", "7000", "or", "proto", "gre"],
                );
                let text = output.ok()?.stdout;
                text.contains(seen).then_some(text)
            })?;
            ensure!(inner || side == "internet" || text.contains("10.200.0.1"), "{text}");
            capture.stop();
        }
        Ok(())
    });
}

#[test]
fn status_shards_and_metrics_agree() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        flow(net, &echo, 0)?;
        let status = net.weir.cli(&["status"])?.success()?.stdout;
        ensure!(status.contains("OK"), "{status}");
        // Gauges are published about once a second.
        wait_for("one subscriber in the shard", DEADLINE, || {
            let shards = net.weir.json(&["shards"]).ok()?;
            (shards[0]["shard"] == 1 && shards[0]["subscribers"] == 1).then_some(())
        })?;
        wait_for("one subscriber in the metrics", DEADLINE, || {
            value(&net.weir.metrics().ok()?, "weir_subscribers").filter(|&count| count == 1.0)
        })?;
        let metrics = net.weir.metrics()?;
        for name in [
            "weir_packets_total",
            "weir_bytes_total",
            "weir_drops_total",
            "weir_flows",
            "weir_flows_max",
            "weir_flow_creates_total",
            "weir_ports_used",
            "weir_blocks_free",
            "weir_worker_busy_ratio",
            "weir_rx_missed_total",
            "weir_busy_cycles_total",
            "weir_busy_packets_total",
            "weir_gateway_up",
            "weir_build_info",
        ] {
            ensure!(value(&metrics, name).is_some(), "no {name} in\n{metrics}");
        }
        ensure!(value(&metrics, "weir_gateway_up") == Some(1.0));
        Ok(())
    });
}

/// Returns the value of the first series with a name.
fn value(metrics: &str, name: &str) -> Option<f64> {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .find(|rest| rest.starts_with(['{', ' ']))?
        .rsplit(' ')
        .next()?
        .parse()
        .ok()
}

#[test]
fn a_link_that_goes_down_is_seen_and_forwards_again_when_it_is_back() {
    OneNode::test(&Options::default(), |net| {
        let echo = Echo::udp(&net.internet, server())?;
        let verdict = |wanted: &str| {
            wait_for(wanted, DEADLINE, || {
                let status = net.weir.cli(&["status"]).ok()?;
                status.stdout.starts_with(wanted).then_some(())
            })
        };
        verdict("OK")?;
        net.node.ip("link set acc0 down")?;
        verdict("DOWN")?;
        net.node.ip("link set acc0 up")?;
        verdict("OK")?;
        flow(net, &echo, 0)?;
        Ok(())
    });
}
