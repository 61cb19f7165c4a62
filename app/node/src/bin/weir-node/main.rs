//! The `weir-node` program: a node of weir, and the guard of its routes. One file per command.

#![forbid(unsafe_code)]

mod guard;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A node of weir, a software NAT and stateful firewall for Internet providers, on DPDK.
///
/// The commands that ask a node are those of `weir`, which needs no DPDK and runs on any machine.
#[derive(Debug, Parser)]
#[command(name = "weir-node", version, propagate_version = true, max_term_width = 100)]
struct NodeArguments {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    Run(run::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

fn main() -> ExitCode {
    // The check comes before anything else: all code that follows is compiled for x86-64-v3 and may
    // use its instructions anywhere. Only the C library, DPDK's constructors and the start of
    // Rust's runtime ran before this line, all of them built for any x86-64 processor.
    #[cfg(target_arch = "x86_64")]
    if !weir_node::processor::is_sufficient() {
        return ExitCode::from(weir_node::processor::EXIT_CODE);
    }
    run_command()
}

/// Runs the command. A function of its own: `main` must not share a stack frame, and so a prologue,
/// with it.
#[inline(never)]
fn run_command() -> ExitCode {
    match NodeArguments::parse().command {
        NodeCommand::Run(args) => run::run(&args),
        NodeCommand::Guard(args) => guard::run(&args),
    }
}

/// Writes to stderr why the node does not start.
fn print_error(error: &str) {
    weir_process::print_error("weir-node", error);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        NodeArguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example_in_a_hundred_columns() {
        for command in NodeArguments::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("weir-node {}", command.get_name())), "{help}");
            let about = command.get_about().unwrap_or_default().to_string();
            assert!(!about.contains('\n'), "{about}");
            let long = command.get_long_about().unwrap_or_default().to_string();
            assert!(long.lines().all(|line| line.chars().count() <= 100), "{long}");
        }
    }

    #[test]
    fn a_node_needs_a_file_and_its_guard_nothing() {
        let parses = |line: &str| NodeArguments::try_parse_from(line.split(' ')).is_ok();
        assert!(parses("weir-node run --config /etc/weir/weir.toml"));
        assert!(parses("weir-node run --config /etc/weir/weir.toml --record /tmp/n1.jsonl"));
        assert!(parses("weir-node guard"));
        assert!(!parses("weir-node") && !parses("weir-node run") && !parses("weir-node status"));
    }
}
