//! Reads and changes the kernel's routes over rtnetlink(7): steps applied in batches, a table read
//! back.
//!
//! Routes are `proto static`, so that `ip route` shows them like an operator's, and `onlink`: the
//! next hop is a worker's address, which the kernel cannot reach and never needs to. BIRD learns a
//! route without an address on its device only if it is `onlink`.
//!
//! For an IPv6 route that is not enough. The kernel looks the next hop up in its main table when
//! the route is added, and refuses it if the answer is another device, as it is on a node with an
//! address in its workers' network ("Nexthop has invalid gateway or device mismatch"). It never
//! looks again. (A route that is not `onlink` may have its host route in its own table, but BIRD
//! would not learn it.) So the main table gets a host route to the next hop, on the same device,
//! for the length of a datagram:
//!
//! ```text
//!   one datagram:  main: add NEXT_HOP/128 | table: add PREFIX via NEXT_HOP, ... | main: delete
//! ```
//!
//! A packet of the node's kernel to that worker is lost if it falls into these microseconds. The
//! host route is `proto kernel`, which routing daemons do not learn; if the process is killed in
//! between, it goes with the device.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::difference::RouteStep;
use crate::route::{Route, RouteTables};

/// Most steps in one datagram: their acknowledgements (about 800 bytes of socket buffer each) fit
/// the default buffer, even if each step needs a host route of its own.
const BATCH_MAX: usize = 64;
/// Metric of the host routes: ahead of any other route to the address.
const HOST_METRIC: u32 = 1;

/// A route as the kernel holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// Destination.
    pub prefix: IpNet,
    /// Linux metric; 0 for an IPv4 route without one, 1024 for such an IPv6 route.
    pub metric: u32,
    /// Next hop; `None` for a route without one.
    pub next_hop: Option<IpAddr>,
    /// Index of the interface; `None` for a route without one.
    pub interface: Option<u32>,
}

/// Returns all routes of a kernel table of this network namespace, of both families, sorted. A
/// table that does not exist is empty.
///
/// # Errors
/// The kernel's error.
pub fn dump(table: u32) -> io::Result<Vec<KernelRoute>> {
    RouteSocket::open()?.dump(table)
}

/// A netlink socket.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: Socket,
    sequence: u32,
}

impl RouteSocket {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel then leaves out other tables itself. One that cannot (before 4.20) sends all
        // tables; `dump` filters again.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Applies the steps in their order; calls back with each result. A refused step does not stop
    /// the others.
    pub(crate) fn apply(
        &mut self,
        steps: &[RouteStep],
        tables: RouteTables,
        interface: u32,
        mut on_result: impl FnMut(RouteStep, io::Result<()>),
    ) -> io::Result<()> {
        for batch in steps.chunks(BATCH_MAX) {
            let hosts = hosts(batch);
            let mut messages = Vec::new();
            let adds = hosts.iter().map(|to| (None, add_host(*to, interface)));
            messages.extend(adds);
            messages.extend(batch.iter().map(|it| (Some(*it), change(*it, tables, interface))));
            messages.extend(hosts.iter().map(|to| (None, delete_host(*to, interface))));
            self.send(messages, |step, result| {
                // A host route that is refused shows in the steps that need it.
                if let Some(step) = step {
                    on_result(step, result);
                }
            })?;
        }
        Ok(())
    }

    /// Keeps the kernel from giving a device IPv6 addresses of its own, and so from soliciting
    /// routers and defending addresses on it. To be called before the device is up.
    pub(crate) fn forbid_addresses(&mut self, interface: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = interface;
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let family = AfSpecUnspec::Inet6(vec![mode]);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![family]));
        let mut set = Ok(());
        self.send(vec![((), (RouteNetlinkMessage::SetLink(message), 0))], |(), result| {
            set = result;
        })?;
        set
    }

    /// Sends messages in one datagram, each with a note; calls back with each note and result.
    fn send<T: Copy>(
        &mut self,
        messages: Vec<(T, (RouteNetlinkMessage, u16))>,
        mut on_result: impl FnMut(T, io::Result<()>),
    ) -> io::Result<()> {
        let first = self.sequence;
        let (mut datagram, mut notes) = (Vec::new(), Vec::new());
        for (note, (message, flags)) in messages {
            self.put(&mut datagram, message, flags | NLM_F_ACK);
            notes.push(note);
        }
        self.socket.send(&datagram, 0)?;
        let mut open = notes.len();
        while open > 0 {
            self.receive(|sequence, payload| {
                let at = sequence.wrapping_sub(first).wrapping_sub(1) as usize;
                if let (Some(note), NetlinkPayload::Error(error)) = (notes.get(at), payload) {
                    open -= 1;
                    let result = if error.code.is_none() { Ok(()) } else { Err(error.to_io()) };
                    on_result(*note, result);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns all routes of a table, of both families, sorted.
    pub(crate) fn dump(&mut self, table: u32) -> io::Result<Vec<KernelRoute>> {
        let mut routes = self.dump_of(table, AddressFamily::Inet)?;
        routes.extend(self.dump_of(table, AddressFamily::Inet6)?);
        routes.sort_unstable();
        Ok(routes)
    }

    fn dump_of(&mut self, table: u32, family: AddressFamily) -> io::Result<Vec<KernelRoute>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.attributes.push(RouteAttribute::Table(table));
        let mut datagram = Vec::new();
        self.put(&mut datagram, RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP);
        self.socket.send(&datagram, 0)?;
        let (mut routes, mut is_open, own) = (Vec::new(), true, self.sequence);
        while is_open {
            self.receive(|sequence, payload| {
                match payload {
                    _ if sequence != own => {}
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) => {
                        // A kernel without IPv6 answers the question for it with IPv4 routes.
                        let is_asked = message.header.address_family == family;
                        let is_asked = is_asked && table_of(&message) == table;
                        routes.extend(read(&message).filter(|_| is_asked));
                    }
                    NetlinkPayload::Done(_) => is_open = false,
                    NetlinkPayload::Error(error) => {
                        is_open = false;
                        // With strict checks the kernel reports an error for a table that was never
                        // used.
                        if error.to_io().kind() != io::ErrorKind::NotFound {
                            return Err(error.to_io());
                        }
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(routes)
    }

    fn put(&mut self, datagram: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(message);
        message.header.sequence_number = self.sequence;
        message.header.flags = flags | NLM_F_REQUEST;
        message.finalize();
        let at = datagram.len();
        datagram.resize(at + message.buffer_len(), 0);
        message.serialize(&mut datagram[at..]);
    }

    /// Reads one datagram; calls back with each message and its sequence number.
    fn receive(
        &mut self,
        on_message: impl FnMut(u32, NetlinkPayload<RouteNetlinkMessage>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (datagram, _) = self.socket.recv_from_full()?;
        messages(&datagram, on_message)
    }
}

/// Calls back with each message of a datagram and its sequence number.
fn messages(
    mut rest: &[u8],
    mut on_message: impl FnMut(u32, NetlinkPayload<RouteNetlinkMessage>) -> io::Result<()>,
) -> io::Result<()> {
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let len = (message.header.length as usize).next_multiple_of(4).min(rest.len());
        rest = &rest[len..];
        on_message(message.header.sequence_number, message.payload)?;
    }
    Ok(())
}

/// Returns the IPv6 next hops that need a host route for the steps to be taken.
fn hosts(steps: &[RouteStep]) -> BTreeSet<Ipv6Addr> {
    let next_hops = steps.iter().filter_map(|step| match step {
        RouteStep::Announce(route) | RouteStep::Replace(route) => Some(route.next_hop),
        RouteStep::Withdraw(_) => None,
    });
    let next_hops = next_hops.filter_map(|next_hop| match next_hop {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
    });
    next_hops.collect()
}

fn add_host(to: Ipv6Addr, interface: u32) -> (RouteNetlinkMessage, u16) {
    (RouteNetlinkMessage::NewRoute(host_route(to, interface)), NLM_F_CREATE)
}

fn delete_host(to: Ipv6Addr, interface: u32) -> (RouteNetlinkMessage, u16) {
    (RouteNetlinkMessage::DelRoute(host_route(to, interface)), 0)
}

fn host_route(to: Ipv6Addr, interface: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: AddressFamily::Inet6,
        destination_prefix_length: 128,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Kernel,
        scope: RouteScope::Universe,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes = vec![
        RouteAttribute::Destination(to.into()),
        RouteAttribute::Oif(interface),
        RouteAttribute::Priority(HOST_METRIC),
    ];
    message
}

fn change(step: RouteStep, tables: RouteTables, interface: u32) -> (RouteNetlinkMessage, u16) {
    let message = |route: &Route| {
        let address_family = match route.prefix {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        };
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family,
            destination_prefix_length: route.prefix.prefix_len(),
            protocol: RouteProtocol::Static,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            flags: RouteFlags::Onlink,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            // The header has 8 bits for the table; the attribute overrides them.
            RouteAttribute::Table(tables.of(route.side)),
            RouteAttribute::Destination(route.prefix.addr().into()),
            RouteAttribute::Gateway(route.next_hop.into()),
            RouteAttribute::Oif(interface),
            RouteAttribute::Priority(route.metric),
        ];
        message
    };
    match &step {
        RouteStep::Announce(route) => {
            (RouteNetlinkMessage::NewRoute(message(route)), NLM_F_CREATE | NLM_F_EXCL)
        }
        RouteStep::Replace(route) => {
            (RouteNetlinkMessage::NewRoute(message(route)), NLM_F_CREATE | NLM_F_REPLACE)
        }
        RouteStep::Withdraw(route) => (RouteNetlinkMessage::DelRoute(message(route)), 0),
    }
}

fn table_of(message: &RouteMessage) -> u32 {
    let attribute = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    attribute.unwrap_or(u32::from(message.header.table))
}

fn read(message: &RouteMessage) -> Option<KernelRoute> {
    let (mut to, mut metric, mut next_hop, mut interface) = (None, 0, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(destination) => to = address(destination),
            RouteAttribute::Gateway(gateway) => next_hop = address(gateway),
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Priority(priority) => metric = *priority,
            _ => {}
        }
    }
    let length = message.header.destination_prefix_length;
    // A default route has no destination.
    let prefix = match (message.header.address_family, to) {
        (AddressFamily::Inet, None) => Ipv4Net::new(Ipv4Addr::UNSPECIFIED, length).ok()?.into(),
        (AddressFamily::Inet, Some(IpAddr::V4(to))) => Ipv4Net::new(to, length).ok()?.into(),
        (AddressFamily::Inet6, None) => Ipv6Net::new(Ipv6Addr::UNSPECIFIED, length).ok()?.into(),
        (AddressFamily::Inet6, Some(IpAddr::V6(to))) => Ipv6Net::new(to, length).ok()?.into(),
        _ => return None,
    };
    Some(KernelRoute { prefix, metric, next_hop, interface })
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "route_socket_tests.rs"]
mod tests;
