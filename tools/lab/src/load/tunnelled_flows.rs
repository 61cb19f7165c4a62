//! Flows of thousands of homes from one socket, which writes the tunnels of all of them, and the
//! public endpoint of each.
//!
//! ```text
//!   raw socket --GRE from 10.200.a.b to the endpoint of the home's shard--> weir
//!                                                   --UDP--> server: home, number, endpoint
//! ```
//!
//! The server never answers, so homes need neither a gateway nor a route back. A part of the homes
//! begins flows at a time, each home for some seconds; then it is idle, and its port blocks go to
//! others.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::cmsg_space;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};
use weir_wire::build;

use super::clock::{Clock, Micros};
use crate::namespace::Namespace;
use crate::threads::{Stop, Threads};

/// Outer address of the first home, followed by the others; homes with a gateway lie below it.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 200, 1, 0);
/// Number of addresses in the homes' prefix from the first home on.
const HOMES_MAX: u32 = 255 << 8;
/// Address of the device behind each tunnel, the same for every home.
const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
/// Ports of a home, used one after the other.
const PORTS: Range<u16> = 1_024..65_535;
/// One home in this many begins flows at a time; the second constant is how long each does.
const ACTIVE_PART: u32 = 8;
const STAY: Range<Micros> = 4_000_000..12_000_000;
/// Half of the flows send a second datagram, this long after the first.
const SECOND_AFTER: Micros = 300_000;
/// The protocol of a socket that writes whole packets (`IPPROTO_RAW`).
const WHOLE_PACKETS: i32 = 255;
/// Bytes for the datagrams that arrive while the receiver gets no core for a second.
const RECEIVE_BUFFER: usize = 32 << 20;
const POLL: Duration = Duration::from_millis(2);
const STOP_POLL: Duration = Duration::from_millis(100);

/// The flows to begin.
#[derive(Clone, Debug)]
pub struct TunnelledFlowPlan {
    /// Number of homes.
    pub homes: u32,
    /// Tunnel endpoints of the shards, which are assigned to the homes in turn.
    pub endpoints: Vec<Ipv4Addr>,
    /// Address on which the server listens.
    pub server: SocketAddrV4,
    /// Flows begun each second.
    pub per_sec: u32,
    /// Seed for the choice of active homes.
    pub seed: u64,
}

/// A use of a public endpoint: a home's datagram came from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Time of arrival, microseconds since 1970: the kernel's time stamp, however late it is read.
    pub at_us: u64,
    /// Public endpoint that it came from.
    pub public: SocketAddrV4,
    /// Outer address of the home that sent it.
    pub home: Ipv4Addr,
}

/// Payload of a datagram: the home and the number of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    home: Ipv4Addr,
    number: u64,
}

impl Mark {
    const LEN: usize = 12;

    fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.home.octets());
        bytes[4..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads a payload. `None`: not a datagram of these flows.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (home, number) = bytes.split_first_chunk::<4>()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        Some(Self { home: Ipv4Addr::from(*home), number })
    }
}

/// Chooses the homes that begin flows. Pure.
#[derive(Debug)]
struct Rota {
    dice: fastrand::Rng,
    homes: u32,
    active: Vec<Stay>,
}

#[derive(Clone, Copy, Debug)]
struct Stay {
    home: u32,
    until: Micros,
}

impl Rota {
    fn new(homes: u32, seed: u64) -> Self {
        let none = Stay { home: 0, until: 0 };
        let active = vec![none; homes.div_ceil(ACTIVE_PART) as usize];
        Self { dice: fastrand::Rng::with_seed(seed), homes, active }
    }

    /// Returns the number of the home that begins the next flow.
    fn next(&mut self, now: Micros) -> u32 {
        let index = self.dice.usize(..self.active.len());
        if self.active[index].until <= now {
            let home = self.dice.u32(..self.homes);
            self.active[index] = Stay { home, until: now + self.dice.u64(STAY) };
        }
        self.active[index].home
    }
}

/// Flows that begin until this value is dropped.
#[derive(Debug)]
pub struct TunnelledFlows {
    counts: Arc<Counts>,
    _threads: Threads,
}

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    seen: AtomicU64,
}

impl TunnelledFlows {
    /// Begins the flows. `note` is called with each datagram that arrives.
    ///
    /// # Errors
    /// When there are no flows to begin, or a socket cannot be opened.
    pub fn start(
        plan: TunnelledFlowPlan,
        homes: &Namespace,
        server: &Namespace,
        note: impl FnMut(Use) + Send + 'static,
    ) -> Result<Self> {
        let is_some = plan.per_sec > 0 && !plan.endpoints.is_empty();
        ensure!(is_some && (1..=HOMES_MAX).contains(&plan.homes), "no such flows: {plan:?}");
        let sender = homes.enter(|| {
            let whole = Some(Protocol::from(WHOLE_PACKETS));
            Socket::new(Domain::IPV4, Type::RAW, whole).context("raw socket of the homes")
        })?;
        let at_server = server.enter(|| listen(plan.server))?;
        let counts = Arc::new(Counts::default());
        let [of_receiver, of_sender] = [Arc::clone(&counts), Arc::clone(&counts)];
        let mut threads = Threads::default();
        threads
            .spawn("tunnelled-seen", move |stop| receive(&of_receiver, stop, &at_server, note))?;
        threads.spawn("tunnelled", move |stop| send(&of_sender, stop, &plan, &sender))?;
        Ok(Self { counts, _threads: threads })
    }

    /// Returns the number of flows begun so far.
    pub fn begun(&self) -> u64 {
        self.counts.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of flows that the server has seen so far.
    pub fn seen(&self) -> u64 {
        self.counts.seen.load(Ordering::Relaxed)
    }
}

/// Begins flows and sends their datagrams. Transmissions that a busy machine delayed for too long
/// are skipped.
fn send(counts: &Counts, stop: &Stop, plan: &TunnelledFlowPlan, socket: &Socket) {
    let clock = Clock::start();
    let interval = Micros::from((1_000_000 / plan.per_sec).max(1));
    let mut rota = Rota::new(plan.homes, plan.seed);
    let mut ports = vec![PORTS.start; plan.homes as usize];
    let mut second: VecDeque<(Micros, Ipv4Addr, Vec<u8>)> = VecDeque::new();
    let write = |endpoint: Ipv4Addr, packet: &[u8]| {
        // A packet that cannot be sent is not seen, and counts as unseen.
        let _ = socket.send_to(packet, &SocketAddrV4::new(endpoint, 0).into());
    };
    let mut next = clock.now();
    while !stop.is_set() {
        let now = clock.now();
        while second.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, endpoint, packet)) = second.pop_front() else { break };
            write(endpoint, &packet);
        }
        // After a longer pause the older part of it is skipped.
        next = next.max(now.saturating_sub(STOP_POLL.as_micros() as Micros));
        while next <= now {
            next += interval;
            let number = counts.begun.fetch_add(1, Ordering::Relaxed);
            let home = rota.next(now);
            let endpoint = plan.endpoints[home as usize % plan.endpoints.len()];
            let port = &mut ports[home as usize];
            *port = if *port + 1 < PORTS.end { *port + 1 } else { PORTS.start };
            let packet = packet(plan.server, endpoint, outer(home), *port, number);
            write(endpoint, &packet);
            if number.is_multiple_of(2) {
                second.push_back((now + SECOND_AFTER, endpoint, packet));
            }
        }
        thread::sleep(POLL);
    }
}

fn outer(home: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + home)
}

fn packet(
    server: SocketAddrV4,
    endpoint: Ipv4Addr,
    home: Ipv4Addr,
    port: u16,
    number: u64,
) -> Vec<u8> {
    let payload = Mark { home, number }.bytes();
    let inner = build::ipv4(INSIDE, *server.ip()).ttl(64).udp(port, server.port(), payload);
    build::ipv4(home, endpoint).ttl(64).gre(build::gre(), inner)
}

/// Opens a socket that reports the time of arrival of each datagram.
fn listen(address: SocketAddrV4) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("socket {address}"))?;
    socket.set_read_timeout(Some(STOP_POLL))?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)?;
    Ok(socket)
}

fn receive(counts: &Counts, stop: &Stop, socket: &UdpSocket, mut note: impl FnMut(Use)) {
    let mut has_come = Numbers::default();
    let mut bytes = [0; Mark::LEN + 1];
    let mut control = cmsg_space!(TimeSpec);
    while !stop.is_set() {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::empty();
        let taken =
            recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let Ok(taken) = taken else { continue };
        let at_us = taken.cmsgs().ok().and_then(|mut it| it.find_map(|it| time_us(&it)));
        let (len, from) = (taken.bytes, taken.address);
        let Some(((at_us, from), mark)) = at_us.zip(from).zip(Mark::read(&bytes[..len])) else {
            continue;
        };
        if has_come.insert(mark.number) {
            counts.seen.fetch_add(1, Ordering::Relaxed);
        }
        note(Use { at_us, public: SocketAddrV4::new(from.ip(), from.port()), home: mark.home });
    }
}

fn time_us(message: &ControlMessageOwned) -> Option<u64> {
    let ControlMessageOwned::ScmTimestampns(time) = message else { return None };
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    Some(1_000_000 * seconds + u64::try_from(time.tv_nsec()).ok()? / 1_000)
}

/// A set of numbers from 0 on, one bit each.
#[derive(Debug, Default)]
struct Numbers {
    words: Vec<u64>,
}

impl Numbers {
    /// Inserts a number. Returns whether it was new.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;
    use std::sync::mpsc;
    use std::time::SystemTime;

    use weir_wire::verify;

    use super::*;

    const SECOND: Micros = 1_000_000;

    #[test]
    fn some_homes_are_active_at_a_time_and_all_of_them_in_the_end() {
        let mut rota = Rota::new(80, 7);
        let mut within = |second: Micros| {
            (0..1_000).map(|ms| rota.next(second * SECOND + ms * 1_000)).collect::<BTreeSet<_>>()
        };
        let first = within(1);
        assert!((5..=10).contains(&first.len()), "{first:?}");
        assert_eq!(within(2), first, "each stays for seconds");
        let rest: BTreeSet<u32> = (3..600).flat_map(&mut within).collect();
        assert_eq!(rest.len(), 80);
    }

    #[test]
    fn tunnelled_packet_is_valid_and_names_home_and_flow() {
        let server = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 7400);
        let home = outer(300);
        assert_eq!(home, Ipv4Addr::new(10, 200, 2, 44));
        let packet = packet(server, Ipv4Addr::new(10, 100, 0, 3), home, 2_000, 77);
        verify::packet(&packet).unwrap();
        let mark = Mark::read(&packet[packet.len() - Mark::LEN..]);
        assert_eq!(mark, Some(Mark { home, number: 77 }));
        assert_eq!(Mark::read(b"something"), None);
    }

    #[test]
    fn the_server_notes_when_and_from_where_each_datagram_came_and_counts_flows() {
        let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let server = listen(local(0)).unwrap();
        let address = server.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let (of_thread, (note, noted)) = (Arc::clone(&counts), mpsc::channel());
        let mut threads = Threads::default();
        let body = move |stop: &Stop| {
            receive(&of_thread, stop, &server, |used| note.send(used).unwrap());
        };
        threads.spawn("receive", body).unwrap();
        let client = UdpSocket::bind(local(0)).unwrap();
        let now_us = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
        let begun_us = now_us();
        for (home, number) in [(1, 7), (1, 7), (2, 8)] {
            client.send_to(b"noise", address).unwrap();
            client.send_to(&Mark { home: outer(home), number }.bytes(), address).unwrap();
        }
        let uses: Vec<Use> = noted.iter().take(3).collect();
        let client = client.local_addr().unwrap();
        assert!(uses.iter().all(|used| SocketAddr::V4(used.public) == client), "{uses:?}");
        assert!(uses.iter().all(|used| (begun_us..=now_us()).contains(&used.at_us)), "{uses:?}");
        let homes: Vec<Ipv4Addr> = uses.iter().map(|used| used.home).collect();
        assert_eq!(homes, [1, 1, 2].map(outer));
        assert_eq!(counts.seen.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn number_is_new_only_the_first_time() {
        let mut numbers = Numbers::default();
        let is_new = [3, 64, 3, 1_000, 64].map(|number| numbers.insert(number));
        assert_eq!(is_new, [true, true, false, true, false]);
    }
}
