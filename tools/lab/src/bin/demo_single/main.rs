//! The demonstration of one node: three homes behind GRE tunnels reach an internet through weir,
//! all on this machine, and a table shows what worked.
//!
//! `demo_single` builds, checks and removes everything; with `KEEP=1` it leaves everything running
//! and prints commands to try; `demo_single --clean` removes what was kept.

mod checks;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use weir_lab::program::exit_code;
use weir_lab::{OneNode, Options, lab, services};

use crate::checks::{CHECKS, Demo};
use crate::table::{Outcome, Row};

/// Bytes of the file to download.
const FILE_LEN: usize = 100_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(),
        ["--clean"] => {
            lab::remove_kept();
            Ok(true)
        }
        _ => Err(anyhow::anyhow!("usage: [KEEP=1] demo_single | demo_single --clean")),
    };
    exit_code("demo_single", outcome)
}

/// Runs all checks. Returns whether all of them passed.
fn run() -> Result<bool> {
    let keep = std::env::var("KEEP").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let start = Instant::now();
    let progress = |text: &str| println!("[{:5.1} s] {text}", start.elapsed().as_secs_f32());
    let net = OneNode::start_with_progress(&Options::default(), progress)?;
    progress("starting the internet: nginx, dnsmasq, iperf3, coturn");
    let demo = Demo { file: services::start_http(&net.lab, &net.internet, FILE_LEN)?, net };
    services::start_dns(&demo.net.lab, &demo.net.internet)?;
    services::start_iperf3(&demo.net.lab, &demo.net.internet)?;
    services::start_stun(&demo.net.lab, &demo.net.internet)?;
    let mut rows = Vec::new();
    for (number, (name, check)) in (1..).zip(CHECKS) {
        progress(&format!("{number} of {}: {name}", CHECKS.len()));
        let result = check(&demo);
        if !demo.net.lab.is_open() {
            bail!("interrupted");
        }
        let outcome = match result {
            Ok(detail) => Outcome::Pass(detail),
            Err(error) => Outcome::Fail(format!("{error:#}")),
        };
        rows.push(Row { name, outcome });
    }
    progress("done");
    print!("\n{}", table::render(&rows));
    show_node(&demo)?;
    let passed = rows.iter().all(|row| matches!(row.outcome, Outcome::Pass(_)));
    if !passed {
        println!("\nweir's log:\n{}", demo.net.weir.process().log_tail());
    }
    if keep {
        play(demo)?;
    }
    Ok(passed)
}

/// Prints the live state of the node as an operator sees it.
fn show_node(demo: &Demo) -> Result<()> {
    let weir = &demo.net.weir;
    for words in [&["status"][..], &["sessions", "--limit", "12"]] {
        let output = weir.cli(words)?;
        println!("\n$ weir {}\n{}{}", words.join(" "), output.stdout, output.stderr);
    }
    if weir.process().ended().is_some() {
        bail!("weir has ended");
    }
    Ok(())
}

/// Leaves everything running and prints commands to try.
fn play(demo: Demo) -> Result<()> {
    let in_home = |number: usize, words: &str| {
        format!("ip netns exec {} {words}", demo.net.homes[number].namespace.name())
    };
    let weir = |words: &str| demo.net.weir.command_line(words);
    let outer = demo.net.homes[0].outer;
    let clean = format!("{} --clean", std::env::current_exe()?.display());
    println!("\nIt is left running. As root:");
    for (what, command) in [
        ("a shell in home 1", in_home(0, "bash")),
        ("a download", in_home(0, &format!("curl -o /dev/null {}", demo.file.url))),
        ("throughput", in_home(1, "iperf3 -c 198.51.100.1")),
        ("the way", in_home(2, "traceroute -n 198.51.100.1")),
        ("state", weir("status")),
        ("sessions of home 1", weir(&format!("sessions --subscriber {outer}"))),
        ("drops, live", weir("drops --watch")),
        ("packets", weir("capture --side access --inner -w /tmp/weir.pcapng")),
        ("its log", format!("tail -f {}", demo.net.weir.process().log_path().display())),
        ("remove it all", clean),
    ] {
        println!("  {what:<20} {command}");
    }
    demo.net.lab.keep()?;
    Ok(())
}
