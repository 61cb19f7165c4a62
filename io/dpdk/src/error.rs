//! Errors between weir and DPDK, each as one sentence that names the object, the cause and the
//! likely fix.

/// All failures of this crate. The text is meant for an operator: one line, no further context
/// needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DpdkError {
    /// The EAL refused to start.
    #[error("DPDK does not start: {cause}")]
    Eal { cause: String },

    /// A second start of the EAL in one process.
    #[error("DPDK has already been started in this process")]
    EalTwice,

    /// Too little memory for the EAL or for a pool.
    #[error("not enough memory for {purpose}: {wanted_mb} MB asked, {available}; {fix}")]
    Memory { purpose: String, wanted_mb: usize, available: String, fix: String },

    /// Any failure of one device.
    #[error("device {device}: {problem}{}; {fix}", because(.cause))]
    Device { device: String, problem: String, cause: Option<String>, fix: String },

    /// A core that cannot be used.
    #[error("core {core}: {cause}; choose one of the cores this process may run on")]
    Core { core: String, cause: String },

    /// A worker thread that DPDK does not accept.
    #[error(
        "DPDK does not accept another worker thread: {cause}; at most 127 workers fit in one process"
    )]
    Thread { cause: String },
}

fn because(cause: &Option<String>) -> String {
    cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default()
}

/// Returns the text of a negative errno value as the shim returns it.
pub(crate) fn errno_text(code: i32) -> String {
    nix::errno::Errno::from_raw(code.wrapping_neg()).desc().to_lowercase()
}
