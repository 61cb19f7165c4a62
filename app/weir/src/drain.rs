//! `weir drain`, `weir undrain`: empty a node without losing a packet, and fill it again.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use anyhow::bail;
use weir_controller::operate::DrainProgress;
use weir_etcd::NodeId;

use crate::etcd::{EtcdArgs, unix_ms};

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Empty a node: its shards move to others, each when its copy is complete.
///
/// The node then stays empty, over restarts too, until `weir undrain`. Refused when shards would be
/// left with fewer copies than wanted; --force accepts that, but never gives up a last copy.
///
///   weir drain edge1 --wait
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Name of the node.
    node: NodeId,
    /// Return only when the node is empty.
    #[arg(long)]
    wait: bool,
    /// Also when shards are left with fewer copies than wanted.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Let a drained node hold shards again.
///
/// It is filled as part of the balance, a few shards a minute.
///
///   weir undrain edge1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct UndrainArgs {
    /// Name of the node.
    node: NodeId,
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(crate) fn undrain(args: &UndrainArgs) -> anyhow::Result<()> {
    args.etcd.operate(async |it| it.undrain(&args.node).await)?;
    Ok(writeln!(io::stdout(), "{} may hold shards again", args.node)?)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.etcd.operate(async |operator| -> anyhow::Result<()> {
        operator.drain(&args.node, args.force, unix_ms()).await?;
        let mut printed = String::new();
        loop {
            let progress = operator.drain_progress(&args.node).await?;
            let text = words(&args.node, &progress);
            if text != printed {
                writeln!(io::stdout(), "{text}")?;
                printed = text;
            }
            if progress.left == 0 || !args.wait {
                return Ok(());
            }
            // A blocking sleep: this command has nothing else to do meanwhile.
            sleep(LOOK_INTERVAL);
            if operator.is_undrained(&args.node).await? {
                bail!("somebody has undrained {} meanwhile", args.node);
            }
        }
    })
}

fn words(node: &NodeId, progress: &DrainProgress) -> String {
    let DrainProgress { left, primaries, waits } = progress;
    match (left, waits.as_str()) {
        (0, _) => format!("{node} is empty: it may be stopped"),
        (_, "") => format!("{node}: {left} shards left, {primaries} as primary"),
        (_, waits) => format!("{node}: {left} shards left, {primaries} as primary; waits: {waits}"),
    }
}
