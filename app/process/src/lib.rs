//! What the processes of weir have in common: node, controller and commands.
//!
//! - [`log_to_stderr`]: lines on stderr that never wait for their reader; [`EVENTS`] names their
//!   kinds. [`print_error()`] is the one line of a command that fails.
//! - [`http`]: the server of all listeners, with bounds on connections, bytes and time.
//! - [`metrics`]: numbers as OpenMetrics text; [`serve_controller`] serves those of a controller.

#![forbid(unsafe_code)]

pub mod http;
pub mod metrics;

mod controller_metrics;
mod events;
mod log;
mod log_rate;
mod print_error;
mod scrape_format;

pub use controller_metrics::{ControllerNumbers, controller_text, serve_controller};
pub use events::EVENTS;
pub use log::{Log, to_stderr as log_to_stderr};
pub use print_error::print_error;
pub use scrape_format::ScrapeFormat;

/// Exit code of a process that is ended by force.
pub const FORCED_END: u8 = 71;
