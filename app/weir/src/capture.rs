//! `weir capture`: packets of any DPDK device, as pcapng.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use weir_admin::CaptureTally;
use weir_admin::client::query_value;

use crate::node_socket::NodeSocket;

/// Capture packets into a pcapng file until Ctrl-C or -c packets.
///
/// Sees what the workers receive and send, on any kind of device, with the direction of each
/// packet. A worker never waits for a capture: what it has no room for is counted and noted in the
/// file. One capture at a time for each worker.
///
///   weir capture --side internet --filter 'udp port 53' -c 100 -w dns.pcapng
///   weir capture --side access --inner -w - | tcpdump -nr -
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Only this worker (counted from 0, as in `weir status`).
    #[arg(long, value_name = "N")]
    worker: Option<usize>,
    /// Only this side.
    #[arg(long)]
    side: Option<CaptureSide>,
    /// The homes' packets alone: without Ethernet, outer IPv4 and GRE. The filter sees them so,
    /// too.
    #[arg(long)]
    inner: bool,
    /// A filter in tcpdump's language (pcap-filter(7)).
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Stop after so many packets.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Where to write; `-` is stdout.
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CaptureSide {
    Access,
    Internet,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let client = args.node.client()?;
    let mut out: Option<Box<dyn Write>> = None;
    let mut tally = CaptureTally::default();
    // The node is silent as long as no packet comes, so there is no limit.
    client.stream(&path(args), None, |bytes| {
        tally.add(bytes);
        // The file is opened with the first bytes: a refused capture leaves no empty file behind.
        let out = match &mut out {
            Some(out) => out,
            None => out.insert(open(&args.write)?),
        };
        out.write_all(bytes)?;
        out.flush()?;
        Ok(ControlFlow::Continue(()))
    })?;
    let file = args.write.display();
    eprintln!("{file}: {} packets, {} lost", tally.packets(), tally.lost());
    Ok(())
}

fn open(path: &Path) -> io::Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    Ok(Box::new(file.map_err(named)?))
}

fn path(args: &Args) -> String {
    let mut path = format!("/capture?inner={}", args.inner);
    if let Some(worker) = args.worker {
        path.push_str(&format!("&worker={worker}"));
    }
    if let Some(side) = args.side {
        path.push_str(match side {
            CaptureSide::Access => "&side=access",
            CaptureSide::Internet => "&side=internet",
        });
    }
    if let Some(filter) = &args.filter {
        path.push_str(&format!("&filter={}", query_value(filter)));
    }
    if let Some(count) = args.count {
        path.push_str(&format!("&count={count}"));
    }
    path
}
