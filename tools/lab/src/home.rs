//! A home: a namespace with a kernel TCP/IP stack, behind `weir-lab cpe` or plain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

use crate::namespace::Namespace;
use crate::process::{Finished, Process};

/// Time limit of every socket of a home.
pub const SOCKET_DEADLINE: Duration = Duration::from_secs(5);

/// One home of the laboratory.
#[derive(Debug)]
pub struct Home {
    /// The namespace in which its programs run.
    pub namespace: Namespace,
    /// Its address on the access network; in plain mode the same as `inside`.
    pub outer: Ipv4Addr,
    /// Its address as its own programs see it.
    pub inside: Ipv4Addr,
    /// Its IPv6 address, where the laboratory has IPv6; nothing translates it.
    pub inside6: Option<Ipv6Addr>,
    /// The gateway, in gre mode.
    pub gateway: Option<Process>,
}

impl Home {
    /// Runs a program in the home; fails if the program fails or takes longer than `deadline`.
    pub fn run(&self, deadline: Duration, program: &str, args: &[&str]) -> Result<Finished> {
        let finished = self.namespace.run(deadline, program, args)?;
        finished.success().with_context(|| format!("{program} {}", args.join(" ")))
    }

    /// Returns its IPv6 address; fails in a laboratory without IPv6.
    pub fn address6(&self) -> Result<Ipv6Addr> {
        self.inside6.context("the laboratory has no IPv6")
    }

    /// Opens a UDP socket of the home's IPv4 address on the given local port (0: any).
    pub fn udp(&self, port: u16) -> Result<UdpSocket> {
        self.udp_of(self.inside, port)
    }

    /// Like [`udp`](Self::udp), of any address of the home.
    pub fn udp_of(&self, address: impl Into<IpAddr>, port: u16) -> Result<UdpSocket> {
        let local = SocketAddr::new(address.into(), port);
        self.namespace.enter(|| {
            let socket = UdpSocket::bind(local)?;
            socket.set_read_timeout(Some(SOCKET_DEADLINE))?;
            Ok(socket)
        })
    }

    /// Opens a TCP connection from the given local port (0: any), of the home's address of the
    /// family of `remote`.
    pub fn tcp(&self, port: u16, remote: impl Into<SocketAddr>) -> Result<TcpStream> {
        let remote = remote.into();
        let local = match remote {
            SocketAddr::V4(_) => self.inside.into(),
            SocketAddr::V6(_) => self.address6()?.into(),
        };
        let local = SocketAddr::new(local, port);
        self.namespace.enter(|| {
            let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&local.into())?;
            socket.connect_timeout(&remote.into(), SOCKET_DEADLINE)?;
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(SOCKET_DEADLINE))?;
            stream.set_write_timeout(Some(SOCKET_DEADLINE))?;
            Ok(stream)
        })
    }
}
