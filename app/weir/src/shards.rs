//! `weir shards`: lists shards with their addresses and how full they are; in a cluster, with their
//! workers.

mod map;

use std::io::{self, Write};

use anyhow::bail;
use weir_admin::api::ShardStatus;

use crate::etcd::EtcdArgs;
use crate::node_socket::NodeSocket;
use crate::table::{Align, Table};

/// List the shards of a node, or all shards of a cluster.
///
/// For the node on this machine: tunnel endpoint, public and IPv6 prefixes, homes, ports.
/// For a cluster, as etcd has it (with --cluster, --etcd, --config or --watch): which worker is
/// primary, which have copies, and how each shard is. --watch then says what changes, line by line.
///
///   weir shards
///   weir shards --config /etc/weir/weir.toml
///   weir shards --cluster north --watch
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// As JSON; with --watch one object a line.
    #[arg(long)]
    json: bool,
    /// Go on, and print what changes in the cluster.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let is_cluster = args.watch || args.etcd.is_given();
    match (is_cluster, args.watch) {
        (true, _) if args.node.is_given() => {
            bail!("--socket asks one node, the other arguments a cluster: leave one out")
        }
        (true, true) => map::watch(&args.etcd, args.json),
        (true, false) => map::list(&args.etcd, args.json),
        (false, _) => of_node(args),
    }
}

fn of_node(args: &Args) -> anyhow::Result<()> {
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
            [&shard.public[..], &shard.public6].concat().join(" "),
        ]);
    }
    Ok(table.print(&mut out)?)
}
