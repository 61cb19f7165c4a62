//! Questions to an echo server over sockets of a home.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Time between two sendings of a datagram: UDP may lose one.
const RESEND: Duration = Duration::from_millis(250);
/// Longest answer.
const ANSWER_MAX: usize = 65_535;
/// Sendings before a datagram counts as refused.
const ATTEMPTS: usize = 4;

/// Sends `payload` and waits for it to come back; an error if it comes back changed. False: no
/// answer to any of several sendings.
pub fn udp(socket: &UdpSocket, remote: SocketAddrV4, payload: &[u8]) -> Result<bool> {
    let mut answer = vec![0; ANSWER_MAX];
    for _ in 0..ATTEMPTS {
        socket.send_to(payload, remote)?;
        let end = Instant::now() + RESEND;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|t| !t.is_zero()) {
            socket.set_read_timeout(Some(left))?;
            let Ok((length, peer)) = socket.recv_from(&mut answer) else { continue };
            ensure!(peer == remote.into(), "answer from {peer}");
            // Another length: the late answer to an earlier question that was sent twice.
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
