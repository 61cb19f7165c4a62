//! `weir rules`: what the rules of a file, or of a running node, decide.

mod case;
mod diff;
mod given;
mod hits;
mod import;
mod policy_file;
mod show;
mod test;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::node_socket::NodeSocket;
pub(crate) use policy_file::{LoadedPolicy, print_policy};

/// Exit code when a file or a question is wrong.
const EXIT_ERROR: u8 = 2;

/// Ask the rules of a configuration file, show them, compare two files, translate other rules.
///
/// With -c, reads the file of a single node or of a cluster and the files of its sets, as
/// `weir check` does, and needs neither node nor root. Without, `test` and `show` ask a node what
/// it has in force, and so does `diff` with one file.
///
///   weir rules test -c /etc/weir/weir.toml home 10.200.1.5 udp 40000 198.51.100.7:53
///   weir rules test -c /etc/weir/weir.toml --table cases.txt
///   weir rules show
///   weir rules diff new.toml
///   weir rules hits --top 10
///   weir rules import --home-interface lan0 --internet-interface wan0 nft.json > rules.toml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    question: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    Test(test::Args),
    Show(show::Args),
    Diff(diff::Args),
    Hits(hits::Args),
    Import(import::Args),
}

/// The rules that a command reads: a file's or a node's.
#[derive(Debug, clap::Args)]
struct PolicySource {
    /// The file of a single node or of a cluster; without it, what a running node has in force.
    #[arg(short = 'c', long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
    #[command(flatten)]
    node: NodeSocket,
}

impl PolicySource {
    /// # Errors
    /// When the file, or the node's settings, cannot be read.
    fn load(&self) -> anyhow::Result<LoadedPolicy> {
        match &self.config {
            Some(config) => LoadedPolicy::read(config),
            None => LoadedPolicy::running(&self.node.client()?),
        }
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.question {
        RulesCommand::Test(args) => test::run(args),
        RulesCommand::Show(args) => show::run(args),
        RulesCommand::Diff(args) => diff::run(args),
        RulesCommand::Hits(args) => hits::run(args),
        RulesCommand::Import(args) => return import::run(args),
    };
    done.unwrap_or_else(|error| {
        if crate::is_closed_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        crate::print_error(&format!("{error:#}"));
        ExitCode::from(EXIT_ERROR)
    })
}

fn stdout() -> io::BufWriter<io::StdoutLock<'static>> {
    io::BufWriter::new(io::stdout().lock())
}
