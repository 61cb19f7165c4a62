//! Homes, their servers, and strangers: packets whose right form when they leave is known.
//!
//! ```text
//!   socket: an inside endpoint of a home; keeps its public endpoint    flow: a socket and a remote
//!   home --up--> [cluster] --> server: sound? whose? from which public endpoint?
//!   server --reply--> [cluster] --> home: for it?
//!   stranger --probe--> [cluster]: must not arrive
//! ```
//!
//! In every second history every second home speaks IPv6 beside IPv4. An IPv6 endpoint is not
//! translated: it is its own public endpoint.
//!
//! Every packet carries its flow's number. A packet at the wrong home or server, or a stranger's
//! packet at a home, fails the history; so does a change of the public endpoint of a protected
//! socket: one whose flow was established when the cluster was whole, with at most one failure
//! since then.

mod flow;
mod packet;
mod unwanted;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use weir_nat::{Protocol, SessionEnds, SessionView};
use weir_wire::verify;

use crate::dice::Dice;
use crate::options::Options;
use crate::site;
pub(crate) use flow::{Flow, Inside, Left, Progress, Socket, Stage};
use packet::{Mark, Seen};

/// Time from the first packet at a server until its flow counts as established.
const SETTLED_US: u64 = 300_000;
/// A flow that has sent so many packets without an answer is dead.
const SILENT: u64 = 30;

/// Totals of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub up_sent: u64,
    pub up_received: u64,
    pub down_sent: u64,
    pub down_received: u64,
    pub probes: u64,
    /// Unsolicited packets of IPv6, and packets of homes with the IPv6 address of another home.
    pub probes6: u64,
    pub forged: u64,
    /// Packets of homes that the rules refused, and packets that came through a port forward.
    pub forbidden: u64,
    pub forwarded: u64,
    /// ICMP errors and TCP resets of workers that reached homes.
    pub refusals: u64,
    pub flows: u64,
    /// Mappings and IPv6 flows that had to survive a failure, counted once for each failure.
    pub protected: u64,
    /// The IPv6 flows of these.
    pub protected6: u64,
    /// Changes whose copies were counted when the first packet left that shows them, and changes
    /// that need not be copied by then.
    pub committed: u64,
    pub uncommitted: u64,
    /// Public endpoints that were seen with another socket before.
    pub reused: u64,
    /// Flows that share their inside endpoint with a flow of another source pool.
    pub shared: u64,
}

#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) sockets: Vec<Socket>,
    pub(crate) flows: Vec<Flow>,
    /// The numbers of the flows of IPv4, and of those of IPv6.
    by_family: [Vec<usize>; 2],
    /// By public endpoint: the socket that was last seen with it.
    holders: BTreeMap<(SocketAddr, Protocol), usize>,
    /// By home: its last port.
    ports: BTreeMap<Ipv4Addr, u16>,
    /// If all settings have the source pool: by home and protocol, the last inside endpoint with
    /// one flow, and whether that is of the pool.
    alone: Option<BTreeMap<(Ipv4Addr, Protocol), (SocketAddr, bool)>>,
    dice: Dice,
    pub(crate) counts: Counts,
    interval_us: u64,
    /// A home that has been silent for so long may lose its mapping: the owner of the lane receives
    /// its owner updates about packets that others translate a quarter of a timer late, and may
    /// have stalled.
    silent_us: u64,
    /// Without faults no port is assigned to another socket sooner than this after its last packet,
    /// except for TCP.
    rest_us: u64,
}

/// Returns the time until a silent session ends and its port has rested, less the fractions of a
/// second that both may lack.
fn rest_us(idle_sec: u32) -> u64 {
    1_000_000 * u64::from(idle_sec + site::quarantine_sec(idle_sec) - 2)
}

impl Traffic {
    /// Creates the homes and their lasting flows, which have sent no packet.
    pub(crate) fn new(options: &Options, dice: Dice) -> Self {
        let timers = site::timeouts(options).named().into_iter().map(|(_, seconds)| seconds);
        let shortest_sec = timers.min().expect("the timeouts are not empty");
        let mut traffic = Self {
            sockets: Vec::new(),
            flows: Vec::new(),
            by_family: [Vec::new(), Vec::new()],
            holders: BTreeMap::new(),
            ports: BTreeMap::new(),
            alone: options.has_pool.then(BTreeMap::new),
            dice,
            counts: Counts::default(),
            interval_us: options.packet_interval_us,
            silent_us: 250_000 * u64::from(shortest_sec),
            rest_us: options.idle_sec.filter(|_| options.faults == 0).map_or(0, rest_us),
        };
        for shard in 1..=options.shards {
            for home in 0..options.homes_per_shard {
                for number in 0..options.lasting_flows {
                    let protocol = Protocol::ALL[number as usize % Protocol::ALL.len()];
                    traffic.open(shard, home, protocol, true);
                    // The short flows of IPv6 have echoes among them.
                    if site::has_ipv6(options, shard, home) && protocol != Protocol::Icmp {
                        traffic.open6(shard, home, protocol, true);
                    }
                }
            }
        }
        traffic
    }

    /// Opens a new flow of IPv4 of a home; returns its number.
    fn open(&mut self, shard: u32, home: u32, protocol: Protocol, is_lasting: bool) -> usize {
        let outer = site::home(shard, home);
        let port = self.next_port(outer);
        let station = Ipv4Addr::new(192, 168, 1, 10 + (port & 1) as u8);
        let mut inside = SocketAddr::new(station.into(), port);
        let mut server = site::SERVERS + self.dice.below(site::SERVERS_COUNT) as u32;
        if let Some(alone) = &mut self.alone {
            // A second flow of an inside endpoint, which has another mapping.
            let twin = alone.remove(&(outer, protocol)).filter(|_| self.dice.one_in(2));
            if let Some((of_first, is_pooled)) = twin {
                (inside, server) = (of_first, if is_pooled { site::PLAIN } else { site::POOLED });
                self.counts.shared += 1;
            } else if server != site::REDIRECTED {
                alone.insert((outer, protocol), (inside, server == site::POOLED));
            }
        }
        let is_pooled = self.alone.is_some() && server == site::POOLED;
        let socket = Socket::new((shard, outer), inside, protocol, is_pooled);
        self.add(socket, Ipv4Addr::from_bits(server).into(), is_lasting)
    }

    /// Opens a new IPv6 flow of a home; returns its number.
    fn open6(&mut self, shard: u32, home: u32, protocol: Protocol, is_lasting: bool) -> usize {
        let outer = site::home(shard, home);
        let port = self.next_port(outer);
        let inside = SocketAddr::new(site::inside6(shard, home, port).into(), port);
        let server = site::SERVERS6.to_bits() + u128::from(self.dice.below(site::SERVERS_COUNT));
        let socket = Socket::new((shard, outer), inside, protocol, false);
        self.add(socket, Ipv6Addr::from_bits(server).into(), is_lasting)
    }

    fn next_port(&mut self, home: Ipv4Addr) -> u16 {
        let port = self.ports.entry(home).or_insert(20_000);
        *port += 1;
        *port
    }

    /// Adds a socket and its flow to a server.
    fn add(&mut self, socket: Socket, server: IpAddr, is_lasting: bool) -> usize {
        let service = if socket.protocol == Protocol::Icmp { 0 } else { 443 };
        let flow = Flow::new(self.sockets.len(), SocketAddr::new(server, service), is_lasting);
        let number = self.flows.len();
        self.by_family[usize::from(socket.is_ipv6())].push(number);
        self.sockets.push(socket);
        self.flows.push(flow);
        self.counts.flows += 1;
        number
    }

    pub(crate) fn shard_of(&self, flow: usize) -> u32 {
        self.sockets[self.flows[flow].socket].shard
    }

    pub(crate) fn open_short(&mut self, shard: u32, home: u32) -> usize {
        let protocol = *self.dice.pick(&Protocol::ALL);
        self.open(shard, home, protocol, false)
    }

    /// As [`open_short`](Self::open_short), of IPv6; `None` if the home does not speak that.
    pub(crate) fn open_short6(
        &mut self,
        options: &Options,
        shard: u32,
        home: u32,
    ) -> Option<usize> {
        if !site::has_ipv6(options, shard, home) {
            return None;
        }
        let protocol = *self.dice.pick(&Protocol::ALL);
        Some(self.open6(shard, home, protocol, false))
    }

    /// Opens a lasting flow in place of one that is over; returns its number.
    pub(crate) fn follow(&mut self, over: usize) -> Option<usize> {
        let Flow { socket, is_lasting, .. } = self.flows[over];
        self.flows[over].stage = Stage::Over;
        let socket = &self.sockets[socket];
        let (shard, home, protocol) = (socket.shard, site::number(socket.home), socket.protocol);
        let is_ipv6 = socket.is_ipv6();
        is_lasting.then(|| match is_ipv6 {
            false => self.open(shard, home, protocol, true),
            true => self.open6(shard, home, protocol, true),
        })
    }

    /// Returns the next packet of a flow, as its home sends it, and when the following one is due;
    /// `None` if the flow is over.
    pub(crate) fn next_packet(&mut self, now_us: u64, number: usize) -> Option<(Vec<u8>, u64)> {
        let flow = &mut self.flows[number];
        let socket = &self.sockets[flow.socket];
        let flags = flow.next_flags(now_us, socket.protocol)?;
        if flow.sent_up == 0 {
            flow.began_us = now_us;
        }
        flow.sent_us = now_us;
        flow.sent_up += 1;
        self.counts.up_sent += 1;
        let mark = Mark { flow: number as u32, number: flow.sent_up as u32 };
        let inner = packet::build(socket.protocol, socket.inside, flow.remote, flags, mark);
        let outer = packet::encapsulate(socket.home, site::endpoint(socket.shard), &inner);
        let half_us = self.interval_us / 2;
        Some((outer, half_us + self.dice.below(2 * half_us)))
    }

    /// Takes a packet that has reached the internet. Returns the server's answer; the error names
    /// what is wrong.
    pub(crate) fn at_server(&mut self, now_us: u64, bytes: &[u8]) -> Result<Arrived, String> {
        verify::packet(bytes).map_err(|wrong| format!("a packet to the internet: {wrong}"))?;
        let Some(seen) = packet::read(bytes) else {
            return Err("something unknown leaves to the internet".into());
        };
        if seen.mark == Mark::FORBIDDEN {
            return Err(format!("a packet leaves that all rules refuse: {seen:?}"));
        }
        if seen.mark == Mark::FORGED {
            return Err(format!("a packet of another home leaves: {seen:?}"));
        }
        let Some(flow) = self.flows.get_mut(seen.mark.flow as usize) else {
            return Err(format!("a packet of no home leaves to the internet: {seen:?}"));
        };
        let number = flow.socket;
        let socket = &mut self.sockets[number];
        let elsewhere = SocketAddr::new(site::GARDEN.into(), flow.remote.port());
        let is_redirected =
            flow.remote.ip() == Ipv4Addr::from_bits(site::REDIRECTED) && seen.to == elsewhere;
        if !is_redirected && seen.to != flow.remote || seen.protocol != socket.protocol {
            return Err(format!("{socket} sent to {:?}, not to {:?}", flow.remote, seen.to));
        }
        let former = flow.destination.replace(seen.to).filter(|it| *it != seen.to);
        if let Some(former) = former.filter(|_| socket.protected.is_some()) {
            return Err(format!("{socket} had the destination {former:?}, now {:?}", seen.to));
        }
        let is_of_pool = match seen.from.ip() {
            IpAddr::V4(public) if site::public(socket.shard).contains(&public) => {
                site::is_of_pool(public.to_bits())
            }
            IpAddr::V6(_) if seen.from == socket.inside => false,
            public => return Err(format!("{socket} leaves as {public}, which is not its own")),
        };
        if self.alone.is_some() && is_of_pool != socket.is_pooled {
            return Err(format!("{socket} leaves as {} to {}: the wrong pool", seen.from, seen.to));
        }
        flow.got_up += 1;
        flow.first_us.get_or_insert(now_us);
        self.counts.up_received += 1;
        let before = socket.public.replace(seen.from);
        if let Some(protected) = socket.protected.filter(|it| *it != seen.from) {
            return Err(format!("{socket} had {protected}, now {}", seen.from));
        }
        let has_moved = before.is_some_and(|before| before != seen.from);
        let former = self.holders.insert((seen.from, seen.protocol), number);
        let former = former.filter(|&former| former != number);
        let is_shared = former.is_some();
        self.counts.reused += u64::from(is_shared);
        let socket = &self.sockets[number];
        let robbed = former.map(|former| &self.sockets[former]);
        if let Some(robbed) = robbed.filter(|it| it.protected == Some(seen.from)) {
            return Err(format!("{socket} leaves as {}, which {robbed} has", seen.from));
        }
        // A socket has one flow, whose number is the same.
        let rested_us = former.map(|former| now_us - self.flows[former].sent_us);
        if rested_us.is_some_and(|it| it < self.rest_us) && seen.protocol != Protocol::Tcp {
            return Err(format!("{socket} leaves as {}, which has not rested", seen.from));
        }
        let used = (seen.from, socket.home);
        let reply = self.reply(&seen);
        Ok(Arrived { reply, used, has_moved, is_shared })
    }

    fn reply(&mut self, seen: &Seen) -> Option<(IpAddr, Vec<u8>)> {
        let flags = flow::answer(seen.protocol, seen.flags)?;
        self.flows[seen.mark.flow as usize].sent_down += 1;
        self.counts.down_sent += 1;
        let packet = packet::build(seen.protocol, seen.to, seen.from, flags, seen.mark);
        Some((seen.from.ip(), packet))
    }

    /// Takes a packet that has left a tunnel at its home.
    pub(crate) fn at_home(&mut self, now_us: u64, bytes: &[u8]) -> Result<(), String> {
        verify::packet(bytes).map_err(|wrong| format!("a packet to a home: {wrong}"))?;
        let Some((from, home, inner)) = packet::decapsulate(bytes) else {
            return Err("something that is no tunnel packet goes to a home".into());
        };
        let Some(seen) = packet::read(inner) else {
            if packet::is_refusal(inner) {
                self.counts.refusals += 1;
                return Ok(());
            }
            return Err("something unknown goes to a home".into());
        };
        if seen.mark == Mark::PROBE && home == site::forward_home() {
            let is_forwarded = seen.to == site::FORWARD_INSIDE.into();
            self.counts.forwarded += 1;
            return match is_forwarded {
                true => Ok(()),
                false => Err(format!("a packet to the port forward comes to {:?}", seen.to)),
            };
        }
        if seen.mark == Mark::PROBE {
            return Err(format!("a packet that nobody asked for passes to {home}: {seen:?}"));
        }
        let Some(flow) = self.flows.get_mut(seen.mark.flow as usize) else {
            return Err(format!("a packet of no flow goes to a home: {seen:?}"));
        };
        let socket = &self.sockets[flow.socket];
        let right = (socket.home, socket.inside, flow.remote, socket.protocol);
        if (home, seen.to, seen.from, seen.protocol) != right {
            return Err(format!("{home} gets a packet for {socket}: {seen:?}"));
        }
        if from != site::endpoint(socket.shard) {
            return Err(format!("{home} gets a packet from the tunnel of {from}"));
        }
        flow.got_down += 1;
        self.counts.down_received += 1;
        flow.on_answer(now_us, seen.flags);
        Ok(())
    }

    /// Begins the calm, in which no packet may be lost: notes how many packets of each flow are
    /// missing.
    pub(crate) fn begin_calm(&mut self) {
        for flow in &mut self.flows {
            flow.calm = Some(flow.missing());
        }
    }

    /// Returns the packets that were lost since then, or a flow that has not recovered.
    /// `is_lossless`: no link loses packets.
    pub(crate) fn lost_in_calm(&self, is_lossless: bool) -> Option<String> {
        self.flows.iter().find_map(|flow| {
            let socket = &self.sockets[flow.socket];
            let missing = flow.missing();
            let since = flow.calm.unwrap_or_default();
            if is_lossless && (missing.0 > since.0 || missing.1 > since.1) {
                let of = (flow.sent_up, flow.sent_down);
                return Some(format!(
                    "{socket} lost packets up and down: {missing:?} of {of:?}, {since:?} before"
                ));
            }
            let is_dead = flow.is_lasting && flow.stage == Stage::Opening && flow.sent_up > SILENT;
            is_dead.then(|| format!("{socket} gets no answer"))
        })
    }

    /// True if a flow was established a while ago, and continues.
    fn is_established(&self, flow: &Flow, now_us: u64) -> bool {
        let is_long_ago = flow.first_us.is_some_and(|at_us| at_us + SETTLED_US <= now_us);
        flow.is_lasting && flow.stage == Stage::Established && is_long_ago
    }

    /// Protects sockets, as the cluster is whole: the sockets whose mapping all copies hold,
    /// according to `holds`, must keep their public endpoints.
    pub(crate) fn protect(&mut self, now_us: u64, holds: impl Fn(&Socket) -> bool) {
        for number in 0..self.flows.len() {
            let flow = &self.flows[number];
            if self.is_established(flow, now_us) {
                let socket = &mut self.sockets[flow.socket];
                if (socket.protected.is_none() || socket.known != socket.public) && holds(socket) {
                    socket.known = socket.public;
                    socket.protected = socket.protected.or(socket.public);
                }
            }
        }
    }

    /// Returns the number of sockets that must keep their public endpoints.
    pub(crate) fn count_protected(&mut self) -> usize {
        let protected = self.sockets.iter().filter(|socket| socket.protected.is_some());
        let [all, of_ipv6] = protected.fold([0, 0], |[all, of_ipv6], socket| {
            [all + 1, of_ipv6 + u64::from(socket.is_ipv6())]
        });
        self.counts.protected += all;
        self.counts.protected6 += of_ipv6;
        all as usize
    }

    /// Returns what a packet shows that leaves a worker to the internet or to a home: its flow, its
    /// public endpoint on the way up, and the progress of its session; `None` if it belongs to no
    /// flow.
    pub(crate) fn shown(&self, bytes: &[u8], is_up: bool) -> Option<Shown> {
        let inner = if is_up { bytes } else { packet::decapsulate(bytes)?.2 };
        let seen = packet::read(inner)?;
        let flow = seen.mark.flow as usize;
        let socket = &self.sockets[self.flows.get(flow)?.socket];
        let left = socket.left.map(|left| left.public);
        let public = if is_up { seen.from } else { left? };
        let progress = Progress::shown_by(seen.protocol, seen.flags, is_up);
        Some(Shown { flow, public, progress })
    }

    /// Returns the key of the socket that a session belongs to, and the session's public endpoint.
    pub(crate) fn inside_of(&self, session: &SessionView) -> (Inside, SocketAddr) {
        let outer = session.home.ipv4().expect("homes have IPv4 addresses");
        let (inside, public, is_pooled) = match session.ends {
            SessionEnds::Ipv4(ends) => {
                let [inside, public] = [ends.inside, ends.public].map(|it| {
                    SocketAddr::from(SocketAddrV4::new(Ipv4Addr::from_bits(it.address), it.port))
                });
                (inside, public, site::is_of_pool(ends.public.address))
            }
            SessionEnds::Ipv6(ends) => {
                let address = Ipv6Addr::from_bits(ends.inside.address);
                let inside = SocketAddrV6::new(address, ends.inside.port, 0, 0).into();
                (inside, inside, false)
            }
        };
        let is_pooled = self.alone.is_some() && is_pooled;
        ((outer, inside, session.protocol, is_pooled), public)
    }

    /// Whether the mapping of an inside endpoint may have expired.
    pub(crate) fn is_silent(&self, inside: Inside, now_us: u64) -> bool {
        let is_its = |flow: &&Flow| self.sockets[flow.socket].key() == inside;
        let flow = self.flows.iter().find(is_its);
        flow.is_none_or(|flow| now_us > flow.sent_us + self.silent_us)
    }

    /// Stops checking mappings that may have expired.
    pub(crate) fn let_go_of_silent(&mut self, now_us: u64) {
        for flow in self.flows.iter().filter(|flow| now_us > flow.sent_us + self.silent_us) {
            let socket = &mut self.sockets[flow.socket];
            (socket.known, socket.protected, socket.left) = (None, None, None);
        }
    }

    /// Removes all protection: more has failed than a flow must survive.
    pub(crate) fn unprotect(&mut self) {
        self.sockets.iter_mut().for_each(|socket| socket.protected = None);
    }
}

/// What a packet shows of its session to its receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) flow: usize,
    pub(crate) public: SocketAddr,
    pub(crate) progress: Progress,
}

/// The result of a packet at a server.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) reply: Option<(IpAddr, Vec<u8>)>,
    /// The public endpoint that it came from, and its home.
    pub(crate) used: (SocketAddr, Ipv4Addr),
    /// True if the socket had another public endpoint before.
    pub(crate) has_moved: bool,
    /// True if another socket was seen with this public endpoint.
    pub(crate) is_shared: bool,
}
