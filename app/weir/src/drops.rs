//! `weir drops`: why packets were not forwarded.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use weir_admin::api::{DropCount, Status};
use weir_admin::client::Client;

use crate::node_socket::NodeSocket;
use crate::table::{Align, Table};

/// Count dropped packets by reason, since the node started.
///
/// A packet is counted where it ended: on a node of a cluster also packets of shards of which it
/// has copies, which came to it by a switch or from another node.
///
///   weir drops
///   weir drops --watch          (each second what came on top, until Ctrl-C)
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Repeat every second; show what came on top since the last time.
    #[arg(long)]
    watch: bool,
    /// Reasons that never occurred, too.
    #[arg(long)]
    all: bool,
    /// As JSON; one array per second with --watch.
    #[arg(long)]
    json: bool,
}

/// Position of the column that only --watch has.
const NEW: usize = 2;

/// Packets by worker and reason.
type Totals = BTreeMap<(usize, String), u64>;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let client = args.node.client()?;
    let mut last = Totals::new();
    loop {
        let counts: Vec<DropCount> = client.get("/drops")?;
        let totals =
            counts.iter().map(|c| ((c.worker, c.reason.clone()), c.packets_total)).collect();
        let mut out = io::stdout().lock();
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&counts)?)?;
        } else {
            print(&mut out, &counts, &last, args)?;
        }
        out.flush()?;
        if !args.watch {
            return if args.json { Ok(()) } else { print_roles(&client, &mut out) };
        }
        last = totals;
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Prints, on a node of a cluster, of how many shards it is primary and of how many it has copies.
fn print_roles(client: &Client, out: &mut impl Write) -> anyhow::Result<()> {
    let status: Status = client.get("/status")?;
    if let Some(membership) = &status.membership {
        let (mut serves, mut copies) = (0, 0);
        for (role, count) in &membership.shards {
            let is_serving = ["primary", "acting"].contains(&role.as_str());
            *(if is_serving { &mut serves } else { &mut copies }) += count;
        }
        writeln!(out, "here: primary of {serves} shards, copies of {copies}")?;
    }
    Ok(())
}

fn print(out: &mut impl Write, counts: &[DropCount], last: &Totals, args: &Args) -> io::Result<()> {
    let mut columns = vec![
        ("worker", Align::Right),
        ("packets", Align::Right),
        ("new", Align::Right),
        ("reason", Align::Left),
        ("meaning", Align::Left),
    ];
    if !args.watch {
        columns.remove(NEW);
    }
    let mut table = Table::new(&columns);
    let mut is_empty = true;
    for count in counts.iter().filter(|count| args.all || count.packets_total > 0) {
        let before = last.get(&(count.worker, count.reason.clone()));
        let new = count.packets_total - before.copied().unwrap_or(0).min(count.packets_total);
        is_empty = false;
        let mut row = vec![
            count.worker.to_string(),
            count.packets_total.to_string(),
            if before.is_some() { format!("+{new}") } else { "-".into() },
            count.reason.clone(),
            count.help.clone(),
        ];
        if !args.watch {
            row.remove(NEW);
        }
        table.row(row);
    }
    if is_empty {
        return writeln!(out, "nothing dropped");
    }
    table.print(out)?;
    if args.watch { writeln!(out) } else { Ok(()) }
}
