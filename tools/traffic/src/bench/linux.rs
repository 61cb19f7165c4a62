//! The common baseline: the kernel's nftables source NAT on one core, measured by its own process.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::BenchError;
use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::load::Load;

/// The output line of `weir-lab traffic linux --json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Answer {
    Measured { mpps: f64, cycles_per_packet: f64 },
    Skipped { skipped: String },
}

/// Enters the kernel's rate, or returns why there is none.
pub(super) fn round(
    context: &BenchContext<'_>,
    load: &Load,
    figures: &mut Figures,
) -> Result<Option<String>, BenchError> {
    let mut command = Command::new(&context.plan.generator);
    command.args(["traffic", "linux", "--json"]);
    command.args(["--flows", &load.flows.to_string()]);
    command.args(["--seconds", &load.measured.as_secs_f64().to_string()]);
    command.args(["--core", &context.plan.device_core.to_string()]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BenchError::io("the measurement of Linux does not start", source))?;
    context.plan.check_interrupted()?;
    let Some(answer) = parse(&String::from_utf8_lossy(&output.stdout)) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        return Ok(Some(format!("Linux nft: {}", last.unwrap_or("no answer"))));
    };
    Ok(match answer {
        Answer::Skipped { skipped } => Some(format!("Linux nft skipped: {skipped}")),
        Answer::Measured { mpps, cycles_per_packet } => {
            figures.set(Figure::LinuxMpps, mpps);
            figures.set(Figure::LinuxCycles, cycles_per_packet);
            figures.set(Figure::LinuxRatio, figures.get(Figure::WeirMpps).map(|weir| weir / mpps));
            None
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
        let line = "{\"mpps\":0.5,\"cycles_per_packet\":4600.0,\"packets\":1,\"sessions\":1}\n";
        assert_eq!(parse(line), Some(Answer::Measured { mpps: 0.5, cycles_per_packet: 4600.0 }));
        let skipped = parse("{\"skipped\":\"no nft\"}\n");
        assert_eq!(skipped, Some(Answer::Skipped { skipped: "no nft".into() }));
        assert_eq!(parse("error: something\n"), None);
    }
}
