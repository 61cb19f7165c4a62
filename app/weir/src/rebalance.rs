//! `weir rebalance`: balances shards without waiting whether an imbalance lasts.

use std::io::{self, Write};

use crate::etcd::{EtcdArgs, unix_ms};

/// Balance the shards now.
///
/// Otherwise an imbalance must last a minute before anything moves. The pace is the same, and
/// shards move only while all have their copies. A node that failed several times within an hour,
/// and would get no shards for up to 15 minutes, gets its share now.
///
///   weir rebalance
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.etcd.operate(async |it| it.rebalance(unix_ms()).await)?;
    Ok(writeln!(io::stdout(), "balancing; `weir events` shows what moves")?)
}
