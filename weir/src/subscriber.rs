//! `weir subscriber`: what one home holds.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use clap::Subcommand;
use weir_node::api::{Flushed, SubscriberStatus};

use crate::node_socket::NodeSocket;

/// Show or flush what one home holds: public address, port blocks, mappings.
///
/// A home is named by the outer source address of its tunnel, or by its own address with plain access.
///
///   weir subscriber show 10.200.0.1
///   weir subscriber flush 10.200.0.1      (root; its connections break)
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// What the home holds.
    Show {
        address: Ipv4Addr,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// End all its mappings; its ports go through the quarantine. Needs root.
    Flush { address: Ipv4Addr },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let client = args.node.client()?;
    let mut out = io::stdout().lock();
    match args.action {
        Action::Show { address, json } => {
            let found: Vec<SubscriberStatus> = client.get(&format!("/subscriber/{address}"))?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
                return Ok(());
            }
            for subscriber in &found {
                print(&mut out, subscriber)?;
            }
        }
        Action::Flush { address } => {
            let flushed: Flushed = client.post(&format!("/subscriber/{address}/flush"))?;
            writeln!(out, "{} mappings ended", flushed.mappings)?;
        }
    }
    Ok(())
}

fn print(out: &mut impl Write, subscriber: &SubscriberStatus) -> io::Result<()> {
    let key = subscriber.gre_key.map(|key| format!(" GRE key {key}")).unwrap_or_default();
    let public = subscriber
        .public_address
        .map_or_else(|| "none (no translation)".into(), |address| address.to_string());
    writeln!(out, "subscriber {}{key}", subscriber.subscriber)?;
    writeln!(out, "  shard           {} on worker {}", subscriber.shard, subscriber.worker)?;
    writeln!(out, "  public address  {public}")?;
    for block in &subscriber.blocks {
        let (address, first, last) = (block.public_address, block.port_first, block.port_last);
        writeln!(out, "  port block      {address}:{first}-{last}")?;
    }
    writeln!(out, "  ports used      {} (with those in quarantine)", subscriber.ports_used)?;
    writeln!(out, "  mappings        {} (with those in quarantine)", subscriber.mappings)?;
    writeln!(out, "  flows           {}", subscriber.flows)
}
