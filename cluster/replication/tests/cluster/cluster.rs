//! Workers and their network, advanced turn by turn.

use std::collections::{BTreeMap, BTreeSet};

use allocation_counter::measure;
use weir_engine::Side;
use weir_map::{LaneSet, ShardId};
use weir_nat::{Endpoint, Home, Outbound, Protocol, Tick};
use weir_replication::command::ShardDuties;
use weir_replication::{PeerId, WorkerCommand, WorkerEvent};
use weir_stream::{BootId, StreamOptions};
use weir_wire::{build, ipv4};

use crate::member::{
    ENDPOINT, Flow, HOMES, INSIDE, Make, Member, SERVERS, SHARD, address, peer_id, setup,
};
use crate::network::{Faults, Network};

/// The port of servers.
pub(crate) const SERVICE: u16 = 443;

pub(crate) fn options() -> StreamOptions {
    StreamOptions {
        peers_max: 4,
        copies_max: 256,
        buffers: 1024,
        log_datagrams: 256,
        scrub_us: 20_000,
        settle_us: 20_000,
        ..StreamOptions::default()
    }
}

pub(crate) fn no_duties(shard: u32) -> ShardDuties {
    ShardDuties::none(ShardId(shard))
}

/// All workers, their network and the time.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Option<Member>>,
    pub(crate) network: Network,
    pub(crate) now_us: u64,
    /// Microseconds between two turns of a worker.
    pub(crate) turn_us: u64,
    /// Settings of workers that are started later.
    pub(crate) make: Make,
    lives: u128,
    /// Allocations that the workers made in their turns.
    pub(crate) allocations: u64,
    /// Flow that holds each public endpoint: no other flow may get it.
    pub(crate) given: BTreeMap<(u32, u16), Flow>,
}

impl Cluster {
    /// Returns workers that know each other and have the shard, but no duties yet.
    pub(crate) fn new(workers: usize, seed: u64, faults: Faults) -> Self {
        let mut cluster = Self::empty(workers, seed, faults);
        for worker in 0..workers {
            cluster.start(worker);
            cluster.add_shard(worker);
        }
        cluster
    }

    /// Returns a cluster in which no worker runs yet.
    pub(crate) fn empty(workers: usize, seed: u64, faults: Faults) -> Self {
        let make = Make { flows_max: 60_000, shards_max: 8, options: options(), commit: None };
        Self {
            members: (0..workers).map(|_| None).collect(),
            network: Network::new(seed, faults),
            now_us: 1_000_000_000,
            turn_us: 250,
            make,
            lives: 0,
            allocations: 0,
            given: BTreeMap::new(),
        }
    }

    /// Starts a new incarnation of a worker, without records.
    pub(crate) fn start(&mut self, number: usize) {
        self.start_as(number, peer_id(number));
    }

    /// Starts an incarnation of the worker `id` at the address of a number.
    pub(crate) fn start_as(&mut self, number: usize, id: PeerId) {
        self.lives += 1;
        let boot = BootId(self.lives << 64 | u128::from(self.network.random.next()));
        let (network, now_us) = (&mut self.network, self.now_us);
        let member = Member::new(number, id, boot, &self.make, network, now_us);
        self.members[number] = Some(member);
        for other in 0..self.members.len() {
            if other == number || peer_id(other) == id {
                continue;
            }
            let (peer, address) = (peer_id(other), address(other));
            self.order(number, WorkerCommand::AddPeer { peer, address });
        }
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.members[number] = None;
    }

    pub(crate) fn is_alive(&self, number: usize) -> bool {
        self.members[number].is_some()
    }

    pub(crate) fn worker(&mut self, number: usize) -> &mut Member {
        self.members[number].as_mut().expect("the worker is alive")
    }

    pub(crate) fn boot(&self, number: usize) -> BootId {
        self.members[number].as_ref().map_or(BootId(0), |worker| worker.boot)
    }

    /// Gives a worker a command, which it carries out at once.
    pub(crate) fn order(&mut self, number: usize, order: WorkerCommand) {
        self.worker(number).order(order);
        while self.worker(number).has_orders() {
            self.turn(number);
        }
    }

    pub(crate) fn duties(&mut self, number: usize, duties: ShardDuties) {
        self.order(number, WorkerCommand::Duties(Box::new(duties)));
    }

    pub(crate) fn add_shard(&mut self, number: usize) {
        let awaits_replicas = self.make.commit.is_some();
        self.order(number, WorkerCommand::AddShard(Box::new(setup(SHARD, awaits_replicas))));
    }

    /// Sends a home's packet through a worker, before time passes. A new flow must have a public
    /// endpoint that no other has.
    pub(crate) fn up(&mut self, number: usize, home: u32, port: u16) -> Option<Flow> {
        let inner = build::ipv4(INSIDE, SERVERS).udp(port, SERVICE, b"hello");
        let packet = build::ipv4(HOMES + home, ENDPOINT).gre(build::gre(), inner);
        self.worker(number).packets(Side::Access, vec![packet]);
        while self.worker(number).has_frames() {
            self.turn(number);
        }
        let [_, to_servers] = self.worker(number).sent();
        let packet = to_servers.first()?;
        assert_eq!(to_servers.len(), 1, "one packet leaves for the servers");
        let (source, ..) = read(packet);
        Some(self.note(number, home, port, source))
    }

    /// Begins a flow between two turns; so many can begin before a turn reads the journal.
    pub(crate) fn begin(&mut self, number: usize, home: u32, port: u16) {
        let now = Tick((self.now_us / 1_000_000) as u32);
        let worker = self.worker(number);
        let shard =
            worker.replication().index_of(ShardId(SHARD)).expect("the worker has the shard");
        let nat = worker.engine().nat_mut();
        let home_at = Home { shard, outer: HOMES + home, gre_key: None };
        let (inside, protocol) = (Endpoint::new(INSIDE, port), Protocol::Udp);
        let hash = nat.outbound_hash(&home_at, inside, protocol);
        let remote = Endpoint::new(SERVERS, SERVICE);
        let packet = Outbound { home: home_at, inside, remote, protocol, tcp_flags: 0 };
        let opened = nat.outbound(hash, &packet, now).expect("the NAT has room for the flow");
        self.note(number, home, port, opened.to);
    }

    fn note(&mut self, number: usize, home: u32, inside_port: u16, public: Endpoint) -> Flow {
        let public = (public.address, public.port);
        let flow = Flow { outer: HOMES + home, inside_port, public };
        let holder = *self.given.entry(public).or_insert(flow);
        assert_eq!(holder, flow, "worker {number} gave a port twice");
        flow
    }

    /// Runs a turn of one worker that takes no time.
    pub(crate) fn turn(&mut self, number: usize) {
        let Self { members, network, now_us, .. } = self;
        members[number].as_mut().expect("the worker is alive").turn(network, *now_us);
    }

    /// Advances time: datagrams arrive, every worker has a turn.
    pub(crate) fn step(&mut self) {
        self.now_us += self.turn_us;
        let now_us = self.now_us;
        while let Some(datagram) = self.network.arrived(now_us) {
            let to = (0..self.members.len()).find(|&worker| address(worker) == datagram.to);
            if let Some(worker) = to.and_then(|to| self.members[to].as_mut()) {
                worker.datagram(datagram.from, &datagram.bytes);
            }
        }
        for worker in self.members.iter_mut().flatten() {
            self.allocations += measure(|| worker.work(now_us)).count_total;
            worker.deliver(&mut self.network, now_us);
        }
    }

    pub(crate) fn run(&mut self, microseconds: u64) {
        let end_us = self.now_us + microseconds;
        while self.now_us < end_us {
            self.step();
        }
    }

    /// Runs until the condition holds, at most 30 s.
    pub(crate) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end_us = self.now_us + 30_000_000;
        while !holds(self) {
            assert!(self.now_us < end_us, "never: {what}");
            self.step();
        }
    }

    /// True if a worker last reported the copies of its shard as complete, not lost.
    pub(crate) fn is_done(&mut self, number: usize) -> bool {
        let done = self.worker(number).events.iter().rev().find_map(|event| match event {
            WorkerEvent::CopyDone(shard) if shard.0 == SHARD => Some(true),
            WorkerEvent::StreamLost(shard) if shard.0 == SHARD => Some(false),
            _ => None,
        });
        done == Some(true)
    }

    /// True if every lane that is to come from others is complete and followed.
    pub(crate) fn has_all(&mut self, number: usize) -> bool {
        let status = self.worker(number).status();
        status.lanes_followed == status.lanes_awaited && status.lanes_full == 0
    }

    /// Checks that all live workers know the same flows.
    pub(crate) fn check_equal(&mut self) {
        let mut all = self.members.iter_mut().flatten().map(|worker| worker.flows());
        let first = all.next().expect("at least one worker is alive");
        for other in all {
            assert_eq!(first.len(), other.len());
            assert_eq!(first, other);
        }
    }

    pub(crate) fn flows(&mut self, number: usize) -> usize {
        self.worker(number).flows().len()
    }

    /// Forgets the lost flows of a worker that has died with these lanes: flows that no other
    /// worker knows are lost, and their public endpoints free. All others must be kept.
    pub(crate) fn forget_lost(&mut self, lanes: LaneSet) {
        let alive = self.members.iter_mut().flatten();
        let known: BTreeSet<Flow> = alive.flat_map(|worker| worker.flows()).collect();
        let lane = |public: &(u32, u16)| usize::from(public.1 / 64 % 8);
        self.given.retain(|public, flow| !lanes.contains(lane(public)) || known.contains(flow));
    }

    /// Checks that no two inside endpoints hold one public endpoint, on any workers.
    pub(crate) fn check_unique(&mut self) {
        let mut holders: BTreeMap<(u32, u16), Flow> = BTreeMap::new();
        for worker in self.members.iter_mut().flatten() {
            for flow in worker.flows() {
                let holder = *holders.entry(flow.public).or_insert(flow);
                assert_eq!(holder, flow, "worker {} has a port of another flow", worker.number);
            }
        }
    }

    /// Checks that every flow which a survivor knew when a worker died is known to all.
    pub(crate) fn check_kept(&mut self) {
        for worker in self.members.iter_mut().flatten() {
            let known = worker.flows();
            let lost: Vec<_> = self.given.values().filter(|flow| !known.contains(flow)).collect();
            assert!(lost.is_empty(), "worker {} lost {lost:?}", worker.number);
        }
    }
}

/// Returns source and destination of a packet, whether it is TCP, and the last four bytes that it
/// carries.
pub(crate) fn read(packet: &[u8]) -> (Endpoint, Endpoint, bool, u32) {
    let (ip, at, end) = ipv4::parse(packet).expect("an IPv4 packet");
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let number = packet[end - 4..end].try_into().expect("four bytes");
    (
        Endpoint::new(ip.source.get(), port(at)),
        Endpoint::new(ip.destination.get(), port(at + 2)),
        ip.protocol == ipv4::PROTOCOL_TCP,
        u32::from_be_bytes(number),
    )
}
