//! `weir events`: what the controllers saw and decided, and why.

use std::io::{self, Write};

use jiff::Timestamp;
use weir_controller::records::EventRecord;
use weir_etcd::NodeId;

use crate::etcd::EtcdArgs;
use crate::table::{Align, Table};

/// List what the controllers saw and decided, and why; the newest last.
///
/// The last 512 are kept, whichever controller leads. A node that neither an event nor the cluster
/// knows is an error that names the known ones.
///
///   weir events --node edge1
///   weir events --shard 12 --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Only those about this node.
    #[arg(long)]
    node: Option<NodeId>,
    /// Only those about this shard.
    #[arg(long)]
    shard: Option<u32>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let events = args.etcd.operate(async |it| match &args.node {
        Some(node) => it.events_of(node).await,
        None => it.events().await,
    })?;
    let is_asked = |event: &&EventRecord| args.shard.is_none() || event.shard == args.shard;
    let events: Vec<&EventRecord> = events.iter().filter(is_asked).collect();
    let mut out = io::stdout().lock();
    if args.json {
        for event in events {
            writeln!(out, "{}", serde_json::to_string(event)?)?;
        }
        return Ok(());
    }
    let mut table = Table::new(&[
        ("time", Align::Left),
        ("shard", Align::Right),
        ("node", Align::Left),
        ("what", Align::Left),
        ("why", Align::Left),
    ]);
    for event in events {
        let seconds = i64::try_from(event.at_ms / 1_000).unwrap_or(i64::MAX);
        let time = Timestamp::from_second(seconds).map_or_else(|_| "-".into(), |it| it.to_string());
        table.row(vec![
            time,
            event.shard.map_or_else(String::new, |shard| shard.to_string()),
            event.node.clone().unwrap_or_default(),
            event.what.clone(),
            event.why.clone(),
        ]);
    }
    Ok(table.print(&mut out)?)
}
