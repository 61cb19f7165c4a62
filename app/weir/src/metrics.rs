//! `weir metrics`: prints the metrics as Prometheus would read them.

use std::io::{self, Write};

use crate::node_socket::NodeSocket;

/// Print the metrics in Prometheus' text format, as the address of `[node] metrics` serves them.
///
///   weir metrics | grep weir_drops_total
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let text = args.node.client()?.get_text("/metrics")?;
    Ok(io::stdout().write_all(text.as_bytes())?)
}
