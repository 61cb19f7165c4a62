//! Questions to an echo server, sent over sockets of a home.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Time between two transmissions of a datagram: UDP may lose one.
const RESEND: Duration = Duration::from_millis(250);
/// Longest answer in bytes.
const ANSWER_MAX: usize = 65_535;
/// Transmissions before a datagram counts as refused. They take two seconds: a kernel repeats a
/// neighbor solicitation of which no answer came after one.
const ATTEMPTS: usize = 8;

/// Sends `payload` and waits for it to come back; fails if it comes back changed. Returns false if
/// none of several transmissions is answered.
pub fn udp(socket: &UdpSocket, remote: impl Into<SocketAddr>, payload: &[u8]) -> Result<bool> {
    let remote = remote.into();
    let mut answer = vec![0; ANSWER_MAX];
    for _ in 0..ATTEMPTS {
        socket.send_to(payload, remote)?;
        let end = Instant::now() + RESEND;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|t| !t.is_zero()) {
            socket.set_read_timeout(Some(left))?;
            let Ok((length, peer)) = socket.recv_from(&mut answer) else { continue };
            ensure!(peer == remote, "answer from {peer}");
            // Another length means a late answer to an earlier question that was sent twice.
            if length == payload.len() {
                ensure!(answer[..length] == *payload, "another answer than expected");
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Sends `payload` on a connection and reads it back.
pub fn tcp(stream: &mut TcpStream, payload: &[u8]) -> Result<()> {
    stream.write_all(payload)?;
    let mut answer = vec![0; payload.len()];
    stream.read_exact(&mut answer)?;
    ensure!(answer == payload, "another answer than expected");
    Ok(())
}
