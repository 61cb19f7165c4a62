//! `weir sessions`: the flow table, or a part of it.

use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::ControlFlow;

use anyhow::Context;
use weir_node::api::{Problem, Session};

use crate::endpoint::endpoint;
use crate::node_socket::NodeSocket;

/// List sessions as they stand now. The workers are asked page by page and never stall.
///
///   weir sessions --subscriber 10.200.0.1
///   weir sessions --public 203.0.113.5:40000
///   weir sessions --json --limit 100000 | jq -r .remote | sort | uniq -c
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Only of this home: outer source of its tunnel, or its address with plain access.
    #[arg(long, value_name = "A")]
    subscriber: Option<Ipv4Addr>,
    /// Only with this public address and port (for ICMP: the identifier).
    #[arg(long, value_name = "A:P", value_parser = endpoint)]
    public: Option<SocketAddrV4>,
    /// Only with this remote address and port (for ICMP: port 0).
    #[arg(long, value_name = "A:P", value_parser = endpoint)]
    remote: Option<SocketAddrV4>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut path = format!("/sessions?limit={}", args.limit);
    let filters = [
        ("subscriber", args.subscriber.map(|address| address.to_string())),
        ("public", args.public.map(|endpoint| endpoint.to_string())),
        ("remote", args.remote.map(|endpoint| endpoint.to_string())),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={value}"));
        }
    }
    let mut printer =
        Printer { out: BufWriter::new(io::stdout().lock()), json: args.json, count: 0 };
    let mut pending = Vec::new();
    args.node.client()?.stream(&path, |bytes| {
        pending.extend_from_slice(bytes);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            printer.print(&line[..end])?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    printer.end(args.limit).context("writing the list")
}

/// Prints lines as they come: columns of fixed width, so that nothing waits for the end.
struct Printer<W: Write> {
    out: W,
    json: bool,
    count: u64,
}

impl<W: Write> Printer<W> {
    fn print(&mut self, line: &[u8]) -> io::Result<()> {
        let session: Session = match serde_json::from_slice(line) {
            Ok(session) => session,
            Err(error) => {
                let problem = serde_json::from_slice::<Problem>(line);
                eprintln!("weir: {}", problem.map_or_else(|_| error.to_string(), |p| p.error));
                return Ok(());
            }
        };
        if self.json {
            self.out.write_all(line)?;
            self.out.write_all(b"\n")?;
        } else {
            if self.count == 0 {
                let headings = ["subscriber", "inside", "public", "remote"];
                self.row("proto", headings, "state", "idle/timeout s", "shard")?;
            }
            self.session(&session)?;
        }
        self.count += 1;
        Ok(())
    }

    fn session(&mut self, session: &Session) -> io::Result<()> {
        let subscriber = match session.gre_key {
            Some(key) => format!("{} key {key}", session.subscriber),
            None => session.subscriber.to_string(),
        };
        let columns = [
            subscriber,
            session.inside.to_string(),
            session.public.to_string(),
            session.remote.to_string(),
        ];
        let idle = format!("{}/{}", session.idle_sec, session.timeout_sec);
        let columns = columns.each_ref().map(String::as_str);
        self.row(&session.protocol, columns, &session.state, &idle, &session.shard.to_string())
    }

    fn row(
        &mut self,
        protocol: &str,
        [subscriber, inside, public, remote]: [&str; 4],
        state: &str,
        idle: &str,
        shard: &str,
    ) -> io::Result<()> {
        writeln!(
            self.out,
            "{protocol:<5}  {subscriber:<15}  {inside:<21}  {public:<21}  {remote:<21}  {state:<12}  {idle:>14}  {shard:>5}"
        )
    }

    fn end(mut self, limit: u64) -> io::Result<()> {
        self.out.flush()?;
        if self.count == 0 {
            eprintln!("no session matches");
        } else if self.count == limit {
            eprintln!("stopped after {limit} sessions; more with --limit");
        }
        Ok(())
    }
}
