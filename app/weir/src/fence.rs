//! `weir fence`: say that a node has certainly ended.

use std::io::{self, Write};

use weir_etcd::NodeId;

use crate::etcd::{EtcdArgs, unix_ms};

/// Say that a lost node has certainly ended: its share of the ports goes to others at once.
///
/// Only after its power is off or its process has ended. A node that still runs would use the same
/// public ports as its heirs. Without a fence nothing is lost: its ports wait until it is back.
///
///   weir fence edge1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Name of the node.
    node: NodeId,
    /// Although other nodes hear it, or no controller has looked: its power is off.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let node = &args.node;
    let ended = args.etcd.operate(async |it| it.fence(node, args.force, unix_ms()).await)?;
    let text = match ended {
        0 => format!("no shard names {node}: there is nothing to fence"),
        _ => format!("{node} is fenced: its ports go to others; `weir events` shows each shard"),
    };
    Ok(writeln!(io::stdout(), "{text}")?)
}
