//! Servers that send back what they receive and record the senders.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::namespace::Namespace;
use crate::threads::{Stop, Threads};

/// Interval at which a server checks whether it must end.
const STOP_POLL: Duration = Duration::from_millis(50);

/// A running echo server; it ends when dropped.
#[derive(Debug)]
pub struct Echo {
    local: SocketAddr,
    peers: Arc<Mutex<Vec<SocketAddr>>>,
    _threads: Threads,
}

impl Echo {
    /// Starts a UDP server: every datagram goes back to its sender.
    pub fn udp(namespace: &Namespace, local: impl Into<SocketAddr>) -> Result<Self> {
        let local = local.into();
        let socket = namespace.enter(|| Ok(UdpSocket::bind(local)?))?;
        socket.set_read_timeout(Some(STOP_POLL))?;
        Self::start(local, move |stop, peers| {
            let mut buffer = [0; 65_535];
            while !stop.is_set() {
                if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                    remember(peers, peer);
                    // The answer to a home that is gone is lost.
                    let _ = socket.send_to(&buffer[..length], peer);
                }
            }
        })
    }

    /// Starts a TCP server: every byte goes back on its connection.
    pub fn tcp(namespace: &Namespace, local: impl Into<SocketAddr>) -> Result<Self> {
        let local = local.into();
        let listener = namespace.enter(|| Ok(TcpListener::bind(local)?))?;
        listener.set_nonblocking(true)?;
        Self::start(local, move |stop, peers| {
            let mut streams = Vec::new();
            while !stop.is_set() {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        remember(peers, peer);
                        let stop = stop.clone();
                        streams.push(thread::spawn(move || echo(stream, &stop)));
                    }
                    Err(_) => thread::sleep(STOP_POLL),
                }
            }
            for stream in streams {
                // A broken connection is reported by the client.
                let _ = stream.join();
            }
        })
    }

    /// Returns the address on which the server listens.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns every sender seen, each once, in order of appearance.
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(
        local: SocketAddr,
        serve: impl FnOnce(&Stop, &Mutex<Vec<SocketAddr>>) + Send + 'static,
    ) -> Result<Self> {
        let peers = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&peers);
        let mut threads = Threads::default();
        threads.spawn("echo", move |stop| serve(stop, &seen))?;
        Ok(Self { local, peers, _threads: threads })
    }
}

fn echo(mut stream: TcpStream, stop: &Stop) {
    let mut buffer = [0; 16_384];
    if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(Some(STOP_POLL)).is_err() {
        return;
    }
    while !stop.is_set() {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

fn remember(peers: &Mutex<Vec<SocketAddr>>, peer: SocketAddr) {
    let mut peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
    if !peers.contains(&peer) {
        peers.push(peer);
    }
}
