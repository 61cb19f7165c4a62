//! An address and port as an argument.

use std::net::SocketAddrV4;

/// # Errors
/// How to write it.
pub(crate) fn endpoint(text: &str) -> Result<SocketAddrV4, String> {
    text.parse().map_err(|_| "write address:port, for example 203.0.113.5:40000".into())
}
