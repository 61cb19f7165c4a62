//! Limits on the connections, bytes and time that clients may take of a listener.

use std::time::Duration;

/// The limits of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Open connections of all remotes together; those of the machine itself (loopback, or root) do
    /// not count.
    pub connections_max: usize,
    /// Open connections of one remote: an IPv4 address, an IPv6 /64, a user of the socket file.
    pub connections_per_remote_max: usize,
    /// Time for a request to arrive, body included, from its first byte on; for the first request
    /// of a connection, from the connect on.
    pub head_timeout: Duration,
    /// Longest time between two requests of a connection.
    pub idle_timeout: Duration,
    /// Time to make an answer of known length, and the same time again for the client to take it.
    pub answer_timeout: Duration,
    /// Time within which the client must take [`stall_bytes_min`](Self::stall_bytes_min) bytes, as
    /// long as the socket's buffer is full.
    pub stall_timeout: Duration,
    pub stall_bytes_min: usize,
    /// Bytes of the request line and headers.
    pub head_bytes_max: usize,
    pub headers_max: usize,
    /// Bytes of a request's body; no request of the API needs one.
    pub body_bytes_max: usize,
}

impl ListenerLimits {
    /// Limits of the admin socket, which serves a few operators and scripts.
    pub const ADMIN: Self = Self {
        connections_max: 64,
        connections_per_remote_max: 32,
        head_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        answer_timeout: Duration::from_secs(30),
        stall_timeout: Duration::from_secs(20),
        stall_bytes_min: 64 << 10,
        head_bytes_max: 16 << 10,
        headers_max: 64,
        body_bytes_max: 16 << 10,
    };

    /// Limits of the metrics address, which serves Prometheus servers and controllers.
    pub const METRICS: Self =
        Self { connections_max: 256, connections_per_remote_max: 32, ..Self::ADMIN };
}
