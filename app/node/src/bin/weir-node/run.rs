//! `weir-node run`: the node itself.

use std::path::PathBuf;
use std::process::ExitCode;

use weir_config::{ConfigFile, Diagnostic};
use weir_node::{Failure, SingleNode};

use crate::print_error;

/// Run a node in the foreground until SIGTERM or SIGINT.
///
/// Logs to stderr, one line per event; prints `ready` on stdout when all ports are up and all
/// gateways answer ARP. SIGHUP reopens the block log after a rotation. A node of a cluster takes
/// what all nodes share from etcd, and hands its shards over before it ends. A single node whose
/// file is broken serves with the settings that it took last, and `weir status` says so.
///
///   weir-node run --config /etc/weir/weir.toml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, after_long_help = exit_codes())]
pub(crate) struct Args {
    /// The configuration file; check it first with `weir check`.
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Write all input of this node of a cluster, from etcd, its guard and its workers, to a file,
    /// up to 1 GiB, for `weir replay`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Returns when the node has ended.
pub(crate) fn run(args: &Args) -> ExitCode {
    let name = args.config.display().to_string();
    let text = match std::fs::read_to_string(&args.config) {
        Ok(text) => text,
        Err(error) => {
            print_error(&format!("{name}: {error}"));
            return ExitCode::from(10);
        }
    };
    let (file, warnings) = match weir_config::parse_file(&text, &name) {
        Ok(parsed) => parsed,
        Err(errors) => return run_kept(args, errors),
    };
    let ended = match file {
        ConfigFile::Single(_) if args.record.is_some() => {
            print_error(&format!(
                "--record: {name} is the file of a single node; only a node of a cluster can be recorded"
            ));
            return ExitCode::from(11);
        }
        ConfigFile::Single(config) => {
            match SingleNode::new(*config, warnings, &args.config, text) {
                Ok(single) => weir_node::run(&single),
                Err(errors) => return run_kept(args, errors),
            }
        }
        ConfigFile::Member(member) => {
            weir_node::run_member(&member, &warnings, args.record.as_deref())
        }
        ConfigFile::Cluster(_) => {
            print_error(&format!(
                "{name}: this is what all nodes share: `weir apply {name}`, and run a node's own file"
            ));
            return ExitCode::from(11);
        }
    };
    exit_code(&ended)
}

/// Runs a single node with the settings that it took last: its file is broken.
fn run_kept(args: &Args, errors: Vec<Diagnostic>) -> ExitCode {
    errors.iter().for_each(|error| print_error(&error.to_string()));
    match SingleNode::kept(&args.config, errors).filter(|_| args.record.is_none()) {
        Some(kept) => exit_code(&weir_node::run(&kept)),
        None => ExitCode::from(11),
    }
}

fn exit_code(ended: &Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // The node has logged the failure.
        Err(failure) => ExitCode::from(failure.exit_code()),
    }
}

fn exit_codes() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in weir_node::EXIT_CODES {
        text.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    text
}
