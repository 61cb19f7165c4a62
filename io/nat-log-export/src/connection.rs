//! Connection to a collector: a UDP socket, a TCP connection, or TLS over TCP.
//!
//! Connecting may take seconds: it runs on a thread of its own. Afterwards no call waits.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustls::ClientConnection;
use socket2::{SockRef, TcpKeepalive};

use crate::tls::{self, TlsError, TlsOptions};
use crate::unacknowledged::unacknowledged;

/// Longest wait for a connection to one address, and then for its handshake.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A collector that acknowledges nothing for this long is considered gone.
const SILENCE_MAX: Duration = Duration::from_secs(120);
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Reads in one turn: a collector has nothing to send, so anything beyond waits for the next turn.
const READS_MAX: usize = 16;
/// Pause after the first datagram: time for an ICMP error to report that no process listens.
const SETTLE: Duration = Duration::from_millis(50);

/// Address of a collector, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorAddress {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) transport: CollectorTransport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CollectorTransport {
    Udp,
    Tcp,
    Tls(TlsOptions),
}

/// Reasons why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot resolve {address}: {source}")]
    Resolve { address: String, source: io::Error },
    #[error("{address} has no address")]
    NoAddress { address: String },
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("no TLS with {address}: {source}")]
    Handshake { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

#[derive(Debug)]
pub(crate) struct CollectorConnection {
    socket: Socket,
    /// Bytes of messages that were accepted from the caller.
    taken: u64,
}

#[derive(Debug)]
enum Socket {
    Udp { socket: UdpSocket, first_sent: Option<Instant> },
    Tcp(TcpStream),
    Tls(Box<Tls>),
}

#[derive(Debug)]
struct Tls {
    stream: TcpStream,
    session: ClientConnection,
    /// Bytes written to `stream`.
    written: u64,
    /// Marks of moments at which all accepted bytes had been written: bytes accepted, bytes
    /// written.
    marks: VecDeque<(u64, u64)>,
    acknowledged: u64,
}

impl CollectorConnection {
    /// Resolves the address and connects to the first one that answers. Blocks.
    ///
    /// # Errors
    /// The error of the last address.
    pub(crate) fn connect(target: &CollectorAddress) -> Result<Self, ConnectError> {
        let address = || target.address.clone();
        let addresses = target
            .address
            .to_socket_addrs()
            .map_err(|source| ConnectError::Resolve { address: address(), source })?;
        let mut last = ConnectError::NoAddress { address: address() };
        for socket_address in addresses {
            match Socket::connect(target, socket_address) {
                Ok(socket) => return Ok(Self { socket, taken: 0 }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn is_datagram(&self) -> bool {
        matches!(self.socket, Socket::Udp { .. })
    }

    /// Returns the number of bytes accepted so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Accepts bytes, over UDP one message, and returns how many: 0 if there is no room at present.
    ///
    /// # Errors
    /// Any error means that the connection has ended.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = match &mut self.socket {
            Socket::Udp { socket, first_sent } => send(socket, first_sent, bytes)?,
            Socket::Tcp(stream) => or_zero(stream.write(bytes))?,
            Socket::Tls(tls) => tls.write(bytes, self.taken)?,
        };
        self.taken += taken as u64;
        Ok(taken)
    }

    /// Checks that the other end is still there. Bytes that it sends are read and ignored.
    ///
    /// # Errors
    /// Any error means that it is not.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        match &mut self.socket {
            Socket::Udp { socket, .. } => read_datagrams(socket),
            Socket::Tcp(stream) => read_all(stream),
            Socket::Tls(tls) => {
                tls.flush(self.taken)?;
                tls.read()
            }
        }
    }

    /// Returns how many of the accepted bytes the other end's kernel has acknowledged. UDP has no
    /// acknowledgements: there it returns all accepted bytes.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn acknowledged(&mut self) -> io::Result<u64> {
        match &mut self.socket {
            Socket::Udp { .. } => Ok(self.taken),
            Socket::Tcp(stream) => Ok(self.taken.saturating_sub(unacknowledged(stream)?)),
            Socket::Tls(tls) => tls.acknowledged(),
        }
    }

    /// Waits until there is something to read, or room to write if `is_room_wanted`.
    pub(crate) fn wait(&self, is_room_wanted: bool, patience: Duration) {
        let socket = match &self.socket {
            Socket::Udp { socket, .. } => socket.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Tls(tls) => tls.stream.as_fd(),
        };
        let room = match &self.socket {
            Socket::Tls(tls) => is_room_wanted || tls.session.wants_write(),
            // A UDP socket always has room, but may have to wait for `SETTLE`.
            Socket::Udp { .. } => false,
            Socket::Tcp(_) => is_room_wanted,
        };
        let events = if room { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        // An error of poll(2) is one of the socket, which the next call reports, or a signal.
        let _ = nix::poll::poll(&mut [PollFd::new(socket, events)], patience);
    }

    /// Signals the end of the data to the other end.
    pub(crate) fn close(mut self) {
        let stream = match &mut self.socket {
            Socket::Udp { .. } => return,
            Socket::Tcp(stream) => stream,
            Socket::Tls(tls) => {
                tls.session.send_close_notify();
                // The close notification is sent only if there is room for it at once.
                let _ = tls.flush(self.taken);
                &mut tls.stream
            }
        };
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
}

impl Socket {
    fn connect(target: &CollectorAddress, address: SocketAddr) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError::Connect { address, source };
        match &target.transport {
            CollectorTransport::Udp => {
                let socket = connect_udp(address).map_err(failed)?;
                Ok(Self::Udp { socket, first_sent: None })
            }
            CollectorTransport::Tcp => {
                let stream = connect_tcp(address).map_err(failed)?;
                stream.set_nonblocking(true).map_err(failed)?;
                Ok(Self::Tcp(stream))
            }
            CollectorTransport::Tls(options) => {
                let config = tls::client_config(options)?;
                let name = tls::server_name(options, &target.address)?;
                let session = ClientConnection::new(config, name).map_err(TlsError::from)?;
                let stream = connect_tcp(address).map_err(failed)?;
                let failed = |source| ConnectError::Handshake { address, source };
                Ok(Self::Tls(Box::new(Tls::shake_hands(stream, session).map_err(failed)?)))
            }
        }
    }
}

fn connect_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    Ok(stream)
}

fn send(socket: &UdpSocket, first_sent: &mut Option<Instant>, message: &[u8]) -> io::Result<usize> {
    if first_sent.is_some_and(|at| at.elapsed() < SETTLE) {
        return Ok(0);
    }
    let sent = match socket.send(message) {
        // The queue of the interface is full: for datagrams this is not the end of the connection.
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => 0,
        result => or_zero(result)?,
    };
    if sent > 0 && first_sent.is_none() {
        *first_sent = Some(Instant::now());
    }
    Ok(sent)
}

impl Tls {
    fn shake_hands(mut stream: TcpStream, mut session: ClientConnection) -> io::Result<Self> {
        let end = Instant::now() + CONNECT_PATIENCE;
        while session.is_handshaking() || session.wants_write() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = "the collector does not end the handshake";
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            if session.wants_write() {
                stream.set_write_timeout(Some(left))?;
                or_zero(session.write_tls(&mut stream))?;
                continue;
            }
            stream.set_read_timeout(Some(left))?;
            match session.read_tls(&mut stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if !is_later(&error) => return Err(error),
                _ => {}
            }
            if let Err(error) = session.process_new_packets() {
                // The alert tells the collector the reason; without room for it the end of the
                // connection has to be enough.
                let _ = session.write_tls(&mut stream);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, session, written: 0, marks: VecDeque::new(), acknowledged: 0 })
    }

    fn write(&mut self, bytes: &[u8], taken: u64) -> io::Result<usize> {
        if !self.flush(taken)? {
            return Ok(0);
        }
        let count = self.session.writer().write(bytes)?;
        self.flush(taken + count as u64)?;
        Ok(count)
    }

    /// Writes the bytes that the session has produced. True if no more are left.
    fn flush(&mut self, taken: u64) -> io::Result<bool> {
        while self.session.wants_write() {
            match or_zero(self.session.write_tls(&mut self.stream))? {
                0 => return Ok(false),
                count => self.written += count as u64,
            }
        }
        if self.marks.back().map_or(self.acknowledged, |mark| mark.0) < taken {
            self.marks.push_back((taken, self.written));
        }
        Ok(true)
    }

    fn read(&mut self) -> io::Result<()> {
        for _ in 0..READS_MAX {
            match self.session.read_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.session.process_new_packets().map_err(io::Error::other)?;
            read_all(&mut self.session.reader())?;
        }
        Ok(())
    }

    fn acknowledged(&mut self) -> io::Result<u64> {
        let acknowledged = self.written.saturating_sub(unacknowledged(&self.stream)?);
        while let Some((taken, written)) = self.marks.front() {
            if *written > acknowledged {
                break;
            }
            self.acknowledged = *taken;
            self.marks.pop_front();
        }
        Ok(self.acknowledged)
    }
}

/// Reads the datagrams that have arrived, up to a limit. An ICMP error is returned in place of a
/// datagram.
fn read_datagrams(socket: &UdpSocket) -> io::Result<()> {
    for _ in 0..READS_MAX {
        match socket.recv(&mut [0]) {
            Ok(_) => {}
            Err(error) if is_later(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the bytes that have arrived, up to a limit.
fn read_all(from: &mut impl Read) -> io::Result<()> {
    let mut bytes = [0; 4096];
    for _ in 0..READS_MAX {
        match from.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if is_later(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn or_zero(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if is_later(&error) => Ok(0),
        result => result,
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_of_the_collector_does_not_keep_the_thread_awake() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = collector.local_addr().unwrap().to_string();
        let mut connection = CollectorConnection::connect(&CollectorAddress {
            address,
            transport: CollectorTransport::Udp,
        })
        .unwrap();
        connection.write(b"message").unwrap();
        let (_, sender) = collector.recv_from(&mut [0; 64]).unwrap();
        collector.send_to(b"answer", sender).unwrap();
        // It is in the socket's buffer already: loopback delivers within the call.
        connection.check().unwrap();
        let Socket::Udp { socket, .. } = &connection.socket else { panic!("not UDP") };
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
