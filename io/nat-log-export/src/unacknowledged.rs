//! Unacknowledged bytes of a TCP connection.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

mod call {
    nix::ioctl_read_bad!(send_queue, libc::TIOCOUTQ, libc::c_int);
}

/// Returns the number of bytes written to the connection that the other end's kernel has not
/// acknowledged (SIOCOUTQ, tcp(7)).
///
/// # Errors
/// The error of the kernel.
pub(crate) fn unacknowledged(stream: &TcpStream) -> io::Result<u64> {
    let mut bytes = 0;
    // JUSTIFICATION: no safe interface gives this number, without which a break loses the data in
    // transit.
    // SAFETY: the descriptor is open as long as `stream` is borrowed; the call writes one int, to
    // the memory of one.
    unsafe { call::send_queue(stream.as_raw_fd(), &mut bytes) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
