//! `weir where`: who had a public address and port at a time, from the block log.

use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, bail};
use jiff::Timestamp;
use weir_node::api::Status;
use weir_records::{Answer, End, Holder, rotated_files, where_was_in_files};

use crate::endpoint::endpoint;
use crate::node_socket::NodeSocket;

/// Tell which home had a public address and port at a time.
///
/// Reads the block log with its rotated files; without --log, the log of the node that runs here.
///
///   weir where 203.0.113.5:40000 --at 2026-03-01T12:00:00Z
///   weir where 203.0.113.5:40000 --at 2026-03-01T13:00:00+01:00 --log /var/log/weir/blocks.jsonl
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// The public address and port (for ICMP: the identifier).
    #[arg(value_name = "A:P", value_parser = endpoint)]
    public: SocketAddrV4,
    /// When, as RFC 3339 with a time zone; without it, now.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Timestamp>,
    /// A block log; its rotated files beside it are read, too. May be repeated, for the logs of several nodes.
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let at = args.at.map_or_else(SystemTime::now, SystemTime::from);
    let files = files(&logs(args)?)?;
    let answer = where_was_in_files(&files, *args.public.ip(), args.public.port(), at)?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&json(&answer))?)?;
    } else {
        print(&mut out, args.public, at, &answer)?;
    }
    doubts(&answer, at);
    if answer.holders.is_empty() {
        bail!("nobody held {} at {}", args.public, time(at));
    }
    Ok(())
}

fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write it as 2026-03-01T12:00:00Z or 2026-03-01T13:00:00+01:00".into())
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

/// The logs and their rotated files, each once.
fn files(logs: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for log in logs {
        let rotated = rotated_files(log).with_context(|| log.display().to_string())?;
        for file in &rotated.compressed {
            eprintln!("weir: {} is compressed and not searched; unpack it first", file.display());
        }
        if rotated.plain.is_empty() {
            bail!("{}: no such file", log.display());
        }
        files.extend(rotated.plain);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn print(
    out: &mut impl Write,
    public: SocketAddrV4,
    at: SystemTime,
    answer: &Answer,
) -> io::Result<()> {
    for holder in &answer.holders {
        let key = holder.gre_key.map(|key| format!(" (GRE key {key})")).unwrap_or_default();
        writeln!(out, "{public} at {}: subscriber {}{key}", time(at), holder.subscriber)?;
        writeln!(out, "  shard  {} on node {}", holder.shard, holder.node)?;
        writeln!(out, "  block  ports {}-{}", holder.ports.0, holder.ports.1)?;
        let from = holder.from.map_or_else(|| "before these logs".into(), time);
        writeln!(out, "  from   {from}")?;
        writeln!(out, "  until  {}", until(holder))?;
    }
    Ok(())
}

fn until(holder: &Holder) -> String {
    let end = holder.until.map_or_else(|| "still held".into(), time);
    match holder.end {
        End::Released | End::Open => end,
        End::NodeStopped => format!("{end} (the node stopped)"),
        End::NodeRestarted => format!("{end} or before (the node started anew)"),
        End::GivenToAnother => {
            format!("{end} or before (given to another; the release is missing)")
        }
    }
}

/// What limits the answer, for whoever must vouch for it.
fn doubts(answer: &Answer, at: SystemTime) {
    if answer.records_lost > 0 {
        eprintln!("weir: {} records were lost when these logs were written", answer.records_lost);
    }
    if answer.lines_unreadable > 0 {
        eprintln!("weir: {} lines of the logs are unreadable", answer.lines_unreadable);
    }
    if at > SystemTime::now() {
        eprintln!("weir: {} is in the future", time(at));
    }
    match answer.covered {
        None => eprintln!("weir: the logs hold no record"),
        Some((first, _)) if at < first => {
            eprintln!("weir: the logs begin at {}, after the time asked for", time(first));
        }
        Some(_) => {}
    }
}

fn json(answer: &Answer) -> serde_json::Value {
    let holders: Vec<serde_json::Value> = answer
        .holders
        .iter()
        .map(|holder| {
            serde_json::json!({
                "shard": holder.shard,
                "subscriber": holder.subscriber,
                "gre_key": holder.gre_key,
                "node": holder.node,
                "port_first": holder.ports.0,
                "port_last": holder.ports.1,
                "from": holder.from.map(time),
                "until": holder.until.map(time),
                "end": match holder.end {
                    End::Released => "released",
                    End::NodeStopped => "node-stopped",
                    End::NodeRestarted => "node-restarted",
                    End::GivenToAnother => "given-to-another",
                    End::Open => "open",
                },
            })
        })
        .collect();
    serde_json::json!({
        "holders": holders,
        "records_lost": answer.records_lost,
        "lines_unreadable": answer.lines_unreadable,
    })
}

fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| format!("{time:?}"), |time| format!("{time:.3}"))
}
