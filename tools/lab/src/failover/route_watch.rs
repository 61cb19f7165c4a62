//! Receives from the kernel of a switch each route that its routing daemon sets, by rtnetlink(7).

use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use ipnet::IpNet;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use weir_routes::dump;

use super::route_history::{Departures, RouteChange, RouteHistory};
use crate::load::{Clock, Micros};
use crate::namespace::Namespace;
use crate::threads::{Stop, Threads};

/// RTNLGRP_IPV4_ROUTE and RTNLGRP_IPV6_ROUTE of linux/rtnetlink.h.
const ROUTES: [u32; 2] = [7, 11];
/// Receive buffer for messages that arrive while this thread does not run: some ten thousand.
const BUFFER_BYTES: usize = 64 << 20;
/// Interval at which the thread checks whether it must end.
const PATIENCE: TimeVal = TimeVal::new(0, 100_000);

/// Listens to route changes until it is dropped.
#[derive(Debug)]
pub(super) struct RouteWatch {
    shared: Arc<Shared>,
    _threads: Threads,
}

#[derive(Debug, Default)]
struct Shared {
    /// The kernel had to drop messages: the routes are unknown.
    has_missed: AtomicBool,
    history: Mutex<RouteHistory>,
}

impl RouteWatch {
    /// Listens in a namespace; existing routes count as set at the start.
    pub(super) fn start(clock: Clock, namespace: &Namespace) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let socket = namespace.enter(|| {
            let socket = listen()?;
            let at = clock.now();
            // Read after the subscription: a change between the two comes twice, and none is
            // missed.
            for route in dump(u32::from(RouteHeader::RT_TABLE_MAIN))? {
                let (prefix, next_hop) = (route.prefix, route.next_hop);
                shared.history().push(RouteChange { at, prefix, next_hop });
            }
            Ok(socket)
        })?;
        let of_thread = Arc::clone(&shared);
        let mut threads = Threads::default();
        threads.spawn("routes", move |stop| of_thread.listen(clock, stop, &socket))?;
        Ok(Self { shared, _threads: threads })
    }

    /// Returns the fate of the routes to `next_hop` since a fault.
    ///
    /// # Errors
    /// When changes were missed.
    pub(super) fn departures(&self, next_hop: IpAddr, fault: Micros) -> Result<Departures> {
        anyhow::ensure!(
            !self.shared.has_missed.load(Ordering::Relaxed),
            "too many routes changed at once: some were not seen"
        );
        Ok(self.shared.history().departures(next_hop, fault))
    }

    /// Forgets all changes before `time`.
    pub(super) fn forget_before(&self, time: Micros) {
        self.shared.history().forget_before(time);
    }
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, RouteHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, clock: Clock, stop: &Stop, socket: &Socket) {
        while !stop.is_set() {
            match socket.recv_from_full() {
                Ok((datagram, _)) => {
                    let at = clock.now();
                    let mut history = self.history();
                    for (prefix, next_hop) in changes(&datagram) {
                        history.push(RouteChange { at, prefix, next_hop });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.has_missed.store(true, Ordering::Relaxed),
            }
        }
    }
}

fn listen() -> Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).context("receive buffer")?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &PATIENCE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    ROUTES.iter().try_for_each(|&group| socket.add_membership(group))?;
    Ok(socket)
}

/// Returns the routes through a gateway, of the main table, that a datagram reports as set or
/// deleted.
fn changes(datagram: &[u8]) -> Vec<(IpNet, Option<IpAddr>)> {
    let mut found = Vec::new();
    let mut rest = datagram;
    while let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
        let NetlinkPayload::InnerMessage(inner) = &message.payload else { break };
        found.extend(match inner {
            RouteNetlinkMessage::NewRoute(route) => read(route),
            RouteNetlinkMessage::DelRoute(route) => read(route).map(|(prefix, _)| (prefix, None)),
            _ => None,
        });
        // Messages are aligned to four bytes.
        let taken = (message.header.length as usize).next_multiple_of(4);
        let Some(next) = rest.get(taken..).filter(|it| !it.is_empty()) else { break };
        rest = next;
    }
    found
}

fn read(message: &RouteMessage) -> Option<(IpNet, Option<IpAddr>)> {
    let mut destination = None;
    let mut gateway = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = self::address(address),
            RouteAttribute::Gateway(gateway_address) => gateway = address(gateway_address),
            _ => {}
        }
    }
    let prefix = IpNet::new(destination?, message.header.destination_prefix_length).ok()?;
    (message.header.table == RouteHeader::RT_TABLE_MAIN).then_some((prefix, Some(gateway?)))
}

fn address(of: &RouteAddress) -> Option<IpAddr> {
    match of {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
