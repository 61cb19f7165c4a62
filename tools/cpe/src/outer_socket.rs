//! The raw socket of the access network: outer packets out, GRE in, and the ICMP errors about them.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::tunnel::{self, Ends};

/// Receive and send buffer requested for the raw socket, bytes; the kernel may give less.
const SOCKET_BUFFER: usize = 4 << 20;

/// A raw socket that takes whole outer packets and receives only packets from the endpoint.
#[derive(Debug)]
pub(crate) struct OuterSocket {
    socket: Socket,
    ends: Ends,
}

/// A received packet in the buffer of the caller.
#[derive(Debug)]
pub(crate) struct Received {
    /// The GRE header and all behind it.
    pub(crate) gre: Range<usize>,
    /// Traffic class (IPv6) or type of service (IPv4) of the outer header.
    pub(crate) traffic_class: u8,
}

impl OuterSocket {
    /// Opens the socket between `ends`. Its queue of ICMP errors is on.
    pub(crate) fn open(ends: Ends) -> io::Result<Self> {
        let gre = Protocol::from(i32::from(weir_wire::ipv4::PROTOCOL_GRE));
        let (domain, local, remote): (_, SockAddr, SockAddr) = match ends {
            Ends::V4 { local, remote } => (
                Domain::IPV4,
                SocketAddrV4::new(local, 0).into(),
                SocketAddrV4::new(remote, 0).into(),
            ),
            Ends::V6 { local, remote } => (
                Domain::IPV6,
                SocketAddrV6::new(local, 0, 0, 0).into(),
                SocketAddrV6::new(remote, 0, 0, 0).into(),
            ),
        };
        let socket = Socket::new(domain, Type::RAW, Some(gre))?;
        match ends {
            Ends::V4 { .. } => {
                socket.set_header_included_v4(true)?;
                setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
            }
            Ends::V6 { .. } => {
                socket.set_header_included_v6(true)?;
                socket.set_recv_tclass_v6(true)?;
                setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
            }
        }
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
        socket.bind(&local)?;
        socket.connect(&remote)?;
        Ok(Self { socket, ends })
    }

    /// Sends one packet, which begins with the outer header.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.socket.send(packet).map(|_| ())
    }

    /// Waits for a packet. None if its outer header is malformed.
    ///
    /// An IPv4 socket delivers the outer header; an IPv6 socket delivers what follows it, whole
    /// (the kernel reassembles fragments), and its traffic class beside it.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = cmsg_space!(libc::c_int);
        let mut parts = [IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::empty(),
        )?;
        let length = message.bytes;
        let traffic_class = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
            _ => None,
        });
        Ok(match self.ends {
            Ends::V4 { .. } => tunnel::behind_ipv4(&buffer[..length])
                .ok()
                .map(|(gre, traffic_class)| Received { gre, traffic_class }),
            Ends::V6 { .. } => {
                Some(Received { gre: 0..length, traffic_class: traffic_class.unwrap_or_default() })
            }
        })
    }

    /// Empties the queue of errors and returns the smallest MTU that one of them states, bytes: of
    /// a router on the path, or of the first link.
    pub(crate) fn stated_mtu(&self) -> io::Result<Option<u32>> {
        let mut smallest: Option<u32> = None;
        loop {
            // An IPv6 socket adds the traffic class.
            let mut control = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6, libc::c_int);
            // The quoted packet is of no interest and may be cut.
            let mut quote = [0; 64];
            let mut parts = [IoSliceMut::new(&mut quote)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let message =
                match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
                {
                    Ok(message) => message,
                    Err(nix::errno::Errno::EAGAIN) => return Ok(smallest),
                    Err(nix::errno::Errno::EINTR) => continue,
                    Err(error) => return Err(error.into()),
                };
            for control in message.cmsgs()? {
                let (ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _)) = control
                else {
                    continue;
                };
                if error.ee_errno == libc::EMSGSIZE as u32 {
                    let stated = smallest.map_or(error.ee_info, |mtu| mtu.min(error.ee_info));
                    smallest = Some(stated);
                }
            }
        }
    }
}

/// True for an error that concerns one packet and not the socket: the kernel's errors for ICMP
/// errors that come back, and an interrupted call.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::EACCES
                | libc::ECONNREFUSED
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EMSGSIZE
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
        )
    )
}
