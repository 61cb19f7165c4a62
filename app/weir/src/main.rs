//! The `weir` program, commands and controller: parses arguments and calls the command. One file
//! per command.

#![forbid(unsafe_code)]

mod apply;
mod capture;
mod check;
mod cluster;
mod controller;
mod drain;
mod drops;
mod endpoints;
mod etcd;
mod events;
mod fence;
#[cfg(test)]
mod hostile;
mod json_lines;
mod key;
mod metrics;
mod moved;
mod node_socket;
mod rebalance;
mod reload;
mod replay;
mod role;
mod routes;
mod rules;
mod sessions;
mod shards;
mod status;
mod subscriber;
mod table;
mod trace;
mod r#where;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_admin::client::ClientError;

/// A software NAT and stateful firewall for Internet providers, on DPDK.
///
/// A node runs with `weir-node run`, a cluster's controller with `weir controller`; every other
/// command asks a running node through its admin socket, reads or writes the cluster's keys in
/// etcd, or reads a file. Reading needs membership in the socket's group, changing needs root.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    Key(key::Args),
    Status(status::Args),
    Shards(shards::Args),
    Routes(routes::Args),
    Rules(rules::Args),
    Subscriber(subscriber::Args),
    Sessions(sessions::Args),
    Drops(drops::Args),
    Where(r#where::Args),
    Capture(capture::Args),
    Trace(trace::Args),
    Metrics(metrics::Args),
    Reload(reload::Args),
    Apply(apply::Args),
    Controller(controller::Args),
    Cluster(cluster::Args),
    Drain(drain::Args),
    Undrain(drain::UndrainArgs),
    Fence(fence::Args),
    Rebalance(rebalance::Args),
    Events(events::Args),
    Replay(replay::Args),
    /// `weir run` is now `weir-node run`.
    #[command(hide = true)]
    Run(moved::Args),
    /// `weir guard` is now `weir-node guard`.
    #[command(hide = true)]
    Guard(moved::Args),
    /// `weir traffic` is now `weir-lab traffic`.
    #[command(hide = true)]
    Traffic(moved::Args),
    /// `weir cpe` is now `weir-lab cpe`.
    #[command(hide = true)]
    Cpe(moved::Args),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Check(args) => return check::run(&args),
        Command::Status(args) => return status::run(&args),
        Command::Routes(args) => return routes::run(&args),
        Command::Reload(args) => return reload::run(&args),
        Command::Rules(args) => return rules::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Shards(args) => shards::run(&args),
        Command::Subscriber(args) => subscriber::run(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Drops(args) => drops::run(&args),
        Command::Where(args) => return r#where::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Apply(args) => return apply::run(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Cluster(args) => return cluster::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Undrain(args) => drain::undrain(&args),
        Command::Fence(args) => fence::run(&args),
        Command::Rebalance(args) => rebalance::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => return moved::run(moved::RUN, &args),
        Command::Guard(args) => return moved::run(moved::GUARD, &args),
        Command::Traffic(args) => return moved::run(moved::TRAFFIC, &args),
        Command::Cpe(args) => return moved::run(moved::CPE, &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes to stderr why the command fails.
fn print_error(error: &str) {
    weir_process::print_error("weir", error);
}

/// True if the reader of the output has seen enough (`weir sessions | head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let error = match cause.downcast_ref::<ClientError>() {
            Some(ClientError::Io(error)) => Some(error),
            _ => cause.downcast_ref::<io::Error>(),
        };
        error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
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
    fn every_command_has_help_with_an_example() {
        for command in Arguments::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("weir {}", command.get_name())), "{help}");
            if command.get_name() == "rules" {
                for command in command.get_subcommands_mut().filter(|it| it.get_name() != "help") {
                    let help = command.render_long_help().to_string();
                    let example = format!("  weir rules {} ", command.get_name());
                    assert!(help.contains(&example), "{help}");
                }
            }
        }
    }

    #[test]
    fn help_fits_a_terminal_without_being_wrapped_again() {
        for command in Arguments::command().get_subcommands_mut() {
            let about = command.get_about().unwrap_or_default().to_string();
            assert!(!about.contains('\n'), "{about}");
            let long = command.get_long_about().unwrap_or_default().to_string();
            for line in long.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn a_reader_that_goes_away_is_no_failure() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed_pipe(&pipe().into()));
        assert!(is_closed_pipe(&ClientError::Io(pipe()).into()));
        assert!(!is_closed_pipe(&io::Error::from(io::ErrorKind::NotFound).into()));
    }

    #[test]
    fn the_commands_of_the_manual_are_understood() {
        let lines = [
            "check /etc/weir/weir.toml",
            "key new",
            "key new /etc/weir/north.key",
            "status",
            "status --json --socket /run/weir/n1.sock --timeout 3",
            "shards --json",
            "routes --json --socket /run/weir/n1.sock",
            "routes --config /etc/weir/weir.toml --bird /run/bird.ctl --access-protocol one",
            "shards --cluster north --etcd http://10.0.0.1:2379",
            "shards --watch --json --config /etc/weir/weir.toml",
            "rules test -c w.toml home 10.200.1.5 udp 40000 198.51.100.7:53",
            "rules test -c w.toml --json internet 10.200.1.5 icmp 198.51.100.7",
            "rules test --config w.toml --table cases.txt",
            "rules show -c w.toml --json",
            "rules diff old.toml new.toml --json",
            "rules diff new.toml --socket n.sock",
            "subscriber show 10.200.0.1",
            "subscriber flush 10.200.0.1",
            "subscriber show 2001:db8:1000:100::/56",
            "subscriber check 2001:db8:1000:100::7",
            "sessions --family 6 --inside 2001:db8:1000::/48 --remote [2001:db8:9::1]:443",
            "sessions --subscriber 2001:db8:1000:100::/56",
            "sessions --subscriber 10.200.0.1 --public 203.0.113.1:4000 --remote 1.1.1.1:53 --limit 5",
            "sessions --inside 192.168.1.0/24 --public 203.0.113.1 --remote 1.1.1.1 --protocol tcp --state established",
            "sessions --older 3600 --younger 7200",
            "subscriber list --shard 7 --json",
            "subscriber top --by flows -n 5",
            "subscriber check 10.200.0.1",
            "drops --watch",
            "where 203.0.113.1:4000 --at 2026-03-01T12:00:00Z --log a.log --log b.log",
            "where 203.0.113.1 --clock-error 0.5 --json",
            "where --home 10.200.0.1,7 --from 2026-03-01T12:00:00Z --to 2026-03-01T13:00:00Z",
            "capture --worker 0 --side access --inner --filter udp -c 5 -w out.pcapng",
            "trace --subscriber 10.200.1.5 --protocol udp --remote 198.51.100.53:53 -n 2 --json",
            "trace --side internet --worker 0 --for 5",
            "metrics",
            "reload --dry-run --force --json",
            "apply cluster.toml --dry-run",
            "apply cluster.toml --wait --force --config /etc/weir/weir.toml",
            "controller --cluster north --etcd http://10.0.0.1:2379,http://10.0.0.2:2379",
            "controller --cluster north --etcd http://10.0.0.1:2379 --metrics 10.0.0.1:9106",
            "controller freeze --why maintenance",
            "controller unfreeze --cluster north",
            "controller retire 7 8",
            "cluster status --json",
            "drain edge1 --wait --force",
            "undrain edge1",
            "fence edge1",
            "rebalance",
            "events --node edge1 --shard 7 --json",
            "rules show",
            "rules test home 10.200.1.5 icmp 198.51.100.7 --socket n.sock",
            "rules import --home-interface lan0,ppp* --internet-interface wan0 nft.json",
            "rules import nft.json",
        ];
        for line in lines {
            let words = std::iter::once("weir").chain(line.split(' '));
            Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn incomplete_and_contradictory_commands_are_refused() {
        for line in [
            "",
            "capture",
            "where",
            "where 203.0.113.1 --from 2026-03-01T12:00:00Z",
            "where --home 10.200.0.1",
            "where 203.0.113.1 --home 10.200.0.1 --from 2026-03-01T12:00:00Z --to 2026-03-01T13:00:00Z",
            "sessions --public 1.2.3",
            "sessions --protocol sctp",
            "sessions --family 5",
            "sessions --public 2001:db8::1",
            "sessions --inside 2001:db8::/129",
            "sessions --subscriber 10.200.0",
            "subscriber show 2001:db8::/129",
            "sessions --state new",
            "sessions --limit 0",
            "routes --config /etc/weir/weir.toml --socket /run/weir/n1.sock",
            "rules",
            "rules show -c w.toml --socket n.sock",
            "rules test -c w.toml",
            "rules test -c w.toml home 10.200.1.5",
            "rules test -c w.toml --table cases.txt home 10.200.1.5 icmp 198.51.100.7",
            "rules diff",
            "rules diff one.toml two.toml three.toml",
            "key",
            "drain",
            "fence a/b",
            "events --node a/b",
            "controller retire",
            "apply",
            "apply cluster.toml --dry-run --force",
            "cluster",
        ] {
            let words =
                std::iter::once("weir").chain(line.split(' ').filter(|word| !word.is_empty()));
            assert!(Arguments::try_parse_from(words).is_err(), "{line}");
        }
    }
}
