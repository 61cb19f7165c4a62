//! `weir cluster`: the cluster as its leading controller sees it.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;
use weir_controller::operate::{ClusterStatus, Verdict};
use weir_controller::records::ControllerState;

use crate::etcd::EtcdArgs;
use crate::table::{Align, Table};

/// When etcd does not answer, nothing is known.
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
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// One verdict, OK, DEGRADED or AT RISK, with reasons; the exit code is 0, 1 or 2, and 3 when
    /// etcd does not answer.
    Status {
        /// Everything as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let Question::Status { json } = &args.question;
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
        (Ok(()), Ok(Verdict::Ok)) => ExitCode::SUCCESS,
        (Ok(()), Ok(Verdict::Degraded)) => ExitCode::from(1),
        (Ok(()), Ok(Verdict::AtRisk)) => ExitCode::from(2),
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
    writeln!(out, "\n{} shards, {} of them whole and at rest\n", report.shards, report.whole)?;
    let mut table = Table::new(&[
        ("node", Align::Left),
        ("life", Align::Left),
        ("shards", Align::Right),
        ("as primary", Align::Right),
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
            drained,
        ]);
    }
    table.print(&mut out)
}
