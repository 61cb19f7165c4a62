//! What a client may take of a listener: connections, bytes and time.

use std::time::Duration;

/// The limits of one listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open connections of all remotes together; those of the machine itself (loopback, or root) do not count.
    pub connections_max: usize,
    /// Open connections of one remote: an IPv4 address, an IPv6 /64, a user of the socket file.
    pub connections_per_remote_max: usize,
    /// A request must be here, body included, within this time of its first byte; the first one of a connection within this
    /// time of the connect.
    pub head_timeout: Duration,
    /// Between two requests of a connection.
    pub idle_timeout: Duration,
    /// An answer of known length must be made within this time, and then taken within it.
    pub answer_timeout: Duration,
    /// While the socket's buffer is full the client must take [`stall_bytes_min`](Self::stall_bytes_min) in each such time.
    pub stall_timeout: Duration,
    pub stall_bytes_min: usize,
    /// Request line and headers.
    pub head_bytes_max: usize,
    pub headers_max: usize,
    /// No request of the API has a use for a body.
    pub body_bytes_max: usize,
}

impl Limits {
    /// Of the admin socket: a few operators and scripts.
    pub(crate) const ADMIN: Self = Self {
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

    /// Of the metrics address: Prometheus servers and controllers.
    pub(crate) const METRICS: Self =
        Self { connections_max: 256, connections_per_remote_max: 32, ..Self::ADMIN };
}
