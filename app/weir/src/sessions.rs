//! `weir sessions`: the flow table, or a part of it.

use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Context;
use ipnet::Ipv4Net;
use weir_admin::api::{SESSION_STATES, Session};
use weir_admin::client::query_value;

use crate::json_lines::read_lines;
use crate::node_socket::NodeSocket;
use crate::role;

/// List sessions as they stand now. The workers are asked page by page and never stall.
///
/// An endpoint is an address, a prefix, or an address with a port (for ICMP: the identifier). On a
/// node of a cluster the last column says whether the node is primary of the session's shard or
/// has a copy, which knows of a session's last packets what its primary reported.
///
///   weir sessions --subscriber 10.200.0.1
///   weir sessions --public 203.0.113.5:40000
///   weir sessions --remote 198.51.100.0/24 --protocol tcp --state syn-sent
///   weir sessions --inside 192.168.1.20 --older 3600
///   weir sessions --json --limit 100000 | jq -r .remote | sort | uniq -c
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Only of this home: outer source of its tunnel, or its address with plain access.
    #[arg(long, value_name = "A")]
    subscriber: Option<Ipv4Addr>,
    /// Only with this address of the home's own network.
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = endpoints)]
    inside: Option<String>,
    /// Only with this public address. One with its port is looked up, and not searched for.
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = endpoints)]
    public: Option<String>,
    /// Only with this remote address (for ICMP: port 0).
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = endpoints)]
    remote: Option<String>,
    /// Only of this protocol.
    #[arg(long, value_name = "NAME", value_parser = ["tcp", "udp", "icmp"])]
    protocol: Option<String>,
    /// Only in this state.
    #[arg(long, value_name = "NAME", value_parser = SESSION_STATES)]
    state: Option<String>,
    /// Only of mappings that are as old as this, or older.
    #[arg(long, value_name = "SEC")]
    older: Option<u32>,
    /// Only of mappings that are as old as this, or younger.
    #[arg(long, value_name = "SEC")]
    younger: Option<u32>,
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
        ("inside", args.inside.clone()),
        ("public", args.public.clone()),
        ("remote", args.remote.clone()),
        ("protocol", args.protocol.clone()),
        ("state", args.state.clone()),
        ("older", args.older.map(|seconds| seconds.to_string())),
        ("younger", args.younger.map(|seconds| seconds.to_string())),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", query_value(&value)));
        }
    }
    let mut printer =
        Printer { out: BufWriter::new(io::stdout().lock()), json: args.json, count: 0 };
    read_lines(&args.node.client()?, &path, |session, line| printer.print(&session, line))?;
    printer.end(args.limit).context("writing the list")
}

/// # Errors
/// When the text has another form; the error shows how to write it.
pub(crate) fn endpoints(text: &str) -> Result<String, String> {
    let is_known = text.parse::<SocketAddrV4>().is_ok()
        || text.parse::<Ipv4Addr>().is_ok()
        || text.parse::<Ipv4Net>().is_ok();
    let error = "write an address, a prefix or address:port, for example 203.0.113.5, \
                 203.0.113.0/28 or 203.0.113.5:40000";
    if is_known { Ok(text.to_owned()) } else { Err(error.into()) }
}

/// Prints lines as they come: columns of fixed width, so that nothing waits for the end.
struct Printer<W: Write> {
    out: W,
    json: bool,
    count: u64,
}

impl<W: Write> Printer<W> {
    fn print(&mut self, session: &Session, line: &[u8]) -> io::Result<()> {
        if self.json {
            self.out.write_all(line)?;
            self.out.write_all(b"\n")?;
        } else {
            if self.count == 0 {
                let headings = ["subscriber", "inside", "public", "remote"];
                let role = if session.role.is_some() { "here" } else { "" };
                self.row("proto", headings, "state", ["age s", "idle/timeout s", "shard", role])?;
            }
            self.session(session)?;
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
        let last = [
            session.age_sec.to_string(),
            format!("{}/{}", session.idle_sec, session.timeout_sec),
            session.shard.to_string(),
            [role::words(session.role.as_deref()), asked(session)].join(" ").trim().to_owned(),
        ];
        let columns = columns.each_ref().map(String::as_str);
        let last = last.each_ref().map(String::as_str);
        self.row(&session.protocol, columns, &session.state, last)
    }

    fn row(
        &mut self,
        protocol: &str,
        [subscriber, inside, public, remote]: [&str; 4],
        state: &str,
        [age, idle, shard, role]: [&str; 4],
    ) -> io::Result<()> {
        let line = format!(
            "{protocol:<5}  {subscriber:<15}  {inside:<21}  {public:<21}  {remote:<21}  {state:<12}  {age:>7}  {idle:>14}  {shard:>5}  {role}"
        );
        writeln!(self.out, "{}", line.trim_end())
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
/// Returns the destination that the home asks, if that is not the remote.
fn asked(session: &Session) -> String {
    session.asked.map(|asked| format!("asked {asked}")).unwrap_or_default()
}
