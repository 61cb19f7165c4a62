//! `weir subscriber`: shows what one home holds, and lists homes.

mod check;

use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};
use std::net::Ipv4Addr;

use clap::{Subcommand, ValueEnum};
use weir_admin::api::{Flushed, SubscriberStatus};
use weir_admin::client::{Client, ClientError};

use crate::json_lines::read_lines;
use crate::node_socket::NodeSocket;
use crate::role;
use crate::table::{Align, Table};

/// Show or flush what one home holds: public address, port blocks, mappings. List homes.
///
/// A home is named by the outer source address of its tunnel, or by its own address with plain
/// access.
///
/// On a node of a cluster it says whether the node is primary of the home's shard or has a copy.
///
///   weir subscriber show 10.200.0.1
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
        address: Ipv4Addr,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compare what the home holds with its limits, over a second, and count what its worker
    /// refuses meanwhile.
    Check { address: Ipv4Addr },
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
    /// End all its mappings; its ports go through the quarantine. Needs root.
    Flush { address: Ipv4Addr },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Public ports, those in quarantine included.
    Ports,
    /// Mappings and further sessions.
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
        SubscriberAction::Show { address, json } => {
            let found: Vec<SubscriberStatus> = client.get(&format!("/subscriber/{address}"))?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
                return Ok(());
            }
            for subscriber in &found {
                print(&mut out, subscriber)?;
            }
        }
        SubscriberAction::Check { address } => check::run(&client, address, &mut out)?,
        SubscriberAction::List { shard, json } => {
            list(&mut BufWriter::new(out), &homes(&client, shard)?, json)?;
        }
        SubscriberAction::Top { by, count, shard, json } => {
            let mut homes = homes(&client, shard)?;
            homes.sort_by_key(|home| Reverse(by.of(home)));
            homes.truncate(count);
            list(&mut out, &homes, json)?;
        }
        SubscriberAction::Flush { address } => {
            let flushed: Flushed = client.post(&format!("/subscriber/{address}/flush"))?;
            writeln!(out, "{} mappings ended", flushed.mappings)?;
        }
    }
    Ok(())
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
    writeln!(out, "  ports used      {} (with those in quarantine)", subscriber.ports_used)?;
    writeln!(out, "  mappings        {} (with those in quarantine)", subscriber.mappings)?;
    writeln!(out, "  flows           {}", subscriber.flows)?;
    writeln!(
        out,
        "  refused         {} (packets that would have begun flows)",
        subscriber.refused_total
    )
}
