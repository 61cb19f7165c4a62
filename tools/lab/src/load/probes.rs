//! Numbered datagrams, one each way and interval, on a flow of each of several home addresses, of
//! either family.
//!
//! ```text
//!   home socket n  --up, numbered-->    weir  -->  the server socket of the family, which learns
//!                                                  the public endpoint of flow n
//!   home socket n  <--numbered, down--  weir  <--  and sends to the last endpoint of flow n
//! ```
//!
//! Each direction is sent by its own clock, so that a loss in one does not hide a loss in the
//! other. Neither socket is connected: an ICMP error must not consume a packet.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use socket2::SockRef;

use super::clock::{Clock, Micros, Window};
use super::ip_version::IpVersion;
use super::server_address::ServerAddress;
use super::stream_log::{Bin, StreamLog, StreamReport};
use crate::condition::wait_for;
use crate::namespace::Namespace;
use crate::threads::{Stop, Threads};

/// Bytes of a datagram: flow, number, and padding to the size of a voice packet.
const DATAGRAM_LEN: usize = 64;
/// Receive buffer requested from the kernel: seconds of probes.
const BUFFER: usize = 8 << 20;
/// Interval at which a receiver checks whether it must end.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Time until every flow works in both directions.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// The homes that probe, and the interval.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// Addresses of the homes, one flow each.
    pub homes: Vec<IpAddr>,
    /// Addresses on which the server listens.
    pub server: ServerAddress,
    /// Time between two datagrams of a flow and direction.
    pub interval: Duration,
}

/// Both directions of a flow within a window.
#[derive(Clone, Debug, Default)]
pub struct FlowReport {
    /// Version of IP.
    pub version: IpVersion,
    /// Home to server.
    pub up: StreamReport,
    /// Server to home.
    pub down: StreamReport,
    /// Changes of the public endpoint: with each, all open connections of the home were lost.
    pub moved: Vec<Change>,
}

/// A change of a flow's public endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Arrival of the first packet from the new endpoint.
    pub at: Micros,
    /// The old endpoint.
    pub from: SocketAddr,
    /// The new endpoint.
    pub to: SocketAddr,
}

#[derive(Debug, Default)]
struct Flow {
    version: IpVersion,
    up: Mutex<StreamLog>,
    down: Mutex<StreamLog>,
    endpoint: Mutex<Endpoint>,
}

/// The public endpoint of a flow, as the server sees it.
#[derive(Debug, Default)]
struct Endpoint {
    now: Option<SocketAddr>,
    /// Number of the newest packet.
    newest: u64,
    changes: Vec<Change>,
}

/// State shared by the threads.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    interval: Duration,
    flows: Vec<Flow>,
}

/// Running probes; they end when dropped.
#[derive(Debug)]
pub struct Probes {
    shared: Arc<Shared>,
    _threads: Threads,
}

impl Probes {
    /// Starts the probes; returns when every flow works in both directions.
    pub fn start(
        clock: Clock,
        plan: &ProbePlan,
        homes: &Namespace,
        server: &Namespace,
    ) -> Result<Self> {
        let flow = |&home: &IpAddr| Flow { version: home.into(), ..Flow::default() };
        let flows = plan.homes.iter().map(flow).collect();
        let shared = Arc::new(Shared { clock, interval: plan.interval, flows });
        let at_server = server.enter(|| plan.server.all().map(socket).collect());
        let at_server: Vec<UdpSocket> = at_server?;
        let at_home = homes
            .enter(|| plan.homes.iter().map(|&home| socket(SocketAddr::new(home, 0))).collect());
        let at_home: Vec<UdpSocket> = at_home?;
        let mut threads = Threads::default();
        for (flow, socket) in at_home.iter().enumerate() {
            let (it, socket) = (Arc::clone(&shared), socket.try_clone()?);
            let receive = move |stop: &Stop| receive_at_home(&it, stop, flow, &socket);
            threads.spawn(&format!("probe-home-{flow}"), receive)?;
        }
        for (number, socket) in at_server.iter().enumerate() {
            let (it, socket) = (Arc::clone(&shared), socket.try_clone()?);
            let receive = move |stop: &Stop| receive_at_server(&it, stop, &socket);
            threads.spawn(&format!("probe-server-{number}"), receive)?;
        }
        let it = Arc::clone(&shared);
        threads.spawn("probe-down", move |stop| send_from_server(&it, stop, &at_server))?;
        let to = plan.homes.iter().map(|&home| plan.server.reached_from(home));
        let paths: Vec<_> = at_home.into_iter().zip(to).collect();
        let it = Arc::clone(&shared);
        threads.spawn("probe-up", move |stop| send_from_homes(&it, stop, &paths))?;
        let probes = Self { shared, _threads: threads };
        probes.wait_working()?;
        Ok(probes)
    }

    fn wait_working(&self) -> Result<()> {
        let second = Duration::from_secs(1).as_micros() as Micros;
        wait_for("probe on every flow", START_DEADLINE, || {
            let now = self.shared.clock.now();
            let window = Window { start: now.saturating_sub(second), end: now };
            let is_working = |stream: StreamReport| stream.sent > stream.lost;
            let reports = self.report(window);
            let works = |flow: &FlowReport| is_working(flow.up) && is_working(flow.down);
            reports.iter().all(works).then_some(())
        })
        .with_context(|| {
            let window = Window { start: 0, end: self.shared.clock.now() };
            format!("probes: {:?}", self.report(window))
        })
    }

    /// Returns the fate of each flow's packets sent within the window.
    pub fn report(&self, window: Window) -> Vec<FlowReport> {
        let flows = self.shared.flows.iter();
        let report = |flow: &Flow| FlowReport {
            version: flow.version,
            up: lock(&flow.up).report(window),
            down: lock(&flow.down).report(window),
            moved: lock(&flow.endpoint).changes_within(window),
        };
        flows.map(report).collect()
    }

    /// Returns the send times of the lost packets of a window, of all flows and both directions, in
    /// order.
    pub fn lost(&self, window: Window) -> Vec<Micros> {
        let mut lost = Vec::new();
        for flow in &self.shared.flows {
            lost.extend(lock(&flow.up).lost(window));
            lost.extend(lock(&flow.down).lost(window));
        }
        lost.sort_unstable();
        lost
    }

    /// Returns the packets sent and arrived within each slice of the window, up and down, all flows
    /// together.
    pub fn bins(&self, window: Window, width: Micros) -> [Vec<Bin>; 2] {
        let count = (window.end - window.start).div_ceil(width) as usize;
        let mut bins = [vec![Bin::default(); count], vec![Bin::default(); count]];
        for flow in &self.shared.flows {
            lock(&flow.up).add_to_bins(window, width, &mut bins[0]);
            lock(&flow.down).add_to_bins(window, width, &mut bins[1]);
        }
        bins
    }

    /// Forgets packets sent before `time`.
    pub fn forget_before(&self, time: Micros) {
        for flow in &self.shared.flows {
            lock(&flow.up).forget_before(time);
            lock(&flow.down).forget_before(time);
            lock(&flow.endpoint).changes.retain(|change| change.at >= time);
        }
    }
}

impl Shared {
    /// Calls `send` at each interval. Calls that a busy machine delayed are skipped, not made up
    /// for.
    fn each_interval(&self, stop: &Stop, mut send: impl FnMut()) {
        let mut next = Instant::now();
        while !stop.is_set() {
            send();
            next += self.interval;
            match next.checked_duration_since(Instant::now()) {
                Some(left) => thread::sleep(left),
                None => next = Instant::now(),
            }
        }
    }
}

fn socket(local: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(local).with_context(|| format!("probe socket {local}"))?;
    SockRef::from(&socket).set_recv_buffer_size(BUFFER)?;
    socket.set_read_timeout(Some(STOP_POLL))?;
    Ok(socket)
}

fn datagram(flow: usize, number: u64) -> [u8; DATAGRAM_LEN] {
    let mut bytes = [0; DATAGRAM_LEN];
    bytes[..8].copy_from_slice(&(flow as u64).to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Returns flow and number of a datagram.
fn parse(bytes: &[u8]) -> Option<(usize, u64)> {
    let (flow, rest) = bytes.split_first_chunk::<8>()?;
    let number = rest.first_chunk::<8>()?;
    Some((usize::try_from(u64::from_be_bytes(*flow)).ok()?, u64::from_be_bytes(*number)))
}

/// `paths`: the socket of each flow, and the address of the server.
fn send_from_homes(shared: &Shared, stop: &Stop, paths: &[(UdpSocket, SocketAddr)]) {
    shared.each_interval(stop, || {
        for (number, (flow, (socket, server))) in shared.flows.iter().zip(paths).enumerate() {
            let packet = lock(&flow.up).send(shared.clock.now());
            // A packet that cannot be sent is lost, and counts as lost.
            let _ = socket.send_to(&datagram(number, packet), server);
        }
    });
}

/// `sockets`: that of IPv4, then that of IPv6 if there is one.
fn send_from_server(shared: &Shared, stop: &Stop, sockets: &[UdpSocket]) {
    shared.each_interval(stop, || {
        for (number, flow) in shared.flows.iter().enumerate() {
            let Some(endpoint) = lock(&flow.endpoint).now else { continue };
            let Some(socket) = sockets.get(flow.version as usize) else { continue };
            let packet = lock(&flow.down).send(shared.clock.now());
            let _ = socket.send_to(&datagram(number, packet), endpoint);
        }
    });
}

fn receive_at_home(shared: &Shared, stop: &Stop, flow: usize, socket: &UdpSocket) {
    let mut buffer = [0; DATAGRAM_LEN];
    while !stop.is_set() {
        let Ok((len, _)) = socket.recv_from(&mut buffer) else { continue };
        if let Some((_, number)) = parse(&buffer[..len]).filter(|&(of, _)| of == flow) {
            lock(&shared.flows[flow].down).arrive(number, shared.clock.now());
        }
    }
}

fn receive_at_server(shared: &Shared, stop: &Stop, socket: &UdpSocket) {
    let mut buffer = [0; DATAGRAM_LEN];
    while !stop.is_set() {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        let Some((flow, number)) = parse(&buffer[..len]) else { continue };
        let Some(flow) = shared.flows.get(flow) else { continue };
        let now = shared.clock.now();
        lock(&flow.up).arrive(number, now);
        lock(&flow.endpoint).learn(from, number, now);
    }
}

impl Endpoint {
    fn changes_within(&self, window: Window) -> Vec<Change> {
        self.changes.iter().filter(|change| window.contains(change.at)).copied().collect()
    }

    /// Takes the source of packet `number` as the endpoint, unless a newer packet has come from
    /// another one.
    fn learn(&mut self, from: SocketAddr, number: u64, now: Micros) {
        let former = *self.now.get_or_insert(from);
        if former != from && number >= self.newest {
            self.now = Some(from);
            self.changes.push(Change { at: now, from: former, to: from });
        }
        self.newest = self.newest.max(number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_carries_its_flow_and_number() {
        assert_eq!(parse(&datagram(3, 1 << 40)), Some((3, 1 << 40)));
        assert_eq!(parse(&[0; 15]), None);
    }

    #[test]
    fn an_endpoint_that_changes_is_noted_and_a_late_packet_is_no_change() {
        let [first, second]: [SocketAddr; 2] =
            ["192.0.2.1:1024", "192.0.2.1:1025"].map(|text| text.parse().unwrap());
        let mut endpoint = Endpoint::default();
        endpoint.learn(first, 0, 10);
        endpoint.learn(first, 1, 20);
        assert_eq!((endpoint.now, endpoint.changes.len()), (Some(first), 0));
        endpoint.learn(second, 5, 30);
        endpoint.learn(first, 4, 40);
        assert_eq!((endpoint.now, endpoint.changes[0].at), (Some(second), 30));
    }

    #[test]
    fn probes_on_the_loopback_lose_nothing_and_see_both_directions() {
        let clock = Clock::start();
        let lab = crate::Lab::open().unwrap();
        let namespace = lab.namespace("loop").unwrap();
        namespace.sysctl("ipv6/conf/all/disable_ipv6", 0).unwrap();
        let plan = ProbePlan {
            homes: ["127.0.0.2", "127.0.0.3", "::1"].map(|home| home.parse().unwrap()).to_vec(),
            server: ServerAddress {
                ipv4: "127.0.0.1:7200".parse().unwrap(),
                ipv6: "[::1]:7200".parse().ok(),
            },
            interval: Duration::from_millis(1),
        };
        let probes = Probes::start(clock, &plan, &namespace, &namespace).unwrap();
        let start = clock.now();
        let hundred = |flow: &FlowReport| flow.up.sent >= 100 && flow.down.sent >= 100;
        let reports = wait_for("a hundred packets", START_DEADLINE, || {
            let reports = probes.report(Window { start, end: clock.now().saturating_sub(50_000) });
            reports.iter().all(hundred).then_some(reports)
        });
        for flow in reports.unwrap() {
            assert_eq!((flow.up.lost, flow.down.lost, flow.moved.len()), (0, 0, 0), "{flow:?}");
        }
    }
}
