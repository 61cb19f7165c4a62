//! `weir subscriber`: shows what one home holds, and lists homes.

mod check;

use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};

use clap::{Subcommand, ValueEnum};
use weir_admin::HomeName;
use weir_admin::api::{ClaimedPrefix, Flushed, SubscriberStatus};
use weir_admin::client::{Client, ClientError, query_value};

use crate::json_lines::read_lines;
use crate::node_socket::NodeSocket;
use crate::role;
use crate::table::{Align, Table};

/// Show or flush what one home holds: public address, port blocks, mappings. List homes.
///
/// A home is named by the outer source address of its tunnel, by its own address with plain access,
/// or by any of its IPv6 addresses or prefixes.
///
/// On a node of a cluster it says whether the node is primary of the home's shard or has a copy.
///
///   weir subscriber show 10.200.0.1
///   weir subscriber show 2001:db8:1000:100::/56
///   weir subscriber check 10.200.0.1      (exit code 1: it is at one of its limits)
///   weir subscriber top --by flows
///   weir subscriber top --by refused
///   weir subscriber list --shard 7
///   weir subscriber flush 10.200.0.1      (root; its connections break)
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    #[command(subcommand)]
    action: SubscriberAction,
}

#[derive(Debug, Subcommand)]
enum SubscriberAction {
    /// What the home holds.
    Show {
        #[arg(value_name = "HOME")]
        home: HomeName,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compare what the home holds with its limits, over a second, and count what its worker
    /// refuses meanwhile.
    Check {
        #[arg(value_name = "HOME")]
        home: HomeName,
    },
    /// The homes that hold state on the node.
    List {
        /// Only of this shard.
        #[arg(long, value_name = "ID")]
        shard: Option<u32>,
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// The homes that hold most.
    Top {
        /// Largest first by this.
        #[arg(long, value_enum, default_value_t = By::Ports)]
        by: By,
        /// How many.
        #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
        count: usize,
        /// Only of this shard.
        #[arg(long, value_name = "ID")]
        shard: Option<u32>,
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// End all its mappings and IPv6 flows; its ports go through the quarantine. Needs root.
    Flush {
        #[arg(value_name = "HOME")]
        home: HomeName,
    },
}

/// Position of the column that is there only with IPv6 flows.
const IPV6_COLUMN: usize = 7;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Public ports, those in quarantine included.
    Ports,
    /// Mappings, further sessions and IPv6 flows.
    Flows,
    /// Mappings, and ports in quarantine.
    Mappings,
    /// Packets that would have begun flows, refused because a limit was reached.
    Refused,
}

impl By {
    fn of(self, home: &SubscriberStatus) -> u32 {
        match self {
            Self::Ports => home.ports_used,
            Self::Flows => home.flows,
            Self::Mappings => home.mappings,
            Self::Refused => home.refused_total,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let client = args.node.client()?;
    let mut out = io::stdout().lock();
    match args.action {
        SubscriberAction::Show { home, json } => {
            let found: Vec<SubscriberStatus> = client.get(&path_of(home))?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
                return Ok(());
            }
            for subscriber in &found {
                print(&mut out, subscriber)?;
            }
        }
        SubscriberAction::Check { home } => check::run(&client, home, &mut out)?,
        SubscriberAction::List { shard, json } => {
            list(&mut BufWriter::new(out), &homes(&client, shard)?, json)?;
        }
        SubscriberAction::Top { by, count, shard, json } => {
            let mut homes = homes(&client, shard)?;
            homes.sort_by_key(|home| Reverse(by.of(home)));
            homes.truncate(count);
            list(&mut out, &homes, json)?;
        }
        SubscriberAction::Flush { home } => {
            let flushed: Flushed = client.post(&format!("{}/flush", path_of(home)))?;
            writeln!(out, "{} mappings and IPv6 flows ended", flushed.mappings)?;
        }
    }
    Ok(())
}

/// Returns the path of a home in the admin API.
fn path_of(home: HomeName) -> String {
    format!("/subscriber/{}", query_value(&home.to_string()))
}

/// Returns all homes of the node, or of a shard, by shard and address.
fn homes(client: &Client, shard: Option<u32>) -> Result<Vec<SubscriberStatus>, ClientError> {
    let path = match shard {
        Some(shard) => format!("/subscribers?shard={shard}"),
        None => "/subscribers".to_owned(),
    };
    let mut homes: Vec<SubscriberStatus> = Vec::new();
    read_lines(client, &path, |home, _| {
        homes.push(home);
        Ok(())
    })?;
    homes.sort_by_key(|home| (home.shard, home.subscriber, home.gre_key));
    Ok(homes)
}

fn list(out: &mut impl Write, homes: &[SubscriberStatus], json: bool) -> io::Result<()> {
    if json {
        for home in homes {
            writeln!(out, "{}", serde_json::to_string(home)?)?;
        }
        return out.flush();
    }
    if homes.is_empty() {
        return writeln!(out, "no home holds anything");
    }
    let mut columns = vec![
        ("subscriber", Align::Left),
        ("shard", Align::Right),
        ("worker", Align::Right),
        ("public address", Align::Left),
        ("ports used", Align::Right),
        ("mappings", Align::Right),
        ("flows", Align::Right),
        ("refused", Align::Right),
    ];
    let has_ipv6 = homes.iter().any(|home| home.flows6 > 0);
    if has_ipv6 {
        columns.insert(IPV6_COLUMN, ("IPv6 flows", Align::Right));
    }
    let has_roles = homes.iter().any(|home| home.role.is_some());
    if has_roles {
        columns.push(("here", Align::Left));
    }
    let mut table = Table::new(&columns);
    for home in homes {
        let key = home.gre_key.map(|key| format!(" key {key}")).unwrap_or_default();
        let mut row = vec![
            format!("{}{key}", home.subscriber),
            home.shard.to_string(),
            home.worker.to_string(),
            home.public_address.map_or_else(|| "-".into(), |address| address.to_string()),
            home.ports_used.to_string(),
            home.mappings.to_string(),
            home.flows.to_string(),
            home.refused_total.to_string(),
        ];
        if has_ipv6 {
            row.insert(IPV6_COLUMN, home.flows6.to_string());
        }
        if has_roles {
            row.push(role::words(home.role.as_deref()));
        }
        table.row(row);
    }
    table.print(out)?;
    out.flush()
}

fn print(out: &mut impl Write, subscriber: &SubscriberStatus) -> io::Result<()> {
    let key = subscriber.gre_key.map(|key| format!(" GRE key {key}")).unwrap_or_default();
    let public = subscriber
        .public_address
        .map_or_else(|| "none (no translation)".into(), |address| address.to_string());
    writeln!(out, "subscriber {}{key}", subscriber.subscriber)?;
    let role = role::suffix(subscriber.role.as_deref());
    writeln!(out, "  shard           {} on worker {}{role}", subscriber.shard, subscriber.worker)?;
    writeln!(out, "  public address  {public}")?;
    for block in &subscriber.blocks {
        let (address, first, last) = (block.public_address, block.port_first, block.port_last);
        writeln!(out, "  port block      {address}:{first}-{last}")?;
    }
    for ClaimedPrefix { prefix, flows } in &subscriber.claims {
        let flows = if *flows == 0 { "rests".into() } else { format!("{flows} flows") };
        writeln!(out, "  IPv6 prefix     {prefix} ({flows})")?;
    }
    writeln!(out, "  ports used      {} (with those in quarantine)", subscriber.ports_used)?;
    writeln!(out, "  mappings        {} (with those in quarantine)", subscriber.mappings)?;
    let ipv6 = match subscriber.flows6 {
        0 => String::new(),
        flows6 => format!(" ({flows6} of them IPv6)"),
    };
    writeln!(out, "  flows           {}{ipv6}", subscriber.flows)?;
    writeln!(
        out,
        "  refused         {} (packets that would have begun flows)",
        subscriber.refused_total
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(name: &str, flows6: u32, claims: &[(&str, u32)]) -> SubscriberStatus {
        let claim = |&(prefix, flows): &(&str, u32)| serde_json::json!({ "prefix": prefix, "flows": flows });
        let claims: Vec<_> = claims.iter().map(claim).collect();
        serde_json::from_value(serde_json::json!({
            "worker": 0, "shard": 7, "subscriber": name, "public_address": null, "blocks": [],
            "ports_used": 0, "mappings": 5 - flows6, "flows": 5, "flows6": flows6, "claims": claims,
        }))
        .unwrap()
    }

    fn text(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut text = Vec::new();
        print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn home_is_shown_with_its_claims_and_flows_by_family() {
        let claims = [("2001:db8:1000:1::/64", 3), ("2001:db8:1000:2::/64", 0)];
        let text = text(|out| print(out, &home("10.200.0.1", 3, &claims)));
        let expected = "subscriber 10.200.0.1\n  shard           7 on worker 0\n\
            \x20 public address  none (no translation)\n\
            \x20 IPv6 prefix     2001:db8:1000:1::/64 (3 flows)\n\
            \x20 IPv6 prefix     2001:db8:1000:2::/64 (rests)\n\
            \x20 ports used      0 (with those in quarantine)\n\
            \x20 mappings        2 (with those in quarantine)\n\
            \x20 flows           5 (3 of them IPv6)\n\
            \x20 refused         0 (packets that would have begun flows)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn list_has_a_column_of_ipv6_only_if_there_are_such_flows() {
        let [ipv4, ipv6] = [home("10.200.0.1", 0, &[]), home("2001:db8:1000:100::/56", 5, &[])];
        let without = text(|out| list(out, std::slice::from_ref(&ipv4), false));
        assert!(!without.contains("IPv6"), "{without}");
        let with = text(|out| list(out, &[ipv4, ipv6], false));
        let expected = "\
subscriber              shard  worker  public address  ports used  mappings  flows  IPv6 flows  refused
10.200.0.1                  7       0  -                        0         5      5           0        0
2001:db8:1000:100::/56      7       0  -                        0         0      5           5        0
";
        assert_eq!(with, expected);
    }

    #[test]
    fn path_of_a_prefix_is_one_segment() {
        let path = path_of("2001:db8:1000:100::/56".parse().unwrap());
        assert_eq!(path, "/subscriber/2001%3Adb8%3A1000%3A100%3A%3A%2F56");
    }
}
