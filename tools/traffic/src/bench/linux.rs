//! The common baseline: the kernel's nftables source NAT on one core, measured by its own process.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::BenchError;
use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::load::Load;
use crate::linux_nat::LinuxNatResult;

/// Flows that the kernel opens behind rules: their cost hides that of the system call. A long list
/// needs fewer, and would take minutes with more.
const OPENED: u32 = 200_000;
const OPENED_BEHIND_LONG_LIST: u32 = 20_000;
const LONG_LIST: u32 = 10_000;
/// Length of the flood that follows, of which nothing is reported.
const SHORT_FLOOD_SEC: f64 = 0.2;

/// The output line of `weir-lab traffic linux --json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Answer {
    Measured(LinuxNatResult),
    Skipped { skipped: String },
}

/// Enters the kernel's rate, or returns why there is none.
pub(super) fn round(
    context: &BenchContext<'_>,
    load: &Load,
    figures: &mut Figures,
) -> Result<Option<String>, BenchError> {
    let result = match measure(context, load.flows, load.measured.as_secs_f64(), &[])? {
        Ok(result) => result,
        Err(why) => return Ok(Some(why)),
    };
    figures.set(Figure::LinuxMpps, result.mpps);
    figures.set(Figure::LinuxCycles, result.cycles_per_packet);
    figures.set(Figure::LinuxRatio, figures.get(Figure::WeirMpps).map(|weir| weir / result.mpps));
    Ok(None)
}

/// Enters the kernel's cycles of a packet that opens a flow behind as many rules as weir has, or
/// returns why there are none.
pub(super) fn opening_round(
    context: &BenchContext<'_>,
    load: &Load,
    are_sets: bool,
    figures: &mut Figures,
) -> Result<Option<String>, BenchError> {
    let rules = load.rules.count;
    let flows = match !are_sets && rules >= LONG_LIST {
        true => OPENED_BEHIND_LONG_LIST,
        false => OPENED,
    };
    let mut arguments = vec!["--rules".to_owned(), rules.to_string()];
    arguments.extend(are_sets.then(|| "--sets".to_owned()));
    let result = match measure(context, flows, SHORT_FLOOD_SEC, &arguments)? {
        Ok(result) => result,
        Err(why) => return Ok(Some(why)),
    };
    let cycles = result.opening_cycles_per_packet;
    figures.set(Figure::LinuxOpenCycles, cycles);
    let ratio = figures.get(Figure::WeirCycles).map(|weir| cycles / weir);
    figures.set(Figure::LinuxOpenRatio, ratio);
    Ok(None)
}

/// Returns the result, or in words why there is none.
fn measure(
    context: &BenchContext<'_>,
    flows: u32,
    seconds: f64,
    more: &[String],
) -> Result<Result<LinuxNatResult, String>, BenchError> {
    let mut command = Command::new(&context.plan.generator);
    command.args(["traffic", "linux", "--json"]);
    command.args(["--flows", &flows.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    command.args(["--core", &context.plan.device_core.to_string()]);
    command.args(more);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BenchError::io("the measurement of Linux does not start", source))?;
    context.plan.check_interrupted()?;
    Ok(match parse(&String::from_utf8_lossy(&output.stdout)) {
        Some(Answer::Measured(result)) => Ok(result),
        Some(Answer::Skipped { skipped }) => Err(format!("Linux nft skipped: {skipped}")),
        None => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            Err(format!("Linux nft: {}", last.unwrap_or("no answer")))
        }
    })
}

fn parse(printed: &str) -> Option<Answer> {
    printed.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_answer_is_a_rate_or_a_reason() {
        let result = LinuxNatResult {
            mpps: 0.5,
            cycles_per_packet: 4600.0,
            opening_cycles_per_packet: 9000.0,
            packets: 1,
            sessions: 1,
        };
        let line = serde_json::to_string(&result).unwrap() + "\n";
        assert_eq!(parse(&line), Some(Answer::Measured(result)));
        let skipped = parse("{\"skipped\":\"no nft\"}\n");
        assert_eq!(skipped, Some(Answer::Skipped { skipped: "no nft".into() }));
        assert_eq!(parse("error: something\n"), None);
    }
}
