//! A steady rate of new flows: a home's first datagram to the server, and the endpoint from which
//! the server sees it and the later ones come. A flow whose mapping was lost comes from another
//! endpoint the next time.
//!
//! ```text
//!   home: a socket for each flow  --first datagram, numbered-->  weir  -->  the one server socket
//!                                                                           records the endpoint
//!                                 --two more, later----------->  weir  -->  the same endpoint,
//!                                                                           or it has moved
//! ```
//!
//! The server never answers: only what it has seen counts. A first datagram that is lost or refused
//! is not repeated before the next age, and a flow that was seen late has its endpoint from then
//! on.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::clock::{Clock, Micros, Window};
use super::probes::Change;
use crate::namespace::Namespace;
use crate::threads::{Stop, Threads};

/// Ages at which a flow's datagrams are sent; from the first to the last is longer than a failover
/// lasts.
const AGES: [Micros; 3] = [0, 1_000_000, 3_000_000];
/// Ports of a home, used one after the other: a port that the kernel chose might have an older
/// mapping.
const PORTS: Range<u16> = 10_000..30_000;
/// Intervals at which the sender checks what is due, and at which the receiver checks whether it
/// must end.
const POLL: Duration = Duration::from_millis(2);
const STOP_POLL: Duration = Duration::from_millis(100);

/// The homes that begin flows, and the rate.
#[derive(Clone, Debug)]
pub struct NewFlowPlan {
    /// Addresses of the homes, which are used in turn.
    pub homes: Vec<Ipv4Addr>,
    /// Address on which the server listens.
    pub server: SocketAddrV4,
    /// Flows begun each second.
    pub per_sec: u32,
}

/// The flows that began within a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewFlowReport {
    /// Number of flows.
    pub begun: usize,
    /// Flows of these that the server has seen so far.
    pub seen: usize,
    /// Changes of a flow's public endpoint.
    pub moved: Vec<Change>,
}

/// The fate of each flow, by number. Pure.
#[derive(Debug, Default)]
struct NewFlowLog {
    flows: Vec<Flow>,
}

#[derive(Debug)]
struct Flow {
    begun: Micros,
    endpoint: Option<SocketAddr>,
    changes: Vec<Change>,
}

impl NewFlowLog {
    /// Records a flow that begins. Returns its number.
    fn begin(&mut self, now: Micros) -> u64 {
        self.flows.push(Flow { begun: now, endpoint: None, changes: Vec::new() });
        self.flows.len() as u64 - 1
    }

    /// Records a datagram of the flow at the server.
    fn arrive(&mut self, number: u64, from: SocketAddr, now: Micros) {
        let Some(flow) = usize::try_from(number).ok().and_then(|at| self.flows.get_mut(at)) else {
            return;
        };
        let former = *flow.endpoint.get_or_insert(from);
        if former != from {
            flow.endpoint = Some(from);
            flow.changes.push(Change { at: now, from: former, to: from });
        }
    }

    fn report(&self, window: Window) -> NewFlowReport {
        let mut report = NewFlowReport::default();
        for flow in self.flows.iter().filter(|flow| window.contains(flow.begun)) {
            report.begun += 1;
            report.seen += usize::from(flow.endpoint.is_some());
            report.moved.extend(&flow.changes);
        }
        report
    }
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    log: Mutex<NewFlowLog>,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, NewFlowLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Flows that begin until this value is dropped. All are kept in memory: it is meant for minutes.
#[derive(Debug)]
pub struct NewFlows {
    shared: Arc<Shared>,
    _threads: Threads,
}

impl NewFlows {
    /// Begins the flows.
    pub fn start(
        clock: Clock,
        plan: NewFlowPlan,
        homes: &Namespace,
        server: &Namespace,
    ) -> Result<Self> {
        ensure!(!plan.homes.is_empty() && plan.per_sec > 0, "no new flows: {plan:?}");
        let at_server = server.enter(|| {
            UdpSocket::bind(plan.server).with_context(|| format!("socket {}", plan.server))
        })?;
        at_server.set_read_timeout(Some(STOP_POLL))?;
        let shared = Arc::new(Shared { clock, log: Mutex::default() });
        let [of_receiver, of_sender] = [Arc::clone(&shared), Arc::clone(&shared)];
        let mut threads = Threads::default();
        threads.spawn("new-flows-seen", move |stop| receive(&of_receiver, stop, &at_server))?;
        threads.spawn_in(homes, "new-flows", move |stop| begin(&of_sender, stop, &plan))?;
        Ok(Self { shared, _threads: threads })
    }

    /// Returns the fate of the flows that began within the window.
    pub fn report(&self, window: Window) -> NewFlowReport {
        self.shared.log().report(window)
    }

    /// Age at which a flow has sent its last datagram.
    pub const AGE_MAX: Duration = Duration::from_micros(AGES[AGES.len() - 1]);
}

/// A flow that has sent some of its datagrams.
struct Open {
    socket: UdpSocket,
    number: u64,
    begun: Micros,
}

/// Begins flows and sends their datagrams. Transmissions that a busy machine delayed are skipped,
/// not made up for.
fn begin(shared: &Shared, stop: &Stop, plan: &NewFlowPlan) {
    let interval = Micros::from(1_000_000 / plan.per_sec);
    let send = |flow: &Open| {
        // A datagram that cannot be sent is not seen, and counts as unseen.
        let _ = flow.socket.send_to(&flow.number.to_be_bytes(), plan.server);
    };
    // Flows by number of sent datagrams, the oldest first.
    let mut sent: [VecDeque<Open>; AGES.len()] = Default::default();
    let ports = PORTS.cycle().flat_map(|port| plan.homes.iter().map(move |&home| (home, port)));
    let mut locals = ports.map(|(home, port)| SocketAddrV4::new(home, port));
    let mut next = shared.clock.now();
    while !stop.is_set() {
        let now = shared.clock.now();
        for (so_far, age) in AGES.iter().enumerate().skip(1) {
            while sent[so_far].front().is_some_and(|flow| flow.begun + age <= now) {
                let Some(flow) = sent[so_far].pop_front() else { break };
                send(&flow);
                if let Some(those) = sent.get_mut(so_far + 1) {
                    those.push_back(flow);
                }
            }
        }
        if next <= now {
            next = (next + interval).max(now);
            // A port in use is skipped.
            if let Some(Ok(socket)) = locals.next().map(UdpSocket::bind) {
                let flow = Open { socket, number: shared.log().begin(now), begun: now };
                send(&flow);
                sent[1].push_back(flow);
            }
        }
        thread::sleep(POLL);
    }
}

fn receive(shared: &Shared, stop: &Stop, socket: &UdpSocket) {
    let mut number = [0; 8];
    while !stop.is_set() {
        let Ok((8, from)) = socket.recv_from(&mut number) else { continue };
        shared.log().arrive(u64::from_be_bytes(number), from, shared.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::wait_for;

    #[test]
    fn a_flow_is_seen_once_and_moves_with_its_endpoint() {
        let [first, second]: [SocketAddr; 2] =
            ["192.0.2.1:1024", "192.0.2.1:1025"].map(|text| text.parse().unwrap());
        let mut log = NewFlowLog::default();
        let numbers = [10, 20, 30].map(|at| log.begin(at));
        log.arrive(numbers[0], first, 11);
        log.arrive(numbers[0], first, 21);
        log.arrive(numbers[1], first, 22);
        log.arrive(numbers[1], second, 32);
        log.arrive(99, first, 33);
        let moved = vec![Change { at: 32, from: first, to: second }];
        let all = log.report(Window { start: 0, end: 40 });
        assert_eq!(all, NewFlowReport { begun: 3, seen: 2, moved });
        let later = log.report(Window { start: 21, end: 40 });
        assert_eq!(later, NewFlowReport { begun: 1, ..NewFlowReport::default() });
    }

    #[test]
    fn flows_on_the_loopback_are_all_seen_and_none_moves() {
        let clock = Clock::start();
        let lab = crate::Lab::open().unwrap();
        let namespace = lab.namespace("loop").unwrap();
        let plan = NewFlowPlan {
            homes: vec![Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)],
            server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7300),
            per_sec: 200,
        };
        let flows = NewFlows::start(clock, plan, &namespace, &namespace).unwrap();
        let report = wait_for("twenty flows", Duration::from_secs(20), || {
            let end = clock.now().saturating_sub(100_000);
            let report = flows.report(Window { start: 0, end });
            (report.begun >= 20).then_some(report)
        });
        let report = report.unwrap();
        assert_eq!((report.seen, report.moved.len()), (report.begun, 0));
    }
}
