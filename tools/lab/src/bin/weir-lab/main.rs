//! The `weir-lab` program: a traffic generator with its benchmark, and a home gateway. One file per
//! command.

#![forbid(unsafe_code)]

mod cpe;
#[cfg(test)]
#[path = "../../../../../app/weir/src/hostile.rs"]
mod hostile;
mod traffic;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Traffic for weir or any other NAT, and a home gateway in front of it.
///
/// For the laboratory and for measurements; neither a node nor its operators need it.
#[derive(Debug, Parser)]
#[command(name = "weir-lab", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Traffic(traffic::Args),
    Cpe(cpe::Args),
}

fn main() -> ExitCode {
    // Comes before anything else, as in `weir-node`: the rest is compiled for x86-64-v3.
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
    let done = match Arguments::parse().command {
        Command::Traffic(args) => traffic::run(args),
        Command::Cpe(args) => cpe::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            weir_process::print_error("weir-lab", &format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// True if the reader of the output has seen enough (`weir-lab traffic search ... | head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut errors = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    errors.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example_in_a_hundred_columns() {
        for command in Arguments::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("weir-lab {}", command.get_name())), "{help}");
            for command in std::iter::once(&*command).chain(command.get_subcommands()) {
                let about = command.get_about().unwrap_or_default().to_string();
                assert!(!about.contains('\n'), "{about}");
                let long = command.get_long_about().unwrap_or_default().to_string();
                assert!(long.lines().all(|line| line.chars().count() <= 100), "{long}");
            }
        }
    }

    #[test]
    fn the_commands_of_the_manual_are_understood() {
        for line in [
            "traffic bench --only established --rounds 20 --against /usr/bin/weir-node",
            "traffic bench --only vpp --vpp /usr/bin/vpp",
            "traffic flood --access a --internet b --rate 5e6 --size imix",
            "traffic linux --flows 60000 --core 1",
            "traffic search --metric establish --flows 100000 --access a --internet b",
            "cpe --tun gre0 --tun-address 192.168.1.2/24 --local 10.200.0.1 --remote 10.100.0.1 --route",
        ] {
            let words = std::iter::once("weir-lab").chain(line.split(' '));
            Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
