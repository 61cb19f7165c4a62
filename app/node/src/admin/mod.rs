//! The admin API: HTTP and JSON on a Unix socket. [`weir_admin::api`] lists its requests and
//! answers.
//!
//! The socket file (mode 0660 and its group) decides which users may connect. The peer's
//! credentials decide which user may change state: root alone.

mod ask_error;
mod body;
mod capture_route;
#[cfg(test)]
mod hostile;
mod metrics_server;
mod peer;
mod reload_route;
mod routes;
mod rules_route;
#[cfg(test)]
mod server_tests;
mod sessions_route;
mod socket;
mod start_server;
mod subscriber_route;
#[cfg(test)]
mod tests;
mod trace_route;

pub(crate) use metrics_server::MetricsServer;
pub(crate) use routes::serve;
pub(crate) use socket::{AdminSocket, ClaimError};
pub(crate) use start_server::StartServer;
