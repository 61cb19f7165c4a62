//! `weir controller`: the process that keeps the map of shards right, and its brake.

use std::io::{self, Write};

use clap::Subcommand;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_cluster::LeaderRecord;
use weir_controller::ask::HttpReports;
use weir_controller::run::Runner;
use weir_controller::state::Options;

use crate::etcd::{EtcdArgs, machine, random, unix_ms};

/// Keep the map of shards right: repair, fill, drain and balance nodes.
///
/// Run it on two or three machines: one leads, the others wait. Without any, traffic goes on and
/// failovers work, but nothing is repaired or moved.
///
///   weir controller --cluster north --etcd http://10.0.0.1:2379,http://10.0.0.2:2379
///   weir controller freeze --why "changing the access switch"
///   weir controller unfreeze
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(subcommand)]
    order: Option<ControllerOrder>,
    /// Name of this controller in events; without it, the machine's.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Moves that begin in any minute at most; failures are repaired whatever it says.
    #[arg(long, value_name = "N", default_value_t = 30)]
    moves_per_min: usize,
}

#[derive(Debug, Subcommand)]
enum ControllerOrder {
    /// Move, copy and retire nothing until `weir controller unfreeze`.
    Freeze {
        /// What the next person should know.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Go on.
    Unfreeze,
    /// What keeps shards from going on after etcd was restored from a backup; with --yes, let them go on.
    ///
    /// A shard goes on with the newest entry that a node still holds; by itself when every member of it answers or is
    /// fenced. Exit code 0: no shard is in doubt, or they go on; 1: some do not.
    Rebase {
        /// Although it is not certain that no node has seen a newer one. Only when every node that runs is registered.
        #[arg(long)]
        yes: bool,
    },
    /// Give up shards that are no longer in the cluster file: their flows end.
    Retire {
        #[arg(required = true, value_name = "SHARD")]
        shards: Vec<u32>,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.order {
        None => lead_or_wait(args),
        Some(ControllerOrder::Freeze { why }) => {
            args.etcd.operate(async |it| it.freeze(why, unix_ms()).await)?;
            say("frozen: nothing is moved, copied or repaired; `weir controller unfreeze` ends it")
        }
        Some(ControllerOrder::Unfreeze) => {
            args.etcd.operate(async |it| it.unfreeze().await)?;
            say("not frozen any more")
        }
        Some(ControllerOrder::Rebase { yes: true }) => {
            args.etcd.operate(async |it| it.rebase(unix_ms()).await)?;
            say("shards in doubt go on with what nodes hold; `weir events` shows each")
        }
        Some(ControllerOrder::Rebase { yes: false }) => show_doubts(&args.etcd),
        Some(ControllerOrder::Retire { shards }) => {
            args.etcd.operate(async |it| it.retire(shards).await)?;
            say("the controller gives these shards up; `weir events` shows when")
        }
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

fn show_doubts(etcd: &EtcdArgs) -> anyhow::Result<()> {
    let report = etcd.operate(async |it| it.status().await)?.report.unwrap_or_default();
    if report.in_doubt == 0 {
        return say("no shard is in doubt");
    }
    report.doubts.iter().try_for_each(|why| say(why))?;
    let more = report.in_doubt.saturating_sub(report.doubts.len());
    if more > 0 {
        say(&format!("and {more} more"))?;
    }
    anyhow::bail!("shards in doubt: {}", report.in_doubt)
}

fn lead_or_wait(args: &Args) -> anyhow::Result<()> {
    let cluster = args.etcd.connect()?;
    let name = args.name.clone().unwrap_or_else(machine);
    let mut options = Options::new(&name, random()?);
    options.moves_per_min = args.moves_per_min;
    let record = LeaderRecord { boot_id: format!("{:032x}", random()?), name };
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let runner = Runner::start(&cluster, &record, options, HttpReports);
    say("running")?;
    signals.forever().next();
    cluster.handle().block_on(runner.stop())?;
    Ok(())
}
