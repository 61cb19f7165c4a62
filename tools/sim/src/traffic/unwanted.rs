//! Packets that the cluster must refuse, and those that only the port forward lets in.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_engine::Side;
use weir_nat::Protocol;
use weir_wire::{icmp, tcp};

use super::Traffic;
use super::flow::Socket;
use super::packet::{self, Mark};
use crate::options::Options;
use crate::site;

const STRANGER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 66);
const STRANGER_PORT: u16 = 666;

/// A packet on its way into the cluster: the side, and the address that the switch routes by.
pub(crate) type Sent = (Side, IpAddr, Vec<u8>);

/// Returns the flags of a packet that begins a flow.
fn opening(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Udp => 0,
        Protocol::Tcp => tcp::SYN,
        Protocol::Icmp => icmp::ECHO_REQUEST,
    }
}

/// Puts a packet of a home into its tunnel.
fn of_home(shard: u32, home: Ipv4Addr, inner: &[u8]) -> Sent {
    let endpoint = site::endpoint(shard);
    (Side::Access, endpoint.into(), packet::encapsulate(home, endpoint, inner))
}

impl Traffic {
    /// Draws a flow of a family, which may be over.
    fn pick(&mut self, is_ipv6: bool) -> Option<usize> {
        let numbers = &self.by_family[usize::from(is_ipv6)];
        let number = self.dice.below(numbers.len().max(1) as u64) as usize;
        numbers.get(number).copied()
    }

    /// Makes a packet that the rules refuse: of an inside endpoint that some socket has, or of
    /// another one of its home.
    pub(crate) fn forbidden(&mut self, is_ipv6: bool) -> Option<Sent> {
        let flow = self.pick(is_ipv6)?;
        let number = self.flows[flow].socket;
        let socket = &self.sockets[number];
        let port = if socket.protocol == Protocol::Icmp { 0 } else { 443 };
        let mut inside = socket.inside;
        inside.set_port(inside.port() + 20_000 * self.dice.below(2) as u16);
        let forbidden =
            if is_ipv6 { site::FORBIDDEN6.into() } else { IpAddr::from(site::FORBIDDEN) };
        let (protocol, remote) = (socket.protocol, SocketAddr::new(forbidden, port));
        let inner = packet::build(protocol, inside, remote, opening(protocol), Mark::FORBIDDEN);
        self.counts.forbidden += 1;
        Some(of_home(socket.shard, socket.home, &inner))
    }

    /// Makes a packet to the public endpoint of the port forward.
    pub(crate) fn call(&mut self) -> Sent {
        let public = site::forward_public();
        let port = self.dice.between((1024, 65_000)) as u16;
        let from = SocketAddr::new(STRANGER.into(), port);
        let packet = packet::build(Protocol::Tcp, from, public.into(), tcp::SYN, Mark::PROBE);
        (Side::Internet, (*public.ip()).into(), packet)
    }

    /// Makes an unsolicited packet to an endpoint that some socket has.
    pub(crate) fn probe(&mut self, is_ipv6: bool) -> Option<Sent> {
        let number = self.pick(is_ipv6)?;
        let flow = &self.flows[number];
        let socket = &self.sockets[flow.socket];
        let public = socket.public?;
        // Its source is a stranger, or another port of a known remote.
        let from = match self.dice.below(2) {
            1 if socket.protocol != Protocol::Icmp => {
                SocketAddr::new(flow.remote.ip(), flow.remote.port() + 1)
            }
            _ if is_ipv6 => SocketAddr::new(site::STRANGER6.into(), STRANGER_PORT),
            _ => SocketAddr::new(STRANGER.into(), STRANGER_PORT),
        };
        let flags = match socket.protocol {
            // A firewall without translation may take it for the beginning of a flow.
            protocol if is_ipv6 && self.dice.one_in(2) => opening(protocol),
            Protocol::Tcp => tcp::ACK,
            _ => 0,
        };
        let packet = packet::build(socket.protocol, from, public, flags, Mark::PROBE);
        match is_ipv6 {
            false => self.counts.probes += 1,
            true => self.counts.probes6 += 1,
        }
        Some((Side::Internet, public.ip(), packet))
    }

    /// Makes a packet of IPv6 that must not pass.
    pub(crate) fn unwanted6(&mut self, options: &Options) -> Option<Sent> {
        match self.dice.below(4) {
            0 => self.forbidden(true),
            1 => self.forge(options),
            _ => self.probe(true),
        }
    }

    /// Makes a packet of a home with the address of another one: of a flow of that, or of none. The
    /// cluster must know whose address it is: by configuration, or by a flow that must not be lost.
    fn forge(&mut self, options: &Options) -> Option<Sent> {
        let number = self.pick(true)?;
        let (remote, victim) = (self.flows[number].remote, self.flows[number].socket);
        let Socket { shard, home, protocol, mut inside, protected, .. } = self.sockets[victim];
        if protected.is_none() && !options.is_delegated {
            return None;
        }
        let its_shard = if self.dice.one_in(4) { self.shard(options) } else { shard };
        let forger = site::home(its_shard, self.dice.below(options.homes_per_shard.into()) as u32);
        if forger == home {
            return None;
        }
        let mut flags = opening(protocol);
        if self.dice.one_in(2) {
            inside.set_port(inside.port() + 20_000);
        } else if protocol == Protocol::Tcp {
            flags = tcp::ACK;
        }
        let inner = packet::build(protocol, inside, remote, flags, Mark::FORGED);
        self.counts.forged += 1;
        Some(of_home(its_shard, forger, &inner))
    }

    fn shard(&mut self, options: &Options) -> u32 {
        self.dice.between((1, options.shards.into())) as u32
    }
}
