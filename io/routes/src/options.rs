//! The options that the node sends to the guard at its start.

use std::time::Duration;

use crate::route::RouteTables;

/// Options of the guard. Times are whole milliseconds on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    /// Name of the TUN device, at most 15 bytes. Each node of a machine has its own.
    pub interface: String,
    /// Kernel tables that BIRD learns from.
    pub tables: RouteTables,
    /// Silence of a worker after which it is fenced and its routes become a last resort.
    pub silence: Duration,
    /// Further silence after which the process is killed; `None` never kills it, for a debugger.
    pub kill_after: Option<Duration>,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            interface: "weir0".to_owned(),
            tables: RouteTables::default(),
            silence: Duration::from_millis(50),
            kill_after: Some(Duration::from_secs(1)),
        }
    }
}
