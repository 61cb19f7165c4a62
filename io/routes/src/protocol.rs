//! The messages between a node and its guard, and their encoding.
//!
//! Numbers are little endian. A list starts with its length in 4 bytes; a text is a list of bytes.
//! Every frame on the socket is a length in 4 bytes and that many bytes, the first of which is the
//! kind.
//!
//! | request | fields |   | answer | fields |
//! |---|---|---|---|---|
//! | 1 start | version 3, options | | 1 started | |
//! | 2 set | number 4, worker 2, fence 4, routes | | 2 done | number 4, routes in the kernel 4 |
//! | 3 withdraw | number 4, worker 2 | | 3 failed | number 4, all failures 4, first failures |
//! | 4 withdraw all | number 4 | | 4 refused | number 4, worker 2, fence 4 |
//! | 5 quit | number 4 | | 5 fenced | worker 2, fence 4 |
//! | | | | 6 cannot start | text |
//!
//! A route takes 15 bytes, or 39 in IPv6: side 1, family 1 (4 or 6), prefix 4 or 16, length 1, next
//! hop 4 or 16, metric 4. The guard answers each request once, under its number; only "fenced"
//! comes without a request. Both ends are the same binary, so an unknown kind is an error, not a
//! newer peer; the version detects a binary that was replaced under a running node.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use nix::errno::Errno;

use crate::options::GuardOptions;
use crate::route::{Route, RouteSide, RouteTables, WorkerIndex};
use crate::shared_words::Fence;

const VERSION: u8 = 3;
/// Most bytes of a route.
pub(crate) const ROUTE_BYTES_MAX: usize = 39;
/// Values of a route's family on the wire.
const FAMILY_4: u8 = 4;
const FAMILY_6: u8 = 6;
/// Most failures that one answer lists; the rest is only counted.
pub(crate) const FAILURES_MAX: usize = 16;

/// A request of the node to the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardRequest {
    /// The first request.
    Start(GuardOptions),
    /// Sets all routes of a worker; valid only while `fence` is the worker's current fence.
    Set { number: u32, worker: WorkerIndex, fence: Fence, routes: Vec<Route> },
    /// Withdraws all routes of a worker.
    Withdraw { number: u32, worker: WorkerIndex },
    /// Withdraws all routes of all workers.
    WithdrawAll { number: u32 },
    /// Withdraws all routes and ends the guard.
    Quit { number: u32 },
}

/// A route that the kernel did not add or remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteFailure {
    /// The route.
    pub route: Route,
    /// The kernel's error number.
    pub errno: i32,
}

impl fmt::Display for RouteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.route, Errno::from_raw(self.errno).desc())
    }
}

/// A message of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardAnswer {
    /// The TUN device is there.
    Started,
    /// The request was carried out: `routes` of the routes it concerns are in the kernel.
    Done { number: u32, routes: u32 },
    /// The kernel refused some changes.
    Failed { number: u32, total: u32, failures: Vec<RouteFailure> },
    /// The routes were set under an outdated fence of the worker.
    Refused { number: u32, worker: WorkerIndex, fence: Fence },
    /// A worker was silent or died: it is fenced, and its routes are a last resort or withdrawn.
    Fenced { worker: WorkerIndex, fence: Fence },
    /// Why the guard cannot start.
    CannotStart(String),
}

/// A frame that no weir of this version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The frame is too short or too long.
    #[error("a message of a wrong length between node and guard")]
    Length,
    /// A kind, side, family or prefix length that does not exist, or a route that no kernel holds.
    #[error("a message with an unknown value between node and guard")]
    Value,
    /// The other end has another version.
    #[error(
        "node and guard are different versions: the program weir-node was replaced; restart the node"
    )]
    Version,
    /// The route list is not sorted.
    #[error("a message with unsorted routes between node and guard")]
    Order,
}

impl GuardRequest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            GuardRequest::Start(options) => {
                out.extend([1, VERSION]);
                put_bytes(&mut out, options.interface.as_bytes());
                put_u32(&mut out, options.tables.access);
                put_u32(&mut out, options.tables.internet);
                put_u32(&mut out, milliseconds(options.silence));
                out.push(u8::from(options.kill_after.is_some()));
                put_u32(&mut out, milliseconds(options.kill_after.unwrap_or_default()));
            }
            GuardRequest::Set { number, worker, fence, routes } => {
                out.push(2);
                put_u32(&mut out, *number);
                out.extend(worker.to_le_bytes());
                put_u32(&mut out, fence.0);
                put_u32(&mut out, routes.len() as u32);
                routes.iter().for_each(|route| put_route(&mut out, route));
            }
            GuardRequest::Withdraw { number, worker } => {
                out.push(3);
                put_u32(&mut out, *number);
                out.extend(worker.to_le_bytes());
            }
            GuardRequest::WithdrawAll { number } => {
                out.push(4);
                put_u32(&mut out, *number);
            }
            GuardRequest::Quit { number } => {
                out.push(5);
                put_u32(&mut out, *number);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = FieldReader(bytes);
        let request = match reader.u8()? {
            1 => GuardRequest::Start(reader.options()?),
            2 => {
                let (number, worker) = (reader.u32()?, reader.u16()?);
                let fence = Fence(reader.u32()?);
                let routes = reader.list(FieldReader::route)?;
                if !crate::difference::is_ordered(&routes) {
                    return Err(ProtocolError::Order);
                }
                GuardRequest::Set { number, worker, fence, routes }
            }
            3 => GuardRequest::Withdraw { number: reader.u32()?, worker: reader.u16()? },
            4 => GuardRequest::WithdrawAll { number: reader.u32()? },
            5 => GuardRequest::Quit { number: reader.u32()? },
            _ => return Err(ProtocolError::Value),
        };
        reader.end(request)
    }
}

impl GuardAnswer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            GuardAnswer::Started => out.push(1),
            GuardAnswer::Done { number, routes } => {
                out.push(2);
                put_u32(&mut out, *number);
                put_u32(&mut out, *routes);
            }
            GuardAnswer::Failed { number, total, failures } => {
                out.push(3);
                put_u32(&mut out, *number);
                put_u32(&mut out, *total);
                put_u32(&mut out, failures.len() as u32);
                for failure in failures {
                    put_route(&mut out, &failure.route);
                    out.extend(failure.errno.to_le_bytes());
                }
            }
            GuardAnswer::Refused { number, worker, fence } => {
                out.push(4);
                put_u32(&mut out, *number);
                out.extend(worker.to_le_bytes());
                put_u32(&mut out, fence.0);
            }
            GuardAnswer::Fenced { worker, fence } => {
                out.push(5);
                out.extend(worker.to_le_bytes());
                put_u32(&mut out, fence.0);
            }
            GuardAnswer::CannotStart(reason) => {
                out.push(6);
                put_bytes(&mut out, reason.as_bytes());
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = FieldReader(bytes);
        let answer = match reader.u8()? {
            1 => GuardAnswer::Started,
            2 => GuardAnswer::Done { number: reader.u32()?, routes: reader.u32()? },
            3 => GuardAnswer::Failed {
                number: reader.u32()?,
                total: reader.u32()?,
                failures: reader.list(|reader| {
                    Ok(RouteFailure { route: reader.route()?, errno: reader.u32()? as i32 })
                })?,
            },
            4 => GuardAnswer::Refused {
                number: reader.u32()?,
                worker: reader.u16()?,
                fence: Fence(reader.u32()?),
            },
            5 => GuardAnswer::Fenced { worker: reader.u16()?, fence: Fence(reader.u32()?) },
            6 => GuardAnswer::CannotStart(reader.text()?),
            _ => return Err(ProtocolError::Value),
        };
        reader.end(answer)
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend(bytes);
}

fn put_route(out: &mut Vec<u8>, route: &Route) {
    out.push(match route.side {
        RouteSide::Access => 0,
        RouteSide::Internet => 1,
    });
    out.push(if matches!(route.prefix, IpNet::V4(_)) { FAMILY_4 } else { FAMILY_6 });
    put_address(out, route.prefix.addr());
    out.push(route.prefix.prefix_len());
    put_address(out, route.next_hop);
    put_u32(out, route.metric);
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}

/// The bytes left to read.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ProtocolError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, ProtocolError> {
        Ok(self.bytes::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Result<u32, ProtocolError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn address(&mut self, family: u8) -> Result<IpAddr, ProtocolError> {
        match family {
            FAMILY_4 => Ok(Ipv4Addr::from(self.bytes::<4>()?).into()),
            FAMILY_6 => Ok(Ipv6Addr::from(self.bytes::<16>()?).into()),
            _ => Err(ProtocolError::Value),
        }
    }

    /// Reads a list. Its length is only a claim: no memory is reserved for it, and the list ends
    /// where the frame ends.
    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, ProtocolError>,
    ) -> Result<Vec<T>, ProtocolError> {
        (0..self.u32()?).map(|_| item(self)).collect()
    }

    fn text(&mut self) -> Result<String, ProtocolError> {
        String::from_utf8(self.list(Self::u8)?).map_err(|_| ProtocolError::Value)
    }

    fn route(&mut self) -> Result<Route, ProtocolError> {
        let side = match self.u8()? {
            0 => RouteSide::Access,
            1 => RouteSide::Internet,
            _ => return Err(ProtocolError::Value),
        };
        let family = self.u8()?;
        let (address, len) = (self.address(family)?, self.u8()?);
        let prefix = IpNet::new(address, len).map_err(|_| ProtocolError::Value)?;
        let route = Route { side, prefix, next_hop: self.address(family)?, metric: self.u32()? };
        if route.is_valid() { Ok(route) } else { Err(ProtocolError::Value) }
    }

    fn options(&mut self) -> Result<GuardOptions, ProtocolError> {
        if self.u8()? != VERSION {
            return Err(ProtocolError::Version);
        }
        let interface = self.text()?;
        let tables = RouteTables { access: self.u32()?, internet: self.u32()? };
        let silence = Duration::from_millis(self.u32()?.into());
        let kill_after = match (self.u8()?, self.u32()?) {
            (0, 0) => None,
            (1, grace) => Some(Duration::from_millis(grace.into())),
            _ => return Err(ProtocolError::Value),
        };
        Ok(GuardOptions { interface, tables, silence, kill_after })
    }

    fn end<T>(self, value: T) -> Result<T, ProtocolError> {
        if self.0.is_empty() { Ok(value) } else { Err(ProtocolError::Length) }
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
