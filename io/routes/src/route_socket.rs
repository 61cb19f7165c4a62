//! Reads and changes the kernel's routes over rtnetlink(7): steps applied in batches, a table read
//! back.
//!
//! Routes are `proto static`, so that `ip route` shows them like an operator's, and `onlink`: the
//! next hop is a worker's address, which the kernel cannot reach and never needs to.

use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
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
/// the default buffer.
const BATCH_MAX: usize = 64;

/// A route as the kernel holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// Destination.
    pub prefix: Ipv4Net,
    /// Linux metric; 0 if the route has none.
    pub metric: u32,
    /// Next hop; `None` for a route without one.
    pub next_hop: Option<Ipv4Addr>,
    /// Index of the interface; `None` for a route without one.
    pub interface: Option<u32>,
}

/// Returns all routes of a kernel table of this network namespace, sorted. A table that does not
/// exist is empty.
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
            let first = self.sequence;
            let mut datagram = Vec::new();
            for step in batch {
                let (message, flags) = change(*step, tables, interface);
                self.put(&mut datagram, message, flags | NLM_F_ACK);
            }
            self.socket.send(&datagram, 0)?;
            let mut open = batch.len();
            while open > 0 {
                self.receive(|sequence, payload| {
                    let at = sequence.wrapping_sub(first).wrapping_sub(1) as usize;
                    if let (Some(step), NetlinkPayload::Error(error)) = (batch.get(at), payload) {
                        open -= 1;
                        on_result(
                            *step,
                            if error.code.is_none() { Ok(()) } else { Err(error.to_io()) },
                        );
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Returns all routes of a table, sorted.
    pub(crate) fn dump(&mut self, table: u32) -> io::Result<Vec<KernelRoute>> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
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
                        routes.extend(read(&message).filter(|_| table_of(&message) == table));
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
        routes.sort_unstable();
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

fn change(step: RouteStep, tables: RouteTables, interface: u32) -> (RouteNetlinkMessage, u16) {
    let message = |route: &Route| {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: AddressFamily::Inet,
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
            RouteAttribute::Destination(RouteAddress::Inet(route.prefix.addr())),
            RouteAttribute::Gateway(RouteAddress::Inet(route.next_hop)),
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
    let mut address = Ipv4Addr::UNSPECIFIED;
    let (mut metric, mut next_hop, mut interface) = (0, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(to)) => address = *to,
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => next_hop = Some(*gateway),
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Priority(priority) => metric = *priority,
            _ => {}
        }
    }
    let prefix = Ipv4Net::new(address, message.header.destination_prefix_length).ok()?;
    Some(KernelRoute { prefix, metric, next_hop, interface })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_table_has_the_loopback_and_an_unused_table_is_empty() {
        // Table 255 is the kernel's own; any user may read it.
        let local = dump(255).expect("any user may read routes");
        assert!(local.iter().any(|route| route.prefix.to_string() == "127.0.0.1/32"), "{local:?}");
        assert_eq!(dump(987_654_321).unwrap(), []);
    }

    type Row = (u32, u8, Option<u32>, Option<u32>, Option<u32>);

    fn kernel_route(&(address, len, metric, next_hop, interface): &Row) -> KernelRoute {
        KernelRoute {
            prefix: Ipv4Net::new(address.into(), len % 33).unwrap(),
            metric: metric.unwrap_or(0),
            next_hop: next_hop.map(Ipv4Addr::from),
            interface,
        }
    }

    /// Encodes a route as the kernel lists it.
    fn listed(route: &KernelRoute, sequence: u32) -> Vec<u8> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = route.prefix.prefix_len();
        message.attributes.extend([
            RouteAttribute::Destination(RouteAddress::Inet(route.prefix.addr())),
            RouteAttribute::Priority(route.metric),
        ]);
        let next_hop = route.next_hop.map(|it| RouteAttribute::Gateway(RouteAddress::Inet(it)));
        message.attributes.extend(next_hop);
        message.attributes.extend(route.interface.map(RouteAttribute::Oif));
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(message));
        message.header.sequence_number = sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    /// Routes are read as the kernel lists them; any other datagram is read to its end or refused.
    #[test]
    fn datagram() {
        type Datagram = (Vec<Row>, Vec<(u16, u8)>, Vec<u8>);
        bolero::check!().with_type::<Datagram>().for_each(|(rows, edits, junk)| {
            let routes: Vec<KernelRoute> = rows.iter().take(6).map(kernel_route).collect();
            let mut datagram: Vec<u8> = routes.iter().flat_map(|it| listed(it, 7)).collect();
            let seen = |datagram: &[u8]| {
                let (mut routes, mut count) = (Vec::new(), 0);
                let end = messages(datagram, |_, payload| {
                    count += 1;
                    if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) =
                        payload
                    {
                        let _ = table_of(&message);
                        routes.extend(read(&message));
                    }
                    Ok(())
                });
                assert!(16 * count <= datagram.len());
                end.map(|()| routes)
            };
            assert_eq!(seen(&datagram).unwrap(), routes);
            datagram.extend(junk);
            for (at, value) in edits {
                let at = usize::from(*at) % datagram.len().max(1);
                datagram.get_mut(at).into_iter().for_each(|byte| *byte = *value);
            }
            for datagram in [&datagram, junk] {
                let _ = seen(datagram);
            }
        });
    }
}
