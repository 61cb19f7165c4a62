//! `weir shards`: who is served from which addresses, and how full it is.

use std::io::{self, Write};

use weir_node::api::ShardStatus;

use crate::node_socket::NodeSocket;
use crate::table::{Align, Table};

/// List the shards: tunnel endpoint, public prefixes, homes, ports.
///
///   weir shards
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let shards: Vec<ShardStatus> = args.node.client()?.get("/shards")?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&shards)?)?;
        return Ok(());
    }
    let mut table = Table::new(&[
        ("shard", Align::Right),
        ("worker", Align::Right),
        ("endpoint", Align::Left),
        ("homes", Align::Right),
        ("of", Align::Right),
        ("ports used", Align::Right),
        ("blocks free", Align::Right),
        ("of", Align::Right),
        ("public", Align::Left),
    ]);
    for shard in &shards {
        table.row(vec![
            shard.shard.to_string(),
            shard.worker.to_string(),
            shard.endpoint.map_or_else(|| "-".into(), |endpoint| endpoint.to_string()),
            shard.subscribers.to_string(),
            shard.subscribers_max.to_string(),
            shard.ports_used.to_string(),
            shard.blocks_free.to_string(),
            shard.blocks_total.to_string(),
            shard.public.join(" "),
        ]);
    }
    Ok(table.print(&mut out)?)
}
