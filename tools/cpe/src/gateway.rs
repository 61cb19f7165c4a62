//! The devices of a home gateway and its two threads, one per direction.
//!
//! Both threads block in a read. The process ends on a signal or when a thread cannot continue. The
//! TUN device, its addresses and its routes live as long as its descriptor, so they disappear with
//! the process, whichever way it ends.

use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use ipnet::Ipv6Net;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::link::{Link, Mtus};
use crate::outer_socket::OuterSocket;
use crate::tunnel::{Ends, Inside, Tunnel};
use crate::{Config, IPV6_MTU_MIN};

/// Smallest MTU of a link that carries IPv4, bytes (RFC 791).
const IPV4_MTU_MIN: u16 = 68;
/// Packets that the kernel queues while the gateway is not on a core: about 20 ms at 1 Gbit/s.
const TUN_QUEUE: u32 = 2000;

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
    /// The TUN device could not get its IPv6 address.
    #[error("IPv6 address {address} on {tun}; it needs net.ipv6.conf.default.disable_ipv6 = 0")]
    Address6 {
        /// The TUN device.
        tun: String,
        /// Requested address.
        address: Ipv6Net,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No address is configured inside the tunnel, so it would carry nothing.
    #[error("TUN device {0} has neither an IPv4 nor an IPv6 address")]
    NoAddress(String),
    /// The MTU of the tunnel is less than every link of a family carries.
    #[error("an MTU of {mtu} is too small for the addresses inside, the least is {least}")]
    Mtu {
        /// Configured MTU, bytes.
        mtu: u16,
        /// The smallest possible one, bytes.
        least: u16,
    },
    /// The ends of the tunnel are an IPv4 and an IPv6 address.
    #[error("tunnel endpoints {local} and {remote} are of different families")]
    Families {
        /// Outer source.
        local: IpAddr,
        /// Outer destination.
        remote: IpAddr,
    },
    /// The raw socket could not be opened or bound: no permission, or no such local address.
    #[error("GRE socket {local} -> {remote}")]
    Socket {
        /// Outer source.
        local: IpAddr,
        /// Outer destination.
        remote: IpAddr,
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
    /// Of both directions: refused by the tunnel, or not taken by the socket or the device.
    pub dropped: u64,
}

impl Gateway {
    /// Opens the raw socket, makes the TUN device, its addresses and its routes.
    ///
    /// # Errors
    /// All of [`OpenError`].
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let (local, remote) = (config.local, config.remote);
        let ends = Ends::new(local, remote).ok_or(OpenError::Families { local, remote })?;
        let inside =
            Inside { ipv4: config.tun_address.is_some(), ipv6: config.tun_address6.is_some() };
        let least = least_mtu(config, inside)?;
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(OpenError::Signals)?;
        let socket = OuterSocket::open(ends).map_err(|source| OpenError::Socket {
            local,
            remote,
            source,
        })?;
        let tun = make_tun(config)?;
        for route in &config.routes {
            add_route(config, inside, route)?;
        }
        let tunnel = Tunnel::new(ends, config.key, inside);
        let link = Link::new(tun, socket, tunnel, Mtus { configured: config.mtu, least });
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
        Ok(self.link.totals())
    }
}

/// Returns the smallest MTU that the tunnel may have.
fn least_mtu(config: &Config, inside: Inside) -> Result<u16, OpenError> {
    let least = match inside {
        Inside { ipv6: true, .. } => IPV6_MTU_MIN,
        Inside { ipv4: true, .. } => IPV4_MTU_MIN,
        _ => return Err(OpenError::NoAddress(config.tun.clone())),
    };
    if config.mtu < least {
        return Err(OpenError::Mtu { mtu: config.mtu, least });
    }
    Ok(least)
}

/// Makes the TUN device with its MTU and its addresses, up.
fn make_tun(config: &Config) -> Result<SyncDevice, OpenError> {
    let mut builder = DeviceBuilder::new().name(&config.tun).mtu(config.mtu).with(|device| {
        device.tx_queue_len(TUN_QUEUE);
    });
    if let Some(address) = config.tun_address {
        builder = builder.ipv4(address.addr(), address.prefix_len(), None);
    }
    let tun = builder
        .build_sync()
        .map_err(|source| OpenError::Tun { name: config.tun.clone(), source })?;
    if let Some(address) = config.tun_address6 {
        tun.add_address_v6(address.addr(), address.prefix_len())
            .map_err(|source| OpenError::Address6 { tun: config.tun.clone(), address, source })?;
    }
    Ok(tun)
}

/// Routes a prefix through the tunnel: "default" in each family that the tunnel carries.
fn add_route(config: &Config, inside: Inside, route: &str) -> Result<(), OpenError> {
    let is_default = route == "default";
    let families = [
        ("-4", if is_default { inside.ipv4 } else { !route.contains(':') }),
        ("-6", if is_default { inside.ipv6 } else { route.contains(':') }),
    ];
    for (family, _) in families.into_iter().filter(|(_, is_meant)| *is_meant) {
        let refused = |reason: String| OpenError::Route {
            route: route.to_owned(),
            tun: config.tun.clone(),
            reason,
        };
        let output = Command::new("ip")
            .args([family, "route", "add", route, "dev", &config.tun])
            .output()
            .map_err(|error| refused(format!("ip (package iproute2): {error}")))?;
        if !output.status.success() {
            return Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
    }
    Ok(())
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
