//! Errors of the benchmark.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::scenario::ScenarioError;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{what}")]
    Io { what: String, source: io::Error },
    #[error(
        "core {core} is needed and this machine has {count}: a benchmark takes two cores, one for the generator and one for the device"
    )]
    Cores { core: usize, count: usize },
    #[error("{name} ended early ({status}). The end of its output:\n{tail}")]
    Ended { name: String, status: String, tail: String },
    #[error("the generator ended early ({status}). The end of its output:\n{tail}")]
    Generator { status: String, tail: String },
    #[error("{name} was not ready after {} s. The end of its output:\n{tail}", patience.as_secs())]
    NotReady { name: String, patience: Duration, tail: String },
    #[error("{name} did not say {what}. The end of its output:\n{tail}")]
    Silent { name: String, what: &'static str, tail: String },
    #[error("{program} is not installed: it is the raw baseline (Debian package dpdk-dev)")]
    NoBaseline { program: &'static str },
    #[error("{flows} flows are still in the table long after their timers")]
    NotEmptied { flows: u64 },
    #[error(transparent)]
    Scenario { error: ScenarioError },
    #[error("there is no experiment {name:?}: the experiments are {known}")]
    Unknown { name: String, known: String },
    #[error(
        "nothing to compare with {}: none of the named experiments is a plain flood, as `established` is", against.display()
    )]
    NothingToCompare { against: PathBuf },
    #[error(
        "the experiment `vpp` needs --vpp FILE, the program `vpp` (docs/benchmarks.md says how to build it)"
    )]
    NoVpp,
    #[error("--vpp is for the experiment `vpp`, which is not named: add --only vpp")]
    NoVppExperiment,
    #[error("the plot {file}: {reason}")]
    Plot { file: String, reason: String },
    #[error(
        "weir counted none of the {attack} packets under {reasons}: the attack did not reach what it is for"
    )]
    NoEffect { attack: String, reasons: String },
    #[error("harmless packets of one home cost others a packet at every rate that was tried")]
    NoHarmlessRate,
    #[error("what weir sent to the collector of the benchmark cannot be counted: {error}")]
    Collector { error: String },
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// Returns the last line of the failed program's output, or of the error itself.
    pub(crate) fn last_line(&self) -> String {
        let text = self.to_string();
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    /// True if the generator ended because a port got no link, as [`GeneratorError::NoLink`]
    /// reports it.
    ///
    /// [`GeneratorError::NoLink`]: crate::generator::GeneratorError::NoLink
    pub(crate) fn is_no_link(&self) -> bool {
        matches!(self, BenchError::Generator { tail, .. } if tail.contains("port has no link"))
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        BenchError::Io { what: what.into(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::GeneratorError;

    #[test]
    fn missing_link_is_recognised_in_the_generators_last_line() {
        let ended = |tail: String| BenchError::Generator { status: "exit status: 1".into(), tail };
        let no_link = GeneratorError::NoLink { side: "access" };
        assert!(ended(format!("weir: {no_link}")).is_no_link());
        let missing = GeneratorError::NotLearned { missing: 1, flows: 2, attempts: 8, wrong: 0 };
        assert!(!ended(format!("weir: {missing}")).is_no_link());
    }
}
