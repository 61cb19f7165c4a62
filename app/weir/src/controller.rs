//! `weir controller`: the process that keeps the map of shards right, and the commands that freeze
//! it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use weir_config::{LogFormat, LogLevel};
use weir_controller::ask::HttpReports;
use weir_controller::operate::ClusterStatus;
use weir_controller::run::Runner;
use weir_controller::state::ControllerOptions;
use weir_etcd::LeaderRecord;
use weir_process::{ControllerNumbers, log_to_stderr, serve_controller};

use crate::etcd::{EtcdArgs, machine, random, unix_ms};
use crate::print_error;

/// Time between two checks whether the controller turns.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks without a turn until another controller is to lead; a controller turns several times a
/// second.
const STALL_LOOKS: u32 = 15;
/// Time for the answer to a last write, and for stepping down.
const END_MAX: Duration = Duration::from_secs(10);
/// Time to write the reason of a forced end.
const PRINT_MAX: Duration = Duration::from_millis(200);

/// Keep the map of shards right: repair, fill, drain and balance nodes.
///
/// Run it on two or three machines: one leads, the others wait. Without any, traffic goes on and
/// failovers work, but nothing is repaired or moved.
///
/// A signal ends it within ten seconds; exit code 71: by force, or since it had stood still.
///
/// Logs to stderr, one line per event, each decision among them.
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
    /// Serve metrics for Prometheus at this address: whether it leads, is frozen or halted, and
    /// drains.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
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
    /// What keeps shards from going on after etcd was restored from a backup; with --yes, let them
    /// go on.
    ///
    /// A shard goes on with the newest entry that a node still holds; by itself when every member
    /// of it answers or is fenced. Exit code 0: no shard is in doubt and nothing is frozen; 1: some
    /// are, or it is not known.
    Rebase {
        /// Although it is not certain that no node has seen a newer one. Only when every node that
        /// runs is registered.
        #[arg(long)]
        yes: bool,
    },
    /// Give up shards that are no longer in the cluster file: their flows end.
    ///
    /// Nothing is written when one of them is still in the file, or does not exist.
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
            print(
                "frozen: nothing is moved, copied or repaired; `weir controller unfreeze` ends it",
            )
        }
        Some(ControllerOrder::Unfreeze) => {
            args.etcd.operate(async |it| it.unfreeze().await)?;
            print("not frozen any more")
        }
        Some(ControllerOrder::Rebase { yes: true }) => {
            args.etcd.operate(async |it| it.rebase(unix_ms()).await)?;
            print("shards in doubt go on with what nodes hold; `weir events` shows each")
        }
        Some(ControllerOrder::Rebase { yes: false }) => show_doubts(&args.etcd),
        Some(ControllerOrder::Retire { shards }) => {
            args.etcd.operate(async |it| it.retire(shards).await)?;
            print("the controller gives these shards up; `weir events` shows when")
        }
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

fn show_doubts(etcd: &EtcdArgs) -> anyhow::Result<()> {
    let ClusterStatus { leader, freeze, report, .. } =
        etcd.operate(async |it| it.status().await)?;
    let (has_report, report) = (report.is_some(), report.unwrap_or_default());
    if report.in_doubt == 0 {
        return no_doubts(leader, has_report, freeze);
    }
    report.doubts.iter().try_for_each(|why| print(why))?;
    let more = report.in_doubt.saturating_sub(report.doubts.len());
    if more > 0 {
        print(&format!("and {more} more"))?;
    }
    anyhow::bail!("shards in doubt: {}", report.in_doubt)
}

/// Returns when `turns` has not changed over [`STALL_LOOKS`] checks that lie one `pause`
/// apart: time in which this thread stalled as well does not count.
fn wait_for_stall(turns: impl Fn() -> u64, pause: impl Fn()) {
    let (mut last, mut looks) = (turns(), 0);
    while looks < STALL_LOOKS {
        pause();
        let now = turns();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
    }
}

/// Ends the process by force. Writes the reason to stderr, and gives its reader a moment.
fn end_by_force(why: &str) {
    let text = format!("the controller is ended: {why}");
    thread::spawn(move || print_error(&text));
    sleep(PRINT_MAX);
    low_level::exit(weir_process::FORCED_END.into());
}

/// Reports that no shard is in doubt only if a controller leads and has reported, and nothing is
/// frozen.
fn no_doubts(
    leader: Option<String>,
    has_report: bool,
    freeze: Option<String>,
) -> anyhow::Result<()> {
    match freeze {
        _ if leader.is_none() => anyhow::bail!(
            "no controller leads, so it is not known whether shards are in doubt: start `weir controller`"
        ),
        _ if !has_report => anyhow::bail!("the controller has not looked at the shards yet"),
        Some(why) => anyhow::bail!(
            "no shard is reported to be in doubt, but {why}: when that is settled, `weir controller unfreeze`"
        ),
        None => print("no shard is in doubt"),
    }
}

fn lead_or_wait(args: &Args) -> anyhow::Result<()> {
    let log = log_to_stderr(LogLevel::Info, LogFormat::Text, || ()).context("the log")?;
    let ended = lead_until_stopped(args);
    tracing::info!(event = "controller-stopped", "stopped");
    log.flush();
    ended
}

fn lead_until_stopped(args: &Args) -> anyhow::Result<()> {
    let name = args.name.clone().unwrap_or_else(machine);
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(event = "controller-starting", name, version, "starting");
    let cluster = args.etcd.connect()?;
    let mut options = ControllerOptions::new(&name, random()?);
    options.moves_per_min = args.moves_per_min;
    let record = LeaderRecord { boot_id: format!("{:032x}", random()?), name };
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let runner = Runner::start(&cluster, &record, options, HttpReports);
    let turns = runner.turns();
    if let Some(address) = args.metrics {
        let (standing, turns) = (runner.standing(), turns.clone());
        let numbers = move || ControllerNumbers {
            standing: standing.borrow().clone(),
            turns_total: turns.get(),
        };
        serve_controller(address, numbers).with_context(|| format!("metrics address {address}"))?;
    }
    // A stalled reader of stdout must not keep signals away.
    thread::spawn(|| print("running"));
    thread::spawn(move || {
        wait_for_stall(|| turns.get(), || sleep(LOOK_INTERVAL));
        end_by_force("it has decided nothing for 15 s, so that another leads");
    });
    signals.forever().next();
    thread::spawn(|| {
        sleep(END_MAX);
        end_by_force("it did not end in time");
    });
    cluster.handle().block_on(runner.stop())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_controller_that_turns_is_left_alone_and_a_stalled_one_is_ended() {
        let (looks, turns) = (Cell::new(0_u32), Cell::new(0_u64));
        let pause = || {
            looks.set(looks.get() + 1);
            // The controller turns for a hundred seconds, now and then with a rest.
            if looks.get() <= 100 && looks.get().is_multiple_of(14) {
                turns.set(turns.get() + 1);
            }
        };
        wait_for_stall(|| turns.get(), pause);
        assert_eq!(looks.get(), 98 + STALL_LOOKS);
    }

    #[test]
    fn no_doubt_is_reported_only_if_a_controller_leads_and_nothing_is_frozen() {
        let reason_of = |leader: Option<&str>, has_report: bool, freeze: Option<&str>| {
            no_doubts(leader.map(str::to_owned), has_report, freeze.map(str::to_owned))
                .map_err(|error| error.to_string())
        };
        assert_eq!(reason_of(Some("c1"), true, None), Ok(()));
        assert!(reason_of(None, true, None).unwrap_err().contains("no controller leads"));
        assert!(reason_of(Some("c1"), false, None).unwrap_err().contains("has not looked"));
        let frozen =
            reason_of(Some("c1"), true, Some("frozen by c1: etcd was restored")).unwrap_err();
        assert!(frozen.contains("frozen by c1: etcd was restored"), "{frozen}");
    }
}
