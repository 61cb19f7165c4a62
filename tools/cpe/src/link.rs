//! Between the TUN device and the tunnel's socket: one loop per direction, and the MTU of both.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tun_rs::SyncDevice;

use crate::IPV6_MTU_MIN;
use crate::gateway::Totals;
use crate::outer_socket::{OuterSocket, is_transient};
use crate::path_mtu::PathMtu;
use crate::tunnel::{self, Ends, Tunnel};

/// Longest packet of either family without a jumbo payload, bytes: an IPv6 header and 65,535.
const PACKET_MAX: usize = 65_575;
/// Transmissions of a packet: an error that a call returns may concern an earlier packet.
const ATTEMPTS: usize = 2;

/// Limits of the TUN device's MTU, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtus {
    /// Its value while the path carries it.
    pub(crate) configured: u16,
    /// Its smallest value, whatever the path carries.
    pub(crate) least: u16,
}

/// The two sides of a gateway.
pub(crate) struct Link {
    tun: SyncDevice,
    socket: OuterSocket,
    tunnel: Tunnel,
    mtus: Mtus,
    path_mtu: Mutex<PathMtu>,
    /// Identification of fragmented outer IPv6 packets.
    identification: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("tunnel", &self.tunnel).finish_non_exhaustive()
    }
}

impl Link {
    /// Joins a TUN device whose MTU is `mtus.configured` to the socket of the tunnel.
    pub(crate) fn new(tun: SyncDevice, socket: OuterSocket, tunnel: Tunnel, mtus: Mtus) -> Self {
        let headroom = tunnel.headroom() as u16;
        let floor = match tunnel.ends() {
            Ends::V4 { .. } => mtus.least.saturating_add(headroom),
            Ends::V6 { .. } => IPV6_MTU_MIN,
        };
        Self {
            tun,
            socket,
            tunnel,
            mtus,
            path_mtu: Mutex::new(PathMtu::new(mtus.configured.saturating_add(headroom), floor)),
            // Others must not predict the identification (RFC 7739).
            identification: AtomicU32::new(RandomState::new().hash_one(0) as u32),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Returns the packets so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }

    /// TUN to tunnel. Returns with the error of a device that fails.
    pub(crate) fn upstream(&self) -> io::Result<()> {
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
                Ok(()) => self.send(packet)?,
                Err(_) => false,
            };
            let counter = if sent { &self.sent } else { &self.dropped };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Tunnel to TUN. Returns with the error of a device that fails.
    pub(crate) fn downstream(&self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET_MAX];
        loop {
            let received = match self.socket.receive(&mut buffer) {
                Ok(received) => received,
                // ICMP errors about packets sent earlier (the peer is not up yet) come back as
                // errors here.
                Err(error) if is_transient(&error) => {
                    self.learn_path_mtu()?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let delivered = received.is_some_and(|received| {
                let gre = &mut buffer[received.gre];
                let inner = self.tunnel.decapsulate(gre, received.traffic_class);
                inner.is_ok_and(|inner| self.tun.send(inner).is_ok())
            });
            let counter = if delivered { &self.received } else { &self.dropped };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Sends an outer packet. False if it is lost (no route, a full queue, an outer IPv4 packet too
    /// big for the access link): the packet is lost, the tunnel is not.
    fn send(&self, packet: &[u8]) -> io::Result<bool> {
        let is_raised = self.path_mtu().raise_if_old(Instant::now());
        if is_raised {
            self.set_tun_mtu()?;
        }
        for _ in 0..ATTEMPTS {
            match self.send_within_mtu(packet) {
                Ok(()) => return Ok(true),
                Err(error) if is_transient(&error) => self.learn_path_mtu()?,
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Sends an outer packet, in fragments if it is an IPv6 packet above the path MTU. Routers
    /// fragment the IPv4 packets that may be fragmented.
    fn send_within_mtu(&self, packet: &[u8]) -> io::Result<()> {
        let mtu = self.path_mtu().get();
        match self.tunnel.ends() {
            Ends::V6 { .. } if packet.len() > usize::from(mtu) => {
                let identification = self.identification.fetch_add(1, Relaxed);
                tunnel::fragments(packet, mtu, identification)
                    .try_for_each(|fragment| self.socket.send(&fragment))
            }
            _ => self.socket.send(packet),
        }
    }

    /// Reads the ICMP errors that have come; if they state a smaller path MTU, the TUN device gets
    /// the MTU that follows from it, and the kernel makes the home's packets fit.
    fn learn_path_mtu(&self) -> io::Result<()> {
        let stated = self.socket.stated_mtu()?;
        let is_lowered = stated.is_some_and(|mtu| self.path_mtu().lower(mtu, Instant::now()));
        if is_lowered { self.set_tun_mtu() } else { Ok(()) }
    }

    fn set_tun_mtu(&self) -> io::Result<()> {
        let path_mtu = self.path_mtu();
        let fitting = path_mtu.get().saturating_sub(self.tunnel.headroom() as u16);
        self.tun.set_mtu(fitting.clamp(self.mtus.least, self.mtus.configured))
    }

    fn path_mtu(&self) -> MutexGuard<'_, PathMtu> {
        self.path_mtu.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
