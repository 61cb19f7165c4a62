//! The devices of a home gateway and its two threads, one per direction.
//!
//! Both threads block in a read. The process ends on a signal or when a thread cannot continue. The
//! TUN device, its address and its routes live as long as its descriptor, so they disappear with
//! the process, whichever way it ends.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use socket2::{Domain, Protocol, Socket, Type};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::Config;
use crate::tunnel::Tunnel;

/// Longest IPv4 packet in bytes.
const PACKET_MAX: usize = 65_535;
/// Packets that the kernel queues while the gateway is not on a core: about 20 ms at 1 Gbit/s.
const TUN_QUEUE: u32 = 2000;
/// Receive and send buffer requested for the raw socket, bytes; the kernel may give less.
const SOCKET_BUFFER: usize = 4 << 20;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The TUN device could not be made: no permission, no /dev/net/tun, or the name is taken.
    #[error("TUN device {name}")]
    Tun {
        /// Requested name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The raw socket could not be opened or bound: no permission, or no such local address.
    #[error("GRE socket {local} -> {remote}")]
    Socket {
        /// Outer source.
        local: Ipv4Addr,
        /// Outer destination.
        remote: Ipv4Addr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A route through the tunnel was refused.
    #[error("route {route} via {tun}: {reason}")]
    Route {
        /// Requested prefix.
        route: String,
        /// The TUN device.
        tun: String,
        /// Output of `ip route`.
        reason: String,
    },
    /// Signals could not be caught.
    #[error("signal handlers: {0}")]
    Signals(io::Error),
}

/// An open gateway, not yet forwarding.
#[derive(Debug)]
pub struct Gateway {
    link: Arc<Link>,
    signals: Signals,
}

/// Packets of each direction since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Sent into the tunnel.
    pub sent: u64,
    /// Received from the tunnel and given to the TUN device.
    pub received: u64,
    /// Sent into the tunnel.
    pub dropped: u64,
}

struct Link {
    tun: SyncDevice,
    socket: Socket,
    tunnel: Tunnel,
    sent: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("tunnel", &self.tunnel).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Opens the raw socket, makes the TUN device, its address and its routes.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(OpenError::Signals)?;
        let socket = open_socket(config).map_err(|source| OpenError::Socket {
            local: config.local,
            remote: config.remote,
            source,
        })?;
        let tun = DeviceBuilder::new()
            .name(&config.tun)
            .ipv4(config.tun_address.addr(), config.tun_address.prefix_len(), None)
            .mtu(config.mtu)
            .with(|device| {
                device.tx_queue_len(TUN_QUEUE);
            })
            .build_sync()
            .map_err(|source| OpenError::Tun { name: config.tun.clone(), source })?;
        for route in &config.routes {
            add_route(&config.tun, route)?;
        }
        let link = Link {
            tun,
            socket,
            tunnel: Tunnel { local: config.local, remote: config.remote, key: config.key },
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        Ok(Self { link: Arc::new(link), signals })
    }

    /// Forwards until SIGTERM, SIGINT or SIGHUP, or until a device fails. The threads end with
    /// the process.
    pub fn run(mut self) -> io::Result<Totals> {
        let (ended, end) = mpsc::channel();
        let link = Arc::clone(&self.link);
        spawn("cpe-up", ended.clone(), move || link.upstream())?;
        let link = Arc::clone(&self.link);
        spawn("cpe-down", ended.clone(), move || link.downstream())?;
        spawn("cpe-signal", ended, move || {
            self.signals.forever().next();
            Ok(())
        })?;
        // Every sender reports before it is dropped, so this never sees a closed channel.
        end.recv().unwrap_or(Ok(()))?;
        Ok(Totals {
            sent: self.link.sent.load(Relaxed),
            received: self.link.received.load(Relaxed),
            dropped: self.link.dropped.load(Relaxed),
        })
    }
}

impl Link {
    /// TUN to tunnel.
    fn upstream(&self) -> io::Result<()> {
        let headroom = self.tunnel.headroom();
        let mut buffer = vec![0; headroom + PACKET_MAX];
        let mut identification = 0u16;
        loop {
            let length = match self.tun.recv(&mut buffer[headroom..]) {
                Ok(length) => length,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            // The kernel would replace 0 by an identification that it chooses.
            identification = identification.wrapping_add(1).max(1);
            let packet = &mut buffer[..headroom + length];
            let sent = match self.tunnel.encapsulate(packet, identification) {
                // No route, a full queue, an outer packet too big for the access link: the packet
                // is lost, the tunnel is not.
                Ok(()) => self.socket.send(packet).is_ok(),
                Err(_) => false,
            };
            let counter = if sent { &self.sent } else { &self.dropped };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Tunnel to TUN.
    fn downstream(&self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET_MAX];
        let mut socket = &self.socket;
        loop {
            let length = match socket.read(&mut buffer) {
                Ok(length) => length,
                // ICMP errors about packets sent earlier (the peer is not up yet) come back as
                // errors here.
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            let received = match self.tunnel.decapsulate(&mut buffer[..length]) {
                Ok(inner) => self.tun.send(inner).is_ok(),
                Err(_) => false,
            };
            let counter = if received { &self.received } else { &self.dropped };
            counter.fetch_add(1, Relaxed);
        }
    }
}

/// True for an error that concerns one packet and not the socket: the kernel's errors for ICMP
/// errors that come back, and an interrupted call.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNREFUSED
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EMSGSIZE
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
        )
    )
}

/// Opens a raw socket that takes whole IPv4 packets and receives only packets from the endpoint.
fn open_socket(config: &Config) -> io::Result<Socket> {
    let gre = Protocol::from(i32::from(weir_wire::ipv4::PROTOCOL_GRE));
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(gre))?;
    socket.set_header_included_v4(true)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&SocketAddrV4::new(config.local, 0).into())?;
    socket.connect(&SocketAddrV4::new(config.remote, 0).into())?;
    Ok(socket)
}

fn add_route(tun: &str, route: &str) -> Result<(), OpenError> {
    let refused =
        |reason: String| OpenError::Route { route: route.to_owned(), tun: tun.to_owned(), reason };
    let output = Command::new("ip")
        .args(["-4", "route", "add", route, "dev", tun])
        .output()
        .map_err(|error| refused(format!("ip (package iproute2): {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn spawn(
    name: &str,
    ended: Sender<io::Result<()>>,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The receiver is gone only when another thread ended the gateway first.
        let _ = ended.send(body());
    })?;
    Ok(())
}
