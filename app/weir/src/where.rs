//! `weir where`: finds the home that had a public address and port, or an IPv6 address, at a time,
//! from the block logs.

mod json;
mod text;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use jiff::Timestamp;
use weir_admin::api::Status;
use weir_nat_log::{
    About, LogAnswer, LogQuestion, LogVerdict, Prefix64, rotated_files, search_files,
};

use crate::node_socket::NodeSocket;

const EXIT_NOBODY: u8 = 1;
/// Exit code of an invalid question, or of a log that cannot be read.
const EXIT_ERROR: u8 = 2;
const EXIT_CANNOT_SAY: u8 = 3;

/// Tell which home had a public address and port, or an IPv6 address, at a time.
///
/// Reads the block logs with their rotated files, plain or packed by gzip or zstd; without --log,
/// the log of the node that runs here. In a cluster, give the logs of all nodes: a home keeps its
/// ports when another node goes on. Where a log is missing, weir says so and names no home.
///
/// Without a port, lists all who had ports of the address; with --home, all ports and IPv6 prefixes
/// that the home had. An IPv6 address belongs to the home that had claimed its /64; a port does not
/// matter there.
///
///   weir where 203.0.113.5:40000 --at 2026-03-01T12:00:00Z
///   weir where 203.0.113.5:40000 --at 2026-03-01T13:00:00+01:00 --log n1.jsonl --log n2.jsonl
///   weir where 203.0.113.5 --at 2026-03-01T12:00:00Z --json
///   weir where 2001:db8:1000:1::7 --at 2026-03-01T12:00:00Z
///   weir where --home 10.200.0.1 --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z
///
/// The exit code is 0: the home is known; 1: no home held it; 3: the logs cannot say; 2: an error.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// The public address and port (for ICMP: the identifier), or the address alone; an IPv6
    /// address, or its /64.
    #[arg(value_name = "A[:P]", value_parser = public, required_unless_present = "home", conflicts_with = "home")]
    public: Option<About>,
    /// When, as RFC 3339 with a time zone; without it, at the end of the logs.
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "home")]
    at: Option<Timestamp>,
    /// The ports and prefixes of this home: its tunnel address (in plain mode its own), perhaps
    /// with its GRE key.
    #[arg(long, value_name = "HOME[,KEY]", value_parser = home, requires_all = ["from", "to"])]
    home: Option<About>,
    /// The begin of the time to list what a home had.
    #[arg(long, value_name = "TIME", value_parser = instant, requires = "home")]
    from: Option<Timestamp>,
    /// Its end.
    #[arg(long, value_name = "TIME", value_parser = instant, requires = "home")]
    to: Option<Timestamp>,
    /// How far the clocks of the nodes, and the one that the time was read from, may be apart.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    clock_error: Duration,
    /// A block log; its rotated files beside it are read, too. May be repeated, for the logs of
    /// several nodes.
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(LogVerdict::Held) => ExitCode::SUCCESS,
        Ok(LogVerdict::Nobody) => ExitCode::from(EXIT_NOBODY),
        Ok(LogVerdict::CannotSay) => ExitCode::from(EXIT_CANNOT_SAY),
        Err(error) => {
            eprintln!("weir: {error:#}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn answer(args: &Args) -> anyhow::Result<LogVerdict> {
    let question = question(args)?;
    let files = files(&logs(args)?)?;
    let answer = search_files(&files, &question)?;
    let printed = print(args.json, &question, &answer);
    // A reader that has seen enough (`weir where ... | head`) does not change the verdict.
    printed.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })?;
    notes(&question, &answer);
    Ok(answer.verdict)
}

fn print(is_json: bool, question: &LogQuestion, answer: &LogAnswer) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json::of(answer))?)
    } else {
        text::print(&mut out, question, answer)
    }
}

fn question(args: &Args) -> anyhow::Result<LogQuestion> {
    let time = match (args.at, args.from.zip(args.to)) {
        (_, Some((from, to))) if to < from => bail!("--to {to} is before --from {from}"),
        (_, Some((from, to))) => Some((from, to)),
        (at, None) => at.map(|at| (at, at)),
    };
    let about = args.public.or(args.home).context("no address and no --home given")?;
    let time = time.map(|(from, to)| (SystemTime::from(from), SystemTime::from(to)));
    Ok(LogQuestion { about, time, clock_error: args.clock_error })
}

fn public(text: &str) -> Result<About, String> {
    let port = text.parse().map(|it: SocketAddrV4| About::Port(*it.ip(), it.port()));
    let about = port.or_else(|_| text.parse().map(About::Address)).ok().or_else(|| ipv6(text));
    about.ok_or_else(|| {
        "write address:port or address, for example 203.0.113.5:40000 or 2001:db8:1000:1::7".into()
    })
}

/// Parses an IPv6 address, with a port in the form `[address]:port`, or a /64.
fn ipv6(text: &str) -> Option<About> {
    let address = text.parse::<SocketAddrV6>().map(|it| *it.ip());
    let address = address.or_else(|_| match text.strip_suffix("/64") {
        Some(first) => first.parse().map(|first| Prefix64::of(first).first()),
        None => text.parse::<Ipv6Addr>(),
    });
    address.ok().map(About::Ipv6)
}

fn home(text: &str) -> Result<About, String> {
    let (address, key) = match text.split_once(',') {
        Some((address, key)) => (address, Some(key.parse::<u32>())),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().ok();
    let home = address.zip(key.transpose().ok()).map(|(address, key)| About::Home(address, key));
    home.ok_or_else(|| {
        "write address or address,key, for example 10.200.0.1,7 or 2001:db8:e::1".into()
    })
}

fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write it as 2026-03-01T12:00:00Z or 2026-03-01T13:00:00+01:00".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "write seconds, for example 0.5".into())
}

fn logs(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    if !args.log.is_empty() {
        return Ok(args.log.clone());
    }
    let asked = args.node.client().and_then(|client| client.get::<Status>("/status"));
    let status = asked.context("no --log given, and no node to ask where its log is")?;
    match status.block_log {
        Some(path) => Ok(vec![PathBuf::from(path)]),
        None => bail!("node {} writes no block log; name a file with --log", status.node),
    }
}

/// Returns the logs and their rotated files, each once.
fn files(logs: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for log in logs {
        let rotated = rotated_files(log).with_context(|| log.display().to_string())?;
        for file in &rotated.unreadable {
            eprintln!("weir: {} is not searched; unpack it first", file.display());
        }
        if rotated.readable.is_empty() {
            bail!("{}: no such file", log.display());
        }
        files.extend(rotated.readable);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Prints notes on the logs, for the person who must vouch for the answer.
fn notes(question: &LogQuestion, answer: &LogAnswer) {
    if answer.records_lost > 0 {
        eprintln!("weir: {} records were lost when these logs were written", answer.records_lost);
    }
    if answer.lines_unreadable > 0 {
        eprintln!("weir: {} lines of the logs are unreadable", answer.lines_unreadable);
    }
    if let Some((_, until)) = question.time.filter(|(_, until)| *until > SystemTime::now()) {
        eprintln!("weir: {} is in the future", text::time(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_a_port_and_a_home_are_distinguished() {
        let address = std::net::Ipv4Addr::new(203, 0, 113, 5);
        assert_eq!(public("203.0.113.5:40000"), Ok(About::Port(address, 40000)));
        assert_eq!(public("203.0.113.5"), Ok(About::Address(address)));
        assert_eq!(home("203.0.113.5"), Ok(About::Home(address.into(), None)));
        assert_eq!(home("203.0.113.5,7"), Ok(About::Home(address.into(), Some(7))));
        let inside = About::Ipv6("2001:db8:1000:1::7".parse().expect("an address"));
        assert_eq!(public("2001:db8:1000:1::7"), Ok(inside));
        assert_eq!(public("[2001:db8:1000:1::7]:443"), Ok(inside));
        let first = About::Ipv6("2001:db8:1000:1::".parse().expect("an address"));
        assert_eq!(public("2001:db8:1000:1::/64"), Ok(first));
        for wrong in [
            "",
            "203.0.113",
            "203.0.113.5:",
            "203.0.113.5:65536",
            "[2001:db8::7]",
            "[2001:db8::7]:65536",
            "2001:db8::7%1",
            "2001:db8::/56",
            "203.0.113.5/64",
        ] {
            assert!(public(wrong).is_err(), "{wrong}");
        }
        let over_ipv6: IpAddr = "2001:db8:e::7".parse().expect("an address");
        assert_eq!(home("2001:db8:e::7,7"), Ok(About::Home(over_ipv6, Some(7))));
        for wrong in ["", "203.0.113.5,", "203.0.113.5,-1", ",7", "203.0.113.5:7", "2001:db8::7%1"]
        {
            assert!(home(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err() && seconds("x").is_err());
    }
}
