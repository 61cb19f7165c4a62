//! `weir cluster`: the cluster as its leading controller sees it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::slice;

use clap::Subcommand;
use weir_controller::operate::{ClusterStatus, MapVerdict};
use weir_controller::records::{ControllerState, LeaderReport, WorkerReport};

use crate::etcd::EtcdArgs;
use crate::table::{Align, Table};

/// Exit code if etcd does not answer, so that nothing is known.
const EXIT_UNKNOWN: u8 = 3;

/// Say how the cluster is: nodes, shards, what the controller does and waits for.
///
///   weir cluster status
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(subcommand)]
    question: ClusterQuestion,
}

#[derive(Debug, Subcommand)]
enum ClusterQuestion {
    /// One verdict, OK, DEGRADED or AT RISK, with reasons; the exit code is 0, 1 or 2, and 3 when
    /// etcd does not answer.
    Status {
        /// Everything as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let ClusterQuestion::Status { json } = &args.question;
    let status = args.etcd.operate(async |it| it.status().await);
    let printed = match &status {
        Ok(status) if *json => serde_json::to_string_pretty(status)
            .map_err(io::Error::from)
            .and_then(|text| writeln!(io::stdout(), "{text}")),
        Ok(status) => print(status),
        Err(error) => {
            eprintln!("weir: {error:#}");
            return ExitCode::from(EXIT_UNKNOWN);
        }
    };
    match (printed, status.map(|status| status.verdict)) {
        (Ok(()), Ok(MapVerdict::Ok)) => ExitCode::SUCCESS,
        (Ok(()), Ok(MapVerdict::Degraded)) => ExitCode::from(1),
        (Ok(()), Ok(MapVerdict::AtRisk)) => ExitCode::from(2),
        _ => ExitCode::from(EXIT_UNKNOWN),
    }
}

fn print(status: &ClusterStatus) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let leader = status.leader.as_deref().unwrap_or("nobody");
    let doing = status.report.as_ref().map_or("", |report| match report.state {
        ControllerState::Resting => ", at rest",
        ControllerState::Working => ", at work",
        ControllerState::Frozen => ", frozen",
        ControllerState::Halted => ", halted",
    });
    writeln!(out, "{}  {leader} leads{doing}", status.verdict.name())?;
    for reason in &status.reasons {
        writeln!(out, "  - {reason}")?;
    }
    let Some(report) = &status.report else { return Ok(()) };
    writeln!(out, "\n{}\n", shards(report))?;
    let mut table = Table::new(&[
        ("node", Align::Left),
        ("life", Align::Left),
        ("shards", Align::Right),
        ("as primary", Align::Right),
        ("load", Align::Right),
        ("", Align::Left),
    ]);
    for node in &report.nodes {
        let drained = match (node.is_drained, node.shards, node.waits.as_str()) {
            (false, ..) => node.why.clone(),
            (true, 0, _) => "drained: may be stopped".into(),
            (true, _, "") => "is being drained".into(),
            (true, _, waits) => format!("its drain waits: {waits}"),
        };
        table.row(vec![
            node.node.clone(),
            node.life.clone(),
            node.shards.to_string(),
            node.primaries.to_string(),
            load(&node.workers),
            drained,
        ]);
    }
    table.print(&mut out)?;
    let workers =
        report.nodes.iter().flat_map(|node| node.workers.iter().map(move |worker| (node, worker)));
    let mut table = Table::new(&[("worker", Align::Left), ("load", Align::Right)]);
    for (node, worker) in workers {
        let name = format!("{}/{}", node.node, worker.worker);
        table.row(vec![name, load(slice::from_ref(worker))]);
    }
    writeln!(out)?;
    table.print(&mut out)
}

fn shards(report: &LeaderReport) -> String {
    let by = if report.is_by_load { "load" } else { "number" };
    let LeaderReport { shards, whole, .. } = report;
    format!("{shards} shards, {whole} of them whole and at rest; spread by {by}")
}

/// Returns the leased ports of these workers' shards, and the most they can carry if all workers
/// say so.
fn load(workers: &[WorkerReport]) -> String {
    let load = workers.iter().fold(0_u64, |sum, worker| sum.saturating_add(worker.load));
    let maxima: Option<Vec<u64>> = workers.iter().map(|worker| worker.load_max).collect();
    match maxima.filter(|maxima| !maxima.is_empty()) {
        Some(maxima) => {
            let load_max = maxima.into_iter().fold(0_u64, u64::saturating_add);
            format!("{load} of {load_max}")
        }
        None => load.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_shown_beside_what_all_workers_can_carry() {
        let worker = |worker, load, load_max| WorkerReport { worker, load, load_max };
        assert_eq!(load(&[worker(0, 7, Some(10)), worker(1, 8, Some(20))]), "15 of 30");
        assert_eq!(load(&[worker(0, 7, Some(10)), worker(1, 8, None)]), "15");
        assert_eq!(load(&[]), "0");
        let mut report = LeaderReport { shards: 8, whole: 7, ..LeaderReport::default() };
        assert_eq!(shards(&report), "8 shards, 7 of them whole and at rest; spread by number");
        report.is_by_load = true;
        assert_eq!(shards(&report), "8 shards, 7 of them whole and at rest; spread by load");
    }
}
