//! Why a process did not start, or ended by itself: one line and one exit code each.

use std::net::SocketAddr;
use std::path::PathBuf;

use weir_process::FORCED_END;

/// Exit codes of `weir-node run`, for its help and the documentation.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "stopped by SIGTERM or SIGINT"),
    (2, "wrong arguments"),
    (10, "configuration file cannot be read"),
    (11, "configuration is not valid"),
    (12, "a core does not exist"),
    (13, "already running: the admin socket answers"),
    (14, "admin socket cannot be made"),
    (15, "metrics address cannot be used"),
    (
        16,
        "block log cannot be opened, or a collector of the NAT log cannot be served as the file says",
    ),
    (17, "DPDK cannot start"),
    (18, "too little memory for buffers or tables, or large tables on pages of 4 KiB"),
    (19, "a worker cannot be built from the configuration"),
    (20, "a device is missing or does not start"),
    (21, "a thread cannot be started or pinned"),
    (22, "the processor lacks instructions that weir is built for"),
    (
        23,
        "the cluster cannot be joined: a key file, a TLS file, the guard of the routes, or another process that runs as this node",
    ),
    (70, "a worker hit a broken invariant (see the log)"),
    (FORCED_END, "asked to end, it did not end in time and was ended where it stood (see the log)"),
];

/// Why `weir-node run` ended with another exit code than 0.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("worker {worker}: core {core} does not exist; this machine has cores {online}")]
    CoreMissing { worker: usize, core: usize, online: String },
    #[error("control core {core} does not exist; this machine has cores {online}")]
    ControlCoreMissing { core: usize, online: String },
    #[error("already running: {0} answers")]
    AlreadyRunning(PathBuf),
    #[error("admin socket {path}: {reason}")]
    AdminSocket { path: PathBuf, reason: String },
    #[error("metrics address {address}: {reason}")]
    Metrics { address: SocketAddr, reason: std::io::Error },
    #[error("{0}")]
    BlockLog(String),
    #[error("{0}")]
    Collector(String),
    #[error("{0}")]
    Eal(String),
    #[error("{0}")]
    Memory(String),
    #[error("worker {worker}: {reason}")]
    Engine { worker: usize, reason: String },
    #[error("worker {worker}: {side} {reason}")]
    Device { worker: usize, side: &'static str, reason: String },
    #[error("worker {worker}: {reason}")]
    Thread { worker: usize, reason: String },
    #[error("control threads: {0}")]
    Control(std::io::Error),
    #[error("{0}")]
    Cluster(String),
    #[error("worker {worker} panicked at {place}: {message}")]
    WorkerPanic { worker: usize, place: String, message: String },
}

impl Failure {
    /// Returns one of [`EXIT_CODES`].
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::CoreMissing { .. } | Self::ControlCoreMissing { .. } => 12,
            Self::AlreadyRunning(_) => 13,
            Self::AdminSocket { .. } => 14,
            Self::Metrics { .. } => 15,
            Self::BlockLog(_) | Self::Collector(_) => 16,
            Self::Eal(_) => 17,
            Self::Memory(_) => 18,
            Self::Engine { .. } => 19,
            Self::Device { .. } => 20,
            Self::Thread { .. } | Self::Control(_) => 21,
            Self::Cluster(_) => 23,
            Self::WorkerPanic { .. } => 70,
        }
    }
}
