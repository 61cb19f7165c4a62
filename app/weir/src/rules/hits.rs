//! `weir rules hits`: what each rule of a running node has decided.

use std::cmp::Reverse;
use std::io::Write;
use std::process::ExitCode;

use weir_admin::api::RuleCount;

use super::stdout;
use crate::node_socket::NodeSocket;
use crate::table::{Align, Table};

/// Count what each rule of a running node has decided, in the order of the rules: flows that began
/// under it, and packets that it refused or let pass without a session.
///
/// The counts begin at 0 with each change of settings: `weir reload`, `weir apply`.
///
///   weir rules hits
///   weir rules hits --top 10
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Only so many rules, those with the most hits first.
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut counts: Vec<RuleCount> = args.node.client()?.get("/rules")?;
    if let Some(top) = args.top {
        counts.sort_by_key(|count| Reverse(count.hits_total));
        counts.truncate(top);
    }
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&counts)?)?;
    } else if counts.is_empty() {
        writeln!(out, "the node has no rules")?;
    } else {
        let columns = [("RULE", Align::Left), ("ACTION", Align::Left), ("HITS", Align::Right)];
        let mut table = Table::new(&columns);
        for RuleCount { rule, action, hits_total } in counts {
            table.row(vec![rule, action, hits_total.to_string()]);
        }
        table.print(&mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
