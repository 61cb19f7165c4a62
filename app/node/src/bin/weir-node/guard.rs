//! `weir-node guard`: the process that holds the routes of a node. Nodes start it themselves.

use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::process::ExitCode;

/// Hold the routes of a node of a cluster; started by `weir-node run`, never by hand.
///
///   weir-node guard
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, hide = true)]
pub(crate) struct Args {}

/// Returns when the node has ended.
pub(crate) fn run(_: &Args) -> ExitCode {
    let (socket, words) =
        (stdin().as_fd().try_clone_to_owned(), stdout().as_fd().try_clone_to_owned());
    let ended = match (socket, words) {
        (Ok(socket), Ok(words)) => weir_routes::guard::run(socket, words).is_ok(),
        (Err(_), _) | (_, Err(_)) => false,
    };
    // The guard has logged the reason; its log never waits for a reader.
    if ended { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
