//! `weir rules`: the commands about rules.

mod import;

use std::process::ExitCode;

use clap::Subcommand;

/// Work with rules: ordered statements about new flows, of which the first that fits decides.
///
///   weir rules import --home-interface lan0 --internet-interface wan0 nft.json > rules.toml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    Import(import::Args),
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.command {
        RulesCommand::Import(args) => import::run(args),
    }
}
