//! The admin API: HTTP and JSON on a Unix socket. [`crate::api`] lists its requests and answers.
//!
//! The socket file (mode 0660 and its group) decides which users may connect. The peer's
//! credentials decide which user may change state: root alone.

mod body;
mod capture_route;
mod connection;
#[cfg(test)]
mod hostile;
mod limits;
mod metrics_server;
mod peer;
mod problem;
mod refusals;
mod routes;
mod server;
#[cfg(test)]
mod server_tests;
mod sessions_route;
mod socket;
mod start_server;
mod subscriber_route;
mod table;
#[cfg(test)]
mod tests;
mod text_server;
mod timed_stream;

pub(crate) use metrics_server::MetricsServer;
pub(crate) use refusals::{ConnectionRefusal, HttpNumbers};
pub(crate) use routes::serve;
pub(crate) use socket::{AdminSocket, ClaimError};
pub(crate) use start_server::StartServer;
pub(crate) use text_server::serve_text;
