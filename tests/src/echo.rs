//! Servers that send back what they get and remember who sent it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::namespace::Namespace;

/// How often a server looks whether it shall end.
const STOP_POLL: Duration = Duration::from_millis(50);

/// A running echo server; it ends when dropped.
#[derive(Debug)]
pub struct Echo {
    local: SocketAddrV4,
    is_stopping: Arc<AtomicBool>,
    peers: Arc<Mutex<Vec<SocketAddr>>>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// UDP: every datagram goes back to its sender.
    pub fn udp(namespace: &Namespace, local: SocketAddrV4) -> Result<Self> {
        let socket = namespace.enter(|| Ok(UdpSocket::bind(local)?))?;
        socket.set_read_timeout(Some(STOP_POLL))?;
        Ok(Self::start(local, move |is_stopping, peers| {
            let mut buffer = [0; 65_535];
            while !is_stopping.load(Ordering::Relaxed) {
                if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                    remember(&peers, peer);
                    // A home that is gone loses its answer.
                    let _ = socket.send_to(&buffer[..length], peer);
                }
            }
        }))
    }

    /// TCP: every byte goes back on its connection.
    pub fn tcp(namespace: &Namespace, local: SocketAddrV4) -> Result<Self> {
        let listener = namespace.enter(|| Ok(TcpListener::bind(local)?))?;
        listener.set_nonblocking(true)?;
        Ok(Self::start(local, move |is_stopping, peers| {
            let mut streams = Vec::new();
            while !is_stopping.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        remember(&peers, peer);
                        let is_stopping = Arc::clone(&is_stopping);
                        streams.push(thread::spawn(move || echo(stream, &is_stopping)));
                    }
                    Err(_) => thread::sleep(STOP_POLL),
                }
            }
            for stream in streams {
                // A broken connection is the client's to notice.
                let _ = stream.join();
            }
        }))
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Every sender it has seen, each once, in order of appearance.
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(
        local: SocketAddrV4,
        serve: impl FnOnce(Arc<AtomicBool>, Arc<Mutex<Vec<SocketAddr>>>) + Send + 'static,
    ) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let peers = Arc::new(Mutex::new(Vec::new()));
        let (stopping, seen) = (Arc::clone(&is_stopping), Arc::clone(&peers));
        Self {
            local,
            is_stopping,
            peers,
            thread: Some(thread::spawn(move || serve(stopping, seen))),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn echo(mut stream: TcpStream, is_stopping: &AtomicBool) {
    let mut buffer = [0; 16_384];
    if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(Some(STOP_POLL)).is_err() {
        return;
    }
    while !is_stopping.load(Ordering::Relaxed) {
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
