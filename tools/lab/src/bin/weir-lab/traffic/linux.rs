//! `weir-lab traffic linux`: measures how fast the kernel's own NAT is on this machine.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;
use weir_traffic::linux_nat::{LinuxNatPlan, LinuxNatResult, LinuxRules, Skipped, measure};

/// Measure source NAT by the Linux kernel (nftables, conntrack) on one core.
///
/// The frames are made and counted inside the kernel, in a network namespace that is gone
/// afterwards; nothing on the host changes. Needs root, nft and Linux 5.18; where something is
/// missing, it says what, and that is no error.
///
///   weir-lab traffic linux
///   weir-lab traffic linux --flows 60000 --seconds 5 --core 1 --json
///   weir-lab traffic linux --flows 60000 --rules 100000 --sets
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    flows: u32,

    /// Seconds of the flood.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    seconds: Duration,

    /// The core that does everything.
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    core: usize,

    /// Number of rules about new flows, of which none fits; packets of live flows pass before them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rules: u32,

    /// The rules as elements of three sets: homes, remotes, ports.
    #[arg(long)]
    sets: bool,

    /// The result, or why there is none, as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let rules = LinuxRules { count: args.rules, are_sets: args.sets };
    let plan = LinuxNatPlan { flows: args.flows, seconds: args.seconds, core: args.core, rules };
    let measured = measure(&plan);
    let line = if args.json { as_json(&measured)? } else { as_text(&plan, &measured) };
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

fn as_json(measured: &Result<LinuxNatResult, Skipped>) -> serde_json::Result<String> {
    match measured {
        Ok(result) => serde_json::to_string(result),
        Err(Skipped(why)) => Ok(json!({ "skipped": why }).to_string()),
    }
}

fn as_text(plan: &LinuxNatPlan, measured: &Result<LinuxNatResult, Skipped>) -> String {
    match measured {
        Ok(result) => format!(
            "Linux nft SNAT on core {}: {:.3} Mpps, {:.0} cycles a packet, {:.0} a packet that opens a flow; {} packets, {} sessions",
            plan.core,
            result.mpps,
            result.cycles_per_packet,
            result.opening_cycles_per_packet,
            result.packets,
            result.sessions
        ),
        Err(Skipped(why)) => format!("skipped: {why}"),
    }
}

/// Parses seconds, more than zero and at most an hour: sessions are kept alive by the flood alone.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.001..=3600.0).contains(&seconds) {
        return Err("not from 0.001 to 3600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: LinuxNatResult = LinuxNatResult {
        mpps: 0.5,
        cycles_per_packet: 4000.0,
        opening_cycles_per_packet: 9000.0,
        packets: 9,
        sessions: 7,
    };

    #[test]
    fn json_is_the_result_or_the_reason() {
        let result: LinuxNatResult = serde_json::from_str(&as_json(&Ok(RESULT)).unwrap()).unwrap();
        assert_eq!(result, RESULT);
        let skipped = as_json(&Err(Skipped("no \"nft\"".into()))).unwrap();
        assert_eq!(skipped, r#"{"skipped":"no \"nft\""}"#);
    }

    #[test]
    fn seconds_have_a_range() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "NaN", "1e9", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
