//! Real clients that run in a home, and their results.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::home::Home;
use crate::services::{BIG_NAME, BIG_TEXT_LEN, Download, IPERF3_PORTS, SERVER, WWW_NAME};

/// Time limit of a download.
const DOWNLOAD_DEADLINE: Duration = Duration::from_secs(120);
/// Time limit of a short question, retries of the client included.
const QUESTION_DEADLINE: Duration = Duration::from_secs(30);
/// Time beyond its own run time that iperf3 may take.
const IPERF3_MARGIN: Duration = Duration::from_secs(20);

/// Fetches the file with curl and compares its checksum. Returns the rate of content in Mbit/s.
pub fn download(home: &Home, file: &Download) -> Result<f64> {
    let start = Instant::now();
    let size = "%{stderr}%{size_download}";
    let script = format!(
        "set -eo pipefail; curl -sS --fail -w '{size}' --output - {} | sha256sum",
        file.url
    );
    let finished = home.run(DOWNLOAD_DEADLINE, "bash", &["-c", &script])?;
    let took = start.elapsed();
    let sum = finished.stdout.split_whitespace().next().unwrap_or_default();
    let bytes: f64 = finished.stderr.trim().parse()?;
    ensure!(sum == file.sha256, "checksum {sum} of {bytes} bytes, not {}", file.sha256);
    Ok(bytes * 8.0 / took.as_secs_f64() / 1e6)
}

/// The direction in which iperf3 sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Home to server.
    Up,
    /// Server to home.
    Down,
}

/// The result of an iperf3 run over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// Received, Mbit/s.
    pub mbps: f64,
    /// Retransmitted segments.
    pub retransmits: u64,
}

/// Runs iperf3 over TCP with two streams to [`SERVER`]. Fails if a stream is reset.
pub fn iperf3(home: &Home, direction: Direction, seconds: u32) -> Result<Throughput> {
    iperf3_to(home, SERVER, direction, seconds)
}

/// Like [`iperf3`], to a server of either family.
pub fn iperf3_to(
    home: &Home,
    server: impl Into<IpAddr>,
    direction: Direction,
    seconds: u32,
) -> Result<Throughput> {
    let port = match direction {
        Direction::Up => IPERF3_PORTS[0],
        Direction::Down => IPERF3_PORTS[1],
    };
    let (server, port, time) = (server.into().to_string(), port.to_string(), seconds.to_string());
    let mut args = vec!["--client", &server, "--port", &port, "--time", &time];
    args.extend(["--parallel", "2", "--json"]);
    if direction == Direction::Down {
        args.push("--reverse");
    }
    let deadline = Duration::from_secs(u64::from(seconds)) + IPERF3_MARGIN;
    let finished = home.namespace.run(deadline, "iperf3", &args)?;
    let report: Value = serde_json::from_str(&finished.stdout).context(finished.stdout)?;
    if let Some(error) = report["error"].as_str() {
        anyhow::bail!("iperf3: {error}");
    }
    let end = &report["end"];
    Ok(Throughput {
        mbps: end["sum_received"]["bits_per_second"].as_f64().context("no result of iperf3")? / 1e6,
        retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or_default(),
    })
}

/// The behaviour that `turnutils_natdiscovery` reports for the NAT (RFC 5780).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatBehaviour {
    /// "Endpoint Independent Mapping".
    pub mapping: String,
    /// "Address and Port Dependent Filtering".
    pub filtering: String,
}

/// Discovers mapping and filtering behaviour with coturn's client.
pub fn nat_behaviour(home: &Home) -> Result<NatBehaviour> {
    let server = SERVER.to_string();
    let output = home.run(QUESTION_DEADLINE, "turnutils_natdiscovery", &["-m", "-f", &server])?;
    let verdict = |what: &str| {
        output
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix("NAT with "))
            .map(|line| line.trim_end_matches('!').to_owned())
            .find(|line| line.ends_with(what))
            .with_context(|| format!("no verdict on {what}:\n{}", output.stdout))
    };
    Ok(NatBehaviour { mapping: verdict("Mapping")?, filtering: verdict("Filtering")? })
}

/// Pings with `count` requests of `size` bytes of data; all must be answered. Returns the average
/// round trip in milliseconds.
pub fn ping(home: &Home, address: impl Into<IpAddr>, count: u32, size: u32) -> Result<f64> {
    let (address, count, size) = (address.into().to_string(), count.to_string(), size.to_string());
    let output = home.run(
        QUESTION_DEADLINE,
        "ping",
        &["-n", "-i", "0.2", "-w", "10", "-c", &count, "-s", &size, &address],
    )?;
    // rtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms
    output
        .stdout
        .lines()
        .find(|line| line.starts_with("rtt "))
        .and_then(|line| line.split('/').nth(4)?.parse().ok())
        .with_context(|| output.stdout.clone())
}

/// Probe packets of traceroute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// UDP to unlikely ports: the end answers "port unreachable".
    Udp,
    /// Echo requests.
    Icmp,
}

/// Returns the addresses on the path to `address`; "*" for a silent hop.
pub fn traceroute(home: &Home, address: impl Into<IpAddr>, probe: Probe) -> Result<Vec<String>> {
    let address = address.into().to_string();
    let method = match probe {
        Probe::Udp => "--module=default",
        Probe::Icmp => "--module=icmp",
    };
    let output = home.run(
        QUESTION_DEADLINE,
        "traceroute",
        &["-n", method, "-q", "1", "-w", "2", "-m", "8", &address],
    )?;
    Ok(output
        .stdout
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(1))
        .map(str::to_owned)
        .collect())
}

/// Resolves the server's name over UDP.
pub fn resolve(home: &Home) -> Result<String> {
    resolve_at(home, SERVER)
}

/// Like [`resolve`], from a server of either family, whose address is the answer.
pub fn resolve_at(home: &Home, server: impl Into<IpAddr>) -> Result<String> {
    let server = server.into();
    let record = if server.is_ipv4() { "A" } else { "AAAA" };
    let output = dig(home, server, &[WWW_NAME, record])?;
    Ok(output.trim().to_owned())
}

/// Asks for an answer that needs IP fragments, over UDP only. Returns the length of its text.
pub fn resolve_big(home: &Home) -> Result<usize> {
    resolve_big_at(home, SERVER)
}

/// Like [`resolve_big`], from a server of either family.
pub fn resolve_big_at(home: &Home, server: impl Into<IpAddr>) -> Result<usize> {
    let output =
        dig(home, server.into(), &["+bufsize=4096", "+ignore", "+notcp", BIG_NAME, "TXT"])?;
    let length = output.chars().filter(|&c| c == 'x').count();
    ensure!(length == BIG_TEXT_LEN, "{length} of {BIG_TEXT_LEN} characters: {output}");
    Ok(length)
}

fn dig(home: &Home, server: IpAddr, question: &[&str]) -> Result<String> {
    let server = format!("@{server}");
    let mut args = vec!["+short", "+tries=3", "+time=2", &server];
    args.extend(question);
    Ok(home.run(QUESTION_DEADLINE, "dig", &args)?.stdout)
}
