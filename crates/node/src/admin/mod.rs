//! The admin API: HTTP and JSON on a Unix socket. What it says is in [`crate::api`].
//!
//! Who may connect is decided by the socket file (mode 0660 and its group); who may change something by the peer's
//! credentials: root alone.

mod body;
mod capture_route;
#[cfg(test)]
mod hostile;
mod metrics_server;
mod peer;
mod problem;
mod routes;
mod sessions_route;
mod socket;
mod subscriber_route;
#[cfg(test)]
mod tests;

pub(crate) use metrics_server::MetricsServer;
pub(crate) use routes::serve;
pub(crate) use socket::{AdminSocket, ClaimError};
