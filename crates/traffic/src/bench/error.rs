//! Why there is no figure.

use std::io;
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
    #[error("the plot {file}: {reason}")]
    Plot { file: String, reason: String },
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// The last line of the output of whoever failed, or of the error itself.
    pub(crate) fn last_line(&self) -> String {
        let text = self.to_string();
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        BenchError::Io { what: what.into(), source }
    }
}
