//! Collectors that read the exporter's output.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use socket2::SockRef;

use super::PATIENCE;
use super::certificates::Certificate;

/// A record of template 256 with the enterprise-specific elements: its index is at the end.
const BLOCK_SET: u16 = 256;
const BLOCK_BYTES: usize = 46;

pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) fn bind(port: u16) -> Self {
        Self(TcpListener::bind(("127.0.0.1", port)).unwrap())
    }

    /// Makes connections buffer little unread data.
    pub(crate) fn with_a_small_buffer(self) -> Self {
        SockRef::from(&self.0).set_recv_buffer_size(32 << 10).unwrap();
        self
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    pub(crate) fn accept(&self) -> TcpStream {
        self.0.set_nonblocking(true).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("no exporter connects: {error}"),
            }
        }
    }

    pub(crate) fn accept_and_send(&self, text: &[u8]) {
        let mut stream = self.accept();
        stream.write_all(text).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    }

    /// Completes the TLS handshake; with `clients` a client has to present a certificate of that
    /// authority.
    pub(crate) fn accept_tls(
        &self,
        certificate: &Certificate,
        clients: Option<&Certificate>,
    ) -> io::Result<StreamOwned<ServerConnection, TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(&authority.file).unwrap()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = vec![CertificateDer::from_pem_file(&certificate.file).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
        let config = builder.with_single_cert(chain, key).unwrap();
        let mut session = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = self.accept();
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }
}

/// Reads messages until `is_enough`; returns their indices.
pub(crate) fn indices_of_syslog(
    stream: &mut impl Read,
    is_enough: impl Fn(&[u64]) -> bool,
) -> Vec<u64> {
    let (mut bytes, mut seen, mut chunk) = (Vec::new(), Vec::new(), vec![0; 64 << 10]);
    while !is_enough(&seen) {
        let count = read(stream, &mut chunk, seen.len());
        bytes.extend_from_slice(&chunk[..count]);
        let mut at = 0;
        while let Some((message, end)) = frame(&bytes[at..]) {
            seen.extend(index(message));
            at += end;
        }
        bytes.drain(..at);
    }
    seen
}

/// Reads messages and appends them as lines until `is_last`; returns the indices of those that have
/// one.
pub(crate) fn read_syslog(
    stream: &mut impl Read,
    text: &mut String,
    mut is_last: impl FnMut(&str) -> bool,
) -> Vec<u64> {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    loop {
        let mut length = 0;
        loop {
            stream.read_exact(&mut byte).unwrap();
            if byte[0] == b' ' {
                break;
            }
            length = length * 10 + usize::from(byte[0] - b'0');
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message).unwrap();
        seen.extend(index(&message));
        let message = std::str::from_utf8(&message).unwrap();
        text.push_str(message);
        text.push('\n');
        if is_last(message) {
            return seen;
        }
    }
}

/// Returns the first message, if it is whole, and its end.
fn frame(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).unwrap().parse().unwrap();
    let message = bytes.get(space + 1..space + 1 + length)?;
    assert!(message.starts_with(b"<134>1 ") && message.ends_with(b"]"));
    Some((message, space + 1 + length))
}

fn index(message: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(message).unwrap();
    let (_, rest) = text.split_once(" index=\"")?;
    rest.split_once('"')?.0.parse().ok()
}

/// Returns the sum of the losses that the messages state.
pub(crate) fn records_lost(text: &str) -> u64 {
    let lost = text.lines().filter(|line| line.contains(" records-lost "));
    lost.map(|line| {
        let (_, rest) = line.split_once(" count=\"").unwrap();
        rest.split_once('"').unwrap().0.parse::<u64>().unwrap()
    })
    .sum()
}

/// Reads IPFIX messages with allocated blocks; returns their indices.
pub(crate) fn indices_of_ipfix(
    stream: &mut impl Read,
    is_enough: impl Fn(&[u64]) -> bool,
) -> Vec<u64> {
    let (mut bytes, mut seen, mut chunk) = (Vec::new(), Vec::new(), vec![0; 256 << 10]);
    while !is_enough(&seen) {
        let count = read(stream, &mut chunk, seen.len());
        bytes.extend_from_slice(&chunk[..count]);
        let mut at = 0;
        while let Some(length) = bytes.get(at + 2..at + 4) {
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let Some(message) = bytes.get(at..at + length) else { break };
            indices_in(message, &mut seen);
            at += length;
        }
        bytes.drain(..at);
    }
    seen
}

/// Reads datagrams of IPFIX with allocated blocks; returns their indices.
pub(crate) fn indices_of_datagrams(
    socket: &UdpSocket,
    is_enough: impl Fn(&[u64]) -> bool,
) -> Vec<u64> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut seen, mut datagram) = (Vec::new(), vec![0; 65_536]);
    while !is_enough(&seen) {
        let count = socket.recv(&mut datagram).unwrap();
        assert!(count <= 1500 - 48);
        indices_in(&datagram[..count], &mut seen);
    }
    seen
}

fn indices_in(message: &[u8], seen: &mut Vec<u64>) {
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    assert_eq!((number(0), usize::from(number(2))), (10, message.len()));
    let mut at = 16;
    while at < message.len() {
        let (set, end) = (number(at), at + usize::from(number(at + 2)));
        if set == BLOCK_SET {
            for record in message[at + 4..end].chunks_exact(BLOCK_BYTES) {
                seen.push(u64::from_be_bytes(record[BLOCK_BYTES - 8..].try_into().unwrap()));
            }
        }
        at = end;
    }
}

fn read(stream: &mut impl Read, chunk: &mut [u8], seen: usize) -> usize {
    let count = stream.read(chunk).unwrap_or_else(|error| panic!("after {seen}: {error}"));
    assert!(count > 0, "the exporter has closed after {seen}");
    count
}
