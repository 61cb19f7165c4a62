//! `weir sessions`: the flow table, or a part of it.

use std::io::{self, BufWriter, Write};

use anyhow::Context;
use weir_admin::HomeName;
use weir_admin::api::{SESSION_STATES, Session};
use weir_admin::client::query_value;

use crate::endpoints;
use crate::json_lines::read_lines;
use crate::node_socket::NodeSocket;
use crate::role;

/// [`Session::family`] of an IPv6 flow.
const IPV6: u8 = 6;

/// List sessions as they stand now. The workers are asked page by page and never stall.
///
/// An endpoint is an address, a prefix, or an address with a port (for ICMP: the identifier), of
/// IPv4 or IPv6; IPv6 flows have no public endpoint. On a node of a cluster the last column says
/// whether the node is primary of the session's shard or has a copy, which knows of a session's
/// last packets what its primary reported.
///
///   weir sessions --subscriber 10.200.0.1
///   weir sessions --public 203.0.113.5:40000
///   weir sessions --remote 198.51.100.0/24 --protocol tcp --state syn-sent
///   weir sessions --inside 192.168.1.20 --older 3600
///   weir sessions --family 6 --inside 2001:db8:1000::/48
///   weir sessions --inside [2001:db8:1000:1::7]:5000 --remote [2001:db8:9::1]:443
///   weir sessions --json --limit 100000 | jq -r .remote | sort | uniq -c
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Only of IPv4 or of IPv6.
    #[arg(long, value_name = "4|6", value_parser = ["4", "6"])]
    family: Option<String>,
    /// Only of this home: outer source of its tunnel, its address with plain access, or any of its
    /// IPv6 addresses or prefixes.
    #[arg(long, value_name = "A[/LEN]")]
    subscriber: Option<HomeName>,
    /// Only with this address of the home's own network.
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = endpoints::any)]
    inside: Option<String>,
    /// Only with this public address. One with its port is looked up, and not searched for.
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = endpoints::public)]
    public: Option<String>,
    /// Only with this remote address (for ICMP: port 0). An IPv6 one with its port, and such an
    /// --inside, are looked up, and not searched for.
    #[arg(long, value_name = "A[/LEN]|A:P", value_parser = endpoints::any)]
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
        ("family", args.family.clone()),
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
    let ranges = [&args.inside, &args.remote].into_iter().flatten();
    let is_ipv6_only = args.family.as_deref() == Some("6")
        || ranges.into_iter().any(|range| endpoints::is_ipv6(range));
    let mut printer = Printer::new(BufWriter::new(io::stdout().lock()), args.json, is_ipv6_only);
    read_lines(&args.node.client()?, &path, |session, line| printer.take(session, line))?;
    printer.end(args.limit).context("writing the list")
}

/// Prints lines as they come: columns of fixed width, so that nothing waits for the end. As the
/// columns of IPv6 are other ones, its flows wait for the end of IPv4, unless there is only IPv6.
struct Printer<W: Write> {
    out: W,
    json: bool,
    count: u64,
    is_ipv6_only: bool,
    /// IPv6 flows that wait.
    ipv6: Vec<Session>,
    /// The family of the last line.
    family: Option<u8>,
}

impl<W: Write> Printer<W> {
    fn new(out: W, json: bool, is_ipv6_only: bool) -> Self {
        Self { out, json, count: 0, is_ipv6_only, ipv6: Vec::new(), family: None }
    }

    fn take(&mut self, session: Session, line: &[u8]) -> io::Result<()> {
        self.count += 1;
        if self.json {
            self.out.write_all(line)?;
            return self.out.write_all(b"\n");
        }
        if session.family == IPV6 && !self.is_ipv6_only {
            self.ipv6.push(session);
            return Ok(());
        }
        self.print(&session)
    }

    fn print(&mut self, session: &Session) -> io::Result<()> {
        if self.family != Some(session.family) {
            if self.family.is_some() {
                writeln!(self.out)?;
            }
            self.family = Some(session.family);
            self.headings(session)?;
        }
        let subscriber = match session.gre_key {
            Some(key) => format!("{} key {key}", session.subscriber),
            None => session.subscriber.to_string(),
        };
        let public = session.public.map(|public| public.to_string()).unwrap_or_default();
        let columns = [subscriber, session.inside.to_string(), public, session.remote.to_string()];
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

    fn headings(&mut self, session: &Session) -> io::Result<()> {
        let columns = ["subscriber", "inside", "public", "remote"];
        let role = if session.role.is_some() { "here" } else { "" };
        self.row("proto", columns, "state", ["age s", "idle/timeout s", "shard", role])
    }

    fn row(
        &mut self,
        protocol: &str,
        [subscriber, inside, public, remote]: [&str; 4],
        state: &str,
        [age, idle, shard, role]: [&str; 4],
    ) -> io::Result<()> {
        let ends = match self.family {
            Some(IPV6) => format!("{subscriber:<22}  {inside:<41}  {remote:<41}"),
            _ => format!("{subscriber:<15}  {inside:<21}  {public:<21}  {remote:<21}"),
        };
        let line =
            format!("{protocol:<5}  {ends}  {state:<12}  {age:>7}  {idle:>14}  {shard:>5}  {role}");
        writeln!(self.out, "{}", line.trim_end())
    }

    fn end(mut self, limit: u64) -> io::Result<()> {
        for session in std::mem::take(&mut self.ipv6) {
            self.print(&session)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session(line: &str) -> Session {
        serde_json::from_str(line).unwrap()
    }

    /// A line of a node that knows no IPv6.
    const IPV4: &str = r#"{"worker":0,"shard":7,"subscriber":"10.200.0.1","protocol":"udp",
        "inside":"192.168.1.2:5000","public":"203.0.113.1:1024","remote":"1.1.1.1:53","state":"stream",
        "age_sec":2,"idle_sec":1,"timeout_sec":300}"#;
    const FLOW6: &str = r#"{"worker":0,"shard":7,"family":6,"subscriber":"2001:db8:1000:100::/56",
        "protocol":"tcp","inside":"[2001:db8:1000:101::7]:5000","remote":"[2001:db8:9::1]:443",
        "state":"established","age_sec":60,"idle_sec":1,"timeout_sec":7440}"#;

    fn printed(lines: &[&str], is_ipv6_only: bool) -> String {
        let mut text = Vec::new();
        let mut printer = Printer::new(&mut text, false, is_ipv6_only);
        for line in lines {
            printer.take(session(line), line.as_bytes()).unwrap();
        }
        printer.end(1000).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn families_have_tables_of_their_own_whatever_order_they_come_in() {
        let expected = "\
proto  subscriber       inside                 public                 remote                 state           age s  idle/timeout s  shard
udp    10.200.0.1       192.168.1.2:5000       203.0.113.1:1024       1.1.1.1:53             stream              2           1/300      7
udp    10.200.0.1       192.168.1.2:5000       203.0.113.1:1024       1.1.1.1:53             stream              2           1/300      7

proto  subscriber              inside                                     remote                                     state           age s  idle/timeout s  shard
tcp    2001:db8:1000:100::/56  [2001:db8:1000:101::7]:5000                [2001:db8:9::1]:443                        established        60          1/7440      7
";
        assert_eq!(printed(&[IPV4, FLOW6, IPV4], false), expected);
        let (_, ipv6) = expected.split_once("\n\n").unwrap();
        assert_eq!(printed(&[FLOW6], true), ipv6);
    }
}
