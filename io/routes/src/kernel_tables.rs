//! The routes of all workers in the kernel, as the guard knows them.
//!
//! Invariant: for each worker a sorted list of the routes that the kernel has acknowledged and, as
//! of the last look at its tables, still holds. A route that the kernel refused is not in the list,
//! so it is tried again with the next list.
//!
//! A look costs as much as there are routes, a change only as much as it changes. So the changes of
//! a list go first, and a look follows only if the same list is set again or the last look is a
//! while ago.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fs, io};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::difference::{RouteStep, difference, last_resort};
use crate::protocol::RouteFailure;
use crate::route::{Route, RouteSide, RouteTables, WorkerIndex};
use crate::route_socket::{KernelRoute, RouteSocket};

/// Time between two looks at the kernel's tables while lists change.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The TUN device, the socket and the lists. The routes end with the device, and the device with
/// this process.
pub(crate) struct KernelTables {
    /// Held open, never read: no packet is routed to it, as its tables are not consulted.
    _device: SyncDevice,
    interface: u32,
    tables: RouteTables,
    socket: RouteSocket,
    workers: Vec<Vec<Route>>,
    /// When each worker's list was last compared with the kernel's tables.
    looked: Vec<Option<Instant>>,
}

impl KernelTables {
    /// Creates the device, without addresses, and brings it up.
    ///
    /// # Errors
    /// The kernel's error: no right (`CAP_NET_ADMIN`), no /dev/net/tun, name taken.
    pub(crate) fn open(interface: &str, tables: RouteTables, workers: usize) -> io::Result<Self> {
        let device = DeviceBuilder::new().name(interface).enable(false).build_sync()?;
        let index = device.if_index()?;
        let mut socket = RouteSocket::open()?;
        match socket.forbid_addresses(index) {
            // The kernel has no IPv6: it gives no addresses, and takes no IPv6 routes.
            Err(error) if error.raw_os_error() == Some(NO_SUCH_FAMILY) => {}
            result => result?,
        }
        allow_ipv6(interface);
        device.enabled(true)?;
        Ok(Self {
            _device: device,
            interface: index,
            tables,
            socket,
            workers: vec![Vec::new(); workers],
            looked: vec![None; workers],
        })
    }

    /// Returns how many routes of a worker are in the kernel.
    pub(crate) fn count(&self, worker: WorkerIndex) -> usize {
        self.workers[usize::from(worker)].len()
    }

    /// Makes `routes` the worker's routes; returns those that the kernel refused.
    ///
    /// An operator may have flushed a table or switched the device off and on: setting the same
    /// list again repairs that, and so does the first list after a while.
    ///
    /// # Errors
    /// The socket to the kernel failed.
    pub(crate) fn set(
        &mut self,
        worker: WorkerIndex,
        routes: &[Route],
    ) -> io::Result<Vec<RouteFailure>> {
        let at = usize::from(worker);
        let steps = difference(&self.workers[at], routes);
        let is_again = steps.is_empty();
        let failures = self.apply(at, &steps)?;
        let is_look_due = self.looked[at].is_none_or(|looked| looked.elapsed() >= LOOK_INTERVAL);
        if self.workers[at].is_empty() || !(is_again || is_look_due) {
            return Ok(failures);
        }
        self.looked[at] = Some(Instant::now());
        self.forget_what_is_gone(at)?;
        let steps = difference(&self.workers[at], routes);
        self.apply(at, &steps)
    }

    /// Makes all routes of a worker a last resort, without looking at the kernel's tables first.
    ///
    /// # Errors
    /// The socket to the kernel failed.
    pub(crate) fn make_last_resort(
        &mut self,
        worker: WorkerIndex,
    ) -> io::Result<Vec<RouteFailure>> {
        let at = usize::from(worker);
        let steps = difference(&self.workers[at], &last_resort(&self.workers[at]));
        self.apply(at, &steps)
    }

    /// Withdraws all routes of a worker, without looking at the kernel's tables first.
    pub(crate) fn withdraw(&mut self, worker: WorkerIndex) -> io::Result<Vec<RouteFailure>> {
        let at = usize::from(worker);
        let steps: Vec<RouteStep> =
            self.workers[at].iter().copied().map(RouteStep::Withdraw).collect();
        self.apply(at, &steps)
    }

    /// Withdraws all routes of all workers.
    pub(crate) fn withdraw_all(&mut self) -> io::Result<Vec<RouteFailure>> {
        let mut failures = Vec::new();
        for at in 0..self.workers.len() {
            failures.extend(self.withdraw(at as WorkerIndex)?);
        }
        Ok(failures)
    }

    fn forget_what_is_gone(&mut self, at: usize) -> io::Result<()> {
        let access = self.socket.dump(self.tables.access)?;
        let internet = self.socket.dump(self.tables.internet)?;
        let interface = self.interface;
        self.workers[at].retain(|route| {
            let there = KernelRoute {
                prefix: route.prefix,
                metric: route.metric,
                next_hop: Some(route.next_hop),
                interface: Some(interface),
            };
            let table = if route.side == RouteSide::Access { &access } else { &internet };
            table.binary_search(&there).is_ok()
        });
        Ok(())
    }

    fn apply(&mut self, at: usize, steps: &[RouteStep]) -> io::Result<Vec<RouteFailure>> {
        let (mut failures, mut changed) = (Vec::new(), Vec::new());
        if steps.is_empty() {
            return Ok(failures);
        }
        self.socket.apply(steps, self.tables, self.interface, |step, result| {
            match (step, result) {
                (_, Ok(())) => changed.push(step),
                // The route is not there, as wanted.
                (RouteStep::Withdraw(_), Err(error))
                    if error.raw_os_error() == Some(NO_SUCH_ROUTE) =>
                {
                    changed.push(step);
                }
                (_, Err(error)) => failures.push(RouteFailure {
                    route: step.route(),
                    errno: error.raw_os_error().unwrap_or(0),
                }),
            }
        })?;
        let mut list: BTreeMap<_, Route> =
            self.workers[at].iter().map(|route| (route.key(), *route)).collect();
        for step in changed {
            match step {
                RouteStep::Announce(route) | RouteStep::Replace(route) => {
                    list.insert(route.key(), route)
                }
                RouteStep::Withdraw(route) => list.remove(&route.key()),
            };
        }
        self.workers[at] = list.into_values().collect();
        Ok(failures)
    }
}

/// Lets the kernel take IPv6 routes on the device where the machine's default is to have none. If
/// the setting cannot be written, the kernel refuses those routes, and the refusals are reported.
fn allow_ipv6(interface: &str) {
    let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    if fs::read_to_string(&setting).is_ok_and(|is_disabled| is_disabled.trim() != "0") {
        let _ = fs::write(setting, "0");
    }
}

/// `EAFNOSUPPORT`: the kernel's answer about IPv6 where it was started without.
const NO_SUCH_FAMILY: i32 = nix::errno::Errno::EAFNOSUPPORT as i32;
/// `ESRCH`: the kernel's answer to the withdrawal of a route that it does not have.
const NO_SUCH_ROUTE: i32 = nix::errno::Errno::ESRCH as i32;
